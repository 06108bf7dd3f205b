"""The overview, the users and what fields offer: everything is counted, and only one's own."""

import re
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any

import pytest
from tests.dashboard._visitor import Visitor
from tests.server.conftest import Client, Served, new_key

from orbiter.memory import AgentMemory
from orbiter.memory.auth import KeyFile
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.server.dashboard import memories_page, overview_page, users_page
from orbiter.memory.server.http.activity import PERIOD, Activity

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(autouse=True)
def nothing_kept() -> None:
    for cache in (
        overview_page._days,
        overview_page._today,
        overview_page._slices,
        overview_page._saved,
        overview_page._review,
        memories_page._counts,
        users_page._suggested,
    ):
        cache.clear()


async def fill(memory: AgentMemory) -> None:
    now = datetime.now(UTC)
    ann, ben = memory.scope(user_id="ann", agent_id="nova"), memory.scope(user_id="ben")
    for days in (0, 0, 3, 40):
        await ann.remember(f"tea {days}", created_at=now - timedelta(days=days), source="web:tea")
    await ben.remember("coffee", tags=["taste"])
    await ann.facts.propose("home", "Lisbon", source=(await ann.list(limit=1))[0])


async def test_the_first_page_tells_how_much_there_is_and_how_it_grew(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    await fill(memory)
    visitor = Visitor(client(await served()))

    page, part = await visitor.look("/"), await visitor.http.get("/ui/overview")
    twin = await visitor.twin("/index")

    assert "<h1>Overview</h1>" in page
    assert 'hx-get="/ui/overview"' in page
    growth = twin["growth"]
    assert len(growth) == 30  # type: ignore[arg-type]
    assert [day["added"] for day in growth[-4:]] == [1, 0, 0, 4]  # type: ignore[index]
    assert [growth[0]["total"], growth[-1]["total"]] == [1, 6]  # type: ignore[index]
    assert {each["value"]: each["count"] for each in twin["users"]} == {"ann": 5, "ben": 1}  # type: ignore[attr-defined]
    assert twin["sources"][0]["value"] == "web:tea"  # type: ignore[index]
    assert twin["review"]["drafts"] == 1  # type: ignore[index]
    assert part.text.count("<svg") > 4
    assert "style=" not in page + part.text


async def test_recalls_and_writes_are_counted_with_their_latency(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    visitor = Visitor(client(await served()))
    for text in ("tea", "milk"):
        await visitor.http.post("/v1/memories?user_id=ann", json={"what": text})
    await visitor.http.post("/v1/recall?user_id=ann", json={"query": "tea"})

    twin, bens = await visitor.twin("/index"), await visitor.twin("/index", user_id="ben")

    assert (twin["writes"], twin["recalls"]) == (2, 1)
    assert twin["latency"]["recalls"][0] > 0  # type: ignore[index]
    assert (bens["writes"], bens["recalls"], bens["latency"]["recalls"]) == (0, 0, None)  # type: ignore[index]


def test_activity_forgets_what_is_older_than_a_day_and_keeps_no_name() -> None:
    now = [0.0]
    activity = Activity(lambda: now[0])
    for number in range(400):
        activity.note_event("remembered", MemoryMetadata(user_id=f"user {number}"))
    activity.note_event("recalled", MemoryMetadata(user_id="ann", session_id="s"))

    assert activity.periods({})[-1].writes == 400
    assert activity.periods({"user_id": "user 7"})[-1].writes == 1
    assert [each.recalls for each in activity.periods({"user_id": "ben"})] == [0] * 48
    assert "user 7" not in repr(vars(activity))
    now[0] = 60 * PERIOD
    assert sum(each.writes for each in activity.periods({})) == 0


async def test_a_key_of_a_user_sees_that_user_alone(
    memory: AgentMemory, served: Served, client: Client, keys: KeyFile
) -> None:
    await fill(memory)
    visitor = Visitor(client(await served(keys=keys), new_key(keys, "read", "ben")))

    twin, people = await visitor.twin("/index"), await visitor.twin("/users")
    part = (await visitor.http.get("/ui/overview")).text
    for path in ("/index.json", "/ui/overview", "/ui/suggest?field=tag"):
        assert (await visitor.http.get(path, params={"user_id": "ann"})).status_code == 403
    offered = [
        (await visitor.http.get("/ui/suggest", params={"field": field})).json()
        for field in ("user_id", "agent_id", "chat", "key", "source", "tag")
    ]

    assert twin["health"]["memories"] == 1  # type: ignore[index]
    assert "ann" not in str(twin["users"]) + str(twin["sources"])
    assert "web:tea" not in part
    assert [each["user_id"] for each in people["people"]] == ["ben"]  # type: ignore[attr-defined]
    assert [each["values"] for each in offered] == [["ben"], [], [], [], [], ["taste"]]


async def test_a_link_narrows_for_whom_it_is_shown(
    memory: AgentMemory, served: Served, client: Client, keys: KeyFile
) -> None:
    await fill(memory)
    url = await served(keys=keys)
    own = Visitor(client(url, new_key(keys, "read", "ben")))
    admin = Visitor(client(url, new_key(keys, "admin")))

    first = (await own.twin("/index"))["types"]
    then = (await admin.twin("/index", user_id="ben"))["types"]

    assert first[0]["link"] == {"type": "item"}  # type: ignore[index]
    assert then[0]["link"] == {"user_id": "ben", "type": "item"}  # type: ignore[index]


async def test_whoever_is_erased_is_offered_and_counted_no_more(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    await fill(memory)
    visitor = Visitor(client(await served()))
    nova = {"field": "agent_id"}
    assert (await visitor.http.get("/ui/suggest", params=nova)).json()["values"] == ["nova"]
    assert "ann" in str((await visitor.twin("/index"))["users"])

    erased = await visitor.send("/ui/data/erase", {"user_id": "ann"}, typed="ann")

    assert "nothing is left" in erased.text
    assert (await visitor.http.get("/ui/suggest", params=nova)).json()["values"] == []
    twin = await visitor.twin("/index")
    assert "ann" not in str(twin["users"])
    assert twin["growth"][0]["total"] == 0  # type: ignore[index]


async def test_users_are_listed_with_what_can_be_done(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    await fill(memory)
    await memory.scope(user_id=HOSTILE).remember("a name that wants to be a picture")
    visitor = Visitor(client(await served()))

    page = await visitor.look("/users", order="items")
    named = (await visitor.twin("/users", starts_with="b"))["people"]

    assert page.index("ann") < page.index("ben")
    assert HOSTILE not in page
    (export,) = re.findall(r'href="(/v1/export[^"]*user_id=ann)"', page)
    assert "tea" in (await visitor.http.get(unescape(export))).text
    assert 'href="/data?user_id=ann#erase-title"' in page
    assert [each["user_id"] for each in named] == ["ben"]  # type: ignore[attr-defined]
    refused = await visitor.http.get("/users.json", params={"order": "size"})
    assert refused.status_code == 422


async def test_a_session_without_messages_is_counted_and_not_called_a_chat(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    await memory.scope("ann", session_id="s1", agent_id="nova").remember("likes tea")
    visitor = Visitor(client(await served()))

    for page in (await visitor.look("/users"), await visitor.look("/users", agent_id="nova")):
        assert ">1 session<" in page


async def test_users_with_entries_alone_are_listed_and_seen_by_nobody_else(
    memory: AgentMemory, served: Served, client: Client, keys: KeyFile
) -> None:
    await fill(memory)
    await memory.scope("cleo").kv.put(("state",), "step", b"1")
    await memory.scope("ann").kv.put(("state",), "step", b"1")
    url = await served(keys=keys)
    admin = Visitor(client(url, new_key(keys, "admin")))
    cleo, ben = (Visitor(client(url, new_key(keys, "read", name))) for name in ("cleo", "ben"))

    page, people = await admin.look("/users"), (await admin.twin("/users"))["people"]

    assert "1 key-value entry" in page
    assert {each["user_id"]: each["entries"] for each in people} == {"ann": 1, "ben": 0, "cleo": 1}  # type: ignore[attr-defined]
    for visitor, own in ((cleo, ("cleo", 1)), (ben, ("ben", 0))):
        theirs: list[dict[str, object]] = (await visitor.twin("/users"))["people"]  # type: ignore[assignment]
        assert [(each["user_id"], each["entries"]) for each in theirs] == [own]
        assert (await visitor.http.get("/users.json?user_id=ann")).status_code == 403


async def test_a_key_of_an_agent_lists_its_users_with_entries_alone(
    memory: AgentMemory, served: Served, client: Client, keys: KeyFile
) -> None:
    await fill(memory)
    await memory.scope("cleo", agent_id="nova").kv.put(("state",), "step", b"1")
    await memory.scope("dora", agent_id="other").kv.put(("state",), "step", b"1")
    await memory.scope("emma").kv.put(("state",), "step", b"1")
    key = keys.create(scope=MemoryMetadata(user_id="~all", agent_id="nova"), role="read")[1]
    nova = Visitor(client(await served(keys=keys), key))

    people: Any = (await nova.twin("/users"))["people"]

    assert {each["user_id"]: (each["memories"] > 0, each["entries"]) for each in people} == {
        "ann": (True, 0),
        "cleo": (False, 1),
    }
    assert "dora" not in await nova.look("/users")


async def test_users_of_an_agent_are_counted_once_for_many_visits_and_not_after_an_erasure(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    await fill(memory)
    visitor, nova = Visitor(client(await served())), {"agent_id": "nova"}
    before = (await visitor.twin("/users", **nova))["people"]

    await memory.scope(user_id="ann", **nova).remember("Something new")
    again = (await visitor.twin("/users", **nova))["people"]
    await visitor.send("/ui/data/erase", {"user_id": "ann"}, typed="ann")

    assert [each["user_id"] for each in before] == ["ann"]  # type: ignore[attr-defined]
    assert again == before
    assert (await visitor.twin("/users", **nova))["people"] == []


async def test_fields_offer_what_exists(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    await fill(memory)
    await memory.scope(user_id="ann").chat("trip").add("We fly to Lisbon")
    visitor = Visitor(client(await served()))

    async def offered(**asked: str) -> list[str]:
        answer = await visitor.http.get("/ui/suggest", params=asked)
        found: list[str] = answer.json()["values"]
        return found

    assert await offered(field="user_id") == ["ann", "ben"]
    assert await offered(field="user_id", q="BE") == ["ben"]
    assert await offered(field="agent_id", q="n") == ["nova"]
    assert await offered(field="chat", user_id="ann") == ["trip"]
    assert await offered(field="chat", user_id="ben") == []
    assert await offered(field="key", user_id="ann") == ["home"]
    refused = await visitor.http.get("/ui/suggest", params={"field": "content"})
    assert refused.status_code == 422
    for path in ("/context", "/data", "/facts", "/playground"):
        assert 'data-suggest="user_id"' in await visitor.look(path)


async def test_facets_count_everything(memory: AgentMemory, served: Served, client: Client) -> None:
    await memory.scope(user_id="ben").remember("first", tags=["old"])
    await memory.scope(user_id="ann").remember_many([f"tea {n}" for n in range(600)])
    visitor = Visitor(client(await served()))

    twin = await visitor.twin("/memories")

    facets = {each["name"]: each["values"] for each in twin["facets"]}  # type: ignore[attr-defined]
    assert {each["value"]: each["count"] for each in facets["user_id"]} == {"ann": 600, "ben": 1}
    assert facets["tag"][0]["value"] == "old"


async def test_a_page_does_not_wait_for_counts_that_take_long(
    memory: AgentMemory, served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(memory)
    monkeypatch.setattr(memories_page, "_IMPATIENT", 0)
    visitor = Visitor(client(await served()))

    page = await visitor.look("/memories", tag="taste")
    part = (await visitor.http.get("/ui/facets", params={"tag": "taste"})).text

    assert 'hx-get="/ui/facets?tag=taste"' in page
    assert "remove this filter" in part
