"""Caches of texts and words, and `clear_all`, which clears every one of them; used by `erase`.

What is kept of texts is bounded by bytes: a memory may be a megabyte long, and thousands of them
must not stay in the process because somebody searched.
"""

import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Sequence
from functools import update_wrapper
from threading import Lock
from typing import Any, Generic, NamedTuple, TypeVar

__all__ = ["TextCache", "WordCache", "clear_all", "text_cache"]

_T = TypeVar("_T")


class CacheInfo(NamedTuple):
    """How full a cache is."""

    currsize: int
    bytes: int
    max_bytes: int


class TextCache(Generic[_T]):
    """A function of one text that remembers its newest answers, in at most so many bytes.

    The oldest are given up first. Threads may share it: a hit is one look-up, without a lock.
    """

    def __init__(
        self,
        function: Callable[[str], _T],
        *,
        max_bytes: int,
        size_of: Callable[[Any], int] | None = None,
    ) -> None:
        self._function = function
        self._max_bytes = max_bytes
        self._size_of = _size_of if size_of is None else size_of
        self._held: dict[str, _T] = {}
        # A plain dictionary takes ever longer to find its oldest, the more were given up.
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._bytes = 0
        self._changing = Lock()
        update_wrapper(self, function)

    def __call__(self, text: str) -> _T:
        """Return what the function returns for *text*."""
        try:
            return self._held[text]
        except KeyError:
            pass
        answer = self._function(text)
        size = sys.getsizeof(text) + self._size_of(answer)
        if size > self._max_bytes:
            return answer
        with self._changing:
            if text not in self._held:
                self._held[text], self._sizes[text] = answer, size
                self._bytes += size
            while self._bytes > self._max_bytes:
                oldest, size = self._sizes.popitem(last=False)
                del self._held[oldest]
                self._bytes -= size
        return answer

    def of_all(self, texts: Sequence[str]) -> list[_T]:
        """Return what the function returns for each of *texts*."""
        held = self._held
        try:
            return [held[text] for text in texts]
        except KeyError:
            return [self(text) for text in texts]

    def cache_info(self) -> CacheInfo:
        """Return how full it is."""
        with self._changing:
            return CacheInfo(len(self._held), self._bytes, self._max_bytes)

    def cache_clear(self) -> None:
        """Forget everything."""
        with self._changing:
            self._held.clear()
            self._sizes.clear()
            self._bytes = 0


def text_cache(
    *, max_bytes: int, size_of: Callable[[Any], int] | None = None
) -> Callable[[Callable[[str], _T]], TextCache[_T]]:
    """Have a function of one text remember what it returned, in at most *max_bytes*.

    *size_of* estimates the bytes of an answer. Without it all that is in one is added up, which
    takes as long as some functions do.
    """
    return lambda function: TextCache(function, max_bytes=max_bytes, size_of=size_of)


class WordCache(dict[str, _T]):
    """A function of one word that remembers its answers, looked up as in a dictionary.

    Where a text has many words, `map(cache.__getitem__, words)` runs no Python for those it knows.
    """

    def __init__(self, function: Callable[[str], _T]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, word: str) -> _T:
        answer = self._function(word)
        if len(word) <= _LONGEST_WORD:
            if len(self) >= _MAX_WORDS:
                self.clear()
            self[word] = answer
        return answer

    cache_clear = dict.clear


_MAX_WORDS, _LONGEST_WORD = 50_000, 32


def clear_all() -> None:
    """Empty every cache of a module of ours, all that has a `cache_clear`."""
    for name, module in list(sys.modules.items()):
        if name.startswith("orbiter.memory"):
            for value in list(vars(module).values()):
                if clear := getattr(type(value), "cache_clear", None):
                    clear(value)


_SINGLE = frozenset((str, bytes, int, float, bool, type(None)))
"""Types of values that hold no others."""


_TERM = 80
"""Bytes that a term and its count take, about."""


def _size_of(value: object) -> int:
    """Return the bytes that an answer takes, with all that is in it."""
    size = sys.getsizeof(value)
    if type(value) is Counter:  # of terms: these are looked at for every text that is new
        return size + _TERM * len(value)
    if isinstance(value, dict):
        return size + _sizes_of(value) + _sizes_of(value.values())
    if isinstance(value, tuple | list | set | frozenset):
        return size + _sizes_of(value)
    return size


def _sizes_of(values: Collection[object]) -> int:
    # Most hold words or numbers: these are measured without a call of ours for each.
    are_single = _SINGLE.issuperset(map(type, values))
    return sum(map(sys.getsizeof if are_single else _size_of, values))
