"""Texts as they are read: without encodings, invisible characters and line breaks within a value.

Patterns are searched in a `Reading`; its offsets lead back, so the rest of a text stays verbatim.
"""

import html
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

__all__ = ["FOLD", "Reading", "read_decoded"]

_Piece = tuple[int, int, str]  # start, end, what is read there

# One character for one, so that a place in the folded text is the place in the original.
FOLD = {wide: wide - 0xFEE0 for wide in range(0xFF01, 0xFF5F)}
FOLD |= dict.fromkeys(map(ord, "\u00a0\u2007\u2009\u202f\u3000"), ord(" "))
FOLD |= dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2212"), ord("-"))
FOLD |= {0xFE6B: ord("@")}

# What a text may hold between or in place of the characters that are read.
_INVISIBLE = (
    "\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f"
    "\ufe00-\ufe0f\ufeff\U000e0000-\U000e007f"
)
_PERCENT = re.compile("%(?:25)*([0-9A-Fa-f]{2})")  # `%2540` is encoded twice
_ENCODED = re.compile(
    rf"[{_INVISIBLE}]++"
    r"|(?P<percent>(?:%(?:25)*[0-9A-Fa-f]{2})++)"
    r"|(?P<entity>&(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z]{2,16});)"
    r"|\\(?:u(?P<escape>[0-9A-Fa-f]{4})|(?P<control>[nrt]))"
)
_BREAK = r"(?:=|[ \t]{0,9})\r?\n[ \t>]{0,9}"  # in mails, `=` ends a line that goes on
_END = r"(?![\w.(\[=]| ?[=(])"  # code goes on: `a@b`, then `self.c = 1`
_BROKEN_EMAIL = re.compile(
    rf"(?<=\w@)(?P<host>{_BREAK})(?=[\w-]{{1,63}}\.\w)"
    rf"|\w@[\w-]++(?:(?P<dot>{_BREAK})(?=\.[a-z]{{2,24}}{_END})"
    rf"|\.(?P<top>{_BREAK})(?=[a-z]{{2,24}}(?:\.[a-z]{{2,24}})?{_END})"
    rf"|(?P<label>{_BREAK})(?=[a-z0-9-]{{1,63}}\.[a-z]{{2,24}}{_END}))"
    # A line that begins with `@` may be a decorator or a mention.
    rf"|(?<=\w)(?P<at>{_BREAK})(?=@[\w-]{{1,63}}\.(?:com|org|net|edu|gov|info|[a-z]{{2}}){_END})"
)
_BROKEN_NUMBER = re.compile(
    rf"(?<=[0-9A-Za-z]{{4}}[ -][0-9A-Za-z]{{4}})(?P<gap>{_BREAK})(?=[0-9A-Za-z]{{2,4}})"
)


@dataclass(frozen=True, slots=True)
class Reading:
    """A text as it is read, and where each character of it begins and ends in the original."""

    text: str
    starts: Sequence[int]
    ends: Sequence[int]

    def replace(
        self, pattern: re.Pattern[str], pieces: Callable[[re.Match[str]], Iterator[_Piece]]
    ) -> "Reading":
        """Return the reading with the *pieces* of each match in its place."""
        texts: list[str] = []
        starts: list[int] = []
        ends: list[int] = []
        at = 0
        for match in pattern.finditer(self.text):
            for first, last, read in pieces(match):
                texts += [self.text[at:first], read]
                starts += [*self.starts[at:first], *[self.starts[first]] * len(read)]
                ends += [*self.ends[at:first], *[self.ends[last - 1]] * len(read)]
                at = last
        if not texts:
            return self
        rest = (self.text[at:], self.starts[at:], self.ends[at:])
        return Reading("".join([*texts, rest[0]]), [*starts, *rest[1]], [*ends, *rest[2]])


def read_decoded(text: str, kind: str = "") -> Reading:
    """Return *text* as values of *kind*, such as `email`, are read in it."""
    reading = Reading(text, range(len(text)), range(1, len(text) + 1))
    if not text.isascii() or any(sign in text for sign in "%&\\"):
        reading = reading.replace(_ENCODED, _decoded)
    if kind == "email" and "@" in reading.text:
        reading = reading.replace(_BROKEN_EMAIL, lambda match: _without_break(match, ""))
    elif kind in ("card", "iban"):
        reading = reading.replace(_BROKEN_NUMBER, lambda match: _without_break(match, " "))
    return reading


def _decoded(match: re.Match[str]) -> Iterator[_Piece]:
    """Yield what each encoded character stands for; nothing for those that cannot be seen."""
    start, end = match.span()
    if match["percent"]:
        yield from _percent_decoded(match)
    elif match["entity"]:
        read = html.unescape(match[0])
        if read != match[0]:
            yield start, end, _seen(read)
    elif match["escape"]:
        code = int(match["escape"], 16)
        if not 0xD800 <= code < 0xE000:  # half of a pair
            yield start, end, _seen(chr(code))
    else:
        yield start, end, "\n" if match["control"] else ""


def _percent_decoded(match: re.Match[str]) -> Iterator[_Piece]:
    units = list(_PERCENT.finditer(match.string, *match.span("percent")))
    at = 0
    while at < len(units):
        lead = int(units[at][1], 16)
        count = 1 + (lead >= 0xC0) + (lead >= 0xE0) + (lead >= 0xF0)
        group = units[at : at + count]
        try:
            read = bytes(int(each[1], 16) for each in group).decode()
        except UnicodeDecodeError:
            at += 1
            continue
        yield group[0].start(), group[-1].end(), _seen(read)
        at += count


def _seen(read: str) -> str:
    return re.sub(rf"[{_INVISIBLE}]", "", read.translate(FOLD))


def _without_break(match: re.Match[str], read: str) -> Iterator[_Piece]:
    start, end = match.span(str(match.lastgroup))
    yield start, end, read
