"""Words, migrations, policies, conversations and `where`: recall in Postgres, vectors aside."""

import asyncio
import math
import random
from collections.abc import Sequence
from typing import Any

import asyncpg
import pytest
from tests.stores.postgres_recall import (
    DERIVED,
    EMBEDDINGS,
    VOCABULARY,
    item,
    near,
    of,
    role_dsn,
    run,
    store,
    texts,
)

from orbiter.memory import HumanMemory, MemoryItem, MemoryMetadata, PostgresMemoryStore
from orbiter.memory.backends.postgres import schema, term_search
from orbiter.memory.errors import AccessError
from orbiter.memory.model.query import CosineQuery, Query
from orbiter.memory.text import words

__all__ = ["role_dsn", "store"]

# Words


def best_first(items: Sequence[MemoryItem], terms: Sequence[str], asked: Query) -> list[str]:
    """Answer as `WordMatches` says, from the texts."""
    passages = [
        (each, set(words.terms(passage)))
        for each in items
        if each.metadata.user_id == asked.wanted["user_id"]
        for passage in words.passages(each.content)
    ]
    scores: dict[str, float] = {}
    for term in terms:
        frequency = sum(term in held for _, held in passages)
        rarity = math.log(1 + (len(passages) - frequency + 0.5) / (frequency + 0.5))
        for each, held in passages:
            if term in held:
                scores[each.id] = scores.get(each.id, 0) + rarity
    place = {each.id: place for place, each in enumerate(items)}
    found = [each for each in items if each.id in scores and asked.matches(each)]
    found.sort(key=lambda each: (round(scores[each.id], 6), place[each.id]), reverse=True)
    return [each.id for each in found][: asked.limit]


@pytest.mark.parametrize("common", [0, 40, 4096])
async def test_words_are_ranked_alike_whichever_terms_are_looked_up(
    store: PostgresMemoryStore, monkeypatch: pytest.MonkeyPatch, common: int
) -> None:
    monkeypatch.setattr(term_search, "COMMON", common)
    items = [item(f"i{n}", text, "ann" if n % 3 else "bob") for n, text in enumerate(texts(240))]
    await store.add_many(items)
    dice = random.Random(2)

    for _ in range(6):
        terms = dice.sample([words.stem(word) for word in VOCABULARY], 4)
        for asked in (of("ann", 15), of("ann", 15, since=items[100].created_at)):
            found = await store.match_words(terms, asked)

            assert [each.id for each in found.items] == best_first(items, terms, asked)
            assert found.passages == 160


async def test_a_row_that_is_committed_late_is_found_then(
    store: PostgresMemoryStore, postgres_dsn: str
) -> None:
    await store.add(item("1", "early apple"))
    connection = await asyncpg.connect(postgres_dsn)
    late = connection.transaction()
    await late.start()
    await connection.execute("UPDATE memory_items SET content = 'late pear' WHERE id = '1'")
    await store.add(item("2", "another apple"))
    before = await store.match_words(["appl", "pear"], of("ann"))

    await late.commit()
    after = await store.match_words(["appl", "pear"], of("ann"))
    await connection.close()

    assert [each.id for each in before.items] == ["2", "1"]
    assert [each.content for each in after.items] == ["another apple", "late pear"]
    assert after.frequency == {"appl": 1, "pear": 1}


async def test_a_very_long_word_is_kept_and_found(store: PostgresMemoryStore) -> None:
    word = "".join(random.Random(3).choices("abcdefghij0123456789", k=20_000))
    await store.add(item("1", f"key {word}"))

    found = await store.match_words(words.terms(word), of("ann"))

    assert [each.id for each in found.items] == ["1"]
    assert list(found.frequency.values()) == [1]


async def test_what_is_purged_leaves_no_word_and_no_vector(
    store: PostgresMemoryStore, postgres_dsn: str
) -> None:
    await store.add_many([item("1", "secret harbour"), item("2", "plain harbour")])
    await store.catch_up()
    await store.delete("1")

    await store.purge()

    left = await run(postgres_dsn, "SELECT term, passages FROM memory_terms ORDER BY term")
    assert left == [(" ann", 1), (words.stem("harbour"), 1), (words.stem("plain"), 1)]
    assert await run(postgres_dsn, "SELECT DISTINCT id FROM memory_vectors") == [("2",)]
    await store.clear()
    await store.purge()
    await store.catch_up()
    for table in DERIVED:
        assert await run(postgres_dsn, f"SELECT * FROM {table}") == [], table


