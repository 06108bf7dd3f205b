"""Circles and private imports among the modules of the package.

    python -m benchmarks.structure

Imports are counted however they are written: at the top, inside a function, for type checkers
alone, and as the name of a module in a string: in full, with a class as `module:Class`, or in a
table from which names are put together.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = "orbiter.memory"

Graph = Mapping[str, set[str]]


@dataclass(frozen=True)
class Figure:
    """What a figure counts."""

    name: str
    items: Sequence[str]


class House:
    """The modules of the package below a source folder, and what they import of each other."""

    def __init__(self, source: Path) -> None:
        self._source = source
        self.paths = {self._module(path): path for path in sorted(source.rglob("*.py"))}
        texts = {name: path.read_text() for name, path in self.paths.items()}
        self.statements: dict[str, set[str]] = {}
        self.strings: dict[str, set[str]] = {}
        for name, text in texts.items():
            nodes = list(ast.walk(ast.parse(text)))  # once: to walk takes longer than to parse
            self.statements[name] = self._known(name, _imported(nodes))
            self.strings[name] = self._known(name, _named(nodes, name))
        self.imports: Graph = {
            name: self.statements[name] | self.strings[name] for name in self.paths
        }

    def _module(self, path: Path) -> str:
        parts = path.relative_to(self._source).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def _known(self, name: str, imported: Iterable[Sequence[str]]) -> set[str]:
        """Return the first of each of *imported* that is a module here, but for *name* itself."""
        found = (next((each for each in names if each in self.paths), name) for names in imported)
        return set(found) - {name}

    @cached_property
    def rooms(self) -> Graph:
        """The packages and modules at the top, and which of the others each imports."""
        rooms: dict[str, set[str]] = defaultdict(set)
        for name, imported in self.imports.items():
            if room := _room(name):
                rooms[room] |= {_room(each) for each in imported} - {room, ""}
        return {room: rooms[room] | set() for room in list(rooms)}

    def private_imports(self) -> list[str]:
        """Return the imports of another package's private module."""
        return [
            f"{name} -> {each}"
            for name, imported in self.imports.items()
            for each in sorted(imported)
            if (owner := _owner(each)) and name != owner and not name.startswith(f"{owner}.")
        ]


def _imported(nodes: Iterable[ast.AST]) -> Iterable[Sequence[str]]:
    """Return what the statements of a module import; of a name, also the module that has it."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ([alias.name] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((f"{node.module}.{alias.name}", node.module) for alias in node.names)


def _named(nodes: Sequence[ast.AST], module: str) -> Iterable[Sequence[str]]:
    """Return the names of modules that stand in the strings of *module*.

    They may end in `:` and what is taken from there. Where *module* puts names together to import
    them, a string is also the end of a name.
    """
    starts = set(_starts(nodes, module))
    started = _programs(nodes)
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in started:
            name = node.value.partition(":")[0]
            if name.startswith(f"{PACKAGE}."):
                yield [name]
            yield from ([start + name] for start in starts)


def _programs(nodes: Iterable[ast.AST]) -> list[ast.expr]:
    """Return what stands after `-m` in the arguments of a process: it is imported there."""
    lines = [node.elts for node in nodes if isinstance(node, ast.List | ast.Tuple)]
    pairs = (pair for line in lines for pair in pairwise(line))
    return [
        named
        for before, named in pairs
        if isinstance(before, ast.Constant) and before.value == "-m"
    ]


def _starts(nodes: Iterable[ast.AST], module: str) -> Iterable[str]:
    """Return how the names begin that *module* puts together to import modules.

    That is the text before the name in `import_module(f"{__name__}.{name}")`, and the package of
    `lazy_names`.
    """
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        function = node.func.id if isinstance(node.func, ast.Name) else ""
        if function == "lazy_names":
            yield f"{module}."
        elif function == "import_module" and isinstance(node.args[0], ast.JoinedStr):
            text = ast.unparse(node.args[0]).strip("f'\"").replace("{__name__}", module)
            yield text.partition("{")[0]


def _room(name: str) -> str:
    """Return the package or module at the top that *name* is in; `""` for the package itself."""
    return name.removeprefix(f"{PACKAGE}.").split(".")[0] if name.startswith(f"{PACKAGE}.") else ""


def _owner(name: str) -> str:
    """Return the package whose private module *name* is, or is below; `""` if it is public."""
    parts = name.split(".")
    private = [number for number, part in enumerate(parts) if part.startswith("_")]
    # A private module at the top is the whole package's.
    return ".".join(parts[: private[0]]) if private else ""


def circles(graph: Graph) -> list[list[str]]:
    """Return the groups of nodes that import each other, by Tarjan's algorithm."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in order:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], order[other])
        if low[node] == order[node]:
            at = stack.index(node)
            group = sorted(stack[at:])
            del stack[at:]
            groups.append(group)

    for node in sorted(graph):
        if node not in order:
            visit(node)
    return [group for group in groups if len(group) > 1]


def figures(source: Path = ROOT / "src") -> list[Figure]:
    """Return every figure of the package below *source*; each should be 0."""
    house = House(source)
    return [
        Figure("circles of packages", [" ".join(group) for group in circles(house.rooms)]),
        Figure("circles of modules", [" ".join(group) for group in circles(house.imports)]),
        Figure("imports of another package's private module", house.private_imports()),
    ]


def main() -> int:
    """Print the figures and what they count; exit with 1 unless all are 0."""
    for figure in figures():
        print(f"{len(figure.items)} {figure.name}", *figure.items, sep="\n  ")
    return int(any(figure.items for figure in figures()))


if __name__ == "__main__":
    raise SystemExit(main())
