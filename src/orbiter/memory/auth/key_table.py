"""Keys in a table of a Postgres store, as hashes: all servers over the database share them.

Every request that shows a key looks it up, by the primary key of the table. A cache that a
notification empties would be faster, but open for as long as a lost notification goes unnoticed.
So a revoked key fails with the next request on every server, and without the database nobody comes
in. Expiry is told by the clock of the database, which is one for all servers.
"""

import builtins
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from orbiter.memory.auth.key_file import KeyFile
from orbiter.memory.auth.principals import (
    Key,
    Principal,
    Role,
    check_removal,
    choose_key,
    id_of_token,
    is_token_of,
    make_key,
    named_scope,
    replace_key,
)
from orbiter.memory.backends.postgres.driver import Driver, SmallPool, make_beside_memories, places
from orbiter.memory.backends.urls import check_address, redacted
from orbiter.memory.errors import AccessError, ItemNotFoundError, StorageError
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.model.query import SCOPE_FIELDS

__all__ = ["KeyTable"]

_T = TypeVar("_T")

_CREATE = """
CREATE TABLE IF NOT EXISTS orbiter_keys (
    id TEXT COLLATE "C" PRIMARY KEY,
    digest BYTEA NOT NULL CHECK (length(digest) = 32),
    role TEXT NOT NULL CHECK (role IN ('read', 'write', 'admin')),
    user_id TEXT,
    session_id TEXT,
    task_id TEXT,
    agent_id TEXT,
    name TEXT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    expires_at TIMESTAMPTZ,
    revoked_at TIMESTAMPTZ,
    replaced_by TEXT,
    CHECK (role = 'admin' OR num_nonnulls(user_id, session_id, task_id, agent_id) > 0)
);
REVOKE ALL ON orbiter_keys FROM PUBLIC;
"""
_COLUMNS = (
    "id, digest, role, user_id, session_id, task_id, agent_id, name, created_at, expires_at, "
    "revoked_at, replaced_by"
)
_HAS_KEYS = "SELECT EXISTS (SELECT FROM orbiter_keys)"
_IS_OPEN = "revoked_at IS NULL AND (expires_at IS NULL OR clock_timestamp() < expires_at)"
_FIND = f"SELECT {_COLUMNS}, {_IS_OPEN} AS is_open FROM orbiter_keys WHERE id = $1"  # noqa: S608 - our own names
_LIST = f"SELECT {_COLUMNS} FROM orbiter_keys ORDER BY created_at, id"  # noqa: S608
_LOCKED = f"SELECT {_COLUMNS} FROM orbiter_keys WHERE id = $1 OR name = $1 ORDER BY created_at, id FOR UPDATE"  # noqa: S608, E501
_INSERT = f"""
INSERT INTO orbiter_keys ({_COLUMNS})
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
"""  # noqa: S608
# What was revoked or shortened on either side stays so.
_ADOPT = f"""
{_INSERT} ON CONFLICT (id) DO UPDATE SET
    expires_at = LEAST(orbiter_keys.expires_at, excluded.expires_at),
    revoked_at = LEAST(orbiter_keys.revoked_at, excluded.revoked_at),
    replaced_by = COALESCE(orbiter_keys.replaced_by, excluded.replaced_by)
"""
_REPLACE = "UPDATE orbiter_keys SET expires_at = $2, replaced_by = $3 WHERE id = $1"
_REVOKE = f"""
UPDATE orbiter_keys SET revoked_at = COALESCE(revoked_at, clock_timestamp()) WHERE id = $1
RETURNING {_COLUMNS}
"""  # noqa: S608
_REMOVE = "DELETE FROM orbiter_keys WHERE id = $1"


