"""SQL of Postgres for `sql/operations.py`: whole tables, and tables partitioned by user."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from hashlib import md5
from typing import Any

from orbiter.memory.backends.postgres.derived_tables import LOCKED
from orbiter.memory.backends.postgres.migrations import FACT_FIELDS
from orbiter.memory.backends.postgres.record_writer import (
    PartitionedRecordWriter,
    PostgresRecordWriter,
)
from orbiter.memory.backends.postgres.schema import DIGEST, FOLDED, field
from orbiter.memory.backends.postgres.upsert import (
    CHANGED,
    COLUMNS,
    CREATED,
    FOLD,
    FOLD_APART,
    MOVED_TO,
    ONE_IN_TURN,
    TYPES,
    USER_KEY,
    VALUES,
    bound_rows,
    conversation_locks,
    folded,
    numbered,
    or_update,
    partitioned_upsert,
    placed,
    waves,
)
from orbiter.memory.backends.postgres.where import (
    PostgresWhereCompiler,
    extra_value,
    is_expired,
    like_pattern,
    not_expired,
    rarest_trigrams,
)
from orbiter.memory.backends.sql import operations
from orbiter.memory.backends.sql.dialect import Args, Dialect, Filter, Rows, Statement, Steps
from orbiter.memory.backends.sql.operations import fields_without_value
from orbiter.memory.backends.sql.rows import READ, Row
from orbiter.memory.errors import AccessError
from orbiter.memory.model.filters import Condition
from orbiter.memory.model.query import SCOPE_FIELDS, Order, Query

__all__ = ["FEW", "PartitionedDialect", "PostgresDialect"]

FEW = 1500
"""Rows of a scope up to which reading them is cheaper than asking the trigrams."""


class PostgresDialect(Dialect):
    """Whole tables: an id is unique by the primary key."""

    place = "seq"
    record_writer = PostgresRecordWriter()
    # As text, whatever a caller's own pool makes of jsonb.
    columns = ", ".join(READ).replace("metadata", "metadata::text AS metadata")
    now = "clock_timestamp()"
    micro_clock = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
    to_json = "::text::jsonb"
    for_update = " FOR UPDATE"
    fact_fields = FACT_FIELDS
    by_code_point = ' COLLATE "C"'
    extra_value = staticmethod(extra_value)
    owner = "coalesce(metadata->>'user_id', '')"
    """Whom a row belongs to, as the tables of what is derived name it."""

    def __init__(self, *, folds_apart: bool = False) -> None:
        """With *folds_apart*, folded copies are written after the rows.

        The policy on them looks for the row, which a statement that writes both does not see.
        """
        self._folds_apart = folds_apart

    def parameter(self, number: int) -> str:
        """Return the name of a bound value."""
        return f"${number}"

    def pairs(self, args: Args, pairs: Sequence[tuple[str, str]]) -> str:
        """Return a query that takes the pairs out of arrays."""
        left, right = (f"{args.bind([*each])}::text[]" for each in zip(*pairs, strict=True))
        return f"SELECT * FROM unnest({left}, {right})"

    def order(self, order: Order, query: Query, way: str) -> str:
        """Return how rows are ordered, by what an index begins with first.

        That a field has no value does not tell the planner that the order leaves it out.
        """
        if order == "time" or query.needle:
            return super().order(order, query, way)
        unset = fields_without_value(query)
        fields = [f"{field(name)} {way}" for name in ("session_id", "user_id") if name in unset]
        return f"ORDER BY {', '.join([*fields, f'{self.place} {way}'])}"

    def scope(self, wanted: dict[Any, str], args: Args) -> list[str]:
        """Return equalities that the expression indexes serve."""
        return [f"{field(name)} = {args.bind(value)}" for name, value in wanted.items()]

    def fact_key(self, wanted: Mapping[Any, str], key: str) -> str:
        """Return the digest of a scope and a key that the index is made of."""
        named = "\x1f".join([*(wanted.get(name, "") for name in SCOPE_FIELDS), key])
        return md5(named.encode(), usedforsecurity=False).hexdigest()

    def by_id(self, args: Args, item_id: str) -> str:
        """Return the condition that picks the row of an id."""
        return f"id = {args.bind(item_id)}"

    def by_ids(self, args: Args, item_ids: Sequence[str]) -> str:
        """Return the condition that picks the rows of ids."""
        return f"id = ANY ({args.bind(list(item_ids))}::text[])"

    def lock_rows(self, item_ids: Sequence[str]) -> Steps[None]:
        """Lock in the order of ids, as a batch is written."""
        yield Statement(
            "SELECT 1 FROM memory_items WHERE id = ANY ($1::text[]) ORDER BY id FOR UPDATE",
            [list(item_ids)],
        )

    def reserve(self, item_ids: Sequence[str]) -> Steps[None]:
        """Lock the ids themselves: a row that is not there cannot be locked."""
        yield Statement(
            "SELECT pg_advisory_xact_lock(hashtextextended(id, 0)) FROM"
            " (SELECT DISTINCT id FROM unnest($1::text[]) AS given (id) ORDER BY id) AS given",
            [list(item_ids)],
        )

    def beside(self, derived: str, item: str) -> str:
        """Return the condition that joins what is derived with its item."""
        return self.is_item(f"{derived}.user_key", f"{derived}.id", item)

    def is_item(self, owner: str, item_id: str, item: str) -> str:
        """Return the condition that *item* is the row of this owner and id."""
        return f"{item}.id = {item_id} AND coalesce({item}.metadata->>'user_id', '') = {owner}"

    def rows_of(self, derived: str, args: Args, owner: str | None) -> str:
        """Return the rows of items, *owner*'s if one is given, looked up each by its key.

        OFFSET fences it off: else an index of a filter may look as cheap as the key.
        """
        own = "" if owner is None else self.cut("i", args, owner)
        beside = self.beside(derived, "i")
        return f"LATERAL (SELECT * FROM memory_items AS i WHERE {beside}{own} OFFSET 0)"

    def cut(self, derived: str, args: Args, owner: str) -> str:  # noqa: ARG002
        """Return what keeps a question about one owner to the part of a table that is theirs."""
        return ""

    def value(self, name: str) -> str:
        """Return the expression that the indexes are made of."""
        return field(name)

    def unset(self, name: str) -> str:
        """Return the condition that a scope field has no value."""
        return f"{field(name)} IS NULL"

    def not_expired(self, item: str = "memory_items") -> str:
        """Return a condition that looks at the first bytes of what a row has beside its text."""
        return not_expired(f"{item}.")

    def counting(self, where: str) -> str:
        """Count all and take off what is over: the others are not looked at one by one."""
        counted = f"SELECT count(*) FROM memory_items WHERE {where}"
        return f"SELECT ({counted}) - ({counted} AND {is_expired()})"

    def sweep(self, count: int) -> Steps[int]:
        """Remove what nobody else is at, with the locks that making terms takes."""
        rows = yield Statement(
            f"SELECT {self.owner}, id FROM memory_items WHERE {is_expired()}"
            f" LIMIT {count} FOR UPDATE SKIP LOCKED"
        )
        return (yield from self._sweep(rows))

    def _sweep(self, rows: Rows) -> Steps[int]:
        if not rows:
            return 0
        args = Args(self)
        where = self.by_ids(args, [item_id for _, item_id in rows])
        return (yield from self.purge(f"{where} AND {is_expired()}", args))

    def fits(self, condition: Condition, args: Args) -> str:
        """Return what a filter states, in SQL."""
        return PostgresWhereCompiler(args).compile(condition)

    # Text

    def contains(self, needle: str, args: Args) -> str:
        """Return a condition that looks for a folded copy only of texts beyond ASCII."""
        pattern = args.bind(like_pattern(needle))
        return (
            f"({FOLDED} LIKE {pattern} OR octet_length(content) <> char_length(content) AND EXISTS"
            " (SELECT 1 FROM memory_folded AS f WHERE f.id = memory_items.id"
            f" AND f.folded LIKE {pattern} AND f.digest = {DIGEST}))"
        )

    def find(self, needle: str, compiled: Filter, tail: str, newest: Rows) -> Steps[Rows]:
        """Ask the trigrams, or read the rows of a scope that has few."""
        counted = yield Statement(
            "SELECT count(*) FROM (SELECT 1 FROM memory_items"
            f" WHERE {' AND '.join(compiled.scope)} LIMIT {FEW + 1}) AS counted",
            compiled.scope_args,
        )
        if counted[0][0] <= operations.PROBE:
            return newest
        args = Args(self, compiled.args)
        bound = args.bind(needle)
        where = " AND ".join([*compiled.scope, *compiled.rest])
        columns = f"{self.columns}, {self.place}"
        plain, beside = "memory_items", "memory_folded"
        chunks = rarest_trigrams(needle) if counted[0][0] > FEW else []
        if chunks:
            # Fenced off by OFFSET: a plan made for any user would read all rows of this one, too.
            pattern = args.bind(f"%{'%'.join(chunks)}%")
            cut = " AND ".join(each for each in compiled.scope if each.startswith("user_key"))
            plain = (
                f"(SELECT * FROM memory_items WHERE {FOLDED} LIKE {pattern}"
                f"{cut and f' AND {cut}'} OFFSET 0) AS memory_items"
            )
            beside = f"(SELECT * FROM memory_folded WHERE folded LIKE {pattern} OFFSET 0) AS f"
        # Materialized: else a plan that walks from the newest row and hopes looks cheapest.
        sql = (
            f"WITH plain AS MATERIALIZED (SELECT {columns} FROM {plain}"
            f" WHERE {where} AND strpos({FOLDED}, {bound}) > 0),"
            f" folded AS MATERIALIZED (SELECT {columns} FROM memory_items JOIN {beside} USING (id)"
            f' WHERE {where} AND strpos(folded COLLATE "C", {bound}) > 0'
            f" AND strpos({FOLDED}, {bound}) = 0 AND digest = {DIGEST})"
            f" SELECT {', '.join(READ)} FROM (SELECT * FROM plain UNION ALL SELECT * FROM folded)"
            f" AS found {tail}"
        )
        return (yield Statement(sql, args))

    # Writing

    def upsert(self, row: Row) -> Steps[int | None]:
        """Write a row and, if it needs one, its folded copy, in one statement."""
        put = yield from self._put([row], again=False)
        return put[0][1] if put else None

    def is_one(self, rows: Sequence[Row]) -> bool:
        """Tell whether one statement writes all of *rows*."""
        return len(rows) == 1 or len(list(waves(rows))) == 1

    def lock_conversations(self, rows: Sequence[Row]) -> Steps[None]:
        """Wait for one's turn in the conversations of *rows*, before anything else is locked."""
        locks = conversation_locks(rows)
        if locks:
            yield Statement(
                "SELECT pg_advisory_xact_lock(key) FROM unnest($1::bigint[]) AS t (key)", [locks]
            )

    def add_at_once(self, rows: Sequence[Row], *, again: bool) -> Steps[Sequence[Row]]:
        """Upsert *rows* like `lock_conversations` and `add_many`, in one statement if `is_one`.

        With *again*, they may have been written already: a row that is as wanted stays. Return
        those that are still to be written, each by itself.
        """
        if self.is_one(rows):
            yield from self._put(rows, again=again, locks=conversation_locks(rows))
        else:
            yield from self.lock_conversations(rows)
            yield from self.add_many(rows)
        return ()

    def add_many(self, rows: Sequence[Row]) -> Steps[None]:
        """Upsert *rows* by the thousand; those of one id one after the other."""
        for batch in waves(rows):
            yield from self._put(batch)

    def _put(
        self, batch: Sequence[Row], *, again: bool = False, locks: Sequence[int] = ()
    ) -> Steps[Rows]:
        """Write rows of different ids; return the ids and versions of those written.

        The locks of *locks* are taken in the same statement.
        """
        values = [(*row, folded(row.content)) for row in batch]
        fold = any(each[-1] is not None for each in values)
        if fold and self._folds_apart:
            put = yield from self._write_rows(values, fold=False, again=again, locks=locks)
            texts = [(each[0], each[1], each[-1]) for each in values if each[-1] is not None]
            yield Statement(FOLD_APART, texts, many=True)
            return put
        return (yield from self._write_rows(values, fold=fold, again=again, locks=locks))

    def _write_rows(
        self, values: Sequence[Sequence[Any]], *, fold: bool, again: bool, locks: Sequence[int]
    ) -> Steps[Rows]:
        many = len(values) > 1
        bound: Sequence[Any] = list(zip(*values, strict=True)) if many else values[0]
        if not fold:
            bound = bound[:-1]
        sql = self._sql(many=many, fold=fold, again=again, in_turn=bool(locks))
        return (yield Statement(sql, [*bound, locks] if locks else bound))

    @cache  # noqa: B019 - there is one dialect of each kind, for as long as the process lives
    def _sql(self, *, many: bool, fold: bool, again: bool, in_turn: bool) -> str:
        if not many and not fold:
            one = f"SELECT {placed(TYPES)}{ONE_IN_TURN}" if in_turn else f"VALUES ({placed(TYPES)})"
            source = one.replace("$5::text", "$5::text::jsonb")
            return f"{self._insert(source, again=again)} RETURNING m.id, m.version"
        bound = bound_rows(many=many, fold=fold)
        put = self._insert(f"SELECT {VALUES}, seq FROM numbered ORDER BY id", again=again)
        return (
            f"WITH given AS ({bound}), {numbered(in_turn, fold)},"
            f" put AS ({put} RETURNING m.id, m.version)"
            f"{FOLD if fold else ''} SELECT id, version FROM put"
        )

    def _insert(self, source: str, *, again: bool) -> str:
        columns = f"{COLUMNS}, seq" if "seq" in source else COLUMNS
        return f"INSERT INTO memory_items AS m ({columns}) {source} {or_update('id', again)}"

    def changes(self, sql: str, args: Sequence[Any]) -> Steps[int]:
        """Run a change and return how many rows it changed."""
        rows = yield Statement(
            f"WITH changed AS ({sql} RETURNING 1) SELECT count(*) FROM changed", args
        )
        return int(rows[0][0])

    def purge(self, condition: str, args: Sequence[Any]) -> Steps[int]:
        """Remove rows; a trigger takes along what is kept beside them.

        Rows are locked in the order of ids, as they are written, and then their owners: what
        somebody is making of these rows is there, and seen, before they go.
        """
        rows = yield from self._lock_rows(condition, args)
        if not rows:
            return 0
        yield Statement(LOCKED, [sorted({owner for owner, _ in rows})])
        there = Args(self)
        where = self.by_ids(there, [item_id for _, item_id in rows])
        return (yield from self.changes(f"DELETE FROM memory_items WHERE {where}", there))

    def _lock_rows(self, condition: str, args: Sequence[Any]) -> Steps[Rows]:
        """Lock the rows of which *condition* holds; return their owners and ids."""
        return (
            yield Statement(
                f"SELECT {self.owner}, id FROM memory_items WHERE {condition}"
                " ORDER BY id FOR UPDATE",
                args,
            )
        )


