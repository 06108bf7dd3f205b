"""`audit`: how the record begins, what is in it, and that it is not tampered with."""

import asyncio
import json
import re
import sqlite3
import sys
from subprocess import PIPE, Popen

from tests.cli.conftest import Cli

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

    for args in (["audit", "list"], ["audit", "verify"]):
        result = cli(*args)
        assert (result.exit_code, result.stdout, result.stderr) == (1, "", told)


def test_a_log_is_begun_once_and_takes_in_what_is_there(cli: Cli) -> None:
    cli.remember_all("tea", "coffee")
    cli.ok("forget", cli.remember("gone"))

    first = cli.ok("audit", "begin")
    second = cli.json("audit", "begin")
    cli.ok("remember", "later", "--by", "night job")
    newest = cli.json("audit", "list", "-n", "1")

    assert first == "✓ 3 memories recorded; every write from now on is logged\n"
    assert second == {"began": False, "items": 0}
    assert (newest[0]["action"], newest[0]["by"]) == ("added", "night job")
    assert cli("audit", "verify").exit_code == 0


def test_a_log_may_begin_before_the_first_memory(cli: Cli) -> None:
    first = cli.ok("audit", "begin")
    cli.remember("tea")

    assert first == f"✓ new store `{cli.url}`; every write from now on is logged\n"
    assert [each["action"] for each in cli.json("audit", "list", "--all")] == ["added", "began"]


def test_verify_counts_memories_that_are_there_and_not_those_erased(cli: Cli) -> None:
    cli.ok("audit", "begin")
    cli.remember_all("tea", "coffee")
    cli.ok("remember", "bob's", "--user", "bob")
    cli.ok("erase", "--user", "bob", "--yes")

    assert cli.json("audit", "verify")["items"] == 2


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

    listed = [line.split("\t") for line in cli.ok("audit", "list").splitlines()]
    of_item = cli.json("audit", "list", "--item", item_id)
    head = cli.ok("audit", "verify").strip()
    sound = cli.json("audit", "verify", "--head", head)

    assert [row[2] for row in listed] == ["added", "deleted", "added", "added"]
    assert [each["action"] for each in of_item] == ["deleted", "added"]
    assert (sound["sound"], sound["head"]) == (True, head)
    assert len(cli.ok("audit", "list", "-n", "1", "--cursor", listed[0][0]).splitlines()) == 1
    assert cli.ok("audit", "list", "--action", "deleted").count("\n") == 1
    assert "\x1b" not in cli.ok("audit", "list")
    assert cli("audit", "list", "--action", "mislaid").exit_code == 2
    assert cli.ok("audit", "list", "--user", "bob") == ""


def test_what_was_changed_behind_the_logs_back_is_told(cli: Cli) -> None:
    _begin_log(cli)
    with sqlite3.connect(cli.url) as connection:
        connection.execute("UPDATE memory_items SET content = 'coffee'")
    connection.close()

    found = cli("audit", "verify")
    noted = cli("audit", "verify", "--head", "0f" * 32, "--json")

    assert (found.exit_code, noted.exit_code) == (1, 1)
    assert "problem: item `" in found.stderr
    assert found.stdout == ""  # no head to note
    problems = [each["what"] for each in json.loads(noted.stdout)["problems"]]
    assert any("given as `--head`" in each for each in problems)


def test_the_log_can_be_asked_for_what_somebody_did(cli: Cli) -> None:
    cli.remember("tea")
    cli.ok("audit", "begin")
    cli.ok("remember", "coffee", "--by", "joe")
    cli.ok("remember", "water", "--by", "ann")

    joes = cli.json("audit", "list", "--by", "joe")
    nobodys = cli(
        "audit", "list", "--by", "~nobody"
    )  # not a name to sign with, but one to look for

    assert [(each["action"], each["by"]) for each in joes] == [("added", "joe")]
    assert (nobodys.exit_code, nobodys.stdout) == (0, "")