async def test_verify_finds_and_repairs_what_is_wrong_beside_the_rows(
    store: PostgresMemoryStore, postgres_dsn: str
) -> None:
    await store.add_many([item(f"{n}", f"number {n}") for n in range(5)])
    await store.catch_up()
    assert (await store.verify()).problems == ()
    await run(
        postgres_dsn,
        "UPDATE memory_passages SET terms = '{\" ann\",other}' WHERE id = '1'",
        "DELETE FROM memory_vectors WHERE id = '2'",
        "INSERT INTO memory_passages VALUES ('ann', 'gone', 0, '{\" ann\"}')",
        "SELECT 1",
    )

    problems = (await store.verify()).problems
    repaired = await store.verify(repair=True)

    assert len(problems) == 4, problems
    assert repaired.problems == (await store.verify()).problems == ()
    assert await store.catch_up() == 0
    assert len(await store.nearest(near("number"), of("ann"))) == 5


# Migration and row-level security


@pytest.mark.parametrize("partitions", [0, 2], ids=["whole", "partitioned"])
@pytest.mark.parametrize("is_held", [False, True], ids=["open", "held"])
async def test_items_of_the_first_version_are_found(
    postgres_dsn: str, role_dsn: str, partitions: int, is_held: bool
) -> None:
    connection = await asyncpg.connect(role_dsn)
    await connection.execute(schema.first(partitions, row_security=is_held))
    more = ", user_key" if partitions else ""
    async with connection.transaction():
        await connection.execute("SET LOCAL orbiter.user_id = 'ann'")
        for name, deleted in (("1", 0), ("2", 0), ("3", 1)):
            await connection.execute(
                f"INSERT INTO memory_items (id, content, memory_type, status, metadata, extra_json,"
                f" created_at, updated_at, deleted{more}) VALUES ($1, 'old apple ' || $1, 'human',"
                " 'accepted', '{\"user_id\": \"ann\"}', '{}', now(), now(), $2"
                f"{', $3' if partitions else ''})",
                *([name, deleted, "ann"] if partitions else [name, deleted]),
            )
            if partitions:
                await connection.execute("INSERT INTO memory_ids VALUES ($1, 'ann')", name)
    await connection.close()

    async with PostgresMemoryStore(role_dsn, embeddings=EMBEDDINGS) as store:
        ann = store.acting_for("ann") if is_held else store
        found = await ann.match_words(["appl"], of("ann"))
        assert await ann.catch_up() == 0
        nearest = await ann.nearest(near("old apple 1"), of("ann"))
        assert (await ann.stats()).schema == 1 + len(schema.MIGRATIONS)

    assert [each.id for each in found.items] == ["2", "1"]
    assert [each.id for each, _ in nearest] == ["1", "2"]
    assert found.passages == 2


@pytest.mark.parametrize("partitions", [None, 3], ids=["whole", "partitioned"])
@pytest.mark.parametrize("has_pgvector", [False, True], ids=["bytes", "pgvector"])
async def test_recall_for_one_user_never_shows_anothers(
    postgres_dsn: str, role_dsn: str, partitions: int | None, has_pgvector: bool
) -> None:
    if has_pgvector:
        await run(postgres_dsn, "CREATE EXTENSION vector", "SELECT 1")
    store = PostgresMemoryStore(role_dsn, embeddings=EMBEDDINGS)
    await store.init(partitions=partitions, row_security=True)
    ann, bob = store.acting_for("ann"), store.acting_for("bob")
    for user, bound in (("ann", ann), ("bob", bob)):
        await bound._stop_embedding()
        await bound.add_many([item(f"{user}{n}", f"door code {n} {user}", user) for n in range(5)])
    ann, bob = store.acting_for("ann"), store.acting_for("bob")
    waiting = "SELECT user_key, count(*) FROM {} GROUP BY 1 ORDER BY 1"

    left = await ann.catch_up()

    assert left == 0
    assert store._kind.is_vector is has_pgvector
    assert await run(postgres_dsn, waiting.format("memory_pending")) == [("bob", 5)]
    assert await run(postgres_dsn, waiting.format("memory_vectors")) == [("ann", 5)]
    assert await bob.catch_up() == 0
    asked = Query(limit=100)
    for who, bound in (("ann", ann), ("bob", bob)):
        found = await bound.match_words(["door", "ann", "bob"], asked)
        assert {str(each.metadata.user_id) for each in found.items} == {who}
        assert found.passages == found.frequency["door"] == 5
        nearest = await bound.nearest(near("door code"), asked)
        assert {str(each.metadata.user_id) for each, _ in nearest} == {who}
        names = [f"{user}{n}" for user in ("ann", "bob") for n in range(5)]
        assert {name[:3] for name in await bound.similarities(near("door"), names)} == {who}
        stretches = await bound.around(names, span=10)
        assert {each.id for stretch in stretches for each in stretch} == {
            f"{who}{n}" for n in range(5)
        }
        both = CosineQuery(near("door"), names, ())
        scored, cosines = await bound.around_scored(names, both, span=10)
        assert (scored, {name[:3] for name in cosines}) == (stretches, {who})
        for table in DERIVED:
            seen = await _as(role_dsn, who, f"SELECT DISTINCT user_key FROM {table}")
            assert seen in ([], [(who,)]), table
    foreign = await ann.match_words(["door"], of("bob"))
    assert (foreign.items, foreign.passages, foreign.frequency) == ([], 0, {"door": 0})
    assert (await store.match_words(["door"], asked)).items == []
    assert await store.nearest(near("door"), asked) == []
    with pytest.raises(AccessError, match="embed them again"):
        await ann.reindex()
    await store.close()


