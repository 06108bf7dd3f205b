import os
from pathlib import Path

import pytest

from orbiter.memory import AgentMemory
from orbiter.memory.context import ContextManager
from orbiter.memory.context.persona import Soul
from orbiter.memory.errors import QueryError, SoulError, SoulNotFoundError, StorageError


async def test_nothing_is_read_before_the_first_assembly(tmp_path: Path) -> None:
    manager = ContextManager(tmp_path / "SOUL.md")

    with pytest.raises(FileNotFoundError, match="no persona at"):
        await manager.assemble("Go")
    (tmp_path / "SOUL.md").write_text("I am here.")

    assert (await manager.assemble("Go")).text.startswith("I am here.")


@pytest.mark.parametrize("age", [0, 3600])
async def test_the_persona_is_read_again_when_the_file_changes(soul: Path, age: int) -> None:
    manager = ContextManager(soul)
    seen = []
    for text in ("one", "two", "three"):  # two of the same length, within a tick of the clock
        soul.write_text(text)
        os.utime(soul, (soul.stat().st_atime, soul.stat().st_mtime - age))
        seen += [(await manager.assemble("Go")).sections[0].text for _ in range(2)]

    assert seen == ["one", "one", "two", "two", "three", "three"]


async def test_an_unchanged_file_is_read_once(soul: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.utime(soul, (1_700_000_000, 1_700_000_000))
    manager = ContextManager(soul)
    reads: list[Path] = []
    read = Path.read_bytes

    def counted(path: Path) -> bytes:
        reads.append(path)
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", counted)

    for _ in range(3):
        await manager.assemble("Go")

    assert len(reads) == 1


async def test_a_vanished_half_written_or_unreadable_file_is_an_error(soul: Path) -> None:
    manager = ContextManager(soul)
    await manager.assemble("Go")

    soul.write_text("---\nname: No")
    with pytest.raises(SoulError, match="not closed"):
        await manager.assemble("Go")
    soul.unlink()
    with pytest.raises(SoulNotFoundError, match="soul_path"):
        await manager.assemble("Go")
    soul.mkdir()
    with pytest.raises(StorageError, match="cannot be read"):
        await manager.assemble("Go")


@pytest.mark.parametrize("text", ["You are a terse assistant.", "You are Ada.\n" * 500])
async def test_a_persona_given_as_a_text_is_told_how(text: str) -> None:
    memory = AgentMemory("memory://", embeddings=None, persona=text)
    async with memory:
        with pytest.raises(SoulNotFoundError, match=r"(?s)You are .*Soul\.parse\(text\)"):
            await memory.scope("ann").chat("c").context("Go", budget=500)


async def test_a_change_that_the_file_system_cannot_tell_is_seen(soul: Path) -> None:
    manager = ContextManager(soul)
    soul.write_text("You are Ada.")
    moment = soul.stat().st_mtime_ns
    first = await manager.assemble_context("Do it")

    soul.write_text("You are Eve.")  # as long, and within one tick of a coarse clock
    os.utime(soul, ns=(moment, moment))

    assert "Ada" in first
    assert "Eve" in await manager.assemble_context("Do it")


async def test_an_agent_may_have_no_persona(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    manager = ContextManager(None)

    context = await manager.assemble("Go", summary="They met.")

    assert manager.soul_path is None
    assert list(context.parts) == ["summary", "task"]
    assert context.text.startswith(context.marks[0])
    assert context.prefix.startswith(context.marks[0])
    assert [message["role"] for message in context.messages().messages] == ["user"]
    assert not context.messages("anthropic").system
    with pytest.raises(FileNotFoundError):
        await ContextManager().assemble("Go")


async def test_a_budget_too_small_without_a_persona_does_not_speak_of_one() -> None:
    with pytest.raises(QueryError, match=r"^the task \(1 tokens\) .* or shorten the task$"):
        await ContextManager(None, budget=5).assemble("Go")


async def test_a_persona_may_be_given_itself() -> None:
    persona = Soul(name="Ada", body="You count.")

    context = await ContextManager(persona).assemble("Go")

    assert context.sections[0].text == "You are Ada.\n\nYou count."
    assert list((await ContextManager(Soul()).assemble("Go")).parts) == ["task"]


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_a_persona_that_cannot_be_sent_is_refused(text: str) -> None:
    with pytest.raises(QueryError, match="`soul_path` cannot be sent"):
        ContextManager(Soul(body=text))
