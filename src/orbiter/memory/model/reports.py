"""Reports: what a store tells about itself, and what `erase` has done.

An `Erasure` never holds a word of what was erased, so that it can be kept as the proof of it.
"""

from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from orbiter.memory.model.items import MemoryItem, MemoryMetadata

__all__ = [
    "IN_PAGES",
    "ConversationInfo",
    "Erasure",
    "ItemVersion",
    "Restored",
    "StoreStats",
    "Verification",
    "counts_of",
]


@dataclass(frozen=True, slots=True)
class ConversationInfo:
    """One conversation: the messages that name the same user, session, task and agent."""

    metadata: MemoryMetadata
    """Whose it is; the fields that its messages do not name are `None`."""
    items: int
    """How many messages it has."""
    first_at: datetime
    """When its first message was created."""
    last_at: datetime
    """When its last message was created."""
    title: str | None = None
    """What another program called it, of an imported one; `chats()` of a handle tells it."""


@dataclass(frozen=True, slots=True)
class ItemVersion:
    """One version of an item: what it was, and who made it so, when."""

    item: MemoryItem
    change: Literal["added", "updated", "deleted", "restored"]
    at: datetime
    """When the store wrote it; for a first version that says it was created about then, that."""
    by: str | None
    """Who was named as `by=`; else the item's own agent or user."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What `AgentMemory.restore` did."""

    path: Path
    """The file of the store."""
    items: int
    """How many items it now holds, those that were forgotten aside."""
    replaced: Path | None
    """Where the file that was there before is kept; `None` if there was none."""
    erased_since: tuple[tuple[MemoryMetadata, datetime], ...] = ()
    """Who is in it again, though they were erased since the backup, and when; erase them again.

    The audit log of the file that was there knows it. Without one, nobody does.
    """


@dataclass(frozen=True, slots=True)
class StoreStats:
    """How much a store holds."""

    items: int
    deleted: int
    """Soft-deleted items, which `purge` removes."""
    versions: int
    """Earlier versions kept for `history`."""
    bytes: int
    """Size on disk, indexes and search structures included."""
    unindexed: int
    """Items that text search still reads one by one until they are indexed."""
    schema: int
    """Version of the tables' layout."""
    unembedded: int = 0
    """Items that wait for their vectors; search by meaning does not find them yet."""
    embedding_error: str | None = None
    """What the embeddings raised last in this process, until they work again."""
    missing_extension: str | None = None
    """`vector` if vectors are compared one by one, as this Postgres began without pgvector."""


@dataclass(frozen=True, slots=True)
class Verification:
    """What `verify` found. It is true when nothing is wrong, or everything was repaired."""

    checked: int
    """Rows that were read."""
    problems: tuple[str, ...]
    repaired: bool
    """Whether the search structures were rebuilt."""

    def __bool__(self) -> bool:
        return not self.problems


_KINDS = (
    "items",
    "forgotten",
    "versions",
    "vectors",
    "cached",
    "episodes",
    "redis_keys",
    "entries",
)
_BESIDE = {
    "versions": ("earlier version", "earlier versions"),
    "vectors": ("vector", "vectors"),
    "cached": ("cached vector", "cached vectors"),
    "episodes": ("episode", "episodes"),
    "redis_keys": ("Redis key", "Redis keys"),
}
"""What goes with memories and entries, and is not counted in a dry run."""


IN_PAGES = (
    "the pages of Postgres and its write-ahead log, which have the bytes of removed rows until "
    "others take their place: `vacuum()` of the store, or `VACUUM FULL`, rewrites the tables"
)
"""What `not_searched` says of Postgres: a disk has what no table shows."""


