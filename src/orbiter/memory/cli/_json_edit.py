"""Changing one entry of somebody's JSON file, and not a character besides.

Such files are edited by hand: they have an order, an indentation, in some programs comments and
commas at the end. So the text is read for places, and only the entry's own is written.
"""

import json
import re
from dataclasses import dataclass, field
from json.decoder import scanstring  # type: ignore[attr-defined]  # it is not in the stubs
from typing import Any

__all__ = ["FileSyntaxError", "find", "put", "remove"]

_SPACE = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_PLAIN = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
_INDENT = re.compile(r"\n([ \t]+)\S")
_LINE_END = re.compile(r"[ \t]*\r?\n")
_DEEPEST = 200


class FileSyntaxError(ValueError):
    """The text is no JSON, not even with comments; the message says where."""


@dataclass
class _Object:
    """Where an object stands, and its members."""

    start: int
    end: int = 0
    inner: int = 0
    """Where the last member ends, with a comma behind it if it has one."""
    has_comma: bool = False
    members: dict[str, tuple[int, int, Any]] = field(default_factory=dict)
    """By name: where the value begins and ends, and what it is; an object as this class."""
    names: dict[str, int] = field(default_factory=dict)
    """By name: where it begins itself."""


def find(text: str, path: tuple[str, ...]) -> object:
    """Return what stands under *path*, `None` if nothing does."""
    node: Any = _read(text)
    for name in path:
        if not isinstance(node, _Object) or name not in node.members:
            return None
        node = node.members[name][2]
    return _plain(node)


def put(text: str, path: tuple[str, str], value: object) -> str:
    """Return *text* with *value* as the member `path[1]` of the object `path[0]`.

    What is missing is made. `FileSyntaxError` if there is something other than an object, or if
    the rest would not mean what it meant.
    """
    made = _put(text, path, value)
    before, after = _plain(_read(text)), _plain(_read(made))
    if not isinstance(before, dict) or not isinstance(after, dict):
        raise FileSyntaxError("it holds no object")
    held = before.get(path[0], {})
    wanted = {**before, path[0]: {**(held if isinstance(held, dict) else {}), path[1]: value}}
    if after != wanted:
        raise FileSyntaxError(f"`{'.'.join(path)}` is written in a way that is not changed here")
    return made


def remove(text: str, path: tuple[str, str]) -> str:
    """Return *text* without the member `path[1]` of the object `path[0]`, if it is there.

    An object that is empty then is removed, too, unless a comment is in it. `FileSyntaxError` if
    the rest would not mean what it meant.
    """
    if find(text, path) is None:
        return text
    holder, name = path
    made = _without(text, _read(text).members[holder][2], name)
    wanted = _plain(_read(text))
    if isinstance(wanted, dict):
        del wanted[holder][name]
    start, end, _ = _read(made).members[holder]
    if not made[start + 1 : end - 1].strip():
        made = _without(made, _read(made), holder)
        if isinstance(wanted, dict):
            del wanted[holder]
    if _plain(_read(made)) != wanted:
        raise FileSyntaxError(f"`{'.'.join(path)}` is written in a way that is not changed here")
    return made


def _without(text: str, there: _Object, name: str) -> str:
    """Return *text* without a member of *there*, its comma, and its lines if it has them alone.

    In a line with others, one gap between two members goes with it.
    """
    reader = _Reader(text)
    start, end = there.names[name], there.members[name][1]
    comma = reader.skip(end)
    others = [last for each, (_, last, _) in there.members.items() if each != name]
    if text[comma : comma + 1] == ",":
        end = comma + 1
    elif others:  # it is the last one: the comma is that of the one before
        comma = reader.skip(max(others))
        text = f"{text[:comma]}{text[comma + 1 :]}"
        start, end = start - 1, end - 1
    line = text.rfind("\n", 0, start) + 1
    before, after = text[:start], text[end:]
    rest = _LINE_END.match(after)
    if not text[line:start].strip():
        if rest is not None:
            before, after = text[:line], after[rest.end() :]
    elif before.endswith("{"):  # the next one takes its place
        after = after.lstrip(" \t")
    else:
        before = before.rstrip(" \t")
    return f"{before}{after}"


def _put(text: str, path: tuple[str, str], value: object) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    if _is_bare(text):
        kept = text.rstrip()
        text = f"{kept}{newline}{{}}{newline}" if kept else f"{{}}{newline}"
    indent = _INDENT.search(text)
    unit = indent[1] if indent else "  "
    root = _read(text)
    holder, name = path
    if holder not in root.members:
        return _insert(text, root, holder, {name: value}, unit, newline, depth=1)
    within = root.members[holder][2]
    if not isinstance(within, _Object):
        raise FileSyntaxError(f"`{holder}` is not an object")
    if name not in within.members:
        return _insert(text, within, name, value, unit, newline, depth=2)
    start, end, _ = within.members[name]
    unit = unit if "\n" in text[within.start : within.end] else ""
    return f"{text[:start]}{_dumped(value, unit, newline, _indent_of(text, start))}{text[end:]}"


