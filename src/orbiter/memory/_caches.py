"""Functions that remember texts and names they were asked about, and how they all forget them."""

import sys
from functools import _lru_cache_wrapper

__all__ = ["clear_all"]


def clear_all() -> None:
    """Empty the cache of every function of a module of ours; what it held is worked out anew."""
    for name, module in list(sys.modules.items()):
        if name.startswith("orbiter.memory"):
            for value in list(vars(module).values()):
                if isinstance(value, _lru_cache_wrapper):
                    value.cache_clear()
