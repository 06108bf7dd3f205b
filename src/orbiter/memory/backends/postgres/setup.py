"""Bringing a Postgres database up to date; a table of the original library is adopted.

All of it happens in one transaction, so that it is done or not begun.
"""

from typing import TYPE_CHECKING, Any

from orbiter.memory.backends.postgres import derived_tables, schema
from orbiter.memory.backends.postgres.dialect import PartitionedDialect, PostgresDialect
from orbiter.memory.backends.postgres.driver import Driver
from orbiter.memory.backends.postgres.schema import Layout, tables
from orbiter.memory.backends.sql.dialect import Statement
from orbiter.memory.backends.sql.original_rows import CHUNK, KEPT, adopted, has_original_columns
from orbiter.memory.errors import StorageError
from orbiter.memory.text import words

if TYPE_CHECKING:
    import asyncpg

__all__ = ["is_original", "move_rows", "set_aside", "set_up"]


async def set_up(
    driver: Driver, pool: "asyncpg.Pool[Any]", *, partitions: int, row_security: bool
) -> schema.Layout:
    """Make the tables if there are none, under a lock; return what there is."""
    async with driver.lease(pool) as connection:
        await driver.execute(connection, "BEGIN")
        try:
            await driver.execute(connection, f"SELECT pg_advisory_xact_lock({schema.LOCK})")
            layout = await _look(driver, connection)
            adopts = not layout.version and await set_aside(driver, connection)
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
                await move_rows(driver, connection, layout)
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
        if has_items and not await is_original(driver, connection):
            raise StorageError(
                f"{driver.store} has a table `memory_items` of another program; use another "
                "database or schema"
            )
        return schema.Layout()
    (version,) = await driver.fetch_row(connection, "SELECT max(version) FROM memory_schema")
    if version is None:
        raise StorageError(f"{driver.store} has a table `memory_schema` of another program")
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
    """Have all terms rebuilt if they are made in another way than they were."""
    (version,) = await driver.fetch_row(connection, "SELECT max(version) FROM memory_words")
    if version < words.VERSION:
        script = derived_tables.RENEW_TERMS
        if layout.is_held:
            script = derived_tables.as_owner(script, "memory_items", "memory_pending")
        await driver.execute(connection, script)
        await driver.execute(connection, f"UPDATE memory_words SET version = {words.VERSION}")


_COLUMNS = """
SELECT a.attname::text FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
WHERE c.oid = to_regclass('memory_items') AND c.relkind = 'r'
    AND a.attnum > 0 AND NOT a.attisdropped
"""
_SCHEMA = """
SELECT quote_ident(n.nspname) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass('memory_items')
"""
_INDEXES = """
SELECT quote_ident(c.relname) FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
WHERE i.indrelid = to_regclass('memory_items') ORDER BY 1
"""
_HELD = """
SELECT oid::regclass::text FROM pg_class
WHERE relforcerowsecurity AND oid = ANY (SELECT to_regclass(name) FROM unnest($1::text[]) AS name)
"""
# As text, whatever type a column has; a time without a zone is one of UTC.
_ROWS = """
DECLARE memory_originals NO SCROLL CURSOR FOR
SELECT id::text, content::text, memory_type::text, status::text, metadata::text, extra_json::text,
    created_at::text, updated_at::text, deleted::integer, version::integer
FROM {} ORDER BY created_at, ctid
"""


async def is_original(driver: Driver, connection: Any) -> bool:
    """Tell whether `memory_items` is a table that the original library has made."""
    rows = await driver.do(connection, Statement(_COLUMNS))
    return has_original_columns(name for (name,) in rows)


async def set_aside(driver: Driver, connection: Any) -> bool:
    """Give the table another name, if there is one; tell whether there was."""
    if not await is_original(driver, connection):
        return False
    ((schema,),) = await driver.do(connection, Statement(_SCHEMA))
    # Their names may be those of ours.
    for number, (name,) in enumerate(await driver.do(connection, Statement(_INDEXES))):
        await driver.execute(
            connection, f"ALTER INDEX {schema}.{name} RENAME TO {KEPT}_index_{number}"
        )
    await driver.execute(connection, f"ALTER TABLE {schema}.memory_items RENAME TO {KEPT}")
    return True


async def move_rows(driver: Driver, connection: Any, layout: Layout) -> None:
    """Write all rows that were set aside into our tables, the oldest first."""
    dialect = PartitionedDialect() if layout.partitions else PostgresDialect()
    # Whoever makes the tables acts for nobody, and could write no row of anybody.
    held = [name for (name,) in await driver.do(connection, Statement(_HELD, [[*tables(layout)]]))]
    for table in held:
        await driver.execute(connection, f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY")
    await driver.execute(connection, "SET LOCAL TimeZone = 'UTC'")
    await driver.execute(connection, _ROWS.format(KEPT))
    while rows := await driver.do(connection, Statement(f"FETCH {CHUNK} FROM memory_originals")):
        await driver.run(connection, dialect.record_writer.insert([adopted(row) for row in rows]))
    await driver.execute(connection, "CLOSE memory_originals")
    for table in held:
        await driver.execute(connection, f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
