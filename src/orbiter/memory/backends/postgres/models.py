"""Embedding models in Postgres: how one is registered, takes over, and is removed.

Where the server has pgvector, vectors are its type, and each model has an index of its own.
"""

from typing import Any, NamedTuple

from orbiter.memory.backends.postgres import derived_tables, schema
from orbiter.memory.backends.postgres.driver import Driver
from orbiter.memory.backends.sql.dialect import Rows, Statement, Steps
from orbiter.memory.backends.sql.embedder import Model

__all__ = [
    "LEFT_BEHIND",
    "LONGEST_INDEXED",
    "LONGEST_VECTOR",
    "WALK",
    "Kind",
    "has_vectors",
    "make_lost_vectors",
    "models",
    "padded",
    "register",
    "take_over",
]

LONGEST_VECTOR = 16_000
"""Numbers in a vector of pgvector's; longer ones are kept as bytes."""


LONGEST_INDEXED = 2000
"""Numbers in a vector that pgvector can index."""


_NOT_TO_BE_HAD = ("42501", "0A000", "58P01", "42704")
"""What a server says that has no pgvector, or does not let us make or see it."""


class Kind(NamedTuple):
    """How vectors are kept."""

    is_vector: bool = False
    """Whether they are pgvector's, or bytes."""
    can_walk: bool = False
    """Whether an index goes on until enough rows pass a filter: from pgvector 0.8 on."""

    def near(self, dimension: int) -> str | None:
        """Return the expression that an index of this dimension is made of, if there is one."""
        is_indexed = self.is_vector and self.can_walk and dimension <= LONGEST_INDEXED
        return f"({self.vector(dimension)})" if is_indexed else None

    def vector(self, dimension: int) -> str:
        """Return the column as a type of one length."""
        return f"embedding::vector({padded(dimension)})"