class KeyTable:
    """The keys of the servers over the database at *url*, in its table `orbiter_keys`.

    It connects when it is used first; `close` ends its connections. The table is made with the
    first key. To read it, a role needs `SELECT` on it; to make and revoke keys, `INSERT` and
    `UPDATE`, too.
    """

    def __init__(self, url: str) -> None:
        check_address(url)
        self._url = url
        self._driver = Driver(
            url,
            f"the table of keys in `{redacted(url)}`",
            pool_settings={
                "min_size": 0,
                "max_size": 4,
                "timeout": 5.0,
                "command_timeout": 5.0,
            },
            acquire_timeout=5.0,
            statement_timeout=5.0,
            retry_for=2.0,
            counted_as="keys",
        )
        self._pool = SmallPool(self._driver)
        self._is_made = False
        self._was_there = False

    def __repr__(self) -> str:
        return f"KeyTable({redacted(self._url)!r})"

    @property
    def place(self) -> str:
        """Where the keys are, without a password."""
        return f"table orbiter_keys of {redacted(self._url)}"

    async def has_keys(self) -> bool:
        """Tell whether a key is needed: one was made, even if it opens nothing any more.

        Once true, it stays so for this object: nobody opens a server by removing its keys.
        """
        if not self._was_there:
            self._was_there = await self._read(self._look)
        return self._was_there

    async def identify(self, token: str) -> tuple[bool, Principal | None]:
        """Tell whether a key is needed, and return who comes with *token*, if it opens anything."""
        if not await self.has_keys():
            return False, None
        key_id = id_of_token(token)
        row = None
        if key_id is not None:
            row = await self._read(lambda connection: connection.fetchrow(_FIND, key_id))
        is_right = is_token_of(token, row["digest"] if row else None)
        if row is None or not is_right or not row["is_open"]:
            return True, None
        return True, _key(row).principal()

    async def current(self, key_id: str) -> Principal | None:
        """Return who comes with the key of that id now; `None` if it opens nothing any more."""
        if not await self.has_keys():
            return None
        row = await self._read(lambda connection: connection.fetchrow(_FIND, key_id))
        return _key(row).principal() if row is not None and row["is_open"] else None

    async def list(self) -> builtins.list[Key]:
        """Return every key, the oldest first, those that are revoked or expired included."""

        async def read(connection: Any) -> Sequence[Any]:
            return await connection.fetch(_LIST) if await _is_there(connection) else ()

        return [_key(row) for row in await self._read(read)]

    async def create(
        self,
        *,
        scope: MemoryMetadata,
        role: Role,
        name: str | None = None,
        expires: datetime | None = None,
    ) -> tuple[Key, str]:
        """Make a key; return it with what opens the door, which is shown this once."""

        async def write(connection: Any) -> tuple[Key, str]:
            await _make_table(connection)
            taken = {row["id"] for row in await connection.fetch(_LIST)}
            key, token = make_key(scope=scope, role=role, name=name, expires=expires, taken=taken)
            await connection.execute(_INSERT, *_row(key))
            return key, token

        return await self._write(write)

    async def rotate(
        self, which: str, *, overlap: timedelta, expires: datetime | None = None
    ) -> tuple[Key, str, Key]:
        """Make a key in the place of *which*, an id or a name; the old one works for *overlap*.

        See `KeyFile.rotate`.
        """
        taken = {key.id for key in await self.list()}
        choose_key([] if not taken else await self.list(), which, datetime.now(UTC))

        async def write(connection: Any) -> tuple[Key, str, Key]:
            now = await connection.fetchval("SELECT clock_timestamp()")
            named = [_key(row) for row in await connection.fetch(_LOCKED, which)]
            key, token, old = replace_key(
                choose_key(named, which, now),
                overlap=overlap,
                expires=expires,
                now=now,
                taken=taken,
            )
            await connection.execute(_INSERT, *_row(key))
            await connection.execute(_REPLACE, old.id, old.expires_at, key.id)
            return key, token, old

        return await self._write(write)

    async def revoke(self, key_id: str) -> Key:
        """Have a key open nothing from now on; one that is revoked already stays so."""

        async def write(connection: Any) -> Any:
            is_there = await _is_there(connection)
            return await connection.fetchrow(_REVOKE, key_id) if is_there else None

        row = await self._write(write)
        if row is None:
            raise ItemNotFoundError(key_id, way="`orbiter-memory keys list` shows the keys")
        return _key(row)

    async def remove(self, key_id: str) -> Key:
        """Forget a key that opens nothing any more."""

        async def write(connection: Any) -> Key:
            rows: Sequence[Any] = ()
            if await _is_there(connection):
                # So that of two who remove the last two, one stops.
                await connection.execute("LOCK TABLE orbiter_keys IN SHARE ROW EXCLUSIVE MODE")
                rows = await connection.fetch(_LIST)
            key = check_removal(key_id, {each.id: each for each in map(_key, rows)})
            await connection.execute(_REMOVE, key_id)
            return key

        return await self._write(write)

    async def adopt(self, file: KeyFile) -> tuple[int, Path | None]:
        """Move the keys of *file* into the table, once, whoever else does so at the same time.

        Return how many they were, and what the file is called now; zero and `None` if there is no
        such file. A key that is revoked in one of the two is revoked.
        """
        while file.path.exists():
            keys = file.list()

            async def write(connection: Any, rows: Sequence[Sequence[object]]) -> None:
                await _make_table(connection)
                await connection.executemany(_ADOPT, rows)

            rows = [_row(key) for key in keys]
            await self._write(lambda connection: write(connection, rows))  # noqa: B023 - awaited here
            kept = file.set_aside(keys)
            if kept is not None:
                return len(keys), kept
        return 0, None

    async def close(self) -> None:
        """End the connections. Idempotent."""
        await self._pool.close()

    # The database

    async def _look(self, connection: Any) -> bool:
        if not self._is_made:
            self._is_made = await _is_there(connection)
        return self._is_made and bool(await connection.fetchval(_HAS_KEYS))

    async def _read(self, work: Callable[[Any], Awaitable[_T]]) -> _T:
        return await self._pool.read(work)

    async def _write(self, work: Callable[[Any], Awaitable[_T]]) -> _T:
        """Run *work* as one transaction, once: nobody would know a key that was made twice."""
        try:
            async with (
                await self._pool.lease() as connection,
                connection.transaction(),
            ):
                return await work(connection)
        except self._driver.failures as exc:
            error = self._driver.translate(exc)
            if isinstance(error, AccessError):
                raise AccessError(
                    f"{error}; for keys it is `GRANT SELECT, INSERT, UPDATE ON orbiter_keys`, and "
                    "`CREATE` on the schema for the first one: see docs/operate/keys.md"
                ) from exc
            raise error from exc


