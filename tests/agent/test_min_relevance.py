"""`min_relevance` means one thing, and has one default, whichever way one asks."""

import inspect
from collections.abc import Callable
from typing import Any

from tests.rows import each_row

from orbiter.memory import AgentMemory
from orbiter.memory.agent import PastMemory, ScopedMemory
from orbiter.memory.context import ContextManager
from orbiter.memory.embeddings.local import LocalEmbeddings
from orbiter.memory.recall import Hit, recall
from orbiter.memory.sync import ScopedMemory as BlockingMemory
from orbiter.memory.text.ranking import MIN_RELEVANCE
from orbiter.memory.wire import OPERATIONS

ASKED = "What is the door code of the office?"
NOTES = (
    "The door code of the office is 4711",
    "I love hiking in the mountains",
    "My cat Tom sleeps on the sofa",
    "The car is a red Volvo",
    "Rent is due on the first",
)


@each_row(
    "asks",
    [recall, ScopedMemory.recall, ScopedMemory.evaluate, PastMemory.recall, BlockingMemory.recall],
)
def test_every_recall_has_the_same_default(asks: Callable[..., Any]) -> None:
    assert inspect.signature(asks).parameters["min_relevance"].default == MIN_RELEVANCE


def test_so_has_every_call_of_a_server_that_recalls() -> None:
    defaults = {
        f"{operation.target} {operation.name}": param.default
        for operation in OPERATIONS
        for param in operation.params
        if param.name == "min_relevance"
    }

    assert defaults["scope recall"] == defaults["past recall"] == MIN_RELEVANCE
    assert defaults["chat context"] is None  # a prompt judges each beside the best


async def test_what_clearly_does_not_answer_is_left_out_unless_all_is_asked_for() -> None:
    async with AgentMemory("memory://", embeddings=LocalEmbeddings()) as memory:
        alice = memory.scope(user_id="alice")
        await alice.remember_many(NOTES)
        await memory.flush()
        usual = await alice.recall(ASKED, mode="meaning")
        all_of_them = await alice.recall(ASKED, mode="meaning", min_relevance=0)

    assert len(all_of_them) == len(NOTES)
    assert [hit for hit in all_of_them if hit.relevance >= MIN_RELEVANCE] == usual
    assert len(usual) < len(NOTES)


async def test_a_context_asks_a_source_for_what_it_was_told_to_show() -> None:
    asked: list[float] = []

    class Source:
        async def recall(
            self, query: str = "", *, k: int = 5, min_relevance: float = MIN_RELEVANCE
        ) -> list[Hit]:
            asked.append(min_relevance)
            return []

    manager = ContextManager(None)
    for least in (None, 0.0, 0.5):
        await manager.assemble(ASKED, long_term=Source(), min_relevance=least)

    assert asked == [0.0, 0.0, 0.5]
