"""The past of a store: `as_of` tells what a plain model remembers, at every moment."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.servers.databases import PostgresServer
from tests.timing import scaled, until

from orbiter.memory import (
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    PostgresMemoryStore,
    SQLiteMemoryStore,
)
from orbiter.memory.backends.sql.dialect import Statement, Steps
from orbiter.memory.errors import QueryError
from orbiter.memory.model.copying import copy_item

Store = SQLiteMemoryStore | PostgresMemoryStore
HISTORIES, STEPS, IDS = 60, 12, 4


@pytest.fixture(scope="module")
def databases(postgres_server: PostgresServer) -> Iterator[list[str]]:
    """Return the addresses of two empty databases, for all tests here."""
    made = [postgres_server.create_database() for _ in range(2)]
    yield made
    for dsn in made:
        postgres_server.drop_database(dsn)


@pytest.fixture(params=["sqlite", "postgres", "partitioned"])
def closed(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "sqlite":
        return SQLiteMemoryStore(tmp_path / "past.db")
    dsns: list[str] = request.getfixturevalue("databases")
    return PostgresMemoryStore(dsns[request.param == "partitioned"])


@pytest.fixture
async def store(closed: Store, request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    if isinstance(closed, PostgresMemoryStore):
        is_cut = "partitioned" in request.node.name
        await closed.init(partitions=2 if is_cut else None)
    else:
        await closed.init()
    yield closed
    await closed.clear()
    await closed.purge()
    await closed.close()


async def now() -> datetime:
    """Return a moment between all that was and all that will be: SQLite counts milliseconds."""
    await asyncio.sleep(0.002)
    moment = datetime.now(UTC)
    await asyncio.sleep(0.002)
    return moment


class Model:
    """What one user's items were, written down in the plainest way."""

    def __init__(self, user: str, dice: random.Random) -> None:
        self.user = user
        self.dice = dice
        self.items: dict[str, MemoryItem] = {}
        self.deleted: set[str] = set()
        self.snapshots: list[dict[str, MemoryItem]] = []

    def note(self) -> None:
        there = {key: copy_item(item) for key, item in self.items.items()}
        self.snapshots.append({key: there[key] for key in there if key not in self.deleted})

    async def step(self, store: Store) -> None:
        item_id = f"{self.user}-{self.dice.randrange(IDS)}"
        kind = self.dice.choice(["put", "put", "put", "delete", "restore", "purge"])
        if kind == "put":
            await self.put(store, item_id)
        elif kind == "delete":
            is_there = item_id in self.items and item_id not in self.deleted
            assert await store.delete(item_id) == is_there
            if is_there:
                self.deleted.add(item_id)
                self.items[item_id].version += 1
        elif kind == "restore":
            assert await store.restore(item_id) == (item_id in self.deleted)
            if item_id in self.deleted:
                self.deleted.discard(item_id)
                self.items[item_id].version += 1
        elif self.dice.random() < 0.4:
            assert await store.purge(metadata=MemoryMetadata(user_id=self.user)) == len(
                self.deleted
            )
            for gone in self.deleted:
                del self.items[gone]
                for snapshot in self.snapshots:
                    snapshot.pop(gone, None)
            self.deleted.clear()

    async def put(self, store: Store, item_id: str) -> None:
        old = self.items.get(item_id)
        born = datetime.now(UTC) + self.dice.choice([timedelta(0), -YEARS, YEARS, -HOUR])
        extra = self.dice.choice([{}, {"n": self.dice.randrange(3), "f": 1e16}])
        who = MemoryMetadata(user_id=self.user, session_id=self.dice.choice("ab"), extra=extra)
        text = self.dice.choice(["Straße", "one", "two", "three " * 9])
        item = HumanMemory(id=item_id, content=text, metadata=who, created_at=born)
        await store.add(item, by=self.dice.choice([None, "eve"]))
        stored = copy_item(item)
        if old is not None:
            stored.__dict__.update(version=old.version + 1, created_at=old.created_at)
        self.items[item_id] = stored
        self.deleted.discard(item_id)


YEARS, HOUR = timedelta(days=2000), timedelta(hours=1)


async def test_the_past_is_what_a_plain_model_remembers(store: Store) -> None:
    models = [Model(f"u{n}", random.Random(n)) for n in range(HISTORIES)]
    moments = [await now()]
    for model in models:
        model.note()
    for _ in range(STEPS):
        await asyncio.gather(*(model.step(store) for model in models))
        for model in models:
            model.note()
        moments.append(await now())

    seen = 0
    for place, moment in enumerate(moments):
        everything = {key: item for m in models for key, item in m.snapshots[place].items()}
        found = await store.as_of(moment, limit=1000)
        assert {item.id: item for item in found} == everything, place
        times = [item.created_at for item in found]
        assert times == sorted(times, reverse=True)
        seen += len(found)
    for model in models:
        place = model.dice.randrange(len(moments))
        who = MemoryMetadata(user_id=model.user, session_id="a")
        found = await store.as_of(moments[place], metadata=who, query="STRASSE", where={"n": 1})
        assert {item.id: item for item in found} == {
            key: item
            for key, item in model.snapshots[place].items()
            if item.metadata.session_id == model.items[key].metadata.session_id == "a"
            and item.content == "Straße"
            and item.metadata.extra.get("n") == 1
        }
    assert seen > HISTORIES * STEPS


