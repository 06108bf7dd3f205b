"""Fork safety: what becomes of SQLite connections when the process forks.

SQLite keeps its locks in the process's memory, and the child gets a copy that says it holds what
it does not. So no connection may be in use at the moment of the fork, and the child closes its
copies at once; its stores then open connections of their own.
"""

import os
import sqlite3
from threading import Lock
from weakref import WeakSet

__all__ = ["Guarded", "looking"]


class Guarded:
    """A connection of one thread, and the lock that the thread holds while it uses it."""

    def __init__(self) -> None:
        self.connection: sqlite3.Connection | None = None
        self.lock = Lock()
        with _forking:
            _watch()
            _alive.add(self)


_alive: WeakSet[Guarded] = WeakSet()
_held: list[Guarded] = []
_forking = Lock()
looking = Lock()
"""Held while a file is looked at, see `file_checks.py`: no process may be forked meanwhile."""
_is_watching = False


def _watch() -> None:
    global _is_watching  # noqa: PLW0603 - once, and not before there is something to watch
    if not _is_watching and hasattr(os, "register_at_fork"):
        _is_watching = True
        os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)


def _before() -> None:
    looking.acquire()
    _forking.acquire()
    _held[:] = _alive
    for guarded in _held:
        guarded.lock.acquire()


def _in_parent() -> None:
    looking.release()
    for guarded in _held:
        guarded.lock.release()
    _held.clear()
    _forking.release()


def _in_child() -> None:
    looking.release()
    for guarded in _held:
        if guarded.connection is not None:
            guarded.connection.close()
        _alive.discard(guarded)
    _held.clear()
    _forking.release()
