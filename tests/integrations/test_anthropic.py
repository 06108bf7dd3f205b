"""Claude's memory tool: every string as Claude knows it, and files that are memories."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.integrations.sdists import run_sdist_tests, unpacked_sdist

pytest.importorskip("anthropic")

from anthropic import Anthropic, DefaultHttpxClient
from anthropic.lib.tools import ToolError
from anthropic.tools.memory import BetaLocalFilesystemMemoryTool

from orbiter.memory import AgentMemory, ScopedMemory, sync
from orbiter.memory.errors import UnsupportedError
from orbiter.memory.integrations.anthropic_memory import AsyncOrbiterMemoryTool, OrbiterMemoryTool

DISTRIBUTION = "anthropic"

_FILE = "tests/lib/tools/memory_tools/test_filesystem.py"
_OF_FILES = (
    "read_rejects_symlink_created_after_validation",
    "read_rejects_file_replaced_with_symlink_before_open",
    "view_rejects_directory_symlink_created_after_validation",
    "view_lists_symlinks_only_when_they_stay_inside_memories",
    "mkdir_parents_not_world_writable_under_permissive_umask",
    "symlink_validation_reject_symlink_pointing_outside_memories",
    "symlink_validation_reject_creating_files_through_symlink_pointing_outside",
    "symlink_validation_reject_parent_directory_that_is_symlink_pointing_outside",
    "validate_path_returns_resolved_path_not_symlink_target",
)
THEIR_INTERNALS = [
    # The modes and links of their folder.
    f"{_FILE}::TestBeta{kind}LocalFilesystemMemoryTool::test_{name}"
    for kind in ("", "Async")
    for name in _OF_FILES
]


@pytest.fixture
async def alice(tmp_path: Path) -> AsyncIterator[ScopedMemory]:
    async with AgentMemory(tmp_path / "memory.db", embeddings=None) as memory:
        yield memory.scope(user_id="alice")


async def _call(tool: AsyncOrbiterMemoryTool, command: str, path: str = "", **more: Any) -> str:
    given = {"path": f"/memories/{path}"} if path else {}
    return str(await tool.call({"command": command, **given, **more}))


def test_the_tests_of_the_sdk_pass(
    request: pytest.FixtureRequest, record_suite: Callable[[str, int, int], None]
) -> None:
    assert request.config.cache is not None
    folder = unpacked_sdist(DISTRIBUTION, request.config.cache)

    passed, total = run_sdist_tests(
        folder, ["--noconftest", _FILE], plugin="swapped_files", leave_out=THEIR_INTERNALS
    )

    record_suite("memory tool tests of its sdist", passed, total)
    assert passed == total
    assert total >= 70


async def test_twenty_inserts_at_once_are_all_kept(alice: ScopedMemory) -> None:
    tool = AsyncOrbiterMemoryTool(alice)
    await _call(tool, "create", "log.txt", file_text="begin\n")

    await asyncio.gather(
        *(
            _call(tool, "insert", "log.txt", insert_line=1, insert_text=f"entry {number}")
            for number in range(20)
        )
    )

    text = await _call(tool, "view", "log.txt")
    assert all(f"\tentry {number}\n" in text for number in range(20))


async def test_of_two_that_create_a_file_at_once_one_does(alice: ScopedMemory) -> None:
    tool = AsyncOrbiterMemoryTool(alice)

    done = await asyncio.gather(
        *(_call(tool, "create", "a.txt", file_text=f"{number}") for number in range(10)),
        return_exceptions=True,
    )

    refused = [str(each) for each in done if isinstance(each, ToolError)]
    assert refused == ["File /memories/a.txt already exists"] * 9
    assert len(await alice.list(memory_type="file")) == 1


async def test_users_have_files_of_their_own(alice: ScopedMemory, tmp_path: Path) -> None:
    await _call(AsyncOrbiterMemoryTool(alice), "create", "a.txt", file_text="of alice")
    async with AgentMemory(tmp_path / "memory.db", embeddings=None) as memory:
        bob = AsyncOrbiterMemoryTool(memory.scope(user_id="bob"))

        with pytest.raises(ToolError, match="does not exist"):
            await _call(bob, "view", "a.txt")
        assert await _call(bob, "create", "a.txt", file_text="of bob")


async def test_a_file_is_recalled_has_versions_and_can_be_restored(alice: ScopedMemory) -> None:
    tool = AsyncOrbiterMemoryTool(alice)
    await _call(tool, "create", "people/tom.md", file_text="Tom works at the harbour.\n")
    await _call(tool, "str_replace", "people/tom.md", old_str="harbour", new_str="airport")
    (hit,) = await alice.recall("Where does Tom work?")
    versions = await alice.history(hit.item.id)
    await alice.restore(hit.item.id, version=1)
    undone = await _call(tool, "view", "people/tom.md")
    await _call(tool, "delete", "people")
    gone = await alice.list(memory_type="file")
    await alice.restore(hit.item.id)

    assert hit.item.metadata.extra["path"] == "/memories/people/tom.md"
    assert [version.item.content for version in versions] == [
        "Tom works at the harbour.\n",
        "Tom works at the airport.\n",
    ]
    assert "\tTom works at the harbour." in undone
    assert list(gone) == []
    assert await _call(tool, "view", "people/tom.md") == undone


async def test_a_directory_shows_two_levels_with_sizes_and_is_renamed_as_a_whole(
    alice: ScopedMemory,
) -> None:
    tool = AsyncOrbiterMemoryTool(alice)
    for path, size in (("b/c/d/deep.txt", 10), ("b/two.txt", 2048), ("a.txt", 0), (".hid", 9)):
        await _call(tool, "create", path, file_text="x" * size)

    before = await tool.call({"command": "view", "path": "/memories"})
    await tool.call({"command": "rename", "old_path": "/memories/b", "new_path": "/memories/new/b"})
    after = await tool.call({"command": "view", "path": "/memories/new"})

    assert before == (
        "Here're the files and directories up to 2 levels deep in /memories, excluding hidden "
        "items:\n2.0K\t/memories\n0B\t/memories/a.txt\n2.0K\t/memories/b/\n10B\t/memories/b/c/\n"
        "2K\t/memories/b/two.txt"
    )
    assert after == (
        "Here're the files and directories up to 2 levels deep in /memories/new, excluding hidden "
        "items:\n2.0K\t/memories/new\n2.0K\t/memories/new/b/\n10B\t/memories/new/b/c/\n"
        "2K\t/memories/new/b/two.txt"
    )


@pytest.mark.parametrize(
    ("command", "given", "said"),
    [
        ("view", {"path": "/memoriesx"}, "Path must start with /memories"),
        ("view", {"path": "/memories/a/../../b"}, "would escape /memories"),
        ("create", {"path": "/memories/a.txt", "file_text": "\0"}, "cannot be stored"),
        ("insert", {"path": "/memories/d", "insert_line": 0, "insert_text": "x"}, "is not a file"),
        ("rename", {"old_path": "/memories/d", "new_path": "/memories/d/e"}, "does not exist"),
        ("create", {"path": "/memories/d", "file_text": "x"}, "already exists"),
        ("create", {"path": f"/memories/{'x' * 2000}", "file_text": "x"}, "too long"),
        ("create", {"path": "/memories/\ud800", "file_text": "x"}, "not valid Unicode"),
        ("view", {"path": "/memories/\ud800"}, "not valid Unicode"),
        ("create", {"path": "/memories/d/file.txt/e/f", "file_text": "x"}, "file.txt is a file"),
        (
            "rename",
            {"old_path": "/memories/other.txt", "new_path": "/memories/d/file.txt/e"},
            "file.txt is a file",
        ),
    ],
)
async def test_what_cannot_be_done_is_told_to_the_model(
    alice: ScopedMemory, command: str, given: dict[str, object], said: str
) -> None:
    tool = AsyncOrbiterMemoryTool(alice)
    await _call(tool, "create", "d/file.txt", file_text="x")
    await _call(tool, "create", "other.txt", file_text="x")

    with pytest.raises(ToolError, match=said):
        await tool.call({"command": command, **given})


async def test_the_lines_of_a_text_that_stands_often_are_those_of_the_sdk(
    alice: ScopedMemory, tmp_path: Path
) -> None:
    ours, theirs = AsyncOrbiterMemoryTool(alice), BetaLocalFilesystemMemoryTool(str(tmp_path))
    for number, (text, old) in enumerate([("aaa\n\naa", "aa"), ("a\nb\n", ""), ("\n\n\n", "\n")]):
        path = f"/memories/{number}.txt"
        create = {"command": "create", "path": path, "file_text": text}
        replace = {"command": "str_replace", "path": path, "old_str": old, "new_str": "x"}
        await ours.call(create)
        theirs.call(create)

        with pytest.raises(ToolError) as their_error:
            theirs.call(replace)
        with pytest.raises(ToolError) as our_error:
            await ours.call(replace)
        assert str(our_error.value) == str(their_error.value)


@pytest.mark.parametrize("old", ["a", "", "a" * 300_000], ids=["one", "none", "overlapping"])
async def test_of_a_text_that_stands_very_often_a_hundred_lines_are_named(
    alice: ScopedMemory, old: str
) -> None:
    tool = AsyncOrbiterMemoryTool(alice)
    await _call(tool, "create", "a.txt", file_text="a" * 600_000)

    with pytest.raises(ToolError, match=r"in lines: (1, ){100}…\. Please ensure it is unique"):
        await _call(tool, "str_replace", "a.txt", old_str=old, new_str="x")


async def test_a_line_that_is_inserted_while_a_file_is_emptied_is_kept(
    alice: ScopedMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = AsyncOrbiterMemoryTool(alice)
    await _call(tool, "create", "a.txt", file_text="x\n")
    (file,) = await alice.list(memory_type="file")
    read = ScopedMemory.list

    async def read_and_let_another_write(*args: Any, **kwargs: Any) -> Any:
        page = await read(*args, **kwargs)
        monkeypatch.undo()
        await alice.update(file.id, "x\nof another process\n")
        return page

    monkeypatch.setattr(ScopedMemory, "list", read_and_let_another_write)
    await _call(tool, "str_replace", "a.txt", old_str="x\n", new_str="")

    assert (await _call(tool, "view", "a.txt")).endswith("     1\tof another process\n     2\t")


async def test_a_file_may_become_empty_and_be_filled_again(alice: ScopedMemory) -> None:
    tool = AsyncOrbiterMemoryTool(alice)
    await _call(tool, "create", "a.txt", file_text="x")
    await _call(tool, "str_replace", "a.txt", old_str="x", new_str="")
    empty = await _call(tool, "view", "a.txt")
    await _call(tool, "insert", "a.txt", insert_line=0, insert_text="y\n\n")

    assert empty == "Here's the content of /memories/a.txt with line numbers:\n     1\t"
    assert (await _call(tool, "view", "a.txt")).endswith("     1\ty\n     2\t")


async def test_clearing_forgets_files_and_nothing_else(alice: ScopedMemory) -> None:
    await alice.remember("Alice likes tea.")
    tool = AsyncOrbiterMemoryTool(alice)
    await _call(tool, "create", "a.txt", file_text="x")

    assert await tool.clear_all_memory() == "All memory cleared"
    assert [item.content for item in await alice.list()] == ["Alice likes tea."]


def test_the_blocking_tool_says_what_it_is_and_works(tmp_path: Path) -> None:
    with sync.AgentMemory(tmp_path / "memory.db", embeddings=None) as memory:
        tool = OrbiterMemoryTool(memory.scope(user_id="alice"), cache_control={"type": "ephemeral"})
        tool.call({"command": "create", "path": "/memories/a.txt", "file_text": "hi"})

        assert tool.to_dict() == {
            "type": "memory_20250818",
            "name": "memory",
            "cache_control": {"type": "ephemeral"},
        }
        assert str(tool.call({"command": "view", "path": "/memories/a.txt"})).endswith("     1\thi")


def test_the_runner_of_the_sdk_calls_the_tool(tmp_path: Path) -> None:
    # The SDK has changed its HTTP library once.
    http: Any = import_module(DefaultHttpxClient.__mro__[1].__module__.partition(".")[0])
    command = {"command": "create", "path": "/memories/cat.md", "file_text": "The cat is Tom.\n"}
    script = [
        ("tool_use", {"type": "tool_use", "id": "t", "name": "memory", "input": command}),
        ("end_turn", {"type": "text", "text": "Noted."}),
    ]
    sent: list[dict[str, Any]] = []

    def answer(request: Any) -> Any:
        sent.append(json.loads(request.content))
        reason, block = script[len(sent) - 1]
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "usage": usage}
        return http.Response(200, json={**message, "stop_reason": reason, "content": [block]})

    with (
        sync.AgentMemory(tmp_path / "memory.db", embeddings=None) as memory,
        http.Client(transport=http.MockTransport(answer)) as transport,
    ):
        alice = memory.scope(user_id="alice")
        runner = Anthropic(api_key="k", http_client=transport).beta.messages.tool_runner(
            model="claude",
            max_tokens=100,
            messages=[{"role": "user", "content": "My cat is called Tom."}],
            tools=[OrbiterMemoryTool(alice)],
        )
        runner.until_done()
        files = [file.content for file in alice.list(memory_type="file")]

    assert sent[0]["tools"] == [{"type": "memory_20250818", "name": "memory"}]
    assert sent[1]["messages"][-1]["content"] == [
        {
            "type": "tool_result",
            "tool_use_id": "t",
            "content": "File created successfully at: /memories/cat.md",
        }
    ]
    assert files == ["The cat is Tom.\n"]


async def test_the_blocking_tool_in_the_loop_of_its_memory_says_what_to_use(
    alice: ScopedMemory,
) -> None:
    told = r"use `AsyncOrbiterMemoryTool`, .*orbiter\.memory\.sync"
    with pytest.raises(UnsupportedError, match=told):
        OrbiterMemoryTool(alice).call({"command": "view", "path": "/memories"})
