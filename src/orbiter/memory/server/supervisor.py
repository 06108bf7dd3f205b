"""The supervisor of `serve --workers N`: it binds the socket, and keeps N processes that serve it.

It answers no request and opens no store. A worker is the same command again, told by a variable
that it is one; its end of a socket pair leads here. What workers tell or ask each other goes
through the supervisor. A worker that ends is replaced, with a pause if that happens again soon.
"""

import asyncio
import json
import logging
import os
import secrets
import signal
import socket
import sys
import time
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from orbiter.memory.errors import MemoryConnectionError, QueryError
from orbiter.memory.server.http.listen_socket import bind_address, find_addresses
from orbiter.memory.server.http.settings import Settings
from orbiter.memory.server.http.shared_limits import SharedLimits, shared_limits_file
from orbiter.memory.server.http.worker_link import LINE, VARIABLE, encode_line

__all__ = ["Supervisor", "WorkerFailedError"]

_LOG = logging.getLogger(__name__)
_MAX_WORKERS = 64
_CLOSE = 15.0
"""Seconds beyond the drain limit that a worker has to close its store; then it is killed."""

_LONG = 60.0
"""Seconds after which a worker that ends is replaced at once again."""

_FIRST_PAUSE, _LAST_PAUSE = 0.5, 30.0
_ATTEMPTS = 5
"""Workers that may fail to begin in a row, with none left, until the supervisor gives up."""

_PATIENCE = 5.0
"""Seconds that the others have for an answer to a worker."""

_MAX_UNSENT = 2**26
"""Bytes that wait for a worker which does not read; beyond, it is told nothing more."""


class WorkerFailedError(MemoryConnectionError):
    """A worker has ended before it served; *code* is what it exited with."""

    def __init__(self, code: int) -> None:
        super().__init__(f"a worker ended before it served: {_ended(code)}; its reason is above")
        self.code = code


