"""`evict`, `erase`, `audit`: what goes, that nothing goes by accident, and the record of it."""

import asyncio
import json
import sqlite3
import sys

import pytest
from tests.cli.conftest import Cli
from tests.cli.terminal import environment, in_terminal

from orbiter.memory import AgentMemory

posix = pytest.mark.skipif(sys.platform == "win32", reason="terminals of POSIX")


def _begin_log(cli: Cli) -> None:
    """Have a program begin the audit log of the store."""

    async def begin() -> None:
        async with AgentMemory(cli.url, embeddings=None, audit="writes") as memory:
            await memory.scope(user_id="alice", by="job \x1b[2J").remember("tea")

    asyncio.run(begin())


def test_what_is_worth_least_goes_and_can_come_back(cli: Cli) -> None:
    old = cli.remember("old \x1b[2J", "--at", "2020-01-01")
    cli.ok("remember", "new", "newer")

    would = cli.json("evict", "--max-items", "2", "--dry-run")
    refused = cli("evict", "--max-items", "2")
    gone = cli.ok("evict", "--max-items", "2", "--yes")

    assert [each["id"] for each in would["items"]] == [old]
    assert (would["dry_run"], would["kept"], would["is_met"]) == (True, 2, True)
    assert refused.exit_code == 2
    assert "`--yes`" in refused.stderr
    assert gone.startswith(f"{old}\t0.000\tbudget\told \\x1b[2J")
    assert cli.ok("evict", "--max-items", "2", "--yes") == ""
    cli.ok("restore", old)
    assert cli("evict").exit_code == 2


def test_a_budget_that_is_not_kept_is_an_error(cli: Cli) -> None:
    cli.remember("pinned", "--importance", "1")
    cli.ok("remember", "tea", "tea")

    same = cli.json("evict", "--duplicates", "--yes")
    none = cli("evict", "--max-items", "0", "--yes")

    assert [each["reason"] for each in same["items"]] == ["duplicate"]
    assert none.exit_code == 1
    assert "the budget is not kept" in none.stderr
    assert [item["content"] for item in cli.json("list")["items"]] == ["pinned"]


def test_nothing_is_erased_unless_somebody_says_whose_and_means_it(cli: Cli) -> None:
    cli.ok("remember", "tea", "coffee")

    unnamed = cli("erase", "--yes")
    unasked = cli("erase", "--user", "alice")
    counted = cli.json("erase", "--user", "alice", "--dry-run")

    assert (unnamed.exit_code, unasked.exit_code) == (2, 2)
    assert "this would erase 2 memories of user `alice` for good" in unasked.stderr
    assert (counted["items"], counted["scope"]) == (2, {"user_id": "alice"})
    assert cli("erase", "--all").exit_code == 2
    assert len(cli.json("list")["items"]) == 2


def test_an_erasure_takes_all_of_one_and_says_so(cli: Cli) -> None:
    item_id = cli.remember("xylophone tea")
    cli.ok("edit", item_id, "xylophone coffee")
    cli.ok("forget", cli.remember("xylophone gone"))
    cli.ok("remember", "bob's tea", "--user", "bob")

    done = cli.ok("erase", "--user", "alice", "--yes")
    again = cli.json("erase", "--user", "alice", "--yes")

    assert done.startswith("erased 4\n")
    assert done.endswith("✓ nothing is left\n")
    assert (again["items"], again["verified"], again["problems"]) == (0, True, [])
    with open(cli.url, "rb") as file:  # noqa: PTH123 - its bytes
        assert b"xylophone" not in file.read()
    assert cli.ok("list", "--all").endswith("bob's tea\n")


@posix
def test_an_erasure_has_the_name_typed(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.ok("remember", "tea", "coffee")
    monkeypatch.setattr("orbiter.memory.cli.going.can_ask", lambda _: True)

    for typed in ("y\n", "", "\n", "Alice\n"):
        wrong = cli("erase", "--user", "alice", stdin=typed)
        assert wrong.exit_code == 1, typed
    left = len(cli.json("list")["items"])
    right = in_terminal(["erase", "--user", "alice"], environment(cli.url), typed="alice\n")

    assert left == 2
    assert "This erases 2 memories of user `alice` for good." in right.stdout
    assert "Type `alice` to go on:" in right.stdout
    assert right.code == 0, right.stdout
    assert cli.json("list")["items"] == []


def test_an_eviction_asks_and_takes_no_for_an_answer(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.ok("remember", "tea", "coffee")
    monkeypatch.setattr("orbiter.memory.cli.going.can_ask", lambda _: True)

    no = cli("evict", "--max-items", "1", stdin="n\n")
    ended = cli("evict", "--max-items", "1", stdin="")
    kept = len(cli.json("list")["items"])
    yes = cli("evict", "--max-items", "1", stdin="y\n")

    assert (no.exit_code, ended.exit_code, kept) == (1, 1, 2)
    assert "Forget 1 memory of user `alice`? [y/N]" in no.stderr
    assert yes.exit_code == 0
    assert len(cli.json("list")["items"]) == 1


def test_a_store_without_a_log_says_so(cli: Cli) -> None:
    cli.remember("tea")

    assert cli.ok("audit") == ""
    for args in (["audit", "verify"], ["audit", "head"]):
        result = cli(*args)
        assert result.exit_code == 1
        assert 'audit="writes"' in result.stderr


def test_what_commands_write_is_in_the_log(cli: Cli) -> None:
    _begin_log(cli)
    item_id = cli.remember("coffee")
    cli.ok("forget", item_id)
    cli.ok("facts", "put", "home", "Berlin")

    listed = [line.split("\t") for line in cli.ok("audit").splitlines()]
    of_item = cli.json("audit", "list", "--item", item_id)
    head = cli.ok("audit", "head").strip()
    sound = cli.json("audit", "verify", "--head", head)

    assert [row[2] for row in listed] == ["added", "deleted", "added", "added"]
    assert [each["action"] for each in of_item] == ["deleted", "added"]
    assert (sound["sound"], sound["head"]) == (True, head)
    assert len(cli.ok("audit", "-n", "1", "--before", listed[0][0]).splitlines()) == 1
    assert cli.ok("audit", "--action", "deleted").count("\n") == 1
    assert "\x1b" not in cli.ok("audit")
    assert cli("audit", "--action", "mislaid").exit_code == 2
    assert cli.ok("audit", "--user", "bob") == ""


def test_what_was_changed_behind_the_logs_back_is_told(cli: Cli) -> None:
    _begin_log(cli)
    with sqlite3.connect(cli.url) as connection:
        connection.execute("UPDATE memory_items SET content = 'coffee'")
    connection.close()

    found = cli("audit", "verify")
    noted = cli("audit", "verify", "--head", "0f" * 32, "--json")

    assert (found.exit_code, noted.exit_code) == (1, 1)
    assert "problem: item `" in found.stderr
    assert found.stdout.startswith("✗ ")
    problems = [each["what"] for each in json.loads(noted.stdout)["problems"]]
    assert any("given as `--head`" in each for each in problems)
