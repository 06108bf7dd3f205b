"""Moving and extracting without `async`: blocking objects go in, and the async code does it."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from orbiter.memory import extraction, sync, transfer
from orbiter.memory.errors import QueryError, TransferError, UnsupportedError
from orbiter.memory.extraction import ProposedFact
from orbiter.memory.model.facts import FactMemory
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.sync import (
    AgentMemory,
    LongTermMemory,
    MemoryOrchestrator,
    export_file,
    import_file,
    migrate,
)


class _City:
    """Proposes one fact of each batch."""

    async def extract(
        self, messages: Sequence[MemoryItem], known: Mapping[str, FactMemory]
    ) -> list[ProposedFact]:
        assert "home" not in known
        return [ProposedFact(key="home", value="Porto", message_ids=(messages[0].id,))]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[AgentMemory]:
    with AgentMemory(tmp_path / "a.db", embeddings=None) as memory:
        yield memory


def test_a_file_goes_out_and_comes_in_and_a_store_is_copied(
    memory: AgentMemory, tmp_path: Path
) -> None:
    alice = memory.scope(user_id="alice")
    item = alice.remember("tea")
    path, other = tmp_path / "alice.jsonl", tmp_path / "b.db"
    told: list[tuple[int, int]] = []

    assert export_file(alice, path, progress=lambda *step: told.append(step)).records == 1
    with AgentMemory(other, embeddings=None) as second:
        assert import_file(second.scope(user_id="alice"), path).stored == 1
        assert second.scope(user_id="alice").get(item.id) == item
    moved = migrate(str(tmp_path / "a.db"), str(tmp_path / "c.db"))

    assert (moved.copied, bool(moved)) == (1, True)
    assert told


def test_a_callback_may_not_block_in_a_function_either(memory: AgentMemory, tmp_path: Path) -> None:
    alice = memory.scope(user_id="alice")
    alice.remember("tea")

    with pytest.raises(TransferError, match="would wait for itself"):
        export_file(alice, tmp_path / "out.jsonl", progress=lambda *_: print(alice.stats()))


def test_facts_are_proposed_from_blocking_objects(memory: AgentMemory) -> None:
    alice = memory.scope(user_id="alice")
    known = LongTermMemory(alice, _City())

    (draft,) = known.extract(alice.chat("c").add("I moved to Porto"))
    known.accept(draft.id)

    assert type(known.facts) is sync.Facts
    fact = alice.facts.get("home")
    assert fact is not None
    assert fact.value == "Porto"


def test_conversations_are_worked_off_in_the_background_or_at_once(memory: AgentMemory) -> None:
    alice = memory.scope(user_id="alice")
    chat = alice.chat("c")
    chat.add("I moved to Porto")
    jobs = MemoryOrchestrator(memory, _City())

    assert jobs.enqueue(chat) == 1
    jobs.run()
    with MemoryOrchestrator(alice, _City()) as other:
        assert other.report().done == 1

    assert [fact.key for fact in alice.facts.drafts()] == ["home"]


def test_each_form_says_which_one_takes_what_it_was_given(
    memory: AgentMemory, tmp_path: Path
) -> None:
    alice = memory.scope(user_id="alice")
    path = tmp_path / "alice.jsonl"
    is_blocking = "a blocking `ScopedMemory` was given to something async; `orbiter.memory.sync`"

    with pytest.raises(UnsupportedError, match=is_blocking):
        asyncio.run(transfer.export_file(alice, path))  # type: ignore[arg-type]  # the mistake
    with pytest.raises(UnsupportedError, match=is_blocking):
        asyncio.run(transfer.import_file(alice, path))  # type: ignore[arg-type]
    with pytest.raises(QueryError, match=r"not sync\.AgentMemory\("):
        extraction.MemoryOrchestrator(memory, _City())  # type: ignore[arg-type]
    with pytest.raises(QueryError, match=r"not sync\.ScopedMemory\("):
        extraction.LongTermMemory(alice, _City())  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match="an async `ScopedMemory` was given"):
        export_file(alice._other(), path)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match="an async `ScopedMemory` was given"):
        LongTermMemory(alice._other(), _City())  # type: ignore[arg-type]
    assert not hasattr(alice, "_core")
    assert not path.exists()
