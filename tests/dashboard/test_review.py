"""The page of what waits for a word: copies, contradictions, proposals, sources in doubt."""

import json
import re
from datetime import UTC, datetime

from tests.dashboard._visitor import Visitor
from tests.server.conftest import Client, Served, new_key

from orbiter.memory import AgentMemory
from orbiter.memory.keys import KeyFile

ANN = {"user_id": "ann"}
EVERY_TAB = ("duplicates", "contradictions", "drafts", "quarantined")


async def test_each_tab_is_counted_and_says_when_nothing_waits(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    visitor = Visitor(client(await served()))

    pages = [await visitor.look("/review", tab=tab) for tab in EVERY_TAB]
    twin = await visitor.twin("/review")

    assert all("Nothing to review" in page for page in pages)
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
    await visitor.send("/ui/review/restore", ANN, ids=json.dumps([each.id for each in others]))

    assert group[0] == first.id
    assert "forgot 2" in kept.text
    assert left == [first.id]
    assert len(await ann.list()) == 3


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
    assert "Settled: “Porto” is retracted" in settled.text
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
    await visitor.send("/ui/review/discard", {"id": size.id})
    twin = await visitor.twin("/review", tab="drafts")

    assert len(re.findall("data-accept", page)) == 2
    assert "<img" not in page
    assert "Accepted: city" in accepted.headers["HX-Trigger"]
    assert list(await ann.facts.all()) == ["city"]
    assert twin["drafts"] == []


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
    await visitor.send("/ui/review/doubt", ANN, source=source, sure="yes")
    hidden = (await visitor.twin("/review", tab="quarantined"))["hidden"]
    page = await visitor.look("/review", tab="quarantined", **ANN)
    released = await visitor.send("/ui/review/release", {"source": source, **ANN})
    undone = await visitor.send("/ui/review/doubt", ANN, source=source, way="undo", sure="yes")
    nobody = await visitor.send("/ui/review/doubt", ANN, source="wbe")

    assert "<strong>1</strong> memory would be hidden" in counted.text
    assert before == 2
    assert list(hidden) == [source]  # type: ignore[call-overload]
    assert "Buy now" in page
    assert "Brought back 1" in released.text
    assert "Took back 1" in undone.text
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

    seen = await ben.twin("/review", **ANN)
    answers = [
        await ben.send("/ui/review/accept", {"id": draft.id, **ANN}),
        await ben.send("/ui/review/retract", {"id": draft.id, **ANN}),
        await ben.send("/ui/review/keep", {"keep": said[0].id, **ANN}, ids=ids),
        await ben.send("/ui/review/restore", ANN, ids=ids),
    ]

    assert seen["counts"] == dict.fromkeys(EVERY_TAB, 0)
    assert [answer.status_code for answer in answers] == [404] * 4
    assert len(await ann.facts.drafts()) == 1
    assert len(await ann.list()) == 3
