"""The Jinja environment: escaping, visible control characters, filters.

Every text that a template writes is escaped, and what would turn letters around or hide in them
is made visible first: the environment does both by itself, so that no template can forget it. Only
`verbatim` gives a text as it is, for a field in which it is edited.
"""

import json
import unicodedata
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlencode
from zlib import crc32

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from pydantic import BaseModel

from orbiter.memory.model.items import MemoryItem
from orbiter.memory.model.serialization import dump_item
from orbiter.memory.model.trust import source_of

__all__ = ["HERE", "environment", "render", "to_json", "visible"]


HERE = Path(__file__).parent
_HIDDEN = {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}
_KEPT = "\n\t"
_JOINERS = "\u200c\u200d"
_JOINED = (("\u0600", "\u08ff"), ("\u0900", "\u109f"), ("\u1780", "\u18af"), ("\ufb50", "\ufefc"))
"""Scripts whose letters change with their neighbours, and so have a use for joiners."""
_PICTURES = ("So", "Sk")
_AS_PICTURE = "\ufe0f"

_KINDS = {"item": "note", "human": "user", "ai": "assistant"}
"""What types are called on every page, where that is not what a store calls them."""

_COLOURS = {
    "item": "c0",
    "human": "c6",
    "ai": "c2",
    "tool": "c5",
    "system": "c7",
    "fact": "c3",
    "summary": "c1",
}


def visible(text: str) -> str:
    """Return *text* with what cannot be seen in it spelled out, such as `⟨U+202E⟩`."""
    if text.isprintable():
        return text
    return "".join(
        f"⟨U+{ord(letter):04X}⟩" if _is_hidden(text, at, letter) else letter
        for at, letter in enumerate(text)
    )


def _is_hidden(text: str, at: int, letter: str) -> bool:
    if letter in _JOINERS:
        return not (0 < at < len(text) - 1 and _join(text[at - 1], text[at + 1]))
    return unicodedata.category(letter) in _HIDDEN and letter not in _KEPT


def _join(before: str, after: str) -> bool:
    """Return whether a joiner between these two does what it is there for."""
    if unicodedata.category(after) in _PICTURES:
        return before == _AS_PICTURE or unicodedata.category(before) in _PICTURES
    return all(
        any(first <= letter <= last for first, last in _JOINED) for letter in (before, after)
    )


def _kind(memory_type: str) -> str:
    return _KINDS.get(memory_type, memory_type)


def _finalize(value: object) -> object:
    if isinstance(value, Markup):
        return value
    return visible(value) if isinstance(value, str) else value


def _verbatim(text: str) -> Markup:
    # A browser drops the first line end of a field; this one is for it.
    return Markup("\n") + escape(text)


def _code(text: str) -> Markup:
    """Return a message of ours with what stands in backticks as code."""
    parts = visible(text).split("`")
    if len(parts) % 2 == 0:  # one is open: it may be of what somebody wrote
        return escape(visible(text))
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(part) if at % 2 else part for at, part in enumerate(parts))


def _sentence(text: str) -> Markup:
    """Return a message of ours as a sentence, for what went wrong."""
    return _code(f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '!', '?')) else '.'}")


def _ago(moment: datetime) -> str:
    """Return how long ago, or how far ahead, in words of one unit."""
    seconds = (datetime.now(UTC) - moment).total_seconds()
    size = abs(seconds)
    for most, unit, name in (
        (60, 1, "s"),
        (3_600, 60, " min"),
        (86_400, 3_600, " h"),
        (86_400 * 45, 86_400, " d"),
        (86_400 * 700, 86_400 * 30.44, " mo"),
    ):
        if size < most:
            message = f"{int(size // unit)}{name}"
            break
    else:
        message = f"{int(size // (86_400 * 365.25))} y"
    if size < 5:
        return "now"
    return f"{message} ago" if seconds > 0 else f"in {message}"


def _when(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _size(count: int) -> str:
    amount, units = float(count), ["TB", "GB", "MB", "KB", "B"]
    while amount >= 1_000 and len(units) > 1:
        amount /= 1_000
        units.pop()
    return (
        f"{amount:.0f} {units[-1]}"
        if units[-1] == "B" or amount >= 10
        else f"{amount:.1f} {units[-1]}"
    )


def _count(number: int) -> str:
    return f"{number:,}"


def _colour(name: object) -> str:
    """Return the colour class of a type, a user or a tag: always the same one."""
    text = str(name)
    return _COLOURS.get(text, f"c{crc32(text.encode('utf-8', 'replace')) % 8}")


def _pretty(value: object) -> str:
    return json.dumps(to_json(value), indent=2, ensure_ascii=False)


def _query(**params: object) -> str:
    """Return `?…` of what is given and not empty."""
    said = {name: value for name, value in params.items() if value not in (None, "", False)}
    return f"?{urlencode(said)}" if said else ""


@cache
def environment() -> Environment:
    """Return what all pages are made with."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "ago": _ago,
        "code": _code,
        "colour": _colour,
        "count": _count,
        "kind": _kind,
        "pretty": _pretty,
        "sentence": _sentence,
        "size": _size,
        "source": source_of,
        "verbatim": _verbatim,
        "when": _when,
    }
    made.globals |= {"query": _query, "version": version("orbiter-memory")}
    made.globals["ui"] = made.get_template("macros.html").module
    return made


def render(template: str, data: Mapping[str, object]) -> str:
    """Return the page that *template* makes of *data*."""
    return environment().get_template(template).render(data)


def to_json(value: object) -> object:
    """Return *value* as what JSON has: verbatim, with nothing made visible or left out."""
    result: object = str(value)
    if value is None or isinstance(value, bool | int | float):
        result = value
    elif isinstance(value, Enum):
        result = to_json(value.value)
    elif isinstance(value, str):
        result = str(value)
    elif isinstance(value, datetime):
        result = value.isoformat()
    elif isinstance(value, MemoryItem):
        result = dump_item(value)
    elif isinstance(value, BaseModel):
        result = value.model_dump(mode="json")
    elif is_dataclass(value) and not isinstance(value, type):
        names = (each.name for each in fields(value) if not each.name.startswith("_"))
        result = {name: to_json(getattr(value, name)) for name in names}
    elif isinstance(value, Mapping):
        result = {str(name): to_json(each) for name, each in value.items()}
    elif isinstance(value, Sequence | Set):
        result = [to_json(each) for each in value]
    return result