async def _as(dsn: str, user: str, sql: str) -> list[tuple[Any, ...]]:
    connection = await asyncpg.connect(dsn)
    try:
        async with connection.transaction():
            await connection.execute(f"SET LOCAL orbiter.user_id = '{user}'")
            return [tuple(row) for row in await connection.fetch(sql)]
    finally:
        await connection.close()


# Conversations and `where`


async def test_a_stretch_reads_one_index_and_crosses_no_user(
    store: PostgresMemoryStore,
) -> None:
    items = [
        item(f"{user}{session}{n}", "text", user, session)
        for n in range(8)
        for user in ("ann", "bob", None)
        for session in ("s", None)
    ]
    await store.add_many(items)
    await store.delete("anns3")

    stretches = await store.around(["anns4", "annNone1", "Nones0", "anns6", "anns3", "x"], span=1)

    assert [[each.id for each in stretch] for stretch in stretches] == [
        ["anns2", "anns4", "anns5", "anns6", "anns7"],
        ["annNone0", "annNone1", "annNone2"],
        ["Nones0", "Nones1"],
    ]
    assert await store.around([], span=3) == []
    assert [len(each) for each in await store.around(["bobs2"], span=0)] == [1]


async def test_where_compares_numbers_as_python_does(store: PostgresMemoryStore) -> None:
    values: list[Any] = [
        1, 1.0, True, "1", 0, False, -0.0, 0.1, 2**53, 2**53 + 1, 1e16, 10**16, 10**16 + 1, 1e18,
        10**18, 2**63 - 1, 2.0**63, 1e23, 1.7e308, "ä\\\"'", None, [1], {"k": 1},
    ]  # fmt: skip
    items = [
        HumanMemory(id=f"{n}", content="x", metadata=MemoryMetadata(extra={"k": value, "z": n}))
        for n, value in enumerate(values)
    ]
    await store.add_many(items)

    for value in values:
        if not isinstance(value, str | int | float):
            continue
        asked = Query(where={"k": value})
        found = await store.search(where={"k": value}, limit=100)

        wanted = {each.id for each in items if asked.matches(each)}
        assert {each.id for each in found} == wanted, value
    assert [each.id for each in await store.search(where={"k": 1, "z": 1})] == ["1"]


async def test_what_a_passing_handle_writes_is_embedded(role_dsn: str, postgres_dsn: str) -> None:
    store = PostgresMemoryStore(role_dsn, embeddings=EMBEDDINGS)
    await store.init(row_security=True)

    await store.acting_for("ann").add(item("1", "door code"))

    for _ in range(200):
        if await run(postgres_dsn, "SELECT 1 FROM memory_vectors"):
            break
        await asyncio.sleep(0.02)
    assert await run(postgres_dsn, "SELECT user_key, id FROM memory_vectors") == [("ann", "1")]
    await store.close()


async def test_vectors_are_kept_when_terms_are_made_in_another_way(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with PostgresMemoryStore(postgres_dsn, embeddings=EMBEDDINGS) as store:
        await store.add_many([item("1", "apple"), item("2", "pear")])
        await store.catch_up()
    vectors = "SELECT id, embedding, xmin::text FROM memory_vectors ORDER BY id"
    before = await run(postgres_dsn, vectors)
    monkeypatch.setattr(words, "VERSION", words.VERSION + 1)
    monkeypatch.setattr(words, "terms", lambda _: ["new"])

    async with PostgresMemoryStore(postgres_dsn, embeddings=EMBEDDINGS) as store:
        found = await store.match_words(["new"], of("ann"))
        waiting = await run(postgres_dsn, "SELECT * FROM memory_unembedded")
        kept = await run(postgres_dsn, vectors)
        await store.add(item("2", "plum"))
        await store.catch_up()
        changed = await run(postgres_dsn, vectors)

    assert sorted(each.id for each in found.items) == ["1", "2"]
    assert (waiting, kept) == ([], before)
    assert changed[0] == before[0]
    assert changed[1] != before[1]


async def test_terms_are_made_anew_when_they_are_made_in_another_way(
    store: PostgresMemoryStore, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.add(item("1", "apple"))
    await store.match_words(["appl"], of("ann"))
    monkeypatch.setattr(words, "VERSION", words.VERSION + 1)
    monkeypatch.setattr(words, "terms", lambda _: ["new"])

    async with PostgresMemoryStore(postgres_dsn) as other:
        found = await other.match_words(["appl", "new"], of("ann"))

    assert found.frequency == {"appl": 0, "new": 1}
    assert [each.id for each in found.items] == ["1"]