async def test_the_past_comes_page_by_page(store: Store) -> None:
    ann = MemoryMetadata(user_id="ann")
    items = [HumanMemory(id=f"{n:02}", content=f"note {n}", metadata=ann) for n in range(25)]
    await store.add_many(items)
    moment = await now()
    await store.delete_many([item.id for item in items[::2]])
    for item in items[1::4]:
        await store.add(HumanMemory(id=item.id, content="changed", metadata=ann))

    pages, last = [], None
    while page := await store.as_of(moment, metadata=ann, limit=7, before=last):
        pages.append(page)
        last = page[-1]

    assert [len(page) for page in pages] == [7, 7, 7, 4]
    assert [item.content for page in pages for item in page] == [
        f"note {n}" for n in range(24, -1, -1)
    ]
    some = await store.as_of(moment, item_ids=["03", "04", "99"], query="note 3")
    assert [item.id for item in some] == ["03"]
    assert await store.as_of(moment, memory_type="ai") == []
    assert await store.as_of(moment, limit=0) == []
    assert len(await store.as_of(datetime.now(UTC), limit=99)) == 12


async def test_what_is_anothers_now_has_no_past_here(store: Store) -> None:
    ann, bob = MemoryMetadata(user_id="ann"), MemoryMetadata(user_id="bob")
    await store.add(HumanMemory(id="a", content="ann's", metadata=ann))
    moment = await now()
    await store.add(HumanMemory(id="a", content="bob's", metadata=bob))

    assert await store.as_of(moment, metadata=ann) == []
    assert await store.as_of(moment, metadata=bob) == []
    assert [item.content for item in await store.as_of(moment)] == ["ann's"]


async def test_what_has_expired_is_gone_from_the_past(store: Store) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=scaled(0.3))
    await store.add(HumanMemory(id="a", content="brief", expires_at=soon))
    moment = await now()
    assert [item.id for item in await store.as_of(moment)] == ["a"]

    async def is_gone() -> bool:
        return await store.as_of(moment) == []

    await until(is_gone, "the end of the item")


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.as_of("yesterday"),
        lambda store: store.as_of(datetime.now(UTC), before="nobody"),
        lambda store: store.as_of(datetime.now(UTC), limit=-1),
    ],
)
async def test_what_means_nothing_is_refused(ask: Callable[[Store], object]) -> None:
    async with SQLiteMemoryStore() as store:
        with pytest.raises(QueryError):
            await ask(store)  # type: ignore[misc]


# Clocks


async def _wrote_at(store: Store, item_id: str, moment: datetime) -> None:
    """Have the versions of an item ended then, as by a clock that has been set back since."""
    dialect = store._operations.dialect
    names = dialect.parameter(1), dialect.parameter(2)

    def steps() -> Steps[None]:
        yield Statement(
            f"UPDATE memory_versions SET ended_at = {names[0]} WHERE id = {names[1]}"
            " AND version > 0",
            [dialect.instant(moment), item_id],
        )

    await store._write(steps)


async def test_times_of_versions_never_go_back_when_a_clock_does(store: Store) -> None:
    ahead = datetime.now(UTC) + timedelta(hours=1)
    for text in ("first", "second"):
        await store.add(HumanMemory(id="a", content=text))
    await _wrote_at(store, "a", ahead)

    await store.add(HumanMemory(id="a", content="after the clock was set back"))
    await store.delete("a")
    await store.restore("a")

    times = [version.at for version in await store.history("a")]
    assert times == sorted(set(times))
    assert times[1] == ahead
    (then,) = await store.as_of(ahead)
    assert then.content == "second"
    assert [item.content for item in await store.as_of(ahead - timedelta(minutes=1))] == ["first"]
    (now_,) = await store.as_of(ahead + timedelta(minutes=1))
    assert now_.content == "after the clock was set back"


async def test_a_version_ends_after_it_began_however_fast_the_next_one_comes(store: Store) -> None:
    for number in range(30):
        await store.add(HumanMemory(id="a", content=str(number)))

    times = [version.at for version in await store.history("a")]
    assert times == sorted(set(times))
    moment = await now()
    (found,) = await store.as_of(moment)
    assert found.content == "29"


@pytest.mark.parametrize(
    "last", ["2024-01-01T00:00:00.999999+00:00", "9999-12-31T23:59:59.999999+00:00"]
)
async def test_the_end_of_a_second_and_of_all_time_have_a_next_instant_or_none(
    store: Store, last: str
) -> None:
    await store.add(HumanMemory(id="a", content="first"))
    await store.add(HumanMemory(id="a", content="second"))
    await _wrote_at(store, "a", datetime.fromisoformat(last))

    await store.add(HumanMemory(id="a", content="third"))

    versions = await store.history("a")
    assert [version.item.content for version in versions] == ["first", "second", "third"]
    assert versions[2].at >= versions[1].at
