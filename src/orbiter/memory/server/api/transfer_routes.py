"""Memories in and out over the wire: `POST /v1/import` and `GET /v1/export`.

A body is written to a file of this process's own, which is gone whatever happens, and read from
there as any other: the limits of an import hold for it, too.
"""

import asyncio
import json
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from orbiter.memory.agent import ScopedMemory
from orbiter.memory.auth import Principal
from orbiter.memory.errors import AccessError, MemoryError, QueryError
from orbiter.memory.model.audit import acting_as
from orbiter.memory.model.query import SCOPE_FIELDS
from orbiter.memory.server.api.requests import check_query
from orbiter.memory.server.http.error_responses import HTTPProblem, problem_for
from orbiter.memory.server.http.scopes import check_may, handle_of
from orbiter.memory.server.http.state import principal_of, state_of
from orbiter.memory.transfer import ImportResult, export_file
from orbiter.memory.transfer.files import import_sent
from orbiter.memory.transfer.formats.importer import Columns
from orbiter.memory.transfer.formats.registry import EXPORTS
from orbiter.memory.transfer.native_rewrite import Sender
from orbiter.memory.wire.plain_values import short_repr

__all__ = ["routes"]

_AT_ONCE = 4
"""Transfers that one server does at a time: each takes room on the disk.

One key has one import and one export of them, so that no single one holds all.
"""

_TRANSFERS = "transfers"
_PIECE = 256 * 1024
_LOOK = 0.02
"""Seconds between two looks at a file that is being written."""

_OFTEN = 0.25
"""Seconds between two lines about how far an import is."""

_ENDINGS = {
    name: ".zip" if export.is_folder else export.endings[0] for name, export in EXPORTS.items()
}
_TYPES = {
    ".jsonl": "application/x-ndjson",
    ".csv": "text/csv; charset=utf-8",
    ".zip": "application/zip",
}

SendBytes = Callable[[bytes], Awaitable[None]]
Tell = Callable[[SendBytes], Awaitable[None]]
"""What sends an answer, piece by piece."""


def routes() -> list[BaseRoute]:
    """Return the doors of this module."""
    return [
        Route("/v1/import", _import, methods=["POST"]),
        Route("/v1/export", _export, methods=["GET"]),
    ]


# In


async def _import(request: Request) -> "_Answer":
    check_may(request, "write")
    check_query(request, "format", "name", "owner", "text", "at", "user_column", "day_first")
    columns = _columns(request.query_params)
    if principal_of(request).source is not None:
        raise AccessError(
            "a key for all users imports no file, as its memories say who wrote them; use the key "
            "of a user or of an administrator of everything"
        )
    handle = _handle(request)
    query = request.query_params

    @asynccontextmanager
    async def begin() -> AsyncIterator[Tell]:
        with _turn(request, "import"), _own_folder() as folder:
            file = folder / _file_name(query.get("name", ""))
            await _receive_file(request, file)
            options = (query.get("format") or "auto", query.get("owner"), columns)
            reading = _Reading(handle, file, *options, principal_of(request))
            try:
                await reading.begun()
                yield reading.tell
            finally:
                await reading.end()

    return _Answer(begin(), {"content-type": "application/x-ndjson"})


def _columns(query: Mapping[str, str]) -> Columns:
    """Return what a request says of the columns of a table."""
    day = query.get("day_first")
    if day not in (None, "true", "false"):
        raise QueryError(f"`day_first` must be `true` or `false`, not {short_repr(day)}")
    is_day = None if day is None else day == "true"
    return Columns(query.get("text"), query.get("at"), query.get("user_column"), is_day)


