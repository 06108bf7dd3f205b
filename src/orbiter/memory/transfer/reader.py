"""Reads a file as batches of items with their ids, in one thread.

A file says what there is, never whose it is: everything lands in the caller's scope. Its id is
made of the scope that it ends up in, the format, and the file's names for it and for its owner. So
the same file gives the same ids, whoever imports it for the same person. Nothing of one person may
come into another's scope because both stand in one file.

In `metadata.extra`, a file may say nothing that only we may say, and nothing we would misread: a
key that has a meaning here is kept under the format's name where its value does not have that
meaning, `importance` of mem0 as `mem0_importance`.
"""

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import PurePosixPath

from orbiter.memory.agent.inputs import derived_id
from orbiter.memory.errors import TransferError
from orbiter.memory.model.items import (
    MemoryItem,
    MemoryMetadata,
    SystemMemory,
    ToolMemory,
    calls_of,
)
from orbiter.memory.model.tool_calls import call_id, call_name
from orbiter.memory.model.trust import Trust
from orbiter.memory.text.redaction import Redaction
from orbiter.memory.transfer.foreign_labels import checked_labels
from orbiter.memory.transfer.formats.foreign_items import LONGEST_NAME, digest
from orbiter.memory.transfer.formats.foreign_values import UNREADABLE, reason
from orbiter.memory.transfer.formats.importer import Columns, Importer, SourceMemory
from orbiter.memory.transfer.formats.registry import (
    AUTO,
    NATIVE,
    companions,
    format_named,
    has_columns,
    names_owners,
    owners_are_sessions,
    recognised,
)
from orbiter.memory.transfer.formats.unrecognised import is_store, looks_like, unknown
from orbiter.memory.transfer.io.archives import Limits
from orbiter.memory.transfer.io.open_source import open_source
from orbiter.memory.transfer.io.source_file import SourceFile, Tally
from orbiter.memory.transfer.owners import Owners, needs_a_user
from orbiter.memory.transfer.report import Report

__all__ = ["IMPORTED", "ReadItem", "Reader", "refuse_columns", "refuse_owner"]

_OURS = frozenset(("id", "metadata", "created_at", "updated_at", "version"))
"""Fields that a file does not decide; time and whose it is are looked at apart."""
_PLAIN = ("content", "created_at", "updated_at", "expires_at", "status")
_MAX_ITEMS = 400
_MAX_BYTES = 4 * 2**20
_MAX_NAMES = 50
_MAX_CALLS = 20_000
"""Calls of tools whose names are known while a file is read."""


_BY_NAME = Columns()
"""Nobody has said what the columns of a table are."""


@dataclass(frozen=True, slots=True)
class ReadItem:
    """An item with its id, for the store."""

    item: MemoryItem
    digest: str
    place: str
    """Where it stands in the file, or what it is called there."""