class PartitionedDialect(PostgresDialect):
    """Tables cut by user: `memory_ids` keeps ids unique, and tells the partition of an id."""

    everything = "memory_ids JOIN memory_items USING (user_key, id)"
    owner = "user_key"
    record_writer = PartitionedRecordWriter()
    counting = Dialect.counting  # looks into the partitions once

    def is_item(self, owner: str, item_id: str, item: str) -> str:
        """Return a condition that the primary key serves."""
        return f"{item}.user_key = {owner} AND {item}.id = {item_id}"

    def reading(self, where: str) -> str:
        """Look at the end outside: inside, it is planned for each partition."""
        return (
            f"SELECT {self.columns} FROM (SELECT * FROM memory_items WHERE {where} OFFSET 0)"
            f" AS memory_items WHERE {self.not_expired()}"
        )

    def sweep(self, count: int) -> Steps[int]:
        """Lock ids before their rows, as every write does."""
        rows = yield Statement(
            "SELECT i.user_key, i.id FROM memory_ids AS i JOIN (SELECT id FROM memory_items"
            f" WHERE {is_expired()} LIMIT {count}) AS o ON o.id = i.id FOR UPDATE OF i SKIP LOCKED"
        )
        return (yield from self._sweep(rows))

    def cut(self, derived: str, args: Args, owner: str) -> str:
        """Name the partition."""
        return f" AND {derived}.user_key = {args.bind(owner)}"

    def scope(self, wanted: dict[Any, str], args: Args) -> list[str]:
        """Name the partition too, so that no other is looked into."""
        conditions = super().scope(wanted, args)
        if "user_id" in wanted:
            conditions.append(f"user_key = {args.bind(wanted['user_id'])}")
        return conditions

    def unset(self, name: str) -> str:
        """Name the partition of what has no user, too."""
        return super().unset(name) + (" AND user_key = ''" if name == "user_id" else "")

    def by_id(self, args: Args, item_id: str) -> str:
        """Ask for the partition first."""
        there = args.bind(item_id)
        return f"user_key = (SELECT user_key FROM memory_ids WHERE id = {there}) AND id = {there}"

    def _where(self, args: Args, item_id: str, lock: str = "") -> Steps[str]:
        find = f"SELECT user_key FROM memory_ids WHERE id = $1{lock}"
        there = (yield Statement(find, [item_id])) or [[None]]
        return f"user_key = {args.bind(there[0][0])} AND id = {args.bind(item_id)}"

    def one(self, item_id: str, read: Callable[[str], str]) -> Steps[Rows]:
        """Ask for the partition first, by itself: to plan a read of all takes much longer."""
        rows: Rows = ()
        args = Args(self)
        while not rows:  # not there; or it moved to another user between the two statements
            before, args = args, Args(self)
            where = yield from self._where(args, item_id)
            if args == before or args[0] is None:
                break
            rows = yield Statement(read(where), args)
        return rows

    def by_ids(self, args: Args, item_ids: Sequence[str]) -> str:
        """Ask for the partitions first."""
        there = f"SELECT user_key, id FROM memory_ids WHERE {super().by_ids(args, item_ids)}"
        return f"(user_key, id) IN ({there})"

    def lock_rows(self, item_ids: Sequence[str]) -> Steps[None]:
        """Lock ids before their rows, in their order, as every write does."""
        yield Statement(
            "SELECT 1 FROM memory_ids WHERE id = ANY ($1::text[]) ORDER BY id FOR UPDATE",
            [list(item_ids)],
        )

    def _lock_rows(self, condition: str, args: Sequence[Any]) -> Steps[Rows]:
        """Lock ids before their rows: whoever moves a row does, too."""
        ids = yield Statement(
            "SELECT id FROM memory_ids WHERE id IN"
            f" (SELECT id FROM memory_items WHERE {condition}) ORDER BY id FOR UPDATE",
            args,
        )
        held = Args(self, args)
        where = self.by_ids(held, [row[0] for row in ids])
        return (yield from super()._lock_rows(f"({condition}) AND {where}", held)) if ids else ()

    @cache  # noqa: B019 - there is one dialect of each kind, for as long as the process lives
    def _sql(self, *, many: bool, fold: bool, again: bool, in_turn: bool) -> str:
        return partitioned_upsert(many=many, fold=fold, again=again, in_turn=in_turn)

    def add_at_once(self, rows: Sequence[Row], *, again: bool) -> Steps[Sequence[Row]]:
        """Leave out those of several rows that have to move, or are there as they should be."""
        if len(rows) == 1 or not self.is_one(rows):
            return (yield from super().add_at_once(rows, again=again))
        put = yield from super()._put(rows, again=again, locks=conversation_locks(rows))
        there = {item_id for item_id, _ in put}
        return [row for row in rows if row.id not in there]

    def by_id_to_write(self, args: Args, item_id: str) -> Steps[str]:
        """Lock the id before its row, as every write does: else two could wait for each other."""
        return (yield from self._where(args, item_id, " FOR UPDATE"))

    def _put(
        self, batch: Sequence[Row], *, again: bool = False, locks: Sequence[int] = ()
    ) -> Steps[Rows]:
        elsewhere: Rows = ()
        if len(batch) > 1:
            elsewhere = yield Statement(
                "SELECT 1 FROM unnest($1::text[], $2::text[]) AS given (id, metadata)"
                f" JOIN memory_ids USING (id) WHERE user_key <> {USER_KEY} LIMIT 1",
                [[row.id for row in batch], [row.metadata for row in batch]],
            )
        # Rows that move take their turn among the others, so that all keep their order.
        put: list[Sequence[Any]] = []
        if not elsewhere:
            put += yield from super()._put(batch, again=again, locks=locks)
        there = {item_id for item_id, _ in put}
        for row in batch if len(put) < len(batch) else ():
            if row.id in there:
                continue
            steps = self._put([row], again=again) if elsewhere else self._move(row)
            put += yield from steps
        return put

    def _move(self, row: Row) -> Steps[Rows]:
        """Write a row whose id is another user's."""
        owner = yield Statement(
            f"SELECT user_key, {USER_KEY} FROM memory_ids, (SELECT $2::text AS metadata) AS given"
            " WHERE id = $1 FOR UPDATE OF memory_ids",
            [row.id, row.metadata],
        )
        if not owner:  # row-level security hides it from us
            raise AccessError(f"item `{row.id}` is another user's; nothing was written")
        old, new = owner[0]
        if old == new:  # written already, by an attempt whose answer was lost
            return []
        yield Statement("UPDATE memory_ids SET user_key = $2 WHERE id = $1", [row.id, new])
        changed = ", ".join(f"{name} = given.{name}" for name in CHANGED)
        changed = changed.replace("given.metadata", "given.metadata::jsonb")
        return (
            yield Statement(
                f"WITH given AS ({bound_rows(many=False, fold=True)}),"
                f" put AS (UPDATE memory_items AS m SET {changed}, user_key = $10, deleted = 0,"
                " version = m.version + 1,"
                f" created_at = {CREATED.replace('<given>', 'given')},"
                f" seq = {MOVED_TO} FROM given WHERE m.user_key = $11 AND m.id = given.id"
                f" RETURNING m.id, m.version){FOLD} SELECT id, version FROM put",
                [*row, folded(row.content), new, old],
            )
        )
