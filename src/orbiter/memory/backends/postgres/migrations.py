"""The migrations of a Postgres store after the second: append-only scripts.

Version 3: when items expire, when they came, and the audit log. The log is one table in every
layout: a chain has one end. Under row-level security whoever acts for a user can add to it and read
nothing of it; where the chain ends is all they must know. Version 4: conversations as they were
added, and versions as time goes. Version 5: the system messages of conversations. Version 6: facts
by their keys and times. Version 7: entries of key and value. Version 8: items that are not indexed.
"""

from orbiter.memory.backends.postgres.derived_tables import FAMILY, OWNER
from orbiter.memory.backends.postgres.where import end, has_end, is_expired
from orbiter.memory.model.items import INDEXED_BY
from orbiter.memory.model.query import SCOPE_FIELDS

__all__ = [
    "CONVERSATIONS",
    "ENTRIES",
    "EXPIRY",
    "FACTS",
    "FACT_FIELDS",
    "FACT_TIMES",
    "GOING",
    "INDEXED",
    "RECORDED",
    "SYSTEM",
    "VERSION_TIMES",
    "audit",
    "eighth",
    "fifth",
    "fourth",
    "seventh",
    "sixth",
    "third",
]

_AUDIT = """
-- What was done, one entry after the other; each hash is of its entry and the hash before it.
CREATE TABLE memory_audit (
    number BIGINT PRIMARY KEY,
    at TEXT COLLATE "C" NOT NULL,
    action TEXT COLLATE "C" NOT NULL,
    actor TEXT COLLATE "C",
    whose TEXT COLLATE "C" NOT NULL,
    call TEXT COLLATE "C",
    item_id TEXT COLLATE "C",
    version INTEGER,
    items TEXT COLLATE "C",
    total BIGINT NOT NULL,
    digest TEXT COLLATE "C",
    ends_at TEXT COLLATE "C",
    hash TEXT COLLATE "C" NOT NULL
);
CREATE INDEX memory_audit_item ON memory_audit (item_id, number) WHERE item_id IS NOT NULL;
CREATE INDEX memory_audit_whose ON memory_audit (whose, number);
-- An honest mistake is stopped here; a dishonest one is found by `verify_audit`.
CREATE FUNCTION memory_audit_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is only ever added to';
END
$$;
CREATE TRIGGER memory_audit_unchanged BEFORE UPDATE OR DELETE ON memory_audit
    FOR EACH ROW EXECUTE FUNCTION memory_audit_refuse();
CREATE TRIGGER memory_audit_kept BEFORE TRUNCATE ON memory_audit
    FOR EACH STATEMENT EXECUTE FUNCTION memory_audit_refuse();
-- Where the chain ends, and the key of the digests of scopes. Whoever writes locks this row first.
CREATE TABLE memory_audit_head (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    number BIGINT NOT NULL,
    hash TEXT NOT NULL,
    key TEXT,
    begun INTEGER NOT NULL
);
INSERT INTO memory_audit_head VALUES (1, 0, '', NULL, 0);
-- Without its salt a digest tells nothing, so a salt goes with its item.
CREATE TABLE memory_audit_salts (id TEXT COLLATE "C" PRIMARY KEY, salt TEXT NOT NULL);
CREATE FUNCTION memory_items_unsalt() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
{moved}    DELETE FROM memory_audit_salts WHERE id = OLD.id;
    RETURN OLD;
END
$$;
-- Before: once the row is gone, row-level security shows nobody what belonged to it. By its name it
-- comes after `memory_items_remove`, which takes the id of what is removed for good.
CREATE TRIGGER memory_items_unsalt BEFORE DELETE ON memory_items
    FOR EACH ROW EXECUTE FUNCTION memory_items_unsalt();
"""

_MOVED = """\
    -- A row that moves to another user's partition is deleted here and lives on there.
    IF EXISTS (SELECT 1 FROM memory_ids WHERE id = OLD.id AND user_key <> OLD.user_key) THEN
        RETURN OLD;
    END IF;
"""

