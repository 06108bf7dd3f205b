"""Reads facts out of what a chat model answered.

Strict in what is taken, not in how it is written: text around the JSON, a code fence, fields that
nobody asked for and an end that is cut off lose nothing that can be read. A fact whose parts are
not sound is left out and counted, by a reason that says nothing of its content.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from orbiter.memory.errors import ExtractionError
from orbiter.memory.extraction._extractor import ProposedFact
from orbiter.memory.model.validation import to_utc
from orbiter.memory.summary import without_thoughts

if TYPE_CHECKING:
    from openai.types.shared_params import ResponseFormatJSONSchema

__all__ = ["RESPONSE_FORMAT", "FactAnswer", "read_answer", "text_of"]

MAX_ANSWER = 2**18
"""Most characters of an answer that are read."""

_MAX_STARTS = 500
"""How many braces and brackets are tried: each may be read up to the end in vain."""

_TEXT_OR_NULL: dict[str, object] = {"type": ["string", "null"]}
_VALUE: dict[str, object] = {
    "anyOf": [
        {"type": ["string", "number", "boolean", "null"]},
        {"type": "array", "items": {"type": ["string", "number", "boolean"]}},
    ]
}
_FIELDS: dict[str, object] = {
    "key": {"type": "string"},
    "op": {"type": "string", "enum": ["set", "add", "remove", "end"]},
    "value": _VALUE,
    "valid_from": _TEXT_OR_NULL,
    "valid_to": _TEXT_OR_NULL,
    "messages": {"type": "array", "items": {"type": "string"}},
    "confidence": {"type": ["number", "null"]},
}


def _object(properties: dict[str, object]) -> dict[str, object]:
    """Return the schema of an object as OpenAI's strict mode wants it."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


RESPONSE_FORMAT: "ResponseFormatJSONSchema" = {
    "type": "json_schema",
    "json_schema": {
        "name": "facts",
        "strict": True,
        "schema": _object({"facts": {"type": "array", "items": _object(_FIELDS)}}),
    },
}
"""What a server is asked to keep the answer to, if it can."""


@dataclass(frozen=True, slots=True)
class FactAnswer:
    """The facts of an answer, and why others were left out: how many for each reason."""

    facts: list[ProposedFact] = field(default_factory=list)
    unreadable: Counter[str] = field(default_factory=Counter)


def text_of(answer: object, model: str) -> tuple[str, bool]:
    """Return the text of a chat completion, and whether it came to its end.

    *model* names the model in errors.
    """
    choices = getattr(answer, "choices", None)
    if not isinstance(choices, list) or not choices:
        raise ExtractionError(f"{model} answered without any choice; check `base_url`")
    message = getattr(choices[0], "message", None)
    refusal = getattr(message, "refusal", None)
    if refusal:
        raise ExtractionError(f"{model} refused: {_excerpt(refusal)}")
    reason = getattr(choices[0], "finish_reason", None)
    if reason == "content_filter":
        raise ExtractionError(f"{model} refused: its filter blocked the answer")
    text = getattr(message, "content", None)
    if not isinstance(text, str) or not text.strip():
        raise ExtractionError(f"{model} answered nothing")
    return without_thoughts(text), reason != "length"


def read_answer(
    text: str,
    *,
    messages: Mapping[str, str],
    max_facts: int,
    model: str,
    is_whole: bool = True,
) -> FactAnswer:
    """Return the facts of an answer; *messages* are the names in it, and the ids they stand for.

    It is an `ExtractionError` if there is nothing in it that can be read.
    """
    entries = _entries(text[:MAX_ANSWER])
    is_whole = is_whole and len(text) <= MAX_ANSWER
    if entries is None and not is_whole:
        raise ExtractionError(f"{model} was cut off in its answer; give it fewer messages")
    if entries is None:
        raise ExtractionError(
            f'{model} answered something other than {{"facts": […]}}: {_excerpt(text)}'
        )
    answer = FactAnswer()
    first: object = None
    for each in entries:
        if len(answer.facts) == max_facts:
            answer.unreadable[f"more than `max_facts` ({max_facts})"] += 1
            continue
        try:
            answer.facts.append(_fact(each, messages))
        except _UnreadableError as exc:
            answer.unreadable[str(exc)] += 1
            first = each if first is None else first
    if not is_whole:
        answer.unreadable["an end that is cut off"] += 1
    if entries and not answer.facts:
        why = next(iter(answer.unreadable))
        raise ExtractionError(
            f"{model} answered {len(entries)} facts, none of which can be read; the first has "
            f"{why}: {_excerpt(first)}"
        )
    return answer


