"""Vectors in a SQLite file: of which model, of which items, and which items still wait.

Whoever writes a row need not know of any model: rows beyond a model's mark wait, and triggers
note what was changed below it. See `migrations.py`.
"""

import json
import sqlite3
from collections.abc import Sequence
from hashlib import blake2b
from itertools import accumulate, pairwise
from typing import Any

from orbiter.memory.backends.sql.embedder import Embedded, Model, PendingItem, is_unit
from orbiter.memory.backends.sqlite.run import end
from orbiter.memory.backends.sqlite.schema import INDEXING, not_expired, read_indexed_by

__all__ = [
    "CHANGES",
    "CHUNK",
    "HAS_WRONG_DETAILS",
    "STRAY_DETAILS",
    "begin",
    "check",
    "count",
    "digest",
    "finish",
    "keep",
    "keep_details",
    "mend",
    "models",
    "read_details",
    "take",
    "tidy",
]

CHANGES = 16_384
"""How many of the newest changes are kept; who is further behind reads all vectors again."""

CHUNK = 256
"""Vectors of a model that is gone removed at a time."""

_LIVING = "SELECT id, name, dimension, state = 'current' FROM memory_models WHERE state <> 'gone'"


def models(connection: sqlite3.Connection) -> list[Model]:
    """Return the current model and one that is coming."""
    rows = connection.execute(f"{_LIVING} ORDER BY state = 'current' DESC, id DESC")
    return [Model(key, name, size, bool(current)) for key, name, size, current in rows]


def begin(connection: sqlite3.Connection, name: str, dimension: int) -> Model:
    """Register a model for which every item waits, or go on with the one that was begun."""
    have = models(connection)
    for model in have:
        if not model.is_current and (model.name, model.dimension) == (name, dimension):
            return model
    connection.execute("UPDATE memory_models SET state = 'gone' WHERE state = 'coming'")
    state = "coming" if any(model.is_current for model in have) else "current"
    key = connection.execute(
        "INSERT INTO memory_models (name, dimension, state) VALUES (?, ?, ?) RETURNING id",
        [name, dimension, state],
    ).fetchone()[0]
    return Model(key, name, dimension, state == "current")


def finish(connection: sqlite3.Connection, model: Model) -> None:
    """Make a model the current one; the vectors of others are removed bit by bit."""
    if not _is_here(connection, model):
        return
    connection.execute("UPDATE memory_models SET state = 'gone' WHERE id <> ?", [model.key])
    connection.execute("UPDATE memory_models SET state = 'current' WHERE id = ?", [model.key])


def tidy(connection: sqlite3.Connection) -> bool:
    """Remove some of what is no longer needed; tell whether there is more."""
    ends = connection.execute("SELECT max(id), min(id) FROM memory_changes").fetchone()
    if ends[0] is not None and ends[0] - ends[1] > CHANGES + CHUNK:
        _prune(connection)
    gone = connection.execute("SELECT id FROM memory_models WHERE state = 'gone'").fetchone()
    if gone is None:
        return False
    connection.execute("BEGIN IMMEDIATE")
    left = 0
    for table, key in (("memory_vectors", "id"), ("memory_unembedded", "place")):
        left += connection.execute(
            f"DELETE FROM {table} WHERE model = ?1 AND {key} IN"
            f" (SELECT {key} FROM {table} WHERE model = ?1 LIMIT {CHUNK})",
            gone,
        ).rowcount
    if not left:
        connection.execute("DELETE FROM memory_models WHERE id = ?", gone)
    connection.execute("COMMIT")
    return True


def _prune(connection: sqlite3.Connection) -> None:
    connection.execute(
        f"DELETE FROM memory_changes WHERE id < (SELECT max(id) FROM memory_changes) - {CHANGES}"
    )


def _is_here(connection: sqlite3.Connection, model: Model) -> bool:
    rows = connection.execute(
        "SELECT 1 FROM memory_models WHERE id = ? AND state <> 'gone'", [model.key]
    )
    return rows.fetchone() is not None


# Embedding

_NOTED = (
    f"SELECT u.place, i.content, {INDEXING}, 0 FROM memory_unembedded AS u"
    " JOIN memory_items AS i ON i.rowid = u.place"
    " WHERE u.model = ?1 AND i.deleted = 0 AND u.failures {} ORDER BY u.failures, u.place LIMIT ?2"
)
_BEYOND = (
    f"SELECT rowid, content, {INDEXING}, 1 FROM memory_items WHERE deleted = 0"
    " AND rowid > (SELECT embedded_to FROM memory_models WHERE id = ?1) ORDER BY rowid LIMIT ?2"
)