_RLS = """
ALTER TABLE memory_audit ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY memory_audit_add ON memory_audit FOR INSERT WITH CHECK (true);
CREATE POLICY memory_audit_read ON memory_audit FOR SELECT
    USING (coalesce(current_setting('orbiter.user_id', true), '') = '');
ALTER TABLE memory_audit_salts ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY memory_audit_salts_own ON memory_audit_salts
    USING (id IN (SELECT id FROM memory_items))
    WITH CHECK (true);
"""


def audit(partitions: int, *, row_security: bool) -> str:
    """Return the script that makes the tables of the log."""
    script = _AUDIT.replace("{moved}", _MOVED if partitions else "")
    return script + (_RLS if row_security else "")


EXPIRY = f"""
CREATE INDEX memory_items_expiry ON memory_items (({end()})) WHERE {has_end()};
-- An item that is over is gone: whoever writes its id before it is removed writes a new one, which
-- came now. By its name this runs after the trigger that keeps versions.
CREATE FUNCTION memory_items_renew() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM memory_versions WHERE id = OLD.id;
    INSERT INTO memory_versions (id, version, metadata, ended_at) VALUES (NEW.id, 0,
        jsonb_strip_nulls(jsonb_build_object('user_id', NEW.metadata->>'user_id')),
        clock_timestamp());
    NEW.version := 1;
    RETURN NEW;
END
$$;
CREATE TRIGGER memory_items_renew BEFORE UPDATE ON memory_items
    FOR EACH ROW WHEN ({is_expired("OLD.")}
        AND current_setting('orbiter.moving', true) IS DISTINCT FROM 'on')
    EXECUTE FUNCTION memory_items_renew();
"""
"""The index of items that have an end, and what happens to one that is over."""

FACTS = """
CREATE INDEX memory_items_facts ON memory_items ((metadata->>'user_id'), created_at, seq)
    WHERE deleted = 0 AND (metadata->>'user_id') IS NOT NULL AND memory_type = 'fact';
"""
"""The index of facts by their owner."""

RECORDED = """
-- For those who read the items one after the other, as they came.
CREATE INDEX memory_items_place ON memory_items (seq);
-- When an item came that says it was created at another time than about now. A move between stores
-- brings the instant along, and keeps this quiet. The owner is what row-level security asks for.
CREATE FUNCTION memory_items_record() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO memory_versions (id, version, metadata, ended_at) VALUES (NEW.id, 0,
        jsonb_strip_nulls(jsonb_build_object('user_id', NEW.metadata->>'user_id')),
        clock_timestamp())
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;
CREATE TRIGGER memory_items_record AFTER INSERT ON memory_items FOR EACH ROW
    WHEN (NEW.version = 1 AND NEW.created_at
        NOT BETWEEN clock_timestamp() - interval '1 second' AND clock_timestamp()
        AND current_setting('orbiter.moving', true) IS DISTINCT FROM 'on')
    EXECUTE FUNCTION memory_items_record();
"""
"""When an item came that is dated otherwise."""


GOING = f"""
-- Whoever is making something of an item holds the lock of its owner. What they have made is seen
-- by whoever asks after them, and never by whoever asks before.
CREATE OR REPLACE FUNCTION memory_items_forget() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    owner CONSTANT TEXT := {OWNER.format("OLD.")};
BEGIN
    PERFORM pg_advisory_xact_lock({FAMILY}, hashtext(owner));
    DELETE FROM memory_unembedded WHERE user_key = owner AND id = OLD.id
        AND model IN (SELECT number FROM memory_models);
    DELETE FROM memory_vectors WHERE user_key = owner AND id = OLD.id;
    DELETE FROM memory_details WHERE user_key = owner AND id = OLD.id;
    WITH old AS (
        DELETE FROM memory_passages WHERE user_key = owner AND id = OLD.id RETURNING terms
    ), less AS (SELECT term, count(*) AS n FROM old, unnest(terms) AS term GROUP BY term
    ), gone AS (
        DELETE FROM memory_terms AS t USING less
            WHERE t.user_key = owner AND t.term = less.term AND t.passages <= less.n
    ) UPDATE memory_terms AS t SET passages = t.passages - less.n FROM less
        WHERE t.user_key = owner AND t.term = less.term AND t.passages > less.n;
    RETURN OLD;
END
$$;
-- What the next version has too is left NULL, unless that is another user's: it may be erased by
-- somebody who does not see this one.
CREATE OR REPLACE FUNCTION memory_items_keep_version() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    is_whole CONSTANT BOOLEAN := {OWNER.format("OLD.")} <> {OWNER.format("NEW.")};
BEGIN
    IF NEW.version = OLD.version THEN
        NEW.version := OLD.version + 1;
    END IF;
    INSERT INTO memory_versions VALUES (
        OLD.id, OLD.version,
        CASE WHEN is_whole OR NEW.content <> OLD.content THEN OLD.content END,
        OLD.memory_type, OLD.status, OLD.metadata,
        CASE WHEN is_whole OR NEW.extra_json <> OLD.extra_json THEN OLD.extra_json END,
        OLD.created_at, OLD.updated_at, OLD.deleted, clock_timestamp(), NULL)
    ON CONFLICT DO NOTHING;
    RETURN NEW;
END
$$;
"""
"""How items go, and change hands."""

