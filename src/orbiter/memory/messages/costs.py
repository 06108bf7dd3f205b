"""What a conversation costs in the form in which it is sent.

A provider's form may cost more than the items it is made from: tool calls get ids and names the
provider accepts, and neighbours of one role are joined.
"""

import json
from collections.abc import Sequence
from itertools import groupby

from orbiter.memory.conversation.tokens import TokenCounter, count_tokens, item_tokens
from orbiter.memory.errors import MessageError
from orbiter.memory.messages._parts import parts_of
from orbiter.memory.messages.codec import Format
from orbiter.memory.messages.convert import codec_for, from_messages, to_messages
from orbiter.memory.model.items import HumanMemory, MemoryItem, calls_of, result_id, role_of
from orbiter.memory.model.tool_calls import call_id

__all__ = ["has_media", "sent_tokens"]


def has_media(item: MemoryItem) -> bool:
    """Tell whether a message holds a picture, a file or the like beside its text."""
    return bool(item.native) and any(part.kind != "text" for part in parts_of(item))


def sent_tokens(items: Sequence[MemoryItem], format: Format, *, counter: TokenCounter) -> int:
    """Return what *items* cost as messages of that *format*, or as they are if that is more."""
    total = count_tokens(items, counter=counter)
    spoken = [item for item in items if role_of(item) is not None]
    if any((item.native or _is_step(item)) and role_of(item) != "system" for item in spoken):
        return max(total, _read_tokens(spoken, format, counter))
    # All else is sent as it is, but for neighbours of one role.
    spoken.sort(key=lambda item: role_of(item) != "system")
    for _, run in groupby(spoken, role_of):
        joined = list(run)
        if len(joined) > 1:
            text = "\n\n".join(item.content for item in joined)
            together = HumanMemory.model_construct(content=text)
            apart = sum(item_tokens(item, counter=counter) for item in joined)
            total += max(item_tokens(together, counter=counter) - apart, 0)
    return total


def _is_step(item: MemoryItem) -> bool:
    return bool(calls_of(item)) or role_of(item) == "tool"


def _read_tokens(items: Sequence[MemoryItem], format: Format, counter: TokenCounter) -> int:
    sent = to_messages(items, format)
    try:
        read = from_messages(sent, format, system=sent.system)
    except MessageError:  # what was made legal may be longer than an item may be
        return counter(sent.system) + counter(json.dumps(sent, ensure_ascii=False))
    total = count_tokens(read, counter=counter)
    if not codec_for(format).HAS_CALL_IDS:  # the reader makes them up
        total -= sum(counter(call_id(call)) for item in read for call in calls_of(item))
        total -= sum(counter(result_id(item)) for item in read)
    return total
