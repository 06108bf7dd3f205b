"""`Dialect` and `RecordWriter`: the SQL in which the two databases differ, and steps.

An operation is a generator of `Steps`: it yields statements and is sent their rows.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from datetime import datetime
from time import time_ns
from typing import Any, ClassVar, NamedTuple, TypeVar

from orbiter.memory.backends.sql.rows import READ, Row
from orbiter.memory.backends.sql.stored_records import Kept, KeptVersion, Note
from orbiter.memory.model.filters import Condition
from orbiter.memory.model.query import Order, Query

__all__ = ["Args", "Dialect", "Filter", "RecordWriter", "Rows", "Statement", "Steps"]

_T = TypeVar("_T")

Rows = Sequence[Sequence[Any]]
Steps = Generator["Statement", Rows, _T]
"""An operation: yields statements, is sent their rows, returns its answer."""


class Statement(NamedTuple):
    """One statement; with `many`, `args` is a list of rows and nothing is sent back."""

    sql: str
    args: Sequence[Any] = ()
    many: bool = False


class Filter(NamedTuple):
    """A compiled question: conditions by their cost, and the values they bind."""

    scope: list[str]
    """Served by an index: deleted or not, the scope fields, the times."""
    rest: list[str]
    """Checked row by row: type, status and `where`."""
    args: "Args"
    scope_args: Sequence[Any]
    """The part of `args` that `scope` binds."""


class Args(list[Any]):
    """Values to bind, each named by its place."""

    def __init__(self, dialect: "Dialect", values: Iterable[Any] = ()) -> None:
        super().__init__(values)
        self.dialect = dialect

    def bind(self, value: object) -> str:
        """Add *value* and return how a statement names it."""
        self.append(value)
        return self.dialect.parameter(len(self))


class Dialect(ABC):
    """How one database spells it."""

    place: ClassVar[str]
    """The column that counts insertions."""
    now: ClassVar[str]
    """The present instant, as a time is written."""
    micro_clock: ClassVar[str] = ""
    """The same in microseconds since 1970; empty where a process knows it better."""
    from_micros: ClassVar[str] = "timestamptz 'epoch' + {} * interval '1 microsecond'"
    """How a time in microseconds since 1970, `{}`, is written as that of an item."""
    to_json: ClassVar[str] = ""
    """Behind a bound text, makes it a value of the column `metadata`."""
    for_update: ClassVar[str]
    """Ends a SELECT whose row no one else may change before the transaction ends."""
    fact_fields: ClassVar[Mapping[str, str]]
    """How the times of a fact are read as text; its `key`, NULL if they are not as we write them;
    and the `latest` instant at which anything became known of it. Indexes are made of these."""
    columns: ClassVar[str] = ", ".join(READ)
    """How the columns `READ` are read."""
    record_writer: "ClassVar[RecordWriter]"
    """How it writes items with all they were."""
    everything: ClassVar[str] = "memory_items"
    """Where all rows can be read in the order of their ids."""
    by_code_point: ClassVar[str] = ""
    """Behind a text, has it ordered by code point; empty where nothing else is."""

    def message_columns(self, args: Args, usual: str) -> str:  # noqa: ARG002
        """Return how `READ` is read of accepted items, most of which have the metadata *usual*.

        What is as in most rows may be NULL, see `rows.decode_some`.
        """
        return self.columns

    @abstractmethod
    def parameter(self, number: int) -> str:
        """Return the name of the *number*th bound value."""

    def instant(self, value: datetime) -> object:
        """Return a time as it is bound."""
        return value

    def micros(self, args: Args) -> str:
        """Return the present instant in microseconds since 1970."""
        return self.micro_clock or args.bind(time_ns() // 1_000)

    @abstractmethod
    def pairs(self, args: Args, pairs: Sequence[tuple[str, str]]) -> str:
        """Return a query for the given pairs of texts."""

    @abstractmethod
    def upsert(self, row: Row) -> Steps[int | None]:
        """Write a row over the one with its id; return its version, if that is told."""

    def order(self, order: Order, query: Query, way: str) -> str:  # noqa: ARG002
        """Return how rows are ordered; *way* is `DESC` or `ASC`."""
        time = f"created_at {way}, " if order == "time" else ""
        return f"ORDER BY {time}{self.place} {way}"

    @abstractmethod
    def scope(self, wanted: dict[Any, str], args: Args) -> list[str]:
        """Return the conditions that scope fields are equal to what is wanted."""

    def fact_key(self, wanted: Mapping[Any, str], key: str) -> str:  # noqa: ARG002
        """Return what `fact_fields["key"]` is of a fact of the scope that is wanted."""
        return key

    @abstractmethod
    def value(self, name: str) -> str:
        """Return how a scope field is read."""

    @abstractmethod
    def extra_value(self, key: str, args: Args) -> str:
        """Return how a key of `metadata.extra` is read: as JSON, exactly as it was written.

        That is a list with the value first, or all of `metadata`.
        """

    @abstractmethod
    def unset(self, name: str) -> str:
        """Return the condition that a scope field has no value."""

    @abstractmethod
    def not_expired(self, item: str = "memory_items") -> str:
        """Return the condition that the row called *item* is of an item that is not over.

        Whoever reads items states it, deleted ones included.
        """

    def none_expired(self) -> str:
        """Return the same of `memory_items`, where a statement looks at many rows."""
        return self.not_expired()

    def reading(self, where: str) -> str:
        """Return a statement that reads the one row that *where* picks, if it is not over."""
        return f"SELECT {self.columns} FROM memory_items WHERE {where} AND {self.not_expired()}"

    def counting(self, where: str) -> str:
        """Return a statement that counts the rows of items that are not over."""
        return f"SELECT count(*) FROM memory_items WHERE {where} AND {self.none_expired()}"

    def counting_owner(self, wanted: Mapping[Any, str], args: Args) -> str | None:  # noqa: ARG002
        """Return a statement that counts what is not deleted of a scope, if a count is kept."""
        return None

    @abstractmethod
    def sweep(self, count: int) -> Steps[int]:
        """Remove at most *count* items that are over, for good; return how many."""

    @abstractmethod
    def fits(self, condition: Condition, args: Args) -> str:
        """Return what a filter states, `condition.matches` being the reference."""

    @abstractmethod
    def contains(self, needle: str, args: Args) -> str:
        """Return the condition that `content` holds a case-folded *needle*: exact, unindexed."""

    @abstractmethod
    def find(self, needle: str, compiled: Filter, tail: str, newest: Rows) -> Steps[Rows]:
        """Find rows by text with an index; *tail* is the order and the limit.

        *newest* are those found among the newest `PROBE` rows, fewer than the limit.
        """

    @abstractmethod
    def add_many(self, rows: Sequence[Row]) -> Steps[None]:
        """Upsert *rows* in order."""

    @abstractmethod
    def by_id(self, args: Args, item_id: str) -> str:
        """Return the condition that picks the one row of an id."""

    def by_id_to_write(self, args: Args, item_id: str) -> Steps[str]:
        """Return that condition once what must be locked before the row is locked."""
        yield from ()
        return self.by_id(args, item_id)

    def one(self, item_id: str, read: Callable[[str], str]) -> Steps[Rows]:
        """Return the row of an id; *read* makes a statement of the condition that picks it."""
        args = Args(self)
        return (yield Statement(read(self.by_id(args, item_id)), args))

    def get(self, item_id: str) -> Steps[Rows]:
        """Return the row of an item that is not deleted."""
        return (yield from self.one(item_id, lambda it: self.reading(f"{it} AND deleted = 0")))

    @abstractmethod
    def by_ids(self, args: Args, item_ids: Sequence[str]) -> str:
        """Return the condition that picks the rows of ids."""

    def lock_rows(self, item_ids: Sequence[str]) -> Steps[None]:  # noqa: ARG002
        """Lock the rows of ids in an order in which no two callers wait for each other."""
        yield from ()

    def lock_conversations(self, rows: Sequence[Row]) -> Steps[None]:  # noqa: ARG002
        """Wait until nobody else adds to the conversations of *rows*: places go by commits."""
        yield from ()

    def reserve(self, item_ids: Sequence[str]) -> Steps[None]:  # noqa: ARG002
        """Keep others who claim one of these ids waiting, whether it has a row yet or not."""
        yield from ()

    @abstractmethod
    def changes(self, sql: str, args: Sequence[Any]) -> Steps[int]:
        """Run a change and return how many rows it changed."""

    @abstractmethod
    def purge(self, condition: str, args: Sequence[Any]) -> Steps[int]:
        """Remove rows for good, with their versions and from every search structure."""


class RecordWriter(ABC):
    """How one database writes records: items with all they were, exactly."""

    arrivals = (
        "LEFT JOIN (SELECT id AS noted, ended_at AS came, ended_by AS came_by"
        " FROM memory_versions WHERE version = 0) AS b ON b.noted = i.id"
    )
    """How rows called `i` get to know when they came, and by whom: `came` and `came_by`."""

    def columns(self, dialect: Dialect) -> str:
        """Return how the columns `READ` are read; times may be read as text."""
        return dialect.columns

    def instant(self, column: str) -> str:
        """Return how a time is read."""
        return column

    @abstractmethod
    def versions_of(self, args: Args, item_ids: Sequence[str]) -> str:
        """Return the condition that picks the rows of `memory_versions` of ids."""

    def take(
        self,
        dialect: Dialect,
        item_ids: Sequence[str],
        keep: Callable[[str], Kept],  # noqa: ARG002
    ) -> Steps[set[str]]:
        """Lock what has these ids; return those that were written here, as they had no row.

        *keep* tells what is written of an id.
        """
        yield from dialect.lock_rows(item_ids)
        return set()

    @abstractmethod
    def insert(self, kept: Sequence[Kept]) -> Steps[None]:
        """Write items that are not there, in order."""

    @abstractmethod
    def replace(self, kept: Sequence[Kept]) -> Steps[None]:
        """Write items in the place of those that are there, which lose their versions."""

    @abstractmethod
    def add_past(self, versions: Sequence[KeptVersion], notes: Sequence[Note]) -> Steps[None]:
        """Write what items were, and when they came."""
