"""No user ever sees another's memory, also with ids that are easily confused.

Rows and questions are judged in pairs; no caller can reach into the store.
"""

import math
import random
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from orbiter.memory.model.items import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
    ToolMemory,
)
from orbiter.memory.model.protocols import MemoryStore
from orbiter.memory.model.query import Query, ScopeField
from orbiter.memory.testing.capabilities import Capabilities, needs
from orbiter.memory.testing.contracts.base_contract import (
    HOSTILE_IDS,
    START,
    Contract,
    KitNote,
    add_all,
    of,
    written,
)

__all__ = [
    "IsolationContract",
    "hostile_pairs_leak_nothing",
]

_JOINED = ("a", "b", "ab", "bc", "c", "abc", "a:b", "a\x1fb", "session_id:b", "a:session_id:b")
"""Ids that are the same when several are written one after the other."""

_LETTERS = str.maketrans({"a": "а", "e": "е", "i": "ı", "o": "ο", "c": "с"})
"""Letters of other alphabets that look the same."""

_CLEARED = 24
"""How many times a part is removed in the end."""


async def hostile_pairs_leak_nothing(
    store: MemoryStore,
    *,
    pairs: int = 1_000_000,
    seed: int = 0,
    capabilities: Capabilities | None = None,
) -> int:
    """Fill an empty *store* with rows of ids that look alike, and ask it about them.

    Returns how many pairs of a row and a question were judged, at least *pairs*. An
    `AssertionError` names the first row that came back to a question it does not answer, was
    missing from one it does, or went when others were cleared. *capabilities* say by which fields
    the store filters, what a query means, and whether it takes `where`; without, those of
    `Capabilities()`.
    """
    if await store.search(limit=1):
        raise ValueError(f"{store!r} is not empty; give one that is")
    able = capabilities or Capabilities()
    dice = random.Random(seed)  # noqa: S311 - to be repeated, not to be secret
    count = max(1, 2 * math.isqrt(pairs))
    pool = _pool(dice)
    rows = _Rows(_row(dice, pool, number) for number in range(count))
    await add_all(store, [*rows.items.values()])
    questions = -(-pairs // count)
    for _ in range(questions):
        query = _question(dice, pool, rows, able)
        _judge(query, rows, await _ask(store, query, able), able)
    for _ in range(_CLEARED):
        scope = _scope(dice, pool, rows, able.scope)
        query = Query(metadata=scope, fields=able.scope)
        gone = rows.matching(query)
        cleared = await store.clear(metadata=scope)
        assert cleared == len(gone), (
            f"clear(metadata={scope!r}) removed {cleared} rows, and {len(gone)} match"
        )
        rows.remove(gone)
    everything = Query(limit=count)
    _judge(everything, rows, await _ask(store, everything, able), able)
    return count * (questions + _CLEARED)


class _Rows:
    """What was written, and which of it has a value in a field."""

    def __init__(self, items: Iterable[MemoryItem]) -> None:
        self.items = {item.id: item for item in items}
        self._having: defaultdict[tuple[ScopeField, str], set[str]] = defaultdict(set)
        for item in self.items.values():
            for name, value in Query(metadata=item.metadata).wanted.items():
                self._having[name, value].add(item.id)

    def matching(self, query: Query) -> set[str]:
        """Return the ids of what *query* accepts; `Query.matches` has the last word."""
        held = [self._having.get(pair, set()) for pair in query.wanted.items()]
        some = set.intersection(*held) if held else set(self.items)
        return {item_id for item_id in some if query.matches(self.items[item_id])}

    def remove(self, ids: set[str]) -> None:
        for item_id in ids:
            item = self.items.pop(item_id)
            for pair in Query(metadata=item.metadata).wanted.items():
                self._having[pair].discard(item_id)


def _judge(query: Query, rows: _Rows, items: Sequence[MemoryItem], able: Capabilities) -> None:
    if able.text == "meaning":  # then every row answers, one better than the other
        query = _without_text(query)
    expected = rows.matching(query)
    ids = [item.id for item in items]
    for item in items:
        if item.id not in expected or not query.matches(item):
            raise AssertionError(
                f"a foreign row: {query!r} found `{item.id}`, which is {item.metadata!r}"
            )
    if len(set(ids)) < len(ids):
        raise AssertionError(f"{query!r} found the same row twice")
    missing = sorted(expected.difference(ids))
    if missing and len(ids) < query.limit:
        raise AssertionError(
            f"a row is missing: {query!r} did not find `{missing[0]}`, which is "
            f"{rows.items[missing[0]].metadata!r}"
        )


def _without_text(query: Query) -> Query:
    return Query(
        "", query.metadata, query.memory_type, limit=query.limit, fields=query.fields,
        where=query.where,
    )  # fmt: skip


async def _ask(store: Any, query: Query, able: Capabilities) -> list[MemoryItem]:
    filters: dict[str, Any] = {"where": query.where} if able.where else {}
    items: list[MemoryItem] = await store.search(
        query=query.text,
        metadata=query.metadata,
        memory_type=query.memory_type,
        limit=query.limit,
        **filters,
    )
    return items


# What is written and asked


def _pool(dice: random.Random) -> list[str]:
    """Return hostile ids and relatives of theirs, each once."""
    made = [relative for value in HOSTILE_IDS for relative in _relatives(value)]
    dice.shuffle(made)
    return list(dict.fromkeys([*HOSTILE_IDS, *_JOINED, *made[:120]]))


def _relatives(value: str) -> Iterator[str]:
    yield from (value.upper(), value.title(), value.swapcase(), value.casefold())
    yield from (f"{value} ", f" {value}", f"{value}\u00a0", f"{value}\n", value.strip())
    yield from (
        value[:-1],
        value[1:],
        f"{value}{value[-1:]}",
        f"{value}%",
        f"{value}_",
        "*" + value,
    )
    yield from (f"'{value}'", f'"{value}"', f"{value}'--", f"\\{value}", f'{{"id":"{value}"}}')
    yield from (f"0{value}", f"{value}.0", f"+{value}", value.translate(_LETTERS))
    yield from (unicodedata.normalize(form, f"{value}é") for form in ("NFC", "NFD"))
    yield from (
        f"{value}ß",
        f"{value}ss",
        f"{value}\u200d",
        f"{value}\x1f",
        f"{value}:",
        f"{value}|",
    )


def _row(dice: random.Random, pool: Sequence[str], number: int) -> MemoryItem:
    names = ("user_id", "session_id", "task_id", "agent_id")
    who = {name: dice.choice(pool) for name in names if dice.random() < 0.8}
    extra = {"owner": dice.choice(pool)} if dice.random() < 0.5 else {}
    kind = dice.choice((HumanMemory, AIMemory, MemoryItem))
    return kind(
        id=f"{dice.choice(pool)[:200]}/{number}",
        content=f"said by {dice.choice(pool)}",
        metadata=MemoryMetadata.model_validate({**who, "extra": extra}),
        created_at=START + timedelta(seconds=number // 3),
    )


def _scope(
    dice: random.Random, pool: Sequence[str], rows: _Rows, fields: Sequence[ScopeField]
) -> MemoryMetadata:
    """Return whom to ask about: often a row's own scope, or one that differs in one id."""
    metadata = dice.choice([*rows.items.values()]).metadata if rows.items else MemoryMetadata()
    fields_set = {name: value for name in fields if (value := getattr(metadata, name)) is not None}
    names = dice.sample(list(fields_set), min(len(fields_set), dice.choice((1, 1, 2, 3, 4))))
    wanted = {name: fields_set[name] for name in names}
    if not wanted or dice.random() < 0.4:
        wanted[dice.choice(fields)] = dice.choice(pool)
    return MemoryMetadata.model_validate(wanted)


def _question(dice: random.Random, pool: Sequence[str], rows: _Rows, able: Capabilities) -> Query:
    where: dict[str, object] | None = None
    if able.where and dice.random() < 0.3:
        value, other = dice.choice(pool), dice.choice(pool)
        filters: tuple[dict[str, object], ...] = (
            {"owner": value},
            {"owner": {"$ne": value}},
            {"owner": {"$in": [value, other]}},
            {dice.choice(able.scope): value},
            {"content": {"$contains": value}},
            {"$or": [{"user_id": value}, {"owner": {"$gte": other}}]},
        )
        where = dice.choice(filters)
    return Query(
        dice.choice(("", "", "", "", "SAID", dice.choice(pool))),
        _scope(dice, pool, rows, able.scope),
        dice.choice((None, None, None, None, "human", "ai", "Human")),
        limit=len(rows.items),
        fields=able.scope,
        where=where,
    )


class IsolationContract(Contract):
    """Who may see what."""

    async def test_no_id_finds_the_items_of_another(self, store: MemoryStore) -> None:
        for name in self.capabilities.scope:
            await store.clear()
            for value in HOSTILE_IDS:
                await store.add(HumanMemory(content=f"of {value}", metadata=of(value, name)))
            await store.add(HumanMemory(content="of nobody"))

            for value in HOSTILE_IDS:
                items = await store.search(metadata=of(value, name), limit=1000)
                assert [item.content for item in items] == [f"of {value}"], (name, value)

    async def test_no_id_clears_the_items_of_another(self, store: MemoryStore) -> None:
        for name in self.capabilities.scope:
            await store.clear()
            for value in HOSTILE_IDS:
                await store.add(HumanMemory(content=f"of {value}", metadata=of(value, name)))

            for removed, value in enumerate(HOSTILE_IDS, start=1):
                assert await store.clear(metadata=of(value, name)) == 1, (name, value)
                left = await store.search(limit=1000)
                assert len(left) == len(HOSTILE_IDS) - removed

    async def test_a_users_item_is_found_behind_many_of_others(self, store: MemoryStore) -> None:
        await store.add(HumanMemory(content="door code 1", metadata=of("ann")))
        others = [HumanMemory(content="door code 2", metadata=of("bob")) for _ in range(300)]
        await add_all(store, [*others])

        items = await store.search(query="door code", metadata=of("ann"), limit=1)

        assert [item.content for item in items] == ["door code 1"]

    async def test_a_query_does_not_cross_users(self, store: MemoryStore) -> None:
        await store.add(HumanMemory(content="door code", metadata=of("ann")))

        assert await store.search(query="door", metadata=of("bob")) == []

    async def test_changing_an_added_item_changes_nothing_stored(self, store: MemoryStore) -> None:
        items = _changeable()
        before = [written(item) for item in items]
        for item in items:
            await store.add(item)

        for item in items:
            _change(item)

        assert [written(await store.get(item.id)) for item in items] == before

    @needs(batch=True)
    async def test_changing_an_item_of_a_batch_changes_nothing_stored(self, store: Any) -> None:
        items = _changeable()
        before = [written(item) for item in items]
        await store.add_many(items)

        for item in items:
            _change(item)

        assert [written(await store.get(item.id)) for item in items] == before

    async def test_changing_a_returned_item_changes_nothing_stored(
        self, store: MemoryStore
    ) -> None:
        items = _changeable()
        for item in items:
            await store.add(item)

        for item in items * 2:  # the second time, a cache may answer
            got = await store.get(item.id)
            assert written(got) == written(item)
            assert got is not None
            _change(got)
            (listed,) = await store.search(memory_type=item.memory_type)
            assert written(listed) == written(item)
            _change(listed)

    async def test_a_returned_list_is_the_callers(self, store: MemoryStore) -> None:
        await store.add(HumanMemory(content="hi"))

        (await store.search()).clear()

        assert len(await store.search()) == 1


def _changeable() -> list[MemoryItem]:
    """Return a whole tool group and a note, with something to change at every depth."""

    def common() -> dict[str, Any]:
        extra = {"k": ["v"], "deep": {"er": {"k": ["v"]}}}
        return {"metadata": MemoryMetadata(extra=extra), "native": {"openai": [{"k": ["v"]}]}}

    call = {"id": "c", "name": "f", "arguments": {"k": ["v"]}}
    return [
        AIMemory(content="hi", tool_calls=[call], **common()),
        ToolMemory(content="hi", tool_call_id="c", **common()),
        KitNote(content="hi", mood="calm", scores=[0.5], **common()),
    ]


def _change(item: MemoryItem) -> None:
    item.metadata.extra["k"].append("more")
    item.metadata.extra["deep"]["er"]["k"].append("more")
    item.native["openai"][0]["k"].append("more")
    if isinstance(item, AIMemory):
        item.tool_calls[0]["arguments"]["k"].append("more")
        item.tool_calls.append({"id": "x"})
    if isinstance(item, KitNote):
        item.scores.append(1.0)
    item.content = "changed"
    item.status = MemoryStatus.DISCARD