@dataclass(eq=False)
class _Worker:
    number: int
    """Its column among the shared counts."""
    process: Process
    writer: asyncio.StreamWriter
    began: float = field(default_factory=time.monotonic)
    report: "asyncio.Future[Any]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    """What it says of itself once it serves."""
    counts: dict[str, float] | None = None
    """What it has counted; names that begin with `~` are of what is there now."""
    is_told_to_end: bool = False
    over: "asyncio.Task[int] | None" = None
    """Ends with the worker, when nothing of it is left here."""

    @property
    def serves(self) -> bool:
        return self.report.done() and self.process.returncode is None and not self.is_told_to_end

    def send(self, message: dict[str, Any]) -> None:
        transport = self.writer.transport
        if not transport.is_closing() and transport.get_write_buffer_size() < _MAX_UNSENT:
            self.writer.write(encode_line(message))


@dataclass(eq=False)
class _Question:
    origin: _Worker
    id: str
    waiting: set[_Worker]
    bodies: list[Any]


class Supervisor:
    """Keeps *workers* processes of *command* that serve one socket."""

    def __init__(self, settings: Settings, *, workers: int, command: Sequence[str]) -> None:
        if not 1 <= workers <= _MAX_WORKERS:
            raise QueryError(f"`workers` must be between 1 and {_MAX_WORKERS}: {workers}")
        if sys.platform == "win32":
            raise QueryError("several workers need Linux or macOS; leave `--workers` out")
        self._settings, self._size, self._command = settings, workers, tuple(command)
        self._secret = secrets.token_hex(32)
        # A worker and the one that takes its place may be there at the same time.
        self._columns = 2 * workers
        self._bound: socket.socket | None = None
        self._shared = -1
        self._limits: SharedLimits | None = None
        self._workers: list[_Worker] = []
        self._keepers: list[asyncio.Task[None]] = []
        self._questions: dict[str, _Question] = {}
        self._retired: Counter[str] = Counter()
        """What workers had counted that have ended."""
        self._restarts = 0
        self._failures = 0
        self._is_stopping = False
        self._reload = [asyncio.Event() for _ in range(workers)]
        self._replacing = asyncio.Lock()
        """Held while a reload replaces one worker: twice as many at a time may be too many."""
        self.failed: asyncio.Future[WorkerFailedError] = asyncio.get_running_loop().create_future()
        """Done when no worker can be kept any more."""

    async def start(self) -> Any:
        """Bind the socket and start all workers; return what the first says once it serves.

        It begins alone: so one process alone migrates the store, and says what is wrong.
        """
        self._bound = bind_address(self._settings, await find_addresses(self._settings))
        self._shared = shared_limits_file(self._columns)
        # Its own column is nobody's: it only clears those of workers that ended.
        self._limits = SharedLimits(os.dup(self._shared), number=0, columns=self._columns)
        first = await self._begin()
        await self._served(first)
        self._keepers = [
            asyncio.create_task(self._keep(place, first if not place else None))
            for place in range(self._size)
        ]
        return first.report.result()

    def reload(self) -> None:
        """Replace the workers one after the other, each by one that has read its settings anew."""
        for each in self._reload:
            each.set()

    async def stop(self) -> None:
        """Have all workers end what is under way, and kill those that do not come to an end."""
        self._is_stopping = True
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        if self._bound is not None:  # before all: while anybody has it open, clients can connect
            self._bound.close()
        await asyncio.gather(*(self._end(each) for each in list(self._workers)))
        if self._limits is not None:
            self._limits.close()
            os.close(self._shared)

    # One worker

    async def _begin(self) -> _Worker:
        """Start a process; it may not serve yet."""
        assert self._bound is not None  # noqa: S101 - `start` has bound it
        assert self._limits is not None  # noqa: S101
        number = min(set(range(self._columns)) - {each.number for each in self._workers})
        self._limits.clear(number)
        mine, its = socket.socketpair()
        mine.setblocking(False)  # noqa: FBT003 - the standard library's
        hello = {
            "number": number,
            "workers": self._size,
            "columns": self._columns,
            "secret": self._secret,
        }
        mine.send(encode_line(hello))
        handles = (its.fileno(), self._bound.fileno(), self._shared)
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=handles,
                env={**os.environ, VARIABLE: ",".join(map(str, handles))},
            )
        except BaseException:  # cancellation included
            mine.close()
            raise
        finally:
            its.close()
        reader, writer = await asyncio.open_connection(sock=mine, limit=LINE)
        worker = _Worker(number, process, writer)
        self._workers.append(worker)
        worker.over = asyncio.create_task(self._follow(worker, reader))
        return worker

    async def _served(self, worker: _Worker) -> None:
        """Wait until it serves; `WorkerFailedError` if it ends before."""
        assert worker.over is not None  # noqa: S101
        await asyncio.wait({worker.report, worker.over}, return_when=asyncio.FIRST_COMPLETED)
        if not worker.report.done():
            raise WorkerFailedError(worker.over.result())

    async def _follow(self, worker: _Worker, reader: asyncio.StreamReader) -> int:
        """Pass on what a worker says, until it ends; return what it exited with."""
        with suppress(OSError, ValueError):
            while line := await reader.readline():
                self._hear(worker, json.loads(line))
        code = await worker.process.wait()
        worker.writer.close()
        self._workers.remove(worker)
        if self._limits is not None:
            self._limits.clear(worker.number)  # its number may be nobody's for long
        if worker.counts is not None:
            self._retired.update({n: c for n, c in worker.counts.items() if n[0] != "~"})
        for number in list(self._questions):
            self._answered(number, worker, None)
        heir = next((each for each in self._workers if each.serves), None)
        if heir is not None:
            heir.send({"do": "tell", "kind": "resume", "body": None})  # with its jobs
        return code

    async def _end(self, worker: _Worker) -> None:
        assert worker.over is not None  # noqa: S101
        worker.is_told_to_end = True
        with suppress(ProcessLookupError):
            worker.process.send_signal(signal.SIGTERM)
        await asyncio.wait({worker.over}, timeout=self._settings.drain + _CLOSE)
        if not worker.over.done():
            _LOG.error("the worker %d did not end in time, and is killed", worker.process.pid)
            with suppress(ProcessLookupError):
                worker.process.kill()
            await worker.over

    # All of them

    async def _keep(self, place: int, worker: _Worker | None) -> None:
        """Have one worker serve at a time, for as long as the supervisor does."""
        while not self._is_stopping:
            if worker is None:
                worker = await self._replacement()
                continue
            assert worker.over is not None  # noqa: S101
            wanted = asyncio.create_task(self._reload[place].wait())
            await asyncio.wait({worker.over, wanted}, return_when=asyncio.FIRST_COMPLETED)
            wanted.cancel()
            if worker.over.done():
                code, lived = worker.over.result(), time.monotonic() - worker.began
                _LOG.error(
                    "the worker %d has ended: %s; another begins", worker.process.pid, _ended(code)
                )
                self._restarts += 1
                self._failures = 0 if lived >= _LONG else self._failures + 1
                worker = None
                continue
            async with self._replacing:
                self._reload[place].clear()
                if worker.process.returncode is None:
                    worker = await self._successor(worker)

    async def _successor(self, worker: _Worker) -> _Worker:
        """End a worker once another serves in its place, and return that; else the old one."""
        fresh = await self._begin()
        try:
            await self._served(fresh)
        except WorkerFailedError as exc:
            _LOG.error("the worker %d stays: %s", worker.process.pid, exc)
            return worker
        await self._end(worker)
        left = sum(each.is_set() for each in self._reload)
        _LOG.warning(  # seen at every level: whoever upgrades waits for it
            "the worker %d serves in place of %d; %s",
            fresh.process.pid,
            worker.process.pid,
            f"{left} to go" if left else "all are new",
        )
        return fresh

    async def _replacement(self) -> _Worker | None:
        """Return another worker that serves; `None` if it did not come to that."""
        # Of workers that ended once in a while, the first is replaced without a pause.
        pause = min(_LAST_PAUSE, _FIRST_PAUSE * 2 ** min(self._failures, 10) - 2 * _FIRST_PAUSE)
        await asyncio.sleep(max(0.0, pause))
        worker = await self._begin()
        try:
            await self._served(worker)
        except WorkerFailedError as exc:
            self._failures += 1
            _LOG.error("%s", exc)
            is_last = not any(each.serves for each in self._workers)
            if is_last and self._failures >= _ATTEMPTS and not self.failed.done():
                self.failed.set_result(exc)
            return None
        return worker

    def _hear(self, worker: _Worker, message: dict[str, Any]) -> None:
        do = message["do"]
        if do == "ready" and not worker.report.done():
            worker.report.set_result(message["body"])
        elif do == "counts":
            worker.counts = message["body"]
        elif do == "tell":
            for each in self._others(worker):
                each.send(message)
        elif do == "ask":
            self._ask(worker, message)
        elif do == "answer":
            self._answered(message["id"], worker, message["body"])

    def _others(self, worker: _Worker) -> list[_Worker]:
        return [each for each in self._workers if each is not worker and each.report.done()]

    def _ask(self, origin: _Worker, message: dict[str, Any]) -> None:
        number = f"{origin.process.pid}.{message['id']}"
        question = _Question(origin, message["id"], set(self._others(origin)), [])
        if message["kind"] == "counts":
            serving = sum(each.serves for each in self._workers)
            question.bodies += [self._retired, {"~workers": serving, "restarts": self._restarts}]
        self._questions[number] = question
        for each in question.waiting:
            each.send({**message, "id": number})
        if question.waiting:
            asyncio.get_running_loop().call_later(_PATIENCE, self._close_question, number)
        else:
            self._close_question(number)

    def _answered(self, number: str, worker: _Worker, body: Any) -> None:
        question = self._questions.get(number)
        if question is None or worker not in question.waiting:
            return
        question.waiting.discard(worker)
        if body is not None:
            question.bodies.append(body)
        if not question.waiting:
            self._close_question(number)

    def _close_question(self, number: str) -> None:
        question = self._questions.pop(number, None)
        if question is not None:
            bodies = question.bodies
            question.origin.send({"do": "answers", "id": question.id, "bodies": bodies})


def _ended(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"
