"""Whose memories a command is about."""

import asyncio
import getpass
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.cli.conftest import Cli
from tests.cli.terminal import environment, in_terminal
from tests.cli.test_docs import walk
from tests.cli.test_serve_keys import serve
from typer.testing import Result

from orbiter.memory import AgentMemory, sync
from orbiter.memory.cli._root import app


def test_a_user_sees_only_their_own(cli: Cli) -> None:
    own = cli.remember("alice's plan")
    other = cli.remember("bob's plan", "--user", "bob")

    assert [hit["item"]["id"] for hit in cli.json("recall", "plan")["hits"]] == [own]
    for command in ("show", "history", "forget", "restore"):
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


def test_without_a_name_it_is_the_computers_user(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.env["LOGNAME"] = "morgan"
    monkeypatch.delenv("ORBITER_MEMORY_USER", raising=False)

    result = cli("config", "--json", env={"ORBITER_MEMORY_USER": ""})
    named = cli.json("config")

    assert named["user"] == {"value": "alice", "from": "ORBITER_MEMORY_USER"}
    assert '"user": {\n    "value": null' in result.stdout
    assert getpass.getuser()


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
    assert nobody.json("config")["user"] == {"value": "~default", "from": "the default user"}
    assert nobody.json("history", items[0].id)[0]["by"] != "morgan"  # whose own it is


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
        ("count", "tags"),
        ("kv",),
        ("duplicates",),
        ("forget", "--query", "secret", "--yes"),
    ):
        told = nobody(*args)
        assert told.exit_code == 0
        assert "there are some of `zoe`: `--user NAME`" in told.stderr, args
        assert "a secret" not in told.stdout + told.stderr


def test_a_part_of_a_user_without_memories_says_so(nobody: Cli) -> None:
    nobody.remember("a secret of zoe", "--user", "zoe")

    for args in (("list",), ("recall", "secret"), ("forget", "--query", "secret", "--yes")):
        told = nobody(*args, "--user", "zoe", "--agent", "other")
        assert told.exit_code == 0
        assert "no memories of user `zoe`, agent `other`; `--user zoe`" in told.stderr, args

    assert nobody("list", "--user", "zoe", "--tag", "none").stderr == ""
    nobody.remember("one of that agent", "--user", "zoe", "--agent", "other")
    assert nobody("list", "--user", "zoe", "--agent", "other", "--tag", "none").stderr == ""


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
    for path, each in walk(typer.main.get_command(app), ()):
        # `config` shows what is set, right or wrong; `hook` never fails, and has a test of its own.
        if path not in (("config",), ("hook",)) and any(
            "--session" in param.opts for param in each.params
        ):
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
    assert len(commands) > 30
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
    bob = cli.json("users", "--starts-with", "bo")

    assert [row[:3] for row in rows] == [["alice", "2", "0"], ["bob", "1", "0"]]
    assert [user["user_id"] for user in first["users"]] == ["alice"]
    assert [user["user_id"] for user in second["users"]] == ["bob"]
    assert [user["user_id"] for user in bob["users"]] == ["bob"]
    assert bob["users"][0]["is_default"] is False
    assert cli.ok("count", "tags") == "2\tfood\n1\thot\n"
    assert cli.json("count", "tags", "--limit", "1") == [{"value": "food", "items": 2}]
    assert cli.ok("count", "nothing") == ""
    assert cli("users", "--order", "size").exit_code == 2
    assert cli("count", "content").exit_code != 0


@pytest.mark.skipif(sys.platform == "win32", reason="terminals of POSIX")
def test_a_session_without_messages_is_not_called_a_chat(cli: Cli) -> None:
    cli.remember("likes tea", "--session", "s1")

    users = in_terminal(["users"], environment(cli.url, {"NO_COLOR": "1"})).stdout

    assert cli.ok("chat", "list") == ""
    assert "1 memory, 1 session, since" in " ".join(re.sub(r"\x1b\[[0-9;]*m", "", users).split())


def test_users_with_entries_alone_are_listed(cli: Cli) -> None:
    cli.put_entries("cleo", 2)

    [row] = [line.split("\t") for line in cli.ok("users").splitlines()]
    told = in_terminal(["users"], environment(cli.url, {})).stdout

    assert [row[0], row[1], row[-1]] == ["cleo", "0", "2"]
    assert cli.json("users")["users"][0]["entries"] == 2
    assert "0 memories and 2 key-value entries" in told


def test_a_list_of_everyone_says_whose_each_memory_is(cli: Cli) -> None:
    cli.remember("tea")
    cli.remember("coffee", "--user", "bob")
    env = environment(cli.url, {})

    everyone = in_terminal(["list", "--all"], env).stdout
    own = in_terminal(["list"], env).stdout

    assert "user bob" in everyone
    assert "user alice" in everyone
    assert "user alice" not in own
    assert "1 memory, 0 sessions" in in_terminal(["users"], env).stdout


