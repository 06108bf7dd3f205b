"""Options that several commands take, and how their text is read."""

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from orbiter.memory.cli._completion import complete_ids, complete_tags
from orbiter.memory.cli._error_messages import UsageError

__all__ = [
    "AsOf",
    "DryRun",
    "Id",
    "Kind",
    "MinRelevance",
    "Since",
    "Spread",
    "Tagged",
    "Tags",
    "Until",
    "Where",
    "Yes",
    "check_past",
    "read_end",
    "read_json",
    "read_stdin",
    "read_when",
    "read_where",
    "read_words",
]

Id = Annotated[
    str,
    typer.Argument(
        help="The memory's id, or four or more characters of its beginning or end.",
        show_default=False,
        autocompletion=complete_ids,
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since", help="From this time on: `2026-11-01`, `2026-11-01T10:00`, `3d`, `last week`."
    ),
]
Until = Annotated[
    str | None, typer.Option("--until", help="Until this time is over; written as for `--since`.")
]
AsOf = Annotated[
    str | None,
    typer.Option("--as-of", help="As of this time: `2026-11-01`, `3d`, `yesterday`."),
]
Where = Annotated[
    str | None,
    typer.Option(
        "--where", help='Filter on fields and extra: `topic=backup`, or \'{"price": {"$lt": 5}}\'.'
    ),
]
Kind = Annotated[
    str | None, typer.Option("--type", help="Only this kind: item (a note), human, ai, fact, …")
]
Tagged = Annotated[
    list[str] | None,
    typer.Option(
        "--tag",
        help="With this tag; may be repeated: with all of them.",
        autocompletion=complete_tags,
    ),
]
MinRelevance = Annotated[
    float | None,
    typer.Option(
        "--min-relevance",
        min=0,
        max=1,
        help="Minimum relevance, from 0 to 1; else what clearly does not answer is left out.",
    ),
]
Spread = Annotated[
    bool | None,
    typer.Option(
        "--spread/--no-spread",
        help="Cover a matter over time, oldest first; else as the question asks.",
        show_default=False,
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Tags = Annotated[
    list[str] | None,
    typer.Option("--tag", help="A tag; may be repeated.", autocompletion=complete_tags),
]


_EXAMPLES = {"where": '\'{"price": {"$lt": 5}}\'', "extra": "'{\"price\": 5}'"}


def _parse_time(text: str, *, is_end: bool = False, now: datetime | None = None) -> datetime:
    from orbiter.memory.recall.time_bounds import parse_time  # noqa: PLC0415 - not for `--help`

    return parse_time(text, is_end=is_end, now=now, is_local=True)


def read_when(name: str, text: str | None) -> datetime | None:
    """Return the instant that an option names: of a day or a phrase its begin, for `until` its end.

    Times without a zone are this computer's.
    """
    if text is None:
        return None
    try:
        return _parse_time(text, is_end=name == "until")
    except ValueError as exc:
        raise UsageError(f"`--{name}`: {exc}") from None


def read_end(name: str, text: str | None) -> datetime | None:
    """Return the instant to come that an option names: a date, or how long from now (`30d`)."""
    if text is None:
        return None
    now = datetime.now(UTC)
    try:
        end = _parse_time(text, now=now)
        if text.strip()[-1:] in tuple("smhdwSMHDW"):  # no date ends so
            end = now + (now - end)
    except (ValueError, OverflowError):
        raise UsageError(
            f"`--{name}`: `{text}` is not a valid time; write `30d`, `12h` or `2w` from now, "
            "or `2027-01-31`"
        ) from None
    if end <= now:
        raise UsageError(
            f"`--{name}`: `{text}` is in the past; write `30d`, or a date in the future"
        )
    return end


def read_json(name: str, text: str | None) -> dict[str, object] | None:
    """Return the JSON object that an option holds."""
    if text is None:
        return None
    try:
        value = json.loads(text)
    except ValueError as exc:
        raise UsageError(
            f"`--{name}` is not valid JSON: {exc}; write it such as {_EXAMPLES[name]}"
        ) from None
    if not isinstance(value, dict):
        raise UsageError(f"`--{name}` must be a JSON object such as {_EXAMPLES[name]}")
    return value


def _read_pair(where: str | None) -> dict[str, object] | None:
    """Return the filter that `topic=backup` is; `None` for what is written as JSON.

    What may be a number, `true` or `false` finds the text as well: a shell cannot tell them apart.
    """
    name, sign, text = (where or "").partition("=")
    name, text = name.strip(), text.strip()
    if not sign or not name or name[0] in "{[":
        return None
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if isinstance(value, dict | list):
        raise UsageError(f"`--where` is `field=value`, or JSON such as {_EXAMPLES['where']}")
    return {name: value if value == text or text[:1] == '"' else {"$in": [value, text]}}


def read_where(where: str | None, tags: Sequence[str] | None = None) -> dict[str, object] | None:
    """Return the filter that `--where` and every `--tag` make together; `None` for none."""
    from orbiter.memory.errors import QueryError  # noqa: PLC0415 - `--help` needs it not
    from orbiter.memory.model.filters import parse_where  # noqa: PLC0415

    if any(not tag.strip() for tag in tags or ()):
        raise UsageError("`--tag` is empty; name a tag")
    parts: list[dict[str, object]] = [{"tags": {"$contains": tag}} for tag in tags or ()]
    condition = _read_pair(where) or read_json("where", where)
    if condition:
        try:
            parse_where(condition)
        except QueryError as exc:
            raise UsageError(f"`--where`: {exc}; write it such as {_EXAMPLES['where']}") from None
        parts.append(condition)
    return {"$and": parts} if len(parts) > 1 else parts[0] if parts else condition


def read_words(words: Sequence[str]) -> str:
    """Return the words as one text; for `-`, what stdin holds."""
    if list(words) == ["-"]:
        return read_stdin().strip()
    if "-" in (words[0], words[-1]):  # between words it is a dash
        raise UsageError("`-` reads stdin, and takes no words beside it")
    return " ".join(words)


def read_stdin() -> str:
    """Return all of stdin as text."""
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as exc:
        raise UsageError(f"stdin is not UTF-8 text: {exc.reason} at byte {exc.start}") from None


def check_past(**options: object) -> None:
    """Raise `UsageError` for options that the past does not take."""
    for name, value in options.items():
        if value not in (None, False):
            raise UsageError(
                f"`--as-of` and `--{name.replace('_', '-')}` exclude each other; the past can be "
                "searched by words, `--type`, `--tag` and `--where`"
            )
