"""How a Postgres database comes to hold the tables of a store."""

from typing import TYPE_CHECKING, Any

from orbiter.memory.backends.postgres import migration_2, originals, schema
from orbiter.memory.backends.postgres.driver import Driver
from orbiter.memory.errors import StorageError
from orbiter.memory.text import words

if TYPE_CHECKING:
    import asyncpg

__all__ = ["set_up"]


async def set_up(
    driver: Driver, pool: "asyncpg.Pool[Any]", *, partitions: int, row_security: bool
) -> schema.Layout:
    """Make the tables if there are none, under a lock; return what there is."""
    async with driver.lease(pool) as connection:
        await driver.execute(connection, "BEGIN")
        try:
            await driver.execute(connection, f"SELECT pg_advisory_xact_lock({schema.LOCK})")
            layout = await _look(driver, connection)
            adopts = not layout.version and await originals.set_aside(driver, connection)
            if not layout.version:
                await driver.execute(
                    connection, schema.first(partitions, row_security=row_security)
                )
                await _make_words(driver, connection)
                layout = await _look(driver, connection)
            for make in schema.MIGRATIONS[layout.version - 1 :]:
                script = make(layout.partitions, row_security=layout.row_security)
                await driver.execute(connection, script)
                await driver.execute(connection, "UPDATE memory_schema SET version = version + 1")
                layout = layout._replace(version=layout.version + 1)
            if adopts:
                await originals.move_rows(driver, connection, layout)
            await _renew_words(driver, connection, layout)
            await driver.execute(connection, "COMMIT")
        except Exception as exc:  # whatever it was, no transaction stays open
            await driver.roll_back(connection, exc)
            raise
    return layout


async def _look(driver: Driver, connection: Any) -> schema.Layout:
    is_ours, partitions, row_security, is_held, has_items = await driver.fetch_row(
        connection, schema.LOOK
    )
    if not is_ours:
        if has_items and not await originals.is_original(driver, connection):
            raise StorageError(
                f"{driver.store} has a table `memory_items` of another program's; use another "
                "database or schema"
            )
        return schema.Layout()
    (version,) = await driver.fetch_row(connection, "SELECT max(version) FROM memory_schema")
    if version is None:
        raise StorageError(f"{driver.store} has a table `memory_schema` of another program's")
    if version > 1 + len(schema.MIGRATIONS):
        raise StorageError(
            f"{driver.store} has schema {version}, this version of orbiter-memory knows "
            f"{1 + len(schema.MIGRATIONS)}; upgrade with: pip install -U orbiter-memory"
        )
    return schema.Layout(version, partitions, row_security, is_held)


async def _make_words(driver: Driver, connection: Any) -> None:
    """Index texts by trigrams where the server has them and lets us."""
    await driver.execute(connection, "SAVEPOINT words")
    try:
        await driver.execute(connection, "CREATE EXTENSION IF NOT EXISTS pg_trgm")
        await driver.execute(connection, schema.WORDS)
    except driver.postgres_error:
        await driver.execute(connection, "ROLLBACK TO words")


async def _renew_words(driver: Driver, connection: Any, layout: schema.Layout) -> None:
    """Have all terms made anew if they are made in another way than they were."""
    (version,) = await driver.fetch_row(connection, "SELECT max(version) FROM memory_words")
    if version < words.VERSION:
        script = migration_2.AWAIT_ALL
        if layout.is_held:
            script = migration_2.as_owner(script, "memory_items", "memory_pending")
        await driver.execute(connection, script)
        await driver.execute(connection, f"UPDATE memory_words SET version = {words.VERSION}")
