"""What a model may answer when it is asked for facts, and what it means: pure functions, no I/O.

Nothing a model says is believed unchecked: an answer is taken as a whole, or not at all.
"""

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NoReturn

from orbiter.memory.errors import ExtractionError
from orbiter.memory.extraction._protocol import ProposedFact
from orbiter.memory.model.validation import to_utc
from orbiter.memory.summary import without_thoughts

__all__ = ["read_answer", "text_of"]

MAX_ANSWER = 2**18
"""Longest answer that is read, in characters."""

_FIELDS = {"key", "value", "messages", "valid_from", "valid_to", "confidence"}
_DATE = re.compile(r"\d{4}(-\d\d(-\d\d)?)?")


def text_of(answer: object, told: str) -> str:
    """Return the text of a chat completion; *told* names the model in errors."""
    choices = getattr(answer, "choices", None)
    if not isinstance(choices, list) or not choices:
        raise ExtractionError(f"{told} answered without any choice; check `base_url`")
    message = getattr(choices[0], "message", None)
    refusal = getattr(message, "refusal", None)
    if refusal:
        raise ExtractionError(f"{told} refused: {_shown(refusal)}")
    reason = getattr(choices[0], "finish_reason", None)
    if reason == "content_filter":
        raise ExtractionError(f"{told} refused: its filter held the answer back")
    if reason == "length":
        raise ExtractionError(f"{told} was cut off in its answer; give it fewer messages")
    text = getattr(message, "content", None)
    if not isinstance(text, str) or not text.strip():
        raise ExtractionError(f"{told} answered nothing")
    return without_thoughts(text)


def read_answer(
    text: str, *, messages: Mapping[str, str], most: int, told: str
) -> list[ProposedFact]:
    """Return the facts of an answer; *messages* are the names in it, and the ids they stand for."""
    if len(text) > MAX_ANSWER:
        raise ExtractionError(f"{told} answered {len(text):,} characters; {MAX_ANSWER:,} are read")
    found = _json(text, told)
    if not isinstance(found, dict) or set(found) != {"facts"} or type(found["facts"]) is not list:
        raise ExtractionError(
            f'{told} answered something other than {{"facts": […]}}: {_shown(text)}'
        )
    if len(found["facts"]) > most:
        raise ExtractionError(
            f"{told} answered {len(found['facts'])} facts, at most {most} are taken; give it "
            "fewer messages, or raise `max_facts`"
        )
    return [
        _fact(each, number, messages, told) for number, each in enumerate(found["facts"], start=1)
    ]


def _json(text: str, told: str) -> object:
    stripped = text.strip()
    try:
        return json.loads(stripped, object_pairs_hook=_object, parse_constant=_no_constant)
    except (ValueError, RecursionError) as exc:
        what = "JSON with something around it" if "{" in stripped[1:] else "no JSON"
        if stripped.startswith("{"):
            what = "JSON that is not sound"
        raise ExtractionError(f"{told} answered {what} ({exc}): {_shown(text)}") from exc


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _fact(each: object, number: int, messages: Mapping[str, str], told: str) -> ProposedFact:
    where = f"{told}, fact {number} of its answer:"
    if not isinstance(each, dict):
        raise ExtractionError(f"{where} it is no object, but {_shown(each)}")
    for name in ("key", "value", "messages"):
        if name not in each:
            raise ExtractionError(f"{where} it has no `{name}`")
    more = sorted(set(each) - _FIELDS)
    if more:
        raise ExtractionError(f"{where} it has `{_shown(more[0])}`, which was not asked for")
    names = each["messages"]
    if not isinstance(names, list) or not names:
        raise ExtractionError(f"{where} `messages` is no list of messages, but {_shown(names)}")
    unknown = [name for name in names if not isinstance(name, str) or name not in messages]
    if unknown:
        raise ExtractionError(f"{where} there is no message {_shown(unknown[0])}")
    try:
        return ProposedFact(
            key=each["key"],
            value=each["value"],
            message_ids=tuple(messages[name] for name in names),
            valid_from=_time(each, "valid_from"),
            valid_to=_time(each, "valid_to"),
            confidence=each.get("confidence"),
        )
    except (ExtractionError, ValueError) as exc:
        raise ExtractionError(f"{where} {exc}") from exc


def _time(each: dict[str, Any], name: str) -> datetime | None:
    """Return a time: `2024`, `2024-03`, `2024-03-01` or an ISO 8601 instant, UTC without a zone."""
    value = each.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise ExtractionError(f"`{name}` is no time, but {_shown(value)}")
    text = f"{value}-01-01"[:10] if _DATE.fullmatch(value) else value
    try:
        return to_utc(datetime.fromisoformat(text))
    except ValueError:
        raise ExtractionError(f"`{name}` is no time, but {_shown(value)}") from None


def _shown(value: object) -> str:
    """Return a little of what was answered, on one line."""
    text = value if isinstance(value, str) else repr(value)
    return " ".join(text.split())[:80].encode(errors="replace").decode()
