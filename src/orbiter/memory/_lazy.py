"""Packages whose names load their module on first use, so that importing them costs nothing."""

import sys
from importlib import import_module

TYPE_CHECKING = False  # type checkers take it for true; importing `typing` would double the cost
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["lazy_names"]


def lazy_names(
    package: str, modules: "Mapping[str, str]"
) -> "tuple[Callable[[str], object], Callable[[], list[str]]]":
    """Return the `__getattr__` and the `__dir__` of *package*.

    *modules* says which module has each name: one of the package, or a full path.
    """

    def load(name: str) -> object:
        module = modules.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if not module.startswith("orbiter."):
            module = f"{package}.{module}"
        value = getattr(import_module(module), name)
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted(vars(sys.modules[package])["__all__"])
