"""Fork hooks: a child must not use its parent's threads, locks, sessions and connections."""

import os
from weakref import WeakSet


class Forkable:
    """Something that is told when the process forks, for as long as it lives."""

    def __init__(self) -> None:
        _alive.add(self)

    def before_fork(self) -> None:
        """Bring to rest what must not be in use at that moment."""

    def after_in_parent(self) -> None:
        """Go on."""

    def after_in_child(self) -> None:
        """Replace what is the parent's."""


_alive: WeakSet[Forkable] = WeakSet()
_held: list[Forkable] = []


def _before() -> None:
    _held[:] = _alive
    for one in _held:
        one.before_fork()


def _in_parent() -> None:
    for one in _held:
        one.after_in_parent()
    _held.clear()


def _in_child() -> None:
    for one in _held:
        one.after_in_child()
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
