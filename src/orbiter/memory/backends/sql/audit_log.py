"""Adding to the audit log: steps that join those of a write, in the same transaction.

Whoever adds holds the end of the chain from the beginning of the transaction, so what was there
before, what is there after, and the next number are all of one moment. Only what has changed is
logged, whatever was asked for.
"""

import hashlib
import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

from orbiter.memory.backends.sql import audit_verify
from orbiter.memory.backends.sql.audit_dialect import Fields
from orbiter.memory.backends.sql.audit_reader import (
    CHUNK,
    COLUMNS,
    AuditTables,
    Head,
    to_row,
    whole,
)
from orbiter.memory.backends.sql.dialect import Args, Dialect, Statement, Steps
from orbiter.memory.backends.sql.rows import COLUMNS as ITEM
from orbiter.memory.backends.sql.rows import END_WIDTH, ENDS
from orbiter.memory.errors import AccessError, UnsupportedError
from orbiter.memory.model.audit import (
    START,
    AuditAction,
    AuditEntry,
    chain,
    item_digest,
    scope_digest,
)
from orbiter.memory.model.query import SCOPE_FIELDS

__all__ = ["MAX_IDS", "Chain", "Ids", "Log", "Note", "State"]

_T = TypeVar("_T")

MAX_IDS = 100
"""Ids that an entry of a read names."""

_METADATA, _EXTRA, _DELETED, _VERSION = (
    ITEM.index(name) for name in ("metadata", "extra_json", "deleted", "version")
)

Ids = Sequence[str] | Callable[[], Steps[Sequence[str]]]
"""Which items a write may change, or the steps that tell; more than it does change do no harm."""


class State(NamedTuple):
    """What an item was before a write."""

    version: int
    is_deleted: bool
    digest: str
    metadata: bytes | None
    whole: tuple[str, ...] = ()
    """The digests of all versions, where earlier ones may change or go, too."""


@dataclass(frozen=True, slots=True)
class Note:
    """What is to be logged of a write."""

    ids: Ids
    by: str | None = None
    removal: AuditAction = "purged"
    """How it is called if an item is gone for good."""
    arrival: AuditAction | None = None
    """How it is called that an item is there; without, whatever has happened to it."""
    is_deep: bool = False
    """Whether earlier versions may change or go, too."""
    scope: dict[str, str] | None = None
    """Whose items all are removed."""
    count: int | None = None
    """How many of these went before, by other transactions of the same call.

    The last of them says it: that all are removed is an entry of its own, even if there were none.
    """


class Chain:
    """Entries that are being added, from where the chain ends."""

    def __init__(self, head: Head, dialect: Dialect) -> None:
        self.number, self.hash = head.number, head.hash or START
        self.key = (head.key or "").encode()
        self.rows: list[tuple[Any, ...]] = []
        self._at = datetime.now(UTC)
        self._dialect = dialect

    def add(self, action: AuditAction, **what: Any) -> None:
        """Add an entry."""
        self.number += 1
        fields = {"by": None, "whose": "", "item_ids": (), "count": 1, **what}
        entry = AuditEntry(self.number, self._at, action, **fields)
        self.hash = chain(self.hash, entry)
        self.rows.append(to_row(replace(entry, hash=self.hash)))

    def flush(self) -> Steps[None]:
        """Write what was added."""
        rows, self.rows = self.rows, []
        if rows:
            values = ", ".join(self._dialect.parameter(n + 1) for n in range(len(COLUMNS)))
            sql = f"INSERT INTO memory_audit ({', '.join(COLUMNS)}) VALUES ({values})"
            yield Statement(sql, rows, many=True)

    def finish(self, *, begins: bool = False) -> Steps[None]:
        """Write what was added, and where the chain ends now."""
        yield from self.flush()
        args = Args(self._dialect)
        number, digest = args.bind(self.number), args.bind(self.hash)
        begun = ", begun = 1" if begins else ""
        yield Statement(
            f"UPDATE memory_audit_head SET number = {number}, hash = {digest}{begun}", args
        )


