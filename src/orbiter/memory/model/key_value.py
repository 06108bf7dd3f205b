"""Key-value entries: opaque bytes under a path and a key, beside the memories of a scope.

They are for what a program must find again exactly, and nobody recalls: the state of a framework, a
log, a file. `KeyValueStore` is what a store does for them.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING

from typing_extensions import Protocol, runtime_checkable

from orbiter.memory.errors import InvalidItemError, QueryError
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.model.query import SCOPE_FIELDS, Query, check_size
from orbiter.memory.model.validation import StructuralMeta, check_positive

if TYPE_CHECKING:
    from orbiter.memory.model.audit import AuditAction

__all__ = [
    "MAX_CHANGES",
    "MAX_KEY",
    "MAX_PATH",
    "MAX_VALUE",
    "Delete",
    "Entry",
    "EntryPath",
    "KeyValueStore",
    "Put",
    "StoredEntry",
    "appended_key",
    "check_changes",
    "check_contains",
    "check_entry_path",
    "check_key",
    "check_names",
    "check_order",
    "check_ttl",
    "check_value",
    "count_changes",
    "instant_of",
    "joined_path",
    "last_changes",
    "micros_of",
    "owner_of",
    "path_span",
    "scope_names",
    "split_path",
]

EntryPath = tuple[str, ...]
"""Where entries stand, from the outside in, such as `("threads", "t1")`."""

MAX_PATH = 1_500
"""Bytes of a path as text, a byte for the end of each part included."""

MAX_KEY = 1_000
"""Bytes of a key."""

MAX_VALUE = 256 * 2**20
"""Bytes of a value."""

MAX_CHANGES = 10_000
"""Changes of one step."""

_END = "\x01"
"""Ends each part of a path as text, so that a path begins with another only at a part's end."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A value as it is stored."""

    path: EntryPath
    key: str
    value: bytes
    version: int
    """How often it was put, from 1 on; what was deleted or is over begins again."""
    created_at: datetime
    updated_at: datetime
    """When it was put last; reading does not change it."""
    expires_at: datetime | None = None
    """When it is over, unless it is touched before."""


