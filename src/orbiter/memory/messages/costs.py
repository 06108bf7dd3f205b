"""What a conversation costs in the form in which it is sent.

A provider's form may cost more than the items it is made from: tool calls get ids and names the
provider accepts, and system messages may be joined to one.
"""

import json
from collections.abc import Sequence

from orbiter.memory.conversation.tokens import TokenCounter, count_tokens, item_tokens
from orbiter.memory.conversation.windows import newest_first, walk_units
from orbiter.memory.errors import MessageError
from orbiter.memory.messages._parts import parts_of
from orbiter.memory.messages.codec import Format
from orbiter.memory.messages.convert import codec_for, from_messages, to_messages
from orbiter.memory.model.items import MemoryItem, SystemMemory, calls_of, result_id, role_of
from orbiter.memory.model.tool_calls import call_id

__all__ = ["has_media", "sent_tokens"]


def has_media(item: MemoryItem) -> bool:
    """Tell whether a message holds a picture, a file or the like beside its text."""
    return bool(item.native) and any(part.kind != "text" for part in parts_of(item))


def sent_tokens(items: Sequence[MemoryItem], format: Format, *, counter: TokenCounter) -> int:
    """Return what *items* cost as messages of that *format*, or as they are if that is more."""
    total = count_tokens(items, counter=counter)
    systems = [item for item in items if role_of(item) == "system"]
    joined = to_messages(systems, format).system if len(systems) > 1 else ""
    if joined:
        apart = sum(item_tokens(item, counter=counter) for item in systems)
        together = SystemMemory.model_construct(content=joined)
        total += max(item_tokens(together, counter=counter) - apart, 0)
    # All else is sent as it is.
    changed = [
        item for item in items if (item.native or _is_step(item)) and role_of(item) != "system"
    ]
    if not changed:
        return total
    as_items = sum(item_tokens(item, counter=counter) for item in changed)
    return total + max(_wire_tokens(changed, format, counter) - as_items, 0)


def _is_step(item: MemoryItem) -> bool:
    return bool(calls_of(item)) or role_of(item) == "tool"


def _wire_tokens(items: Sequence[MemoryItem], format: Format, counter: TokenCounter) -> int:
    if not codec_for(format).JOINS_TURNS:
        return _read_tokens(items, format, counter)
    # The price is that of the parts.
    units = [unit for _, unit in walk_units(newest_first(items))]
    return sum(_read_tokens(unit, format, counter) for unit in units)


def _read_tokens(items: Sequence[MemoryItem], format: Format, counter: TokenCounter) -> int:
    messages = to_messages(items, format).messages
    try:
        read = from_messages(messages, format)
    except MessageError:  # what was made legal may be longer than an item may be
        return counter(json.dumps(messages, ensure_ascii=False))
    if read and role_of(read[0]) == "human" and role_of(items[0]) != "human":
        read = read[1:]  # the opening turn, which `count_tokens` allows for
    total = sum(item_tokens(item, counter=counter) for item in read)
    if not codec_for(format).HAS_CALL_IDS:  # the reader makes them up
        total -= sum(counter(call_id(call)) for item in read for call in calls_of(item))
        total -= sum(counter(result_id(item)) for item in read)
    return total
