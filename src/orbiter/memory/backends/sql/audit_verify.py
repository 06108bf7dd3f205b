"""Verification of the audit log: its hash chain, and the items against their entries.

Nothing read here is trusted: a changed byte may have made anything of it. Every column is read as
bytes, and what cannot be read is a problem like any other.
"""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from orbiter.memory.backends.sql.audit_dialect import Fields, as_bytes
from orbiter.memory.backends.sql.audit_reader import (
    CHUNK,
    COLUMNS,
    AuditTables,
    Head,
    from_bytes,
    whole,
)
from orbiter.memory.backends.sql.dialect import Args, Dialect, Statement, Steps
from orbiter.memory.backends.sql.rows import COLUMNS as ITEM
from orbiter.memory.backends.sql.rows import iso
from orbiter.memory.model.audit import REMOVALS, START, AuditProblem, chain, item_digest

__all__ = [
    "MAX_PROBLEMS",
    "ChainCheck",
    "Findings",
    "Known",
    "Logged",
    "Stretch",
    "judge",
    "known",
    "logged",
    "some_entries",
    "some_ids",
]

MAX_PROBLEMS = 1000
"""Problems that are told; whoever has more of them has one."""

_MADE = COLUMNS.index("hash")
_VERSION = ITEM.index("version")


class Stretch(NamedTuple):
    """Some entries, and where the chain ended when they were read."""

    entries: list[Fields]
    head: Head


class Logged(NamedTuple):
    """What the log and the tables have of some items."""

    entries: dict[bytes | None, list[Fields]]
    """Of each item, the number, action, version, digest and end of its entries, in their order."""
    items: dict[str, Fields]
    versions: dict[str, list[Fields]]
    salts: dict[str, bytes]


def some_entries(log: AuditTables, dialect: Dialect, last: int) -> Steps[Stretch]:
    """Return the next entries by number."""
    head = yield from log.head()
    rows = yield Statement(
        f"SELECT {log.audit_dialect.columns(COLUMNS)} FROM memory_audit WHERE memory_audit.number >"
        f" {dialect.parameter(1)} ORDER BY memory_audit.number LIMIT {CHUNK}",
        [last],
    )
    return Stretch([as_bytes(row) for row in rows], head)


def some_ids(log: AuditTables, last: bytes) -> Steps[list[bytes]]:
    """Return the next ids of items that entries name."""
    rows = yield Statement(
        f"SELECT {log.audit_dialect.exact('item_id')}"
        " FROM (SELECT DISTINCT item_id FROM memory_audit"
        f" WHERE item_id > {log.audit_dialect.cursor} AND {log.audit_dialect.is_text('item_id')}"
        f" ORDER BY item_id LIMIT {CHUNK}) AS named ORDER BY named.item_id",
        [log.audit_dialect.bound(last)],
    )
    return [value for row in rows for value in as_bytes(row) if value is not None]


def logged(log: AuditTables, dialect: Dialect, ids: Sequence[str]) -> Steps[Logged]:
    """Return all that there is of items, of one moment."""
    yield from log.head()
    args = Args(dialect)
    where = log.audit_dialect.among("item_id", args, ids)
    columns = log.audit_dialect.columns(
        ("item_id", "number", "action", "version", "digest", "ends_at")
    )
    rows = yield Statement(
        f"SELECT {columns} FROM memory_audit WHERE {where} ORDER BY memory_audit.number", args
    )
    items = yield from log.items(dialect, ids)
    versions = yield from log.versions(dialect, ids)
    salts = yield from log.salts(dialect, ids)
    entries: dict[bytes | None, list[Fields]] = {}
    for item_id, *fields in map(as_bytes, rows):
        entries.setdefault(item_id, []).append(tuple(fields))
    return Logged(entries, items, versions, salts)


class Findings:
    """Problems, up to a number of them."""

    def __init__(self) -> None:
        self.problems: list[AuditProblem] = []

    def add(self, what: str, *, entry: int | None = None, item_id: str | None = None) -> None:
        """Add a problem."""
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(AuditProblem(what, entry, item_id))
        elif len(self.problems) == MAX_PROBLEMS:
            self.problems.append(AuditProblem("there are more problems"))


