"""The tables of a Postgres store, whole or partitioned by user. Migrations are append-only.

The seed's ten columns, and two that SQLite does without: `seq` counts insertions, as SQLite's
rowid does; `user_key`, only where the table is partitioned, is the user id as a plain column,
because neither a primary key nor a distributed table can be cut along an expression.
"""

from collections.abc import Callable
from typing import NamedTuple

from orbiter.memory.backends.postgres import derived_tables, migrations
from orbiter.memory.model.query import SCOPE_FIELDS

__all__ = [
    "DIGEST",
    "ENTRIES",
    "FOLDED",
    "LOCK",
    "LOOK",
    "MIGRATIONS",
    "TABLES",
    "WORDS",
    "Layout",
    "field",
    "first",
    "tables",
]

LOCK = 0x6F72626974657201
"""The advisory lock under which tables are made and migrated: "orbiter" and a one."""

TABLES = ("memory_items", "memory_versions", "memory_folded", "memory_ids")
"""The tables of version 1; the last only where they are partitioned."""

ENTRIES = "memory_entries"
"""The table of entries, which is one in every layout."""


class Layout(NamedTuple):
    """What a database holds."""

    version: int = 0
    partitions: int = 0
    row_security: bool = False
    is_held: bool = False
    """Whether the policies hold our role; no policy holds a superuser."""


_ITEMS = """
CREATE SEQUENCE memory_items_seq;
CREATE TABLE memory_items (
    id TEXT COLLATE "C" NOT NULL,
    content TEXT NOT NULL,
    memory_type TEXT NOT NULL,
    status TEXT NOT NULL,
    metadata JSONB NOT NULL,
    extra_json TEXT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL,
    deleted INTEGER NOT NULL DEFAULT 0,
    version INTEGER NOT NULL DEFAULT 1,
    seq BIGINT NOT NULL DEFAULT nextval('memory_items_seq'){user_key},
    PRIMARY KEY ({key})
){by_user};
-- Earlier versions. What the next version has too is left NULL.
CREATE TABLE memory_versions (
    id TEXT COLLATE "C" NOT NULL,
    version INTEGER NOT NULL,
    content TEXT,
    memory_type TEXT,
    status TEXT,
    metadata JSONB,
    extra_json TEXT,
    created_at TIMESTAMPTZ,
    updated_at TIMESTAMPTZ,
    deleted INTEGER,
    ended_at TIMESTAMPTZ NOT NULL,
    ended_by TEXT,
    PRIMARY KEY (id, version)
){by_id};
-- Case-folded texts of rows that ASCII's lower case does not fold. One counts only while the
-- digest is that of the row's content: a change made by hand leaves it behind.
CREATE TABLE memory_folded (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    digest BYTEA NOT NULL,
    folded TEXT NOT NULL
){by_id};
"""

_IDS = """
-- Whose partition an id is in; it also keeps ids unique across partitions.
CREATE TABLE memory_ids (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    user_key TEXT COLLATE "C" NOT NULL
) PARTITION BY HASH (id);
"""

_TRIGGER = """
-- As a trigger, so that a change made by hand is a version too.
CREATE FUNCTION memory_items_keep_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.version = OLD.version THEN
        NEW.version := OLD.version + 1;
    END IF;
    INSERT INTO memory_versions VALUES (
        OLD.id, OLD.version,
        CASE WHEN NEW.content = OLD.content THEN NULL ELSE OLD.content END,
        OLD.memory_type, OLD.status, OLD.metadata,
        CASE WHEN NEW.extra_json = OLD.extra_json THEN NULL ELSE OLD.extra_json END,
        OLD.created_at, OLD.updated_at, OLD.deleted, clock_timestamp(), NULL)
    ON CONFLICT DO NOTHING;
    RETURN NEW;
END
$$;
CREATE TRIGGER memory_items_keep_version BEFORE UPDATE ON memory_items
    FOR EACH ROW EXECUTE FUNCTION memory_items_keep_version();
CREATE FUNCTION memory_items_remove() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
{moved}    DELETE FROM memory_versions WHERE id = OLD.id;
    DELETE FROM memory_folded WHERE id = OLD.id;
    RETURN OLD;
END
$$;
-- Before: once the row is gone, row-level security shows nobody what belonged to it.
CREATE TRIGGER memory_items_remove BEFORE DELETE ON memory_items
    FOR EACH ROW EXECUTE FUNCTION memory_items_remove();
"""

_MOVED = """\
    -- A row that moves to another user's partition is deleted here and lives on there.
    IF EXISTS (SELECT 1 FROM memory_ids WHERE id = OLD.id AND user_key <> OLD.user_key) THEN
        RETURN OLD;
    END IF;
    DELETE FROM memory_ids WHERE id = OLD.id;
"""

DIGEST = "sha256(convert_to(content, 'UTF8'))"

FOLDED = 'lower(content COLLATE "C")'
"""The text with ASCII in lower case: what the text index is made of."""

# New trigrams wait in a list until it is full, and whoever fills it merges it. Four times the
# usual size, 2,000 rows of 200 characters or so: merging more at a time is cheaper by the row.
WORDS = f"""
CREATE INDEX memory_items_words ON memory_items USING gin ({FOLDED} gin_trgm_ops)
    WITH (gin_pending_list_limit = 16384);
CREATE INDEX memory_folded_words ON memory_folded USING gin (folded gin_trgm_ops)
    WITH (gin_pending_list_limit = 16384);
"""
"""Needs `pg_trgm`; without it text search reads rows."""