class Reader:
    """Reads one file for one scope; everything but the numbers is used from one thread only."""

    def __init__(  # noqa: PLR0913 - what a file is, and whose
        self,
        path: str | os.PathLike[str],
        scope: MemoryMetadata,
        *,
        format: str,
        owner: str | None,
        limits: Limits | None,
        report: Report,
        columns: Columns = _BY_NAME,
        needs_owner: bool = False,
        redaction: Redaction | None = None,
    ) -> None:
        """Prepare it; with *needs_owner*, what would be nobody's is refused."""
        self._redaction = redaction or Redaction().for_files()
        self._columns = columns
        self._path = path
        self._scope = scope
        self._format = format
        self._owner = owner
        self._owners = Owners(owner, scope.user_id, needs_owner=needs_owner)
        self._needs_owner = needs_owner
        self._limits = limits
        self._report = report
        self._stack = ExitStack()
        self._memories: Iterator[tuple[str, SourceMemory]] = iter(())
        self._strange: dict[str, list[str]] = {}
        """By what is the matter with them: the files that are not read."""
        self._tools: dict[tuple[str | None, str], str] = {}
        """By conversation and id of a call: the tool that it calls."""
        self.tally = Tally()

    def open(self) -> None:
        """Open the file and see what it is."""
        report = self._report
        if self._format != AUTO:
            format_named(self._format)
        source = self._stack.enter_context(
            open_source(self._path, complain=report.complain, limits=self._limits, tally=self.tally)
        )
        report.is_muted = True
        if not source.is_container and is_store(source.head()):
            raise TransferError(
                f"`{source.name}` is a store itself, ours or the original library's: open it by "
                "its path, or copy it with `orbiter-memory migrate SRC DST`"
            )
        sources = self._sources(source)
        if not sources:
            raise unknown(source)
        refuse_columns(self._columns, sources[0][1], source.name)
        if not any(names_owners(each) or owners_are_sessions(each) for _, each in sources):
            refuse_owner(self._owner, sources[0][1], source.name)
        if self._needs_owner and not any(names_owners(format) for _, format in sources):
            raise needs_a_user(source.name)
        members = source.members() if source.is_container else ()
        self.tally.unread = dict.fromkeys(member.name for member in members)
        importers = self._importers(sources)
        report.is_muted = False
        for why, names in self._strange.items():
            report.complain(_listed(names), f"not read: {why}")
            for name in names:
                self.tally.unread.pop(name, None)
        report.formats += [format for _, format in sources]
        self.tally.done = 0
        self._memories = self._read(source.name, sources, importers)

    def _importers(self, sources: list[tuple[SourceFile, str]]) -> list[Importer | TransferError]:
        """Return what reads each source; of a table that cannot be read, why, if there are more."""
        readers: list[Importer | TransferError] = []
        for source, format in sources:
            importer = format_named(format)
            try:
                if has_columns(format):
                    importer = importer.prepared(  # type: ignore[attr-defined]  # as `has_columns` tells
                        source, self._columns, has_owner=self._owner is not None
                    )
            except TransferError as exc:
                if len(sources) == 1:
                    raise
                readers.append(exc)
            else:
                readers.append(importer)
        return readers

    def _sources(self, source: SourceFile) -> list[tuple[SourceFile, str]]:
        """Return what is to be read, as which format; a mixed folder is many files."""
        if self._format != AUTO and source.is_container and has_columns(self._format):
            members = [(each, _table_format(each.name)) for each in source.members()]
            return [(each, self._format) for each, kind in members if kind == self._format]
        if self._format != AUTO:
            return [(source, self._format)]
        if self._columns.is_any_named:  # then it is a table, whatever else it looks like
            members = [(each, _table_format(each.name)) for each in source.members()]
            if source.is_container:
                return [(each, kind) for each, kind in members if kind]
            is_json = source.head().lstrip()[:1] in (b"{", b"[")
            return [(source, "json" if is_json else "csv")]
        whole = recognised(source)
        if whole is not None:
            return [(source, whole)]
        recognised_members = []
        for member in source.members() if source.is_container else ():
            try:
                format = recognised(member)
                why = looks_like(member) if format is None else ""
            except TransferError as exc:  # damaged, so it is not known either
                format, why = None, str(exc)
            if format is None:
                self._strange.setdefault(why, []).append(member.name)
            else:
                recognised_members.append((member, format))
        return recognised_members

    def _read(
        self,
        name: str,
        sources: list[tuple[SourceFile, str]],
        importers: list[Importer | TransferError],
    ) -> Iterator[tuple[str, SourceMemory]]:
        report = self._report
        for (source, format), importer in zip(sources, importers, strict=True):
            has_sessions = owners_are_sessions(format)
            try:
                if isinstance(importer, TransferError):
                    raise importer
                for memory in importer.read(source, report.complain):
                    report.found += 1
                    self._name_tool(memory.item)
                    if self._owners.takes(memory, has_sessions=has_sessions):
                        yield format, memory
                    else:
                        report.skipped += 1
            except TransferError as exc:
                if len(sources) == 1:
                    raise
                report.complain(source.name, str(exc))
        self._owners.report_left_out(report.complain, name)
        if several := self._owners.several_sessions():
            report.notes.append(
                f"`{name}` has several sessions, and all became one user's: {several}; choose one "
                "with `owner=…` if they are of several people"
            )
        known = {each for _, format in sources for each in companions(format)}
        left = [each for each in self.tally.unread if PurePosixPath(each).name not in known]
        if left:
            formats = "`, `".join(dict.fromkeys(report.formats))
            report.complain(_listed(left), f"not read: not part of `{formats}`")

    def _name_tool(self, item: MemoryItem) -> None:
        """Give the result of a call the name of its tool, where the file names that only once.

        By it, what our own tools answered is told from other results.
        """
        session = item.metadata.session_id
        for call in calls_of(item):
            self._tools[session, call_id(call)] = call_name(call)
            if len(self._tools) > _MAX_CALLS:
                del self._tools[next(iter(self._tools))]
        if isinstance(item, ToolMemory) and not item.tool_name:
            item.__dict__["tool_name"] = self._tools.pop((session, item.tool_call_id), "")[:256]

    def batch(self) -> list[ReadItem]:
        """Return the next items; none at the end."""
        ready: list[ReadItem] = []
        size = 0
        while not self.tally.is_stopped and len(ready) < _MAX_ITEMS and size < _MAX_BYTES:
            try:
                format, memory = next(self._memories)
            except StopIteration:
                break
            except TransferError:
                if self._is_given_up():
                    break
                raise
            except UNREADABLE as exc:
                raise TransferError(f"the rest of the file cannot be read: {reason(exc)}") from exc
            place = memory.place or f"`{memory.key[:80]}`"
            end = memory.item.expires_at
            if end is not None and end <= datetime.now(UTC):
                self._report.skipped += 1
                self._report.complain(place, f"it expired on {end:%Y-%m-%d %H:%M} UTC")
                continue
            try:
                one, length = self._ready(format, memory, place)
            except UNREADABLE as exc:
                self._report.skipped += 1
                self._report.complain(place, f"it cannot be stored: {reason(exc)}")
                continue
            if not self._redaction.apply([one.item]):
                self._report.skipped += 1  # all of it is marked as private
                continue
            ready.append(one)
            size += length
        return ready

    def _is_given_up(self) -> bool:
        return self.tally.is_stopped

    def _ready(self, format: str, memory: SourceMemory, place: str) -> tuple[ReadItem, int]:
        item = memory.item
        # Else its time is that of the reading, which is another each time.
        is_dated = "created_at" in item.model_fields_set
        own = item.metadata
        said = {name: value for name, value in item.__dict__.items() if name not in _OURS}
        said |= {"created_at": item.created_at} if is_dated else {}
        beside = (own.session_id, own.task_id, own.agent_id, own.extra)
        raw = json.dumps([said, beside], sort_keys=True, default=str).encode()
        digest = blake2b(raw, digest_size=8).hexdigest()
        extra = checked_labels(own.extra, format, self._report.complain, place)
        extra |= {"source": f"import:{format}", "trust": int(Trust.IMPORT), IMPORTED: digest}
        metadata = self._placed(format, memory, extra)
        if isinstance(item, SystemMemory) and not self._is_named(format, metadata):
            item = _unsaid(item, metadata)
        item.__dict__["metadata"] = metadata
        item.__dict__["id"] = derived_id(metadata, "import", format, memory.key, *memory.owners)
        item.__dict__["version"] = 1
        return ReadItem(item, digest, place), len(raw)

    def _placed(
        self, format: str, memory: SourceMemory, extra: dict[str, object]
    ) -> MemoryMetadata:
        """Return whose the item is: the scope's; what that leaves open, the file may name."""
        scope, own = self._scope, memory.item.metadata
        session, task = _named(format, own.session_id), own.task_id
        if scope.session_id is not None:
            # A conversation in a session is a task of it, as `chat` has it.
            session, task = scope.session_id, _named(format, own.task_id or own.session_id)
        return MemoryMetadata(
            user_id=self._owners.user_of(memory),
            session_id=session,
            task_id=task if scope.task_id is None else scope.task_id,
            agent_id=own.agent_id if scope.agent_id is None else scope.agent_id,
            extra=extra,
        )

    def _is_named(self, format: str, metadata: MemoryMetadata) -> bool:
        """Tell whether an item is in a conversation that the import has named."""
        chat = metadata.session_id if self._scope.session_id is None else metadata.task_id
        is_own = self._scope.session_id is None or self._scope.task_id is None
        return is_own and chat is not None and chat.startswith(f"{format}:")

    def close(self) -> None:
        """Close the file, and remove what was unpacked of it."""
        self._memories = iter(())
        self._stack.close()


