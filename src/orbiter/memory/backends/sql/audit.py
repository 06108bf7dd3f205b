"""`SQLAudit`: the audit log of a SQL store, how it is written, read and verified.

A write that is logged and its entries are one transaction, so that neither is there without the
other. A store without `audit` runs not one statement more, and loads nothing of what logs.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar, get_args

from orbiter.memory.backends.sql.dialect import Args, Rows, Statement, Steps
from orbiter.memory.backends.sql.operations import MAX_LIMIT, SQLDatabase
from orbiter.memory.backends.sql.rows import iso
from orbiter.memory.errors import AccessError, QueryError, StorageError, UnsupportedError
from orbiter.memory.model import audit as values
from orbiter.memory.model.audit import AuditAction, AuditEntry, AuditMode, AuditVerification
from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.model.query import Query, check_instant, check_size
from orbiter.memory.model.validation import check_name
from orbiter.memory.tasks.progress import advance

if TYPE_CHECKING:
    from orbiter.memory.backends.sql.audit_dialect import AuditDialect
    from orbiter.memory.backends.sql.audit_log import Ids, Log
    from orbiter.memory.backends.sql.audit_verify import Findings

__all__ = ["SQLAudit", "check_audit", "signature"]

_T = TypeVar("_T")


def check_audit(audit: object) -> AuditMode | None:
    """Return what is to be logged, or raise a `ValueError`."""
    if audit is None or audit in get_args(AuditMode):
        return audit  # type: ignore[return-value]  # one of these
    raise ValueError(f"`audit` must be `writes`, `all` or None, not {audit!r}")


def _is_begun() -> Steps[bool]:
    rows = yield Statement("SELECT begun FROM memory_audit_head")
    return bool(rows and rows[0][0])


class SQLAudit(SQLDatabase):
    """What a store has logged, and how it logs."""

    _audit: AuditMode | None = None

    @abstractmethod
    def _audit_dialect(self) -> "AuditDialect":
        """Return how the database says what only the log asks for."""

    @cached_property
    def _log(self) -> "Log":
        from orbiter.memory.backends.sql.audit_log import Log  # noqa: PLC0415 - few stores log

        return Log(self._audit_dialect())

    # Logging

    @property
    def audit(self) -> AuditMode | None:
        """What this store logs: `writes`, `all`, or nothing."""
        return self._audit

    async def _begin_audit(self) -> None:
        """Take in what is there, once; called when the store was opened.

        A log that was begun goes on, whoever opens the store: what it lacks would pass for forged.
        """
        if self._is_bound:
            return
        is_begun = await self._read(_is_begun, alone=True)
        if self._audit is None:
            self._audit = "writes" if is_begun else None
            return
        last: str | None = None if is_begun else ""
        while last is not None:
            last = await self._write(
                lambda: self._log.begin(self._operations.dialect, last, sees_all=self._sees_all)  # noqa: B023
            )

    def _audited(
        self,
        steps: Callable[[], Steps[_T]],
        *,
        ids: "Ids",
        by: str | None = None,
        removal: AuditAction = "purged",
        is_deep: bool = False,
        scope: MemoryMetadata | None = None,
        count: int | None = None,
    ) -> Callable[[], Steps[_T]]:
        """Return *steps* that log what they change, for `_write`; without `audit`, *steps*.

        *ids* are those that may be changed, or steps that tell them. What has become of each is
        seen by itself; *removal* is how it is called if it is gone for good. *is_deep* says that
        earlier versions may change or go, too. *scope* is whose items are all removed; with
        *count*, which went before, that is also an entry of its own, which counts the items.
        """
        if self._audit is None:
            return steps
        from orbiter.memory.backends.sql.audit_log import Note  # noqa: PLC0415

        wanted = None if scope is None else dict(Query(metadata=scope).wanted)
        note = Note(ids, values.actor(by), removal, is_deep=is_deep, scope=wanted, count=count)  # type: ignore[arg-type]
        return lambda: self._log.recorded(self._operations.dialect, steps(), note)

    async def _write_entries(
        self,
        steps: Callable[[], Steps[_T]],
        scope: MemoryMetadata,
        call: str,
        counts: Callable[[_T], Mapping[AuditAction, int]],
    ) -> _T:
        """Run *steps*, which change key-value entries, and log how many entries, if there is a log.

        *counts* tells from what they return how many were changed, and how.
        """
        if self._audit is None:
            return await self._write(steps)
        wanted, by = dict(Query(metadata=scope).wanted), values.actor()
        return await self._write(
            lambda: self._log.counted(
                self._operations.dialect,
                steps(),
                counts,
                scope=wanted,  # type: ignore[arg-type]  # names of fields
                by=by,
                call=call,
            )
        )

    def _ids_where(self, condition: Callable[[Args], str]) -> Callable[[], Steps[Sequence[str]]]:
        """Return steps that tell the ids of items of which *condition* holds."""

        def steps() -> Steps[Sequence[str]]:
            args = Args(self._operations.dialect)
            where = condition(args)
            rows = yield Statement(f"SELECT id FROM memory_items WHERE {where} ORDER BY id", args)
            return [row[0] for row in rows]

        return steps

    @property
    def _logs_reads(self) -> bool:
        return self._audit == "all" and not values.is_silent()

    async def _log_items(
        self, call: str, items: Sequence[MemoryItem], scope: MemoryMetadata | None = None
    ) -> None:
        """Log that *items* were read, if reads are logged."""
        if self._logs_reads:
            if not Query(metadata=scope).wanted:
                named = (dict(Query(metadata=item.metadata).wanted) for item in items)
                shared = values.common_scope(named)  # type: ignore[arg-type]
                scope = MemoryMetadata(**shared)
            await self.log_read(call, [item.id for item in items], scope=scope)

    async def log_read(
        self,
        call: str,
        item_ids: Iterable[str],
        *,
        scope: MemoryMetadata | None = None,
        count: int | None = None,
        action: AuditAction = "read",
    ) -> None:
        """Log that items were read by *call*; nothing without `audit="all"`.

        The entry names the first hundred ids, and counts all, or *count*.
        """
        if self._audit != "all":
            return
        wanted = dict(Query(metadata=scope).wanted)
        ids, by = list(item_ids), values.actor()
        await self._write(
            lambda: self._log.read(
                self._operations.dialect,
                call,
                ids,
                scope=wanted,  # type: ignore[arg-type]  # names of fields
                by=by,
                count=count,
                action=action,
            )
        )

    # Reading the log

    async def audit_head(self) -> str:
        """Return the hash of the last entry: note it elsewhere, and give it to `verify_audit`."""
        head = await self._read(lambda: self._log.head(lock=False), alone=True)
        return head.hash or values.START

    async def audit_entries(
        self,
        *,
        metadata: MemoryMetadata | None = None,
        action: str | None = None,
        by: str | None = None,
        item_id: str | None = None,
        since: datetime | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[AuditEntry]:
        """Return at most *limit* entries that match, newest first.

        *metadata* is whose, *by* who did it; *item_id* finds what was written, not what was read;
        *before* is the number of an entry, the last of a page, to get the page of older ones.
        """
        from orbiter.memory.backends.sql.audit_reader import from_row  # noqa: PLC0415

        if action is not None and action not in values.ACTIONS:
            raise QueryError(f"`action` must be one of {', '.join(values.ACTIONS)}, not {action!r}")
        moment = None if since is None else iso(check_instant("since", since))
        if before is not None:
            check_size("before", before)
        limit = min(check_size("limit", limit), MAX_LIMIT)
        self._must_be_unbound()
        wanted = dict(Query(metadata=metadata).wanted)
        bounds: list[tuple[str, str, str | int | None]] = [
            ("action", "=", action),
            ("actor", "=", by),
            ("item_id", "=", item_id),
            ("at", ">=", moment),
            ("number", "<", before),
        ]
        rows = await self._read(lambda: self._entries(wanted, bounds, limit))  # type: ignore[arg-type]  # names of fields
        try:
            return [from_row(row) for row in rows]
        except (ValueError, TypeError, KeyError) as exc:
            raise StorageError(
                f"the audit log of {self!r} has an entry that cannot be read; see `verify_audit()`"
            ) from exc

    def _entries(
        self,
        wanted: dict[str, str],
        bounds: Sequence[tuple[str, str, str | int | None]],
        limit: int,
    ) -> Steps[Rows]:
        from orbiter.memory.backends.sql.audit_reader import COLUMNS  # noqa: PLC0415

        head = yield from self._log.head(lock=False)
        args = Args(self._operations.dialect)
        where = ["number > 0"]
        if wanted:
            digests = values.scope_digest((head.key or "").encode(), wanted).split()
            if "user_id" in wanted:  # comes first, so that an index serves it
                first = digests.pop(0)
                where.append(f"whose >= {args.bind(first)} AND whose < {args.bind(first + '!')}")
            where += [f"whose LIKE {args.bind(f'%{each}%')}" for each in digests]
        for column, sign, value in bounds:
            if value is not None:
                where.append(f"{column} {sign} {args.bind(value)}")
        return (
            yield Statement(
                f"SELECT {', '.join(COLUMNS)} FROM memory_audit WHERE {' AND '.join(where)}"
                f" ORDER BY number DESC LIMIT {limit}",
                args,
            )
        )

    def _must_be_unbound(self) -> None:
        if self._is_bound:
            raise AccessError(
                f"{self!r} acts for one user, and the audit log is of all users; read it through "
                "the store that it was made from"
            )

    # Verifying

    async def verify_audit(self, *, head: str | None = None) -> AuditVerification:
        """Follow the chain, and compare every item with what its entries say of it.

        *head* is what `audit_head` returned at some time: without it, nobody can tell whether
        somebody who can write everything has rewritten the whole log.
        """
        from orbiter.memory.backends.sql import audit_verify  # noqa: PLC0415

        self._must_be_unbound()
        if not self._sees_all:
            raise AccessError(
                f"{self!r} sees no items, so every item would seem to be missing; verify as a "
                "role that bypasses row-level security"
            )
        findings = audit_verify.Findings()
        check = audit_verify.ChainCheck(findings, head)
        dialect = self._operations.dialect
        while True:
            last = check.number
            some = await self._together(lambda: audit_verify.some_entries(self._log, dialect, last))  # noqa: B023
            for fields in some.entries:
                check.follow(fields)
            advance(check.number, 2 * some.head.number)  # then the items, of which there are less
            if not some.entries:
                break
        if not some.head.is_begun and not check.entries and head is None:
            raise UnsupportedError(f'{self!r} has no audit log; open it with `audit="writes"`')
        check.end(some.head)
        items = await self._verify_items(findings, after=some.head.number)
        return AuditVerification(check.entries, items, tuple(findings.problems), check.hash)

    async def _verify_items(self, findings: "Findings", *, after: int) -> int:
        from orbiter.memory.backends.sql import audit_verify  # noqa: PLC0415

        dialect = self._operations.dialect
        checked, compared, last = 0, 0, b""
        while names := await self._read(lambda: audit_verify.some_ids(self._log, last), alone=True):  # noqa: B023
            last = names[-1]
            ids = [name.decode() for name in names if _is_text(name)]
            state = await self._together(lambda: audit_verify.logged(self._log, dialect, ids))  # noqa: B023
            for item_id in ids:
                compared += audit_verify.judge(findings, item_id, state)
            checked += len(ids)
            advance(after + checked, 2 * after)
        last = b""
        while names := await self._together(lambda: self._unlogged(last)):  # noqa: B023
            last = names[-1]
            for name in names:
                item_id = name.decode(errors="replace")
                findings.add(f"item `{item_id}` was added without the log", item_id=item_id)
            compared += len(names)
        return compared

    def _unlogged(self, last: bytes) -> Steps[list[bytes]]:
        yield from self._log.head()
        return (yield from self._log.unlogged(self._operations.dialect, last))


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def signature(by: str | None) -> str | None:
    """Return who is said to act, or who acts; `QueryError` if that is no name."""
    by = values.actor(by)
    if by is None:
        return None
    if not isinstance(by, str):
        raise QueryError(f"`by` must be a name, not {by!r}")
    try:
        return check_name(by, max_chars=256)
    except ValueError as exc:
        raise QueryError(f"`by` must be a name: {exc}") from None
