"""Questions to a Postgres from outside the store, and waits for what the server shows."""

from typing import Any

import asyncpg
from tests.timing import until

OTHERS = " FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
"""The sessions of this database but that of the one who asks."""


async def ask(dsn: str, sql: str, *args: object) -> list[tuple[Any, ...]]:
    """Return the rows of a statement on a connection of its own."""
    connection = await asyncpg.connect(dsn)
    try:
        return [tuple(row) for row in await connection.fetch(sql, *args)]
    finally:
        await connection.close()


async def has_sessions(dsn: str, count: int, condition: str) -> None:
    """Wait until so many sessions are in the state that *condition* names."""

    async def are_there() -> bool:
        [(found,)] = await ask(dsn, f"SELECT count(*){OTHERS} AND {condition}")
        return bool(found >= count)

    await until(are_there, f"{count} sessions with {condition}")


async def set_and_reload(dsn: str, name: str, value: str) -> None:
    """Change a setting of the whole server; return when new statements are under it."""
    await ask(dsn, f"ALTER SYSTEM SET {name} = {value}")
    await ask(dsn, "SELECT pg_reload_conf()")

    async def is_set() -> bool:
        [(found,)] = await ask(dsn, f"SHOW {name}")
        return str(found) == value.strip("'")

    await until(is_set, f"`{name} = {value}`")