def take(connection: sqlite3.Connection, model: Model, count: int) -> list[PendingItem] | None:
    """Return items that wait: those that were changed, then new ones; if none, what failed.

    `None` if the model is no longer there.
    """
    items: list[PendingItem] = []
    connection.execute("BEGIN")
    try:
        if not _is_here(connection, model):
            return None
        for sql in (_NOTED.format("= 0"), _BEYOND):
            if len(items) < count:
                rows = connection.execute(sql, [model.key, count - len(items)])
                items += [_pending(row) for row in rows]
        if not items:
            rows = connection.execute(_NOTED.format("> 0"), [model.key, count])
            items = [_pending(row, is_put_off=True) for row in rows]
    finally:
        connection.execute("COMMIT")
    return items


def _pending(row: Sequence[Any], *, is_put_off: bool = False) -> PendingItem:
    place, text, indexing, is_new = row
    return PendingItem((place, is_new), _text(text), is_put_off, read_indexed_by(indexing))


def keep(
    connection: sqlite3.Connection,
    model: Model,
    done: Sequence[tuple[PendingItem, Embedded | None]],
) -> None:
    """Write what was made of what is unchanged; see to it that all else goes on waiting."""
    if not _is_here(connection, model):
        return
    last = 0
    for ((place, is_beyond), content, _, indexed_by), made in done:
        last = max(last, place if is_beyond else 0)
        row = connection.execute(
            f"SELECT content, {INDEXING} FROM memory_items WHERE rowid = ?", [place]
        ).fetchone()
        if row is None or (_text(row[0]), read_indexed_by(row[1])) != (content, indexed_by):
            continue
        if made is None:
            connection.execute(
                "INSERT INTO memory_unembedded VALUES (?, ?, 1)"
                " ON CONFLICT (model, place) DO UPDATE SET failures = failures + 1",
                [model.key, place],
            )
            continue
        key = connection.execute(
            "INSERT INTO memory_vectors (model, place, digest, vectors) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (model, place) DO UPDATE"
            " SET digest = excluded.digest, vectors = excluded.vectors RETURNING id",
            [model.key, place, digest(content, indexed_by), made.vectors.tobytes()],
        ).fetchone()[0]
        keep_details(connection, key, made.details)
        connection.execute(
            "DELETE FROM memory_unembedded WHERE model = ? AND place = ?", [model.key, place]
        )
    if last:
        _advance(connection, model, last)


def _advance(connection: sqlite3.Connection, model: Model, last: int) -> None:
    """Move the mark; what was changed or restored meanwhile is noted as waiting."""
    connection.execute(
        "INSERT INTO memory_unembedded (model, place) SELECT ?1, rowid FROM memory_items AS i"
        " WHERE rowid > (SELECT embedded_to FROM memory_models WHERE id = ?1) AND rowid <= ?2"
        " AND deleted = 0"
        " AND NOT EXISTS (SELECT 1 FROM memory_vectors WHERE model = ?1 AND place = i.rowid)"
        " AND NOT EXISTS (SELECT 1 FROM memory_unembedded WHERE model = ?1 AND place = i.rowid)",
        [model.key, last],
    )
    connection.execute(
        "UPDATE memory_models SET embedded_to = min(?2, (SELECT max(rowid) FROM memory_items))"
        " WHERE id = ?1 AND embedded_to < ?2",
        [model.key, last],
    )


def count(connection: sqlite3.Connection, model: Model) -> int | None:
    """Return how many items wait; `None` if the model is no longer there."""
    row = connection.execute(
        "SELECT (SELECT count(*) FROM memory_unembedded AS u"
        " JOIN memory_items AS i ON i.rowid = u.place WHERE u.model = m.id AND i.deleted = 0)"
        " + (SELECT count(*) FROM memory_items WHERE deleted = 0 AND rowid > m.embedded_to)"
        " FROM memory_models AS m WHERE id = ? AND state <> 'gone'",
        [model.key],
    ).fetchone()
    return int(row[0]) if row else None


def _text(content: Any) -> str:
    return content if isinstance(content, str) else ""  # what was made a BLOB by hand says nothing


def digest(content: str, indexed_by: object = None) -> bytes:
    """Return what tells one text from another, and what is indexed from what is not."""
    text = content if indexed_by is None else json.dumps([content, indexed_by])
    return blake2b(text.encode(), digest_size=8).digest()


# Looking after it

HAS_WRONG_DETAILS = """
CASE WHEN json_valid(d.sizes) THEN
    json_array_length(d.sizes) <> length(v.vectors) / (4 * m.dimension)
    OR (SELECT total(value) FROM json_each(d.sizes)) <> length(d.details)
ELSE d.id IS NOT NULL END
"""
"""Whether the details `d`, if any, cannot be those of the passages whose vectors are `v`."""

