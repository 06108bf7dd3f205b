"""Connections of an asyncpg pool, each for a while; never waited for once they stop answering."""

import secrets
from contextlib import suppress
from typing import Any

from orbiter.memory.backends.batches import Deadlines
from orbiter.memory.errors import MemoryConnectionError, MemoryError, MemoryTimeoutError

__all__ = ["Lease", "OnceToken", "import_asyncpg", "is_answer", "quiet_connection"]

_READ_ONLY = "25006"


class OnceToken:
    """One transaction, however often it is tried: by its token it is known again.

    The number of a transaction would not do: a server that crashed may give it to another.
    """

    def __init__(self) -> None:
        self.token = secrets.token_hex(16)
        self.value: object = None

    @property
    def is_to_clean(self) -> bool:
        """Whether it is this one's turn to remove old tokens: one in 256 does."""
        return self.token.startswith("00")


class Lease:
    """A connection for a while: cut off, not waited for, when its caller is cancelled or late."""

    def __init__(self, pool: Any, timeout: float, store: object, deadlines: Deadlines) -> None:
        self._pool, self._timeout, self._store = pool, timeout, store
        self._deadlines = deadlines
        self._connection: Any = None

    async def __aenter__(self) -> Any:
        try:
            with self._deadlines.limit(self._timeout):  # the pool would make a task to wait in
                self._connection = await self._pool.acquire()
        except TimeoutError as exc:
            if self._pool.get_size() < self._pool.get_max_size():
                raise MemoryConnectionError(
                    f"{self._store!r} gave no new connection within {self._timeout:g} s; check "
                    "its address, or raise `acquire_timeout`"
                ) from exc
            raise MemoryTimeoutError(
                f"{self._store!r} had no free connection for {self._timeout:g} s; raise `max_size` "
                "or `acquire_timeout`"
            ) from exc
        return self._connection

    async def __aexit__(self, _: object, error: BaseException | None, trace: object) -> None:
        if error is None or is_answer(error):
            await self._pool.release(self._connection, timeout=self._timeout)
            return
        # The connection may be gone from the pool already. What happened is `error`, and nothing
        # that cleaning up raises may take its place.
        with suppress(Exception):  # see above
            self._connection.terminate()
        with suppress(Exception):  # see above
            await self._pool.release(self._connection)
        if getattr(error, "sqlstate", None) == _READ_ONLY:
            # It may have become a standby: whoever took over is found by connecting again.
            with suppress(Exception):  # see above
                await self._pool.expire_connections()


def is_answer(error: BaseException) -> bool:
    """Tell whether a connection is good for more after *error*."""
    state = getattr(error, "sqlstate", None)
    gone = ("08", "57P", _READ_ONLY)
    return isinstance(error, MemoryError) or (state is not None and not state.startswith(gone))


def import_asyncpg() -> Any:
    try:
        import asyncpg  # noqa: PLC0415 - an extra, needed by this class alone
    except ModuleNotFoundError as exc:
        raise ModuleNotFoundError(
            "PostgresMemoryStore needs asyncpg: pip install 'orbiter-memory[postgres]'"
        ) from exc
    return asyncpg


def quiet_connection(asyncpg: Any) -> Any:
    """Return a connection class that is not reset between two uses.

    We leave no session state behind, and resetting costs as much as the query itself.
    """

    class Connection(asyncpg.Connection):  # type: ignore[misc]  # imported when it is needed
        def get_reset_query(self) -> str:
            return ""

        async def reset(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - asyncpg's
            if self.is_in_transaction():
                await super().reset(timeout=timeout)

    return Connection
