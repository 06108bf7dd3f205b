"""What puts a conversation into the order in which it was added, and versions into that of time.

Together these are one version of the schema. An index ends with the rowid, which counts insertions,
so the newest messages of a conversation are read from its end on.
"""

__all__ = ["CONVERSATIONS", "ORDER", "VERSION_TIMES"]

_USER, _SESSION, _TASK = (
    f"json_extract(metadata, '$.{name}')" for name in ("user_id", "session_id", "task_id")
)

CONVERSATIONS = f"""
CREATE INDEX memory_items_talk ON memory_items ({_SESSION}, {_USER})
    WHERE deleted = 0 AND {_SESSION} IS NOT NULL;
CREATE INDEX memory_items_task_talk ON memory_items ({_TASK}, {_SESSION}, {_USER})
    WHERE deleted = 0 AND {_TASK} IS NOT NULL;
"""
"""The indexes of conversations: by session, and by task."""

_SAME = "CASE WHEN NEW.{0} IS OLD.{0} THEN NULL ELSE OLD.{0} END"
_NOW = "strftime('%Y-%m-%dT%H:%M:%f000+00:00', 'now')"
# SQLite counts milliseconds; a microsecond is added to the digits. The last second of all has none
# after it.
_NEXT = """CASE WHEN substr(last, 21, 6) < '999999'
            THEN substr(last, 1, 20) || printf('%06d', substr(last, 21, 6) + 1) || '+00:00'
            ELSE coalesce(strftime('%Y-%m-%dT%H:%M:%S.000000+00:00', substr(last, 1, 19),
                '+1 second'), last) END"""

VERSION_TIMES = f"""
DROP TRIGGER memory_items_keep_version;
-- As a trigger, so that a change made by hand is a version too. A version ends after it began, also
-- where the clock was set back meanwhile.
CREATE TRIGGER memory_items_keep_version AFTER UPDATE ON memory_items BEGIN
    INSERT INTO memory_versions
        SELECT OLD.id, OLD.version, {_SAME.format("content")}, OLD.memory_type, OLD.status,
            OLD.metadata, {_SAME.format("extra_json")}, OLD.created_at, OLD.updated_at,
            OLD.deleted, max({_NOW}, {_NEXT}), NULL
        FROM (SELECT coalesce((SELECT max(ended_at) FROM memory_versions WHERE id = OLD.id),
            CASE WHEN OLD.version > 1 THEN OLD.updated_at ELSE OLD.created_at END) AS last)
        WHERE NOT EXISTS (
            SELECT 1 FROM memory_versions WHERE id = OLD.id AND version = OLD.version);
    UPDATE memory_items SET version = OLD.version + 1
        WHERE rowid = NEW.rowid AND version = OLD.version;
END;
"""
"""How a version is kept, with a time that never goes back."""

ORDER = CONVERSATIONS + VERSION_TIMES
