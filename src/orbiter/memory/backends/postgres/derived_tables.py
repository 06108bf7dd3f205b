"""The tables of what is derived from items, version 2 of the schema, and what is pending.

Nothing here is the only copy of anything. Terms and vectors stand beside live items only; an item
whose text, user or deletion changes waits in `memory_pending` until they are rebuilt. Whoever
makes or removes them holds the advisory lock of the user (`LOCKED`), so that the counts in
`memory_terms` and what was read of an item stay true until the end of the transaction.
"""

from collections.abc import Sequence
from typing import Any

from orbiter.memory.text import words

__all__ = [
    "AWAIT_ALL",
    "CUT",
    "FAMILY",
    "LOCKED",
    "NO_VECTORS",
    "OWN",
    "OWNER",
    "QUEUE_ALL",
    "RENEW_TERMS",
    "TABLES",
    "as_owner",
    "columns",
    "lost_vectors",
    "second",
]

OWNER = "coalesce({}metadata->>'user_id', '')"
"""The user that a row belongs to, as the tables here name it."""

FAMILY = 0x6F726274
"""The first half of the advisory locks of users: "orbt"."""

LOCKED = (
    f"SELECT pg_advisory_xact_lock({FAMILY}, key) FROM (SELECT DISTINCT hashtext(name) AS key"
    " FROM unnest($1::text[]) AS name ORDER BY 1) AS keys"
)
"""Locks users in one order, so that two who lock several never wait for each other in a circle."""

CUT = ("memory_passages", "memory_terms", "memory_vectors", "memory_details")
"""Tables that are partitioned where the items are."""

OWN = (*CUT, "memory_pending", "memory_unembedded")
"""Tables whose rows belong to a user."""

NO_VECTORS = -1
"""The passage of a mark in `memory_details`: of some passages, a model made no vector."""

TABLES = (*OWN, "memory_models", "memory_words")

_VECTORS = """\
-- Little-endian float32 until the first model is registered where there is pgvector.
CREATE TABLE {if_lost}memory_vectors (
    user_key TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    passage SMALLINT NOT NULL,
    model SMALLINT NOT NULL,
    embedding BYTEA NOT NULL,
    PRIMARY KEY (user_key, id, model, passage)
){by_user};"""

# A term that begins with a space is the mark of an owner: it cuts the index of terms by user, and
# its count is that of the user's passages.
_TABLES = """
CREATE TABLE memory_pending (
    user_key TEXT COLLATE "C" NOT NULL,
    place BIGINT GENERATED ALWAYS AS IDENTITY,
    id TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (user_key, place)
);
CREATE TABLE memory_passages (
    user_key TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    passage SMALLINT NOT NULL,
    terms TEXT[] COLLATE "C" NOT NULL,
    PRIMARY KEY (user_key, id, passage)
){by_user};
-- New terms wait in a list that every question reads: a quarter of its usual length.
CREATE INDEX memory_passages_terms ON memory_passages USING gin (terms)
    WITH (gin_pending_list_limit = 1024);
CREATE TABLE memory_terms (
    term TEXT COLLATE "C" NOT NULL,
    user_key TEXT COLLATE "C" NOT NULL,
    passages BIGINT NOT NULL,
    PRIMARY KEY (term, user_key)
){by_user};
CREATE TABLE memory_words (version INTEGER NOT NULL);
-- Items that were there before a model wait for it once a walk over `memory_passages` has come by.
CREATE TABLE memory_models (
    number SMALLINT PRIMARY KEY,
    name TEXT NOT NULL,
    dimension INTEGER NOT NULL,
    is_current BOOLEAN NOT NULL,
    last_user TEXT COLLATE "C" NOT NULL DEFAULT '',
    last_id TEXT COLLATE "C" NOT NULL DEFAULT '',
    is_walked BOOLEAN NOT NULL DEFAULT false
);
{vectors}
-- Apart from the vectors, so that reading these reads no details. An item has a row for each of its
-- passages, or none.
CREATE TABLE memory_details (
    user_key TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    passage SMALLINT NOT NULL,
    model SMALLINT NOT NULL,
    details BYTEA NOT NULL,
    PRIMARY KEY (user_key, id, model, passage)
){by_user};
CREATE TABLE memory_unembedded (
    model SMALLINT NOT NULL,
    user_key TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    place BIGINT GENERATED ALWAYS AS IDENTITY,
    put_off INTEGER NOT NULL DEFAULT 0,
    taken_until TIMESTAMPTZ NOT NULL DEFAULT '-infinity',
    taken_by TEXT,
    PRIMARY KEY (model, user_key, id)
);
CREATE INDEX memory_unembedded_turn ON memory_unembedded (model, put_off, place);
"""

