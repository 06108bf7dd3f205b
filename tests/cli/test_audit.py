"""`audit`: how the record begins, what is in it, and that it is not tampered with."""

import asyncio
import json
import re
import sqlite3
import sys
from subprocess import PIPE, Popen

from tests.cli.conftest import Cli
from tests.cli.terminal import environment, in_terminal

from orbiter.memory import AgentMemory

STYLE = re.compile(r"\x1b\[[0-9;]*m")


def _begin_log(cli: Cli) -> None:
    """Have a program begin the audit log of the store."""

    async def begin() -> None:
        async with AgentMemory(cli.url, embeddings=None, audit="writes") as memory:
            await memory.scope(user_id="alice", by="job \x1b[2J").remember("tea")

    asyncio.run(begin())


def test_a_store_without_a_log_says_so_in_the_same_words(cli: Cli) -> None:
    cli.remember("tea")
    way = "`orbiter-memory audit begin` starts one"
    told = f"error: there is no audit log at `{cli.url}`; {way}\n"

    for args in (["audit"], ["audit", "verify"], ["audit", "head"]):
        result = cli(*args)
        assert (result.exit_code, result.stdout, result.stderr) == (1, "", told)


def test_a_log_is_begun_once_and_takes_in_what_is_there(cli: Cli) -> None:
    cli.remember_all("tea", "coffee")
    cli.ok("forget", cli.remember("gone"))

    first = cli.ok("audit", "begin")
    second = cli.json("audit", "begin")
    cli.ok("remember", "later", "--by", "night job")
    newest = cli.json("audit", "-n", "1")

    assert first == "✓ 3 memories recorded; every write from now on is logged\n"
    assert second == {"began": False, "items": 0}
    assert (newest[0]["action"], newest[0]["by"]) == ("added", "night job")
    assert cli.ok("audit", "verify").startswith("✓ ")


def test_a_log_may_begin_before_the_first_memory(cli: Cli) -> None:
    first = cli.ok("audit", "begin")
    cli.remember("tea")

    assert first == f"✓ new store `{cli.url}`; every write from now on is logged\n"
    assert [each["action"] for each in cli.json("audit", "--all")] == ["added", "began"]


def test_verify_counts_memories_that_are_there_and_not_those_erased(cli: Cli) -> None:
    cli.ok("audit", "begin")
    cli.remember_all("tea", "coffee")
    cli.ok("remember", "bob's", "--user", "bob")
    cli.ok("erase", "--user", "bob", "--yes")

    assert ", 2 memories compared: sound" in cli.ok("audit", "verify")
    assert cli.json("audit", "verify")["items"] == 2


def test_by_filters_the_log_and_its_help_says_so(cli: Cli) -> None:
    shown = " ".join(cli.ok("audit", "list", "--help").split())

    assert re.search(r"--by \S+ Only what this actor did\.", shown), shown
    assert "as shown by `history`" not in shown
    assert "as shown by `history`" in " ".join(cli.ok("remember", "--help").split())


OPEN = """
import asyncio, sys
from orbiter.memory import AgentMemory

async def main():
    async with AgentMemory(sys.argv[1], embeddings=None) as memory:
        await memory.unscoped().stats()
        print("open", flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


def test_a_log_is_not_begun_while_another_process_writes_without_it(cli: Cli) -> None:
    cli.remember("tea")
    with Popen([sys.executable, "-c", OPEN, cli.url], stdin=PIPE, stdout=PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        refused = cli("audit", "begin")
        other.communicate("")

    assert refused.exit_code == 1
    assert "is open in another process; stop whatever uses it" in refused.stderr
    assert cli("audit", "verify").exit_code == 1  # nothing has begun
    assert cli.ok("audit", "begin").startswith("✓ 1 memory recorded")


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


def test_the_log_can_be_asked_for_what_somebody_did(cli: Cli) -> None:
    cli.remember("tea")
    cli.ok("audit", "begin")
    cli.ok("remember", "coffee", "--by", "joe")
    cli.ok("remember", "water", "--by", "ann")

    joes = cli.json("audit", "--by", "joe")
    nobodys = cli("audit", "--by", "~nobody")  # not a name to sign with, but one to look for

    assert [(each["action"], each["by"]) for each in joes] == [("added", "joe")]
    assert (nobodys.exit_code, nobodys.stdout) == (0, "")


def test_commands_that_only_read_take_no_actor(cli: Cli) -> None:
    cli.remember("tea")

    for args in (
        ["stats"], ["count", "tags"], ["tail"], ["context", "main", "tea"], ["kv"], ["list"],
        ["show", "x"], ["recall", "x"], ["history", "x"], ["facts", "list"], ["facts", "get", "x"],
        ["facts", "history", "x"], ["facts", "conflicts"], ["review", "list"], ["chat", "list"],
        ["chat", "show", "x"], ["export", "x.jsonl"], ["duplicates"],
    ):  # fmt: skip
        refused = cli(*args, "--by", "joe")
        assert refused.exit_code == 2, args
        assert "`audit --by NAME`" in refused.stderr, args
        command = args[:2] if args[0] in ("facts", "review", "chat") else args[:1]
        assert "--by" not in cli.ok(*command, "--help"), args
    assert "--by" in cli.ok("remember", "--help")


def test_changes_of_entries_are_counted_as_entries_in_a_terminal(cli: Cli) -> None:
    async def change() -> None:
        async with AgentMemory(cli.url, embeddings=None, audit="writes") as memory:
            ann = memory.scope(user_id="alice", by="nightly")
            await ann.kv.append(("log",), [b"1", b"2"])
            await ann.kv.pop(("log",))
            await ann.remember("tea")

    asyncio.run(change())

    shown = in_terminal(["audit", "--all"], environment(cli.url)).stdout
    lines = [" ".join(STYLE.sub("", line).split()) for line in shown.splitlines()]

    assert "stored (kv.append) by nightly just now · 2 key-value entries" in " | ".join(lines)
    assert "removed (kv.pop) by nightly just now · 1 key-value entry" in " | ".join(lines)
    assert not [line for line in lines if "kv." in line and "memor" in line]
    assert [line for line in lines if "added by nightly" in line and "key-value" not in line]
