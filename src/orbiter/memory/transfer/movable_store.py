"""`MovableStore`: what exact export, import and migration need of a store."""

from collections.abc import Sequence
from typing import Protocol

from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.model.records import Record

__all__ = ["MovableStore"]


class MovableStore(Protocol):
    """A store whose items can be taken out, and put in, with all they were."""

    async def records(
        self,
        *,
        after: str | None = None,
        limit: int = 1000,
        metadata: MemoryMetadata | None = None,
        item_ids: Sequence[str] | None = None,
    ) -> list[Record]:
        """Return the next records, in an order that does not change."""
        ...

    async def put_records(
        self,
        records: Sequence[Record],
        *,
        within: MemoryMetadata | None = None,
        overwrite: bool = False,
    ) -> int:
        """Write records exactly, all or none; return how many were not there so.

        What went on by itself here stays, unless *overwrite*; a `Written` names it.
        """
        ...
