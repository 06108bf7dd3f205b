"""The page of facts: a time line per key, and two times to look at it from.

`as_of` is a moment of the world, `known_at` one of the knowledge about it. Facts are of exactly
one scope, so a reader who may see everyone's first chooses a user.
"""

import json
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

from orbiter.memory.agent import ScopedMemory
from orbiter.memory.errors import QueryError, UnsupportedError
from orbiter.memory.model.facts import FactEntry, FactMemory, by_key, dated, show_value
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.model.query import SCOPE_FIELDS
from orbiter.memory.recall.time_bounds import read_bound
from orbiter.memory.server.dashboard.fact_timeline import axis_of, row_of
from orbiter.memory.server.dashboard.page import Ask, Data, Pages, Toast, scope_of

__all__ = ["as_moment", "pages", "read_facts"]


pages = Pages()

PAGE = 1_000
MAX_FACTS = 5_000
"""Assertions that are read at most; the page says if there are more."""
_MAX_KEYS = 100
_MAX_SCOPES = 60
_SPANS = {"5y": 1_826, "1y": 365, "30d": 30, "1d": 1}


_QUOTED = 3
_AT_ONCE = 20
"""Assertions of a history that are shown at a time."""


async def read_facts(handle: ScopedMemory, *, exactly: bool) -> tuple[list[FactMemory], bool]:
    """Return the newest facts of a handle, of every status, and whether these are all.

    Those of narrower scopes are among them unless it is to be *exactly* this one.
    """
    where: dict[str, object] = {
        name: None for name in SCOPE_FIELDS if getattr(handle.scope, name) is None
    }
    facts: list[FactMemory] = []
    cursor: str | None = None
    while len(facts) < MAX_FACTS:
        page = await handle.list(
            memory_type="fact", where=where if exactly else None, limit=PAGE, cursor=cursor
        )
        facts += (item for item in page if isinstance(item, FactMemory))
        cursor = page.next
        if cursor is None:
            return facts, True
    return facts, False


@pages.page("/facts", "facts.html", title="Facts")
async def facts(ask: Ask) -> Data:
    """Show what is true of one scope, or whose facts there are."""
    names_somebody = bool(scope_of(ask.handle.scope))
    if not names_somebody:
        return {"whose": await _scopes_of(ask.handle), "sample": PAGE, "rows": None}
    return await _page_data(ask)


async def _scopes_of(handle: ScopedMemory) -> list[Data]:
    """Return which scopes have facts, among the newest of them."""
    page = await handle.list(memory_type="fact", limit=PAGE)
    keys: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for item in page:
        scope = tuple(scope_of(item.metadata).items())
        keys.setdefault(scope, []).append(str(item.metadata.extra.get("fact")))
    return [
        {"scope": dict(scope), "assertions": len(own), "keys": list(dict.fromkeys(own))[:4]}
        for scope, own in sorted(keys.items(), key=lambda each: -len(each[1]))[:_MAX_SCOPES]
        if scope
    ]


async def _page_data(ask: Ask, *, opened: str = "") -> Data:
    """Return everything that the drawing is made of."""
    handle, now = ask.handle, datetime.now(UTC)
    owner = scope_of(handle.scope)
    as_of = as_moment("as_of", ask.text("as_of"))
    known_at = as_moment("known_at", ask.text("known_at"))
    span, wanted, only = ask.text("span"), ask.text("q").strip(), ask.text("key")
    facts, is_all = await read_facts(handle, exactly=True)
    known = known_at or datetime.max.replace(tzinfo=UTC)
    # What is recorded has happened, even by a clock that is ahead of this one.
    last = max((fact.recorded_at for fact in facts if fact.is_known(known)), default=now)
    moment = as_of or max(known_at or now, min(last, now + timedelta(days=1)))
    keyed = by_key(
        fact for fact in facts if fact.status == "accepted" and fact.recorded_at <= known
    )
    named = [key for key in keyed if wanted.lower() in key.lower() and only in ("", key)]
    named.sort(key=str.casefold)
    skip = min(ask.number("skip", 0, most=MAX_FACTS), len(named))
    page_keys = {key: keyed[key] for key in named[skip : skip + _MAX_KEYS]}
    axis = axis_of(
        (fact for of_key in page_keys.values() for fact in of_key),
        now=now,
        as_of=as_of,
        days=_SPANS.get(span),
    )
    rows = [
        row_of(key, of_key, axis=axis, as_of=moment, known_at=known)
        for key, of_key in page_keys.items()
    ]
    view = {"as_of": as_field(as_of), "known_at": as_field(known_at), "span": span, "q": wanted}
    return {
        "whose": None,
        "owner": owner,
        "rows": rows,
        "axis": axis,
        "scrub_at": (max(axis.start, as_of or now) - axis.start) // axis.step,
        "skip": skip,
        "page_size": _MAX_KEYS,
        "view": view | {"key": only},
        "is_past": as_of is not None or known_at is not None,
        "keys": len(named),
        "is_all": is_all,
        "most": MAX_FACTS,
        "drafts": sum(1 for fact in facts if fact.status == "draft"),
        "conflicts": sum(len(row.conflicts) for row in rows),
        "narrower": [each for each in await _scopes_of(handle) if each["scope"] != owner][:8],
        "opened": opened or only,
        **(await history_of(ask, only, known_at=known_at) if only else {"history": None}),
    }


# Changes


