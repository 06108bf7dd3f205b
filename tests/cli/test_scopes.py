"""Whose memories a command is about."""

import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from tests.cli.conftest import Cli
from tests.cli.terminal import environment, in_terminal
from tests.cli.test_docs import walk
from tests.cli.test_serve_keys import serve

from orbiter.memory import sync
from orbiter.memory.cli._root import app


def test_a_user_sees_only_their_own(cli: Cli) -> None:
    own = cli.remember("alice's plan")
    other = cli.remember("bob's plan", "--user", "bob")

    assert [hit["item"]["id"] for hit in cli.json("recall", "plan")["hits"]] == [own]
    for command in ("show", "forget", "restore"):
        assert cli(command, other).exit_code == 3, command
    assert cli("edit", other, "mine now").exit_code == 3
    assert cli.json("show", other, "--user", "bob")["content"] == "bob's plan"


def test_all_sees_everyones(cli: Cli) -> None:
    cli.remember("alice's plan")
    other = cli.remember("bob's plan", "--user", "bob")

    assert len(cli.json("list", "--all")["items"]) == 2
    assert len(cli.json("recall", "plan", "--all")["hits"]) == 2
    assert cli.json("show", other, "--all")["metadata"]["user_id"] == "bob"


def test_all_and_a_scope_exclude_each_other(cli: Cli) -> None:
    cli.remember("bob's plan", "--user", "bob")

    result = cli("forget", "--everything", "--yes", "--all", "--user", "bob")

    assert result.exit_code == 2
    assert "`--all` and `--user`" in result.stderr
    assert len(cli.json("list", "--all")["items"]) == 1


def test_nobody_named_is_an_error_that_says_how_to_name_somebody(cli: Cli) -> None:
    for args in (["list"], ["recall", "x"], ["remember", "x"], ["forget", "--everything"]):
        result = cli(*args, "--no-user")

        assert result.exit_code == 2
        assert "`--user`" in result.stderr
        assert "`--all`" in result.stderr


def test_session_task_and_agent_narrow_what_the_user_has(cli: Cli) -> None:
    cli.remember("wide")
    cli.remember("narrow", "--session", "s1", "--task", "t1", "--agent", "a1")

    for option, value in (("--session", "s1"), ("--task", "t1"), ("--agent", "a1")):
        items = cli.json("list", option, value)["items"]
        assert [item["content"] for item in items] == ["narrow"]
    assert len(cli.json("list")["items"]) == 2
    assert cli.json("list", "--session", "s1", "--user", "bob")["items"] == []


