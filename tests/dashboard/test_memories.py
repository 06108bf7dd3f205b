"""Memories: the list, what narrows it, the live strip, and what stands around them."""

import asyncio
import html
import re
import shlex
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
from tests.dashboard._visitor import Visitor
from tests.server.conftest import Client, Served, new_key

from orbiter.memory import AgentMemory
from orbiter.memory.agent import MemoryEvent
from orbiter.memory.auth import KeyFile
from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.server.dashboard.client_snippets import snippets
from orbiter.memory.server.dashboard.live_feed import MAX_ROWS, as_row, merged
from orbiter.memory.server.dashboard.templating import visible
from orbiter.memory.text.ranking import ANSWERED

HOSTILE = "<img src=x onerror=alert(1)>\u202e"
NOW = datetime.now(UTC)
_ABOUT_MIA = (
    "We fly to Lisbon with Mia and Leo",
    "Mia starts swimming lessons in September",
    "Leo likes grilled sardines",
    "Mia wants to learn the ukulele",
    "No cilantro, ever",
    "Mia is allergic to peanuts",
    "Mia must not eat peanuts or almonds",
)


def _texts(page: str) -> list[str]:
    found = re.findall(r'class="memory-text clip2"[^>]*>([^<]*)<', page)
    return [html.unescape(each) for each in found]


