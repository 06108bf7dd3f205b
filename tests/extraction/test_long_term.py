"""Facts are proposed after the fact, with their messages, once, and wait for a review."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import pytest
from tests.extraction._extractors import LineExtractor

from orbiter.memory import AgentMemory, ToolMemory
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.errors import AccessError, ExtractionError
from orbiter.memory.extraction import Extractor, LongTermMemory, ProposedFact
from orbiter.memory.model.facts import FactMemory
from orbiter.memory.model.items import MemoryItem, MemoryStatus
from orbiter.memory.model.trust import Trust, trust_of


class Giving:
    """Gives whatever a test wants."""

    def __init__(self, given: object) -> None:
        self._given = given

    async def extract(
        self, messages: Sequence[MemoryItem], known: Mapping[str, FactMemory]
    ) -> Sequence[ProposedFact]:
        if isinstance(self._given, Exception):
            raise self._given
        return self._given  # type: ignore[return-value]  # the point of the test


async def test_a_draft_names_its_messages_and_holds_once_it_is_accepted(
    any_alice: ScopedMemory,
) -> None:
    said = await any_alice.chat("c").add(["home_city is Munich", "hello"])
    extractor = LineExtractor()
    long_term = LongTermMemory(any_alice, extractor)

    (draft,) = await long_term.extract(said)

    assert isinstance(extractor, Extractor)
    assert (draft.status, draft.source_ids) == (MemoryStatus.DRAFT, [said[0].id])
    assert draft.valid_from == said[0].created_at
    assert await long_term.extract(said) == [draft]
    assert await long_term.facts.all() == {}
    accepted = await long_term.accept(draft.id)
    assert accepted.recorded_at > draft.recorded_at
    assert await long_term.extract(said) == []
    assert extractor.known[-1] == {"home_city": "Munich"}
    assert await long_term.drafts() == []
    hits = await long_term.recall("home city Munich")
    assert accepted.id in {hit.item.id for hit in hits}


async def test_what_was_discarded_or_forgotten_does_not_come_back(alice: ScopedMemory) -> None:
    said = await alice.chat("c").add(["a is 1", "b is 2"])
    long_term = LongTermMemory(alice, LineExtractor())
    one, two = await long_term.extract(said)

    await long_term.discard(one.id)
    await alice.forget(two.id)

    assert await long_term.extract(said) == []
    assert await long_term.drafts() == []


async def test_two_at_once_propose_one(alice: ScopedMemory) -> None:
    said = await alice.chat("c").add(["a is 1", "b is 2"])
    long_term = LongTermMemory(alice, LineExtractor())

    await asyncio.gather(*(long_term.extract(said) for _ in range(4)))

    assert sorted(fact.key for fact in await long_term.drafts()) == ["a", "b"]


async def test_a_draft_is_worth_what_its_worst_message_is(here: ScopedMemory) -> None:
    said = await here.chat("c").add(
        ["ask the tool", ToolMemory(content="a is 1", tool_call_id="1", tool_name="t")]
    )

    (draft,) = await LongTermMemory(here, LineExtractor()).extract(said)

    assert trust_of(draft) is Trust.TOOL


async def test_what_is_forgotten_while_the_extractor_thinks_proposes_nothing(
    alice: ScopedMemory,
) -> None:
    said = await alice.chat("c").add(["a is 1", "b is 2"])

    class Slow(LineExtractor):
        async def extract(
            self, messages: Sequence[MemoryItem], known: Mapping[str, FactMemory]
        ) -> list[ProposedFact]:
            found = await super().extract(messages, known)
            await alice.forget(said[0])
            return found

    drafts = await LongTermMemory(alice, Slow()).extract(said)

    assert [fact.key for fact in drafts] == ["b"]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (RuntimeError("out of memory"), "RuntimeError: out of memory"),
        (ExtractionError("nothing came"), "nothing came"),
        (TimeoutError(), "TimeoutError"),
        (None, "a list of facts"),
        ("facts", "a list of facts"),
        ([{"key": "a"}], "in place of a `ProposedFact`"),
        ([ProposedFact("a", 1, ("elsewhere",))], "'elsewhere', which was not among"),
        ([ProposedFact("a", 1, ("x",))] * 201, "201 facts"),
    ],
)
async def test_a_bad_extractor_is_told_and_proposes_nothing(
    given: object, problem: str, open_memory: Callable[..., AgentMemory]
) -> None:
    alice = open_memory("memory://").scope(user_id="alice")
    said = await alice.chat("c").add("a is 1")

    with pytest.raises(ExtractionError) as caught:
        await LongTermMemory(alice, Giving(given)).extract(said)

    assert problem in str(caught.value)
    assert await LongTermMemory(alice, Giving(given)).drafts() == []


async def test_messages_of_others_are_not_read(alice: ScopedMemory, bob: ScopedMemory) -> None:
    theirs = await bob.chat("c").add("a is 1")
    extractor = LineExtractor()

    with pytest.raises(AccessError):
        await LongTermMemory(alice, extractor).extract(theirs)

    assert extractor.seen == []
    assert await LongTermMemory(alice, extractor).extract([]) == []
