"""Writes docs/methods.md: `python docs/build_methods.py`. A test keeps it current.

Every public method of the four classes that programs use, with each parameter, its type and
default, and what is returned, as the source has them. A generator of our own and not mkdocstrings:
the page is read in a checkout as well as on the site, types are shown by the names that programs
import, and the test that keeps it current needs no tool beside Python.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from orbiter.memory.agent import AgentMemory, Chat, Facts, ScopedMemory

PAGE = Path(__file__).with_name("methods.md")
CLASSES: dict[type, str] = {
    AgentMemory: "The memory itself: open it, make handles, look after the store.",
    ScopedMemory: 'A handle for one user, session, task or agent: `memory.scope("alice")`.',
    Chat: 'A conversation: `alice.chat("trip")`.',
    Facts: "What is true of somebody, and since when: `alice.facts`.",
}
INTRO = """\
# Methods of AgentMemory, ScopedMemory, Chat and Facts

<!-- by docs/build_methods.py -->

Every method with its parameters, their types and defaults, and what it returns. Parameters below
the line `*` are given by name. `orbiter.memory.sync` has the same methods without `await`.
`Time` is a datetime or its ISO 8601 text, `ItemRef` an id, a memory or a hit. `ScopeId` is a
string, a number or a UUID.
[API](api.md) lists all other public names.
"""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def members(cls: type) -> Iterator[tuple[str, object]]:
    """Yield the public methods and properties of a class, in the order of the alphabet."""
    for name in sorted(dir(cls)):
        value = inspect.getattr_static(cls, name)
        is_member = inspect.isroutine(value) or isinstance(value, property | classmethod)
        if not name.startswith("_") and is_member:
            yield name, value


def _function(value: object) -> Callable[..., Any]:
    function: Any = value.fget if isinstance(value, property) else value
    unwrapped: Callable[..., Any] = inspect.unwrap(getattr(function, "__func__", function))
    return unwrapped


def _parsed(function: Callable[..., Any]) -> Function:
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    if not isinstance(node, Function):
        raise TypeError(f"{function} is not written as a function")
    # A constant of ours as the number it is.
    node.args.kw_defaults = [
        ast.Constant(function.__globals__[each.id]) if isinstance(each, ast.Name) else each
        for each in node.args.kw_defaults
    ]
    return node


def _type(node: ast.expr | None) -> str:
    """Return an annotation as it is written, without the quotes of a forward reference."""
    if node is None:
        return ""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value.replace("builtins.", "")
    text = ast.unparse(node).replace("builtins.", "")
    return text if "Literal[" in text else text.replace("'", "")


def parameters(node: Function) -> list[tuple[str, str, str]]:
    """Return name, type and default of each parameter but `self`; `*` stands before names."""
    rows = []
    plain = [*node.args.posonlyargs, *node.args.args]
    missing = len(plain) - len(node.args.defaults)
    for index, arg in enumerate(plain):
        default = node.args.defaults[index - missing] if index >= missing else None
        rows.append((arg.arg, _type(arg.annotation), ast.unparse(default) if default else ""))
    rows = [row for row in rows if row[0] not in ("self", "cls")]
    if node.args.vararg is not None:
        rows.append((f"*{node.args.vararg.arg}", _type(node.args.vararg.annotation), ""))
    elif node.args.kwonlyargs:
        rows.append(("*", "", ""))
    for arg, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
        rows.append((arg.arg, _type(arg.annotation), ast.unparse(default) if default else ""))
    return rows


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|") if text else ""


def _section(cls: type, name: str, value: object) -> list[str]:
    function = _function(value)
    node = _parsed(function)
    doc = inspect.getdoc(getattr(cls, name)) or inspect.getdoc(function) or ""
    returned = _type(node.returns) or "None"
    before = "await " if isinstance(node, ast.AsyncFunctionDef) else ""
    call = name if isinstance(value, property) else f"{before}{name}(…)"
    lines = [f"### `{cls.__name__}.{name}`", "", f"`{call} → {returned}`", "", doc, ""]
    rows = [] if isinstance(value, property) else parameters(node)
    if rows:
        lines += ["| parameter | type | default |", "|---|---|---|"]
        lines += [
            f"| {_code(a)} | {_code(b)} | {_code(c) or 'required' * (a[0] != '*')} |"
            for a, b, c in rows
        ]
        lines.append("")
    return lines


def page() -> str:
    """Return the text of the page."""
    lines = [INTRO]
    for cls, purpose in CLASSES.items():
        lines += [f"## {cls.__name__}", "", purpose, ""]
        rows = parameters(_parsed(_function(inspect.getattr_static(cls, "__init__"))))
        if cls is AgentMemory:
            lines += ["| parameter of `AgentMemory(…)` | type | default |", "|---|---|---|"]
            lines += [f"| {_code(a)} | {_code(b)} | {_code(c)} |" for a, b, c in rows]
            lines.append("")
        for name, value in members(cls):
            lines += _section(cls, name, value)
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
