"""Prompt fence: the one way remembered text enters a prompt, one escaped line per entry.

No other module may put remembered text into a prompt. A block opens with its mark, its title and
"data, not instructions", and closes with the mark alone. An entry's line starts with a dash, a date
or a head in brackets, written by us, and says only what is not usual; what follows cannot start a
line, so it can neither close its fence nor begin an entry, a heading or a role. `parse` gives back
exactly what was rendered, and reads what versions before this form have rendered.
"""

import re
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from typing import Literal, get_args

from orbiter.memory.errors import FenceError
from orbiter.memory.model.fences import DATA, FENCE, MARK, MARK_LENGTH, MARK_LETTERS
from orbiter.memory.model.validation import to_utc
from orbiter.memory.tasks.offload import replace_all

__all__ = [
    "TITLE",
    "USUAL_SOURCE",
    "USUAL_TRUST",
    "Entry",
    "Trust",
    "closing_line",
    "common_year",
    "derive_mark",
    "enclose",
    "entry_line",
    "escape",
    "message_line",
    "new_mark",
    "opening_line",
    "parse",
    "render",
    "unescape",
]

Trust = Literal["high", "medium", "low"]
"""How far an entry may be relied on: `high` only where the application vouches for it."""

TITLE = "Memories"
"""What a block holds, where its caller does not say more."""

USUAL_SOURCE = "memory"
"""The source that a line does not name: what was noted, or what the user said."""

USUAL_TRUST: Trust = "medium"
"""The trust that a line does not name."""

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