def padded(dimension: int) -> int:
    """Return the length that pgvector is given vectors in: zeros at the end change no cosine.

    A multiple of 16 leaves its loops no remainder. Builds are about, made for another CPU (for ARM
    with SVE), whose remainders end the server; so does whatever they do with `halfvec`, which is
    why nothing here uses that. See docs/scaling.md#half-the-bits.
    """
    return -(-dimension // 16) * 16


_KIND = """
SELECT format_type(atttypid, NULL) = 'vector', coalesce((SELECT
    string_to_array(regexp_replace(extversion, '[^0-9.].*', ''), '.')::int[] >= ARRAY[0, 8]
    FROM pg_extension WHERE extname = 'vector'), false)
FROM pg_attribute WHERE attrelid = to_regclass('memory_vectors') AND attname = 'embedding'
"""

_MODELS = "SELECT number, name, dimension, is_current FROM memory_models ORDER BY number"


def models() -> Steps[tuple[list[Model], Kind]]:
    """Return the models and how their vectors are kept."""
    kind = yield Statement(_KIND)
    rows = yield Statement(_MODELS)
    return [Model(*row) for row in rows], Kind(*kind[0]) if kind else Kind()


async def register(
    driver: Driver, pool: Any, layout: schema.Layout, model: tuple[str, int], *, rebuild: bool
) -> None:
    """Register a model under the lock of the tables, unless it is there.

    The first one is current. With *rebuild* another is begun beside the current one, or
    goes on, and what else was begun is dropped; without, a store that has a model stays as it is.
    """
    async with driver.lease(pool) as connection:
        await driver.execute(connection, "BEGIN")
        try:
            await driver.execute(connection, f"SELECT pg_advisory_xact_lock({schema.LOCK})")
            rows = await connection.fetch(_MODELS)
            begun = [row for row in rows if not row["is_current"]]
            goes_on = any((row["name"], row["dimension"]) == model for row in begun)
            if not rows or (rebuild and not goes_on):
                for row in begun:
                    await _drop(driver, connection, row["number"])
                await _begin(driver, connection, layout, model, rows)
            await driver.execute(connection, "COMMIT")
        except Exception as exc:  # whatever it was, no transaction stays open
            await driver.roll_back(connection, exc)
            raise


async def _begin(
    driver: Driver, connection: Any, layout: schema.Layout, model: tuple[str, int], rows: Rows
) -> None:
    name, dimension = model
    number = 1 + max((row[0] for row in rows), default=0)
    # Whoever is at work on an item ends first: later ones see the model, earlier ones are walked.
    await driver.execute(connection, "LOCK TABLE memory_passages IN SHARE ROW EXCLUSIVE MODE")
    await driver.do(
        connection,
        Statement(
            "INSERT INTO memory_models (number, name, dimension, is_current)"
            " VALUES ($1, $2, $3, $4)",
            [number, name, dimension, not rows],
        ),
    )
    if not rows and dimension <= LONGEST_VECTOR:
        await _use_pgvector(driver, connection)
    kind = await driver.fetch_row(connection, _KIND)
    await _make_index(driver, connection, Kind(*kind), number, dimension)
    if layout.is_held:
        script = derived_tables.QUEUE_ALL.format(number=number)
        await driver.execute(
            connection, derived_tables.as_owner(script, "memory_passages", "memory_unembedded")
        )


async def _make_index(
    driver: Driver, connection: Any, kind: Kind, number: int, dimension: int
) -> None:
    near = kind.near(dimension)
    if near is not None:
        await driver.execute(
            connection,
            f"CREATE INDEX IF NOT EXISTS memory_vectors_near_{number} ON memory_vectors"
            f" USING hnsw ({near} vector_cosine_ops) WHERE model = {number}",
        )


def has_vectors(layout: schema.Layout) -> Steps[bool]:
    """Tell whether the table of vectors is there, with all its parts."""
    parts = [f"memory_vectors_p{part}" for part in range(layout.partitions)]
    rows = yield Statement(
        "SELECT bool_and(to_regclass(name) IS NOT NULL) FROM unnest($1::text[]) AS name",
        [["memory_vectors", *parts]],
    )
    return bool(rows[0][0])


async def make_lost_vectors(driver: Driver, pool: Any, layout: schema.Layout) -> None:
    """Make the table of vectors that a restore without pgvector has left out; it is empty."""
    async with driver.lease(pool) as connection:
        await driver.execute(connection, "BEGIN")
        try:
            await driver.execute(connection, f"SELECT pg_advisory_xact_lock({schema.LOCK})")
            rows = await connection.fetch(_MODELS)
            script = derived_tables.lost_vectors(
                layout.partitions, row_security=layout.row_security
            )
            is_new = not await connection.fetchval("SELECT to_regclass('memory_vectors') NOTNULL")
            await driver.execute(connection, script)
            if is_new and rows and max(row["dimension"] for row in rows) <= LONGEST_VECTOR:
                await _use_pgvector(driver, connection)
            kind = Kind(*await driver.fetch_row(connection, _KIND))
            for row in rows:
                await _make_index(driver, connection, kind, row["number"], row["dimension"])
            await driver.execute(connection, "COMMIT")
        except Exception as exc:  # whatever it was, no transaction stays open
            await driver.roll_back(connection, exc)
            raise


async def _use_pgvector(driver: Driver, connection: Any) -> None:
    """Make the empty column one of pgvector's where the server has it and lets us."""
    (is_vector, _) = await driver.fetch_row(connection, _KIND)
    if is_vector:
        return
    await driver.execute(connection, "SAVEPOINT vectors")
    try:
        await driver.execute(connection, "CREATE EXTENSION IF NOT EXISTS vector")
        await driver.execute(
            connection,
            "ALTER TABLE memory_vectors ALTER COLUMN embedding TYPE vector USING NULL::vector",
        )
    except driver.postgres_error as exc:
        if getattr(exc, "sqlstate", None) not in _NOT_TO_BE_HAD:
            raise
        await driver.execute(connection, "ROLLBACK TO vectors")


async def take_over(driver: Driver, pool: Any, number: int) -> None:
    """Make a model the current one and drop all others, as one step.

    Their vectors, which nobody looks at any more, go afterwards: see `LEFT_BEHIND`.
    """
    async with driver.lease(pool) as connection:
        await driver.execute(connection, "BEGIN")
        try:
            await driver.execute(connection, f"SELECT pg_advisory_xact_lock({schema.LOCK})")
            rows = await connection.fetch(_MODELS)
            if any(row["number"] == number for row in rows):
                for row in rows:
                    if row["number"] != number:
                        await _drop(driver, connection, row["number"])
                await driver.execute(
                    connection,
                    f"UPDATE memory_models SET is_current = true WHERE number = {number}",
                )
            await driver.execute(connection, "COMMIT")
        except Exception as exc:  # whatever it was, no transaction stays open
            await driver.roll_back(connection, exc)
            raise


async def _drop(driver: Driver, connection: Any, number: int) -> None:
    await driver.execute(connection, f"DELETE FROM memory_models WHERE number = {number}")
    await driver.execute(connection, f"DROP INDEX IF EXISTS memory_vectors_near_{number}")


LEFT_BEHIND = tuple(
    f"DELETE FROM {table} WHERE model NOT IN (SELECT number FROM memory_models)"
    for table in ("memory_unembedded", "memory_vectors", "memory_details")
)
"""Removes what is kept for models that are no longer there."""

WALK = """
WITH here AS (
    SELECT last_user, last_id FROM memory_models
    WHERE number = $1 AND NOT is_walked FOR UPDATE
), next AS MATERIALIZED (
    SELECT DISTINCT user_key, id FROM (
        SELECT p.user_key, p.id FROM memory_passages AS p, here
        WHERE (p.user_key, p.id) > (here.last_user, here.last_id)
        ORDER BY p.user_key, p.id LIMIT $2
    ) AS following
), queued AS (
    INSERT INTO memory_unembedded (model, user_key, id)
    SELECT $1::smallint, user_key, id FROM next AS n WHERE NOT EXISTS (
        SELECT 1 FROM memory_vectors AS v
        WHERE v.model = $1 AND v.user_key = n.user_key AND v.id = n.id
    ) ORDER BY user_key, id ON CONFLICT DO NOTHING
), last AS (SELECT user_key, id FROM next ORDER BY user_key DESC, id DESC LIMIT 1)
UPDATE memory_models AS m SET
    last_user = coalesce((SELECT user_key FROM last), m.last_user),
    last_id = coalesce((SELECT id FROM last), m.last_id),
    is_walked = NOT EXISTS (SELECT 1 FROM next)
FROM here WHERE m.number = $1
RETURNING NOT m.is_walked
"""
"""Has the next items that were there before a model wait for it; tells whether there are more."""
