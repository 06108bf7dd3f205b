"""The map: what means the same stands together, and everyone sees only their own points."""

import asyncio
import json
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.dashboard._visitor import Visitor
from tests.rows import each_row
from tests.server.conftest import Client, Served, new_key
from tests.servers.databases import (
    PostgresServer,
    RedisServer,
    postgres_server,
    redis_server,
)

from orbiter.memory import AgentMemory, MemoryItem
from orbiter.memory.auth import KeyFile
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.server.dashboard import map_page, map_points
from orbiter.memory.server.dashboard.map_points import facet
from orbiter.memory.server.dashboard.projection import directions_of_words, lay_out, place_among
from orbiter.memory.testing import HashEmbeddings

__all__ = ["postgres_server", "redis_server"]

HTML = {"Accept": "text/html"}
TOPICS = {
    "sea": ["sardines", "harbour", "boats", "tide", "anchor"],
    "wood": ["oak", "pine", "moss", "mushroom", "deer"],
}


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    map_page._kept.clear()
    map_page._places.clear()
    yield
    map_page._kept.clear()
    map_page._places.clear()


def texts(topic: str, count: int) -> list[str]:
    words = TOPICS[topic]
    return [f"{words[n % 5]} {words[n * 3 % 5]} {topic} {words[n * 2 % 5]}" for n in range(count)]


async def fill(memory: AgentMemory) -> None:
    for topic, user in (("sea", "ann"), ("wood", "bob")):
        await memory.scope(user_id=user, agent_id="nova").remember_many(
            texts(topic, 20), tags=[topic]
        )
    await memory.flush()


# Places


def spread(count: int, *, seed: int = 1) -> np.ndarray:
    dice = np.random.default_rng(seed)
    middles = dice.standard_normal((4, 24)) * 3
    rows = middles[np.arange(count) % 4] + dice.standard_normal((count, 24)) * 0.3
    found: np.ndarray = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return found.astype(np.float32)


def test_what_means_the_same_stands_together() -> None:
    layout = lay_out(spread(400))

    kind = np.arange(400) % 4
    for each in range(4):
        # Each group is of one kind, though a kind may be more than one group.
        assert len(set(kind[layout.groups == layout.groups[each]])) == 1
    middles = np.stack([layout.places[layout.groups == g].mean(0) for g in set(layout.groups)])
    for group, middle in zip(set(layout.groups), middles, strict=True):
        inside = np.linalg.norm(layout.places[layout.groups == group] - middle, axis=1)
        others = np.linalg.norm(np.delete(middles, group, axis=0) - middle, axis=1)
        assert np.median(inside) < others.min()


def test_the_same_vectors_stand_at_the_same_places() -> None:
    one, other = lay_out(spread(300)), lay_out(spread(300).copy())

    assert (one.places == other.places).all()
    assert (one.groups == other.groups).all()
    assert np.abs(one.places).max() <= 1
    assert list(np.bincount(one.groups)) == sorted(np.bincount(one.groups), reverse=True)


@each_row(
    "rows",
    [
        np.zeros((0, 8), np.float32),
        np.ones((1, 8), np.float32),
        np.ones((2, 1), np.float32),
        np.zeros((50, 8), np.float32),
        np.eye(3, dtype=np.float32),
        np.repeat(np.eye(2, 8, dtype=np.float32), 30, axis=0),
    ],
    ids=["none", "one", "flat", "nothing", "few", "equal"],
)
def test_every_memory_gets_a_place(rows: np.ndarray) -> None:
    layout = lay_out(rows)

    assert layout.places.shape == (len(rows), 2)
    assert np.isfinite(layout.places).all()
    assert len(np.unique(layout.places.round(4), axis=0)) == len(rows)  # none hides another


def test_without_vectors_words_decide() -> None:
    rows = directions_of_words([*texts("sea", 5), *texts("wood", 5), ""])

    assert (rows[0] @ rows[1]) > (rows[0] @ rows[5])
    assert not rows[10].any()


def test_new_points_stand_among_their_likes_and_no_old_one_moves() -> None:
    rows = spread(400)
    layout = lay_out(rows[:300])
    known = np.vstack([layout.places, np.zeros((100, 2), np.float32)])
    groups = np.concatenate([layout.groups, np.full(100, -1)])

    grown = place_among(rows, known, groups)

    assert (grown.places[:300] == layout.places).all()
    assert len(np.unique(grown.places.round(3), axis=0)) == 400
    kind = np.arange(400) % 4
    for each in range(300, 400):
        assert set(kind[:300][grown.groups[:300] == grown.groups[each]]) == {kind[each]}


