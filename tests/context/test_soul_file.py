import os
import re
import traceback
from pathlib import Path

import pytest
from tests.rows import each_row

from orbiter.memory import AgentMemory, sync
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
    with pytest.raises(SoulNotFoundError, match="no persona at"):
        await manager.assemble("Go")
    soul.mkdir()
    with pytest.raises(StorageError, match="cannot be read"):
        await manager.assemble("Go")


TEXTS = (
    "You are Nova, a kind cook.",
    "You are Ada.\n" * 500,
    "You are Ada.\nYou keep to rules.md",
    "You read README.md",
    "You read many files. " * 500 + "README.md",
    "---\nname: Nova\n---\nKind.",
    "Be kind / be brief",
)
PATHS = ("SOUL.md", "my soul.md", "./my soul", "a folder/my soul.TXT")


@each_row("text", TEXTS)
async def test_a_text_with_spaces_is_the_persona_itself(text: str) -> None:
    said = Soul.parse(text).render()

    async with AgentMemory("memory://", embeddings=None, persona=text) as memory:
        context = await memory.scope("ann").chat("c").context("Go")

    assert context.sections[0].text == said
    assert (await ContextManager(text).assemble("Go")).sections[0].text == said


@pytest.mark.parametrize("path", PATHS)
async def test_a_path_may_have_spaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(path).parent.mkdir(exist_ok=True)
    Path(path).write_text("You are Nova.")

    async with AgentMemory("memory://", embeddings=None, persona=path) as memory:
        context = await memory.scope("ann").chat("c").context("Go")

    assert context.sections[0].text == "You are Nova."


async def test_a_persona_is_read_again_by_a_memory_that_has_checked_it(soul: Path) -> None:
    async with AgentMemory("memory://", embeddings=None, persona=soul) as memory:
        soul.write_text("You are Eve.")
        context = await memory.scope("ann").chat("c").context("Go")

    assert context.sections[0].text == "You are Eve."


@pytest.mark.parametrize("make", [AgentMemory, sync.AgentMemory])
@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        *(
            (path, f"no persona at `{path.removeprefix('./')}`")
            for path in ("SOUL.md", "./my soul")
        ),
        ("Nova", "no persona at `Nova`"),
        ("いつも親切です。" * 60, "no persona at `いつも親切です。.*…`"),
        ("~nobody-of-that-name/soul", "no persona at `~nobody-of-that-name/soul`"),
        (Path("Be kind"), "no persona at `Be kind`"),
        (".", r"the persona `\.` cannot be read"),
        ("", "`persona`, line 1: it is empty; write who the agent is"),
        (" \n", "`persona`, line 1: it is empty; write who the agent is"),
        ("---\nname: No", "`persona`, line 1: .*not closed"),
        ("a\0b", "`persona` cannot be sent: U.0000"),
        ("a \0b", "`persona`, line 1: U.0000"),
        (Path("\ud800"), "`persona` cannot be sent: lone surrogate"),
        (Soul(body="\ud800"), "`persona` cannot be sent: lone surrogate"),
        (7, "`persona` must be a persona: .* Markdown file, or a text; .*, not 7"),
        (b"You are Nova.", r"`persona` must be .*, not b'You are Nova\.'"),
        ({"name": "Nova"}, "`persona` must be .*, not {'name': 'Nova'}"),
        (["You are Nova."] * 99, r"`persona` must be .*, not \['You are Nova\.'.*…"),
        (Soul, "`persona` must be .*, not <class"),
    ],
)
def test_what_is_no_persona_is_refused_at_once_in_a_few_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: type, wrong: object, told: str
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises((QueryError, SoulError, SoulNotFoundError, StorageError)) as refused:
        make("memory://", persona=wrong)

    assert re.match(told, str(refused.value))
    assert len(str(refused.value)) < 250
    if "line" not in told and "sent" not in told:
        assert "give the path of a Markdown file, or a text;" in str(refused.value)
    shown = [line for line in traceback.format_exception(refused.value) if "^^^" not in line]
    assert len("".join(shown).splitlines()) <= 20


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
