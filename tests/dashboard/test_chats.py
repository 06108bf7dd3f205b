"""Chats: the list, and one conversation with its window and its summary on it."""

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from tests.server.conftest import Client, Served, new_key

from orbiter.memory import AgentMemory
from orbiter.memory.auth import KeyFile
from orbiter.memory.model.items import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    SystemMemory,
    ToolMemory,
)
from orbiter.memory.server.dashboard.chat_address import address_of
from orbiter.memory.server.dashboard.chat_rows import drawn, without_halves
from orbiter.memory.summary import SummaryConfig

HOSTILE = "<script>alert(1)</script> \u202etxt.exe"
START = datetime(2026, 5, 14, 12, tzinfo=UTC)


def _turns(count: int) -> list[MemoryItem]:
    """Return a system message and *count* rounds, the sixth of which calls a tool."""
    said: list[MemoryItem] = [SystemMemory(content="You plan trips.", created_at=START)]
    for number in range(count):
        at = START + timedelta(minutes=number + 1)
        later = at + timedelta(seconds=1)
        said.append(HumanMemory(content=f"question {number}", created_at=at))
        if number == 5:
            call = {"id": "c1", "name": "get_sea", "arguments": {"city": "Lisbon"}}
            said.append(AIMemory(content="", tool_calls=[call], created_at=later))
            said.append(ToolMemory(content="17 degrees", tool_call_id="c1", created_at=later))
        said.append(AIMemory(content=f"answer {number}", created_at=later + timedelta(seconds=1)))
    return said


@pytest.fixture
async def talks(tmp_path: Path) -> AsyncIterator[AgentMemory]:
    """Return a memory with conversations of several people, which sums up when asked."""
    when_asked = SummaryConfig(message_threshold=10_000, token_threshold=10**6)
    async with AgentMemory(
        f"sqlite:///{tmp_path}/talks.db", embeddings=None, summaries=when_asked
    ) as memory:
        await memory.scope(user_id="ann").chat("trip").add(_turns(25))
        await memory.scope(user_id="bob", agent_id="desk").chat("trip").add(HOSTILE)
        await memory.scope(user_id="bob").chat("trip").add("without an agent")
        await memory.scope(user_id="ann", session_id="trip").chat("hotel").add("a task of trip")
        await memory.scope(user_id="ann", task_id="alone").remember_many(
            [{"role": "user", "content": "a task of no session"}]
        )
        yield memory


@pytest.fixture
async def page(talks: AgentMemory, served: Served, client: Client) -> httpx.AsyncClient:
    """Return a browser on this computer."""
    return client(await served(talks))


async def test_chats_tell_whose_they_are_and_how_they_begin(page: httpx.AsyncClient) -> None:
    html = (await page.get("/chats")).text
    told = (await page.get("/chats.json")).json()

    assert len(told["chats"]) == 5
    assert {"question 0", "a task of trip", "a task of no session"} < {
        each["title"] for each in told["chats"]
    }
    for each in told["chats"]:
        if each["user_id"] == "ann":
            assert f">{each['title']}<" in html
    ann = next(each for each in told["chats"] if each["title"] == "question 0")
    assert (ann["user_id"], ann["messages"]) == ("ann", 53)
    assert told["people"] == {"ann": 3, "bob": 2}
    assert "<script>alert" not in html
    assert "⟨U+202E⟩" in html


async def test_chats_are_bounded(page: httpx.AsyncClient) -> None:
    html = (await page.get("/chats?n=2")).text

    assert "The newest 2 conversations" in html
    assert 'href="/chats?n=4"' in html
    assert (await page.get("/chats?n=501")).status_code == 422