_HUSKS = """
-- Of a version that is erased by its user it stays when it ended; whose item it is sees it.
ALTER POLICY memory_versions_own ON memory_versions
    WITH CHECK (metadata->>'user_id' = current_setting('orbiter.user_id', true)
        OR metadata IS NULL);
"""


def third(partitions: int, *, row_security: bool) -> str:
    """Return the script that makes version 3 of version 2."""
    script = EXPIRY + FACTS + RECORDED + GOING + (_HUSKS if row_security else "")
    return script + audit(partitions, row_security=row_security)


_USER, _SESSION, _TASK = (f"(metadata->>'{name}')" for name in ("user_id", "session_id", "task_id"))

CONVERSATIONS = f"""
CREATE INDEX memory_items_talk ON memory_items ({_SESSION}, {_USER}, seq)
    WHERE deleted = 0 AND {_SESSION} IS NOT NULL;
CREATE INDEX memory_items_task_talk ON memory_items ({_TASK}, {_USER}, seq)
    WHERE deleted = 0 AND {_TASK} IS NOT NULL;
"""
"""The indexes of conversations: by session, and by task.

Three names of the greatest length do not fit into a row of an index; of one user, few sessions have
a task of the same name.
"""

VERSION_TIMES = f"""
-- A version ends after it began, also where the clock was set back meanwhile.
CREATE OR REPLACE FUNCTION memory_items_keep_version() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    is_whole CONSTANT BOOLEAN := {OWNER.format("OLD.")} <> {OWNER.format("NEW.")};
    last CONSTANT TIMESTAMPTZ := coalesce(
        (SELECT max(ended_at) FROM memory_versions WHERE id = OLD.id),
        CASE WHEN OLD.version > 1 THEN OLD.updated_at ELSE OLD.created_at END);
BEGIN
    IF NEW.version = OLD.version THEN
        NEW.version := OLD.version + 1;
    END IF;
    INSERT INTO memory_versions VALUES (
        OLD.id, OLD.version,
        CASE WHEN is_whole OR NEW.content <> OLD.content THEN OLD.content END,
        OLD.memory_type, OLD.status, OLD.metadata,
        CASE WHEN is_whole OR NEW.extra_json <> OLD.extra_json THEN OLD.extra_json END,
        OLD.created_at, OLD.updated_at, OLD.deleted,
        greatest(clock_timestamp(), last + interval '1 microsecond'), NULL)
    ON CONFLICT DO NOTHING;
    RETURN NEW;
END
$$;
"""
"""How a version is kept, with a time that never goes back."""


def fourth(partitions: int, *, row_security: bool) -> str:  # noqa: ARG001 - as for each version
    """Return the script that makes version 4 of version 3."""
    return CONVERSATIONS + VERSION_TIMES


SYSTEM = f"""
CREATE INDEX memory_items_system ON memory_items ({_SESSION}, {_USER}, seq)
    WHERE deleted = 0 AND memory_type = 'system' AND {_SESSION} IS NOT NULL;
CREATE INDEX memory_items_task_system ON memory_items ({_TASK}, {_USER}, seq)
    WHERE deleted = 0 AND memory_type = 'system' AND {_TASK} IS NOT NULL;
"""
"""The indexes of the system messages of conversations, which every window has."""


def fifth(partitions: int, *, row_security: bool) -> str:  # noqa: ARG001 - as for each version
    """Return the script that makes version 5 of version 4."""
    return SYSTEM


