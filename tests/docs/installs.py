"""What a page imports, and what its `pip install` lines bring."""

import ast
import re
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, requires

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.docs.pages import blocks

__all__ = ["brought_by", "imported_by", "named_by"]

_LINE = re.compile(r"pip install ([^`#\n]+)")
_NAME = re.compile(r"[a-z][\w.-]*(\[[\w,-]+\])?")


def imported_by(text: str) -> set[str]:
    """Return the modules that the Python blocks of a page import, without what is below them."""
    nodes = [node for code, _ in blocks(text) for node in ast.walk(ast.parse(code))]
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    parts = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    return {name.partition(".")[0] for name in plain | parts}


def named_by(text: str) -> Iterator[str]:
    """Yield the requirements that the page has installed."""
    for line in _LINE.findall(text):
        words = (word.strip("'\",.;") for word in line.split())
        yield from (word for word in words if _NAME.fullmatch(word))


def brought_by(wanted: Iterable[str]) -> set[str]:
    """Return all that comes with *wanted*, as far as it is installed here."""
    todo = [Requirement(each) for each in wanted]
    seen: set[tuple[str, frozenset[str]]] = set()
    while todo:
        one = todo.pop()
        key = (canonicalize_name(one.name), frozenset(one.extras))
        if key in seen:
            continue
        seen.add(key)
        try:
            needs = [Requirement(each) for each in requires(one.name) or ()]
        except PackageNotFoundError:
            continue
        extras = one.extras or {""}
        todo += (
            each
            for each in needs
            if each.marker is None or any(each.marker.evaluate({"extra": name}) for name in extras)
        )
    return {name for name, _ in seen}