@dataclass(frozen=True, slots=True)
class Erasure:
    """What `erase` removed and checked, or would remove. It is true when nothing is left."""

    computed: ClassVar[tuple[str, ...]] = ("found", "proven")
    """Properties that are in every report, beside the fields."""

    items: int = 0
    """Items that could still be read."""
    forgotten: int = 0
    """Items that were soft-deleted already, and could have been restored."""
    versions: int = 0
    """Earlier versions, those of items that are another's now included."""
    vectors: int = 0
    """Items whose vectors were kept beside them."""
    cached: int = 0
    """Vectors in the file of `CachedEmbeddings`."""
    episodes: int = 0
    """What was remembered of the last hours by `activity`."""
    redis_keys: int = 0
    """Keys of a Redis, those of indexes included."""
    entries: int = 0
    """Entries of key and value."""
    tables: int = 0
    """Tables that were asked afterwards."""
    files: tuple[str, ...] = ()
    """Files whose bytes were read afterwards."""
    bytes_read: int = 0
    """How many bytes these have."""
    probes: int = 0
    """Words, slices and names that were looked for; they were held in memory only."""
    problems: tuple[str, ...] = ()
    """What is still there, or could not be made sure of, and the way out."""
    dry_run: bool = False
    """Whether it was only counted, and nothing was touched."""
    not_searched: tuple[str, ...] = ()
    """Where copies may be that were not searched, and the way out: files that `restore` kept beside
    a SQLite store, and the pages of Postgres."""
    api_keys: dict[str, str] = field(default_factory=dict, hash=False)
    """API keys that still open what was erased: their ids, each with the command that revokes it.

    A server and the command line know keys; `erase` of a store in this process has none to name.
    """
    erased: dict[str, str] = field(default_factory=dict, hash=False)
    """Whose it was, such as `{"user_id": "bob"}`; empty if single memories were erased."""
    at: datetime | None = None
    """When it was done."""
    by: str | None = None
    """Who did it, as it was told."""
    store: str = ""
    """The URL of the store, without a password."""
    program: str = ""
    """Which version of the program did it."""

    @property
    def found(self) -> bool:
        """Whether there was anything to erase: false for a misspelt name."""
        return bool(self.total)

    @property
    def proven(self) -> bool:
        """Whether it was done, and nothing is left; nor is of what was never there: see `found`."""
        return not self.problems and not self.dry_run

    def to_dict(self) -> dict[str, Any]:
        """Return the report as it is kept, and as a server sends it: who, when, where, and what."""
        at = None if self.at is None else self.at.isoformat()
        last = {name: getattr(self, name) for name in self.computed}
        first = {"erased": self.erased, "at": at, "by": self.by, **last}
        return first | {name: each for name, each in asdict(self).items() if name not in first}

    def __bool__(self) -> bool:
        return not self.problems and not (self.dry_run and self.total)

    @property
    def total(self) -> int:
        """How much was removed, of all kinds."""
        return sum(getattr(self, kind) for kind in _KINDS)

    def _counts(self) -> str:
        """Return what a dry run counts, too, in the same words."""
        parts = [f"{self.items:,} {'memory' if self.items == 1 else 'memories'}"]
        parts += [f"{self.forgotten:,} forgotten"] if self.forgotten else []
        entries = "key-value entry" if self.entries == 1 else "key-value entries"
        return _listed([*parts, *([f"{self.entries:,} {entries}"] if self.entries else [])])

    def _repr_html_(self) -> str:
        from orbiter.memory.model.display import html_table  # noqa: PLC0415 - for notebooks

        lines = [line.strip().removeprefix("- ") for line in str(self).splitlines()]
        rows = [(name, each) for name, each in self.to_dict().items() if each or name == "found"]
        return html_table(("report", ""), rows, title="; ".join(lines))

    def __add__(self, other: Self) -> Self:
        """Return both as one: the same scope, erased in two places."""
        summed = {name: getattr(self, name) + getattr(other, name) for name in _SUMS}
        return replace(self, **summed, dry_run=self.dry_run or other.dry_run)

    def __str__(self) -> str:
        gone = self._counts()
        places = [f"{self.tables} tables"] if self.tables else []
        places += [f"{len(self.files)} files ({self.bytes_read:,} bytes)"] if self.files else []
        looked = f"looked for {self.probes} traces in {' and '.join(places)}" if places else ""
        if self.dry_run:
            return f"would erase {gone}" if self.total else "there is nothing to erase"
        beside = [
            f"{count:,} {words[count != 1]}"
            for kind, words in _BESIDE.items()
            if (count := getattr(self, kind))
        ]
        head = f"erased {gone}" if self.total else "there was nothing to erase"
        more = [f"  and with that {', '.join(beside)}"] if beside else []
        tail = "nothing is left" if self.total else "nothing was there before"
        tail = tail if self else f"{len(self.problems)} left to do"
        lines = [head, *more, *([looked] if looked else []), tail]
        keys = (f"the API key `{each}` still works: `{way}`" for each, way in self.api_keys.items())
        return "\n".join([*lines, *(f"  - {each}" for each in (*self.problems, *keys))])


def _listed(parts: list[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if parts[1:] else parts)


_SUMS = tuple(each.name for each in fields(Erasure) if type(each.default) in (int, tuple))


def counts_of(done: Erasure) -> dict[str, int]:
    """Return how much of each kind is gone; `Erasure(**counts)` goes on from there."""
    return {kind: getattr(done, kind) for kind in _KINDS if getattr(done, kind)}