def _named(format: str, name: str | None) -> str | None:
    """Return what a conversation is called here: as none of the caller's own is."""
    if not name or name.startswith(f"{format}:"):
        return name or None
    return f"{format}:{name if len(name) <= LONGEST_NAME else digest(name, size=16)}"


def _unsaid(item: SystemMemory, metadata: MemoryMetadata) -> MemoryItem:
    """Return what a file would have the system say as a plain item: here it is no system."""
    metadata.extra["role"] = "system"
    fields = {name: item.__dict__[name] for name in _PLAIN if name in item.__dict__}
    return MemoryItem(**fields, metadata=metadata)


def _table_format(name: str) -> str | None:
    from orbiter.memory.transfer.formats.table_rows import TABLE_ENDINGS  # noqa: PLC0415 - for tables only

    return next((kind for end, kind in TABLE_ENDINGS.items() if name.lower().endswith(end)), None)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_NAMES:,} others" if len(names) > _MAX_NAMES else ""
    return ", ".join(f"`{name}`" for name in names[:_MAX_NAMES]) + more


IMPORTED = "imported"
"""The key with the digest of what the file said: an import changes an item only when the file has
changed, and leaves alone what its owner made of it since."""


def refuse_owner(owner: str | None, format: str, name: str) -> None:
    """Raise `TransferError` if an owner was chosen of a file that names none."""
    if owner is not None:
        raise TransferError(
            f"`{name}` is `{format}`, where no owner can be chosen, so `{owner}` would count for "
            "nothing; leave out `owner=…`"
        )


def refuse_columns(columns: Columns, format: str, name: str) -> None:
    """Raise `TransferError` if columns were named of a file that has none."""
    if columns.is_any_named and (format == NATIVE or not has_columns(format)):
        raise TransferError(
            f"`{name}` is `{format}`, which has no columns, so `text=…` and its like would count "
            "for nothing; leave them out"
        )