@dataclass(frozen=True, slots=True)
class Put:
    """A value to be stored, over the version *expected_version* only, 0 meaning none."""

    path: EntryPath
    key: str
    value: bytes
    ttl: timedelta | float | None = None
    """How long it lasts after it was put or touched last; a number is in seconds."""
    expected_version: int | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """An entry to be removed for good, if it is still the version *expected_version*."""

    path: EntryPath
    key: str
    expected_version: int | None = None


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry with whose it is and how long it lasts: what is exported, and moved."""

    scope: MemoryMetadata
    entry: Entry
    ttl: float | None = None
    """Seconds that it lasts after it was put or touched last."""

    def to_line(self) -> str:
        """Return it as a line of JSON."""
        entry = self.entry
        fields = {
            "scope": {name: getattr(self.scope, name) for name in scope_names(self.scope)},
            "path": entry.path,
            "key": entry.key,
            **({} if (text := _readable(entry.value)) is None else {"text": text}),
            "value": b64encode(entry.value).decode(),
            "version": entry.version,
            "created_at": micros_of(entry.created_at),
            "updated_at": micros_of(entry.updated_at),
        }
        if entry.expires_at is not None:
            fields |= {"expires_at": micros_of(entry.expires_at), "ttl": self.ttl}
        return json.dumps({"entry": fields}, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_line(cls, line: bytes) -> "StoredEntry":
        """Return what a line of `to_line` says; `ValueError` if it says anything else."""
        try:
            fields = json.loads(line)["entry"]
            [put] = check_changes(
                [Put(tuple(fields["path"]), fields["key"], b64decode(fields["value"]))]
            )
            end, ttl = fields.get("expires_at"), fields.get("ttl")
            if "text" in fields and fields["text"] != _readable(put.value):  # type: ignore[union-attr]  # a `Put`
                raise ValueError("its `text` is not what its `value` says; change both, or none")
            entry = Entry(
                put.path,
                put.key,
                put.value,  # type: ignore[union-attr]  # a `Put`
                _whole(fields["version"]),
                instant_of(_whole(fields["created_at"])),
                instant_of(_whole(fields["updated_at"])),
                None if end is None else instant_of(_whole(end)),
            )
            scope = MemoryMetadata(**fields["scope"])
            if not scope_names(scope) or scope.extra or (ttl is None) != (end is None):
                raise ValueError("it belongs to nobody, or its end is not told")
            return cls(scope, entry, check_ttl(ttl))
        except (KeyError, TypeError, OverflowError, RecursionError) as exc:
            raise ValueError(f"it is not an entry ({type(exc).__name__}: {exc})") from None


_MAX_READABLE = 65_536
"""Bytes of a value that are written as text, too; a longer one would make a file twice as large."""


def _readable(value: bytes) -> str | None:
    """Return a value as text, for a person who reads the file; `None` if it is none."""
    if len(value) > _MAX_READABLE:
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if all(each.isprintable() or each in "\n\r\t" for each in text) else None


def scope_names(scope: MemoryMetadata) -> list[str]:
    """Return the fields that a scope names."""
    return [name for name in SCOPE_FIELDS if getattr(scope, name) is not None]


def micros_of(instant: datetime) -> int:
    """Return how many microseconds after 1970 a time is."""
    return (instant - _EPOCH) // timedelta(microseconds=1)


def _whole(value: object) -> int:
    if type(value) is not int or abs(value) >= 2**62:
        raise ValueError(f"{value!r} is not a whole number that is stored")
    return value


@runtime_checkable
class KeyValueStore(Protocol, metaclass=StructuralMeta):
    """A store that keeps entries; each call concerns those of just the *scope* that it names.

    Paths are compared part by part, and by the code points of their text, as keys are. What is
    over is not there.
    """

    async def write(self, changes: Sequence[Put | Delete], *, scope: MemoryMetadata) -> list[int]:
        """Make all changes, or none; return the version of each, 0 for what was not there.

        If one expects another version, `VersionConflict` is raised.
        """
        ...

    async def get(
        self, names: Sequence[tuple[EntryPath, str]], *, scope: MemoryMetadata
    ) -> list[Entry | None]:
        """Return the entries of these paths and keys, in the order given."""
        ...

    async def touch(self, names: Sequence[tuple[EntryPath, str]], *, scope: MemoryMetadata) -> int:
        """Have the time of entries with an end begin again; return how many there are of these."""
        ...

    async def entries(
        self,
        path: EntryPath,
        *,
        scope: MemoryMetadata,
        is_deep: bool = True,
        reverse: bool = False,
        newest: bool = False,
        after: tuple[EntryPath, str] | None = None,
        contains: str = "",
        limit: int = 100,
    ) -> list[Entry]:
        """Return entries at a path and, if *is_deep*, below it, by path and key.

        With *contains*, only those whose key, or a part of whose path, holds that text to the
        letter. If *newest*, those that were put last come first, and there is no *after*.
        """
        ...

    async def paths(
        self,
        path: EntryPath,
        *,
        scope: MemoryMetadata,
        after: EntryPath | None = None,
        limit: int = 100,
    ) -> list[EntryPath]:
        """Return the different paths of entries at and below a path, in order."""
        ...

    async def append(
        self,
        path: EntryPath,
        values: Sequence[bytes],
        *,
        scope: MemoryMetadata,
        ttl: float | None = None,
    ) -> list[str]:
        """Put values behind the last key of a path, in order, all or none; return their keys."""
        ...

    async def pop(self, path: EntryPath, *, scope: MemoryMetadata) -> Entry | None:
        """Remove the last entry of a path, and return it."""
        ...

    async def clear(self, path: EntryPath, *, scope: MemoryMetadata) -> int:
        """Remove all entries at and below a path for good; return how many."""
        ...

    async def dump(
        self,
        *,
        metadata: MemoryMetadata | None = None,
        after: StoredEntry | None = None,
        limit: int = 100,
    ) -> list[StoredEntry]:
        """Return entries of every scope that matches *metadata*, in an order that stays."""
        ...

    async def count(self, *, metadata: MemoryMetadata | None = None) -> int:
        """Return how many entries the scopes that match *metadata* have."""
        ...

    async def load(self, entries: Sequence[StoredEntry], *, overwrite: bool = False) -> list[bool]:
        """Store entries as they were dumped; tell of each whether it was written.

        What is there stays as it is, unless *overwrite*.
        """
        ...


def check_entry_path(path: object) -> EntryPath:
    """Return *path* as a tuple, or raise `QueryError` if no entry can stand there."""
    if isinstance(path, str) or not isinstance(path, Iterable):
        raise QueryError(f"`path` must be a tuple such as `('threads', 't1')`, not {path!r}")
    parts = tuple(path)
    for part in parts:
        if not isinstance(part, str) or not part or "\0" in part or _END in part:
            raise QueryError(
                f"the parts of a path are texts that are not empty, without U+0000 and U+0001; "
                f"not {part!r}"
            )
    if (size := _size(joined_path(parts))) > MAX_PATH:
        raise QueryError(f"a path of {size:,} bytes is too long; at most {MAX_PATH:,} are stored")
    return parts


def check_key(key: object) -> str:
    """Return *key*, or raise `QueryError` if no entry can have it."""
    if not isinstance(key, str) or not key or "\0" in key:
        raise QueryError(f"`key` must be a text that is not empty, without U+0000; not {key!r}")
    if (size := _size(key)) > MAX_KEY:
        raise QueryError(f"a key of {size:,} bytes is too long; at most {MAX_KEY:,} are stored")
    return key


def check_names(names: object) -> list[tuple[str, str]]:
    """Return pairs of a path and a key, each path as text."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise QueryError(f"`names` must be a list of pairs of a path and a key, not {names!r}")
    pairs = []
    for name in names:
        if isinstance(name, str) or not isinstance(name, Sequence) or len(name) != 2:
            raise QueryError(f"a name is a pair of a path and a key, not {name!r}")
        pairs.append((joined_path(check_entry_path(name[0])), check_key(name[1])))
    return pairs


