"""What the message formats share: legal ids and names, blocks, reading with care.

What is wrong with a block is said once, by a `Fault`: `validate` reports it, and of what an item
kept of its message, `to_messages` sends only what has none.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, TypeVar

from pydantic import ValidationError

from orbiter.memory.errors import MessageError
from orbiter.memory.messages.codec import Format, Message
from orbiter.memory.model.copying import copy_value
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.model.tool_calls import call_id, call_input, call_name

DOCUMENTS = {
    "pdf": "application/pdf",
    "txt": "text/plain",
    "md": "text/markdown",
    "html": "text/html",
    "csv": "text/csv",
    "doc": "application/msword",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xls": "application/vnd.ms-excel",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}
"""The documents that Bedrock takes, and what they are called elsewhere."""
BEDROCK = "bedrock"
"""The key in a kept block of Anthropic's under which the blocks of Bedrock are that it was."""
IMAGE = "[image]"
"""What stands in a text for a picture."""
OPENING = "…"
"""What a turn says that is put in where chat templates demand one, and nobody spoke."""

Fault = Callable[[Mapping[str, Any]], str | None]
"""Tells why a provider would refuse a block, whatever stands around it; `None` if it would not."""

_TEXTS = frozenset(("text", "input_text", "output_text"))
_SAID = dict.fromkeys(_TEXTS, "text") | {"refusal": "refusal"}
"""The blocks that say something, and where."""

_Item = TypeVar("_Item", bound=MemoryItem)
_Shape = TypeVar("_Shape")