@pages.part("POST", "/ui/facts/put", "parts/facts.html", role="write")
async def put(ask: Ask) -> Toast:
    """Record what is true."""
    form = await ask.form()
    key = ask.text("of") or form.get("key", "").strip()
    if not key:
        raise QueryError("a fact needs a key, such as `home_city`")
    before = {entry.fact.id for entry in await ask.handle.facts.history(key)}
    made = await ask.handle.facts.put(
        key,
        _value(form),
        valid_from=as_moment("valid_from", form.get("valid_from", "")),
        valid_to=as_moment("valid_to", form.get("valid_to", "")),
        source=form.get("source", "").strip() or None,
    )
    message = f"Saved: {key} is {show_value(made.value)[:80]}."
    # What was valid already is not recorded twice, and so nothing of it is to be undone.
    undo = "" if made.id in before else _undo_address(ask, made)
    return Toast(await _page_data(ask, opened=key), message, undo, "#facts" if undo else "")


def _value(form: dict[str, str]) -> object:
    text = form.get("value", "")
    if form.get("kind") != "json":
        if not text.strip():
            raise QueryError("a fact needs a value")
        return text.strip()
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        raise QueryError(
            "the value is not valid JSON; write `42`, `true` or `[1, 2]`, or choose text"
        ) from None
    return value


@pages.part("POST", "/ui/facts/end", "parts/facts.html", role="write")
async def end(ask: Ask) -> Toast:
    """Say that what holds is over."""
    key, form = ask.text("of"), await ask.form()
    made = await ask.handle.facts.end(key, at=as_moment("at", form.get("at", "")))
    data = await _page_data(ask, opened=key)
    if made is None:
        return Toast(data, "There is no current value, so nothing ended.")
    return Toast(data, "Ended.", _undo_address(ask, made), target="#facts")


def _undo_address(ask: Ask, made: FactMemory) -> str:
    named = {**ask.request.query_params, "of": made.key, "id": made.id}
    return f"/ui/facts/retract?{urlencode(named)}"


@pages.part("POST", "/ui/facts/retract", "parts/facts.html", role="write")
async def retract(ask: Ask) -> Toast:
    """Say that an assertion was wrong, or take it back; a newer one stays."""
    fact = await ask.handle.facts.retract(ask.text("id"))
    entries = await ask.handle.facts.history(fact.key)
    is_newest = not any(
        entry.fact.retracted_at is None and entry.fact.recorded_at > fact.recorded_at
        for entry in entries
    )
    now = await ask.handle.facts.get(fact.key)
    value = "there is no value now" if now is None else f"it is {show_value(now.value)[:80]}"
    message = f"Retracted: {value}." if is_newest else f"Retracted. A newer change stays: {value}."
    return Toast(await _page_data(ask, opened=fact.key), message)


def as_moment(name: str, text: str) -> datetime | None:
    """Return the time that a field names, `None` for an empty one, or raise `QueryError`."""
    return read_bound(name, text.strip() or None)


def as_field(moment: datetime | None) -> str:
    """Return *moment* as a field for a date and a time takes it."""
    return "" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M")


@pages.part("GET", "/ui/facts/history", "parts/fact_history.html")
async def history(ask: Ask) -> Data:
    """Show every assertion of a key."""
    known_at = as_moment("known_at", ask.text("known_at"))
    earlier = ask.number("earlier", 0, most=10**9)
    page = await history_of(ask, ask.text("key"), known_at=known_at, earlier=earlier)
    view = {name: ask.text(name) for name in ("as_of", "known_at", "span", "q")}
    return {**page, "key": ask.text("key"), "view": view}


async def history_of(ask: Ask, key: str, *, known_at: datetime | None, earlier: int = 0) -> Data:
    """Return assertions of a key, the newest first, with who said so and from what.

    The *earlier* newest ones are skipped.
    """
    view = ask.handle.facts if known_at is None else ask.handle.as_of(known_at).facts
    entries: list[Data] = []
    newest = (await view.history(key))[::-1]
    for entry in newest[earlier : earlier + _AT_ONCE]:
        fact = entry.fact
        sources = [await ask.handle.get(each) for each in fact.source_ids[:_QUOTED]]
        entries.append(
            {
                "fact": fact,
                "value": "Ended" if fact.is_end else show_value(fact.value),
                "when": _held(entry),
                "by": await _who(ask.handle, fact.id),
                "is_retracted": fact.retracted_at is not None,
                "sources": [item for item in sources if isinstance(item, MemoryItem)],
                "more_sources": max(0, len(fact.source_ids) - _QUOTED),
            }
        )
    left = max(0, len(newest) - earlier - _AT_ONCE)
    return {"history": entries, "earlier": earlier, "left": left, "at_once": _AT_ONCE}


async def _who(handle: ScopedMemory, fact_id: str) -> str | None:
    """Return who said so; a store that keeps no versions does not know."""
    try:
        return (await handle.history(fact_id))[0].by
    except (UnsupportedError, IndexError):
        return None


def _held(entry: FactEntry) -> str:
    """Return for which time an assertion held, in words."""
    if entry.fact.retracted_at is not None and not entry.spans:
        return "retracted: never valid"
    if entry.fact.is_end:
        return f"no value {dated(entry.fact)}"
    if not entry.spans:
        return "never valid: other values cover its whole period"
    now, periods = datetime.now(UTC), ""
    for span in entry.spans:
        verb = "was valid" if span.end is not None and span.end <= now else "valid"
        verb = "will be valid" if span.start > now else verb
        joined = f" and {verb}" if periods and not periods.startswith(verb) else " and"
        periods += (joined if periods else verb) + f" {dated(span, now=now) or 'always'}"
    return periods
