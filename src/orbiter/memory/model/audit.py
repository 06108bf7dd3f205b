"""The values of the audit log: what an entry says, and how each is chained to the one before it.

Pure: no clock, no database. An entry holds no content and no user id. Whose it is, is a keyed
digest; what was written, a digest with a salt that stands beside the item and goes with it. So an
erased item leaves no name, and nobody can try out what it may have said.
"""

import hashlib
import hmac
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from orbiter.memory.errors import QueryError
from orbiter.memory.model.query import SCOPE_FIELDS
from orbiter.memory.model.validation import check_name

__all__ = [
    "ACTIONS",
    "AuditAction",
    "AuditEntry",
    "AuditMode",
    "AuditProblem",
    "AuditVerification",
    "acting_as",
    "canonical",
    "chain",
    "item_digest",
    "scope_digest",
]

AuditMode = Literal["writes", "all"]
"""What is logged: what is written, or what is read as well."""

AuditAction = Literal[
    "began", "found", "added", "updated", "deleted", "restored", "purged", "erased", "expired",
    "kept", "stored", "removed", "read", "exported",
]  # fmt: skip
"""What was done. `found` is what was there before the log `began`; `kept`, what stayed of an item
when earlier versions of it, another user's, were `erased`. `stored` and `removed` are of key-value
entries, all others of items."""

ACTIONS: tuple[str, ...] = get_args(AuditAction)
"""All of them."""

REMOVALS = ("purged", "erased", "expired")
"""After these an item is gone for good."""

START = "0" * 64
"""What stands for the hash before the first entry."""

_dumps = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One thing that was done to a store, or read from it."""

    number: int
    """Counts from 1, without a gap."""
    at: datetime
    action: AuditAction
    by: str | None
    """Who did it, as `by=` or `acting_as` named them; `None` if nobody was named."""
    whose: str
    """The digests of the scope, such as `user_id:5f1e…`; empty if it is nobody's or everybody's.

    `AuditLog.entries(user_id=…)` finds the entries of a user by the same digest.
    """
    item_ids: tuple[str, ...]
    """The item that was written, or the first hundred that were read."""
    count: int
    """How many items it concerns; of `stored` and `removed`, how many key-value entries."""
    version: int | None = None
    """The version of the item that was written."""
    digest: str | None = None
    """The salted digest of the item that was written; `None` if it was removed for good."""
    ends_at: datetime | None = None
    """When the item that was written ends by itself: from then on it may be gone."""
    call: str | None = None
    """Which call read, such as `search`, or changed entries, such as `kv.write`."""
    hash: str = ""
    """Of this entry and the hash before it: whoever knows the last one knows that none changed."""

    @property
    def is_of_entries(self) -> bool:
        """Whether it counts key-value entries, not memories."""
        return self.action in ("stored", "removed")


@dataclass(frozen=True, slots=True)
class AuditProblem:
    """Something that is not as the log, or the chain of the log, has it."""

    what: str
    entry: int | None = None
    """The number of the entry that shows it."""
    item_id: str | None = None

    def __str__(self) -> str:
        return self.what


@dataclass(frozen=True, slots=True)
class AuditVerification:
    """What `verify` found. It is true when the chain is sound and the items are as it says."""

    entries: int
    """Entries that were read."""
    items: int
    """Items that were compared with their entries; what was erased is not among them."""
    problems: tuple[AuditProblem, ...]
    head: str
    """The hash of the last entry. Note it elsewhere, and give it to the next `verify`."""

    def __bool__(self) -> bool:
        return not self.problems


def canonical(entry: AuditEntry) -> bytes:
    """Return all of *entry* but its hash as bytes; no two entries have the same."""
    at, ends_at = (
        each and each.isoformat(timespec="microseconds") for each in (entry.at, entry.ends_at)
    )
    fields = [
        entry.number, at, entry.action, entry.by, entry.whose, list(entry.item_ids), entry.count,
        entry.version, entry.digest, ends_at, entry.call,
    ]  # fmt: skip
    return _dumps(fields).encode()


def chain(previous_hash: str, entry: AuditEntry) -> str:
    """Return the hash of *entry* after the entry of *previous_hash*."""
    return hashlib.sha256(b"%s\n%s" % (previous_hash.encode(), canonical(entry))).hexdigest()


def scope_digest(key: bytes, scope: Mapping[str, str]) -> str:
    """Return the digests of the scope fields that are set, in one order, with the store's *key*."""
    named = ((name, scope.get(name)) for name in SCOPE_FIELDS)
    return " ".join(f"{name}:{_keyed(key, name, value)}" for name, value in named if value)


def _keyed(key: bytes, name: str, value: str) -> str:
    return hmac.new(key, f"{name}\0{value}".encode(), "sha256").hexdigest()[:32]


def item_digest(salt: bytes, fields: Sequence[bytes | None]) -> str:
    """Return the digest of an item's columns; *salt* stands beside the item, and goes with it."""
    digest = hashlib.sha256(b"%d:%s" % (len(salt), salt))
    for field in fields:
        # With its length, so that nothing can move from one column to the next.
        digest.update(b"-" if field is None else b"%d:" % len(field))
        digest.update(field or b"")
    return digest.hexdigest()


# By whom

_actor: ContextVar[str | None] = ContextVar("orbiter_memory_actor", default=None)
_is_silent: ContextVar[bool] = ContextVar("orbiter_memory_audit_silent", default=False)


@contextmanager
def acting_as(name: str | None) -> Iterator[None]:
    """Have what happens inside logged as done by *name*; `None` leaves it as it is.

    Tasks that are started inside inherit it. A call's own `by=` goes first.
    """
    if name is None:
        yield
        return
    if not isinstance(name, str):
        raise QueryError(f"`by` must be a name, not {name!r}")
    try:
        check_name(name, max_chars=256)
    except ValueError as exc:
        raise QueryError(f"`by` must be a name: {exc}") from None
    if name.startswith("~"):  # so that nobody else signs as a call of the library does
        raise QueryError(f"`by` must not begin with `~`, which is reserved: `{name}`")
    token = _actor.set(name)
    try:
        yield
    finally:
        _actor.reset(token)


def actor(by: str | None = None) -> str | None:
    """Return who acts: *by*, or whom `acting_as` names."""
    return _actor.get() if by is None else by


@contextmanager
def silently() -> Iterator[None]:
    """Have no read inside logged by itself: whoever asks logs all of them as one."""
    token = _is_silent.set(True)
    try:
        yield
    finally:
        _is_silent.reset(token)


def is_silent() -> bool:
    """Tell whether somebody else logs the reads that are made here."""
    return _is_silent.get()


def common_scope(scopes: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return the scope fields that are the same in all of *scopes*."""
    shared: dict[str, str] | None = None
    for scope in scopes:
        if shared is None:
            shared = dict(scope)
        else:
            shared = {name: value for name, value in shared.items() if scope.get(name) == value}
        if not shared:
            return {}
    return shared or {}
