"""The page of health: what it checks, and who sees what of it."""

from dataclasses import replace

from tests.dashboard._visitor import Visitor
from tests.server.conftest import Client, Served, new_key
from tests.servers.databases import RedisServer, redis_server

from orbiter.memory import AgentMemory
from orbiter.memory.auth import KeyFile
from orbiter.memory.diagnostics import Check, check_contents, check_waiting
from orbiter.memory.model.reports import StoreStats, Verification
from orbiter.memory.server.dashboard.doctor_page import _waiting
from orbiter.memory.server.dashboard.templating import render

__all__ = ["redis_server"]


async def test_the_page_says_how_the_store_and_the_server_are(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    await memory.scope(user_id="ann").remember("Mia hates peanuts")
    visitor = Visitor(client(await served()))

    page, twin = await visitor.look("/doctor"), await visitor.twin("/doctor")

    names = [check["name"] for check in twin["checks"]]  # type: ignore[attr-defined]
    assert names == ["version", "python", "sqlite", "model", "extras", "store", "waiting"]
    server = {check["name"]: check for check in twin["server"]}  # type: ignore[attr-defined]
    assert server["keys"]["state"] == "note"
    assert f"--url {memory.url} " in server["keys"]["cure"]
    assert "not indexed yet" not in page
    assert "this computer alone" in server["address"]["found"]
    assert twin["stats"]["items"] == 1  # type: ignore[index]
    assert "Verify all data" in page


async def test_everything_is_read_and_caught_up_on_demand(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    await memory.scope(user_id="ann").remember("Mia hates peanuts")
    visitor = Visitor(client(await served()))

    verified = await visitor.send("/ui/doctor/verify", {})
    settled = await visitor.send("/ui/doctor/settle", {})

    assert "1 row read" in verified.text
    assert 'class="check ok"' in verified.text
    assert "every memory is embedded" in settled.text


async def test_a_users_key_sees_nothing_of_the_store_and_the_server(
    memory: AgentMemory, keys: KeyFile, served: Served, client: Client
) -> None:
    await memory.scope(user_id="ann").remember("Mia hates peanuts")
    url = await served(keys=keys)
    opener = new_key(keys, user="ben")
    ben = Visitor(client(url, opener))
    bens_admin = Visitor(client(url, new_key(keys, "admin", user="ben")))
    boss = Visitor(client(url, new_key(keys, "admin")))

    page, twin = await ben.look("/doctor"), await ben.twin("/doctor")
    refused = [await each.send("/ui/doctor/verify", {}) for each in (ben, bens_admin)]
    bound = await bens_admin.twin("/doctor")
    whole = await boss.look("/doctor")

    assert (twin["stats"], twin["server"], twin["own"]["items"]) == (None, None, 0)  # type: ignore[index]
    assert bound["server"] is None
    assert memory.url not in page
    assert [answer.status_code for answer in refused] == [403, 403]
    assert "3 valid, 2 of them administrators" in whole
    assert opener not in whole
    assert opener.split("_")[1] not in whole


async def test_pages_say_what_a_store_cannot_do(
    redis_server: RedisServer, served: Served, client: Client
) -> None:
    ann = {"user_id": "ann"}
    async with AgentMemory(redis_server.url(), embeddings=None, summaries=None) as memory:
        await memory.scope(**ann).facts.put("city", "Lisbon")
        visitor = Visitor(client(await served(memory=memory)))

        pages = [await visitor.look(path, **ann) for path in ("/facts", "/data", "/doctor")]
        hidden = await visitor.look("/review", tab="quarantined", **ann)
        history = await visitor.http.get("/ui/facts/history", params={"key": "city", **ann})
        verified = await visitor.send("/ui/doctor/verify", {})

    assert "Lisbon" in pages[0]
    assert "keeps no forgotten memories" in hidden
    assert "Lisbon" in history.text
    assert "this store has no self-check" in verified.text


def test_what_waits_is_not_all_well() -> None:
    stats = StoreStats(items=2, deleted=0, versions=0, bytes=1, unindexed=0, schema=4)
    late = replace(stats, unembedded=1)
    told = {"checks": [_waiting(late)], "server": None}

    assert "All good" in render("parts/verdict.html", {**told, "checks": [], "stats": stats})
    page = render("parts/verdict.html", {**told, "stats": late})
    assert 'class="notice warn"' in page
    assert "Almost good: 1 memory has no vector yet" in page
    assert "Process now" in _waiting(late).cure


def test_names_between_backticks_are_code() -> None:
    checks = [Check("model", "note", "see `a < b`", "write `x`")]

    page = render("parts/checks.html", {"checks": checks})
    wrong = render("parts/went_wrong.html", {"why": "nothing came from `<b>`"})

    assert "see <code>a &lt; b</code>" in page
    assert "`" not in page + wrong
    assert "Nothing came from <code>&lt;b&gt;</code>." in wrong


def test_what_is_wrong_comes_with_what_to_do() -> None:
    broken = Verification(checked=5, problems=("a", "b", "c", "d"), repaired=False)
    stats = StoreStats(items=2, deleted=0, versions=0, bytes=1, unindexed=0, schema=4)

    found = check_contents(broken, cure="mend it")

    assert (found.state, found.found, found.cure) == ("wrong", "a; b; c and 1 more", "mend it")
    assert check_waiting(stats).state == "ok"
