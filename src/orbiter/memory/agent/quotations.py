"""Quotations: what the answers of our own tools in conversations repeat of a memory.

They go when the memory is forgotten or erased. The answer stays where it is, so that its
conversation is as legal as before, with a word in the place of each line that repeats the memory.
No earlier version of it is kept, or that would hold what an erasure has to remove.
"""

import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from orbiter.memory.agent._updates import pages
from orbiter.memory.agent.runtime import Store, keeps_versions
from orbiter.memory.model.audit import silently
from orbiter.memory.model.copying import copy_item
from orbiter.memory.model.facts import FactMemory
from orbiter.memory.model.items import MemoryItem, MemoryMetadata, is_own_output
from orbiter.memory.model.query import Query
from orbiter.memory.model.records import Record

__all__ = ["STRUCK", "are_quoted", "owner_of", "strike_quotations", "texts_of"]

STRUCK = "(forgotten)"
"""What stands in the place of a line that repeated a memory."""

_FEW = 20
"""Texts that are looked for one by one; for more, all answers are read."""
_LONG = 600
"""Characters of a text of which an answer may show a passage alone."""
_SHORT = 8
"""Characters that are found in too many answers to ask for them."""
_WORDS = 12
"""Words in a row that are a quotation of a text with more."""
_PLAIN = re.compile(r"[A-Za-z0-9 ,.;:!?()-]+")
"""What stands in a fence and in JSON as it is."""
_SAYS = 3
"""Words that are a quotation wherever they stand."""
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_HEAD = re.compile(r"^(?:\[[^\]]*\]|[-*]) *")
_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)")
_WORD = re.compile(r"\w+")


def owner_of(scope: MemoryMetadata | None) -> MemoryMetadata | None:
    """Return the scope in which memories of *scope* may be quoted: all that its user has."""
    if scope is None or scope.user_id is None:
        return scope
    return MemoryMetadata(user_id=scope.user_id)


async def texts_of(store: Store, items: Sequence[MemoryItem]) -> list[str]:
    """Return the texts by which answers may quote *items*, of few also what they were before."""
    every = list(items)
    if keeps_versions(store) and len(items) <= _FEW:
        with silently():
            for item in items:
                every += [past.item for past in await store.history(item.id)]
    texts: dict[str, None] = {}
    for item in every:
        if not is_own_output(item):
            texts[item.content] = None
            if isinstance(item, FactMemory):
                texts[f"{item.key} is {item.value}"] = None
    return [text for text in texts if _words(text)]


async def strike_quotations(
    store: Store, scope: MemoryMetadata | None, texts: Sequence[str], *, forgotten: bool = False
) -> list[MemoryItem]:
    """Take *texts* out of the answers of our tools; return the answers that quoted them.

    *scope* says whose answers. With *forgotten*, also out of those that were forgotten.
    """
    quotes = _quotes(texts)
    struck: dict[str, MemoryItem] = {}
    async for item in _quoting(store, scope, texts, quotes, forgotten=forgotten):
        struck[item.id] = item
    ids = list(struck)
    with silently():  # what is read here is shown to nobody
        for place in range(0, len(ids), _FEW):
            records = await store.records(item_ids=ids[place : place + _FEW], limit=_FEW)
            clean = [Record(_without(each.item, quotes), deleted=each.deleted) for each in records]
            await store.put_records(clean, overwrite=True)
    return list(struck.values())


async def are_quoted(store: Store, scope: MemoryMetadata | None, texts: Sequence[str]) -> bool:
    """Tell whether an answer of our tools in *scope* quotes one of *texts*."""
    async for _ in _quoting(store, scope, texts, _quotes(texts), forgotten=True):
        return True
    return False


_Quotes = Callable[[str], bool]


async def _quoting(
    store: Store,
    scope: MemoryMetadata | None,
    texts: Sequence[str],
    quotes: _Quotes,
    *,
    forgotten: bool,
) -> AsyncIterator[MemoryItem]:
    for query in _queries(texts):
        for gone in (False, True) if forgotten and keeps_versions(store) else (False,):
            condition = Query(query, scope, "tool")
            for item in await _answers(store, condition, forgotten=gone):
                if quotes(item.content) or quotes(_spelled(item)):
                    yield item


async def _answers(store: Store, condition: Query, *, forgotten: bool) -> list[MemoryItem]:
    with silently():
        found = pages(store, condition, are_removed=False, forgotten=forgotten)
        return [item async for page in found for item in page if is_own_output(item)]


def _queries(texts: Sequence[str]) -> list[str]:
    """Return what to ask a store for: a part of each text, or nothing, which finds all answers."""
    if not texts:
        return []
    parts = [max(_PLAIN.findall(text), key=len, default="").strip() for text in texts]
    is_sure = all(len(part) >= _SHORT for part in parts)
    if len(texts) > _FEW or not is_sure or any(len(text) > _LONG for text in texts):
        return [""]
    return list(dict.fromkeys(parts))


def _quotes(texts: Iterable[str]) -> _Quotes:
    """Return what tells whether a text repeats one of *texts*, however it is escaped.

    A word or two stand in much that repeats nothing: they must be all that is said.
    """
    runs: dict[int, set[tuple[str, ...]]] = {}
    short: set[tuple[str, ...]] = set()
    for text in texts:
        words = _words(text)
        size = min(len(words), _WORDS)
        if size < _SAYS:
            short.add(tuple(words))
        else:
            runs.setdefault(size, set()).update(_runs(words, size))

    def quotes(text: str) -> bool:
        words = _words(text)
        if any(not wanted.isdisjoint(_runs(words, size)) for size, wanted in runs.items()):
            return True
        return bool(short) and any(
            tuple(_words(value)) in short for line in text.split("\n") for value in _values(line)
        )

    return quotes


def _values(line: str) -> Iterable[str]:
    """Return what a line may say: what stands in quotation marks, and what ends an entry."""
    yield from _QUOTED.findall(line)
    yield _HEAD.sub("", line)


def _runs(words: Sequence[str], size: int) -> Iterable[tuple[str, ...]]:
    return zip(*(words[start:] for start in range(size)), strict=False)


def _words(text: str) -> list[str]:
    return _WORD.findall(_ESCAPE.sub(_said, text).casefold())


def _said(escape: re.Match[str]) -> str:
    """Return the character that is escaped, or a space for a line end."""
    code = escape[0][2:]
    if not code:
        return " "
    number = int(code, 16)
    return chr(number) if number <= 0x10FFFF else " "


def _spelled(item: MemoryItem) -> str:
    return json.dumps(item.native, ensure_ascii=False) if item.native else ""


def _without(item: MemoryItem, quotes: _Quotes) -> MemoryItem:
    """Return a copy of an answer in which nothing is repeated that *quotes* finds."""
    copy = copy_item(item)
    copy.__dict__.update(
        content=_struck(item.content, quotes),
        native=_struck_values(item.native, quotes),
        version=item.version + 1,
        updated_at=datetime.now(UTC),
    )
    return copy


def _struck(text: str, quotes: _Quotes) -> str:
    if not quotes(text):
        return text
    rest = "\n".join(STRUCK if quotes(line) else line for line in text.split("\n"))
    return STRUCK if quotes(rest) else rest


def _struck_values(value: Any, quotes: _Quotes) -> Any:
    if isinstance(value, str):
        return _struck(value, quotes)
    if isinstance(value, dict):
        return {name: _struck_values(each, quotes) for name, each in value.items()}
    if isinstance(value, list):
        return [_struck_values(each, quotes) for each in value]
    return value