def check_order(*, newest: bool, reverse: bool, after: object) -> None:
    """Raise `QueryError` if entries cannot be listed in this order."""
    if newest and (reverse or after is not None):
        raise QueryError(
            "`newest` is an order of its own, from the beginning: leave `reverse` and `after` out, "
            "and ask for more by `limit`"
        )


def check_contains(text: object) -> str:
    """Return the text that names are to hold, or raise `QueryError` if none can."""
    if not isinstance(text, str) or "\0" in text or _END in text:
        raise QueryError(f"`contains` must be a text without U+0000 and U+0001, not {text!r}")
    _size(text)
    return text


def check_value(value: object) -> bytes:
    """Return *value* as bytes of its own, or raise `InvalidItemError` if it cannot be stored."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise InvalidItemError(
            f"a value must be bytes, not {type(value).__name__}; encode it, as by "
            "`json.dumps(value).encode()`"
        )
    if (size := memoryview(value).nbytes) > MAX_VALUE:
        raise InvalidItemError(
            f"a value of {size:,} bytes is too long; at most {MAX_VALUE:,} are stored"
        )
    return bytes(value)


def check_ttl(ttl: timedelta | float | None) -> float | None:
    """Return how many seconds an entry lasts, or `None` if it has no end."""
    if ttl is None:
        return None
    seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    check_positive(ttl=seconds)
    if seconds > 1e10:
        raise QueryError(f"`ttl` must be less than 300 years, not {ttl!r}")
    return float(seconds)


def check_changes(changes: Sequence[Put | Delete]) -> list[Put | Delete]:
    """Return changes with all that is theirs checked."""
    if isinstance(changes, Put | Delete) or not isinstance(changes, Iterable):
        raise QueryError(f"`write` takes a list of `Put` and `Delete`, not {changes!r}")
    checked: list[Put | Delete] = []
    for change in changes:
        if not isinstance(change, Put | Delete):
            raise QueryError(f"`write` takes `Put` and `Delete`, not {change!r}")
        path, key = check_entry_path(change.path), check_key(change.key)
        expected = _check_version(change.expected_version)
        if isinstance(change, Put):
            value = check_value(change.value)
            checked.append(Put(path, key, value, check_ttl(change.ttl), expected))
        else:
            checked.append(Delete(path, key, expected))
    if len(checked) > MAX_CHANGES:
        raise QueryError(
            f"{len(checked):,} changes in one step, at most {MAX_CHANGES:,} are allowed; "
            "make several calls"
        )
    return checked


def _check_version(version: int | None) -> int | None:
    return None if version is None else check_size("expected_version", version)


def joined_path(path: EntryPath) -> str:
    """Return a path as text, in which every part is ended."""
    return "".join(part + _END for part in path)


def split_path(text: str) -> EntryPath:
    """Return the path of a text that `joined_path` made."""
    return tuple(text.split(_END)[:-1])


def path_span(text: str) -> tuple[str, str]:
    """Return where paths at and below that of a text begin, and what is behind all of them."""
    return text, text[:-1] + chr(ord(_END) + 1)


def count_changes(
    changes: "Sequence[Put | Delete]", versions: Sequence[int]
) -> "dict[AuditAction, int]":
    """Return how many entries *changes* stored and removed; *versions* is what `write` returned."""
    last = {
        (joined_path(each.path), each.key): (each, version)
        for each, version in zip(changes, versions, strict=True)
    }
    gone = [version for each, version in last.values() if not isinstance(each, Put)]
    return {"stored": len(last) - len(gone), "removed": sum(version > 0 for version in gone)}


def last_changes(changes: "Sequence[Put | Delete]") -> "dict[tuple[str, str], Put | Delete]":
    """Return what decides of the changes of one step: the last one of each path and key."""
    return {(joined_path(each.path), each.key): each for each in changes}


def owner_of(scope: MemoryMetadata) -> tuple[str, str]:
    """Return the digest of a scope, by which a store finds its entries, and the scope as JSON."""
    named = Query(metadata=scope).wanted
    metadata = json.dumps(named, ensure_ascii=False, separators=(",", ":"))
    # A digest, as four names of the greatest length do not fit into a row of an index.
    return sha256(metadata.encode()).hexdigest()[:32], metadata


def appended_key(number: int) -> str:
    """Return the key of the *number*th value of a log: by its text as by its number."""
    return f"{number:016d}"


def instant_of(micros: int) -> datetime:
    """Return the time that is so many microseconds after 1970."""
    return _EPOCH + timedelta(microseconds=micros)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _size(text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise QueryError(f"{text!r} is no text: it has half of a surrogate pair") from None
