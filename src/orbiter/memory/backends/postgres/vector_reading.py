"""Vectors as bytes, for whoever looks at many at once."""

from array import array
from collections.abc import Sequence

from orbiter.memory.backends.postgres.dialect import PostgresDialect
from orbiter.memory.backends.postgres.models import Kind
from orbiter.memory.backends.postgres.vectors import has_model, parts
from orbiter.memory.backends.sql.dialect import Statement, Steps
from orbiter.memory.backends.sql.embedder import Model

__all__ = ["read"]


def read(
    dialect: PostgresDialect, kind: Kind, model: Model, item_ids: Sequence[str]
) -> Steps[dict[str, bytes] | None]:
    """Return the vectors of each item that has any; `None` if the model is not there."""
    # As pgvector sends them: as bytes they are read many times as fast as text or as numbers.
    value = "vector_send(embedding)" if kind.is_vector else "embedding"
    found: dict[str, bytes] = {}
    for part in parts(item_ids):
        rows = yield Statement(
            f"SELECT id, {value} FROM (SELECT id, {dialect.owner} AS user_key"
            f" FROM {dialect.everything} WHERE id = ANY($1::text[]) AND deleted = 0"
            f" AND {dialect.not_expired()}) AS m"
            f" JOIN memory_vectors USING (user_key, id) WHERE model = {model.key}"
            " AND NOT EXISTS (SELECT 1 FROM memory_pending AS p"
            " WHERE p.user_key = m.user_key AND p.id = m.id) ORDER BY id, passage",
            [list(part)],
        )
        for item_id, sent in rows:
            vector = _received(sent, model.dimension) if kind.is_vector else sent
            found[item_id] = found.get(item_id, b"") + vector
    return found if (yield from has_model(model)) else None


def _received(sent: bytes, dimension: int) -> bytes:
    """Return a vector as pgvector sends it: big-endian, after its length, with zeros behind."""
    numbers = array("f", sent[4 : 4 + 4 * dimension])
    numbers.byteswap()
    return numbers.tobytes()
