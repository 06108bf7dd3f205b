"""Writes the types of `orbiter.memory.sync` from the async names: `python docs/build_sync.py`.

The blocking classes and functions are made when they are imported, which no type checker sees. A
test keeps what is written here current.
"""

import ast
import inspect
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from orbiter.memory import agent, extraction, sync
from orbiter.memory.agent import (
    _audit,
    _chat,
    _facts_view,
    _memory,
    _past,
    facts,
    scope,
)
from orbiter.memory.episodic import manager
from orbiter.memory.extraction import _orchestrator
from orbiter.memory.sync import _facade
from orbiter.memory.transfer import _migrate, files

STUB = Path(sync.__file__).with_suffix(".pyi")

CLASSES = (
    (_memory, agent.AgentMemory),
    (scope, agent.ScopedMemory),
    (_chat, agent.Chat),
    (facts, agent.Facts),
    (_facts_view, agent.FactsView),
    (_past, agent.PastMemory),
    (_audit, agent.AuditLog),
    (manager, manager.ShortTermMemoryManager),
    (_orchestrator, extraction.LongTermMemory),
    (_orchestrator, extraction.MemoryOrchestrator),
)
FUNCTIONS = ((files, "import_file"), (files, "export_file"), (_migrate, "migrate"))
_MADE_BY_HAND = {
    agent.AgentMemory,
    manager.ShortTermMemoryManager,
    extraction.LongTermMemory,
    extraction.MemoryOrchestrator,
}

_SPECIAL = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__"}

INTRO = """\
# Written by docs/build_sync.py from the async names; change those, and run it again.
"""


class _Types(ast.NodeTransformer):
    """Turns an annotation of an async class into that of its blocking form."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str):  # a name that is only imported for types
            return self.visit(ast.parse(node.value, mode="eval").body)  # type: ignore[no-any-return]
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id == "EventStream":
            return ast.parse("Stream[MemoryEvent]", mode="eval").body
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        base = ast.unparse(node.value)
        if base == "Literal":
            return node
        if base in ("AsyncGenerator", "AsyncIterator"):
            inner = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice
            return ast.parse(f"Stream[{ast.unparse(self.visit(inner))}]", mode="eval").body
        return self.generic_visit(node)


def _annotation(node: ast.expr) -> ast.expr:
    changed: ast.expr = _Types().visit(node)
    return changed


def _method(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return the blocking form of a method, with its documentation and no body."""
    arguments = node.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.kwarg]
    for each in named:
        if each is not None and each.annotation is not None:
            each.annotation = _annotation(each.annotation)
    arguments.defaults = [_default(each) for each in arguments.defaults]
    arguments.kw_defaults = [each and _default(each) for each in arguments.kw_defaults]
    decorators = [each for each in node.decorator_list if ast.unparse(each) == "property"]
    doc = _facade._sync_doc(ast.get_docstring(node))  # noqa: SLF001 - the same words
    if doc and "\n" in doc:
        doc = textwrap.indent(f"{doc}\n", "    ").strip() + "\n    "
    body: list[ast.stmt] = [ast.Expr(ast.Constant(doc) if doc else ast.Constant(...))]
    made = ast.FunctionDef(
        name=_SPECIAL.get(node.name, node.name),
        args=arguments,
        body=body,
        decorator_list=decorators,
        returns=_annotation(node.returns) if node.returns else None,
    )
    return ast.unparse(ast.fix_missing_locations(made))


def _default(node: ast.expr) -> ast.expr:
    return node if isinstance(node, ast.Constant) else ast.Constant(...)


def _attributes(node: ast.ClassDef) -> Iterator[str]:
    """Yield the public attributes that `__init__` gives an object, typed by its arguments."""
    init = next((each for each in node.body if getattr(each, "name", "") == "__init__"), None)
    if not isinstance(init, ast.FunctionDef):  # it is inherited
        return
    types = {each.arg: each.annotation for each in init.args.args + init.args.kwonlyargs}
    for each in ast.walk(init):
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
            annotation = types.get(each.attr)
            if not each.attr.startswith("_") and annotation is not None:
                yield f"    {each.attr}: {ast.unparse(_annotation(annotation))}"


