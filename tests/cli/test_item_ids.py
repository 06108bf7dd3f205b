"""Ids by a part of them or by the row of the last list, and what a shell completes."""

import asyncio
import socket
from collections.abc import Coroutine
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.cli.conftest import Cli
from tests.cli.terminal import environment, in_pipe
from typer import completion

from orbiter.memory import AgentMemory, MemoryItem, MemoryMetadata
from orbiter.memory.cli import _completion


def _store(cli: Cli, **ids: str) -> None:
    """Store memories of alice by these ids."""

    async def add() -> None:
        async with AgentMemory(cli.url, embeddings=None) as memory:
            for item_id, text in ids.items():
                about = MemoryMetadata(user_id="alice")
                await memory.store.add(MemoryItem(id=item_id, content=text, metadata=about))

    asyncio.run(add())


ONE = "01a1dfc25f54700087932c115e9b1259"
TWO = "01a1dfc25f54700187932c115e9bffff"


@pytest.fixture
def two(cli: Cli) -> Cli:
    _store(cli, **{ONE: "likes green tea", TWO: "lives in Lisbon"})
    return cli


def test_a_memory_is_shown_by_the_beginning_or_the_end_of_its_id(two: Cli) -> None:
    assert two.json("show", "01a1dfc25f547000")["id"] == ONE
    assert two.json("show", "1259")["id"] == ONE
    assert two.json("show", "ffff")["id"] == TWO


def test_every_command_that_takes_an_id_takes_a_part_of_it(two: Cli) -> None:
    two.ok("edit", "1259", "likes black tea")
    assert two.json("history", "1259")[-1]["item"]["content"] == "likes black tea"
    assert two.json("forget", "1259", "ffff")["items"][0]["id"] == ONE
    assert two.json("history", "1259")[-1]["change"] == "deleted"
    two.ok("restore", "1259")
    assert [each["id"] for each in two.json("list")["items"]] == [ONE]
    assert two.json("list", "--cursor", "1259")["items"] == []

    two.ok("facts", "put", "city", "Lisbon")
    fact = two.json("facts")[0]["id"]
    two.ok("facts", "retract", fact[-8:])
    assert two.json("facts") == []


def test_an_ambiguous_part_lists_the_candidates_and_changes_nothing(two: Cli) -> None:
    result = two("forget", "01a1dfc2")

    assert result.exit_code == 2
    assert "`01a1dfc2` is ambiguous" in result.stderr
    assert f"{ONE}  likes green tea" in result.stderr
    assert f"{TWO}  lives in Lisbon" in result.stderr
    assert len(two.json("list")["items"]) == 2


def test_a_part_of_less_than_four_characters_means_nothing(two: Cli) -> None:
    _store(two, **{"12": "a whole id"})

    refused = two("show", "fff")  # the end of one

    assert refused.exit_code == 3
    assert "give four or more characters of its id" in refused.stderr
    assert two.json("show", "12")["content"] == "a whole id"


def test_the_beginning_of_an_imported_id_needs_no_mark(cli: Cli) -> None:
    _store(cli, **{f"~75d3{ONE[4:]}": "likes tea", f"~6b0c{TWO[4:]}": "runs", "6b0cfe": "rows"})

    assert cli.json("show", "75d3")["id"] == cli.json("show", "~75d")["id"] == f"~75d3{ONE[4:]}"
    assert cli.json("show", f"75d3{ONE[4:]}")["content"] == "likes tea"
    cli.ok("edit", "75d3", "likes black tea")
    cli.ok("forget", "75d3")
    assert cli.json("history", "75d3")[-1]["change"] == "deleted"
    assert cli.json("history", f"75d3{ONE[4:]}")[-1]["change"] == "deleted"
    cli.ok("restore", "75d3")
    assert cli.json("show", "75d3")["content"] == "likes black tea"
    refused = cli("forget", "6b0c")
    assert refused.exit_code == 2
    assert "`6b0c` is ambiguous" in refused.stderr
    assert cli("show", "75d3", "--user", "bob").exit_code == 3


def test_an_id_that_is_the_beginning_of_another_means_itself(cli: Cli) -> None:
    _store(cli, note="the short one", note2="the long one")

    assert cli.json("show", "note")["content"] == "the short one"


def test_a_part_never_means_a_memory_of_another_user(two: Cli) -> None:
    for part in ("01a1dfc25f547000", "1259"):
        for command in ("show", "forget", "history", "restore"):
            result = two(command, part, "--user", "bob")
            assert result.exit_code == 3, result.output
            assert ONE not in result.output
    assert two.json("show", "1259", "--all")["id"] == ONE


# Completion


def _completed(cli: Cli, line: str, **more: str) -> list[str]:
    """Return what a shell is offered, in this process, which is set up as `run` does it."""
    completion.completion_init()  # type: ignore[attr-defined]  # it is there since 0.4
    ended = cli(env=_asked(line, **more))
    assert ended.stderr == ""
    return ended.stdout.split()


def _asked(line: str, **more: str) -> dict[str, str]:
    """Return the variables by which a shell asks what may stand at the end of *line*."""
    return {
        "_ORBITER_MEMORY_COMPLETE": "complete_bash",
        "COMP_WORDS": f"orbiter-memory {line}",
        "COMP_CWORD": str(len(line.split(" "))),
        **more,
    }


