"""The labs: what a model would be shown, and what each way to recall finds."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from tests.server.conftest import Client, Served, new_key

from orbiter.memory import AgentMemory
from orbiter.memory.auth import KeyFile
from orbiter.memory.testing import HashEmbeddings

HOSTILE = '<img src=x onerror="alert(1)"> a dinner \u202efor two'
TASK = {"q": "Where do we have dinner?", "user_id": "ann"}


async def _fill(memory: AgentMemory) -> None:
    ann = memory.scope(user_id="ann")
    await ann.remember("We like dinner by the sea", tags=["taste"])
    await ann.remember("Dinner costs at most 30 euros", tags=["money"], importance=1.0)
    await ann.remember(HOSTILE, source="web:example.com")
    await ann.remember("A long menu for dinner. " * 200)
    await memory.scope(user_id="bob").remember("Bob has dinner at eight")
    said = [f"{who} {number}" for number in range(30) for who in ("We talk about day",)]
    await ann.chat("trip").add([*said, "So where is dinner on the first day?"])


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[AgentMemory]:
    """Return a memory with something to have dinner by."""
    async with AgentMemory(
        f"sqlite:///{tmp_path}/labs.db", embeddings=HashEmbeddings(), summaries=None
    ) as made:
        await _fill(made)
        await made.flush()
        yield made


@pytest.fixture
async def page(served: Served, client: Client) -> httpx.AsyncClient:
    """Return a browser on this computer."""
    return client(await served())


async def test_a_context_is_shown_with_its_price_and_what_was_left_out(
    page: httpx.AsyncClient,
) -> None:
    asked = {**TASK, "budget": "400", "chat": "trip", "memory_limit": "4"}
    html = (await page.get("/context", params=asked)).text
    found = (await page.get("/context.json", params=asked)).json()["result"]

    assert found["tokens"] <= 400
    assert f'>{found["tokens"]}</span> of <span class="number">400</span> tokens' in html
    assert sum(tokens for _, tokens, _ in found["parts"]) == found["tokens"]
    assert {"conversation", "memories", "task"} <= {name for name, *_ in found["parts"]}
    states = {each["state"] for each in found["memories"]}
    assert "shown" in states
    assert states - {"shown"}
    for each in found["memories"]:
        content = re.escape(each["hit"]["item"]["content"].replace("\n", " "))
        is_whole = re.search(rf"{content}(?!\w)", found["text"]) is not None  # "day 2" of "day 20"
        assert is_whole is (each["state"] == "shown" and "\u202e" not in each["hit"]["passage"])
        assert each["hit"]["why"]
    reasons = {(each["section"], each["reason"]) for each in found["dropped"]}
    assert ("conversation", "budget") in reasons
    assert "no room in the budget" in html
    assert 'class="reasons"' in html
    assert "<svg" in html


async def test_a_context_is_legal_for_every_provider(page: httpx.AsyncClient) -> None:
    html = (await page.get("/context", params=TASK)).text
    sent = (await page.get("/context.json", params=TASK)).json()["result"]["messages"]

    assert all(each["problems"] == [] for each in sent.values())
    assert set(sent) == {"openai", "openai-responses", "anthropic", "gemini"}
    assert "system" not in sent["anthropic"]["sent"]
    assert "contents" in sent["gemini"]["sent"]
    assert "Valid for OpenAI" in html
    assert "Under budget" in html
    for number in range(1, 6):
        assert f'data-copy="#sent-{number}"' in html


async def test_what_cannot_be_assembled_is_told_in_place(page: httpx.AsyncClient) -> None:
    for name, value, told in (
        ("budget", "10", "the budget is 10"),
        ("budget", "many", "`budget` must be a number"),
        ("format", "cobol", "unknown format `cobol`"),
        ("min_trust", "nobody", "`min_trust` must be one of"),
        ("chat", "nowhere", "there is no chat `nowhere` here"),
    ):
        answer = await page.get("/context", params={**TASK, name: value})
        twin = await page.get("/context.json", params={**TASK, name: value})

        assert answer.status_code == twin.status_code == 422
        assert "The context cannot be assembled" in answer.text
        assert re.sub("`(.*?)`", r"<code>\1</code>", told) in answer.text
        assert told in twin.json()["error"]
        assert f'value="{TASK["q"]}"' in answer.text  # what was typed is still there


async def test_the_last_open_question_of_a_chat_is_the_task(page: httpx.AsyncClient) -> None:
    asked = {"user_id": "ann", "chat": "trip"}

    found = (await page.get("/context.json", params=asked)).json()

    assert "So where is dinner on the first day?" in found["result"]["text"]


async def test_a_chat_that_ends_with_an_answer_asks_what_comes_next(
    memory: AgentMemory, page: httpx.AsyncClient
) -> None:
    await memory.scope(user_id="ann").chat("trip").add({"role": "assistant", "content": "By sea"})
    asked = {"user_id": "ann", "chat": "trip"}

    answer = await page.get("/context", params=asked)
    goes_on = await page.get("/context.json", params={**asked, "q": "And after that?"})

    assert answer.status_code == 200
    assert "This chat ends with an answer. Type what comes next." in answer.text
    assert "chat.context" not in answer.text
    assert "autofocus" in answer.text.partition('id="q"')[2].partition(">")[0]
    assert "By sea" in goes_on.json()["result"]["text"]


async def test_the_labs_open_memories_in_the_scope_they_are_in(page: httpx.AsyncClient) -> None:
    for path in ("/recall", "/context"):
        html = (await page.get(path, params=TASK)).text

        links = [each.partition('"')[0] for each in html.split('href="/memory?')[1:]]
        assert links
        assert all(each.endswith("&amp;user_id=ann") for each in links)


async def test_three_ways_to_recall_stand_side_by_side(page: httpx.AsyncClient) -> None:
    html = (await page.get("/recall", params={**TASK, "k": "4"})).text
    found = (await page.get("/recall.json", params={**TASK, "k": "4"})).json()

    assert [lane["mode"] for lane in found["lanes"]] == ["words", "meaning", "hybrid"]
    for lane in found["lanes"]:
        assert 1 <= len(lane["hits"]) <= 4
        for place, hit in enumerate(lane["hits"], start=1):
            assert found["ranks"][hit["item"]["id"]][lane["mode"]] == place
            assert hit["item"]["metadata"]["user_id"] == "ann"
    both = [id for id, ranks in found["ranks"].items() if {"words", "hybrid"} <= set(ranks)]
    assert both
    assert html.count(f'data-id="{both[0]}"') >= 2
    assert f"#{found['ranks'][both[0]]['words']} by words" in html
    assert found["lanes"][2]["left_out"]
    assert "next best, left out" in html
    assert "Query analysis: " in html


async def test_filters_and_weights_of_recall_do_what_they_say(page: httpx.AsyncClient) -> None:
    async def texts(**more: str) -> list[str]:
        found = await page.get("/recall.json", params={**TASK, **more})
        assert found.status_code == 200, found.text
        return [hit["item"]["content"] for hit in found.json()["lanes"][0]["hits"]]

    assert await texts(where='{"tags": {"$contains": "money"}}') == [
        "Dinner costs at most 30 euros"
    ]
    assert "So where is dinner on the first day?" in await texts(type="human")
    assert await texts(since="2999-01-01") == []
    assert HOSTILE in await texts()
    assert HOSTILE not in await texts(min_trust="user")
    assert (await texts(importance="10"))[0] == "Dinner costs at most 30 euros"


async def test_a_filter_that_means_nothing_is_told_in_place(page: httpx.AsyncClient) -> None:
    for name, value, told in (
        ("where", "{", "`where` must be a JSON object"),
        ("where", "[1]", "`where` must be a JSON object"),
        ("where", "[" * 100_000, "`where` must be a JSON object"),
        ("where", '{"x": {"$bad": 1}}', "$bad"),
        ("since", "some day", "`since` must be a datetime, or a text such as"),
        ("since", "0001-01-01T00:00+23:00", "`since`"),
        ("recency", "-1", "`recency` must be a number"),
        ("importance", "nan", "`importance` must be a number"),
        ("k", "0", "`k` must be a number"),
    ):
        answer = await page.get("/recall", params={**TASK, name: value[:9_000]})

        assert answer.status_code == 422, value
        assert told in answer.text
        assert 'role="alert"' in answer.text


async def test_hostile_memories_are_only_text(page: httpx.AsyncClient) -> None:
    for path in ("/recall", "/context"):
        html = (await page.get(path, params={**TASK, "q": f"dinner {HOSTILE}"})).text

        assert "<img" not in html
        assert "\u202e" not in html
        assert "&lt;img src=x" in html
        assert "⟨U+202E⟩" in html


async def test_a_key_sees_only_its_own_in_the_labs(
    memory: AgentMemory, served: Served, client: Client, keys: KeyFile
) -> None:
    browser = client(await served(keys=keys), new_key(keys, "read", user="bob"))

    unnamed = {name: value for name, value in TASK.items() if name != "user_id"}
    for path in ("/recall", "/context"):
        assert (await browser.get(path, params=TASK)).status_code == 403
        html = (await browser.get(path, params=unnamed)).text
        assert "Bob has dinner at eight" in html
        assert "by the sea" not in html
        assert 'name="user_id"' not in html


async def test_without_a_model_the_lane_says_how_to_get_one(
    tmp_path: Path, served: Served, client: Client
) -> None:
    async with AgentMemory(f"sqlite:///{tmp_path}/bare.db", embeddings=None) as bare:
        await bare.scope(user_id="ann").remember("We like dinner by the sea")
        page = client(await served(bare))

        html = (await page.get("/recall", params=TASK)).text
        lanes = (await page.get("/recall.json", params=TASK)).json()["lanes"]

    assert "pip install &#39;orbiter-memory[local]&#39;" in html
    assert [bool(lane["missing"]) for lane in lanes] == [False, True, False]
    assert lanes[0]["hits"]
    assert lanes[2]["hits"]


async def test_empty_labs_invite(page: httpx.AsyncClient) -> None:
    for path, told in (("/recall", "Ask something"), ("/context", "Nothing assembled yet")):
        answer = await page.get(path)

        assert answer.status_code == 200
        assert told in answer.text
