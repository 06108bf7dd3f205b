"""`SQLDatabase`: runs the steps of operations, for all parts of a SQL store."""

from abc import abstractmethod
from collections.abc import Callable
from typing import TypeVar

from orbiter.memory.backends.sql.dialect import Steps
from orbiter.memory.backends.sql.operations import Operations
from orbiter.memory.model.agent_store import AsyncContextStore

__all__ = ["SQLDatabase"]

_T = TypeVar("_T")


class SQLDatabase(AsyncContextStore):
    """What a driver does; each part of a store stands on this and on nothing else."""

    _operations: Operations

    @abstractmethod
    async def _open(self) -> None:
        """Open the store and bring its tables up to date, whatever model its vectors are of."""

    @abstractmethod
    async def _read(self, steps: Callable[[], Steps[_T]], *, alone: bool = False) -> _T:
        """Run steps that change nothing; *alone* says that they are one statement."""

    @abstractmethod
    async def _write(self, steps: Callable[[], Steps[_T]]) -> _T:
        """Run steps as one transaction; return after it is durable."""

    async def _together(self, steps: Callable[[], Steps[_T]]) -> _T:
        """Run steps that may lock and change nothing, as of one moment."""
        return await self._read(steps)

    @property
    def _sees_all(self) -> bool:
        """Whether no row is hidden from this store."""
        return True

    @property
    def _is_bound(self) -> bool:
        """Whether this store acts for one user."""
        return False
