"""Names that modules had before they got another module, or a better name."""

from importlib import import_module

import pytest

import orbiter.memory
from orbiter.memory.deprecation import MOVED, RENAMED, OrbiterDeprecationWarning


@pytest.mark.parametrize("name", sorted(MOVED))
def test_an_old_name_still_loads_and_says_where_it_is_now(name: str) -> None:
    module = f"orbiter.memory.{MOVED[name]}"
    new = RENAMED.get(MOVED[name], {}).get(name, name)

    with pytest.warns(OrbiterDeprecationWarning, match=f"now `{module}.{new}`") as caught:
        value = getattr(orbiter.memory, name)

    assert value is getattr(import_module(module), new)
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("short", "old", "new"),
    [(short, old, new) for short, names in RENAMED.items() for old, new in names.items()],
)
def test_a_renamed_thing_still_loads_by_its_old_name(short: str, old: str, new: str) -> None:
    module = import_module(f"orbiter.memory.{short}")

    with pytest.warns(OrbiterDeprecationWarning, match=f"now `{module.__name__}.{new}`") as caught:
        value = getattr(module, old)

    assert value is getattr(module, new)
    assert caught[0].filename == __file__
    assert old not in dir(module)


@pytest.mark.parametrize("short", RENAMED)
def test_a_name_that_never_was_is_still_an_error(short: str) -> None:
    module = import_module(f"orbiter.memory.{short}")

    with pytest.raises(AttributeError, match=r"has no attribute 'Nothing'"):
        _ = module.Nothing


def test_no_name_is_both_old_and_offered() -> None:
    assert not set(MOVED) & set(orbiter.memory.__all__)