class Log(AuditTables):
    """The audit log of a database, as steps."""

    def _chain(self, dialect: Dialect) -> Steps[Chain]:
        head = yield from self.head()
        if not head.is_begun or head.key is None:
            raise UnsupportedError(
                "the audit log has not been started here; call `init()` of the store"
            )
        return Chain(head, dialect)

    def begin(self, dialect: Dialect, last: str, *, sees_all: bool) -> Steps[str | None]:
        """Log some of what was there before the log; return the last id, `None` if all is."""
        head = yield from self.head()
        if head.is_begun:
            return None
        if head.key is None:
            head = head._replace(key=secrets.token_hex(32))
            args = Args(dialect, [head.key])
            yield Statement(f"UPDATE memory_audit_head SET key = {dialect.parameter(1)}", args)
        ids: list[str] = []
        if sees_all:
            ids = [raw.decode() for raw in (yield from self.unlogged(dialect, last.encode()))]
        elif not (yield Statement(self.audit_dialect.is_untouched))[0][0]:
            raise AccessError(
                "there are items, and row-level security hides them from the new audit log; open "
                "the store once with `audit` as a role that bypasses it"
            )
        added = Chain(head, dialect)
        if len(ids) < CHUNK and head.number:
            yield from self._find_again(added, dialect)
        yield from self._note(added, dialect, ids, {}, Note((), arrival="found"))
        if len(ids) < CHUNK:
            assert head.key is not None  # noqa: S101 - made above
            added.add("began", count=0, digest=hashlib.sha256(head.key.encode()).hexdigest())
        yield from added.finish(begins=len(ids) < CHUNK)
        return ids[-1] if len(ids) == CHUNK else None

    def _find_again(self, added: Chain, dialect: Dialect) -> Steps[None]:
        """Log what has changed of items that were found: until the log has begun nobody tells it.

        It may have been long, if whoever began was killed.
        """
        last = b""
        while names := (yield from audit_verify.some_ids(self, last)):
            last = names[-1]
            ids = [name.decode() for name in names]
            state = yield from audit_verify.logged(self, dialect, ids)
            changed: list[str] = []
            for item_id in ids:
                findings = audit_verify.Findings()
                audit_verify.judge(findings, item_id, state)
                if findings.problems:
                    changed.append(item_id)
                    added.add("purged", item_ids=(item_id,))
            there = [item_id for item_id in changed if item_id in state.items]
            if there:
                note = Note((), arrival="found")
                known = dict.fromkeys(there, 0)
                yield from self._note_versions(added, dialect, known, {}, there, note)
            yield from added.flush()

    # Writing and reading

    def recorded(self, dialect: Dialect, steps: Steps[_T], note: Note) -> Steps[_T]:
        """Run *steps*, and log what they have changed."""
        added = yield from self._chain(dialect)
        ids = note.ids if not callable(note.ids) else (yield from note.ids())
        ids = list(dict.fromkeys(ids))
        before: dict[str, State] = {}
        for some in _chunks(ids):
            before |= yield from self._states(dialect, some, is_deep=note.is_deep)
        value = yield from steps
        start = added.number
        removed = 0
        for some in _chunks(ids):
            removed += yield from self._note(added, dialect, some, before, note)
            yield from added.flush()
        if note.scope is not None and note.count is not None:
            scope = scope_digest(added.key, note.scope)
            added.add(note.removal, by=note.by, whose=scope, count=note.count + removed)
        if added.number > start:
            yield from added.finish()
        return value

    def counted(
        self,
        dialect: Dialect,
        steps: Steps[_T],
        counts: Callable[[_T], Mapping[AuditAction, int]],
        *,
        scope: dict[str, str],
        by: str | None,
        call: str,
    ) -> Steps[_T]:
        """Run *steps*, which change no item, and log what *counts* tells of it.

        Neither keys nor values are logged: both may say something of a person.
        """
        added = yield from self._chain(dialect)
        value = yield from steps
        shared = {"by": by, "whose": scope_digest(added.key, scope), "call": call}
        for action, count in counts(value).items():
            if count:
                added.add(action, count=count, **shared)
        if added.rows:
            yield from added.finish()
        return value

    def read(
        self,
        dialect: Dialect,
        call: str,
        ids: Sequence[str],
        *,
        scope: dict[str, str],
        by: str | None,
        count: int | None = None,
        action: AuditAction = "read",
    ) -> Steps[None]:
        """Log that *ids* were read."""
        added = yield from self._chain(dialect)
        added.add(
            action,
            by=by,
            whose=scope_digest(added.key, scope),
            item_ids=tuple(ids[:MAX_IDS]),
            count=len(ids) if count is None else count,
            call=call,
        )
        yield from added.finish()

    def _states(
        self,
        dialect: Dialect,
        ids: Sequence[str],
        *,
        is_deep: bool,
        before: Mapping[str, State] | None = None,
    ) -> Steps[dict[str, State]]:
        """Return what items are; all they were, too, where that may not stay.

        What has an end may be over, and then another of its id has begun.
        """
        items = yield from self.items(dialect, ids)
        deep = [
            item_id
            for item_id, item in items.items()
            if is_deep or _end(item) is not None or (before and _is_deep(before.get(item_id)))
        ]
        past = (yield from self.versions(dialect, deep)) if deep else {}
        states = {item_id: _state(item) for item_id, item in items.items()}
        for item_id in deep:
            versions = whole(past.get(item_id, ()), items[item_id])
            digests = tuple(item_digest(b"", each) for each in versions)
            states[item_id] = states[item_id]._replace(whole=digests)
        return states

    def _note(
        self,
        added: Chain,
        dialect: Dialect,
        ids: Sequence[str],
        before: dict[str, State],
        note: Note,
    ) -> Steps[int]:
        """Log what has become of *ids*; return how many of them were removed."""
        after = yield from self._states(dialect, ids, is_deep=note.is_deep, before=before)
        removed = 0
        known: dict[str, int] = {}
        added_again: list[str] = []
        for item_id in ids:
            was, now = before.get(item_id), after.get(item_id)
            if was == now:
                continue
            if was is None:
                known[item_id] = 0
                continue
            if now is not None and _continues(was, now):
                known[item_id] = was.version
                continue
            # It is gone, with all it was; perhaps there is another of its id by now.
            scope = scope_digest(added.key, note.scope or _scope(was.metadata))
            is_expired = now is not None and not note.is_deep  # else none can begin again
            added.add(
                "expired" if is_expired else note.removal,
                by=note.by,
                whose=scope,
                item_ids=(item_id,),
                version=was.version,
            )
            removed += now is None
            if now is not None:
                added_again.append(item_id)
                known[item_id] = 0
        if known:
            yield from self._note_versions(added, dialect, known, before, added_again, note)
        return removed

    def _note_versions(
        self,
        added: Chain,
        dialect: Dialect,
        known: dict[str, int],
        before: dict[str, State],
        added_again: list[str],
        note: Note,
    ) -> Steps[None]:
        """Log versions of items after the *known* one; of those *added_again*, all of them."""
        if added_again:
            # What is no longer among the versions must not be told by a salt that stays.
            args = Args(dialect)
            where = self.audit_dialect.among("id", args, added_again)
            yield Statement(f"DELETE FROM memory_audit_salts WHERE {where}", args)
        ids = list(known)
        items = yield from self.items(dialect, ids)
        salts = yield from self._salted(dialect, ids)
        past: dict[str, list[Fields]] = {}
        new = [item_id for item_id in ids if not known[item_id]]
        if new:
            past |= yield from self.versions(dialect, new)
        if len(new) < len(ids):
            changed = [item_id for item_id in ids if known[item_id]]
            since = min(known[item_id] for item_id in changed)
            past |= yield from self.versions(dialect, changed, since=since)
        for item_id in ids:
            was = None if item_id in added_again else before.get(item_id)
            was_deleted = None if was is None else was.is_deleted
            arrival = note.arrival
            if item_id in added_again and note.removal == "erased":
                arrival = "kept"
            for fields in whole(past.get(item_id, ()), items[item_id]):
                if _number(fields) <= known[item_id]:
                    continue
                is_deleted = fields[_DELETED] == b"1"
                added.add(
                    arrival or _action(was_deleted, is_deleted=is_deleted),
                    by=note.by,
                    whose=scope_digest(added.key, _scope(fields[_METADATA])),
                    item_ids=(item_id,),
                    version=_number(fields),
                    digest=item_digest(salts[item_id], fields),
                    ends_at=_end(fields),
                )
                was_deleted = is_deleted

    def _salted(self, dialect: Dialect, ids: list[str]) -> Steps[dict[str, bytes]]:
        """Return the salts of items; those that have none get one."""
        first, second = dialect.parameter(1), dialect.parameter(2)
        yield Statement(
            f"INSERT INTO memory_audit_salts (id, salt) VALUES ({first}, {second})"
            " ON CONFLICT (id) DO NOTHING",
            [(item_id, secrets.token_hex(16)) for item_id in ids],
            many=True,
        )
        return (yield from self.salts(dialect, ids))


