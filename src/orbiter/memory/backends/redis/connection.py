"""Calls to a Redis: few round trips, no call waits for ever, no call counts twice.

Calls that come together travel together, in one pipeline; each is one command, and so atomic. A
call that is not answered is sent again until the deadline, so every command given here must be
one that may be repeated: an upsert by id, a removal, a read.

Where the address asks for the word of replicas, writes travel apart from reads, which need not
wait for that.
"""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from random import random
from threading import Lock
from typing import Any
from weakref import WeakSet, WeakValueDictionary

from orbiter.memory.backends.batches import Batches
from orbiter.memory.backends.pool_counts import PoolCounts, PoolSizes
from orbiter.memory.backends.redis.address import (
    Client,
    RedisAddress,
    connect,
    disconnect,
    exceptions,
    hang_up,
    holding,
    parse_address,
    pool_sizes,
)
from orbiter.memory.backends.redis.attempts import (
    forget_context,
    may_pass,
    send_confirmed,
    translated,
)
from orbiter.memory.backends.redis.commands import (
    Command,
    Run,
    Word,
    is_write,
    key_of,
    together,
    weight,
    words,
)
from orbiter.memory.errors import MemoryConnectionError, MemoryTimeoutError

__all__ = [
    "CONNECTIONS",
    "TOGETHER",
    "RedisConnection",
    "connection_to",
]

CONNECTIONS = 16
"""At most this many to one server; calls share them, so a thousand tasks need no more."""

TOGETHER = 32
"""Calls in one pipeline: enough to share the round trip, few enough for the next to be packed
while the server is busy with these."""

_BLOCKED = CONNECTIONS // 2
_GLANCE = 0.1

_FIRST_WAIT, _LONGEST_WAIT = 0.02, 0.25


class _Line:
    """The connections of one event loop, and the calls that share them."""

    def __init__(self, client: Client, connection: "RedisConnection") -> None:
        self.client = client
        self._held, self._is_held = holding(client), False
        self.trouble: Exception | None = None
        """Why the last attempt failed; `None` if it did not."""
        self.is_closed = False
        self.blocked = 0
        """Calls that wait at the server."""
        self.users: WeakSet[object] = WeakSet()
        self.batches: Batches[Command, Any] = Batches(
            lambda commands: connection.send(self, commands),
            most=TOGETHER,
            eager=True,
            weigh=weight,
        )
        self.writes: Batches[Command, Any] = Batches(
            lambda commands: connection.send(self, commands, is_confirmed=True),
            most=TOGETHER,
            eager=True,
            weigh=weight,
        )
        """Of writes that replicas have to confirm."""

    async def attempt(
        self, commands: Sequence[tuple[Word, ...]], *, may_block: bool
    ) -> Sequence[Any]:
        """Send *commands* once and return their answers, errors of the server among them."""
        if len(commands) > 1:
            async with self.client.pipeline(transaction=False) as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                return await pipeline.execute(raise_on_error=False)
        if may_block or self._is_held:
            return [await _answer(self.client, commands[0])]
        self._is_held = True
        try:
            return [await _answer(self._held, commands[0])]
        finally:
            self._is_held = False

    def sizes(self) -> PoolSizes:
        """Return how many connections there are; the one that is kept is idle between calls."""
        used, idle, most = pool_sizes(self.client)
        kept = int(self._held is not self.client and not self._is_held and used > 0)
        return PoolSizes(used - kept, idle + kept, most)

    async def hang_up(self) -> None:
        """Let go of connections that may lead to a server that is master no more."""
        if not self._is_held:  # else it is another call's, and must not be anyone's besides
            await self._held.aclose()  # gives its connection back
        await hang_up(self.client)

    async def close(self) -> None:
        """Finish what is under way and close the connections."""
        await self.batches.close()
        await self.writes.close()
        self.is_closed = True
        await self._held.aclose()
        await disconnect(self.client)


