"""What bounds the work of recall in a SQLite file must not change what is found."""

import random
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from orbiter.memory import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
    SQLiteMemoryStore,
)
from orbiter.memory.backends.sqlite import schema, term_index, term_search
from orbiter.memory.backends.sqlite import store as sqlite
from orbiter.memory.errors import MemoryTimeoutError
from orbiter.memory.model.query import Query
from orbiter.memory.testing import HashEmbeddings

ANN = MemoryMetadata(user_id="ann")
START = datetime(2025, 1, 1, tzinfo=UTC)


def note(number: int, content: str, **more: Any) -> HumanMemory:
    scope = MemoryMetadata(
        user_id="ann", session_id=more.pop("session", None), extra=more.pop("extra", {})
    )
    created = START + timedelta(minutes=number)
    return HumanMemory(
        id=f"{number:05}", content=content, metadata=scope, created_at=created, **more
    )


def old_and_new(new: int, old: int) -> list[MemoryItem]:
    """Return a few old drafts of a session in English and more new items that are none."""
    english = {"extra": {"lang": "en"}, "session": "s", "status": MemoryStatus.DRAFT}
    german = {"extra": {"lang": "de"}, "session": "t", "status": MemoryStatus.ACCEPTED}
    return [
        AIMemory(**note(0, "the door code", **english).model_dump(exclude={"memory_type"})),
        *[note(n, "some door", **english) for n in range(1, old)],
        *[note(n, f"door code nr{n}", **german) for n in range(old, old + new)],
    ]


FILTERS: tuple[dict[str, Any], ...] = (
    {"where": {"lang": "en"}},
    {"status": MemoryStatus.DRAFT},
    {"memory_type": "ai"},
    {"where": {"lang": "en"}, "status": MemoryStatus.DRAFT},
    {"metadata": MemoryMetadata(user_id="ann", session_id="s")},
    {"metadata": MemoryMetadata(session_id="s")},
    {"until": START + timedelta(minutes=1)},
)


def in_small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("PROBED", 4), ("MOST", 20), ("BUDGET", 20), ("SCANNED", 20)):
        monkeypatch.setattr(term_search, name, value)


@pytest.mark.parametrize("old", [1, 30])
@pytest.mark.parametrize("has_terms", [True, False])
async def test_a_filter_finds_what_is_older_than_all_that_it_excludes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: int, has_terms: bool
) -> None:
    in_small(monkeypatch)
    if not has_terms:
        monkeypatch.setattr(schema, "has_terms", lambda _: False)
    async with SQLiteMemoryStore(tmp_path / "memory.db") as store:
        await store.add_many(old_and_new(100, old))
        for asked in FILTERS:
            found = await store.match_words(
                ["code", "door"], Query(**{"metadata": ANN, **asked}, limit=50)
            )

            assert len(found.items) >= min(old, 20) or "until" in asked or "memory_type" in asked
            if has_terms:
                assert "00000" in {item.id for item in found.items}, asked
                assert found.passages == 100 + old


async def test_a_filter_finds_what_is_older_than_thousands_that_it_excludes(
    tmp_path: Path,
) -> None:
    async with SQLiteMemoryStore(tmp_path / "memory.db") as store:
        await store.add_many(old_and_new(6000, 2))
        for asked in FILTERS:
            found = await store.match_words(
                ["door", "code"], Query(**{"metadata": ANN, **asked}, limit=5)
            )

            assert found.items[0].id == "00000", asked


@pytest.mark.parametrize("drafts", [0, 3, 60])
@pytest.mark.parametrize("is_small", [True, False])
async def test_what_is_known_without_its_rows_is_what_the_rows_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drafts: int, is_small: bool
) -> None:
    if is_small:
        in_small(monkeypatch)
    dice = random.Random(drafts)
    async with SQLiteMemoryStore(tmp_path / "memory.db") as store:
        items = [
            note(dice.randrange(50), dice.choice(("door", "door code", "code " * 90 + "lock")))
            for _ in range(120)
        ]
        named = [item.model_copy(update={"id": f"i{n}"}) for n, item in enumerate(items)]
        await store.add_many(
            [
                item.model_copy(update={"status": MemoryStatus.DRAFT}) if n < drafts else item
                for n, item in enumerate(dice.sample(named, len(named)))
            ]
        )
        questions = [
            Query(metadata=who, status=status, limit=limit)
            for who in (ANN, None)
            for status in (MemoryStatus.ACCEPTED, None)
            for limit in (1, 7, 50, 500)
        ]

        async def ask() -> list[list[str]]:
            found = [await store.match_words(["door", "code", "lock"], each) for each in questions]
            return [[item.id for item in each.items] for each in found]

        known = await ask()
        monkeypatch.setattr(term_search, "_others", lambda *_, **__: None)

        assert known == await ask()