# The map stays still


async def places_of(site: httpx.AsyncClient) -> dict[str, tuple[int, int]]:
    points = (await site.get("/ui/map/points")).json()
    return {i: (x, y) for i, x, y in zip(points["id"], points["x"], points["y"], strict=True)}


async def names_of(site: httpx.AsyncClient) -> set[str]:
    return {group[0] for group in (await site.get("/ui/map/points")).json()["groups"]}


async def test_to_forget_one_of_334_moves_nothing_and_renames_nothing(
    served: Served, client: Client, memory: AgentMemory
) -> None:
    own = memory.scope(user_id="ann")
    both = [text for topic in TOPICS for text in texts(topic, 167)]
    await own.remember_many([f"{text} {number}" for number, text in enumerate(both)])
    await memory.flush()
    site = client(await served())
    before, names = await places_of(site), await names_of(site)
    assert len(before) == 334

    await own.forget(next(iter(before)))
    await own.remember("a new lighthouse at the harbour")
    await memory.flush()
    after = await places_of(site)

    moved = [np.hypot(*np.subtract(at, after[i])) for i, at in before.items() if i in after]
    assert (len(after), len(moved)) == (334, 333)
    assert max(moved) == 0
    assert await names_of(site) == names


async def test_the_map_is_the_same_after_a_restart_and_its_file_tells_nothing(
    served: Served, client: Client, memory: AgentMemory
) -> None:
    await fill(memory)
    site = client(await served())
    await places_of(site)
    gone = (await memory.unscoped().list(limit=1))[0]
    await memory.unscoped().forget(gone.id)
    await memory.scope(user_id="ann").remember("a new lighthouse")
    await memory.flush()
    before, names = await places_of(site), await names_of(site)
    file = next(Path(memory.url.removeprefix("sqlite:///")).parent.glob("*.map.json"))

    nothing = (map_page._kept, map_page._places)
    for each in nothing:
        each.clear()
    again = client(await served())

    assert await places_of(again) == before
    assert await names_of(again) == names
    written = file.read_text()
    words = (*before, gone.id, "ann", "lighthouse", "sardines")
    assert not [word for word in words if word in written]
    file.write_text("{damaged")
    for each in nothing:
        each.clear()
    assert len(await places_of(client(await served()))) == 40


async def test_an_erasure_leaves_no_hash_of_anybody_in_the_file_and_moves_nobody_else(
    served: Served, client: Client, memory: AgentMemory
) -> None:
    await fill(memory)
    await memory.scope(user_id="ann").remember("a new lighthouse")
    await memory.flush()
    site = client(await served())
    before = await places_of(site)
    assert (await site.get("/ui/map/points", params={"user_id": "ann"})).json()["count"]
    file = next(Path(memory.url.removeprefix("sqlite:///")).parent.glob("*.map.json"))
    anns = {item.id for item in await memory.scope(user_id="ann").list(limit=100)}

    erased = await Visitor(site).send("/ui/data/erase", {"user_id": "ann"}, typed="ann")

    assert "nothing is left" in erased.text
    assert not file.exists()
    after = await places_of(site)
    assert after == {each: at for each, at in before.items() if each not in anns}
    maps = json.loads(file.read_text())["maps"].values()
    assert [len(each["points"]) for each in maps] == [len(after)]  # and no map of ann's


async def _with_keys_elsewhere(served: Served, client: Client, tmp_path: Path) -> httpx.AsyncClient:
    """Return a client of a server whose keys are in a folder of their own."""
    (tmp_path / "keys").mkdir()
    keys = KeyFile(tmp_path / "keys" / "some.keys.json")
    return client(await served(keys=keys), new_key(keys, "admin"))


async def test_an_erasure_by_another_process_finds_the_file_of_a_server_with_keys_elsewhere(
    served: Served, client: Client, memory: AgentMemory, tmp_path: Path
) -> None:
    await fill(memory)
    site = await _with_keys_elsewhere(served, client, tmp_path)
    await places_of(site)
    async with AgentMemory(memory.url, embeddings=None, summaries=None) as other:
        assert await other.erase(user_id="ann")

    assert list(tmp_path.rglob("*.map.json*")) == []