def _fact(name: str) -> str:
    return f"((extra_json::json->>'{name}') COLLATE \"C\")"


_FACT_TIMES = ("valid_from", "recorded_at", "valid_to", "retracted_at")
_IS_INSTANT = "LIKE '____-__-__T__:__:__.______+00:00'"
_NAMED = "metadata->'extra'->>'fact'"
_PLAIN_FACT = " AND ".join(
    [
        f"{_NAMED} = {_fact('key')}",
        *(f"{_fact(name)} {_IS_INSTANT}" for name in _FACT_TIMES[:2]),
        *(f"coalesce({_fact(name)} {_IS_INSTANT}, true)" for name in _FACT_TIMES[2:]),
    ]
)
_WHOSE_FACT = " || chr(31) || ".join(
    [*(f"coalesce(metadata->>'{name}', '')" for name in SCOPE_FIELDS), f"({_NAMED})"]
)
FACT_FIELDS = {name: _fact(name) for name in _FACT_TIMES} | {
    "key": f"(CASE WHEN {_PLAIN_FACT} THEN md5({_WHOSE_FACT}) END)",
    "latest": f"greatest({_fact('recorded_at')}, {_fact('retracted_at')})",
}
"""How the fields of a fact are read. The key is a digest of it and its scope, as names of the
greatest length do not fit into a row of an index; of a fact whose times somebody wrote otherwise
than we do, so that their order as text is not that of time, it is NULL."""

FACT_TIMES = f"""
CREATE INDEX memory_items_fact_times ON memory_items ({FACT_FIELDS["key"]},
    {FACT_FIELDS["valid_from"]}, {FACT_FIELDS["recorded_at"]}, id)
    WHERE deleted = 0 AND memory_type = 'fact';
CREATE INDEX memory_items_fact_news ON memory_items ({FACT_FIELDS["key"]},
    ({FACT_FIELDS["latest"]})) WHERE deleted = 0 AND memory_type = 'fact';
"""
"""The indexes of facts by their scope and key: when they begin, and when they became known."""


def sixth(partitions: int, *, row_security: bool) -> str:  # noqa: ARG001 - as for each version
    """Return the script that makes version 6 of version 5."""
    return FACT_TIMES


ENTRIES = """
-- Times are microseconds since 1970.
CREATE TABLE memory_entries (
    scope TEXT COLLATE "C" NOT NULL,
    path TEXT COLLATE "C" NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    value BYTEA NOT NULL,
    metadata JSONB NOT NULL,
    version INTEGER NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    ttl DOUBLE PRECISION,
    expires_at BIGINT,
    PRIMARY KEY (scope, path, key)
);
CREATE INDEX memory_entries_user ON memory_entries ((metadata->>'user_id'));
CREATE INDEX memory_entries_expiry ON memory_entries (expires_at) WHERE expires_at IS NOT NULL;
"""
"""The table of entries, one in every layout, with the digest of their scope first."""

_ENTRIES_RLS = """
ALTER TABLE memory_entries ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY memory_entries_own ON memory_entries
    USING (metadata->>'user_id' = current_setting('orbiter.user_id', true));
"""


def seventh(partitions: int, *, row_security: bool) -> str:  # noqa: ARG001 - as for each version
    """Return the script that makes version 7 of version 6."""
    return ENTRIES + (_ENTRIES_RLS if row_security else "")


INDEXED = f"""
DROP TRIGGER memory_items_await_again ON memory_items;
CREATE TRIGGER memory_items_await_again BEFORE UPDATE ON memory_items
    FOR EACH ROW WHEN (OLD.content <> NEW.content OR OLD.deleted <> NEW.deleted
        OR OLD.metadata->>'user_id' IS DISTINCT FROM NEW.metadata->>'user_id'
        OR OLD.metadata->'extra'->'{INDEXED_BY}'
            IS DISTINCT FROM NEW.metadata->'extra'->'{INDEXED_BY}')
    EXECUTE FUNCTION memory_items_await_again();
"""
"""When terms and vectors are made again: also when an item is indexed otherwise."""


def eighth(partitions: int, *, row_security: bool) -> str:  # noqa: ARG001 - as for each version
    """Return the script that makes version 8 of version 7."""
    return INDEXED