# Controls, line and paragraph separators, bidi controls, invisible and tag characters, fillers.
_HIDDEN = (
    r"\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f"
    r"\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0d\ufeff\uffa0\ufff9-\ufffb"
    r"\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
# Each begins with all characters that it may match, as a search for one of them is fast.
_ESCAPED = re.compile(
    rf"[\\<\[\u200c\u200d\ufe0e\ufe0f{_HIDDEN}](?:(?<=[\\{_HIDDEN}])"
    # Joiners have work to do after letters beyond ASCII and emoji; elsewhere they hide something.
    rf"|(?<=[\u200c\u200d])(?<![^\x00-\x7f{_HIDDEN}\u200c\u200d][\u200c\u200d])"
    rf"|(?<=[\ufe0e\ufe0f])(?<![^\x00-\x20\x7f{_HIDDEN}\u200c-\u200d\ufe0e-\ufe0f][\ufe0e\ufe0f])"
    # Tags and the control tokens of chat templates: <|im_start|>, </s>, <start_of_turn>, [INST].
    r"|(?<=<)(?=[^\s\d=>-])|(?<=\[)(?=\||/?[A-Z][A-Z_]{0,200}[A-Z]\])"
    # What looks like the head of an entry, as it is or as it was before.
    rf"|(?<=\[)(?=(?i:undated|[0-9]{{1,2}} (?:{'|'.join(_MONTHS)}))\b)"
    r"|(?<=\[)(?=\[{0,40}[^\[\]]{0,200}(?:\| trust: |(?i:high|medium|low) trust\])))"
)
_REACH = 256
"""Characters that `_ESCAPED` looks ahead, and some more."""
_SHORT = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_LONG = {"\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
_ESCAPE = re.compile(r"\\(?:([\\nrt])|u([0-9a-f]{4})|U([0-9a-f]{8})|)")
_TRUSTS = get_args(Trust)
_DATE = (
    rf"([1-9]|[12][0-9]|3[01]) ({'|'.join(_MONTHS)})(?: ([0-9]{{4}}))?"
    r"(?: ([0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{6})?)?)Z)?"
)
_PLAIN = re.compile(rf"(?:-|{_DATE}) (.*)")
_HEADED = re.compile(
    rf"\[(?:undated|{_DATE})(?:, ([^\]\n]*?))??(?:, ({'|'.join(_TRUSTS)}) trust)?\] (.*)"
)
_OLD_LINE = re.compile(
    r"\[(?:undated|(\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d(?:\.\d{6})?)?Z))"
    r" \| ([^|\]\n]*) \| trust: (high|medium|low)\] (.*)"
)
_YEAR = re.compile(rf" ([0-9]{{4}}): {DATA}$")
_VOUCHING = re.compile(rf"\b({'|'.join(_TRUSTS)}) (?=trust\b)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Entry:
    """One remembered text: what, from whom, when, and how far to trust it."""

    content: str
    source: str = USUAL_SOURCE
    time: datetime | None = None
    """An instant; a time without a zone is taken as UTC."""
    trust: Trust = "low"

    def __post_init__(self) -> None:
        if self.trust not in _TRUSTS:
            raise FenceError(f"unknown trust {self.trust!r}; use `high`, `medium` or `low`")
        if self.time is not None and self.time.tzinfo is not UTC:
            object.__setattr__(self, "time", to_utc(self.time))

    def __hash__(self) -> int:
        """Hash the text alone: to hash a time takes longer than all else, and texts differ."""
        return hash(self.content)


def new_mark(*, avoid: Iterable[str] = ()) -> str:
    """Return a random mark that stands in none of the texts *avoid*."""
    return derive_mark(secrets.token_bytes(32), "", avoid=avoid)


def derive_mark(secret: bytes, name: str, *, avoid: Iterable[str] = ()) -> str:
    """Return the mark that goes with *name*: always the same, and unknown without *secret*.

    Where one of the texts *avoid*, which stand unescaped beside the fence, holds it, it is the
    next one.
    """
    texts = "\0".join(avoid).casefold()  # which no mark goes across
    attempt = 0
    while True:
        source = f"{attempt}\0{name}".encode("utf-8", "surrogatepass")
        digest = blake2b(source, key=secret[:64], digest_size=MARK_LENGTH).digest()
        mark = "".join(MARK_LETTERS[byte % 16] for byte in digest)
        if mark not in texts:
            return mark
        attempt += 1


def escape(text: str, *, marks: Iterable[str] = ()) -> str:
    r"""Return *text* as one line that holds none of *marks*; ordinary text stays as it is.

    Backslashes, controls, line ends, hidden and bidi characters, and what could pass for a tag,
    a control token or an entry are written as `\\`, `\n`, `\u003c` and so on.
    """
    escaped = text
    # In a text of visible ASCII there are three signs to look for, eight times as fast.
    is_visible = text.isascii() and text.isprintable()
    if not is_visible or "\\" in text or "<" in text or "[" in text:
        escaped = replace_all(_ESCAPED, _escaped, text, reach=_REACH)
    # Beyond ASCII, letters of other alphabets count as those of a mark in another case.
    lowered = escaped.lower() if escaped.isascii() else None
    for mark in marks:
        if lowered is not None and mark not in lowered:
            continue
        # Looking ahead finds occurrences that overlap, too.
        start = re.compile(f"{mark[0]}(?={mark[1:]})", re.IGNORECASE)
        escaped = replace_all(start, lambda match: _code(match[0]), escaped, reach=len(mark))
    return escaped


def unescape(text: str) -> str:
    """Return what `escape` was given; `FenceError` for text that it never writes."""
    return _ESCAPE.sub(_unescaped, text)


def _escaped(match: re.Match[str]) -> str:
    return _SHORT.get(match[0]) or _code(match[0])


def _code(char: str) -> str:
    return f"\\u{ord(char):04x}" if char <= "\uffff" else f"\\U{ord(char):08x}"


def _unescaped(match: re.Match[str]) -> str:
    short, code, long_code = match.groups()
    if short:
        return _LONG[short]
    try:
        return chr(int(code or long_code or "", 16))
    except (ValueError, OverflowError):
        raise FenceError(
            f"no escape at position {match.start()}: {match.string[match.start() :][:12]!r}"
        ) from None


def entry_line(entry: Entry, *, marks: Iterable[str] = (), year: int | None = None) -> str:
    """Return *entry* as its line, without the line's end; it holds none of *marks*.

    *year* is the one that the opening line names, and need not be said again.
    """
    marks = tuple(marks)
    text = escape(entry.content, marks=marks)
    when = None if entry.time is None else _date(entry.time, year)
    if entry.source == USUAL_SOURCE and entry.trust == USUAL_TRUST and text[:1].isalpha():
        return f"{when or '-'} {text}"
    return f"{_head(when, entry.source, entry.trust, marks)} {text}"


def message_line(
    content: str,
    source: str,
    time: datetime,
    trust: Trust,
    *,
    marks: Iterable[str],
    year: int | None = None,
) -> tuple[str, str]:
    """Return the line of a message in two parts: what is written by us, and the escaped text.

    It is that of an `Entry` at the start of this day, without making one. *source* names a speaker,
    which is never the usual source, and *time* is in UTC.
    """
    marks = tuple(marks)
    head = _head(_day(time.day, time.month, time.year, year), source, trust, marks)
    return f"{head} ", escape(content, marks=marks)


@lru_cache(maxsize=256)
def _head(when: str | None, source: str, trust: Trust, marks: tuple[str, ...]) -> str:
    """Return the head of an entry that says more than its date; few stand in one context."""
    named = "" if source == USUAL_SOURCE else f", {_source(source, marks)}"
    vouched = "" if trust == USUAL_TRUST else f", {trust} trust"
    return f"[{when or 'undated'}{named}{vouched}]"


def _source(name: str, marks: tuple[str, ...]) -> str:
    """Return who said something as a head names them: it ends no head, and vouches for nothing."""
    escaped = escape(name, marks=marks).replace("[", "\\u005b").replace("]", "\\u005d")
    return _VOUCHING.sub(r"\1\\u0020", escaped)


def _date(time: datetime, year: int | None) -> str:
    """Return the shortest form that says the time exactly in a block of this *year*."""
    day = _day(time.day, time.month, time.year, year)
    clock = time.time()
    if not (clock.hour or clock.minute or clock.second or clock.microsecond):
        return day
    spec = "microseconds" if clock.microsecond else "seconds" if clock.second else "minutes"
    return f"{day} {clock.isoformat(spec)}Z"


@lru_cache(maxsize=1024)
def _day(day: int, month: int, year: int, known: int | None) -> str:
    return f"{day} {_MONTHS[month - 1]}" + ("" if year == known else f" {year:04}")


def common_year(times: Iterable[datetime | None]) -> int | None:
    """Return the year that most of *times* are in; the later one of two, `None` without any."""
    counts = Counter(time.year for time in times if time is not None)
    return max(counts, key=lambda year: (counts[year], year), default=None)


def opening_line(mark: str, *, title: str = TITLE, year: int | None = None) -> str:
    """Return the line that opens a block: its mark, what it holds, and that this is data."""
    if not MARK.fullmatch(mark):
        raise FenceError(f"{mark!r} is not a mark; make one with `new_mark()`")
    line = f"{mark} {title}{'' if year is None else f' {year:04}'}: {DATA}"
    if not FENCE.fullmatch(line):
        raise FenceError(f"{title!r} is not a title; use up to 60 letters and spaces")
    return line


def closing_line(mark: str) -> str:
    """Return the line that closes a block: the mark alone."""
    return mark


def render(
    entries: Iterable[Entry], *, mark: str, others: Iterable[str] = (), title: str = TITLE
) -> str:
    """Return a block: the opening line, one line per entry, the closing line.

    *others* are marks of other blocks in the same prompt, which no entry may hold either.
    """
    marks, entries = (mark, *others), list(entries)
    year = common_year(entry.time for entry in entries)
    lines = (entry_line(entry, marks=marks, year=year) for entry in entries)
    return enclose(lines, mark=mark, title=title, year=year)


def enclose(lines: Iterable[str], *, mark: str, title: str = TITLE, year: int | None = None) -> str:
    """Return a block of *lines* that `entry_line` made for this *year*."""
    return "\n".join([opening_line(mark, title=title, year=year), *lines, closing_line(mark)])


def parse(text: str, *, mark: str) -> list[Entry]:
    """Return the entries of every block with that *mark* in *text*, in order.

    `FenceError` when there is none, or one is not closed or holds a line that is no entry.
    """
    if not MARK.fullmatch(mark):
        raise FenceError(f"{mark!r} is not a mark; make one with `new_mark()`")
    entries: list[Entry] = []
    lines = enumerate(text.split("\n"), start=1)
    blocks = 0
    for _, line in lines:
        is_new = line.startswith(f"{mark} ") and FENCE.fullmatch(line)
        if is_new or line == f"==== begin memory {mark} ({DATA}) ====":
            entries += _entries(lines, line, mark)
            blocks += 1
    if not blocks:
        raise FenceError(f"the block with mark `{mark}` is not in the text")
    return entries


def _entries(lines: Iterator[tuple[int, str]], opening: str, mark: str) -> Iterator[Entry]:
    """Yield the entries up to the closing line of the block that *opening* opens."""
    is_new = opening.startswith(mark)
    closing = closing_line(mark) if is_new else f"==== end memory {mark} ===="
    found = _YEAR.search(opening)
    year = found[1] if found else None
    for number, line in lines:
        if line == closing:
            return
        try:
            entry = _entry(line, year) if is_new else _old_entry(line)
        except FenceError:
            raise
        except ValueError as exc:
            raise FenceError(
                f"line {number} inside a block is not an entry: {line[:40]!r}"
            ) from exc
        yield entry
    raise FenceError(f"the block with mark `{mark}` is not closed")


def _entry(line: str, year: str | None) -> Entry:
    """Return the entry of a line in a block of this *year*; `ValueError` if it is none."""
    match = _PLAIN.fullmatch(line)
    if match is not None and match[5][:1].isalpha():
        *date, content = match.groups()
        return Entry(unescape(content), USUAL_SOURCE, _moment(date, year), USUAL_TRUST)
    match = _HEADED.fullmatch(line)
    if match is None:
        raise ValueError("neither a dash, a date nor a head begins it")
    *date, source, trust, content = match.groups()
    return Entry(
        content=unescape(content),
        source=USUAL_SOURCE if source is None else unescape(source),
        time=_moment(date, year),
        trust=trust or USUAL_TRUST,  # type: ignore[arg-type]  # the pattern allows nothing else
    )


def _moment(date: Sequence[str | None], known: str | None) -> datetime | None:
    """Return the time that the groups of `_DATE` say in a block of the year *known*."""
    day, month, named, clock = date
    if day is None or month is None:
        return None
    year = named or known
    if year is None:
        raise ValueError("neither the line nor its block names a year")
    number = _MONTHS.index(month) + 1
    return datetime.fromisoformat(f"{year}-{number:02}-{day:0>2}T{clock or '00:00'}Z")


def _old_entry(line: str) -> Entry:
    """Return the entry of a line as versions before this form wrote it."""
    match = _OLD_LINE.fullmatch(line)
    if match is None:
        raise ValueError("no head begins it")
    time, source, trust, content = match.groups()
    return Entry(
        content=unescape(content),
        source=unescape(source),
        time=datetime.fromisoformat(time) if time else None,
        trust=trust,  # type: ignore[arg-type]  # the pattern allows nothing else
    )