async def test_an_erasure_removes_the_file_that_early_servers_kept_beside_their_keys(
    served: Served, client: Client, memory: AgentMemory, tmp_path: Path
) -> None:
    await fill(memory)
    site = await _with_keys_elsewhere(served, client, tmp_path)
    (tmp_path / "keys" / "some.map.json").write_text("{}")

    assert (await site.post("/v1/erase", json={"user_id": "ann"})).json()["proven"]

    assert list(tmp_path.rglob("*.map.json*")) == []


@pytest.mark.parametrize("is_known", [True, False], ids=["file beside the store", "file elsewhere"])
async def test_an_erasure_by_another_process_leaves_no_point_in_the_file_when_a_map_is_shown(
    served: Served, client: Client, memory: AgentMemory, is_known: bool
) -> None:
    await fill(memory)
    site, file = client(await served()), Path(f"{memory.url.removeprefix('sqlite:///')}.map.json")
    before = await places_of(site)
    assert (await site.get("/ui/map/points", params={"user_id": "ann"})).json()["count"]
    stale = file.read_bytes()
    async with AgentMemory(memory.url, embeddings=None, summaries=None) as other:
        assert await other.erase(user_id="ann")
    assert not file.exists()
    if not is_known:  # as if the erasure had not known it, and the server was started again
        map_page._places.clear()
        file.write_bytes(stale)
    after = await places_of(site)
    assert after == {each: at for each, at in before.items() if each in after}
    maps = json.loads(file.read_text())["maps"].values()
    assert [len(each["points"]) for each in maps] == [len(after)]  # and no map of ann's


async def test_a_drawing_that_began_before_an_erasure_is_not_written_after_it(
    memory: AgentMemory, tmp_path: Path
) -> None:
    await memory.scope(user_id="ann").remember_many(texts("sea", 5))
    await memory.flush()
    places = map_points.Places(tmp_path / "of.map.json")

    begun = places.erasures
    places.note_erasure()
    items = list(await memory.unscoped().list(limit=10))
    kept = {"total": 5, "waiting": 0, "places": places, "name": "everyone"}
    map_points._compute(items, [], 0, **kept, erasures=begun)  # type: ignore[arg-type]
    assert not list(tmp_path.glob("*.map.json*"))

    map_points._compute(items, [], 0, **kept, erasures=places.erasures)  # type: ignore[arg-type]
    assert [each.name for each in tmp_path.glob("*.map.json*")] == ["of.map.json"]


async def test_an_erasure_by_another_worker_is_noticed_though_that_one_wrote_a_new_file(
    memory: AgentMemory, tmp_path: Path
) -> None:
    await fill(memory)
    path = tmp_path / "of.map.json"
    one, two = map_points.Places(path), map_points.Places(path)
    everyone, ann = memory.unscoped(), memory.scope(user_id="ann")
    await map_points.draw(ann, total=20, places=two)
    await map_points.draw(everyone, total=40, places=two)

    await memory.erase(user_id="ann")
    one.note_erasure()
    await map_points.draw(everyone, total=20, places=one)
    await map_points.draw(everyone, total=20, places=two)

    maps = json.loads(path.read_text())["maps"].values()
    assert [len(each["points"]) for each in maps] == [20]  # of bob, and no map of ann's


