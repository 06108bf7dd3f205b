"""The history of items: their versions, items as they were at a moment, and which fact holds then.

A version is in force from the moment the one before it ended, also where of that one nothing is
left but when it ended: it was another's and is erased, or was never brought along. Such a row, with
a number below that of the first version, also notes when an item came that dates itself otherwise;
else it is `created_at`, or `updated_at` if the first version that is known is not the first there
was. What was removed for good has no past, and what is another's now has none here.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from orbiter.memory.backends.sql.dialect import Args, Dialect, Rows, Statement, Steps
from orbiter.memory.backends.sql.operations import MAX_LIMIT, Place, beyond, place_of
from orbiter.memory.backends.sql.rows import READ, decode, iso
from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.model.query import SCOPE_FIELDS, Cursor, Query
from orbiter.memory.model.validation import to_utc

if TYPE_CHECKING:
    from orbiter.memory.model.reports import ConversationInfo, ItemVersion

__all__ = ["CHUNK", "as_of", "conversation", "deciding_facts", "moment", "versions"]

CHUNK = 500
"""Rows that are read at a time where each must be looked into."""

_SAME = frozenset(("content", "extra_json"))
"""Columns that are not written where the next version has the same."""


def as_of(
    dialect: Dialect,
    moment: datetime,
    query: Query,
    item_ids: Sequence[str] | None,
    before: Cursor | None,
) -> Steps[list[MemoryItem]]:
    """Return the items that matched then, newest first."""
    items: list[MemoryItem] = []
    last: Place | Cursor | None = None
    if before is not None:
        last = yield from place_of(dialect, "before", before, query.wanted)
    looks_inside = bool(query.needle) or query.condition is not None
    while len(items) < query.limit:
        size = min(query.limit - len(items), MAX_LIMIT)
        if looks_inside:
            size = max(size, CHUNK)
        # By themselves, as the indexes of a scope hold what is not deleted only.
        rows: list[Sequence[Any]] = []
        for deleted in (0, 1):
            rows += yield _select(dialect, moment, query, item_ids, last, deleted, size)
        rows.sort(key=lambda row: (row[-2], row[-1]), reverse=True)
        rows = rows[:size]
        for row in rows:
            item = decode(row[: len(READ)])
            # What an item was while it was another's is not shown either.
            if query.matches(item) and not _was_over(item, moment):
                items.append(item)
        if len(rows) < size:
            break
        last = Place(rows[-1][-2], rows[-1][-1])
    return items[: query.limit]


def _was_over(item: MemoryItem, moment: datetime) -> bool:
    end: object = item.expires_at
    return isinstance(end, datetime) and end <= moment  # a kind of item may call another so


def _select(
    dialect: Dialect,
    moment: datetime,
    query: Query,
    item_ids: Sequence[str] | None,
    last: Place | Cursor | None,
    deleted: int,
    size: int,
) -> Statement:
    args = Args(dialect)
    at = args.bind(dialect.instant(moment))
    conditions = [f"deleted = {deleted}", *dialect.scope(query.wanted, args), dialect.not_expired()]
    if item_ids is not None:
        conditions.append(dialect.by_ids(args, item_ids))
    if last is not None:
        conditions.append(beyond(dialect, "<", last, args))
    then = [
        "i.came <= " + at,
        "(v.id IS NULL OR v.memory_type IS NOT NULL)",  # else nobody knows what it was
        f"coalesce(v.deleted, {deleted}) = 0",
    ]
    if query.memory_type is not None:
        then.append(f"coalesce(v.memory_type, i.memory_type) = {args.bind(query.memory_type)}")
    came = (
        "coalesce((SELECT CASE WHEN b.memory_type IS NULL THEN b.ended_at WHEN b.version > 1"
        " THEN b.updated_at ELSE memory_items.created_at END FROM memory_versions AS b"
        " WHERE b.id = memory_items.id ORDER BY b.version LIMIT 1),"
        " CASE WHEN version > 1 THEN updated_at ELSE created_at END) AS came"
    )
    return Statement(
        f"SELECT {', '.join(map(_then, _columns(dialect)))}, i.created_at, i.place"
        f" FROM (SELECT *, {dialect.place} AS place, {came} FROM memory_items"
        f" WHERE {' AND '.join(conditions)}) AS i"
        " LEFT JOIN memory_versions AS v ON v.id = i.id AND v.version = (SELECT min(w.version)"
        f" FROM memory_versions AS w WHERE w.id = i.id AND w.ended_at > {at})"
        f" WHERE {' AND '.join(then)}"
        f" ORDER BY i.created_at DESC, i.place DESC LIMIT {size}",
        args,
    )


def _columns(dialect: Dialect) -> list[tuple[str, str]]:
    """Return the columns of an item, and what each is read as."""
    casts = dialect.columns.split(", ")
    return [
        (name, cast.removeprefix(name).partition(" AS ")[0])
        for name, cast in zip(READ, casts, strict=True)
    ]


def _then(column: tuple[str, str]) -> str:
    """Return how a column is read as it was."""
    name, cast = column
    if name not in _SAME:
        return f"coalesce(v.{name}, i.{name}){cast}"
    later = (
        f"(SELECT w.{name} FROM memory_versions AS w WHERE w.id = i.id AND w.version > v.version"
        f" AND w.{name} IS NOT NULL ORDER BY w.version LIMIT 1)"
    )
    return f"coalesce(v.{name}, {later}, i.{name}){cast}"


def conversation(row: Sequence[Any]) -> "ConversationInfo":
    """Return a conversation from its row."""
    from orbiter.memory.model.reports import ConversationInfo  # noqa: PLC0415 - few list them

    *who, count, first, last = row
    metadata = MemoryMetadata.model_validate(dict(zip(SCOPE_FIELDS, who, strict=True)))
    return ConversationInfo(metadata, count, moment(first), moment(last))


def moment(value: str | datetime) -> datetime:
    """Return a time that a row has, whatever the driver makes of it."""
    return to_utc(datetime.fromisoformat(value) if isinstance(value, str) else value)


def versions(past: Rows, now: Rows) -> "list[ItemVersion]":
    """Return versions from rows that leave out what the next version has too."""
    from orbiter.memory.model.reports import ItemVersion  # noqa: PLC0415 - few read the past

    found: list[tuple[MemoryItem, int]] = []
    whole: Sequence[Any] = ()
    for row in (*now, *reversed(past)):
        if row[2] is None:  # only tells who wrote the first version
            continue
        values = [
            old if old is not None else new for old, new in zip(row, whole or row, strict=False)
        ]
        whole = values
        found.append((decode(values[: len(READ)]), values[len(READ)]))
    found.reverse()
    written = {row[READ.index("version")] + 1: row[-2:] for row in past}
    found_versions = []
    was_deleted = False
    for place, (item, deleted) in enumerate(found):
        at, by = written.get(item.version, (item.created_at, None))
        if deleted != was_deleted:
            change = "deleted" if deleted else "restored"
        else:
            change = "updated" if place else "added"
        who = by or item.metadata.agent_id or item.metadata.user_id
        found_versions.append(ItemVersion(item, change, moment(at), who))  # type: ignore[arg-type]  # one of four
        was_deleted = bool(deleted)
    return found_versions


def deciding_facts(
    dialect: Dialect,
    key: str,
    metadata: MemoryMetadata,
    moment: datetime,
    known_at: datetime,
    starts: Sequence[datetime] = (),
) -> Steps[Rows]:
    """Return the rows of the assertions that decide what holds of a fact's key at a moment.

    They are what `FactIndex` says.
    Each part is the first row of an index; the last are facts that somebody wrote by hand.
    """
    args = Args(dialect)
    wanted = Query(metadata=metadata).wanted
    scope = ["deleted = 0", "memory_type = 'fact'", *dialect.scope(wanted, args)]
    scope += [dialect.unset(name) for name in SCOPE_FIELDS if name not in wanted]
    fact = dialect.fact_fields
    named = f"{fact['key']} = {args.bind(dialect.fact_key(wanted, key))}"
    then, known = (args.bind(iso(at.astimezone(UTC))) for at in (moment, known_at))
    knows = (
        f"status = 'accepted' AND {fact['recorded_at']} <= {known}"
        f" AND ({fact['retracted_at']} IS NULL OR {fact['retracted_at']} > {known})"
    )
    covers = f"({fact['valid_to']} IS NULL OR {fact['valid_to']} > {then})"
    start, since = fact["valid_from"], fact["recorded_at"]
    ranked = f"ORDER BY {start} DESC, {since} DESC, id DESC LIMIT 1"
    parts = [
        f"{named} AND {start} <= {then} AND {knows} AND {covers} {ranked}",
        f"{named} AND {start} > {then} AND {knows} ORDER BY {start}, {since}, id LIMIT 1",
        f"{named} ORDER BY {fact['latest']} DESC LIMIT 1",
        f"{fact['key']} IS NULL",
    ]
    source = f"FROM memory_items WHERE {' AND '.join(scope)} AND {dialect.not_expired()}"
    rows = f"SELECT {dialect.columns} {source}"
    if starts:
        begun = [args.bind(iso(each.astimezone(UTC))) for each in starts]
        after = (
            f"(SELECT {start} {source} AND {named} AND {start} > {each} AND {knows}"
            f" ORDER BY {start} LIMIT 1)"
            for each in begun
        )
        parts.append(f"{named} AND {start} IN ({', '.join((*begun, *after))})")
    read = (f"SELECT * FROM ({rows} AND {part}) AS part" for part in parts)
    return (yield Statement(" UNION ALL ".join(read), args))
