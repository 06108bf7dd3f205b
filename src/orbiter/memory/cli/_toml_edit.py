"""Changing one table of somebody's TOML file, and not a character besides."""

import json
import re
import tomllib
from collections.abc import Mapping

from orbiter.memory.cli._json_edit import FileSyntaxError

__all__ = ["find", "put", "remove"]

_HEADER = re.compile(r"^[ \t]*\[\[?[^\n]*", re.MULTILINE)


def find(text: str, path: tuple[str, str]) -> object:
    """Return what the table `[path[0].path[1]]` holds, `None` if there is none."""
    holder = _read(text).get(path[0])
    return holder.get(path[1]) if isinstance(holder, dict) else None


def put(text: str, path: tuple[str, str], value: Mapping[str, object]) -> str:
    """Return *text* with that table holding *value*; a new one is written at the end."""
    before = _read(text)
    newline = "\r\n" if "\r\n" in text else "\n"
    table = _table(path, value).replace("\n", newline)
    if find(text, path) is None:
        gap = newline if text.strip() else ""
        end = "" if not text or text.endswith("\n") else newline
        made = f"{text}{end}{gap}{table}"
    else:
        made = _replaced(text, path, table)
    _check(before, made, path, value)
    return made


def remove(text: str, path: tuple[str, str]) -> str:
    """Return *text* without that table, and without those below it, if it is there."""
    if find(text, path) is None:
        return text
    made = _replaced(text, path, "")
    _check(_read(text), made, path, None)
    return made


def _read(text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise FileSyntaxError(str(exc)) from None


def _table(path: tuple[str, str], value: Mapping[str, object]) -> str:
    lines = [f"[{path[0]}.{_key(path[1])}]"]
    lines += [f"{_key(name)} = {_value(each)}" for name, each in value.items()]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(name)} = {_value(v)}" for name, v in value.items()) + " }"
    # A text and a list of texts are the same in JSON, but for a letter that TOML wants escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _replaced(text: str, path: tuple[str, str], table: str) -> str:
    """Return *text* with the table, and what lies below it, replaced."""
    name = re.escape(path[1])
    own = re.compile(
        rf"""[ \t]*\[[ \t]*{path[0]}[ \t]*\.[ \t]*(?:{name}|"{name}"|'{name}')[ \t]*[.\]]"""
    )
    headers = [*_HEADER.finditer(text)]
    parts: list[tuple[int, int]] = []
    for index, header in enumerate(headers):
        if own.match(header[0]):
            end = headers[index + 1].start() if index + 1 < len(headers) else len(text)
            parts.append((header.start(), _without_rest(text, header.end(), end)))
    if not parts:
        raise FileSyntaxError(f"`{'.'.join(path)}` is written in a way that is not changed here")
    for start, end in reversed(parts[1:]):
        text = text[:start] + text[end:]
    start, end = parts[0]
    return text[:start] + table + text[end:]


def _without_rest(text: str, start: int, end: int) -> int:
    """Return where a table ends: comments and blanks before the next belong to that."""
    kept = start
    for line in re.finditer(r"[^\n]*(?:\n|\Z)", text[start:end]):
        if line[0].strip() and not line[0].lstrip().startswith("#"):
            kept = start + line.end()
    if kept == start:  # nothing but the header, whose own line ends
        kept = min(text.find("\n", start) + 1 or end, end)
    return kept


def _check(
    before: dict[str, object],
    made: str,
    path: tuple[str, str],
    value: Mapping[str, object] | None,
) -> None:
    """Raise `FileSyntaxError` unless everything else means what it meant."""
    after = _read(made)
    holder = after.setdefault(path[0], {})
    if not isinstance(holder, dict) or holder.pop(path[1], None) != value:
        raise FileSyntaxError(f"`{'.'.join(path)}` is written in a way that is not changed here")
    was = before.get(path[0])
    rest = {k: v for k, v in was.items() if k != path[1]} if isinstance(was, dict) else {}
    if {**before, path[0]: rest} != after:
        raise FileSyntaxError("the rest of the file would not stay as it is")
