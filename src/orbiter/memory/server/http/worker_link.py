"""What a worker knows of the others, and how they talk: one line of JSON each, by the supervisor.

`Alone` is a server that is one process. `WorkerLink` is one of several under a supervisor: it got
the socket to accept from, shares limits and the secret of the dashboard's tokens, and can tell all
others something, or ask them.
"""

import asyncio
import ctypes
import json
import os
import secrets
import select
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from orbiter.memory.server.http.shared_limits import Limits, LocalLimits, SharedLimits

__all__ = ["LINE", "VARIABLE", "Alone", "WorkerLink", "encode_line", "join_supervisor"]

VARIABLE = "_ORBITER_MEMORY_WORKER"
"""Tells a process that it is a worker: the numbers of its open files."""

LINE = 2**27
"""Most bytes of a line: the report of a job may be long."""

_PATIENCE = 10.0
"""Seconds to wait for the others' answers."""

_EVERY = 1.0
"""Seconds between two times that a worker tells its counts, which outlive it."""

_PR_SET_PDEATHSIG = 1
"""From `linux/prctl.h`: which signal a process gets when its parent ends."""

Answer = Callable[[Any], Awaitable[Any]]
"""Answers a question of another worker; `None` if it has nothing to say."""


class Alone:
    """A server of one process: there is nobody to tell or to ask."""

    workers = 1
    bound: socket.socket | None = None
    """The one to accept connections from, if somebody else has bound it."""

    def __init__(self) -> None:
        self.secret = secrets.token_bytes(32)
        self.limits: Limits = LocalLimits()

    def on(self, kind: str, answer: Answer) -> None:
        """Have *answer* called for what others tell or ask of this *kind*."""

    def tell(self, kind: str, body: Any) -> None:
        """Tell all others something."""

    async def ask(self, kind: str, body: Any) -> list[Any]:  # noqa: ARG002 - as the other has it
        """Return what the others answer."""
        return []

    def start(self, counts: Callable[[], Any]) -> None:
        """Begin to listen; *counts* are what outlives this worker. Within a running loop."""

    async def stop(self) -> None:
        """Tell the last counts, and listen no more."""


class WorkerLink(Alone):
    """The link of one of several workers to its supervisor; *hello* is what that said first."""

    def __init__(
        self, channel: socket.socket, bound: socket.socket, shared: int, hello: Mapping[str, Any]
    ) -> None:
        self.workers = int(hello["workers"])
        self.bound = bound
        self.secret = bytes.fromhex(hello["secret"])
        self.limits = SharedLimits(shared, number=hello["number"], columns=hello["columns"])
        self._channel = channel
        self._writer: asyncio.StreamWriter | None = None
        self._answers: dict[str, Answer] = {}
        self._questions: dict[str, asyncio.Future[list[Any]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._counts: Callable[[], Any] | None = None
        self._last_counts: Any = None

    def on(self, kind: str, answer: Answer) -> None:
        """Have *answer* called for what others tell or ask of this *kind*."""
        self._answers[kind] = answer

    def tell(self, kind: str, body: Any) -> None:
        """Tell all others something, unless the link is down."""
        self._send({"do": "tell", "kind": kind, "body": body})

    async def ask(self, kind: str, body: Any) -> list[Any]:
        """Return what those of the others answer that have something to say."""
        number = secrets.token_hex(8)
        answered: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._questions[number] = answered
        self._send({"do": "ask", "id": number, "kind": kind, "body": body})
        try:
            async with asyncio.timeout(_PATIENCE):
                return await answered
        except TimeoutError:
            return []
        finally:
            del self._questions[number]

    async def connect(self) -> None:
        """Listen to the supervisor."""
        reader, self._writer = await asyncio.open_connection(sock=self._channel, limit=LINE)
        self._spawn(self._listen(reader))

    def start(self, counts: Callable[[], Any]) -> None:
        """Tell *counts* now and then: what a worker has counted outlives it."""
        self._counts = counts
        self._spawn(self._tell_counts())

    def ready(self, report: Any) -> None:
        """Say that this worker serves, and what it is."""
        self._send({"do": "ready", "body": report})

    async def stop(self) -> None:
        """Tell the last counts, and listen no more."""
        self._send_counts()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._writer is not None:
            with suppress(OSError):
                await self._writer.drain()
            self._writer.close()
            self._writer = None

    def _send(self, message: Mapping[str, Any]) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(encode_line(message))

    def _spawn(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with suppress(OSError, ValueError):
            while line := await reader.readline():
                message = json.loads(line)
                if message["do"] == "answers":
                    question = self._questions.get(message["id"])
                    if question is not None and not question.done():
                        question.set_result(message["bodies"])
                else:
                    self._spawn(self._answer(message))

    async def _answer(self, message: Mapping[str, Any]) -> None:
        answer, body = self._answers.get(message["kind"]), None
        try:
            if answer is not None:
                body = await answer(message["body"])
        finally:
            if message["do"] == "ask":
                self._send({"do": "answer", "id": message["id"], "body": body})

    async def _tell_counts(self) -> None:
        while True:
            self._send_counts()
            await asyncio.sleep(_EVERY)

    def _send_counts(self) -> None:
        counts = None if self._counts is None else self._counts()
        if counts is not None and counts != self._last_counts:
            self._last_counts = counts
            self._send({"do": "counts", "body": counts})


def join_supervisor() -> WorkerLink | None:
    """Return the link of this process to its supervisor; `None` if it is not a worker."""
    handles = os.environ.pop(VARIABLE, None)
    if handles is None:
        return None
    channel, bound, shared = map(int, handles.split(","))
    _end_with_supervisor(channel)
    for handle in (channel, bound, shared):
        os.set_inheritable(handle, False)  # noqa: FBT003 - the standard library's
    with open(channel, "rb", buffering=0, closefd=False) as file:
        hello = json.loads(file.readline())  # written before this process began
    line, taken = socket.socket(fileno=channel), socket.socket(fileno=bound)
    # By its name: of a socket without, asyncio leaves Nagle's delay on, 40 ms for each answer.
    taken = socket.socket(taken.family, taken.type, socket.IPPROTO_TCP, fileno=taken.detach())
    for each in (line, taken):
        each.setblocking(False)  # noqa: FBT003
    return WorkerLink(line, taken, shared, hello)


def _end_with_supervisor(channel: int) -> None:
    """End this process at once when nobody has the other end of *channel* any more.

    It holds the port, and a server that takes the place of this one cannot bind it until then. So
    nothing waits for requests, for the event loop, or for a store to close: every write that was
    answered is stored. Linux ends it even if it is stopped, or never lets another thread run.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))

    def watch() -> None:
        hangup = select.poll()
        hangup.register(own, 0)  # which leaves the messages to the event loop
        hangup.poll()
        os._exit(1)

    own = os.dup(channel)  # the number of the other is free once the link has stopped
    threading.Thread(target=watch, name="orbiter-memory-supervisor", daemon=True).start()


def encode_line(message: Mapping[str, Any]) -> bytes:
    """Return *message* as one line."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"