@pytest.fixture
def nobody(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Return a command line that is told no user, on the computer of morgan."""

    class Nobody(Cli):
        def __call__(self, *args: str, **more: Any) -> Result:
            with monkeypatch.context() as patch:
                patch.setenv("LOGNAME", "morgan")
                return super().__call__(*args, **more, env={"ORBITER_MEMORY_USER": None})  # type: ignore[dict-item]  # which unsets it

    return Nobody(cli.url, cli.env)


def test_python_and_the_command_line_mean_the_same_user_by_default(nobody: Cli) -> None:
    with sync.AgentMemory(nobody.url, embeddings=None) as memory:
        memory.default_user.remember("I like green tea")
    nobody.remember("I like rum")
    with sync.AgentMemory(nobody.url, embeddings=None) as memory:
        items = memory.default_user.list()

    assert {item.content for item in items} == {"I like green tea", "I like rum"}
    assert [each["content"] for each in nobody.json("list")["items"]] == [
        "I like rum",
        "I like green tea",
    ]
    assert "green tea" in nobody.ok("recall", "green tea")
    assert "green tea" in nobody.ok("context", "Do I like green tea?")
    assert nobody.json("show", items[0].id, "--history")[0]["by"] != "morgan"  # whose own it is


def test_a_store_of_the_computers_user_keeps_to_that_name(nobody: Cli) -> None:
    with sync.AgentMemory(nobody.url, embeddings=None) as memory:
        memory.scope("morgan").remember("stored by an earlier version")

    nobody.remember("stored by this one")
    nobody.ok("forget", nobody.remember("a mistake"), "--yes")

    assert len(nobody.json("list")["items"]) == 2
    assert len(nobody.json("list", "--user", "morgan")["items"]) == 2
    assert nobody.json("stats")["scope"] == {"user_id": "morgan"}


def test_where_a_scope_is_empty_it_says_whose_memories_there_are(
    nobody: Cli, tmp_path: Path
) -> None:
    nobody.remember("a secret of zoe", "--user", "zoe")

    for args in (
        ("list",),
        ("recall", "secret"),
        ("context", "What is secret?"),
        ("stats", "--group-by", "tags"),
        ("forget", "--query", "secret", "--yes"),
    ):
        told = nobody(*args)
        assert told.exit_code == 0
        assert "there are some of `zoe`: `--user NAME`" in told.stderr, args
        assert "a secret" not in told.stdout + told.stderr


def test_the_key_of_one_user_never_learns_of_others(nobody: Cli) -> None:
    nobody.remember("a secret of zoe", "--user", "zoe")
    key = nobody.json("keys", "create", "--user", "eve")["key"]
    with serve(nobody) as (told, _):
        eve = Cli(str(told["url"]), {"ORBITER_MEMORY_TOKEN": key})
        for args in (("list",), ("recall", "secret")):
            result = eve(*args, env={"ORBITER_MEMORY_USER": None})  # type: ignore[dict-item]

            assert result.exit_code == 0
            assert "zoe" not in result.output


def scoped_commands() -> list[list[str]]:
    """Return the words of every command that takes the name of a scope, with its arguments."""
    found: list[list[str]] = []
    for path, each in walk(app, ()):
        # `hook` never fails, and has a test of its own.
        if path != ("hook",) and any("--session" in param.opts for param in each.params):
            needed = [p for p in each.params if p.param_type_name == "argument" and p.required]
            found.append([*path, *("codex" if path == ("install",) else "x" for _ in needed)])
    return found


@pytest.mark.parametrize("scope", ["user", "session", "task", "agent"])
def test_no_command_takes_an_empty_name_for_none(cli: Cli, scope: str) -> None:
    cli.remember("alice's plan")
    commands = scoped_commands()

    for words in commands:
        result = cli(*words, f"--{scope}", "")

        assert result.exit_code == 2, words
        assert f"`--{scope}` is empty" in result.stderr, words
    assert len(commands) > 20
    assert len(cli.json("list", "--all")["items"]) == 1


@pytest.mark.parametrize("scope", ["user", "session", "task", "agent"])
def test_no_command_takes_an_empty_variable_for_none(cli: Cli, scope: str) -> None:
    cli.remember("alice's plan")
    variable = f"ORBITER_MEMORY_{scope.upper()}"

    for words in scoped_commands():
        if words == ["keys", "create"]:  # which does not ask the environment
            continue
        result = cli(*words, env={variable: ""})

        assert result.exit_code == 2, words
        assert f"`{variable}` is empty" in result.stderr, words


def test_a_scope_may_name_no_user(cli: Cli) -> None:
    mine = cli.remember("mine", "--session", "s1")
    other = cli.remember("bob's", "--user", "bob", "--session", "s1")

    found = cli.json("list", "--session", "s1", "--no-user")["items"]
    both = cli("list", "--no-user", "--user", "bob")
    nobody = cli("list", "--no-user")

    assert {item["id"] for item in found} == {mine, other}
    assert both.exit_code == nobody.exit_code == 2
    assert "`--no-user` and `--user`" in both.stderr
    assert "no scope is given" in nobody.stderr


@pytest.mark.parametrize("role", ["read", "write", "admin"])
@pytest.mark.parametrize("scope", ["user", "session", "task", "agent"])
def test_no_key_is_made_for_an_empty_name(cli: Cli, scope: str, role: str) -> None:
    others = ["--user", "ann"] if scope != "user" else ["--agent", "a"]
    for named in (others, []):
        result = cli("keys", "create", "--role", role, *named, f"--{scope}", "")

        assert result.exit_code == 2
        assert f"`--{scope}` is empty" in result.stderr
    assert cli.json("keys", "list") == []


def test_users_are_listed_and_values_counted(cli: Cli) -> None:
    cli.ok("remember", "tea", "--tag", "food", "--tag", "hot")
    cli.ok("remember", "jam", "--tag", "food")
    cli.ok("remember", "hers", "--tag", "secret", "--user", "bob")

    rows = [line.split("\t") for line in cli.ok("users").splitlines()]
    first = cli.json("users", "--order", "items", "--limit", "1")
    second = cli.json("users", "--order", "items", "--limit", "1", "--cursor", first["next"])

    assert [row[:3] for row in rows] == [["alice", "2", "0"], ["bob", "1", "0"]]
    assert [user["user_id"] for user in first["users"]] == ["alice"]
    assert [user["user_id"] for user in second["users"]] == ["bob"]
    assert second["users"][0]["is_default"] is False
    assert cli.ok("stats", "--group-by", "tags") == "2\tfood\n1\thot\n"
    assert cli.json("stats", "--group-by", "tags", "--limit", "1") == [
        {"value": "food", "items": 2}
    ]
    assert cli.ok("stats", "--group-by", "nothing") == ""
    assert cli("users", "--order", "size").exit_code == 2
    assert cli("stats", "--group-by", "content").exit_code != 0


@pytest.mark.skipif(sys.platform == "win32", reason="terminals of POSIX")
def test_a_session_without_messages_is_not_called_a_chat(cli: Cli) -> None:
    cli.remember("likes tea", "--session", "s1")

    assert cli.ok("chat") == ""
    assert cli.ok("users").split("\t")[:3] == ["alice", "1", "1"]


def test_users_with_entries_alone_are_listed(cli: Cli) -> None:
    cli.put_entries("cleo", 2)

    [row] = [line.split("\t") for line in cli.ok("users").splitlines()]

    assert [row[0], row[1], row[-1]] == ["cleo", "0", "2"]
    assert cli.json("users")["users"][0]["entries"] == 2


def test_a_list_of_everyone_says_whose_each_memory_is(cli: Cli) -> None:
    cli.remember("tea")
    cli.remember("coffee", "--user", "bob")
    env = environment(cli.url, {})

    everyone = in_terminal(["list", "--all"], env).stdout
    own = in_terminal(["list"], env).stdout

    assert "user bob" in everyone
    assert "user alice" in everyone
    assert "user alice" not in own


# Nothing is there


def test_a_misspelt_user_is_told_the_nearest(cli: Cli, tmp_path: Path) -> None:
    cli.remember("tea")

    for args in (
        ["list"],
        ["facts", "list"],
        ["chat"],
        ["recall", "tea"],
        ["stats"],
        ["export", str(tmp_path / "a.jsonl")],
        ["export", str(tmp_path / "a.csv")],
    ):
        wrong = cli(*args, "--user", "alcie")
        assert wrong.exit_code == 0, wrong.stderr
        assert "no memories of user `alcie`; did you mean `alice`?" in wrong.stderr, args
    assert "did you mean" not in cli("list", "--query", "zzz").stderr


# Words


def test_a_question_and_a_new_text_need_no_quotes(cli: Cli) -> None:
    made = cli.remember("Mia lives in Oslo")

    (hit,) = cli.json("recall", "where", "does", "Mia", "live?")["hits"]
    cli.ok("edit", made, "Mia", "lives", "in", "Bergen", "--tag", "city")

    assert hit["item"]["id"] == made
    changed = cli.json("show", made)
    assert (changed["content"], changed["version"]) == ("Mia lives in Bergen", 2)
    for args in (["recall", "-", "tea"], ["edit", made, "-", "tea"]):
        mixed = cli(*args, stdin="more")
        assert mixed.exit_code == 2
        assert "`-` reads stdin, and takes no words beside it" in mixed.stderr


def test_a_recall_of_everyones_says_whose_each_hit_is(cli: Cli) -> None:
    cli.remember("green tea")
    cli.remember("black tea", "--user", "bob")
    env = environment(cli.url, {})

    everyone = in_terminal(["recall", "tea", "--all"], env).stdout
    rows = [line.split("\t") for line in cli.ok("recall", "tea", "--all").splitlines()]

    assert "user bob" in everyone
    assert "user alice" in everyone
    assert "user alice" not in in_terminal(["recall", "tea"], env).stdout
    assert {row[-1] for row in rows} == {"user alice", "user bob"}
    assert len(cli.ok("recall", "tea").splitlines()[0].split("\t")) == len(rows[0]) - 1
