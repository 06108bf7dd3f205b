"""Warnings of recall, once for each process: how it answers when it has to do with less."""

import inspect
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["no_model_by_choice", "warn_once"]

_told: set[str] = set()
_PACKAGE = "orbiter.memory"


_is_choice: ContextVar[bool] = ContextVar("_is_choice", default=False)


@contextmanager
def no_model_by_choice() -> Iterator[None]:
    """Say nothing of a missing model in here: whoever asks has declined it."""
    token = _is_choice.set(True)
    try:
        yield
    finally:
        _is_choice.reset(token)


def warn_once(what: str, text: str) -> None:
    """Warn with *text*, unless *what* was told before; the one who called recall is named."""
    if what in _told or (what == "no model" and _is_choice.get()):
        return
    _told.add(what)
    level, frame = 1, inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, stacklevel=level)
