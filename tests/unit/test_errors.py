import builtins
import inspect

import pytest
from tests.rows import each_row

from orbiter.memory import errors


def _errors() -> list[type[Exception]]:
    return [getattr(errors, name) for name in errors.__all__]


@each_row("error", _errors())
def test_each_error_is_ours_and_also_a_builtin(error: type[Exception]) -> None:
    assert issubclass(error, errors.MemoryError)
    if error is not errors.MemoryError:
        builtin = [base for base in error.__bases__ if base is not errors.MemoryError]
        assert len(builtin) == 1
        assert getattr(builtins, builtin[0].__name__) is builtin[0]


def test_the_base_error_is_not_pythons_out_of_memory() -> None:
    assert not issubclass(errors.MemoryError, builtins.MemoryError)


def test_the_tree_in_the_docstring_shows_every_error_with_its_builtin() -> None:
    tree = inspect.getdoc(errors) or ""

    for error in _errors():
        assert error.__name__ in tree
        for base in error.__bases__:
            if base not in (errors.MemoryError, Exception):
                line = next(line for line in tree.splitlines() if f" {error.__name__} " in line)
                assert f"({base.__name__})" in line


@pytest.mark.parametrize(
    ("error", "opening", "way_out"),
    [
        (errors.StatusError("discard", "draft"), "Cannot transition from `discard`", "allowed"),
        (errors.ScopeError("team"), "Invalid scope `team`", "`user`, `session` or `task`"),
    ],
)
def test_the_words_that_the_seeds_library_opens_with_are_kept(
    error: Exception, opening: str, way_out: str
) -> None:
    assert str(error).startswith(opening)
    assert way_out in str(error)
