"""Invalid arguments: nothing is stored, and the error says why in terms of the shell."""

import json
import sqlite3
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.servers.redis_topologies import RedisCluster, redis_cluster

from orbiter.memory.agent import ScopedMemory
from orbiter.memory.cli._error_messages import error_text, in_shell_words
from orbiter.memory.errors import ItemNotFoundError

__all__ = ["redis_cluster"]


def test_a_bad_line_is_named_and_none_is_stored(cli: Cli) -> None:
    lines = "\n".join([*map(str, range(550)), "", "a\0b", "fine"])

    result = cli("remember", "-", "--lines", stdin=lines)

    assert (result.exit_code, result.stdout) == (2, "")
    assert "line 552 of stdin" in result.stderr
    assert "nothing was stored" in result.stderr
    assert not Path(cli.url).exists()


def test_what_is_durable_is_printed_when_the_rest_fails(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = ScopedMemory.remember_many

    async def fails_at_the_end(self: ScopedMemory, things: list[str], **more: object) -> object:
        if things[-1] == "last":
            raise OSError("the disk is gone")
        return await keep(self, things, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(ScopedMemory, "remember_many", fails_at_the_end)
    lines = "\n".join([*map(str, range(500)), "last"])

    plain = cli("remember", "-", "--lines", stdin=lines)
    as_json = cli("remember", "-", "--lines", "--json", stdin=lines)
    assert "500 of 501 are stored" in plain.stderr
    assert "begins at line 501 of stdin" in plain.stderr

    assert plain.exit_code == as_json.exit_code == 1
    assert len(plain.stdout.splitlines()) == 500
    assert len(json.loads(as_json.stdout)) == 500


@pytest.mark.parametrize(
    "args",
    [
        ["remember", ""],
        ["remember", "x", "--importance", "7"],
        ["remember", "x", "--extra", '{"a": "\\u0000"}'],
        ["remember", "x", "--user", "u" * 2_000],
        ["remember", "x" * (2**20 + 1)],
    ],
    ids=["empty", "importance", "extra", "user", "long"],
)
def test_what_cannot_be_kept_makes_no_store(cli: Cli, args: list[str]) -> None:
    result = cli(*args)

    assert result.exit_code == 2
    assert "Value error" not in result.stderr
    assert not Path(cli.url).exists()


def test_an_address_that_does_not_open_is_one_line(
    cli: Cli, redis_cluster: RedisCluster, tmp_path: Path
) -> None:
    (tmp_path / "notes.db").write_text("no database " * 1_000)
    addresses = (
        redis_cluster.nodes[0].url(),
        "redis://127.0.0.1:99999",
        "redis://127.0.0.1/x",
        "postgresql://127.0.0.1:99999/x",
        "postgresql://127.0.0.1:port/x",
        "postgresql://127.0.0.1/x?sslmode=some",
        "nosuch://x",
        "http://[bad",
        str(tmp_path),
        str(tmp_path / "notes.db"),
    )

    for address in addresses:
        for command in (["list"], ["remember", "tea"], ["erase", "--user", "ann", "--yes"]):
            result = cli(*command, "--url", address)

            (line,) = result.stderr.splitlines()
            assert line.startswith("error: "), (address, line)
            assert "ORBITER_DEBUG" not in line, (address, line)  # as for what nobody thought of
            assert result.exit_code in (1, 2), address
            assert result.stdout == "", address


def test_advice_for_programmers_is_translated() -> None:
    missing = error_text(ItemNotFoundError("x"))

    assert missing.endswith("here; `orbiter-memory list` shows the memories here")
    assert in_shell_words("try again, or raise `busy_timeout`") == "try again"


def test_a_store_that_is_locked_is_told_without_settings_it_has_not(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    from orbiter.memory.backends.sqlite.connection_manager import SQLiteFile  # noqa: PLC0415

    cli.remember("something")
    usual = SQLiteFile.__init__

    def hasty(self: SQLiteFile, *args: object, **more: object) -> None:
        usual(self, *args, **{**more, "busy_timeout": 0.05})  # type: ignore[arg-type]

    monkeypatch.setattr(SQLiteFile, "__init__", hasty)
    other = sqlite3.connect(cli.url, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    result = cli("remember", "more")
    other.close()

    assert result.exit_code == 1
    assert "locked" in result.stderr
    assert "busy_timeout" not in result.stderr


def _damage(cli: Cli, rows: str) -> None:
    cli.ok("remember", "-", "--lines", stdin="\n".join(f"{n} cups of tea" for n in range(30)))
    cli.ok("doctor", "--repair")
    with sqlite3.connect(cli.url) as connection:
        for table in ("memory_words_data", "memory_terms_data"):
            connection.execute(f"UPDATE {table} SET block = x'00ffffffffff00ff' WHERE {rows}")
    connection.close()


def test_a_damaged_index_says_how_to_mend_it(cli: Cli) -> None:
    _damage(cli, "id > 10")

    found = cli("recall", "tea", "--mode", "words")
    repaired = cli("doctor", "--repair")

    assert found.exit_code == 1
    told = found.stderr
    assert told.index("`orbiter-memory doctor --repair`") < told.index("restore a backup")
    assert "verify(" not in told
    assert repaired.exit_code == 0, repaired.output
    assert "tea" in cli.ok("recall", "tea", "--mode", "words")


def test_what_keeps_the_contents_from_being_read_is_a_finding(cli: Cli) -> None:
    _damage(cli, "id = 10")  # where the index says how it is made

    found = cli("doctor", "--repair", "--json")

    last = json.loads(found.stdout)["checks"][-1]
    assert found.exit_code == 1
    assert (last["name"], last["state"]) == ("contents", "wrong")
    assert last["cure"] == "restore a backup"


def test_a_pipe_gets_all_of_a_list_and_a_page_only_when_asked_for(cli: Cli) -> None:
    ids = cli.ok("remember", "-", "--lines", stdin="\n".join(map(str, range(530)))).split()

    assert cli.ok("list").count("\n") == 530
    assert len(cli.json("list")["items"]) == 530
    assert cli.json("list")["next"] is None
    assert cli.ok("list", "-n", "7").count("\n") == 7
    assert cli.ok("list", "--cursor", ids[100]).count("\n") == 100
    assert len(cli.json("list", "--cursor", ids[100])["items"]) == 20


def test_what_is_kept_with_a_memory_passes_for_no_field_of_it(cli: Cli) -> None:
    extra = {"version": 9, "kind": "fake", "a long name": [1, {"b": "ü"}], "tags": "none"}
    item_id = cli.remember("tea", "--extra", json.dumps(extra))
    cli.ok("edit", item_id, "--extra", '{"version": 10}')

    shown = cli.ok("show", item_id).splitlines()
    past = cli.ok("show", item_id, "--history")

    for line in (
        "kind       item",
        "version    2",
        "extra.kind fake",
        "extra.version 10",
        'extra.a long name [1, {"b": "ü"}]',
        "extra.tags none",
    ):
        assert line in shown
    assert "extra.version: 9 → 10" in past


def test_a_task_takes_words_without_quotes(cli: Cli) -> None:
    cli.ok("remember", "Ann likes green tea")

    said = cli.json("context", "c1", "which", "tea", "does", "Ann", "like")

    assert "which tea does Ann like" in json.dumps(said)
