"""The page of what waits for a word: copies, contradictions, proposals, sources in doubt."""

import json
import re
from datetime import UTC, datetime

from tests.dashboard._visitor import Visitor
from tests.server.conftest import Client, Served, new_key

from orbiter.memory import AgentMemory
from orbiter.memory.auth import KeyFile

ANN = {"user_id": "ann"}
EVERY_TAB = ("duplicates", "contradictions", "drafts", "quarantined")


async def test_each_tab_is_counted_and_says_when_nothing_waits(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    visitor = Visitor(client(await served()))

    pages = [await visitor.look("/review", tab=tab) for tab in EVERY_TAB]
    twin = await visitor.twin("/review")

    assert all("Nothing to review" in page for page in pages)
    assert not any("Compare all" in page for page in pages)
    assert twin["counts"] == dict.fromkeys(EVERY_TAB, 0)


async def test_one_of_a_group_is_kept_and_the_others_come_back(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    ann = memory.scope(**ANN)
    first, *others = [await ann.remember(f"Mia hates peanuts{'.' * n}") for n in range(3)]
    visitor = Visitor(client(await served()))
    group = [item["id"] for item in (await visitor.twin("/review"))["groups"][0]]  # type: ignore[index]

    kept = await visitor.send("/ui/review/keep", {"keep": first.id, **ANN}, ids=json.dumps(group))
    left = [item.id for item in await ann.list()]
    undone = await visitor.send(
        "/ui/review/restore",
        {"keep": first.id, **ANN},
        ids=json.dumps([each.id for each in others]),
    )

    assert group[0] == first.id
    assert "forgot 2" in kept.text
    assert 'hx-get="/ui/review/counts?user_id=ann" hx-trigger="load"' in kept.text
    assert "3 duplicates" in undone.text
    assert left == [first.id]
    assert len(await ann.list()) == 3


async def test_turns_of_a_conversation_are_no_copies(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    ann = memory.scope(**ANN)
    call = {"type": "function", "function": {"name": "weather", "arguments": "{}"}}
    turns = [{"role": "user", "content": "How is it outside, and how is it out there?"}]
    for number in range(2):
        name = f"call-{number}"
        turns.append({"role": "assistant", "content": "", "tool_calls": [{**call, "id": name}]})  # type: ignore[dict-item]
        turns.append({"role": "tool", "content": "Sunny, 25 degrees", "tool_call_id": name})
    await ann.chat("day").add(turns)
    results = [item.id for item in await ann.list(memory_type="tool")]
    note = await ann.remember("Sunny, 25 degrees")
    visitor = Visitor(client(await served()))

    groups = (await visitor.twin("/review"))["groups"]
    every = await visitor.send("/ui/review/all", ANN)
    refused = await visitor.send(
        "/ui/review/keep", {"keep": note.id, **ANN}, ids=json.dumps([note.id, *results])
    )

    assert len(results) == 2
    assert groups == []
    assert "Keep this one" not in every.text
    assert refused.status_code in (400, 422)
    assert "a turn of a conversation" in refused.json()["detail"]
    assert len(await ann.list(memory_type="tool")) == 2


async def test_exact_copies_go_only_when_that_is_meant(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    ann = memory.scope(**ANN)
    for _ in range(3):
        await ann.remember("The budget is 120 euros")
    visitor = Visitor(client(await served()))

    every = await visitor.send("/ui/review/all", ANN)
    counted = await visitor.send("/ui/review/copies", ANN)
    before = len(await ann.list())
    await visitor.send("/ui/review/copies", ANN, sure="yes")

    assert "1 group among all memories" in every.text
    assert "<strong>2</strong> would be forgotten" in counted.text
    assert (before, len(await ann.list())) == (3, 1)


async def test_a_contradiction_of_anybody_is_settled_by_retracting_a_side(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    facts = memory.scope(agent_id="nova", **ANN).facts
    start = datetime(2025, 1, 1, tzinfo=UTC)
    await facts.put("city", "Lisbon", valid_from=start)
    wrong = await facts.put("city", "Porto", valid_from=start)
    visitor = Visitor(client(await served()))

    page = await visitor.look("/review", tab="contradictions")
    settled = await visitor.send("/ui/review/retract", {"id": wrong.id})

    assert "both claim the same time" in page
    assert "Resolved: “Porto” is retracted" in settled.text
    assert await facts.conflicts() == []
    now = await facts.get("city")
    assert now is not None
    assert now.value == "Lisbon"


async def test_proposals_are_accepted_or_discarded(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    ann = memory.scope(**ANN)
    said = await ann.remember("<img src=x onerror=alert(1)> we live in Lisbon")
    city = await ann.facts.propose("city", "Lisbon", source=said)
    size = await ann.facts.propose("size", "41", source=said)
    assert city is not None
    assert size is not None
    visitor = Visitor(client(await served()))

    page = await visitor.look("/review", tab="drafts")
    accepted = await visitor.send("/ui/review/accept", {"id": city.id})
    discarded = await visitor.send("/ui/review/discard", {"id": size.id})
    twin = await visitor.twin("/review", tab="drafts")
    reopened = await visitor.send("/ui/review/reopen", {"id": size.id})
    again = await ann.facts.drafts()
    shown = await visitor.look("/memory", id=size.id)
    on_its_page = await visitor.send("/ui/review/decide", {"id": size.id, "to": "accepted"})
    too_late = await visitor.send("/ui/review/reopen", {"id": size.id})

    assert len(re.findall("data-accept", page)) == 2
    assert "<img" not in page
    assert "Accepted." in accepted.text
    assert 'hx-get="/ui/review/counts" hx-trigger="load"' in accepted.text
    counts = (await visitor.http.get("/ui/review/counts", params=ANN)).text
    assert 'id="count-drafts" hx-swap-oob="true">0<' in counts
    assert "Nothing more to review" in page  # which the style sheet shows once that is so
    assert "Undo" in discarded.text
    assert twin["drafts"] == []
    assert "data-accept" in reopened.text
    assert [draft.id for draft in again] == [size.id]
    assert "/ui/review/decide" in shown
    assert "Accepted: size" in on_its_page.headers["HX-Trigger"]
    assert "/ui/review/decide" not in on_its_page.text
    assert too_late.status_code in (400, 422)
    assert list(await ann.facts.all()) == ["city", "size"]


async def test_a_source_is_counted_hidden_and_released(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    ann = memory.scope(**ANN)
    await ann.remember("Buy now", source="web:shady.example")
    await ann.remember("I like tea")
    await ann.forget(await ann.remember("I hated tea"))
    visitor = Visitor(client(await served()))
    source = "web:shady.example"

    counted = await visitor.send("/ui/review/doubt", ANN, source=source)
    before = len(await ann.list())
    meant = {"source": source, "way": "hide", **ANN}
    hid = await visitor.send("/ui/review/doubt", meant, source="user", way="undo", sure="yes")
    hidden = (await visitor.twin("/review", tab="quarantined"))["hidden"]
    page = await visitor.look("/review", tab="quarantined", **ANN)
    released = await visitor.send("/ui/review/release", {"source": source, **ANN})
    undone = await visitor.send("/ui/review/doubt", ANN, source=source, way="undo", sure="yes")
    nobody = await visitor.send("/ui/review/doubt", ANN, source="wbe")

    assert '<strong>1</strong> memory from <strong dir="auto">web:shady.example<' in counted.text
    assert "?source=web%3Ashady.example&amp;way=hide&amp;user_id=ann" in counted.text
    assert f"Hide 1 memory from {source}?" in counted.text
    assert "hx-include" not in counted.text
    assert 'id="hidden" hx-swap-oob="true"' in hid.text
    assert "Buy now" in hid.text
    assert before == 2
    assert list(hidden) == [source]  # type: ignore[call-overload]
    assert "Buy now" in page
    assert "Restored 1" in released.text
    assert "Undid 1" in undone.text
    assert [item.content for item in await ann.list()] == ["I like tea"]
    assert "nothing came from the source" in nobody.text


async def test_a_key_decides_nothing_of_anybody_elses(
    memory: AgentMemory, keys: KeyFile, served: Served, client: Client
) -> None:
    ann = memory.scope(**ANN)
    said = [await ann.remember("We live in Lisbon") for _ in range(2)]
    draft = await ann.facts.propose("city", "Lisbon", source=said)
    assert draft is not None
    url = await served(keys=keys)
    ben = Visitor(client(url, new_key(keys, user="ben")))
    ids = json.dumps([item.id for item in said])

    seen = await ben.twin("/review")
    answers = [
        answer.status_code
        for named in ({}, ANN)
        for answer in (
            await ben.send("/ui/review/accept", {"id": draft.id, **named}),
            await ben.send("/ui/review/retract", {"id": draft.id, **named}),
            await ben.send("/ui/review/keep", {"keep": said[0].id, **named}, ids=ids),
            await ben.send("/ui/review/restore", named, ids=ids),
        )
    ]

    assert seen["counts"] == dict.fromkeys(EVERY_TAB, 0)
    assert answers == [404] * 4 + [403] * 4
    assert len(await ann.facts.drafts()) == 1
    assert len(await ann.list()) == 3