# By the statement where rows are new, which is a tenth of the cost by the row; by the row where
# they change, where a trigger runs for each of them anyway. No key is unique, so that a write
# never waits for whoever is at work on an earlier version.
_TRIGGERS = f"""
CREATE FUNCTION memory_items_await() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO memory_pending (user_key, id)
        SELECT {OWNER.format("")}, id FROM added WHERE deleted = 0;
    RETURN NULL;
END
$$;
CREATE TRIGGER memory_items_await AFTER INSERT ON memory_items
    REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION memory_items_await();
CREATE FUNCTION memory_items_await_again() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO memory_pending (user_key, id) VALUES ({OWNER.format("NEW.")}, NEW.id);
    IF {OWNER.format("OLD.")} <> {OWNER.format("NEW.")} THEN
        INSERT INTO memory_pending (user_key, id) VALUES ({OWNER.format("OLD.")}, OLD.id);
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER memory_items_await_again BEFORE UPDATE ON memory_items
    FOR EACH ROW WHEN (OLD.content <> NEW.content OR OLD.deleted <> NEW.deleted
        OR OLD.metadata->>'user_id' IS DISTINCT FROM NEW.metadata->>'user_id')
    EXECUTE FUNCTION memory_items_await_again();
-- What is removed for good leaves no word behind, and none is counted any more.
CREATE FUNCTION memory_items_forget() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    owner CONSTANT TEXT := {OWNER.format("OLD.")};
BEGIN
    DELETE FROM memory_unembedded WHERE user_key = owner AND id = OLD.id
        AND model IN (SELECT number FROM memory_models);
    DELETE FROM memory_vectors WHERE user_key = owner AND id = OLD.id;
    DELETE FROM memory_details WHERE user_key = owner AND id = OLD.id;
    IF EXISTS (SELECT 1 FROM memory_passages WHERE user_key = owner AND id = OLD.id) THEN
        PERFORM pg_advisory_xact_lock({FAMILY}, hashtext(owner));
        WITH old AS (
            DELETE FROM memory_passages WHERE user_key = owner AND id = OLD.id RETURNING terms
        ), less AS (SELECT term, count(*) AS n FROM old, unnest(terms) AS term GROUP BY term
        ), gone AS (
            DELETE FROM memory_terms AS t USING less
                WHERE t.user_key = owner AND t.term = less.term AND t.passages <= less.n
        ) UPDATE memory_terms AS t SET passages = t.passages - less.n FROM less
            WHERE t.user_key = owner AND t.term = less.term AND t.passages > less.n;
    END IF;
    RETURN OLD;
END
$$;
CREATE TRIGGER memory_items_forget BEFORE DELETE ON memory_items
    FOR EACH ROW EXECUTE FUNCTION memory_items_forget();
"""

AWAIT_ALL = f"""
INSERT INTO memory_pending (user_key, id)
    SELECT {OWNER.format("")}, id FROM memory_items WHERE deleted = 0 ORDER BY 1, seq;
"""
"""Has the terms and vectors of every item made."""

RENEW_TERMS = f"""
INSERT INTO memory_pending (user_key, place, id) OVERRIDING SYSTEM VALUE
    SELECT {OWNER.format("")}, -1 - seq, id FROM memory_items WHERE deleted = 0
    ON CONFLICT DO NOTHING;
"""
"""Has the terms of every item rebuilt; places below 0 say that its text is the same as before."""

QUEUE_ALL = """
INSERT INTO memory_unembedded (model, user_key, id)
    SELECT DISTINCT {number}::smallint, user_key, id FROM memory_passages
    ON CONFLICT DO NOTHING;
UPDATE memory_models SET is_walked = true WHERE number = {number};
"""
"""Has every item wait for a model at once, where no walk would see all of them."""


def columns(rows: Sequence[Sequence[Any]], count: int) -> list[list[Any]]:
    """Return rows as the arrays that `unnest` takes."""
    return [[row[place] for row in rows] for place in range(count)]


def as_owner(script: str, *tables: str) -> str:
    """Return a script that sees every row of *tables*, if the owner of the tables runs it.

    A policy that is forced holds the owner, too, who acts for nobody while tables are made.
    """
    let_go = "".join(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY;\n" for table in tables)
    hold = "".join(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY;\n" for table in tables)
    return let_go + script + hold


def second(partitions: int, *, row_security: bool) -> str:
    """Return the script that makes version 2 of version 1."""
    by_user = " PARTITION BY HASH (user_key)" if partitions else ""
    vectors = _VECTORS.format(if_lost="", by_user=by_user)
    script = _TABLES.format(vectors=vectors, by_user=by_user)
    parts = [(table, part) for table in CUT for part in range(partitions)]
    script += "".join(
        f"CREATE TABLE {table}_p{part} PARTITION OF {table}"
        f" FOR VALUES WITH (MODULUS {partitions}, REMAINDER {part});\n"
        for table, part in parts
    )
    script += _TRIGGERS + (as_owner(AWAIT_ALL, "memory_items") if row_security else AWAIT_ALL)
    if row_security:
        names = (*OWN, *(f"{table}_p{part}" for table, part in parts))
        script += "".join(
            f"ALTER TABLE {name} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;\n"
            for name in names
        )
        script += "".join(
            f"CREATE POLICY {table}_own ON {table}"
            " USING (user_key = current_setting('orbiter.user_id', true));\n"
            for table in OWN
        )
    return script + f"INSERT INTO memory_words VALUES ({words.VERSION});\n"


def lost_vectors(partitions: int, *, row_security: bool) -> str:
    """Return the script that makes the table of vectors, or parts of it, where they are lost."""
    by_user = " PARTITION BY HASH (user_key)" if partitions else ""
    script = _VECTORS.format(if_lost="IF NOT EXISTS ", by_user=by_user) + "\n"
    parts = [f"memory_vectors_p{part}" for part in range(partitions)]
    script += "".join(
        f"CREATE TABLE IF NOT EXISTS {name} PARTITION OF memory_vectors"
        f" FOR VALUES WITH (MODULUS {partitions}, REMAINDER {part});\n"
        for part, name in enumerate(parts)
    )
    if row_security:
        script += "".join(
            f"ALTER TABLE {name} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;\n"
            for name in ("memory_vectors", *parts)
        )
        script += (
            "DROP POLICY IF EXISTS memory_vectors_own ON memory_vectors;\n"
            "CREATE POLICY memory_vectors_own ON memory_vectors"
            " USING (user_key = current_setting('orbiter.user_id', true));\n"
        )
    return script