STRAY_DETAILS = "SELECT id FROM memory_details WHERE id NOT IN (SELECT id FROM memory_vectors)"

_WRONG = f"""
SELECT v.id, v.place FROM memory_vectors AS v
JOIN memory_models AS m ON m.id = v.model AND m.state <> 'gone'
LEFT JOIN memory_items AS i ON i.rowid = v.place
LEFT JOIN memory_details AS d ON d.id = v.id
WHERE i.rowid IS NULL OR length(v.vectors) % (4 * m.dimension)
OR v.digest <> orbiter_digest(i.content, {INDEXING}) OR {HAS_WRONG_DETAILS}
OR NOT orbiter_are_units(v.vectors, m.dimension)
"""
_MISSING = """
SELECT m.id, i.rowid FROM memory_models AS m JOIN memory_items AS i ON i.rowid <= m.embedded_to
WHERE m.state <> 'gone' AND i.deleted = 0
AND NOT EXISTS (SELECT 1 FROM memory_vectors WHERE model = m.id AND place = i.rowid)
AND NOT EXISTS (SELECT 1 FROM memory_unembedded WHERE model = m.id AND place = i.rowid)
"""


def check(connection: sqlite3.Connection) -> list[str]:
    """Return where the vectors and the rows disagree."""
    _give_digest(connection)
    problems = []
    wrong = len(connection.execute(_WRONG).fetchall())
    if wrong:
        problems.append(f"the vectors or details of {wrong} rows do not match their texts")
    stray = len(connection.execute(STRAY_DETAILS).fetchall())
    if stray:
        problems.append(f"{stray} rows of details belong to no vectors")
    missing = len(connection.execute(_MISSING).fetchall())
    if missing:
        problems.append(f"{missing} rows have no vectors and are not queued for embedding")
    return problems


def mend(connection: sqlite3.Connection) -> None:
    """Remove wrong vectors, and have what has none wait for them."""
    _give_digest(connection)
    wrong = [(key,) for key, _ in connection.execute(_WRONG).fetchall()]
    connection.executemany("DELETE FROM memory_vectors WHERE id = ?", wrong)
    connection.execute(f"DELETE FROM memory_details WHERE id IN ({STRAY_DETAILS})")
    connection.execute(f"INSERT INTO memory_unembedded (model, place) {_MISSING}")


def _give_digest(connection: sqlite3.Connection) -> None:
    connection.create_function(
        "orbiter_digest",
        2,
        lambda text, indexing: digest(_text(text), read_indexed_by(indexing)),
        deterministic=True,
    )

    def are_units(vectors: Any, dimension: int) -> bool:
        size, data = 4 * dimension, bytes(vectors)
        return all(is_unit(data[at : at + size]) for at in range(0, len(data), size))

    connection.create_function("orbiter_are_units", 2, are_units, deterministic=True)


_READ_DETAILS = f"""
SELECT i.id, d.sizes, d.details FROM memory_items AS i
CROSS JOIN memory_vectors AS v ON v.model = ?1 AND v.place = i.rowid
CROSS JOIN memory_details AS d ON d.id = v.id
WHERE i.id IN (SELECT value FROM json_each(?2)) AND i.deleted = 0 AND {not_expired("i")}
"""


def keep_details(connection: sqlite3.Connection, key: int, details: Sequence[bytes] | None) -> None:
    """Write the details that belong to a row of vectors, in place of what was there."""
    if details is None:
        connection.execute("DELETE FROM memory_details WHERE id = ?", [key])
        return
    connection.execute(
        "INSERT OR REPLACE INTO memory_details VALUES (?, ?, ?)",
        [key, json.dumps([len(each) for each in details]), b"".join(details)],
    )


def read_details(
    connection: sqlite3.Connection, model: Model, item_ids: Sequence[str]
) -> dict[str, list[bytes]] | None:
    """Return the details of each item that has them; `None` if the model is not there."""
    connection.execute("BEGIN")
    try:
        if connection.execute(
            "SELECT 1 FROM memory_models WHERE id = ? AND state <> 'gone'", [model.key]
        ).fetchone():
            rows = connection.execute(_READ_DETAILS, [model.key, json.dumps(item_ids)]).fetchall()
            return {item_id: _cut(sizes, details) for item_id, sizes, details in rows}
        return None
    finally:
        end(connection)


def _cut(sizes: str, details: bytes) -> list[bytes]:
    if "," not in sizes:  # one passage, as most texts have
        return [details]
    ends = accumulate(json.loads(sizes), initial=0)
    return [details[start:stop] for start, stop in pairwise(ends)]
