"""The persona in SOUL.md: Markdown, with optional YAML front matter. Pure: no file is read here.

Every error names the file and the line, counted in the file, and the way out.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, NoReturn, TypeGuard, TypeVar

from orbiter.memory.errors import SoulError
from orbiter.memory.model.validation import check_text

if TYPE_CHECKING:
    from yaml.nodes import Node

__all__ = ["Soul"]

_T = TypeVar("_T")

_MAX_BYTES = 2**20
_MAX_DEPTH = 16
_FENCE = re.compile(r"---[ \t]*")
_CLOSE = re.compile(r"(?:---|\.\.\.)[ \t]*")


@dataclass(frozen=True, slots=True)
class Soul:
    """Who the agent is. Every part is optional except that there must be some text."""

    body: str = ""
    """The Markdown below the front matter, as it was written."""
    name: str = ""
    voice: str = ""
    rules: tuple[str, ...] = ()
    platforms: Mapping[str, str] = field(default_factory=dict)
    """Where the agent is at home, each with a word on how it behaves there, or `""`."""
    extra: Mapping[str, object] = field(default_factory=dict)
    """Every other key of the front matter, such as `hard_rules`; each is shown as a section."""

    @classmethod
    def parse(cls, data: str | bytes, *, path: str = "SOUL.md") -> "Soul":
        """Return the persona that *data* describes; `SoulError` names *path* and the line.

        A byte order mark and any line ends are accepted.
        """
        text = _decode(data, path) if isinstance(data, bytes) else data
        text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
        _check(text, path)
        lines = text.split("\n")
        if not _FENCE.fullmatch(lines[0]):
            return cls(body=text.strip("\n"))
        close = next((i for i, line in enumerate(lines[1:], 1) if _CLOSE.fullmatch(line)), None)
        if close is None:
            raise SoulError(
                path,
                1,
                "the front matter is not closed; end it with a line `---`, "
                "or put a blank line first if `---` is meant as a rule",
            )
        keys = _FrontMatter("\n".join(lines[1:close]), path)
        soul = cls(
            body="\n".join(lines[close + 1 :]).strip("\n"),
            name=keys.take("name", _text),
            voice=keys.take("voice", _text),
            rules=keys.take("rules", _texts),
            platforms=keys.take("platforms", _named_texts),
            extra=MappingProxyType(keys.values),
        )
        for name, value in soul.extra.items():
            keys.check(name, value)
        if not soul.render():
            raise SoulError(path, 1, "says nothing about the persona; write who the agent is")
        return soul

    def render(self) -> str:
        """Return the persona as Markdown: name, voice, rules, platforms, other keys, the body."""
        parts = [f"You are {self.name}."] if self.name else []
        if self.voice:
            parts.append(f"Voice: {self.voice}")
        if self.rules:
            parts.append("\n".join(["Rules:", *(f"- {_indented(rule)}" for rule in self.rules)]))
        if self.platforms:
            lines = (f"{name}: {how}" if how else name for name, how in self.platforms.items())
            parts.append("\n".join(["Platforms:", *(f"- {_indented(each)}" for each in lines)]))
        parts += [
            section for name, value in self.extra.items() if (section := _section(name, value))
        ]
        return "\n\n".join([*parts, self.body] if self.body else parts)


def _section(name: str, value: object) -> str:
    """Return a key that we know nothing about as text; "" if it has no value.

    Raises `ValueError` if it is nested too deeply, or too long: a few lines of YAML that refer to
    each other can stand for millions.
    """
    title = _one_line(name.replace("_", " "))
    title = title[:1].upper() + title[1:]
    if not isinstance(value, _CONTAINERS):
        text = _scalar(value)
        return f"{title}: {_indented(text)}" if text else ""
    lines = _Lines().entries(value, 0)
    return "\n".join([f"{title}:", *lines]) if lines else ""


class _Lines:
    """Makes lines of Markdown of what YAML can say, up to a limit."""

    def __init__(self) -> None:
        self._room = _MAX_BYTES

    def entries(self, value: object, depth: int) -> list[str]:
        """Return a list of what *value* holds, each entry with a dash."""
        parts = [{key: inner} for key, inner in value.items()] if _is_mapping(value) else value
        lines: list[str] = []
        for part in parts:  # type: ignore[attr-defined]  # one of `_CONTAINERS`
            self._spend(4)  # also for what is empty, of which there may be millions
            for number, line in enumerate(self._plain(part, depth + 1)):
                lines.append(f"{'  ' if number else '- '}{line}")
        return lines

    def _plain(self, value: object, depth: int) -> list[str]:
        if depth > _MAX_DEPTH:
            raise ValueError(f"is nested more than {_MAX_DEPTH} levels deep")
        if not isinstance(value, _CONTAINERS):
            text = _scalar(value)
            self._spend(len(text))
            return text.split("\n") if text else []
        if not _is_mapping(value):
            return self.entries(value, depth)
        lines: list[str] = []
        for name, inner in value.items():
            key = _one_line(str(name))
            self._spend(len(key) + 4)
            if isinstance(inner, _CONTAINERS):
                below = self.entries(inner, depth)
                lines += [f"{key}:", *(f"  {line}" for line in below)]
            else:
                first, *rest = self._plain(inner, depth) or [""]
                lines += [f"{key}: {first}" if first else key, *(f"  {r}" for r in rest)]
        return lines

    def _spend(self, count: int) -> None:
        self._room -= count
        if self._room < 0:
            raise ValueError(f"expands to more than {_MAX_BYTES:,} characters")


_CONTAINERS = (Mapping, list, tuple, set)


def _is_mapping(value: object) -> TypeGuard[Mapping[object, object]]:
    return isinstance(value, Mapping)


def _scalar(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value).strip()


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")  # so that a list entry of many lines stays one


def _decode(data: bytes, path: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        raise SoulError(
            path,
            data.count(b"\n", 0, exc.start) + 1,
            f"byte {data[exc.start]:#04x} is not UTF-8; save the file as UTF-8",
        ) from None


def _check(text: str, path: str) -> None:
    if not text.strip():
        raise SoulError(path, 1, "it is empty; write who the agent is")
    try:
        check_text(text, max_bytes=_MAX_BYTES)
    except ValueError as exc:
        line = text.count("\n", 0, text.find("\0") + 1) + 1 if "\0" in text else 1
        raise SoulError(path, line, str(exc)) from None


class _FrontMatter:
    """The keys of a front matter, the lines they stand in, and how to complain about one."""

    def __init__(self, text: str, path: str) -> None:
        self._path = path
        self._lines: dict[str, int] = {}
        self.values: dict[str, object] = {}
        root, values = self._read(text)
        if values is None:
            return
        if not isinstance(root, _yaml().MappingNode) or not isinstance(values, dict):
            self._refuse(0, "it is not made of `key: value` lines")
        for key, _ in root.value:
            if str(key.value) in self._lines:  # YAML itself would keep the last without a word
                self._refuse(key.start_mark.line, f"`{key.value}` is given twice; keep one")
            self._lines[str(key.value)] = key.start_mark.line
        self.values = {str(key): value for key, value in values.items()}

    def take(self, name: str, read: Callable[[object], _T]) -> _T:
        """Return a known key's value, and leave the rest to `extra`."""
        try:
            return read(self.values.pop(name, None))
        except TypeError as exc:
            problem = f"`{name}` must be {exc}; put quotes around text that looks like a number"
            self._refuse(self._lines.get(name, 0), problem)

    def check(self, name: str, value: object) -> None:
        """Refuse a key that cannot be shown."""
        try:
            check_text(_section(name, value), max_bytes=_MAX_BYTES)
        except ValueError as exc:
            self._refuse(self._lines.get(name, 0), f"`{name}` {exc}; write it out, and shorter")

    def _read(self, text: str) -> "tuple[Node | None, object]":
        yaml = _yaml()
        root = None
        try:
            root = yaml.compose(text, Loader=yaml.SafeLoader)
            return root, yaml.safe_load(text)
        except yaml.MarkedYAMLError as exc:
            mark = exc.problem_mark or exc.context_mark
            self._refuse(mark.line if mark else 0, exc.problem or "bad YAML", exc)
        except yaml.reader.ReaderError as exc:
            self._refuse(text.count("\n", 0, exc.position), exc.reason, exc)
        except (ValueError, RecursionError) as exc:
            self._refuse(_line_of_bad_value(root), str(exc), exc)

    def _refuse(self, line: int, problem: str, cause: Exception | None = None) -> NoReturn:
        # The front matter's line 0 is the file's line 2.
        message = f"the front matter cannot be read: {problem}"
        raise SoulError(self._path, line + 2, message) from cause


def _yaml() -> ModuleType:
    # On first use: most programs that import this module never meet front matter.
    import yaml  # noqa: PLC0415

    return yaml


def _line_of_bad_value(root: "Node | None") -> int:
    """Return where the first value stands that is no number or date, though it looks like one."""
    for key, node in root.value if isinstance(root, _yaml().MappingNode) else ():
        try:
            _yaml().constructor.SafeConstructor().construct_document(node)
        except ValueError:
            return int(key.start_mark.line)
    return 0


def _text(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError("a string")
    return value.strip()


def _texts(value: object) -> tuple[str, ...]:
    listed: list[object] = value if isinstance(value, list) else [value]
    if not all(isinstance(each, str | None) for each in listed):
        raise TypeError("a string or a list of strings")
    return tuple(text for each in listed if (text := _text(each)))


def _named_texts(value: object) -> Mapping[str, str]:
    if not isinstance(value, dict):
        return MappingProxyType(dict.fromkeys(_texts(value), ""))
    if not all(
        isinstance(key, str) and isinstance(text, str | None) for key, text in value.items()
    ):
        raise TypeError("a list of names, or `name: text` lines")
    return MappingProxyType({key: _text(text) for key, text in value.items()})
