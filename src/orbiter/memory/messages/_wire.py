"""What the four message formats share: legal ids and names, blocks, reading with care."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from orbiter.memory.calls import call_id, call_input, call_name
from orbiter.memory.copies import copy_value
from orbiter.memory.errors import MessageError
from orbiter.memory.items import MemoryItem

Format = Literal["openai", "openai-responses", "anthropic", "gemini"]
"""Whose message shape: OpenAI Chat, OpenAI Responses, Anthropic Messages or Gemini contents."""

Message = dict[str, Any]
"""One message, content or input entry, as the provider's own client takes it."""

OPENING = "…"
"""The user turn put before a history that begins with the model, where a provider demands one."""

_Item = TypeVar("_Item", bound=MemoryItem)
_Shape = TypeVar("_Shape")


@dataclass(frozen=True, slots=True)
class Problem:
    """Something a provider would refuse: which message (0 is the first), and why."""

    index: int
    reason: str

    def __str__(self) -> str:
        return f"message {self.index}: {self.reason}"


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


def text_block(block: object) -> str | None:
    """Return the text of a `{"type": "text", "text": …}` block, or of a Responses one."""
    if isinstance(block, Mapping) and block.get("type") in {"text", "input_text", "output_text"}:
        text = block.get("text")
        return text if isinstance(text, str) else None
    return None


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


def kept(item: MemoryItem, format: Format, shape: type[_Shape]) -> _Shape:
    """Return a copy of what *item* kept of its message in *format*, if it is of that shape."""
    found = item.native.get(format)
    return copy_value(found) if isinstance(found, shape) else shape()


def must_be(value: object, shape: type[_Shape], index: int, what: str) -> _Shape:
    """Return *value* if it is of that shape; otherwise say which message is wrong."""
    if not isinstance(value, shape):
        raise MessageError(
            f"message {index}: {what} must be a {shape.__name__}, not {type(value).__name__}"
        )
    return value


def must_be_object(value: object, index: int, what: str) -> Message:
    """Return *value* as a dict if it is an object; otherwise say which message is wrong."""
    if not isinstance(value, Mapping):
        raise MessageError(
            f"message {index}: {what} must be a dict, not {type(value).__name__}; "
            "call `.model_dump()` on an object of a provider's client"
        )
    return dict(value)


def must_be_blocks(value: object, index: int, what: str) -> list[Message]:
    """Return *value* if it is a list of objects; otherwise say which message is wrong."""
    blocks = must_be(value, list, index, what)
    return [must_be_object(block, index, f"each of {what}") for block in blocks]


def build(kind: type[_Item], index: int, **fields: Any) -> _Item:
    """Make an item; `MessageError` names the message whose content no store can hold."""
    try:
        return kind(**fields)
    except ValidationError as exc:
        first = exc.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise MessageError(f"message {index}: `{where}`: {first['msg']}") from exc


def is_mapping_with(value: object, key: str) -> bool:
    """Tell whether *value* is an object that holds another under *key*."""
    return isinstance(value, Mapping) and isinstance(value.get(key), Mapping)
