"""A file as batches of items ready for the store: read, placed and named in one thread.

A file says what there is, never whose it is: everything lands in the caller's scope, under ids
made of that scope, the format and the file's own names. So the same file gives the same ids.
"""

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from hashlib import blake2b

from pydantic import ValidationError

from orbiter.memory.agent._reading import derived_id
from orbiter.memory.errors import TransferError
from orbiter.memory.items import MemoryItem, MemoryMetadata
from orbiter.memory.transfer._formats import Found
from orbiter.memory.transfer._known import format_named, recognised
from orbiter.memory.transfer._limits import Limits
from orbiter.memory.transfer._opened import OpenedFile
from orbiter.memory.transfer._owners import Owners
from orbiter.memory.transfer._report import Report
from orbiter.memory.transfer._source import Tally, open_source
from orbiter.memory.trust import Trust

__all__ = ["IMPORTED", "Reader", "Ready"]

IMPORTED = "imported"
"""The key of `metadata.extra` with the digest of what the file said: an import changes an item
only when the file has changed, and leaves alone what its owner made of it since."""

_OURS = frozenset(("id", "metadata", "created_at", "updated_at", "version"))
"""Fields that a file does not decide; time and whose it is are looked at apart."""
_MOST_ITEMS = 400
_MOST_BYTES = 4 * 2**20


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
    ) -> None:
        self._path = path
        self._scope = scope
        self._format = format
        self._owners = Owners(owner, scope.user_id)
        self._limits = limits
        self._report = report
        self._stack = ExitStack()
        self._found: Iterator[tuple[str, Found]] = iter(())
        self._strange: list[str] = []
        self.tally = Tally()
        self.is_stopped = False
        """Set from outside, to read no further."""

    def open(self) -> None:
        """Open the file and see what it is."""
        report = self._report
        if self._format != "auto":
            format_named(self._format)
        source = self._stack.enter_context(
            open_source(self._path, complain=report.complain, limits=self._limits, tally=self.tally)
        )
        report.is_muted = True
        sources = self._sources(source)
        if not sources:
            raise TransferError(
                f'`{source.name}` is of no known format; name one, such as `format="mem0"`'
            )
        report.is_muted = False
        if self._strange:
            others = f" and {len(self._strange) - 1} others" if self._strange[1:] else ""
            report.complain(f"`{self._strange[0]}`{others}", "of no known format; not read")
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
            format = None
            with suppress(TransferError):  # damaged, so it is not known either
                format = recognised(member)
            if format is None:
                self._strange.append(member.name)
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

    def batch(self) -> list[Ready]:
        """Return the next items; none at the end."""
        ready: list[Ready] = []
        size = 0
        while not self.is_stopped and len(ready) < _MOST_ITEMS and size < _MOST_BYTES:
            try:
                format, found = next(self._found)
            except StopIteration:
                break
            except ValidationError as exc:
                first = exc.errors(include_url=False, include_input=False)[0]
                raise TransferError(f"the file cannot be read on: {first['msg']}") from exc
            try:
                one, length = self._ready(format, found)
            except ValueError as exc:
                self._report.skipped += 1
                self._report.complain(f"`{found.key[:80]}`", f"it cannot be stored: {exc}")
                continue
            ready.append(one)
            size += length
        return ready

    def _ready(self, format: str, found: Found) -> tuple[Ready, int]:
        item = found.item
        # Else its time is that of the reading, which is another each time.
        is_dated = "created_at" in item.model_fields_set
        own = item.metadata
        said = {name: value for name, value in item.__dict__.items() if name not in _OURS}
        said |= {"created_at": item.created_at} if is_dated else {}
        whose = (own.session_id, own.task_id, own.agent_id, own.extra)
        raw = json.dumps([said, whose], sort_keys=True, default=str).encode()
        digest = blake2b(raw, digest_size=8).hexdigest()
        labels = {"source": f"import:{format}", "trust": int(Trust.IMPORT), IMPORTED: digest}
        item.__dict__["metadata"] = self._placed(found, labels)
        item.__dict__["id"] = derived_id(self._scope, "import", format, found.key)
        item.__dict__["version"] = 1
        return Ready(item, digest, found.key[:80]), len(raw)

    def _placed(self, found: Found, labels: dict[str, object]) -> MemoryMetadata:
        """Return whose the item is: the scope's; what that leaves open, the file may name."""
        scope, own = self._scope, found.item.metadata
        session, task = own.session_id, own.task_id
        if scope.session_id is not None:
            # A conversation in a session is a task of it, as `chat` has it.
            session, task = scope.session_id, own.task_id or own.session_id
        return MemoryMetadata(
            user_id=self._owners.user_of(found),
            session_id=session,
            task_id=task if scope.task_id is None else scope.task_id,
            agent_id=own.agent_id if scope.agent_id is None else scope.agent_id,
            extra={**own.extra, **labels},
        )

    def close(self) -> None:
        """Close the file, and remove what was unpacked of it."""
        self._found = iter(())
        self._stack.close()
