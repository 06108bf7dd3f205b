"""How the package is built, in figures: what a stranger must hold in mind to draw it.

    python -m benchmarks.structure [--list]

Imports are counted however they are written: at the top, inside a function, for type checkers
alone, and as the name of a module in a string: in full, with a class as `module:Class`, or in a
table from which names are put together. `--list` names what each figure counts.
"""

import argparse
import ast
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from benchmarks._timing import Table, exit_code

ROOT = Path(__file__).parents[1]
PACKAGE = "orbiter.memory"
SMALL = 150
LONGEST = 500

Graph = Mapping[str, set[str]]


@dataclass(frozen=True)
class Figure:
    """One figure with its bar, and what it counts."""

    name: str
    value: int
    bar: int
    items: Sequence[str] = ()

    @property
    def is_met(self) -> bool:
        """Whether the figure is within its bar."""
        return self.value <= self.bar


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
        self.lines = {name: len(text.splitlines()) for name, text in texts.items()}

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

    @cached_property
    def importers(self) -> Graph:
        """Which modules import each module by a statement."""
        importers: dict[str, set[str]] = defaultdict(set)
        for name, imported in self.statements.items():
            for each in imported:
                importers[each].add(name)
        return importers

    def root_modules(self) -> list[str]:
        """Return the modules that lie at the top, beside the packages."""
        top = self.paths[PACKAGE].parent
        return [path.name for path in sorted(top.glob("*.py")) if path.name != "__init__.py"]

    def source_files(self) -> list[str]:
        """Return the modules but those of integrations: one for each framework, on its own."""
        return [name for name in sorted(self.paths) if _room(name) != "integrations"]

    def long_files(self) -> list[str]:
        """Return the files of more than `LONGEST` lines."""
        return [f"{name} ({count})" for name, count in self.lines.items() if count > LONGEST]

    def lonely_files(self) -> list[str]:
        """Return the small files whose only importer lies beside them.

        A file that is loaded by a string is not counted: it is one to be loaded on first use.
        """
        return [
            f"{name} <- {importer}"
            for name, path in self.paths.items()
            if self.lines[name] < SMALL and path.name != "__init__.py"
            if len(self.importers.get(name, ())) == 1
            if self.paths[importer := min(self.importers[name])].parent == path.parent
        ]

    def private_imports(self) -> list[str]:
        """Return the imports of another package's private module."""
        return [
            f"{name} -> {each}"
            for name, imported in self.imports.items()
            for each in sorted(imported)
            if (owner := _owner(each)) and name != owner and not name.startswith(f"{owner}.")
        ]

    def shared_names(self) -> list[str]:
        """Return the files whose name another file has, too; an integration has its framework's."""
        names = [
            self.paths[name].stem.lstrip("_")
            for name in self.source_files()
            if self.paths[name].name not in ("__init__.py", "__main__.py")
        ]
        return sorted(name for name in names if Counter(names)[name] > 1)

    def public_names(self) -> list[str]:
        """Return the names that the package itself offers, as its stub lists them."""
        for node in ast.parse(self.paths[PACKAGE].with_suffix(".pyi").read_text()).body:
            if isinstance(node, ast.Assign) and "__all__" in ast.unparse(node.targets[0]):
                return list(ast.literal_eval(node.value))
        return []


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


def floors(graph: Graph) -> dict[str, int]:
    """Return the floor of each node: one above the highest that it imports; circles share one."""
    whole = {node: min(group) for group in circles(graph) for node in group}
    above: dict[str, set[str]] = defaultdict(set)
    for node, imported in graph.items():
        here = whole.get(node, node)
        above[here] |= {whole.get(each, each) for each in imported} - {here}
    heights: dict[str, int] = {}

    def height(node: str) -> int:
        if node not in heights:
            heights[node] = 1 + max(map(height, above[node]), default=0)
        return heights[node]

    return {node: height(whole.get(node, node)) for node in sorted(graph)}


def layers() -> list[str]:
    """Return the layers that `lint-imports` checks."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contract = settings["tool"]["importlinter"]["contracts"][0]
    return [each.replace(f"{PACKAGE}.", "") for each in contract["layers"]]


def figures(source: Path = ROOT / "src") -> list[Figure]:
    """Return every figure of the package below *source*."""
    house = House(source)
    heights = floors(house.rooms)
    by_floor = [
        f"{floor}: {', '.join(room for room, at in heights.items() if at == floor)}"
        for floor in sorted(set(heights.values()), reverse=True)
    ]
    counted = (
        ("modules at the package's root", house.root_modules(), 8),
        ("floors of the import graph", by_floor, 12),
        ("circles of packages", [" ".join(group) for group in circles(house.rooms)], 0),
        ("circles of modules", [" ".join(group) for group in circles(house.imports)], 0),
        ("source files", house.source_files(), 450),
        (f"files over {LONGEST} lines", house.long_files(), 0),
        (f"files under {SMALL} lines beside their only importer", house.lonely_files(), 15),
        ("imports of another package's private module", house.private_imports(), 0),
        ("layers to learn", layers(), 12),
        ("public names of the package", house.public_names(), 45),
        ("files whose name another has, too", house.shared_names(), 60),
    )
    return [Figure(name, len(items), bar, items) for name, items, bar in counted]


def main() -> int:
    """Print the figures; with `--list` also what they count, where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="name what each figure counts")
    given = parser.parse_args()
    table = Table("Structure of the package", "what")
    for figure in figures():
        table.add(figure.name, measured=str(figure.value), bar=f"<= {figure.bar}", ok=figure.is_met)
        if given.list:
            print(f"\n{figure.name}:", *figure.items, sep="\n  ")
    return exit_code(table)


if __name__ == "__main__":
    raise SystemExit(main())