def test_a_shell_completes_what_is_behind_the_first_page(
    two: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.remember("an older user's", "--user", "zoe")
    two.remember("the newest")
    for name in ("_MAX_IDS", "_MAX_NAMES"):
        monkeypatch.setattr(_completion, name, 1)

    assert _completed(two, f"show {ONE[:16]}") == [ONE]
    assert _completed(two, "list --user z") == ["zoe"]


def test_a_shell_completes_ids_of_the_scope_only(two: Cli) -> None:
    for line, offered in (("show 01a1dfc25f547000", ONE), ("list --user al", "alice")):
        program = in_pipe([], environment(two.url, _asked(line)))
        assert (program.stdout.split(), program.stderr) == ([offered], "")
    assert _completed(two, "show 01a1dfc25f547000") == [ONE]
    assert _completed(two, "show ") == [TWO, ONE]
    assert _completed(two, "show --user bob ") == []
    assert _completed(two, "forget 01a1dfc25f547001") == [TWO]
    two.ok("forget", ONE)
    assert _completed(two, "restore ") == [ONE]


def test_a_shell_completes_tags_fields_and_ids_without_their_mark(two: Cli) -> None:
    two.remember("Backups run at 3 am", "--tag", "ops", "--extra", '{"topic": "backup"}')
    two.remember("another's", "--user", "bob", "--tag", "orders")
    two.ok("import", "-", stdin="note,when\nimported,2024-01-01\n")
    [imported] = [each["id"] for each in two.json("list")["items"] if each["id"][0] == "~"]

    assert _completed(two, "list --tag o") == ["ops"]
    assert _completed(two, "remember x --tag ") == ["ops"]
    assert _completed(two, "count to") == ["topic"]
    assert _completed(two, "count user") == ["user_id"]
    assert _completed(two, f"show {imported[1:8]}") == [imported[1:]]
    assert two.json("show", imported[1:])["id"] == imported


def test_a_shell_completes_users_agents_and_chats(two: Cli) -> None:
    two.remember("shared", "--user", "bob", "--agent", "planner")

    async def talk() -> None:
        async with AgentMemory(two.url, embeddings=None) as memory:
            await memory.scope(user_id="alice").chat("trip").add("hello")
            await memory.scope(user_id="bob").chat("secret").add("hello")

    asyncio.run(talk())

    assert sorted(_completed(two, "list --user ")) == ["alice", "bob"]
    assert _completed(two, "list --user b") == ["bob"]
    assert _completed(two, "list --agent ") == ["planner"]
    assert _completed(two, "list --user bob --agent ") == ["planner"]
    assert _completed(two, "list --user alice --agent ") == []
    assert sorted(_completed(two, "list --session ")) == ["secret", "trip"]
    assert _completed(two, "list --user bob --session ") == ["secret"]
    assert _completed(two, "chat show ") == ["trip"]
    assert _completed(two, "context --user bob ") == ["secret"]


def test_a_shell_completes_everyone_and_not_the_newest_only(cli: Cli) -> None:
    async def fill() -> None:
        async with AgentMemory(cli.url, embeddings=None) as memory:
            await memory.scope("zoe", agent_id="old").remember("the first")
            await memory.scope("ann").remember_many([f"note {n}" for n in range(600)])

    asyncio.run(fill())

    assert _completed(cli, "list --user z") == ["zoe"]
    assert _completed(cli, "list --user ") == ["ann", "zoe"]
    assert _completed(cli, "list --agent o") == ["old"]


def test_a_shell_completes_the_programs_to_set_up(cli: Cli) -> None:
    assert _completed(cli, "install cl") == ["claude-code", "claude-desktop", "cline"]


def test_a_shell_completes_open_keys(cli: Cli) -> None:
    one, two = (cli.json("keys", "create", "--user", "ann") for _ in range(2))
    cli.ok("keys", "revoke", two["id"])

    assert _completed(cli, "keys revoke ") == [one["id"]]
    assert _completed(cli, f"keys rotate {one['id'][:3]}") == [one["id"]]
    assert _completed(cli, "keys revoke zz") == []


@pytest.mark.parametrize("scheme", ["postgresql", "redis", "http"])
def test_completion_waits_a_second_for_a_server_that_says_nothing(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    waits: list[float] = []

    def wait_for(work: Coroutine[object, object, object], timeout: float) -> object:
        waits.append(timeout)
        return asyncio.wait_for(work, timeout)

    own = SimpleNamespace(run=asyncio.run, wait_for=wait_for)
    monkeypatch.setattr(_completion, "asyncio", own)
    lines = ("show ", "list --user ", "list --tag ", "count ", "chat show ", "keys revoke ")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"{scheme}://127.0.0.1:{silent.getsockname()[1]}"
        for line in lines:
            assert _completed(cli, line, ORBITER_MEMORY_URL=url) == []
    assert waits == [1.0] * len(lines)


def test_completion_is_silent_without_a_store_and_makes_none(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_completion, "_WITHIN_AWAY", 0.5)

    assert _completed(cli, "show ") == []
    assert _completed(cli, "list --user ", ORBITER_MEMORY_URL="postgresql://127.0.0.1:1/x") == []
    assert not Path(cli.url).exists()
