"""A file as batches of items ready for the store: read, placed and named in one thread.

A file says what there is, never whose it is: everything lands in the caller's scope. Its id is
made of the scope that it ends up in, the format, and the file's names for it and for its owner. So
the same file gives the same ids, whoever imports it for the same person.
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
from orbiter.memory.model.items import MemoryItem, MemoryMetadata, SystemMemory
from orbiter.memory.model.trust import Trust
from orbiter.memory.transfer._owners import Owners, needs_a_user
from orbiter.memory.transfer._reserved_extra import IMPORTED, checked
from orbiter.memory.transfer.formats.json_helpers import UNREADABLE, reason
from orbiter.memory.transfer.formats.protocol import Found
from orbiter.memory.transfer.formats.registry import (
    COMPANIONS,
    NAMES_OWNERS,
    format_named,
    recognised,
)
from orbiter.memory.transfer.formats.threads import LONGEST_NAME, digest
from orbiter.memory.transfer.formats.unrecognised import is_store, looks_like, unknown
from orbiter.memory.transfer.io.file_limits import Limits
from orbiter.memory.transfer.io.open_source import Tally, open_source
from orbiter.memory.transfer.io.opened_file import OpenedFile
from orbiter.memory.transfer.report import Report

__all__ = ["Reader", "Ready"]

_OURS = frozenset(("id", "metadata", "created_at", "updated_at", "version"))
"""Fields that a file does not decide; time and whose it is are looked at apart."""
_PLAIN = ("content", "created_at", "updated_at", "expires_at", "status")
_MOST_ITEMS = 400
_MOST_BYTES = 4 * 2**20
_MOST_NAMES = 50


@dataclass(frozen=True, slots=True)
class Ready:
    """An item with its id, for the store."""

    item: MemoryItem
    digest: str
    key: str


class Reader:
    """Reads one file for one scope; everything but the numbers is used from one thread only."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        scope: MemoryMetadata,
        *,
        format: str,
        owner: str | None,
        limits: Limits | None,
        report: Report,
        needs_owner: bool = False,
    ) -> None:
        """Prepare it; with *needs_owner*, what would be nobody's is refused."""
        self._path = path
        self._scope = scope
        self._format = format
        self._owners = Owners(owner, scope.user_id, needs_owner=needs_owner)
        self._needs_owner = needs_owner
        self._limits = limits
        self._report = report
        self._stack = ExitStack()
        self._found: Iterator[tuple[str, Found]] = iter(())
        self._strange: dict[str, list[str]] = {}
        """By what is the matter with them: the files that are not read."""
        self.tally = Tally()

    def open(self) -> None:
        """Open the file and see what it is."""
        report = self._report
        if self._format != "auto":
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
        if self._needs_owner and not NAMES_OWNERS & {format for _, format in sources}:
            raise needs_a_user(source.name)
        members = source.opened_members() if source.is_container else ()
        self.tally.unread = dict.fromkeys(member.name for member in members)
        report.is_muted = False
        for why, names in self._strange.items():
            report.complain(_listed(names), f"not read: {why}")
            for name in names:
                self.tally.unread.pop(name, None)
        report.formats += [format for _, format in sources]
        self.tally.done = 0
        self._found = self._read(source.name, sources)

    def _sources(self, source: OpenedFile) -> list[tuple[OpenedFile, str]]:
        """Return what is to be read, as which format; a mixed folder is many files."""
        if self._format != "auto":
            return [(source, self._format)]
        whole = recognised(source)
        if whole is not None:
            return [(source, whole)]
        found = []
        for member in source.opened_members() if source.is_container else ():
            try:
                format = recognised(member)
                why = looks_like(member) if format is None else ""
            except TransferError as exc:  # damaged, so it is not known either
                format, why = None, str(exc)
            if format is None:
                self._strange.setdefault(why, []).append(member.name)
            else:
                found.append((member, format))
        return found

    def _read(
        self, name: str, sources: list[tuple[OpenedFile, str]]
    ) -> Iterator[tuple[str, Found]]:
        report = self._report
        for source, format in sources:
            try:
                for found in format_named(format).read(source, report.complain):
                    report.found += 1
                    if self._owners.takes(found):
                        yield format, found
                    else:
                        report.skipped += 1
            except TransferError as exc:
                if len(sources) == 1:
                    raise
                report.complain(source.name, str(exc))
        self._owners.tell(report.complain, name)
        known = {each for _, format in sources for each in COMPANIONS.get(format, ())}
        left = [each for each in self.tally.unread if PurePosixPath(each).name not in known]
        if left:
            formats = "`, `".join(dict.fromkeys(report.formats))
            report.complain(_listed(left), f"not read: no part of `{formats}`")

    def batch(self) -> list[Ready]:
        """Return the next items; none at the end."""
        ready: list[Ready] = []
        size = 0
        while not self.tally.is_stopped and len(ready) < _MOST_ITEMS and size < _MOST_BYTES:
            try:
                format, found = next(self._found)
            except StopIteration:
                break
            except TransferError:
                if self._is_given_up():
                    break
                raise
            except UNREADABLE as exc:
                raise TransferError(f"the file cannot be read on: {reason(exc)}") from exc
            place = f"`{found.key[:80]}`"
            end = found.item.expires_at
            if end is not None and end <= datetime.now(UTC):
                self._report.skipped += 1
                self._report.complain(place, f"it is over since {end:%Y-%m-%d %H:%M} UTC")
                continue
            try:
                one, length = self._ready(format, found, place)
            except UNREADABLE as exc:
                self._report.skipped += 1
                self._report.complain(place, f"it cannot be stored: {reason(exc)}")
                continue
            ready.append(one)
            size += length
        return ready

    def _is_given_up(self) -> bool:
        return self.tally.is_stopped

    def _ready(self, format: str, found: Found, place: str) -> tuple[Ready, int]:
        item = found.item
        # Else its time is that of the reading, which is another each time.
        is_dated = "created_at" in item.model_fields_set
        own = item.metadata
        said = {name: value for name, value in item.__dict__.items() if name not in _OURS}
        said |= {"created_at": item.created_at} if is_dated else {}
        beside = (own.session_id, own.task_id, own.agent_id, own.extra)
        raw = json.dumps([said, beside], sort_keys=True, default=str).encode()
        digest = blake2b(raw, digest_size=8).hexdigest()
        extra = checked(own.extra, format, self._report.complain, place)
        extra |= {"source": f"import:{format}", "trust": int(Trust.IMPORT), IMPORTED: digest}
        whose = self._placed(format, found, extra)
        if isinstance(item, SystemMemory) and not self._is_named(format, whose):
            item = _unsaid(item, whose)
        item.__dict__["metadata"] = whose
        item.__dict__["id"] = derived_id(whose, "import", format, found.key, *found.owners)
        item.__dict__["version"] = 1
        return Ready(item, digest, found.key[:80]), len(raw)

    def _placed(self, format: str, found: Found, extra: dict[str, object]) -> MemoryMetadata:
        """Return whose the item is: the scope's; what that leaves open, the file may name."""
        scope, own = self._scope, found.item.metadata
        session, task = _named(format, own.session_id), own.task_id
        if scope.session_id is not None:
            # A conversation in a session is a task of it, as `chat` has it.
            session, task = scope.session_id, _named(format, own.task_id or own.session_id)
        return MemoryMetadata(
            user_id=self._owners.user_of(found),
            session_id=session,
            task_id=task if scope.task_id is None else scope.task_id,
            agent_id=own.agent_id if scope.agent_id is None else scope.agent_id,
            extra=extra,
        )

    def _is_named(self, format: str, whose: MemoryMetadata) -> bool:
        """Tell whether an item is in a conversation that the import has named."""
        chat = whose.session_id if self._scope.session_id is None else whose.task_id
        is_own = self._scope.session_id is None or self._scope.task_id is None
        return is_own and chat is not None and chat.startswith(f"{format}:")

    def close(self) -> None:
        """Close the file, and remove what was unpacked of it."""
        self._found = iter(())
        self._stack.close()


def _named(format: str, name: str | None) -> str | None:
    """Return what a conversation is called here: as none of the caller's own is."""
    if not name or name.startswith(f"{format}:"):
        return name or None
    return f"{format}:{name if len(name) <= LONGEST_NAME else digest(name, size=16)}"


def _unsaid(item: SystemMemory, whose: MemoryMetadata) -> MemoryItem:
    """Return what a file would have the system say as a plain item: here it is no system."""
    whose.extra["role"] = "system"
    fields = {name: item.__dict__[name] for name in _PLAIN if name in item.__dict__}
    return MemoryItem(**fields, metadata=whose)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES:,} others" if len(names) > _MOST_NAMES else ""
    return ", ".join(f"`{name}`" for name in names[:_MOST_NAMES]) + more
