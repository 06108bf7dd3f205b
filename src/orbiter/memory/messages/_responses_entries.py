"""The entries of an OpenAI Responses input: of what kind each is, what it says, what is wrong."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from orbiter.memory.messages._common import joined_text, json_text, list_faults, type_of

# Calls that we answer. Others, such as a web search, are answered by the server itself.
CALLS = frozenset(
    ("function_call", "custom_tool_call", "computer_call", "shell_call", "apply_patch_call")
)
# Their arguments and results are text; the others have shapes of their own.
PLAIN_CALLS = frozenset(("function_call", "custom_tool_call"))
# What a developer can say besides messages.
_SETTINGS = frozenset(("additional_tools", "configuration_update"))
_OTHERS = frozenset(("message", "reasoning", "item_reference", "compaction", "program"))
_WORDS = frozenset(("content", "contents", "text", "data", "blocks"))
_CALL_KEYS = frozenset(("type", "id", "call_id", "status", "name"))
_ROLES = ("system", "developer", "user", "assistant")


def kind_of(entry: Mapping[str, Any]) -> str:
    """Return the entry's type; a message needs to name none, and `""` is none at all."""
    return "message" if entry.get("type") is None else type_of(entry)


def is_known(entry: Mapping[str, Any]) -> bool:
    """Tell whether the entry is of a kind that OpenAI has, or names like one of its tools."""
    kind = kind_of(entry)
    if kind in _OTHERS or is_setting(entry):
        return True
    return kind.endswith(("_call", "_output")) or kind.startswith("mcp_")


def is_foreign(entry: Mapping[str, Any]) -> bool:
    """Tell whether the entry is somebody's words in a shape that is not OpenAI's.

    An unknown kind that is not may be new: it goes back with the model's turn as it came.
    """
    return not is_known(entry) and bool(entry.keys() & _WORDS)


def is_call(entry: Mapping[str, Any]) -> bool:
    """Tell whether we must answer the entry, and can."""
    return kind_of(entry) in CALLS and isinstance(entry.get("call_id"), str)


def is_output(entry: Mapping[str, Any]) -> bool:
    """Tell whether the entry answers one of the calls that are ours to answer."""
    kind = kind_of(entry)
    return kind.endswith("_output") and kind.removesuffix("_output") in CALLS


def is_message(entry: Mapping[str, Any]) -> bool:
    """Tell whether somebody speaks in the entry."""
    return kind_of(entry) == "message"


def is_setting(entry: Mapping[str, Any]) -> bool:
    """Tell whether the entry is a developer's, and no message."""
    return kind_of(entry) in _SETTINGS


def is_assistant(entry: Mapping[str, Any]) -> bool:
    """Tell whether the entry is part of the model's turn."""
    if is_message(entry):
        return entry.get("role") == "assistant"
    return not is_output(entry) and not is_setting(entry)


def turn_text(turn: Iterable[Mapping[str, Any]]) -> str:
    """Return what the model says in a turn, one line per text."""
    texts = (entry.get("content") for entry in turn if is_message(entry))
    return "\n".join(t if isinstance(t, str) else joined_text(t or ()) for t in texts)


def turn_calls(turn: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the calls of a turn that are ours to answer, in our own shape."""
    calls = []
    for entry in filter(is_call, turn):
        said = {key: value for key, value in entry.items() if key not in _CALL_KEYS}
        if entry["type"] in PLAIN_CALLS:
            said = entry.get("arguments", entry.get("input", {}))
        name = entry.get("name", entry["type"])
        calls.append({"id": entry["call_id"], "name": name, "arguments": said})
    return calls


def output_text(entry: Mapping[str, Any]) -> str:
    """Return the result that an output entry holds, as text."""
    output = entry.get("output")
    if output is None or isinstance(output, str):
        return output or ""
    return joined_text(output) if isinstance(output, list) else json_text(output)


def faults(entry: Mapping[str, Any]) -> Iterator[str]:
    """Yield why OpenAI would refuse the entry, whatever stands around it.

    Ids and names are not judged: they are replaced on the way out where need be.
    """
    kind, id = kind_of(entry), entry.get("call_id")
    if not kind:
        yield f"unknown type {entry.get('type')!r}"
    elif is_foreign(entry):
        yield f"unknown type `{kind}`"
    role = entry.get("role")
    others = (None, "developer" if is_setting(entry) else "assistant")
    if role not in (_ROLES if kind == "message" else others):
        yield f"unknown role {role!r}"
    if kind == "message" and not isinstance(entry.get("content"), str):
        yield from list_faults(entry.get("content"), "content")
    if (kind in CALLS or is_output(entry)) and not isinstance(id, str):
        yield f"`{kind}` needs a call id, not {id!r}"
    if kind in PLAIN_CALLS:
        key = "arguments" if kind == "function_call" else "input"
        if not isinstance(entry.get(key), str):
            yield f"`{key}` of call `{id}` must be a string"
    if is_output(entry):
        yield from _output_faults(kind.removesuffix("_output"), entry.get("output"))


def _output_faults(call: str, output: object) -> Iterator[str]:
    if call in PLAIN_CALLS and not isinstance(output, str):
        yield from list_faults(output, "output")
    if call == "shell_call":
        yield from list_faults(output, "output", lambda _: None)
    if call == "computer_call" and not isinstance(output, Mapping):
        yield "the output of a computer call must be an object"
    if call == "apply_patch_call" and not isinstance(output, str | None):
        yield "the output of a patch must be a string"
