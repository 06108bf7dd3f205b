"""The same commands on a server."""

import json
import re
import subprocess
from pathlib import Path

import httpx
import pytest
from tests.cli.conftest import Cli
from tests.cli.terminal import COMMAND, environment
from tests.servers.databases import PostgresServer
from tests.timing import HANG

from orbiter.memory.auth import KeyFile, key_file_for


def test_commands_work_on_postgres_and_hide_its_password(postgres_server: PostgresServer) -> None:
    dsn = postgres_server.create_database()
    cli = Cli(dsn)

    item_id = cli.remember("Mia is allergic to peanuts", "--tag", "health")
    cli.ok("edit", item_id, "Mia is allergic to nuts", "--expect", "1")
    cli.ok("forget", item_id)
    restored = cli.json("restore", item_id, "--version", "1")

    assert restored["content"] == "Mia is allergic to peanuts"
    assert [hit["item"]["id"] for hit in cli.json("recall", "peanuts")["hits"]] == [item_id]
    assert cli.json("list", "--where", '{"tags": {"$contains": "health"}}')["items"]
    assert cli.json("stats")["store"]["items"] == 1
    assert cli.json("doctor")["ok"] is True
    assert cli("backup", "copy.db").exit_code == 1
    wrong = re.sub(r":[^:@/]+@", ":wr0ng@", dsn)
    refused = cli("list", "--url", wrong)
    assert refused.exit_code == 1
    assert "wr0ng" not in refused.output
    postgres_server.drop_database(dsn)


def test_the_first_command_on_a_database_partitions_its_tables_if_the_url_says_so(
    postgres_server: PostgresServer,
) -> None:
    dsn = postgres_server.create_database()
    mark = "&" if "?" in dsn else "?"
    cut, other = (Cli(f"{dsn}{mark}partitions={number}") for number in (3, 5))

    cut.ok("keys", "create", "--user", "alice")  # which makes a table of its own
    cut.remember("likes tea")
    refused = other("list")

    assert len(cut.json("list")["items"]) == len(Cli(dsn).json("list")["items"]) == 1
    assert refused.exit_code == 1
    assert "has 3 partitions, not 5" in refused.output
    postgres_server.drop_database(dsn)


def test_keys_of_postgres_are_in_a_table_and_a_server_moves_those_of_a_file(
    postgres_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    dsn = postgres_server.create_database()
    cli = Cli(dsn)
    path = key_file_for(dsn)
    made = cli.json("keys", "create", "--user", "ann", "--keys", str(path))
    early = cli("keys", "list")
    command = [*COMMAND, "serve", "--json", "--port", "0", "--no-mcp", "--no-dashboard"]
    with subprocess.Popen(
        command, env=environment(dsn), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            assert line, process.communicate()[1]
            url = f"{json.loads(line)['url']}/v1/memories"
            new = cli.json("keys", "rotate", made["id"], "--overlap", "0h")
            answers = [
                httpx.get(url, headers={"Authorization": f"Bearer {key}"}, timeout=HANG).status_code
                for key in (made["key"], new["key"])
            ]
            bob = cli("keys", "create", "--user", "bob")
            listed = cli.json("keys", "list")
        finally:
            process.terminate()
            log = process.communicate(timeout=HANG)[1]

    assert f"the keys in `{path}` are moved" in early.stderr
    assert json.loads(line)["keys"] == 1
    assert f"moved 1 key from `{path}` into the table orbiter_keys" in log
    assert f"kept as `{path}.moved`" in log
    assert not path.exists()
    assert KeyFile(f"{path}.moved").check(made["key"]) is not None
    assert answers == [401, 200]
    assert len(listed) == 3
    assert "for all servers over this database" in bob.stderr
    password = dsn.partition("@")[0].rpartition(":")[2]
    assert password not in log + bob.output + early.output
    postgres_server.drop_database(dsn)
