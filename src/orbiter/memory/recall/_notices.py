"""What recall tells its user, once for each process: how it answers when it has to do with less."""

import inspect
import warnings

__all__ = ["say_once"]

_told: set[str] = set()
_PACKAGE = "orbiter.memory"


def say_once(what: str, text: str) -> None:
    """Warn with *text*, unless *what* was told before; the one who called recall is named."""
    if what in _told:
        return
    _told.add(what)
    level, frame = 1, inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, stacklevel=level)
