"""How a statement leaves out items that are over."""

from orbiter.memory.backends.sqlite.migration_3 import end, has_end

__all__ = ["NOW", "OVER", "living"]

# SQLite's own clock: to call Python from a thread that reads costs more than all the rest. It
# knows milliseconds, so it is set to the next: an item is gone up to one early, and never late.
NOW = "strftime('%Y-%m-%dT%H:%M:%f', 'now', '+0.001 seconds')"

OVER = (
    f"SELECT over.rowid FROM memory_items AS over WHERE {has_end('over.')}"
    f" AND {end('over.')} < {NOW}"
)
"""The places of all items that are over, read from their index."""


def living(item: str = "memory_items") -> str:
    """Return the condition that one row is of an item that is not over."""
    return (
        f"({item}.extra_json = '{{}}' OR NOT {has_end(f'{item}.')} OR {end(f'{item}.')} >= {NOW})"
    )