async def _is_there(connection: Any) -> bool:
    """Tell whether there is a table of keys; that of another store is a `StorageError`.

    Where the search path has several schemas, the keys of one would open the memories of another.
    """
    schema, home = await places(connection, "orbiter_keys")
    if schema is not None and schema != home:
        raise StorageError(
            f"the keys in `{schema}.orbiter_keys` are not for the memories in the schema `{home}`; "
            "make the first key for these with `orbiter-memory keys create`, or name only one "
            "schema in the `search_path` of the URL"
        )
    return schema is not None


async def _make_table(connection: Any) -> None:
    """Make the table if it is not there; a role that may not make tables can use one that is."""
    schema, home = await places(connection, "orbiter_keys")
    if schema != home:
        await connection.execute(make_beside_memories(_CREATE))


def _row(key: Key) -> Sequence[object]:
    scope = named_scope(key.scope)
    named = (scope.get(name) for name in ("user_id", "session_id", "task_id", "agent_id"))
    ends = (key.created_at, key.expires_at, key.revoked_at, key.replaced_by)
    return (key.id, key.digest, key.role, *named, key.name, *ends)


def _key(row: Mapping[str, Any]) -> Key:
    scope = {name: row[name] for name in SCOPE_FIELDS if row[name] is not None}
    if row["role"] != "admin" and not scope:
        raise StorageError(f"the key `{row['id']}` names nobody, and is not an administrator's")
    return Key(
        id=row["id"],
        role=row["role"],
        scope=MemoryMetadata(**scope),
        name=row["name"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        revoked_at=row["revoked_at"],
        replaced_by=row["replaced_by"],
        digest=row["digest"],
    )
