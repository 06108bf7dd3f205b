"""Read source of a call: whether it may be answered by a replica.

Whoever makes the call says so around it; a store that has replicas asks here. So no layer in
between has to pass anything on, and a store without replicas need not know of any.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, get_args

__all__ = ["READ_SOURCES", "ReadFrom", "may_read_replica", "reading_from"]

ReadFrom = Literal["primary", "replica"]
"""Where a read may be answered: by the server that takes writes alone, or by a copy of it, too."""

READ_SOURCES: tuple[ReadFrom, ...] = get_args(ReadFrom)


class _Permission:
    """That replicas may answer; it ends with its block, also for tasks that outlive that."""

    __slots__ = ("is_over",)

    def __init__(self) -> None:
        self.is_over = False


_PERMISSION: ContextVar[_Permission | None] = ContextVar("orbiter_memory_read_from", default=None)


@contextmanager
def reading_from(source: ReadFrom) -> Iterator[None]:
    """Have the reads of the block answered by *source*."""
    permission = _Permission() if source == "replica" else None
    token = _PERMISSION.set(permission)
    try:
        yield
    finally:
        _PERMISSION.reset(token)
        if permission is not None:
            permission.is_over = True


def may_read_replica() -> bool:
    """Tell whether a replica may answer what is being read."""
    permission = _PERMISSION.get()
    return permission is not None and not permission.is_over