_RLS = """
ALTER TABLE memory_items ENABLE ROW LEVEL SECURITY;
ALTER TABLE memory_items FORCE ROW LEVEL SECURITY;
CREATE POLICY memory_items_own ON memory_items
    USING (metadata->>'user_id' = current_setting('orbiter.user_id', true));
ALTER TABLE memory_versions ENABLE ROW LEVEL SECURITY;
ALTER TABLE memory_versions FORCE ROW LEVEL SECURITY;
CREATE POLICY memory_versions_own ON memory_versions
    USING (metadata->>'user_id' = current_setting('orbiter.user_id', true)
        OR metadata IS NULL AND id IN (SELECT id FROM memory_items));
ALTER TABLE memory_folded ENABLE ROW LEVEL SECURITY;
ALTER TABLE memory_folded FORCE ROW LEVEL SECURITY;
CREATE POLICY memory_folded_own ON memory_folded
    USING (id IN (SELECT id FROM memory_items))
    WITH CHECK (true);
"""

_RLS_IDS = """
ALTER TABLE memory_ids ENABLE ROW LEVEL SECURITY;
ALTER TABLE memory_ids FORCE ROW LEVEL SECURITY;
CREATE POLICY memory_ids_own ON memory_ids
    USING (user_key = current_setting('orbiter.user_id', true));
"""


def field(name: str) -> str:
    """Return the expression that the scope indexes are made of."""
    return f"(metadata->>'{name}')"


def _index(name: str, *fields: str) -> str:
    columns = ", ".join((*(field(each) for each in fields), "created_at", "seq"))
    conditions = "".join(f" AND {field(each)} IS NOT NULL" for each in fields)
    return f"CREATE INDEX {name} ON memory_items ({columns}) WHERE deleted = 0{conditions};\n"


_INDEXES = (
    "CREATE INDEX memory_items_created ON memory_items (created_at, seq) WHERE deleted = 0;\n"
    "CREATE INDEX memory_items_deleted ON memory_items (id) WHERE deleted = 1;\n"
    + "".join(_index(f"memory_items_{name.removesuffix('_id')}", name) for name in SCOPE_FIELDS)
    + _index("memory_items_user_session", "user_id", "session_id")
    # Without them the planner takes every user for an average one.
    + f"CREATE STATISTICS memory_items_scope ON {', '.join(map(field, SCOPE_FIELDS))}"
    " FROM memory_items;\n"
)

_VERSION = """
-- Tokens of transactions, so that one whose answer was lost is not carried out twice.
CREATE TABLE memory_commits (
    token TEXT PRIMARY KEY,
    at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX memory_commits_at ON memory_commits (at);
CREATE TABLE memory_schema (version INTEGER NOT NULL);
INSERT INTO memory_schema VALUES (1);
"""


def first(partitions: int, *, row_security: bool) -> str:
    """Return the script that makes the first version of the tables."""
    if not partitions:
        script = _ITEMS.format(user_key="", key="id", by_user="", by_id="")
    else:
        script = _IDS + _ITEMS.format(
            user_key=',\n    user_key TEXT COLLATE "C" NOT NULL',
            key="user_key, id",
            by_user=" PARTITION BY HASH (user_key)",
            by_id=" PARTITION BY HASH (id)",
        )
        script += "".join(
            f"CREATE TABLE {table}_p{part} PARTITION OF {table}"
            f" FOR VALUES WITH (MODULUS {partitions}, REMAINDER {part});\n"
            for table in TABLES
            for part in range(partitions)
        )
    if row_security:
        script += _RLS + (_RLS_IDS if partitions else "")
        # A partition has no policy, so that its rows are seen through its table or not at all.
        script += "".join(
            f"ALTER TABLE {table}_p{part} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;\n"
            for table in TABLES
            for part in range(partitions)
        )
    trigger = _TRIGGER.replace("{moved}", _MOVED if partitions else "")
    return script + _INDEXES + trigger + _VERSION


def tables(layout: Layout) -> tuple[str, ...]:
    """Return the tables that a database has by now."""
    return (*TABLES[: 4 if layout.partitions else 3], ENTRIES, *derived_tables.TABLES)


MIGRATIONS: tuple[Callable[..., str], ...] = (
    derived_tables.second,
    migrations.third,
    migrations.fourth,
    migrations.fifth,
    migrations.sixth,
    migrations.seventh,
    migrations.eighth,
)
"""From version 1 on, what makes the script of each version; called like `first`. Only ever add to
the end."""

LOOK = """
SELECT
    CASE WHEN to_regclass('memory_schema') IS NULL THEN 0 ELSE 1 END,
    (SELECT count(*) FROM pg_inherits WHERE inhparent = to_regclass('memory_items')),
    coalesce((SELECT relrowsecurity FROM pg_class WHERE oid = to_regclass('memory_items')), false),
    coalesce(row_security_active(to_regclass('memory_items')), false),
    to_regclass('memory_items') IS NOT NULL
"""
"""Whether there are tables of ours, in how many parts, and whether there are any of that name."""