class _Reading:
    """One import under way: how far it is, and what became of it."""

    def __init__(
        self,
        handle: ScopedMemory,
        file: Path,
        format: str,
        owner: str | None,
        columns: Columns,
        principal: Principal,
    ) -> None:
        self._principal = principal
        self._place = (0, 0)
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._run(handle, file, format, owner, columns))

    async def _run(
        self,
        handle: ScopedMemory,
        file: Path,
        format: str,
        owner: str | None,
        columns: Columns,
    ) -> ImportResult:
        try:
            by = handle._by  # noqa: SLF001 - who acts signs what is imported, too
            with acting_as(by):
                return await import_sent(
                    handle,
                    file,
                    format=format,
                    owner=owner,
                    columns=columns,
                    progress=self._at,
                    sender=_sender(self._principal, by),
                )
        finally:
            self._news.set()

    def _at(self, done: int, total: int) -> None:
        self._place = (done, total)
        self._loop.call_soon_threadsafe(self._news.set)  # a file is read in a thread of its own

    async def begun(self) -> None:
        """Wait until it is clear that the file can be read; else raise what is wrong with it."""
        await self._news.wait()
        has_stored = self._place != (0, 0)  # then, what went wrong is told after what was stored
        if self._task.done() and not has_stored:
            self._task.result()

    async def tell(self, send: SendBytes) -> None:
        """Send a line now and then, and in the end the report."""
        while not self._task.done():
            self._news.clear()
            done, total = self._place
            await send(_line({"read": done, "of": total}))
            await asyncio.wait({self._task}, timeout=_OFTEN)
            await self._news.wait()
        try:
            await send(_line({"report": asdict(self._task.result())}))
        except MemoryError as exc:  # it went wrong in the middle; what was stored stays
            notes = getattr(exc, "__notes__", [])  # counts only
            await send(_line({"error": problem_for(self._principal, exc)[1], "notes": notes}))

    async def end(self) -> None:
        """Leave nothing behind."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def _sender(principal: Principal, by: str | None) -> Sender | None:
    """Return who sent a file, unless it is an administrator of everyone's: that one is believed."""
    if not principal.is_bound:
        return None
    return Sender(by, may_sign_for_others=principal.may("admin"))


async def _receive_file(request: Request, file: Path) -> None:
    """Write the body to *file* as it comes."""
    with _new_file(file) as copy:
        async for piece in request.stream():
            await asyncio.to_thread(copy.write, piece)
        if not copy.tell():
            raise QueryError("there is nothing to import: the body is empty")


def _file_name(name: str) -> str:
    """Return a harmless name: what a file is called tells some formats what it holds."""
    safe_name = re.sub(r"[^A-Za-z0-9._-]+", "_", Path(name).name)[-100:].lstrip(".")
    return safe_name or "import"


# Out


async def _export(request: Request) -> "_Answer | Response":
    check_may(request, "read")
    check_query(request, "format")
    handle = _handle(request)
    format = request.query_params.get("format") or "jsonl"
    if format not in _ENDINGS:
        raise QueryError(f"`{format}` cannot be written; use `{'`, `'.join(_ENDINGS)}`")
    ending = _ENDINGS[format]

    @asynccontextmanager
    async def begin() -> AsyncIterator[Tell]:
        with _turn(request, "export"), _own_folder() as folder:
            file = folder / f"memories{ending}"
            writing = asyncio.create_task(_write_out(handle, file, format))
            try:
                tell = await _reader_of(file, format, writing)
                if format != "jsonl":  # which says it in its last line
                    headers["x-orbiter-records"] = str(writing.result())
                yield tell
            finally:
                writing.cancel()
                await asyncio.gather(writing, return_exceptions=True)

    headers = {
        "content-type": _TYPES[ending],
        "content-disposition": f'attachment; filename="{_export_name(handle, format)}{ending}"',
    }
    if request.method == "HEAD":
        return Response(headers=headers)
    return _Answer(begin(), headers)


def _export_name(handle: ScopedMemory, format: str) -> str:
    """Return a name that says whose memories, in which form and of when; it is ASCII."""
    named = [getattr(handle.scope, name) for name in SCOPE_FIELDS]
    names = [re.sub(r"[^A-Za-z0-9._]+", "_", name)[:40].strip("._") for name in named if name]
    parts = [*(each for each in names if each), format, f"{datetime.now(UTC):%Y-%m-%d}"]
    return "-".join(["memories", *([] if any(named) else ["everyone"]), *parts])