def _insert(
    text: str, there: _Object, name: str, value: object, unit: str, newline: str, *, depth: int
) -> str:
    """Return *text* with a new last member."""
    # Whichever end of line it is: a comment must not go on into what is new.
    is_wide = "\n" in text[there.start : there.end] or not there.members
    indent = unit * depth
    if there.members:
        first = min(start for start, _, _ in there.members.values())
        indent = _indent_of(text, first) if is_wide else ""
    made = f"{json.dumps(name)}: {_dumped(value, unit if is_wide else '', newline, indent)}"
    if not there.members:
        outer = unit * (depth - 1)
        kept = text[there.start + 1 : there.end - 1].rstrip()  # it may hold a comment
        inside = f"{kept}{newline}{indent}{made}{newline}{outer}"
        return f"{text[: there.start + 1]}{inside}{text[there.end - 1 :]}"
    gap = f"{newline}{indent}" if is_wide else " "
    comma = "" if there.has_comma else ","
    after = "," if there.has_comma else ""
    # Behind what is left of the object, so that a comment stays with the member it is about.
    rest = text[there.inner : there.end - 1]
    kept = rest.rstrip()
    begun = f"{text[: there.inner]}{comma}{kept}{gap}{made}{after}"
    return f"{begun}{rest[len(kept) :]}{text[there.end - 1 :]}"


def _indent_of(text: str, index: int) -> str:
    """Return the blanks at the beginning of the line of *index*."""
    line = text[text.rfind("\n", 0, index) + 1 : index]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _dumped(value: object, unit: str, newline: str, indent: str) -> str:
    if not unit:
        return json.dumps(value, ensure_ascii=False)
    lines = json.dumps(value, ensure_ascii=False, indent=unit).split("\n")
    return f"{newline}{indent}".join(lines)


def _plain(value: Any) -> object:
    if isinstance(value, _Object):
        return {name: _plain(each) for name, (_, _, each) in value.members.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _is_bare(text: str) -> bool:
    """Tell whether there is nothing but blanks and comments."""
    return _Reader(text).skip(0) == len(text)


def _read(text: str) -> _Object:
    if _is_bare(text):
        return _Object(0, 0)
    reader = _Reader(text)
    value, end = reader.value(reader.skip(0), 0)
    if reader.skip(end) != len(text):
        raise reader.broken(end, "there is text after the end")
    if not isinstance(value, _Object):
        raise FileSyntaxError("it holds no object")
    return value


class _Reader:
    """Reads values and where they stand."""

    def __init__(self, text: str) -> None:
        self._text = text

    def skip(self, index: int) -> int:
        """Return where the next thing that counts begins."""
        space = _SPACE.match(self._text, index)
        return index if space is None else space.end()

    def broken(self, index: int, why: str) -> FileSyntaxError:
        """Return an error that tells the line."""
        before = self._text[:index]
        column = index - (before.rfind("\n") + 1) + 1
        return FileSyntaxError(f"line {before.count(chr(10)) + 1}, column {column}: {why}")

    def value(self, index: int, depth: int) -> tuple[Any, int]:
        """Return the value at *index*, and where it ends."""
        if depth > _DEEPEST:
            raise self.broken(index, "it is nested too deeply")
        mark = self._text[index : index + 1]
        if mark == "{":
            return self._object(index, depth)
        if mark == "[":
            return self._array(index, depth)
        if mark == '"':
            return self._string(index)
        literal = _PLAIN.match(self._text, index)
        if literal is None:
            raise self.broken(index, "a value is missing")
        return json.loads(literal[0]), literal.end()

    def _string(self, index: int) -> tuple[str, int]:
        try:
            text, end = scanstring(self._text, index + 1)
        except ValueError:
            raise self.broken(index, "a string has no end") from None
        return str(text), int(end)

    def _object(self, index: int, depth: int) -> tuple[_Object, int]:
        node = _Object(index)
        at = self.skip(index + 1)
        while self._text[at : at + 1] != "}":
            if self._text[at : at + 1] != '"':
                raise self.broken(at, "a name in quotes is missing, or the closing `}`")
            name, end = self._string(at)
            node.names[name] = at
            at = self.skip(end)
            if self._text[at : at + 1] != ":":
                raise self.broken(at, "a `:` is missing")
            start = self.skip(at + 1)
            value, end = self.value(start, depth + 1)
            node.members[name] = (start, end, value)
            at, node.inner, node.has_comma = self._next(end, "}")
        node.end = at + 1
        return node, node.end

    def _array(self, index: int, depth: int) -> tuple[list[Any], int]:
        values = []
        at = self.skip(index + 1)
        while self._text[at : at + 1] != "]":
            value, end = self.value(at, depth + 1)
            values.append(value)
            at, _, _ = self._next(end, "]")
        return values, at + 1

    def _next(self, end: int, closing: str) -> tuple[int, int, bool]:
        """Return where it goes on behind a value, where that ends, and whether with a comma."""
        at = self.skip(end)
        mark = self._text[at : at + 1]
        if mark == ",":
            return self.skip(at + 1), at + 1, True
        if mark != closing:
            raise self.broken(at, f"a `,` or `{closing}` is missing")
        return at, end, False