async def test_a_file_that_goes_while_a_map_is_computed_does_not_come_back(
    memory: AgentMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(memory)
    path, compute = tmp_path / "of.map.json", map_points._layout
    places = map_points.Places(path)
    await map_points.draw(memory.scope(user_id="bob"), total=20, places=places)

    def erased_meanwhile(*args: Any) -> Any:
        path.unlink()
        return compute(*args)

    monkeypatch.setattr(map_points, "_layout", erased_meanwhile)
    await map_points.draw(memory.unscoped(), total=40, places=places)

    assert not path.exists()


def test_a_file_that_cannot_be_put_in_its_place_leaves_none_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "of.map.json"
    path.mkdir()
    places = map_points.Places(path)
    places.of("everyone")

    places.save()

    assert list(tmp_path.iterdir()) == [path]


async def test_a_map_that_has_doubled_gets_a_new_layout(
    served: Served, client: Client, memory: AgentMemory
) -> None:
    own = memory.scope(user_id="ann")
    await own.remember_many(texts("sea", 5))
    await memory.flush()
    site = client(await served())
    before = await places_of(site)

    await own.remember_many(texts("wood", 30))
    await memory.flush()

    after = await places_of(site)
    assert len(after) == 35
    assert any(after[each] != at for each, at in before.items())


async def test_a_word_that_is_forgotten_names_no_group(
    served: Served, client: Client, memory: AgentMemory
) -> None:
    own = memory.scope(user_id="ann")
    secret = await own.remember("swordfish")
    await memory.flush()
    site = client(await served())
    assert await names_of(site) == {"swordfish"}

    await own.remember("swordfish harbour")
    await own.forget(secret.id)
    other = (await own.list(limit=1))[0]
    await own.update(other.id, "harbour")
    await memory.flush()

    assert await names_of(site) == {"harbour"}


# The page


async def test_the_map_and_its_twin_tell_the_same(
    served: Served, client: Client, memory: AgentMemory
) -> None:
    await fill(memory)
    site = client(await served())

    page = await site.get("/map", headers=HTML)
    points = (await site.get("/ui/map/points")).json()
    twin = (await site.get("/map.json")).json()
    listed = (await site.get("/map?as=list", headers=HTML)).text

    assert page.status_code == 200
    assert "<canvas" in page.text
    assert points["count"] == len(points["x"]) == len(points["y"]) == len(set(points["id"])) == 40
    assert points["by"] == "meaning"
    assert points["facets"]["user"]["counts"] == [20, 20]
    assert set(points["facets"]["tag"]["values"]) == {"sea", "wood"}
    assert points["facets"]["type"]["values"] == ["note"]
    assert points["facets"]["age"]["values"] == ["last hour"]
    assert "with a similar meaning are close together" in page.text
    assert twin["total"] == 40
    assert twin["drawn"]["points"]["id"] == points["id"]
    assert [each["name"] for each in twin["drawn"]["groups"]] == [g[0] for g in points["groups"]]
    for group in points["groups"]:
        assert f'<h3 dir="auto">{group[0]}</h3>' in listed
    assert sum(group[3] for group in points["groups"]) == 40


async def test_a_map_is_drawn_once_until_something_changes(
    served: Served, client: Client, memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = 0
    compute = map_points._compute

    def counted(*args: object, **how: object) -> object:
        nonlocal drawn
        drawn += 1
        return compute(*args, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(map_points, "_compute", counted)
    await fill(memory)
    site = client(await served())
    for path in ("/ui/map/points", "/ui/map/groups", "/map.json", "/ui/map/points"):
        assert (await site.get(path)).status_code == 200
    assert drawn == 1

    await memory.scope(user_id="ann").remember("a new lighthouse")
    await memory.flush()

    assert (await site.get("/ui/map/points")).json()["count"] == 41
    assert drawn == 2
    await site.get("/ui/map/points?user_id=ann")
    assert drawn == 3


async def test_a_large_scope_shows_its_newest_and_says_so(
    served: Served, client: Client, memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_points, "MAX_POINTS", 15)
    monkeypatch.setattr(map_points, "_CHUNK", 4)
    monkeypatch.setattr(map_page, "MAX_POINTS", 15)
    await fill(memory)
    site = client(await served())

    points = (await site.get("/ui/map/points")).json()

    assert (points["count"], points["total"]) == (15, 40)
    newest = await memory.unscoped().list(limit=15)
    assert points["id"] == [item.id for item in newest]
    assert "The newest 15 of 40 memories" in (await site.get("/map", headers=HTML)).text


async def test_what_waits_for_its_vector_is_counted_and_not_placed(
    served: Served, client: Client, memory: AgentMemory
) -> None:
    await fill(memory)
    store = await memory.unscoped()._store()
    await store._embedder.close()  # type: ignore[attr-defined]
    async with AgentMemory(memory.url, embeddings=None, summaries=None) as other:
        await other.scope(user_id="ann").remember("not embedded yet")
    site = client(await served())

    points = (await site.get("/ui/map/points")).json()

    assert (points["count"], points["waiting"]) == (40, 1)


async def test_without_a_model_words_place_the_memories(served: Served, client: Client) -> None:
    async with AgentMemory("memory://", embeddings=None, summaries=None) as wordy:
        await fill(wordy)
        site = client(await served(memory=wordy))

        points = (await site.get("/ui/map/points")).json()
        page = (await site.get("/map", headers=HTML)).text

    assert (points["by"], points["count"]) == ("words", 40)
    assert "with the same words are close together" in page
    assert "similar meaning" not in page


def test_a_point_is_told_by_its_own_value_also_where_others_share_its_colour() -> None:
    users = [f"user {number}" for number in range(12)]
    items = [MemoryItem(content="tea", metadata=MemoryMetadata(user_id=user)) for user in users]

    found = facet("user", [*items, MemoryItem(content="nobody's")])

    named, each = found["named"], found["is"]
    assert found["values"][-1] == "6 others"  # type: ignore[index]
    assert [named[at] for at in each] == [*users, "no user"]  # type: ignore[index, attr-defined]


async def test_redis_keeps_no_vectors_and_has_a_map_of_words(
    served: Served, client: Client, redis_server: RedisServer
) -> None:
    async with AgentMemory(redis_server.url(), embeddings=None, summaries=None) as wordy:
        await fill(wordy)
        site = client(await served(memory=wordy))

        points = (await site.get("/ui/map/points")).json()

    assert (points["by"], points["count"]) == ("words", 40)


async def test_on_postgres_the_map_is_by_meaning(
    served: Served, client: Client, postgres_server: PostgresServer
) -> None:
    dsn = await asyncio.to_thread(postgres_server.create_database)
    async with AgentMemory(dsn, embeddings=HashEmbeddings(), summaries=None) as durable:
        await fill(durable)
        site = client(await served(memory=durable))

        points = (await site.get("/ui/map/points")).json()

    assert (points["by"], points["count"], points["waiting"]) == ("meaning", 40, 0)
    await asyncio.to_thread(postgres_server.drop_database, dsn)


async def test_without_numpy_the_page_says_what_to_install(
    served: Served, client: Client, memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    await memory.scope(user_id="ann").remember("tea")
    site = client(await served())
    monkeypatch.setitem(sys.modules, "numpy", None)

    page = await site.get("/map", headers=HTML)

    assert "pip install 'orbiter-memory[vector]'" in unescape(page.text)
    assert (await site.get("/map.json")).json()["drawn"] is None
    assert (await site.get("/ui/map/points")).json()["count"] == 0
    assert (await site.get("/ui/map/groups")).status_code == 200


async def test_an_empty_memory_has_a_page_that_says_so(served: Served, client: Client) -> None:
    site = client(await served())

    assert "Nothing to map yet" in (await site.get("/map", headers=HTML)).text
    assert (await site.get("/ui/map/points")).json()["count"] == 0


async def test_a_key_shows_only_the_points_of_its_user(
    served: Served, client: Client, memory: AgentMemory, keys: KeyFile
) -> None:
    await fill(memory)
    site = client(await served(keys=keys), new_key(keys, "read", "ann"))
    own = {item.id for item in await memory.scope(user_id="ann").list(limit=100)}

    await client(str(site.base_url), new_key(keys, "admin", "bob")).get("/ui/map/points")
    for path in ("/ui/map/points", "/ui/map/points?user_id=ann"):
        assert set((await site.get(path)).json()["id"]) == own
    assert "oak" not in (await site.get("/ui/map/groups")).text
    twin = (await site.get("/map.json")).text
    assert "sardines" in twin
    assert "mushroom" not in twin
    for path in ("/ui/map/points", "/ui/map/groups", "/map.json"):
        assert (await site.get(path, params={"user_id": "bob"})).status_code == 403


async def test_hostile_values_are_escaped_and_made_visible(
    served: Served, client: Client, memory: AgentMemory
) -> None:
    bad = "<img src=x onerror=alert(1)> \u202eevil"
    await memory.scope(user_id=bad).remember(
        MemoryItem(content=bad, memory_type=bad, metadata=MemoryMetadata(extra={"tags": [bad, 7]}))
    )
    await memory.flush()
    site = client(await served())

    groups = (await site.get("/ui/map/groups")).text
    points = (await site.get("/ui/map/points")).json()

    assert "<img" not in groups
    assert "\u202e" not in groups + str(points)
    assert "⟨U+202E⟩" in points["text"][0]
    assert "⟨U+202E⟩" in points["facets"]["tag"]["values"][0]
