"""Checks of the store on the page of data: what they say, and who sees them."""

from tests.dashboard._visitor import Visitor
from tests.server.conftest import Client, Served, new_key
from tests.servers.databases import RedisServer, redis_server

from orbiter.memory import AgentMemory
from orbiter.memory.auth import KeyFile
from orbiter.memory.diagnostics import Check, check_contents, check_waiting
from orbiter.memory.model.reports import StoreStats, Verification
from orbiter.memory.server.dashboard.templating import render

__all__ = ["redis_server"]


async def test_the_page_says_how_the_store_and_the_server_are(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    await memory.scope(user_id="ann").remember("Mia hates peanuts")
    visitor = Visitor(client(await served()))

    page, twin = await visitor.look("/data"), await visitor.twin("/data")
    verified = await visitor.send("/ui/data/verify", {})
    flushed = await visitor.send("/ui/data/flush", {})

    checks = {check["name"]: check for check in twin["checks"]}  # type: ignore[attr-defined]
    assert list(checks) == ["store", "model", "waiting", "keys", "transport"]
    assert checks["keys"]["state"] == "note"
    assert f"--url {memory.url} " in checks["keys"]["cure"]
    assert "this computer only" in checks["transport"]["found"]
    assert "Verify all data" in page
    assert "1 row read" in verified.text
    assert 'class="check ok"' in verified.text
    assert "every memory is embedded" in flushed.text


async def test_a_users_key_sees_nothing_of_the_store_and_the_server(
    memory: AgentMemory, keys: KeyFile, served: Served, client: Client
) -> None:
    await memory.scope(user_id="ann").remember("Mia hates peanuts")
    url = await served(keys=keys)
    opener = new_key(keys, user="ben")
    ben = Visitor(client(url, opener))
    bens_admin = Visitor(client(url, new_key(keys, "admin", user="ben")))
    boss = Visitor(client(url, new_key(keys, "admin")))

    page, twin = await ben.look("/data"), await ben.twin("/data")
    refused = [await each.send("/ui/data/verify", {}) for each in (ben, bens_admin)]
    bound = await bens_admin.twin("/data")
    whole = await boss.look("/data")

    assert (twin["checks"], bound["checks"]) == (None, None)
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

        pages = [await visitor.look(path, **ann) for path in ("/facts", "/data")]
        hidden = await visitor.look("/review", tab="quarantined", **ann)
        history = await visitor.http.get("/ui/facts/history", params={"key": "city", **ann})
        verified = await visitor.send("/ui/data/verify", {})

    assert "Lisbon" in pages[0]
    assert "keeps no forgotten memories" in hidden
    assert "Lisbon" in history.text
    assert "this store has no self-check" in verified.text


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