def test_key_value_entries_are_listed_and_printed_for_whose_they_are(cli: Cli) -> None:
    async def put() -> None:
        async with AgentMemory(cli.url, embeddings=None) as memory:
            alice = memory.scope(user_id="alice")
            await alice.kv.put(("settings",), "theme", b"dark\x1b[2J\nand quiet")
            await memory.scope(user_id="alice", agent_id="bot").kv.put(
                ("state",), "step", b"\xff\0"
            )
            await memory.scope(user_id="bob").kv.put(("settings",), "theme", b"bob's secret")

    asyncio.run(put())

    listed = [line.split("\t") for line in cli.ok("kv").splitlines()]
    every = cli.json("kv")

    assert [(row[0], row[1], row[3]) for row in listed] == [
        ("settings/theme", "1", "18 bytes"),
        ("state/step", "1", "2 bytes"),
    ]
    assert "\x1b" not in cli.ok("kv")
    assert [each.get("value", each.get("base64")) for each in every] == [
        "dark\x1b[2J\nand quiet",
        "/wA=",
    ]
    assert every[1]["agent_id"] == "bot"
    assert "bob" not in json.dumps(every)
    assert cli("kv", "state/step").stdout_bytes == b"\xff\0"
    assert cli.ok("kv", "settings").count("\n") == 1
    missing = [cli("kv", "sett"), cli("kv", "settings/size", "--json")]
    assert [each.exit_code for each in missing] == [3, 3]
    assert "no entry at `sett` of user `alice`" in missing[0].stderr
    assert len(cli.json("kv", "--all")) == 3


def test_of_entries_of_one_name_each_says_whose_it_is(cli: Cli) -> None:
    async def put() -> None:
        async with AgentMemory(cli.url, embeddings=None) as memory:
            for scope in ({}, {"session_id": "s1"}, {"session_id": "s2"}):
                kv = memory.scope(user_id="alice", **scope).kv
                await kv.put(("p",), "k" if scope else "own", b"hers")
                await kv.put(("p",), "both", str(scope).encode())
            await memory.scope(user_id="bob").kv.put(("p",), "own", b"his")

    asyncio.run(put())

    assert cli.ok("kv", "p/own") == "hers"
    assert cli.ok("kv", "p/both") == "{}"
    assert cli.ok("kv", "p/k", "--session", "s2") == "hers"
    several = [line.split("\t") for line in cli.ok("kv", "p/k").splitlines()]
    assert [row[-1] for row in several] == ["session s1", "session s2"]
    everyone = [line.split("\t")[-2:] for line in cli.ok("kv", "p/own", "--all").splitlines()]
    assert everyone == [["hers", "user alice"], ["his", "user bob"]]


def test_a_long_value_is_text_wherever_it_is_cut(cli: Cli) -> None:
    async def put() -> None:
        async with AgentMemory(cli.url, embeddings=None) as memory:
            await memory.scope(user_id="alice").kv.put(
                (), "long", ("x" + "\u00e9" * 5_000).encode()
            )

    asyncio.run(put())

    assert "x\u00e9\u00e9" in cli.ok("kv")


def test_a_server_lists_all_entries(cli: Cli) -> None:
    cli.put_entries("alice", 1_003)

    with serve(cli) as (told, _):
        every = cli.json("kv", "--url", str(told["url"]))

    assert len(every) == 1_003


# Nothing is there


def test_a_user_who_has_entries_alone_is_told_so(cli: Cli) -> None:
    cli.remember("tea")
    cli.put_entries("carol", 3)
    env = environment(cli.url, {})
    said = "no memories of user `carol`, but 3 key-value entries; `orbiter-memory kv` lists them"

    for args in (["list"], ["facts"], ["recall", "tea"]):
        shown = in_terminal([*args, "--user", "carol"], env).stdout
        assert said in " ".join(shown.split()), args
    shown = in_terminal(["stats", "--user", "carol"], env).stdout
    assert "key-value entries" in shown
    assert cli.json("stats", "--user", "carol")["entries"] == 3
    assert cli.json("stats")["entries"] == 0


def test_a_misspelt_user_is_told_the_nearest(cli: Cli, tmp_path: Path) -> None:
    cli.remember("tea")

    for args in (
        ["list"],
        ["facts"],
        ["chat"],
        ["recall", "tea"],
        ["stats"],
        ["export", str(tmp_path / "a.jsonl")],
        ["export", str(tmp_path / "a.csv")],
    ):
        wrong = cli(*args, "--user", "alcie")
        assert wrong.exit_code == 0, wrong.stderr
        assert "no memories of user `alcie`; did you mean `alice`?" in wrong.stderr, args
        assert "did you mean" not in cli(*args[:1], *args[1:], "--user", "zoe").stderr
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


def test_an_undo_without_a_source_names_restore(cli: Cli) -> None:
    result = cli("undo")

    assert result.exit_code == 2
    assert "`orbiter-memory restore ID` brings back one memory" in result.stderr


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
