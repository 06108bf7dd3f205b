"""Names that `orbiter.memory` had before they got a package of their own."""

from importlib import import_module

import pytest

import orbiter.memory
from orbiter.memory.deprecation import MOVED, OrbiterDeprecationWarning


@pytest.mark.parametrize("name", sorted(MOVED))
def test_an_old_name_still_loads_and_says_where_it_is_now(name: str) -> None:
    module = f"orbiter.memory.{MOVED[name]}"

    with pytest.warns(OrbiterDeprecationWarning, match=f"now `{module}.{name}`"):
        value = getattr(orbiter.memory, name)

    assert value is getattr(import_module(module), name)


def test_no_name_is_both_old_and_offered() -> None:
    assert not set(MOVED) & set(orbiter.memory.__all__)
