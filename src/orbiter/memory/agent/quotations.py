"""Quotations: what the answers of our own tools in conversations repeat of a memory.

They go when the memory is forgotten or erased. The answer stays where it is, so that its
conversation is as legal as before, with a word in the place of each line that repeats the memory.
No earlier version of it is kept, or that would hold what an erasure has to remove. Of other
messages only what stands behind a fence goes, what a provider says that our server answered, and
what the model gave our tools.
"""

import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from orbiter.memory.agent._updates import Changed, pages
from orbiter.memory.agent.quoted_arguments import STRUCK, are_in_calls, strike_calls
from orbiter.memory.agent.runtime import Store, keeps_versions
from orbiter.memory.model.audit import silently
from orbiter.memory.model.copying import copy_item, copy_value
from orbiter.memory.model.facts import FactMemory
from orbiter.memory.model.fences import DATA, fence_spans
from orbiter.memory.model.items import (
    QUOTES,
    AIMemory,
    MemoryItem,
    MemoryMetadata,
    ToolMemory,
    calls_of,
    is_own_output,
)
from orbiter.memory.model.own_output import HOSTED_TEXT, hosted_answers
from orbiter.memory.model.query import Query
from orbiter.memory.model.records import Record

__all__ = [
    "Quotes",
    "are_quoted",
    "owner_of",
    "quotes_of",
    "strike",
    "strike_fences",
    "strike_forgotten",
    "strike_quotations",
    "strike_values",
    "texts_of",
]

_OTHERS = ("system", "human", "ai")
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
_WORD = re.compile(r"[^\W_]+")
"""A key such as `home_city` is told as two words."""


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
    """Take *texts* out of the answers of our tools; return the messages that quoted them.

    *scope* says whose answers. With *forgotten*, also out of those that were forgotten.
    """
    quotes = quotes_of(texts)
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


async def strike_forgotten(
    store: Store, tell: Changed, scope: MemoryMetadata | None, texts: Sequence[str]
) -> None:
    """Take *texts* that were forgotten in *scope* out of the answers of our tools; *tell* of it."""
    if texts:
        await tell(store, await strike_quotations(store, owner_of(scope), texts))


async def are_quoted(store: Store, scope: MemoryMetadata | None, texts: Sequence[str]) -> bool:
    """Tell whether an answer of our tools in *scope* quotes one of *texts*."""
    async for _ in _quoting(store, scope, texts, quotes_of(texts), forgotten=True):
        return True
    return False


Quotes = Callable[[str], bool]
"""Tells whether a text repeats what is looked for."""


async def _quoting(
    store: Store,
    scope: MemoryMetadata | None,
    texts: Sequence[str],
    quotes: Quotes,
    *,
    forgotten: bool,
) -> AsyncIterator[MemoryItem]:
    conditions = [Query(query, scope, "tool") for query in _queries(texts)]
    if conditions:
        conditions.append(Query(DATA, scope, where={"memory_type": {"$in": list(_OTHERS)}}))
        conditions.append(Query("", scope, "ai", where={QUOTES: True}))
    for condition in conditions:
        for gone in (False, True) if forgotten and keeps_versions(store) else (False,):
            for item in await _found(store, condition, forgotten=gone):
                if _is_quoting(item, quotes):
                    yield item


async def _found(store: Store, condition: Query, *, forgotten: bool) -> list[MemoryItem]:
    with silently():
        found = pages(store, condition, are_removed=False, forgotten=forgotten)
        return [item async for page in found for item in page]


def _is_quoting(item: MemoryItem, quotes: Quotes) -> bool:
    calls = [item.native, calls_of(item)]
    return are_in_calls(calls, quotes, partial(strike, quotes)) or any(map(quotes, _repeated(item)))


def _repeated(item: MemoryItem) -> Iterable[str]:
    """Yield what a message says that our tools said before."""
    spelled = json.dumps(item.native, ensure_ascii=False) if item.native else ""
    if _is_answer(item):
        yield from (item.content, spelled)
        return
    for text in (item.content, spelled):
        yield from (text[start:end] for start, end in fence_spans(text))
    for part in hosted_answers(item.native):
        yield json.dumps(part.get(HOSTED_TEXT[part["type"]]), ensure_ascii=False)


def _is_answer(item: MemoryItem) -> bool:
    return isinstance(item, ToolMemory) and is_own_output(item)


def _queries(texts: Sequence[str]) -> list[str]:
    """Return what to ask a store for: a part of each text, or nothing, which finds all answers."""
    if not texts:
        return []
    parts = [max(_PLAIN.findall(text), key=len, default="").strip() for text in texts]
    is_sure = all(len(part) >= _SHORT for part in parts)
    if len(texts) > _FEW or not is_sure or any(len(text) > _LONG for text in texts):
        return [""]
    return list(dict.fromkeys(parts))


def quotes_of(texts: Iterable[str]) -> Quotes:
    """Return what tells whether a text repeats one of *texts*, however it is escaped.

    A word or two stand in much that repeats nothing: they must be all that is said.
    """
    runs: dict[int, set[tuple[str, ...]]] = {}
    short: set[tuple[str, ...]] = set()
    for text in texts:
        words = _words(text)
        size = min(len(words), _WORDS)
        if not size:
            continue  # an emoji or the like, which is no quotation of anything
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


def _without(item: MemoryItem, quotes: Quotes) -> MemoryItem:
    """Return a copy of a message in which nothing is repeated that *quotes* finds."""
    copy = copy_item(item)
    native = copy_value(item.native)
    change = partial(strike if _is_answer(item) else strike_fences, quotes)
    for part in hosted_answers(native):
        name = HOSTED_TEXT[part["type"]]
        part[name] = strike_values(part.get(name), partial(strike, quotes))
    if isinstance(copy, AIMemory):
        calls = copy_value(copy.tool_calls)
        strike_calls([native, calls], quotes, partial(strike, quotes))
        copy.__dict__.update(tool_calls=calls)
    copy.__dict__.update(
        content=change(item.content),
        native=strike_values(native, change),
        version=item.version + 1,
        updated_at=datetime.now(UTC),
    )
    return copy


def strike_fences(quotes: Quotes, text: str) -> str:
    """Return *text* with nothing that *quotes* finds behind its fences."""
    parts, at = [], 0
    for start, end in fence_spans(text):
        parts += [text[at:start], strike(quotes, text[start:end])]
        at = end
    return "".join([*parts, text[at:]])


def strike(quotes: Quotes, text: str) -> str:
    """Return *text* with a word in the place of each line that *quotes* finds."""
    if not quotes(text):
        return text
    rest = "\n".join(STRUCK if quotes(line) else line for line in text.split("\n"))
    return STRUCK if quotes(rest) else rest


def strike_values(value: Any, change: Callable[[str], str]) -> Any:
    """Return the JSON *value* with *change* applied to every text in it."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {name: strike_values(each, change) for name, each in value.items()}
    if isinstance(value, list):
        return [strike_values(each, change) for each in value]
    return value