def _action(was_deleted: bool | None, *, is_deleted: bool) -> AuditAction:  # noqa: FBT001
    if was_deleted is None:
        return "added"
    if is_deleted != was_deleted:
        return "deleted" if is_deleted else "restored"
    return "updated"


def _number(fields: Fields) -> int:
    return int(fields[_VERSION] or 0)


def _state(fields: Fields) -> State:
    is_deleted = fields[_DELETED] == b"1"
    return State(_number(fields), is_deleted, item_digest(b"", fields), fields[_METADATA])


def _is_deep(state: State | None) -> bool:
    return state is not None and bool(state.whole)


def _continues(was: State, now: State) -> bool:
    """Tell whether an item has newer versions, and all that it had before."""
    return now.version > was.version and now.whole[: len(was.whole)] == was.whole


def _end(fields: Fields) -> datetime | None:
    extra = fields[_EXTRA] or b""
    if not extra.startswith(ENDS.encode()):
        return None
    try:
        return datetime.fromisoformat(extra[len(ENDS) : len(ENDS) + END_WIDTH].decode())
    except ValueError:  # a kind of item that calls something else so
        return None


def _scope(metadata: bytes | None) -> dict[str, str]:
    try:
        fields = json.loads(metadata or b"{}")
    except ValueError:  # a row made by hand
        return {}
    named = fields if isinstance(fields, dict) else {}
    return {name: named[name] for name in SCOPE_FIELDS if isinstance(named.get(name), str)}


def _chunks(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), CHUNK):
        yield ids[start : start + CHUNK]
