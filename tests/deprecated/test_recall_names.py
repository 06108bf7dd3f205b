"""Arguments that `orbiter.memory.recall` took under other names."""

import pytest

from orbiter.memory import ShortTermMemory
from orbiter.memory.deprecation import OrbiterDeprecationWarning
from orbiter.memory.recall import InMemoryIndex


def test_an_index_in_memory_still_takes_most() -> None:
    with pytest.warns(OrbiterDeprecationWarning, match="max_items"):
        index = InMemoryIndex(ShortTermMemory(), most=7)

    assert index._max_items == 7