class ChainCheck:
    """Follows the chain, entry by entry."""

    def __init__(self, findings: Findings, noted: str | None) -> None:
        """Begin before the first entry; *noted* is a hash that was once the last one."""
        self._findings = findings
        self._noted = noted
        self._is_met = noted in (None, START)
        self._key: str | None = None
        self.hash = START
        self.number = 0
        self.entries = 0

    def follow(self, fields: Fields) -> None:
        """Take the next entry by number."""
        self.entries += 1
        number = int(fields[0] or b"")
        try:
            entry = from_bytes(fields)
        except (ValueError, TypeError, KeyError):
            entry = None
        if number != self.number + 1:
            self._report(number, f"entries {self.number + 1} to {number - 1} are missing")
        self.number = number
        made = _text(fields[_MADE])
        if entry is None:
            self._report(number, f"entry {number} cannot be read: it was changed")
        elif chain(self.hash, entry) != made:
            self._report(
                number, f"entry {number} was changed, or does not follow the one before it"
            )
        elif entry.action == "began":
            if self._key is not None:
                self._report(number, f"entry {number} begins the log a second time")
            self._key = entry.digest
        elif entry.action == "found" and self._key is not None:
            self._report(number, f"entry {number} records an earlier item after the log had begun")
        # From here on the next one is held to what this one says of itself: each change is told
        # once, where it is.
        self.hash = made
        self._is_met = self._is_met or made == self._noted

    def _report(self, number: int, what: str) -> None:
        self._findings.add(what, entry=number)

    def end(self, head: Head) -> None:
        """Compare the end of the chain with what is noted of it."""
        if (head.number, head.hash or START) != (self.number, self.hash):
            self._report(
                self.number,
                f"the log ends with entry {self.number}, and should end with {head.number}: "
                "entries at its end were added or removed",
            )
        if head.is_begun != (self._key is not None):
            self._report(self.number, "where the log began was changed")
        key = hashlib.sha256((head.key or "").encode()).hexdigest()
        if self._key is not None and key != self._key:
            self._report(self.number, "the key of the digests of scopes was changed")
        if not self._is_met:
            self._report(
                self.number,
                "no entry has the hash that was given as `head`: entries were removed, or the"
                " whole log was rewritten",
            )


class Known(NamedTuple):
    """What the entries of an item say of it."""

    versions: dict[int, tuple[str, int]]
    """The digest of each version that is to be there, and the number of its entry."""
    number: int
    """The number of the last entry."""
    ends_at: bytes
    """When it ends by itself; empty if it does not."""


def known(entries: Sequence[Fields]) -> Known:
    """Return what the entries of an item say of it."""
    state = Known({}, 0, b"")
    for number, action, version, digest, ends_at in entries:
        try:
            entry, place = int(number or 0), int(version or 0)
        except ValueError:
            continue  # told by whoever follows the chain
        if _text(action) in REMOVALS:
            state = Known({}, entry, b"")
            continue
        earlier = {old: said for old, said in state.versions.items() if old < place}
        state = Known({**earlier, place: (_text(digest), entry)}, entry, ends_at or b"")
    return state


def judge(findings: Findings, item_id: str, state: Logged) -> bool:
    """Compare an item with its entries; tell whether it is to be there, by these."""
    expected, number, ends_at = known(state.entries.get(item_id.encode(), ()))
    item, past = state.items.get(item_id), state.versions.get(item_id, [])

    def report(what: str, entry: int = number) -> None:
        findings.add(f"item `{item_id}` {what}", entry=entry, item_id=item_id)

    if not expected:
        if item is not None or past:
            report(f"exists, but entry {number} says that it was permanently removed")
    elif item is None:
        # Whoever removes what is over tells nobody; that it would end was logged.
        if not ends_at or ends_at > iso(datetime.now(UTC)).encode():
            report("was removed without the log")
    elif (salt := state.salts.get(item_id)) is None:
        report("has lost its salt, so its content cannot be verified")
    else:
        there = {_number(each): each for each in whole(past, item)}
        newest = max(expected)
        if _number(item) != newest:
            report(
                f"is at version {_number(item)}, the log says {newest}: it was changed without the"
                " log"
            )
        for place, fields in there.items():
            digest, entry = expected.get(place, ("", number))
            if item_digest(salt, fields) != digest:
                report(f"was changed without the log, in version {place}", entry)
        for place in expected.keys() - there.keys():
            report(f"has lost version {place}", expected[place][1])
    return bool(expected)


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")


def _number(fields: Fields) -> int:
    try:
        return int(fields[_VERSION] or 0)
    except ValueError:
        return -1
