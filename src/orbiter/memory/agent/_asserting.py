"""Assertions as they are made of what somebody says, and what to say if none can be. Pure."""

from dataclasses import replace
from datetime import datetime

from pydantic import ValidationError

from orbiter.memory.errors import QueryError
from orbiter.memory.model.facts import ALWAYS, FactMemory, FactSpan, dated, show_value
from orbiter.memory.model.query import check_instant

__all__ = ["assertion", "nothing_yet", "span_said"]

_SHOWN = 60


def assertion(**fields: object) -> FactMemory:
    """Return an assertion, or raise a `QueryError` of one line that says what is wrong with it."""
    try:
        return FactMemory(**fields)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        name = ".".join(map(str, first["loc"]))
        text = first["msg"].removeprefix("Value error, ")
        told = f"`{name}`: {text}" if name else text
        raise QueryError(" ".join(told.split())) from None


def nothing_yet(key: str, at: datetime, span: FactSpan, now: datetime) -> QueryError:
    """Return what to say of an end before the first value."""
    value = show_value(span.fact.value)
    shown = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…"
    when = dated(replace(span, end=None), now=now)
    return QueryError(
        f"nothing is true of `{key}` at {at.isoformat(timespec='seconds')} that could end; it is "
        f"`{shown}` {when}: give a later `at`, or "
        f"`retract({span.fact.id!r})` if that was never true"
    )


def span_said(
    valid_from: datetime | None, valid_to: datetime | None, said: datetime
) -> dict[str, datetime | None]:
    """Return from when to when it holds, if it is said at that instant.

    Of what is over by then, nobody knows since when it held.
    """
    end = None if valid_to is None else check_instant("valid_to", valid_to)
    start = said if end is None or end > said else ALWAYS
    if valid_from is not None:
        start = check_instant("valid_from", valid_from)
    return {"valid_from": start, "valid_to": end}
