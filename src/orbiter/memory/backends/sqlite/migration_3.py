"""What SQLite keeps for the years: when items end, when they came, and what was done to them.

Together these are one version of the schema.
"""

from orbiter.memory.backends.sql.rows import END_WIDTH, ENDS
from orbiter.memory.backends.sqlite.audit_tables import AUDIT

__all__ = ["EXPIRY", "FACTS", "LASTING", "RECORDED", "end", "has_end"]


def has_end(row: str = "") -> str:
    """Return the condition that an item has an end; *row* is its row's name and a dot, or none."""
    return f"substr({row}extra_json, 1, {len(ENDS)}) = '{ENDS}'"


def end(row: str = "") -> str:
    """Return how the instant is read when it is over; only of an item that has an end."""
    return f"substr({row}extra_json, {len(ENDS) + 1}, {END_WIDTH})"


EXPIRY = f"""
CREATE INDEX memory_items_expiry ON memory_items ({end()}) WHERE {has_end()};
"""
"""The index of items that have an end."""

FACTS = """
CREATE INDEX memory_items_facts ON memory_items (json_extract(metadata, '$.user_id'), created_at)
    WHERE deleted = 0 AND memory_type = 'fact';
"""
"""The index of facts by their owner."""

RECORDED = ""
"""When an item came that is dated otherwise is version 0 in `memory_versions`. `keeping.note`
writes it: a trigger, even one that does nothing, makes every insert half as slow again."""

LASTING = EXPIRY + FACTS + RECORDED + AUDIT
