"""Details of passages: read item by item, apart from the vectors beside which they are kept."""

from collections.abc import Sequence

from orbiter.memory.backends.postgres.dialect import PostgresDialect
from orbiter.memory.backends.postgres.migration_2 import NO_VECTORS
from orbiter.memory.backends.sql.dialect import Statement, Steps
from orbiter.memory.backends.sql.embedder import Model

__all__ = ["read"]


def read(
    dialect: PostgresDialect, model: Model, item_ids: Sequence[str]
) -> Steps[dict[str, list[bytes]] | None]:
    """Return the details of each item that has them; `None` if the model is not there."""
    # Item by item, fenced off by OFFSET: no plan reads the whole table. What an item was before it
    # changed does not count.
    rows = yield Statement(
        f"SELECT m.id, d.details FROM (SELECT id, {dialect.owner} AS user_key"
        f" FROM {dialect.everything} WHERE id = ANY($1::text[]) AND deleted = 0"
        f" AND {dialect.not_expired()} OFFSET 0) AS m,"
        " LATERAL (SELECT passage, details FROM memory_details AS d WHERE d.user_key = m.user_key"
        f" AND d.id = m.id AND d.model = $2 AND d.passage <> {NO_VECTORS} OFFSET 0) AS d"
        " WHERE EXISTS (SELECT 1 FROM memory_models WHERE number = $2)"
        " AND NOT EXISTS (SELECT 1 FROM memory_pending AS p"
        " WHERE p.user_key = m.user_key AND p.id = m.id) ORDER BY m.id, d.passage",
        [list(item_ids), model.key],
    )
    if not rows:
        there = yield Statement("SELECT 1 FROM memory_models WHERE number = $1", [model.key])
        return {} if there else None
    found: dict[str, list[bytes]] = {}
    for item_id, details in rows:
        found.setdefault(item_id, []).append(details)
    return found
