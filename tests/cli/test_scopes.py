"""Whose memories a command is about."""

import getpass

import pytest
from tests.cli.conftest import Cli


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
        result = cli(*args, "--user", "")

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
