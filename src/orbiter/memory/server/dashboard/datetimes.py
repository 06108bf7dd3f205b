"""Moments as a page writes and reads them: a field for a date and a time has no zone, so UTC."""

from datetime import UTC, date, datetime, time

from orbiter.memory.errors import QueryError

__all__ = ["as_field", "as_moment"]


def as_moment(name: str, text: str) -> datetime | None:
    """Return the moment that a field holds, `None` for an empty one, or raise `QueryError`.

    A date is the beginning of its day; without a zone, it is UTC.
    """
    said = text.strip()
    if not said:
        return None
    try:
        found = (
            datetime.combine(date.fromisoformat(said), time())
            if len(said) == len("2026-03-01")
            else datetime.fromisoformat(said)
        )
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise QueryError(
            f"`{name}` is no date: `{said[:40]}`; write it as `2026-03-01` or `2026-03-01T12:30`"
        ) from None


def as_field(moment: datetime | None) -> str:
    """Return *moment* as a field for a date and a time takes it."""
    return "" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M")