def _class(module: object, twin: type) -> str:
    tree = ast.parse(inspect.getsource(module))  # type: ignore[arg-type]  # a module
    node = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == twin.__name__)
    home = twin.__module__.split(".")[2]
    doc = _facade._sync_doc(ast.get_docstring(node, clean=False))  # noqa: SLF001 - the same words
    lines = [f"class {node.name}(Blocking[{home}.{node.name}]):", f'    """{doc}"""', ""]
    lines += _attributes(node)
    for each in [*node.body, *_inherited(twin)]:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            is_own = each.name == "__init__" and twin in _MADE_BY_HAND
            is_special = each.name in ("__aenter__", "__aexit__", "__aiter__")
            if is_own or is_special or not each.name.startswith("_"):
                lines.append(textwrap.indent(_method(each), "    "))
    return "\n".join(lines)


def _function(module: object, name: str) -> str:
    tree = ast.parse(inspect.getsource(module))  # type: ignore[arg-type]  # a module
    node = next(n for n in tree.body if isinstance(n, ast.AsyncFunctionDef) and n.name == name)
    return _method(node)


def _inherited(twin: type) -> Iterator[ast.stmt]:
    """Yield what the classes define that *twin* is made of, as far as it does not itself."""
    for base in twin.__mro__[1:]:
        if base.__module__.startswith("orbiter."):
            (node,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
            assert isinstance(node, ast.ClassDef)  # noqa: S101 - for the type checker
            yield from (each for each in node.body if getattr(each, "name", "") not in vars(twin))


def _imports(body: str) -> Iterator[str]:
    """Yield imports of every name that *body* uses, from where the async modules have it."""
    tree = ast.parse(body)
    used = {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}
    used -= {each.name for each in tree.body if isinstance(each, ast.ClassDef)}
    yield "from orbiter.memory import agent, episodic, extraction"
    yield "from orbiter.memory.sync._background_loop import run as run"
    yield "from orbiter.memory.sync._facade import async_form as async_form"
    yield "from orbiter.memory.sync._facade import Blocking"
    yield "from orbiter.memory.sync._facade import Stream as Stream"
    yield "from orbiter.memory.agent import MemoryEvent"
    yield "from orbiter.memory.model.filters import Where"
    yield "from orbiter.memory.agent.facts import Source"
    used -= {"agent", "episodic", "extraction", "run", "async_form", "Blocking", "Stream"}
    used -= {"MemoryEvent", "Source", "Where"}
    functions = dict.fromkeys(module for module, _ in FUNCTIONS)
    for module in (*(module for module, _ in CLASSES), *functions):
        for name, line in _names(module):
            if name in used:
                used.discard(name)
                yield line


def _names(module: object) -> Iterator[tuple[str, str]]:
    """Yield the names that *module* imports or defines, each with the line that imports it."""
    tree = ast.parse(inspect.getsource(module))  # type: ignore[arg-type]  # a module
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            where = f"from {node.module} " if isinstance(node, ast.ImportFrom) else ""
            yield from ((alias.name, f"{where}import {alias.name}") for alias in node.names)
    for each in tree.body:
        targets = [each] if isinstance(each, ast.ClassDef) else getattr(each, "targets", [])
        for target in targets:
            name = str(getattr(target, "name", None) or getattr(target, "id", ""))
            yield name, f"from {module.__name__} import {name}"  # type: ignore[attr-defined]


def stub() -> str:
    """Return the text of the file, formatted."""
    made = [_class(module, twin) for module, twin in CLASSES]
    made += [_function(module, name) for module, name in FUNCTIONS]
    body = "\n\n".join(made)
    names = ", ".join(f'"{name}"' for name in sync.__all__)
    text = "\n".join([INTRO, *_imports(body), "", f"__all__ = [{names}]", "", body, ""])
    for work in (["check", "--select", "I", "--fix", "--quiet"], ["format", "--quiet"]):
        text = _ruff(work, text)
    return text


def _ruff(work: list[str], text: str) -> str:
    ruff = shutil.which("ruff", path=str(Path(sys.executable).parent)) or "ruff"
    command = [ruff, *work, "--stdin-filename", str(STUB), "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)  # noqa: S603
    return done.stdout


if __name__ == "__main__":
    STUB.write_text(stub(), encoding="utf-8")
