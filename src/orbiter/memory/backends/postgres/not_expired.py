"""How a statement leaves out items that are over, by the server's clock, which is everyone's."""

from orbiter.memory.backends.sql.rows import END_WIDTH, ENDS

__all__ = ["NOW", "end", "has_end", "not_expired", "over"]

NOW = "to_char(statement_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"+00:00\"')"
"""The present instant as `extra_json` has it; one for all rows of a statement."""


def has_end(row: str = "") -> str:
    """Return the condition that an item has an end; *row* is its row's name and a dot, or none.

    Of a long text only the beginning is read.
    """
    return f"substr({row}extra_json, 1, {len(ENDS)}) = '{ENDS}'"


def end(row: str = "") -> str:
    """Return how the instant is read when it is over; only of an item that has an end."""
    return f'substr({row}extra_json, {len(ENDS) + 1}, {END_WIDTH}) COLLATE "C"'


def over(row: str = "memory_items.") -> str:
    """Return the condition that an item is over, which an index serves."""
    return f"{has_end(row)} AND {end(row)} <= {NOW}"


def not_expired(row: str = "memory_items.") -> str:
    """Return the condition that an item is not over.

    As a CASE: of what it is made of, the planner would ask for each index whether it follows.
    """
    return f"CASE WHEN {has_end(row)} THEN {end(row)} > {NOW} ELSE true END"
