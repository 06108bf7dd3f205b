"""Text of memories made safe and short for a terminal.

Everything that was remembered passes through `clean` before a person sees it: control characters
could move the cursor, retitle the window or hide what follows; here they are shown, not obeyed.
"""

import json
import re
from datetime import UTC, datetime

__all__ = [
    "ago",
    "clean",
    "counted",
    "dumps",
    "moment",
    "one_line",
    "shortened",
    "size",
    "stored",
]

_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_ODD = f"\x7f-\x9f\u2028\u2029\ufeff\ufff9-\ufffb\U000e0000-\U000e007f\ud800-\udfff{_BIDI}"
_UNSAFE = re.compile(f"[\x00-\x08\x0b-\x1f{_ODD}]")
_UNSAFE_IN_JSON = re.compile(f"[{_ODD}]")
_SPACE = re.compile(r"\s+")


def clean(text: object) -> str:
    r"""Return *text* with every control and direction mark as an escape such as `\x1b`.

    Line ends stay; a tab becomes spaces, so that columns hold.
    """
    return _UNSAFE.sub(_escape, str(text).replace("\r\n", "\n").expandtabs(4))


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{{{code:x}}}"


def one_line(text: object) -> str:
    """Return *text*, cleaned, on one line."""
    return clean(_SPACE.sub(_space, str(text))).strip()


def _space(match: re.Match[str]) -> str:
    # What is white to Python but odd to a terminal (such as \x1c or U+2028) stays, to be shown.
    return "".join(each for each in match[0] if _UNSAFE.match(each)).replace("\r", "") or " "


def shortened(text: str, width: int) -> str:
    """Return *text*, cut to *width* characters."""
    return text if len(text) <= width else f"{text[: max(width - 1, 0)].rstrip()}…"


def dumps(value: object, *, indent: int | None = 2) -> str:
    """Return *value* as JSON that a terminal can show: readable letters, no control character."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=_plain)
    return _UNSAFE_IN_JSON.sub(_json_escape, text)


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"`{type(value).__name__}` has no JSON form")


def _json_escape(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1]


def moment(at: datetime) -> str:
    """Return *at* in this computer's time zone, to the minute."""
    return f"{at.astimezone():%Y-%m-%d %H:%M}"


def ago(at: datetime, *, now: datetime | None = None) -> str:
    """Return how long ago *at* is, in one unit; a date when that is weeks."""
    seconds = ((now or datetime.now(UTC)) - at).total_seconds()
    if not 0 <= seconds < 14 * 86_400:
        return f"{at.astimezone():%Y-%m-%d}"
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit} ago"
    return "just now"


def counted(count: int, one: str = "memory", many: str = "memories") -> str:
    """Return how many there are of something, in words that agree."""
    return f"{count:,} {one if count == 1 else many}"


def stored(items: int, entries: int, forgotten: int = 0) -> str:
    """Return how much is stored of somebody, in words; of entries and forgotten ones if any."""
    parts = [counted(items)]
    parts += [f"{forgotten:,} forgotten"] if forgotten else []
    parts += [counted(entries, "key-value entry", "key-value entries")] if entries else []
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if parts[1:] else parts)


def size(count: float) -> str:
    """Return a number of bytes as people read it."""
    for unit in ("B", "kB", "MB"):
        if count < 1_000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1_000
    return f"{count:.1f} GB"
