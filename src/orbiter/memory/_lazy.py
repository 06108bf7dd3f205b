"""What loads on first use, so that importing costs nothing: names, patterns, plug-ins, extras."""

import sys
from importlib import import_module

TYPE_CHECKING = False  # type checkers take it for true; importing `typing` would double the cost
if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Mapping, Sequence
    from importlib.metadata import EntryPoint
    from typing import Any, TypeVar

    _ErrorT = TypeVar("_ErrorT", bound=BaseException)

__all__ = [
    "install_command",
    "installed_from",
    "lazy_names",
    "lazy_pattern",
    "load_adapter",
    "load_plugin",
    "missing_extra",
    "plugins",
    "with_install_note",
]


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


class _LazyPattern:
    """A regular expression that is compiled when one of its methods is first looked up."""

    __slots__ = (
        *("_source", "findall", "finditer", "flags", "fullmatch", "match", "pattern", "search"),
        *("split", "sub", "subn"),
    )

    def __init__(self, pattern: str, flags: int) -> None:
        self._source = (pattern, flags)

    def __getattr__(self, name: str) -> "Any":
        """Compile it. Every slot is filled then, so this is not called again."""
        import re  # noqa: PLC0415 - the package itself needs it not

        compiled = re.compile(*self._source)
        for each in self.__slots__[1:]:
            setattr(self, each, getattr(compiled, each))
        return getattr(compiled, name)


def lazy_pattern(pattern: str, flags: int = 0) -> "re.Pattern[str]":
    """Return `re.compile(pattern, flags)`, compiled on first use.

    For patterns that many programs never use, and for long ones: a long one takes milliseconds.
    """
    return _LazyPattern(pattern, flags)  # type: ignore[return-value]  # it has the same methods


def plugins(group: str) -> "dict[str, list[EntryPoint]]":
    """Return what installed packages add to *group*, by name; several may claim one name."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - most programs need it not

    claims: dict[str, list[EntryPoint]] = {}
    for entry in entry_points(group=group):
        claims.setdefault(entry.name, []).append(entry)
    return claims


def load_adapter(name: str) -> "Any":
    """Return what the package itself registers as the adapter *name*: it stands above its user."""
    for entry in plugins("orbiter_memory.adapters").get(name, ()):
        if entry.module.startswith("orbiter.memory."):
            return entry.load()
    raise ModuleNotFoundError(
        f"the entry points of orbiter-memory are not installed, so `{name}` is not found; install "
        "it again: pip install orbiter-memory"
    )


def load_plugin(
    what: str, claims: "Sequence[EntryPoint]", *, error: type[Exception], make: bool = False
) -> "Any":
    """Load what *claims* of one name stand for, and call it if it is to *make* something.

    What cannot be loaded, and a name that two packages claim, is an *error* that names them.
    """
    entry = claims[0]
    packages = sorted(each.dist.name if each.dist else each.module for each in claims)
    if len(packages) > 1:
        raise error(
            f"the {what} `{entry.name}` is in several packages: `{'` and `'.join(packages)}` "
            "add it; uninstall all but one of them"
        )
    try:
        loaded = entry.load()
        return loaded() if make else loaded
    except Exception as exc:  # it is somebody else's code: whatever fails is named with its package
        raise error(
            f"the {what} `{entry.name}` of the package `{packages[0]}` cannot be loaded: {exc}; "
            f"repair or uninstall `{packages[0]}`"
        ) from exc


def installed_from() -> "tuple[str | None, bool]":
    """Return the file or URL that this package was installed from, and whether it is editable.

    That is what `direct_url.json` beside it says (PEP 610), as a requirement has it; `None` is an
    index.
    """
    import json  # noqa: PLC0415 - as below
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415 - as above

    try:
        origin = json.loads(distribution("orbiter-memory").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return None, False
    if not (url := origin.get("url")):
        return None, False
    if vcs := origin.get("vcs_info"):
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    folder = origin.get("subdirectory")
    is_editable = bool(origin.get("dir_info", {}).get("editable"))
    return f"{url}#subdirectory={folder}" if folder else str(url), is_editable


def install_command(extra: str) -> str:
    """Return the line that adds *extra* to this installation, wherever that came from."""
    from pathlib import Path  # noqa: PLC0415 - as below
    from urllib.parse import urlsplit  # noqa: PLC0415 - only where something is missing
    from urllib.request import url2pathname  # noqa: PLC0415 - as above

    origin, is_editable = installed_from()
    if origin is None:
        return f"pip install 'orbiter-memory[{extra}]'"
    place = urlsplit(origin)
    if place.scheme != "file":
        return f"pip install 'orbiter-memory[{extra}] @ {origin}'"
    path = Path(url2pathname(place.path))
    option = "-e " if is_editable else ""
    if extra == "local":  # its model is a distribution of its own, beside the code or the wheel
        model = path / "models" / "minilm"
        option = f"'{model}' {option}" if model.is_dir() else f"--find-links '{path.parent}' "
    return f"pip install {option}'{path}[{extra}]'"


def missing_extra(problem: str, extra: str, *, name: str | None = None) -> ModuleNotFoundError:
    """Return the error for a module, *name*, that is there with *extra* only."""
    error = ModuleNotFoundError(f"{problem}: pip install 'orbiter-memory[{extra}]'", name=name)
    return with_install_note(error, extra)


def with_install_note(error: "_ErrorT", extra: str) -> "_ErrorT":
    """Return *error* with the line that adds *extra* here, if it differs from that of an index."""
    if installed_from()[0] is not None:
        error.add_note(f"this one is not from a package index, so here: {install_command(extra)}")
    return error
