"""A fault, as a log may tell of it: what it was and where, never its words."""

import traceback
from pathlib import PurePath

__all__ = ["place_of"]


def place_of(error: BaseException) -> str:
    """Return the class of an error and where it came from; its text may hold what is secret."""
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    places = (f"{PurePath(each.filename).name}:{each.lineno} {each.name}" for each in frames)
    return f"{type(error).__name__} at {' < '.join(reversed(list(places)))}"