async def test_each_chat_has_an_address_that_names_only_it(page: httpx.AsyncClient) -> None:
    listed = (await page.get("/chats.json")).json()["chats"]

    for each in listed:
        found = (await page.get("/chat.json", params=each["address"])).json()
        assert found["messages"] == each["messages"]
        assert found["title"] == each["title"]
        whose = {name: each[name] for name in ("user_id", "session_id", "task_id", "agent_id")}
        assert found["whose"] == {name: value for name, value in whose.items() if value}
        for row in found["timeline"]["rows"]:
            metadata = row["item"]["metadata"]
            assert {name: metadata.get(name) for name in whose} == whose
    assert len({tuple(sorted(each["address"].items())) for each in listed}) == 5


async def test_a_key_finds_its_chats_by_their_addresses_and_nobody_elses(
    talks: AgentMemory, served: Served, client: Client, keys: KeyFile
) -> None:
    held = (
        MemoryMetadata(user_id="ann"),
        MemoryMetadata(user_id="ann", session_id="trip"),
        MemoryMetadata(user_id="ann", session_id="trip", task_id="hotel"),
    )
    shown = [keys.create(scope=scope, role="read")[1] for scope in held]
    url = await served(talks, keys=keys)

    counts = []
    for key in shown:
        browser = client(url, key)
        listed = (await browser.get("/chats.json")).json()["chats"]
        counts.append(len(listed))
        for each in listed:
            found = await browser.get("/chat.json", params=each["address"])
            assert found.json()["messages"] == each["messages"]
            assert found.json()["has_window"] is (each["session_id"] is not None)
        assert "bob" not in (await browser.get("/chats")).text
        other = await browser.get("/chat", params={"id": "trip", "user_id": "bob"})
        assert other.status_code == 403
        assert "without an agent" not in other.text
    assert counts == [3, 2, 1]


async def test_a_chat_that_is_not_there_is_a_404(page: httpx.AsyncClient) -> None:
    assert (await page.get("/chat?id=nothing&user_id=ann")).status_code == 404
    assert (await page.get("/chat?id=trip&user_id=carol")).status_code == 404
    assert (await page.get("/chat")).status_code == 422


async def test_the_window_is_marked_where_it_begins(page: httpx.AsyncClient) -> None:
    asked = {"id": "trip", "user_id": "ann", "by": "rounds", "size": "3"}

    found = (await page.get("/chat.json", params=asked)).json()
    html = (await page.get("/chat", params=asked)).text

    rows = found["timeline"]["rows"]
    at = found["timeline"]["window_at"]
    assert rows[at]["item"]["content"] == "question 22"
    assert [row["is_sent"] for row in rows] == [False] * at + [True] * (len(rows) - at)
    assert found["window"]["messages"] == 7  # and the system's
    mark = html.index("The window of the model starts here")
    assert html.index(">question 21<") < mark < html.index(">question 22<")
    assert html.count('unseen"') == at
    assert (await page.get("/chat", params={**asked, "by": "miles"})).status_code == 422


async def test_a_long_chat_has_pages_that_miss_nothing(page: httpx.AsyncClient) -> None:
    asked = {"id": "trip", "user_id": "ann", "by": "rounds", "size": "2"}
    seen: list[str] = []
    places = []
    while True:
        found = (await page.get("/chat.json", params=asked)).json()
        rows = found["timeline"]["rows"]
        results = [call["result"] for row in rows for call in row["calls"] if call["result"]]
        seen += [row["item"]["id"] for row in rows] + [each["id"] for each in results]
        places.append(found["window"]["place"])
        if found["earlier"] is None:
            break
        asked["before"] = found["earlier"]

    assert found["later"] is None  # what comes after this is the newest
    assert len(seen) == len(set(seen)) == 53
    assert places == ["here", "below"]  # the result stands with its call, on the earlier one
    html = (await page.get("/chat", params=asked)).text
    assert "nothing on this page is in the window of the model" in html
    assert "always sent" in html  # the system's message, however old
    assert "get_sea" in html
    assert "17 degrees" in html
    assert "Lisbon" in html


