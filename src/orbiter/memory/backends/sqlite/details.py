"""Details in a SQLite file: they belong to a row of vectors, and go when it goes, by a trigger.

See `migration_2.py`.
"""

import json
import sqlite3
from collections.abc import Sequence
from itertools import accumulate, pairwise

from orbiter.memory.backends.sql.embedder import Model
from orbiter.memory.backends.sqlite.not_expired import living
from orbiter.memory.backends.sqlite.run import end

__all__ = ["IS_WRONG", "STRAY", "keep", "read"]

_READ = f"""
SELECT i.id, d.sizes, d.details FROM memory_items AS i
CROSS JOIN memory_vectors AS v ON v.model = ?1 AND v.place = i.rowid
CROSS JOIN memory_details AS d ON d.id = v.id
WHERE i.id IN (SELECT value FROM json_each(?2)) AND i.deleted = 0 AND {living("i")}
"""

IS_WRONG = """
CASE WHEN json_valid(d.sizes) THEN
    json_array_length(d.sizes) <> length(v.vectors) / (4 * m.dimension)
    OR (SELECT total(value) FROM json_each(d.sizes)) <> length(d.details)
ELSE d.id IS NOT NULL END
"""
"""Whether the details `d`, if any, cannot be those of the passages whose vectors are `v`."""

STRAY = "SELECT id FROM memory_details WHERE id NOT IN (SELECT id FROM memory_vectors)"


def keep(connection: sqlite3.Connection, key: int, details: Sequence[bytes] | None) -> None:
    """Write the details that belong to a row of vectors, in place of what was there."""
    if details is None:
        connection.execute("DELETE FROM memory_details WHERE id = ?", [key])
        return
    connection.execute(
        "INSERT OR REPLACE INTO memory_details VALUES (?, ?, ?)",
        [key, json.dumps([len(each) for each in details]), b"".join(details)],
    )


def read(
    connection: sqlite3.Connection, model: Model, item_ids: Sequence[str]
) -> dict[str, list[bytes]] | None:
    """Return the details of each item that has them; `None` if the model is not there."""
    connection.execute("BEGIN")
    try:
        if connection.execute(
            "SELECT 1 FROM memory_models WHERE id = ? AND state <> 'gone'", [model.key]
        ).fetchone():
            rows = connection.execute(_READ, [model.key, json.dumps(item_ids)]).fetchall()
            return {item_id: _cut(sizes, details) for item_id, sizes, details in rows}
        return None
    finally:
        end(connection)


def _cut(sizes: str, details: bytes) -> list[bytes]:
    ends = accumulate(json.loads(sizes), initial=0)
    return [details[start:stop] for start, stop in pairwise(ends)]
