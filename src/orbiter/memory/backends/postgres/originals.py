"""A table that the original library has made: kept under another name, its rows moved to ours.

All of it happens in the transaction that makes our tables, so that it is done or not begun.
"""

from typing import Any

from orbiter.memory.backends.postgres.dialect import PartitionedDialect, PostgresDialect
from orbiter.memory.backends.postgres.driver import Driver
from orbiter.memory.backends.postgres.schema import Layout, tables
from orbiter.memory.backends.sql.dialect import Statement
from orbiter.memory.backends.sql.original_rows import CHUNK, KEPT, adopted, has_original_columns

__all__ = ["is_original", "move_rows", "set_aside"]

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
