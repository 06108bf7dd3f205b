"""Version 4 of the tables: conversations as they were added, and versions as time goes."""

from orbiter.memory.backends.postgres.migration_2 import OWNER

__all__ = ["CONVERSATIONS", "VERSION_TIMES", "fourth"]

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
