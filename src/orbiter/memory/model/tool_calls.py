"""Tool calls, read in whichever of the known shapes they were stored.

{"id", "name", "arguments"}                                our own: arguments an object or text
{"id", "type": "function", "function": {"name", "arguments"}}    OpenAI Chat
{"id", "type": "custom", "custom": {"name", "input"}}            OpenAI Chat, free text
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orbiter.memory.model.validation import check_json

__all__ = [
    "ARGUMENTS",
    "ToolCall",
    "are_answerable",
    "call_arguments",
    "call_id",
    "call_input",
    "call_json",
    "call_name",
    "call_rest",
]

ARGUMENTS = ("arguments", "input", "args")
"""The keys under which a call may have its arguments."""

_MAX_ARGUMENTS = 2**20


@dataclass(slots=True)
class ToolCall:
    """A tool the model asked for: its name, its arguments and, if there is one, the call's id."""

    name: str
    args: dict[str, Any] = field(default_factory=dict)
    id: str | None = None


def call_id(call: Mapping[str, Any]) -> str:
    """Return the call's id; `""` when it has none that is text."""
    value = call.get("id")
    return value if isinstance(value, str) else ""


def call_name(call: Mapping[str, Any]) -> str:
    """Return the name of the called tool; `""` when it has none that is text."""
    value = _body(call).get("name")
    return value if isinstance(value, str) else ""


def call_arguments(call: Mapping[str, Any]) -> str:
    """Return the arguments as text, the way OpenAI sends them."""
    arguments = _arguments(call)
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def call_input(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments as an object, the way Anthropic and Gemini want them.

    Text that is no JSON object, or one that cannot be sent as JSON again, is kept whole under
    the key `input`.
    """
    arguments = _arguments(call)
    if not isinstance(arguments, str):
        return dict(arguments) if isinstance(arguments, dict) else {"input": arguments}
    try:
        parsed = (
            check_json(json.loads(arguments), max_bytes=_MAX_ARGUMENTS) if arguments.strip() else {}
        )
    except (ValueError, RecursionError):
        return {"input": arguments}
    return parsed if isinstance(parsed, dict) else {"input": arguments}


def call_json(call: Mapping[str, Any]) -> str:
    """Return the arguments as the text of a JSON object, the way a function takes them.

    A text that is one stays as it is; any other is kept whole under the key `input`.
    """
    text = call_arguments(call)
    try:
        is_object = isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        is_object = False
    return text if is_object else json.dumps(call_input(call), ensure_ascii=False)


def are_answerable(calls: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether each call can have one result: an id is there, and stands only once."""
    ids = [call_id(call) for call in calls]
    return all(ids) and len(set(ids)) == len(ids)


def call_rest(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the call holds besides id, type, name and arguments."""
    known = {"id", "type", "function", "custom", "name", "arguments", "args", "input"}
    rest = {key: value for key, value in call.items() if key not in known}
    body = _body(call)
    if body is not call:
        rest |= {key: value for key, value in body.items() if key not in known}
    return rest


def _body(call: Mapping[str, Any]) -> Mapping[str, Any]:
    for key in ("function", "custom"):
        inner = call.get(key)
        if isinstance(inner, Mapping):
            return inner
    return call


def _arguments(call: Mapping[str, Any]) -> Any:
    body = _body(call)
    for key in ARGUMENTS:
        if body.get(key) is not None:
            return body[key]
    return {}
