"""Postgres as it is run in production: a primary with streaming replicas, and a pooler in front.

```python
# conftest.py
from tests.servers.postgres_replicas import postgres_replicas
```

Every server is a `PostgresServer` of our own on loopback and ends with this process.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Self
from urllib.parse import urlsplit

import pytest
from tests.servers.databases import PostgresServer, require_or_skip
from tests.servers.processes import (
    ServerProcess,
    imported,
    private_folder,
    unprivileged,
    wait_until,
)

__all__ = ["PgBouncer", "PostgresReplicas", "answers_with", "postgres_replicas", "query"]


class PostgresReplicas:
    """A primary and its replicas: `with PostgresReplicas.start() as servers: ...`.

    With *synchronous*, a commit is acknowledged when one of the replicas has it on its disk.
    """

    def __init__(self, primary: PostgresServer, replicas: list[PostgresServer]) -> None:
        self.primary, self.replicas = primary, replicas

    @classmethod
    def start(cls, replicas: int = 2, *, synchronous: bool = False) -> Self:
        """Start them and return when every replica streams."""
        with contextlib.ExitStack() as undo:
            primary = undo.enter_context(PostgresServer.start())
            others = [undo.enter_context(PostgresServer.follow(primary)) for _ in range(replicas)]
            servers = cls(primary, others)
            wait_until(servers.is_whole, what=f"{replicas} replicas that stream")
            if synchronous:
                query(primary.dsn(), "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'")
                query(primary.dsn(), "SELECT pg_reload_conf()")
                wait_until(servers.is_synchronous, what="replicas that commits wait for")
            undo.pop_all()
        return servers

    def is_whole(self) -> bool:
        """Tell whether every replica streams from the primary."""
        count = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
        return answers_with(self.primary.dsn(), count, value=len(self.replicas))

    def is_synchronous(self) -> bool:
        """Tell whether commits wait for one of the replicas."""
        states = "SELECT DISTINCT sync_state FROM pg_stat_replication"
        return answers_with(self.primary.dsn(), states, value="quorum")

    def create_database(self) -> str:
        """Create a database on the primary, and return its address when every replica has it."""
        dsn = self.primary.create_database()
        name = urlsplit(dsn).path[1:]
        for replica in self.replicas:
            count = f"SELECT count(*) FROM pg_database WHERE datname = '{name}'"
            is_there = partial(answers_with, replica.dsn(), count, value=1)
            wait_until(is_there, what="the database on a replica")
        return dsn

    def url(self, dsn: str) -> str:
        """Return *dsn* with the replicas, as the store takes it."""
        return f"{dsn}&replicas={','.join(f'127.0.0.1:{each.port}' for each in self.replicas)}"

    def failover_url(self, dsn: str) -> str:
        """Return *dsn* with every server as a host, of which the one that takes writes is used."""
        parts = urlsplit(dsn)
        who = parts.netloc.rpartition("@")[0]
        hosts = ",".join(f"127.0.0.1:{each.port}" for each in (self.primary, *self.replicas))
        return f"{parts._replace(netloc=f'{who}@{hosts}').geturl()}&target_session_attrs=read-write"

    def cut_off(self) -> None:
        """Have the replicas receive nothing more, as when the network to them breaks."""
        for replica in self.replicas:
            query(replica.dsn(), "ALTER SYSTEM SET primary_conninfo = ''")
            query(replica.dsn(), "SELECT pg_reload_conf()")
        for replica in self.replicas:
            receivers = "SELECT count(*) FROM pg_stat_wal_receiver"
            is_cut = partial(answers_with, replica.dsn(), receivers, value=0)
            wait_until(is_cut, what="a replica that is cut off")

    def fail_over(self) -> PostgresServer:
        """Kill the primary and promote the replica that has most; return it when it takes writes.

        The primary stays down, and the other replicas follow nobody.
        """
        self.primary.stop(mode="immediate")
        received = "SELECT pg_last_wal_receive_lsn() - '0/0'"
        best = max(self.replicas, key=lambda each: query(each.dsn(), received)[0][0])
        query(best.dsn(), "SELECT pg_promote(true, 60)")
        return best

    def close(self) -> None:
        """Stop every server and delete its data. Idempotent."""
        for server in (*self.replicas, self.primary):
            server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_POOLER = """
[databases]
* = host=127.0.0.1 port={port} user=postgres password={password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {size}
max_client_conn = 500
server_tls_sslmode = disable
"""


class PgBouncer:
    """A pgbouncer in transaction mode before a `PostgresServer` of ours.

    Each transaction gets any of *size* connections to a database, whoever had it before.
    """

    def __init__(self, server: PostgresServer, process: ServerProcess) -> None:
        self._server, self._process = server, process

    @classmethod
    def start(cls, server: PostgresServer, *, size: int = 3) -> Self:
        """Start it; `ModuleNotFoundError` says what to install where there is none."""
        program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
        if program is None:
            raise ModuleNotFoundError("tests with a pooler need pgbouncer: apt install pgbouncer")
        account = unprivileged()
        folder = private_folder(owner=account)
        settings = folder / "pgbouncer.ini"
        password = urlsplit(server.dsn()).password

        def command(port: int) -> list[str]:
            text = _POOLER.format(port=server.port, password=password, listen=port, size=size)
            settings.write_text(text, encoding="utf-8")
            if account is not None:
                os.chown(settings, account.uid, account.gid)
            return [program, str(settings)]

        process = ServerProcess(
            "pgbouncer",
            command=command,
            is_ready=lambda _pid, port: _listens(port),
            end_signal=signal.SIGKILL,
            folder=folder,
            account=account,
        )
        try:
            process.start()
        except BaseException:  # an interrupted start leaves no server
            process.close()
            raise
        return cls(server, process)

    def url(self, dsn: str) -> str:
        """Return *dsn*, an address of the server, through the pooler."""
        return dsn.replace(f":{self._server.port}/", f":{self._process.port}/")

    def close(self) -> None:
        """Stop it. Idempotent."""
        self._process.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
        return True
    return False


def query(dsn: str, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of a statement. May be called while an event loop runs, which it blocks."""
    driver = imported("asyncpg", for_tests_with="Postgres")

    async def work() -> list[tuple[Any, ...]]:
        connection = await driver.connect(dsn)
        try:
            return [tuple(row) for row in await connection.fetch(sql)]
        finally:
            await connection.close()

    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(asyncio.run, work()).result()


def answers_with(dsn: str, sql: str, *, value: object) -> bool:
    """Tell whether a statement returns *value* and nothing else."""
    return query(dsn, sql) == [(value,)]


@pytest.fixture(scope="module")
def postgres_replicas() -> Iterator[PostgresReplicas]:
    """One primary with two replicas for a module; without the packages, tests skip."""
    try:
        servers = PostgresReplicas.start()
    except ModuleNotFoundError as exc:
        require_or_skip(str(exc))
    with servers:
        yield servers