# Finding the facts

_FENCE = "` \t\r\njson"


def _entries(text: str) -> list[object] | None:
    """Return what stands in an answer as its facts; `None` if nothing looks like that.

    The last list of facts counts: a model that quotes, tries or shows an example does so before it
    answers. Without a whole list, these are the objects that look like facts, as of one that is
    cut off.
    """
    listed: list[object] | None = [] if text.strip(_FENCE) == "[]" else None
    single: list[object] = []
    for value in _values(text):
        if isinstance(value, list):
            listed = value
        elif "facts" in value:
            inside = value["facts"]
            listed = inside if isinstance(inside, list) else [] if inside is None else [inside]
        else:
            single.append(value)
    return listed if listed is not None else single or None


_START = re.compile(r"[{\[]")


def _values(text: str) -> Iterator[list[object] | dict[str, object]]:
    """Yield what can be read as facts, from left to right; nothing within something else."""
    decoder = json.JSONDecoder(strict=False)
    position = 0
    for _ in range(_MAX_STARTS):
        start = _START.search(text, position)
        if start is None:
            return
        position = start.end()
        try:
            value, end = decoder.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            continue  # prose, or an end that is missing: what is inside may be whole
        if _looks_like_facts(value):
            yield value
            position = end


def _looks_like_facts(value: object) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(each, dict) and "key" in each for each in value)
    return isinstance(value, dict) and ("facts" in value or "key" in value)


# One of them

_DATE = re.compile(r"\d{4}(-\d\d(-\d\d)?)?")


class _UnreadableError(Exception):
    """A fact cannot be used; its text is the reason, without anything of its content."""


def _fact(each: object, messages: Mapping[str, str]) -> ProposedFact:
    if not isinstance(each, dict):
        raise _UnreadableError("no object")
    op: Any = "end" if each.get("end") is True else each.get("op") or "set"
    op = op.strip().lower() if isinstance(op, str) else op
    for name in ("key",) if op == "end" else ("key", "value"):
        if name not in each:
            raise _UnreadableError(f"no `{name}`")
    key, names = each["key"], each.get("messages")
    if isinstance(names, str):
        names = [names]
    ids = [
        messages[name]
        for name in (names if isinstance(names, list) else [])
        if isinstance(name, str) and name in messages
    ]
    if not ids:
        raise _UnreadableError("no message that was given")
    start, end = _time(each, "valid_from"), _time(each, "valid_to")
    try:
        return ProposedFact(
            key=key.strip() if isinstance(key, str) else key,
            value=each.get("value"),
            message_ids=tuple(ids),
            valid_from=start,
            valid_to=end,
            confidence=_confidence(each.get("confidence")),
            op=op,
        )
    except (ExtractionError, ValueError):
        raise _UnreadableError("a key, value, op or span that is not valid") from None


def _confidence(value: Any) -> float | None:
    """Return how sure the model is; `None` for what is no such number, which changes no fact."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and 0 <= value <= 1 else None


def _time(each: Mapping[str, Any], name: str) -> datetime | None:
    """Return a time: `2024`, `2024-03`, `2024-03-01` or an ISO 8601 instant, UTC without a zone."""
    value = each.get(name)
    if value is None or value == "":
        return None
    try:
        text = f"{value}-01-01"[:10] if _DATE.fullmatch(value) else value
        return to_utc(datetime.fromisoformat(text))
    except (ValueError, TypeError):
        raise _UnreadableError(f"a `{name}` that is not a time") from None


def _excerpt(value: object) -> str:
    """Return a little of what was answered, on one line."""
    text = value if isinstance(value, str) else repr(value)
    return " ".join(text.split())[:80].encode(errors="replace").decode()