class RedisConnection:
    """A Redis, for every event loop and process that uses it; it connects with the first call.

    All of one process who use one address share their connections, see `connection_to`.
    """

    def __init__(self, address: RedisAddress, *, deadline: float) -> None:
        if address.wait_ms >= deadline * 1000:
            raise ValueError(
                f"`{address}`: `wait_ms`, {address.wait_ms}, must be shorter than the deadline "
                f"of a call, {deadline:g} s"
            )
        self.address = address
        self._deadline = deadline
        # Short enough for several attempts before the deadline.
        self._timeout = deadline / 6
        self.block_ms = max(1, int(min(1.0, self._timeout / 2) * 1000))
        """How long a command may block at the server."""
        self._process = os.getpid()
        self._lines: dict[asyncio.AbstractEventLoop, _Line] = {}
        self._counts = PoolCounts("redis")
        self._counts.sizes = partial(_total, self._lines)

    async def call(self, user: object, command: Command, *, within: float | None = None) -> Any:
        """Carry *command* out for *user* and return its answer, in company with other calls.

        An unavailable server is a `MemoryConnectionError` after the deadline; a write that the
        replicas do not confirm is a `MemoryTimeoutError`. Cancelling the caller leaves the call
        whole: it happens, or it does not.
        """
        seconds, line = self._deadline if within is None else within, self._line(user)
        has_to_wait = self.address.wait_replicas and is_write(command)
        batches = line.writes if has_to_wait else line.batches
        try:
            return await batches.put(command, within=seconds)
        except MemoryTimeoutError:
            raise
        except TimeoutError:
            raise self._late(line, seconds) from line.trouble

    async def call_alone(self, user: object, command: Command) -> Any:
        """Carry out a *command* that blocks at the server, on a connection of its own."""
        line = self._line(user)
        try:
            async with asyncio.timeout(self._deadline):
                answer = (await self.send(line, [command], may_block=True))[0]
                while isinstance(answer, Exception) and line.is_closed:  # by its own user
                    line = self._line(user)
                    answer = (await self.send(line, [command], may_block=True))[0]
        except TimeoutError:
            raise self._late(line, self._deadline) from line.trouble
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def wait_for(self, user: object, command: Command, *, glance: Command) -> Any:
        """Carry out a *command* that blocks; where too many do so, repeat *glance* instead.

        Blocked calls have a connection each, and must leave some to the others.
        """
        line, loop = self._line(user), asyncio.get_running_loop()
        if line.blocked < _BLOCKED:
            line.blocked += 1
            try:
                return await self.call_alone(user, command)
            finally:
                line.blocked -= 1
        end = loop.time() + self.block_ms / 1000
        while not (answer := await self.call(user, glance)) and loop.time() < end:  # noqa: ASYNC110
            await asyncio.sleep(_GLANCE)
        return answer

    async def keys(self, user: object, pattern: str) -> list[bytes]:
        """Return the keys that match *pattern*, at every server; it goes through all keys there.

        A few hundred at a time, so that others are served in between.
        """
        line = self._line(user)
        try:
            return [key async for key in line.client.scan_iter(match=pattern, count=500)]
        except Exception as exc:  # whatever the driver raises is told in our words
            raise translated(exc, self.address) from exc

    async def leave(self, user: object) -> None:
        """Close the connections of this event loop, unless someone else uses them."""
        loop = asyncio.get_running_loop()
        line = self._lines.get(loop)
        if line is None or self._process != os.getpid():
            return
        line.users.discard(user)
        if not line.users:
            del self._lines[loop]
            await line.close()

    def _line(self, user: object) -> _Line:
        if self._process != os.getpid():  # forked: those connections are the parent's
            _inherited.append(self._lines)
            self._process, self._lines = os.getpid(), {}
            self._counts.sizes = partial(_total, self._lines)
        loop = asyncio.get_running_loop()
        line = self._lines.get(loop)
        if line is None:
            # A loop that ended without `leave` is remembered by its connections only. One step at
            # a time: other threads have lines here, too.
            for each in list(self._lines):
                if each.is_closed():
                    self._lines.pop(each, None)
            client = connect(
                self.address,
                connections=CONNECTIONS,
                timeout=self._timeout,
                patience=self._deadline,
                counts=self._counts,
            )
            line = self._lines[loop] = _Line(client, self)
        line.users.add(user)
        return line

    async def send(
        self,
        line: _Line,
        commands: Sequence[Command],
        *,
        may_block: bool = False,
        is_confirmed: bool = False,
    ) -> Sequence[Any]:
        """Return the answers to *commands*, each sent again until it has one.

        *is_confirmed* for writes that replicas have to confirm.
        """
        loop = asyncio.get_running_loop()
        end, wait = loop.time() + self._deadline, _FIRST_WAIT
        answers: list[Any] = [None] * len(commands)
        left = together(commands)
        unknown: set[str] = set()
        handled = sys.exception()
        got: Sequence[Any]
        while True:
            try:
                if is_confirmed:
                    writes = [(words(command, unknown), key_of(command)) for command, _ in left]
                    got = await send_confirmed(line.client, self.address, writes)
                else:
                    lines = [words(command, unknown) for command, _ in left]
                    got = await line.attempt(lines, may_block=may_block)
            except Exception as exc:  # noqa: BLE001 - every one is told to those who asked
                forget_context(exc, handled)
                got = [exc] * len(left)
            line.trouble = None
            again: list[tuple[Command, list[int]]] = []
            is_taught = False
            for (command, places), answer in zip(left, got, strict=True):
                if isinstance(answer, exceptions.NoScriptError) and isinstance(command, Run):
                    unknown.add(command.script.digest)
                    is_taught = True
                    again.append((command, places))
                elif isinstance(answer, Exception) and may_pass(answer):
                    line.trouble = translated(answer, self.address)
                    again.append((command, places))
                for place in places:
                    is_error = isinstance(answer, Exception)
                    answers[place] = translated(answer, self.address) if is_error else answer
            left = again
            is_last = line.is_closed or (loop.time() + wait >= end and not is_taught)
            if not left or is_last:
                return answers
            if any(isinstance(answer, exceptions.ReadOnlyError) for answer in got):
                await line.hang_up()  # a new connection may lead to the new master
            if not is_taught:
                # Not all at once: those who were cut off together would come back together.
                await asyncio.sleep(wait * (0.5 + random() / 2))  # noqa: S311 - no secret
                wait = min(2 * wait, _LONGEST_WAIT)

    def _late(self, line: _Line, seconds: float) -> MemoryConnectionError:
        problem = f"did not answer within {seconds:g} s"
        if line.trouble is not None:
            problem += "; it " + str(line.trouble).removeprefix(f"`{self.address}` ")
        return MemoryConnectionError(f"`{self.address}` {problem}")


def _total(lines: Mapping[asyncio.AbstractEventLoop, _Line]) -> PoolSizes:
    sizes = [line.sizes() for line in list(lines.values())]
    return PoolSizes(*map(sum, zip(*sizes, strict=True))) if sizes else PoolSizes(0, 0, 0)


_inherited: list[object] = []
"""Connections of a parent process. To free them would take them from its event loop, for the
kernel's list of what that loop waits for is shared."""

_connections: WeakValueDictionary[tuple[str, float], RedisConnection] = WeakValueDictionary()
_linking = Lock()


def connection_to(url: str, *, deadline: float) -> RedisConnection:
    """Return the connection to *url* that everyone in this process shares."""
    with _linking:
        connection = _connections.get((url, deadline))
        if connection is None:
            connection = _connections[url, deadline] = RedisConnection(
                parse_address(url), deadline=deadline
            )
        return connection


async def _answer(client: Client, command: tuple[Word, ...]) -> Any:
    try:
        return await client.execute_command(*command)
    except exceptions.ResponseError as exc:
        return exc