async def test_sqlite_and_python_agree_on_what_is_equal() -> None:
    odd: tuple[Any, ...] = (
        *(0, 1, -1, 2**53, 2**53 + 1, 2**63 - 1, 0.0, 1.0, 0.5, 1e30, 1.0000000000000002),
        *(True, False, "", "1", "1.0", "true", "en", "EN", 'a"b', "a\\b", "é", "e\u0301", "\x7f"),
        *("en\n", " en", "[1]", "null"),
    )
    more: tuple[Any, ...] = (None, [1], {"k": 1}, ["en"], {})
    keys = ("k", "K", "k.k", "0", "k_1", '"', "k[0]", "é", "")
    async with SQLiteMemoryStore() as store:
        items = [
            HumanMemory(content="x", metadata=MemoryMetadata(extra={key: value, "other": 1}))
            for key in keys
            for value in (*odd, *more)
        ]
        await store.add_many(items)
        for key in keys:
            for value in odd:
                for where in ({key: value}, {key: value, "other": 1})[: 2 if key == "k" else 1]:
                    asked = Query(where=where)
                    found = await store.search(where=where, limit=1000)

                    expected = {item.id for item in items if asked.matches(item)}
                    assert {item.id for item in found} == expected, where


async def test_of_equally_near_items_the_newest_come_first_however_they_came(
    tmp_path: Path,
) -> None:
    embeddings, path = HashEmbeddings(16), tmp_path / "memory.db"
    numbers = [n // 2 for n in range(600)]  # two of each moment
    random.Random(1).shuffle(numbers)
    towards, asked = embeddings.embed("good morning"), Query(metadata=ANN, limit=40)
    some = Query(metadata=ANN, limit=40, where={"odd": 1})

    def same(place: int) -> HumanMemory:
        item = note(numbers[place], "Good morning!", extra={"odd": place % 2})
        return item.model_copy(update={"id": f"i{place}"})

    async with SQLiteMemoryStore(path, embeddings=embeddings) as warm:
        for start in range(0, 600, 100):
            await warm.add_many([same(place) for place in range(start, start + 100)])
            await warm.catch_up()
            await warm.nearest(towards, asked)
        for gone in range(7, 600, 3):
            await warm.delete(f"i{gone}")
        await warm.add(same(3).model_copy(update={"content": "good  morning"}))
        await warm.catch_up()
        here = [place for place in range(600) if place < 7 or place % 3 != 1]
        newest = sorted(here, key=lambda place: (numbers[place], place), reverse=True)
        async with SQLiteMemoryStore(path, embeddings=embeddings) as fresh:
            for store in (warm, fresh):
                found = [item.id for item, _ in await store.nearest(towards, asked)]
                odd = [item.id for item, _ in await store.nearest(towards, some)]

                assert found == [f"i{place}" for place in newest][:40]
                assert odd == [f"i{place}" for place in newest if place % 2][:40]


async def test_a_place_given_out_again_has_the_time_of_the_new_item(tmp_path: Path) -> None:
    embeddings = HashEmbeddings(16)
    towards = embeddings.embed("good morning")
    async with SQLiteMemoryStore(tmp_path / "memory.db", embeddings=embeddings) as store:
        await store.add_many([note(n, "Good morning!") for n in (5, 7, 9)])
        await store.catch_up()
        await store.nearest(towards, Query(metadata=ANN))
        await store.delete("00009")
        await store.purge()
        await store.add(note(3, "Good morning!"))
        await store.catch_up()

        found = await store.nearest(towards, Query(metadata=ANN))

        assert [item.id for item, _ in found] == ["00007", "00005", "00003"]


@pytest.mark.parametrize("others", [0, 3, 40])
@pytest.mark.parametrize("odd", [None, "2025-02-28 00:00", "2025-02-28T00:00:00.000+00:00", ""])
async def test_vectors_are_read_with_times_of_any_form_among_those_of_others(
    tmp_path: Path, others: int, odd: str | None
) -> None:
    embeddings, path = HashEmbeddings(16), tmp_path / "memory.db"
    towards = embeddings.embed("good morning")
    bob = {"metadata": MemoryMetadata(user_id="bob")}
    async with SQLiteMemoryStore(path, embeddings=embeddings) as store:
        for number in range(12):
            await store.add(note(-number, "Good morning!" if number else "Good morning! " * 99))
            await store.add_many(
                [
                    note(10_000 + number * others + n, "Good morning!").model_copy(update=bob)
                    for n in range(others)
                ]
            )
        await store.catch_up()
    if odd is not None:
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE memory_items SET created_at = ? WHERE id = '-0011'", [odd])
    async with SQLiteMemoryStore(path, embeddings=embeddings) as store:
        found = await store.nearest(towards, Query(metadata=ANN, limit=11))

    expected = [f"{-number:05}" for number in range(12)]
    if odd is not None:
        expected.remove("-0011")
        expected[:0] = ["-0011"] if odd else []  # what has no time comes last
    assert [item.id for item, _ in found] == expected[:11]


async def test_users_without_vectors_leave_nothing_in_memory(tmp_path: Path) -> None:
    embeddings = HashEmbeddings(16)
    towards = embeddings.embed("a note")
    async with SQLiteMemoryStore(
        tmp_path / "memory.db", embeddings=embeddings, vector_cache=8192
    ) as store:
        users = [MemoryMetadata(user_id=f"u{n}") for n in range(40)]
        await store.add_many([HumanMemory(content="a note", metadata=user) for user in users])
        await store.catch_up()
        held = store._vector_cache
        await store.nearest(towards, Query(metadata=users[0]))
        assert len(held._kept) == 1

        for n in range(100):
            unknown = Query(metadata=MemoryMetadata(user_id=f"nobody{n}"))
            assert await store.nearest(towards, unknown) == []
        assert len(held._kept) == 1

        for user in users:  # small ones take more than their vectors
            assert len(await store.nearest(towards, Query(metadata=user))) == 1
        assert 1 < len(held._kept) < 40
        assert held._total == sum(kept.size for kept in held._kept.values()) <= 8192

        await store.clear(metadata=users[-1])
        assert await store.nearest(towards, Query(metadata=users[-1])) == []
        with pytest.raises(ValueError, match="numbers"):
            await store.nearest([1.0], Query(metadata=users[-2]))
        assert held._total == sum(kept.size for kept in held._kept.values())


def long_texts(count: int) -> list[HumanMemory]:
    dice = random.Random(2)
    stock = ["".join(dice.choices("abcdefgh", k=6)) for _ in range(4000)]
    return [note(n, f"secretword {' '.join(dice.choices(stock, k=3000))}") for n in range(count)]


async def test_purge_forgets_long_texts_in_transactions_of_a_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SQLiteMemoryStore(tmp_path / "memory.db") as store:
        await store.add_many([*long_texts(8), note(9, "a secretword that stays")])
        await store.optimize()
        for n in range(8):
            await store.delete(f"{n:05}")
        made: list[int] = []
        monkeypatch.setattr(term_index, "documents", counted(term_index.documents, made))
        writes: list[int] = []
        run = store._file.read

        async def read(work: Any, *, writing: bool = False) -> Any:
            before = len(made)
            found = await run(work, writing=writing)
            if len(made) > before:
                writes.append(len(made) - before)
            return found

        monkeypatch.setattr(store._file, "read", read)

        assert await store.purge() == 8

        assert len(made) == 8
        assert len(writes) >= 4
        assert max(writes) <= 2
        found = await store.match_words(["secretword"], Query())
        assert ([item.id for item in found.items], found.passages) == (["00009"], 1)
        assert (await store.verify()).problems == ()


def counted(documents: Any, made: list[int]) -> Any:
    def count(content: str, *more: str | None) -> Any:
        made.append(len(content))
        return documents(content, *more)

    return count


async def test_what_purge_could_not_forget_yet_is_found_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SQLiteMemoryStore(tmp_path / "memory.db") as store:
        await store.add_many([*long_texts(3), note(9, "a secretword that stays")])
        await store.optimize()
        for n in (0, 2):
            await store.delete(f"{n:05}")

        def is_locked(_: object) -> bool:
            raise MemoryTimeoutError("another writes")

        with monkeypatch.context() as patch:
            patch.setattr(sqlite, "forget_some", is_locked)
            assert await store.purge() == 2
        assert (await store.verify()).problems == ()
        assert {item.id for item in await store.search(query="secretword")} == {"00001", "00009"}
        await store.add(note(10, "a new one"))
        assert await store.purge() == 0  # goes on where it was

        rows = await store._file.read(
            lambda connection: connection.execute(
                "SELECT (SELECT count(*) FROM memory_unlisted),"
                " (SELECT count(*) FROM memory_unindexed)"
            ).fetchall()
        )
        assert rows == [(0, 0)]
        found = await store.match_words(["secretword"], Query())
        assert {item.id for item in found.items} == {"00001", "00009"}
        assert (await store.verify()).problems == ()


async def test_many_vectors_are_searched_by_a_graph_if_one_wants(tmp_path: Path) -> None:
    pytest.importorskip("usearch")
    embeddings, path = HashEmbeddings(16), tmp_path / "memory.db"
    asked = Query(metadata=ANN, limit=3)
    async with SQLiteMemoryStore(path, embeddings=embeddings, approximate_from=50) as store:
        await store.add_many([note(n, f"note {n} on {n * 7}") for n in range(40)])
        await store.catch_up()
        for n in range(40, 80):
            await store.nearest(embeddings.embed("few"), asked)
            await store.add(note(n, f"note {n} on {n * 7}"))
            await store.catch_up()
        await store.delete("00011")

        found = await store.nearest(embeddings.embed("note 70 on 490"), asked)
        gone = await store.nearest(embeddings.embed("note 11 on 77"), asked)

        (kept,) = store._vector_cache._kept.values()
        assert kept.matrix is not None
        assert kept.matrix._candidates is not None
        assert found[0][0].id == "00070"
        assert "00011" not in {item.id for item, _ in gone}


async def test_a_graph_from_no_number_is_refused() -> None:
    pytest.importorskip("usearch")
    with pytest.raises(ValueError, match="approximate_from"):
        SQLiteMemoryStore(approximate_from=-1)