async def test_home_shows_the_newest_and_the_rest_page_by_page(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    start = NOW - timedelta(days=1)
    notes = [
        MemoryItem(content=f"note {number}", created_at=start + timedelta(minutes=number))
        for number in range(35)
    ]
    await memory.scope(user_id="ann").remember_many(notes)
    ann = Visitor(client(await served()))

    page = await ann.look("/memories")
    rest = re.search(r'hx-get="(/ui/memories[^"]*cursor[^"]*)"', page)
    assert rest
    older = (await ann.http.get(rest[1].replace("&amp;", "&"))).text

    assert _texts(page) + _texts(older) == [f"note {number}" for number in range(34, -1, -1)]
    assert '<strong class="number">35</strong> memories' in page
    assert "<html" not in older
    twin = await ann.twin("/memories")
    assert [row["item"]["content"] for row in twin["rows"]] == _texts(page)  # type: ignore[attr-defined]
    assert twin["health"]["memories"] == 35  # type: ignore[index]


async def test_a_search_tells_scores_and_why_and_keeps_its_address(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    handle = memory.scope(user_id="ann")
    await handle.remember_many(["Mia is allergic to peanuts", "The tram leaves at nine"])
    ann = Visitor(client(await served()))

    page = await ann.look("/memories", q="peanuts")
    typed = await ann.http.get("/ui/memories", params={"q": "peanuts", "user_id": "ann"})

    assert _texts(page)[0] == "Mia is allergic to peanuts"
    assert 'class="score"' in page
    assert "contains &#34;peanuts&#34; (1 of 1 word)" in page
    assert 'value="peanuts"' in page
    assert typed.headers["HX-Replace-Url"] == "/memories?q=peanuts&user_id=ann"
    assert _texts(typed.text)[0] == "Mia is allergic to peanuts"


async def test_results_stand_in_the_order_of_the_relevance_they_show(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    ann, now = memory.scope(user_id="ann"), datetime.now(UTC)
    for days, text in enumerate(_ABOUT_MIA):
        await ann.remember(text, created_at=now - timedelta(days=9 * days), importance=days / 10)
    visitor = Visitor(client(await served()))

    rows = (await visitor.twin("/memories", q="What should Mia not eat?"))["rows"]

    relevance = [row["relevance"] for row in rows]  # type: ignore[attr-defined]
    least = max(ANSWERED, relevance[0] / 10)
    assert len(relevance) > 4
    assert relevance == sorted(relevance, reverse=True)
    assert [row["is_answer"] for row in rows] == [each >= least for each in relevance]  # type: ignore[attr-defined]


async def test_a_line_stands_between_what_answers_and_the_rest(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    handle = memory.scope(user_id="ann")
    many = ", ".join(f"word{number}" for number in range(80))
    unlikely = f"We spoke of that time of the year, and of {many}"
    await handle.remember_many(["Hafnium has the atomic number 72", unlikely])
    ann = Visitor(client(await served()))

    told = "Did you tell me the atomic number of hafnium at some time?"
    answered = await ann.look("/memories", q=told)
    unanswered = await ann.look(
        "/memories",
        q="Which train goes to Bern on Sunday?",
    )
    pages = {
        asked: await ann.look("/memories", q=asked)
        for asked in ("What is the atomic number of hafnium?", "Is hafnium heavy?", told)
    }

    assert [text[:10] for text in _texts(answered)] == ["Hafnium ha", "We spoke o"]
    for asked, page in pages.items():
        rows = (await ann.twin("/memories", q=asked))["rows"]
        is_likely = rows[0]["relevance"] >= 0.5  # type: ignore[index]
        assert ("1 answer</h2>" if is_likely else "1 possible answer</h2>") in page
    line = answered.index("1 more is unlikely to answer")
    assert answered.index("Hafnium has") < line < answered.index("We spoke of")
    assert "No memory answers this" not in answered
    assert unanswered.index("No memory answers this") < unanswered.index("We spoke of")


async def test_facets_combine_and_can_be_taken_away(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    ann, bob = memory.scope(user_id="ann"), memory.scope(user_id="bob")
    await ann.remember("tea", tags=["taste"])
    await ann.remember("old tea", tags=["taste"], created_at=NOW - timedelta(days=90))
    await ann.remember({"role": "user", "content": "hello"})
    gone = await bob.remember("gone")
    await bob.remember("coffee", tags=["taste"])
    await bob.forget(gone.id)
    visitor = Visitor(client(await served()))

    both = await visitor.look("/memories", user_id="ann", tag="taste", age="week")
    forgotten = await visitor.look("/memories", status="forgotten")
    humans = await visitor.look("/memories", type="human")
    refused = await visitor.http.get(
        "/memories", params={"age": "<b>"}, headers={"Accept": "text/html"}
    )

    assert _texts(both) == ["tea"]
    assert 'href="/memories?age=week&amp;user_id=ann"' in both  # which takes the tag away
    assert _texts(forgotten) == ["gone"]
    assert _texts(humans) == ["hello"]
    assert refused.status_code == 422
    assert "Invalid request" in refused.text


async def test_a_facet_counts_what_passes_the_others(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    ann = memory.scope(user_id="ann")
    await ann.remember("a", tags=["x", "y"])
    await ann.remember("b", tags=["x"])
    await ann.remember(MemoryItem(content="c", memory_type="note"))
    gone = await ann.remember("d")
    await ann.forget(gone.id)
    visitor = Visitor(client(await served()))

    async def counts(**asked: str) -> dict[str, dict[str, int]]:
        found = (await visitor.twin("/memories", **asked))["facets"]
        return {each["name"]: {v["value"]: v["count"] for v in each["values"]} for each in found}  # type: ignore[attr-defined]

    narrowed = await counts(tag="y", user_id="ann")
    assert narrowed["tag"] == {"x": 2, "y": 1}
    assert narrowed["status"] == {"accepted": 1, "forgotten": 1}
    assert narrowed["user_id"] == {"ann": None}  # others are out of sight
    assert "type" not in narrowed  # only one is left to choose
    assert await counts(status="forgotten") == {"status": {"forgotten": 1}}


async def test_each_narrowing_can_be_taken_away_and_the_rest_of_the_address_stays(
    memory: AgentMemory, served: Served, client: Client, keys: KeyFile
) -> None:
    ann = memory.scope(user_id="ann", agent_id="nova")
    item = await ann.remember("tea", tags=["taste"])
    await ann.chat("trip").add("hello")
    url = await served(keys=keys)
    admin, own = Visitor(client(url, new_key(keys, "admin"))), new_key(keys, "write", "ann")
    asked = {"user_id": "ann", "agent_id": "nova"}

    def links(page: str) -> list[str]:
        narrowed = re.search(r'aria-label="Filtered by">(.*?)</div>', page, re.DOTALL)
        return re.findall('href="([^"]+)"', html.unescape(narrowed[1] if narrowed else ""))

    page = await admin.look("/memory", id=item.id, **asked)
    assert links(page) == [
        f"/memory?id={item.id}&agent_id=nova",
        f"/memory?id={item.id}&user_id=ann",
        f"/memory?id={item.id}",
    ]
    for link in links(page):
        assert "tea" in (await admin.http.get(link)).text
    chat = await admin.look("/chat", id="trip", **asked)
    assert links(chat) == ["/chats?agent_id=nova", "/chats?user_id=ann", "/chats"]
    # What the key names stays.
    narrow = await Visitor(client(url, own)).look("/memories", tag="taste", **asked)
    assert links(narrow) == ["/memories?tag=taste"] * 2
    assert "everyone" not in narrow


async def test_who_asks_for_another_is_told_whose_key_it_is(
    memory: AgentMemory, served: Served, client: Client, keys: KeyFile
) -> None:
    url = await served(keys=keys)
    bob = Visitor(client(url, new_key(keys, "read", "bob")))

    other = await bob.http.get("/memories?user_id=ann", headers={"Accept": "text/html"})
    twin = await bob.http.get("/memories.json?user_id=ann")

    assert (other.status_code, twin.status_code) == (403, 403)
    assert "This key is for user_id <code>bob</code>, not <code>ann</code>" in other.text
    assert "This key is for" not in await bob.look("/memories", user_id="bob")


async def test_what_is_added_does_not_end_a_search(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    ann = memory.scope(user_id="ann")
    await ann.remember_many(["the tram leaves at nine", "I like tea"])
    visitor, asked = Visitor(client(await served())), {"user_id": "ann"}
    page = await visitor.look("/memories", q="tram", user_id="ann")

    fits = await visitor.send("/ui/memories", asked, content="a tram is late", q="tram")
    other = await visitor.send("/ui/memories", asked, content="tea", q="", type="human")

    assert 'hx-include="form.search"' in page  # so that a browser sends what is searched
    assert "a tram is late" in _texts(fits.text)
    assert _texts(fits.text)[2:] == ["I like tea"]  # what is unlikely to answer
    assert "Saved." in fits.headers["HX-Trigger"]
    assert _texts(other.text) == []
    assert "filters hide it" in other.headers["HX-Trigger"]


async def test_facets_do_not_count_what_a_search_does_not_find(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    await memory.scope(user_id="ann").remember("tea", tags=["taste"])
    await memory.scope(user_id="bob").remember("coffee", tags=["taste"])
    visitor = Visitor(client(await served()))

    listed, found = await visitor.look("/memories"), await visitor.look("/memories", q="tea")

    assert '<span class="count">2</span>' in listed
    assert "taste" in found
    assert not re.search(r'<span class="count">\d', found)


def test_joiners_are_seen_where_they_join_nothing() -> None:
    assert visible("pay\u200dpal and pay\u200cpal") == "pay⟨U+200D⟩pal and pay⟨U+200C⟩pal"
    assert visible("\u200d") == "⟨U+200D⟩"
    for text in ("👩🏽\u200d🔬", "❤️\u200d🔥", "می\u200cخواهم", "क्\u200dष", "a\tb\n"):
        assert visible(text) == text


async def test_another_users_key_sees_and_changes_nothing_foreign(
    memory: AgentMemory, served: Served, client: Client, keys: KeyFile
) -> None:
    await memory.scope(user_id="ann").remember("ann's secret", tags=["private"])
    mine = await memory.scope(user_id="bob").remember("bob's own")
    url = await served(keys=keys)
    key = new_key(keys, "write", "bob")
    bob, reader = Visitor(client(url, key)), Visitor(client(url, new_key(keys, "read", "bob")))

    page = await bob.look("/memories")
    twin = await bob.twin("/memories")
    for asked, form in (({}, {"user_id": "ann"}), ({"user_id": "ann"}, {})):
        assert (await bob.send("/ui/memories", asked, content="x", **form)).status_code == 403
    added = await bob.send("/ui/memories", {}, content="a note")
    refused = await reader.send("/ui/memories", {}, content="a note")

    assert _texts(page) == ["bob's own"]
    assert "secret" not in page
    assert "private" not in page
    assert twin["health"] == {**twin["health"], "memories": 1, "bytes": None}  # type: ignore[dict-item]
    assert added.status_code == 200
    assert refused.status_code == 403
    assert "Add a memory" not in await reader.look("/memories")
    assert [i.content for i in await memory.scope(user_id="ann").list()] == ["ann's secret"]
    assert {i.content for i in await memory.scope(user_id="bob").list()} == {
        mine.content,
        "a note",
    }


async def test_a_memory_is_added_from_the_page_for_whom_it_names(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    visitor = Visitor(client(await served()))

    nobody = await visitor.send("/ui/memories", {}, content="lost")
    added = await visitor.send("/ui/memories", {}, content=HOSTILE, tags="a, b,a", user_id="ann")

    assert nobody.status_code == 422
    assert "name a user or an agent" in nobody.json()["detail"]
    assert "Saved." in added.headers["HX-Trigger"]
    assert "&lt;img src=x onerror=alert(1)&gt;⟨U+202E⟩" in added.text
    assert "<img" not in added.text
    (item,) = await memory.scope(user_id="ann").list()
    assert (item.content, item.metadata.extra["tags"]) == (HOSTILE, ["a", "b"])


async def test_an_empty_store_says_how_to_connect(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    visitor = Visitor(client(await served()))

    empty = await visitor.look("/memories")
    await memory.scope(user_id="ann").remember("first")
    full = await visitor.look("/memories")

    assert "Waiting for the first memory" in empty
    assert '<details class="card">' not in empty
    assert '<details class="card">' in full  # the lines are there, folded
    assert str(visitor.http.base_url).rstrip("/") in full


async def test_what_is_to_be_copied_works(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    url = await served()
    texts = {each.id: each.text for each in snippets(url, needs_key=False, with_mcp=True)}

    _, _, body, target = shlex.split(texts["connect-curl"].replace("\\\n", ""))
    answer = await client(url).post(
        target, content=body, headers={"Content-Type": "application/json"}
    )
    names: dict[str, Any] = {}
    await asyncio.to_thread(exec, texts["connect-python"], names)
    await asyncio.to_thread(names["memory"].close)

    assert answer.status_code == 201
    kept = await memory.scope(user_id="alice").list()
    assert [item.content for item in kept] == ["Mia loves trams"] * 2


async def test_a_program_is_set_up_for_this_server_and_this_user(
    memory: AgentMemory, served: Served, client: Client, keys: KeyFile
) -> None:
    def install(found: dict[str, Any]) -> str:
        return str(next(one["text"] for one in found["connect"] if one["id"] == "connect-claude"))

    here = install(await Visitor(client(await served())).twin("/memories"))
    url = await served(keys=keys)
    bob = install(await Visitor(client(url, new_key(keys, "write", "bob's"))).twin("/memories"))
    boss = await Visitor(client(url, new_key(keys, "admin"))).look("/memories")

    assert here == f"orbiter-memory install claude-code --url {memory.url.partition('///')[2]}"
    words = shlex.split(bob.partition(" ")[2])
    assert words == ["orbiter-memory", "install", "claude-code", "--url", url, "--user", "bob's"]
    assert bob.startswith("ORBITER_MEMORY_TOKEN=")
    assert memory.url.partition("///")[2] not in bob
    assert f"run on the server: orbiter-memory keys create --url {memory.url} --user NAME" in boss


async def test_the_strip_tells_what_others_write_and_is_one_message(
    memory: AgentMemory, served: Served, client: Client, keys: KeyFile
) -> None:
    url = await served(keys=keys)
    bob = client(url, new_key(keys, "read", "bob"), timeout=httpx.Timeout(20))
    other = AgentMemory(memory.url, embeddings=None, summaries=None)

    told = ""
    async with other, bob.stream("GET", "/ui/live") as answer:
        lines = answer.aiter_lines()
        await anext(lines)  # it listens
        await other.scope(user_id="ann").remember("ann's secret")
        new = await other.scope(user_id="bob").remember(HOSTILE + "\r\nsecond line")
        async for line in lines:
            told += line + "\n"
            if "</ol>" in line:
                break

    assert answer.headers["Content-Type"].startswith("text/event-stream")
    assert "event: strip" in told
    assert f'data-new="{new.id}"' in told  # for the list beside it
    assert "&lt;img src=x onerror=alert(1)&gt;⟨U+202E⟩⟨U+000D⟩" in told
    assert "secret" not in told
    assert all(line.startswith("data: ") for line in told.split("event: strip\n")[1].splitlines())


def test_the_strip_keeps_its_length_and_tells_a_typed_search_once() -> None:
    def event(kind: str, second: int, user: str = "ann") -> MemoryEvent:
        at = NOW + timedelta(seconds=second)
        return MemoryEvent(kind, at, MemoryMetadata(user_id=user), ("1",))  # type: ignore[arg-type]  # a kind

    rows = merged([], as_row(event("recalled", 0)))
    rows = merged(rows, as_row(event("recalled", 1)))
    assert [(row.verb, row.times) for row in rows] == [("recalled", 2)]
    rows = merged(rows, as_row(event("recalled", 2, "bob")))
    rows = merged(rows, as_row(event("recalled", 60, "bob")))
    assert [row.times for row in rows] == [1, 1, 2]
    for number in range(20):
        rows = merged(rows, as_row(event("remembered", number)))
    assert len(rows) == MAX_ROWS


async def test_what_is_not_there_is_a_page_for_browsers_and_a_problem_for_programs(
    served: Served, client: Client
) -> None:
    http = client(await served())

    page = await http.get("/nowhere", headers={"Accept": "text/html"})
    program = await http.get("/nowhere")
    part = await http.get("/nowhere", headers={"Accept": "text/html", "HX-Request": "true"})
    rest = await http.get("/v1/nowhere", headers={"Accept": "text/html"})

    assert page.status_code == 404
    assert "<h1>Not found</h1>" in page.text
    assert ".json" not in page.text  # it has no twin
    for answer in (program, part, rest):
        assert answer.status_code == 404
        assert answer.headers["Content-Type"] == "application/problem+json"