class WireIds:
    """Gives every call of a conversation an id the format accepts, each id once.

    A legal id that is not yet taken stays as it is; any other is replaced by one made from it,
    always the same.
    """

    def __init__(self, pattern: str, max_chars: int) -> None:
        self._legal = re.compile(f"{pattern}{{1,{max_chars}}}")
        self._max_chars = max_chars
        self._taken: set[str] = set()

    def name_calls(self, calls: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """Return the id on the wire for each call of one tool group, by its own id."""
        return {id: self._name(id) for id in map(call_id, calls)}

    def _name(self, id: str) -> str:
        wire, attempt = id, 0
        while wire in self._taken or not self._legal.fullmatch(wire):
            digest = blake2b(f"{attempt}\0{id}".encode(), digest_size=6).hexdigest()
            stem = re.sub(r"[^A-Za-z0-9_-]", "_", id)[: self._max_chars - 13]
            wire, attempt = f"{stem}_{digest}", attempt + 1
        self._taken.add(wire)
        return wire


def legal_name(name: object, *, extra: str = "") -> str:
    """Return *name* as a tool name the provider takes; only odd characters change."""
    clean = re.sub(rf"[^A-Za-z0-9_{re.escape(extra)}-]", "_", name if isinstance(name, str) else "")
    return clean[:64] or "unnamed_tool"


def same_calls(left: Sequence[Mapping[str, Any]], right: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether two lists of calls say the same, whatever shape they are written in."""
    return [(call_id(c), call_name(c), call_input(c)) for c in left] == [
        (call_id(c), call_name(c), call_input(c)) for c in right
    ]


def type_of(block: Mapping[str, Any]) -> str:
    """Return the block's `type`; `""` when it has none that is text."""
    kind = block.get("type")
    return kind if isinstance(kind, str) else ""


def text_block(block: object) -> str | None:
    """Return what a block of OpenAI or Anthropic says: its text, or why the model refuses."""
    if isinstance(block, Mapping) and type_of(block) in _SAID:
        text = block.get(_SAID[type_of(block)])
        return text if isinstance(text, str) else None
    return None


def printed_text(run: object) -> str | None:
    """Return what a command of a shell printed, and how it ended if not well."""
    if not isinstance(run, Mapping):
        return None
    outcome = run.get("outcome")
    end = outcome if isinstance(outcome, Mapping) else {}
    code = end.get("exit_code")
    note = "[timed out]" if type_of(end) == "timeout" else f"[exit code {code}]" if code else ""
    return "\n".join(str(part) for part in (run.get("stdout"), run.get("stderr"), note) if part)


def block_fault(block: Mapping[str, Any]) -> str | None:
    """Be the `Fault` of a block that has a `type`."""
    kind = type_of(block)
    if not kind:
        return "a block without a `type`"
    if kind in _TEXTS and not isinstance(block.get("text"), str):
        return "a text block without text"
    return None


def list_faults(value: object, what: str, fault: Fault = block_fault) -> Iterator[str]:
    """Yield what is wrong with a list that must hold at least one block."""
    if value is None or value == []:
        yield f"no {what}"
    elif not isinstance(value, list):
        yield f"{what} cannot be of type {type(value).__name__}"
    else:
        faults = (fault(b) if isinstance(b, Mapping) else "a block is not an object" for b in value)
        yield from (reason for reason in faults if reason is not None)


def keys_of(value: Mapping[Any, object]) -> str:
    """Return the keys of an object, to tell people what it is."""
    return ", ".join(f"`{key}`" for key in value) or "no keys"


def objects_in(value: object) -> list[Message]:
    """Return the objects of a list; none if *value* is no list."""
    blocks = value if isinstance(value, list) else []
    return [dict(block) for block in blocks if isinstance(block, Mapping)]


def sound(blocks: object, fault: Fault = block_fault) -> list[Message]:
    """Return those of *blocks* that have no fault; none if it is no list."""
    return [block for block in objects_in(blocks) if fault(block) is None]


def joined_text(blocks: Iterable[object], read: Callable[[Any], str | None] = text_block) -> str:
    """Return the text of *blocks*, one line per block that has any."""
    texts = (read(block) for block in blocks)
    return "\n".join(text for text in texts if text is not None)


def with_text(
    blocks: Sequence[Message],
    text: str,
    new: Message,
    read: Callable[[Any], str | None] = text_block,
    *,
    before: Callable[[Message], bool] = lambda _: False,
) -> list[Message]:
    """Return a copy of *blocks* that says *text*.

    Blocks that already say it stay as they are. Otherwise *new* takes the place of the first text
    block, or stands before the first block that *before* names, or last; all others stay.
    """
    if joined_text(blocks, read) == text:
        return [copy_value(block) for block in blocks]
    texts = [place for place, block in enumerate(blocks) if read(block) is not None]
    later = [place for place, block in enumerate(blocks) if before(block)]
    place = (texts or later or [len(blocks)])[0]
    written = []
    for index, block in enumerate([*blocks, {}]):
        if index == place and text:
            written.append(new)
        if index < len(blocks) and read(block) is None:
            written.append(copy_value(block))
    return written


def joined_turns(
    messages: Iterable[Message], join: Callable[[Message, Message], Message | None]
) -> list[Message]:
    """Return *messages* with neighbours joined; *join* returns `None` for two that stay apart."""
    turns: list[Message] = []
    for message in messages:
        both = join(turns[-1], message) if turns else None
        if both is None:
            turns.append(message)
        else:
            turns[-1] = both
    return turns


def joined_content(
    first: str | list[Message] | None, second: str | list[Message] | None, kind: str
) -> str | list[Message]:
    """Return two contents as one: texts with a blank line between, and all blocks in their order.

    A text becomes a block of type *kind* beside other blocks. Two texts that meet are one block,
    as most chat templates put nothing between blocks.
    """
    if not first or not second:
        return first or second or ""
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    *before, last = [{"type": kind, "text": first}] if isinstance(first, str) else first
    head, *after = [{"type": kind, "text": second}] if isinstance(second, str) else second
    if _is_plain_text(last) and _is_plain_text(head):
        met = [{**last, "text": f"{last['text']}\n\n{head['text']}"}]
    else:
        met = [last, head]
    blocks = [*before, *met, *after]
    return blocks[0]["text"] if len(blocks) == 1 and _is_plain_text(blocks[0]) else blocks


def _is_plain_text(block: Mapping[str, Any]) -> bool:
    """Tell whether a block is a text and nothing else, such as a mark for a cache."""
    return block.keys() == {"type", "text"} and type_of(block) in _TEXTS


def kept(item: MemoryItem, format: Format, shape: type[_Shape]) -> _Shape:
    """Return a copy of what *item* kept of its message in *format*, if it is of that shape."""
    native = item.native.get(format)
    return copy_value(native) if isinstance(native, shape) else shape()


def must_be(value: object, shape: type[_Shape], index: int, what: str) -> _Shape:
    """Return *value* if it is of that shape; otherwise say which message is wrong."""
    if not isinstance(value, shape):
        raise MessageError(
            f"message {index}: {what} must be a {shape.__name__}, not {type(value).__name__}"
        )
    return value


def text_or_none(value: object, index: int, what: str) -> str | None:
    """Return *value* if it is text, or not there; otherwise say which message is wrong."""
    return None if value is None else must_be(value, str, index, what)


def must_be_object(value: object, index: int, what: str) -> Message:
    """Return *value* as a dict if it is an object; otherwise say which message is wrong."""
    if not isinstance(value, Mapping):
        raise MessageError(
            f"message {index}: {what} must be a dict, not {type(value).__name__}; "
            "call `.model_dump()` on an object of a provider's client"
        )
    return dict(value)


def must_be_objects(value: object, index: int, what: str) -> list[Message]:
    """Return *value* if it is a list of objects; otherwise say which message is wrong."""
    values = must_be(value, list, index, what)
    return [must_be_object(each, index, f"each of {what}") for each in values]


def must_be_blocks(value: object, index: int, what: str) -> list[Message]:
    """Return *value* if it is a list of objects that each say of which `type` they are."""
    blocks = must_be_objects(value, index, what)
    for block in blocks:
        if block.get("type") is None:
            raise MessageError(
                f"message {index}: a block of {what} without a `type`; it has {keys_of(block)}"
            )
        must_be(block["type"], str, index, f"each `type` in {what}")
        if block["type"] in _TEXTS and not isinstance(block.get("text"), str):
            raise MessageError(f"message {index}: a text block of {what} without `text`")
    return blocks


def build(kind: type[_Item], index: int, **fields: Any) -> _Item:
    """Make an item; `MessageError` names the message whose content no store can hold."""
    try:
        return kind(**fields)
    except ValidationError as exc:
        first = exc.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        why = first["msg"].removeprefix("Value error, ")
        raise MessageError(f"message {index}: `{where}`: {why}") from exc


def json_text(value: object) -> str:
    """Return *value* as JSON; `""` for what cannot be said in it, which `build` then refuses."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return ""


def is_mapping_with(value: object, key: str) -> bool:
    """Tell whether *value* is an object that holds another under *key*."""
    return isinstance(value, Mapping) and isinstance(value.get(key), Mapping)


def only_one(each: Sequence[object], what: str, key: str) -> Mapping[str, Any]:
    """Return what the only element of an answer's list holds under *key*."""
    value = each[0].get(key) if len(each) == 1 and isinstance(each[0], Mapping) else None
    if not isinstance(value, Mapping):
        raise MessageError(
            f"message 0: the answer has {len(each)} `{what}`, and one with a `{key}` is needed; "
            "add the message itself"
        )
    return value


def block_types(message: Mapping[str, object]) -> set[object]:
    """Return the types of the blocks that a message's `content` has."""
    blocks = objects_in(message.get("content"))
    return {block.get("type") for block in blocks if isinstance(block.get("type"), str)}