async def test_from_an_old_page_of_a_chat_one_goes_forward_page_by_page(
    talks: AgentMemory, page: httpx.AsyncClient
) -> None:
    await talks.scope(user_id="ann").chat("long").add([f"line {n}" for n in range(130)])
    asked = {"id": "long", "user_id": "ann"}
    first = (await page.get("/chat.json", params=asked)).json()
    second = (await page.get("/chat.json", params={**asked, "before": first["earlier"]})).json()
    third = (await page.get("/chat.json", params={**asked, "before": second["earlier"]})).json()

    again = (await page.get("/chat.json", params={**asked, "before": third["later"]})).json()
    html = (await page.get("/chat", params={**asked, "before": second["earlier"]})).text

    assert again["timeline"]["rows"] == second["timeline"]["rows"]
    assert (again["later"], first["later"]) == (None, None)
    assert "Later messages" in html
    assert "Newest messages" in html
    assert html.count('&amp;user_id=ann">') >= 40  # each message opens in this scope


async def test_summing_up_marks_what_is_summed_up(page: httpx.AsyncClient) -> None:
    asked = {"id": "trip", "user_id": "ann"}
    html = (await page.get("/chat", params=asked)).text
    token = re.search(r'name="orbiter-token" content="([^"]+)"', html)
    assert token is not None
    assert "Summarized up to here" not in html

    refused = await page.post("/ui/chat/summary", params=asked)
    done = await page.post("/ui/chat/summary", params=asked, headers={"X-Orbiter-Token": token[1]})

    assert refused.status_code == 403
    assert done.status_code == 200
    assert "Summarized" in done.headers["HX-Trigger"]
    assert "Summarized up to here" in done.text
    found = (await page.get("/chat.json", params=asked)).json()
    covered = found["summary"]["covers_to"]
    at = found["timeline"]["summary_at"]
    rows = found["timeline"]["rows"]
    assert rows[at - 1]["item"]["created_at"] <= covered < rows[at]["item"]["created_at"]
    assert found["summary"]["content"].split()[0] in done.text


async def test_who_may_only_read_cannot_sum_up(
    talks: AgentMemory, served: Served, client: Client, keys: KeyFile
) -> None:
    browser = client(await served(talks, keys=keys), new_key(keys, "read", user="ann"))
    html = (await browser.get("/chat?id=trip")).text
    token = re.search(r'name="orbiter-token" content="([^"]+)"', html)
    assert token is not None
    assert "Summarize now" not in html

    answer = await browser.post("/ui/chat/summary?id=trip", headers={"X-Orbiter-Token": token[1]})

    assert answer.status_code == 403


def test_a_call_and_its_results_are_one_row_also_where_they_came_late() -> None:
    calls = [{"id": "a", "name": "one", "arguments": "{}"}, {"id": "b", "name": "two"}]
    said = [
        AIMemory(content="", tool_calls=calls),
        HumanMemory(content="meanwhile"),
        ToolMemory(content='{"x": 1}', tool_call_id="a"),
        ToolMemory(content="nobody asked", tool_call_id="z"),
    ]

    rows = drawn(said).rows

    assert [row.role for row in rows] == ["ai", "human", "tool"]
    assert [call.result and call.result.content for call in rows[0].calls] == ['{"x": 1}', None]
    assert rows[0].is_open
    assert rows[0].calls[0].output == '{\n  "x": 1\n}'


def test_a_page_does_not_begin_with_results_whose_call_is_on_another() -> None:
    results = [ToolMemory(content=str(each), tool_call_id=str(each)) for each in range(3)]
    question = HumanMemory(content="and now?")

    assert without_halves([*results, question], is_all=False) == [question]
    assert without_halves([*results, question], is_all=True) == [*results, question]
    assert without_halves(results, is_all=False) == results


def test_an_address_leaves_out_what_the_key_stands_for_as_a_name() -> None:
    scope = MemoryMetadata(user_id="u", session_id="s")

    assert address_of(scope, MemoryMetadata()) == {"user_id": "u", "id": "s"}
    assert address_of(scope, scope) == {"user_id": "u", "session_id": "s"}