async def _write_out(handle: ScopedMemory, path: Path, format: str) -> int:
    """Write the file; return how many memories it holds."""
    if format == "jsonl":  # the one that can be read while it is written
        with _new_file(path) as file:
            done = await export_file(handle, file, format=format)
    elif format == "markdown":
        notes = path.with_name("notes")
        done = await export_file(handle, notes, format=format)
        await asyncio.to_thread(shutil.make_archive, str(path.with_suffix("")), "zip", notes)
    else:
        done = await export_file(handle, path, format=format)
    return done.records


async def _reader_of(path: Path, format: str, writing: "asyncio.Task[int]") -> Tell:
    """Return what sends the file, as soon as it is to be had; raise what went wrong."""
    is_growing = format == "jsonl"
    while not writing.done() and not (is_growing and _has_begun(path)):
        await asyncio.wait({writing}, timeout=_LOOK)
    if writing.done():
        writing.result()

    async def read(send: SendBytes) -> None:
        with path.open("rb") as file:
            while True:
                is_whole = writing.done()
                piece = await asyncio.to_thread(file.read, _PIECE)
                if piece:
                    await send(piece)
                elif is_whole:
                    break
                else:
                    await asyncio.wait({writing}, timeout=_LOOK)
        writing.result()

    return read


# Both


class _Answer:
    """A streamed answer that ends what it began, however it ends itself."""

    def __init__(self, begin: AbstractAsyncContextManager[Tell], headers: dict[str, str]) -> None:
        self._begin = begin
        self._headers = headers

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Send it, until it is over or the reader leaves."""
        async with self._begin as tell:
            headers = [(name.encode(), value.encode()) for name, value in self._headers.items()]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            telling = asyncio.create_task(self._tell(tell, send))
            gone = asyncio.create_task(_leaving(receive))
            try:
                await asyncio.wait({telling, gone}, return_when=asyncio.FIRST_COMPLETED)
                if telling.done():
                    telling.result()
            finally:
                for task in (telling, gone):
                    task.cancel()
                await asyncio.gather(telling, gone, return_exceptions=True)

    async def _tell(self, tell: Tell, send: Send) -> None:
        async def piece(body: bytes) -> None:
            await send({"type": "http.response.body", "body": body, "more_body": True})

        await tell(piece)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _leaving(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _handle(request: Request) -> ScopedMemory:
    return handle_of(state_of(request).memory, principal_of(request), request.query_params)


@contextmanager
def _turn(request: Request, kind: str) -> Iterator[None]:
    """Refuse more transfers than the disk is to hold, or than one key is to have of them."""
    limits, key_id = state_of(request).link.limits, principal_of(request).key_id
    own = f"{kind}:{key_id}"
    # Without keys, all of them are for this computer.
    if key_id is not None and not limits.take(own, 1):
        raise HTTPProblem(
            429, f"this key has a running {kind} already", headers={"Retry-After": "5"}
        )
    try:
        if not limits.take(_TRANSFERS, _AT_ONCE):
            raise HTTPProblem(
                503, "too many imports and exports are running", headers={"Retry-After": "5"}
            )
        try:
            yield
        finally:
            limits.give(_TRANSFERS)
    finally:
        if key_id is not None:
            limits.give(own)


@contextmanager
def _own_folder() -> Iterator[Path]:
    """Yield a folder that nobody else can look into, and that is gone in the end."""
    with tempfile.TemporaryDirectory(prefix="orbiter-memory-") as folder:
        yield Path(folder)


def _new_file(path: Path) -> IO[bytes]:
    """Open a file that was not there, for this user alone; what is written is there at once."""
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb", buffering=0)  # noqa: PTH123 - with a mode, and closed by the caller


def _has_begun(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _line(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, default=str).encode() + b"\n"
