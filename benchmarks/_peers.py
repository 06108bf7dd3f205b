"""Other libraries trimming our items, each by its own call, and what it returns as OpenAI takes it.

They need `pip install langchain-core llama-index-core openai-agents`.
"""

import json
from collections.abc import Sequence
from typing import Any

from agents import SQLiteSession
from benchmarks._langchain import as_langchain
from langchain_core.messages import BaseMessage, convert_to_openai_messages, trim_messages
from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock, ToolCallBlock
from llama_index.core.memory import Memory
from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore

from orbiter.memory.conversation.tokens import CONVERSATION_TOKENS, estimate_tokens, item_tokens
from orbiter.memory.conversation.windows import rounds
from orbiter.memory.messages import Message, to_messages
from orbiter.memory.model.items import AIMemory, MemoryItem, ToolMemory

_ROLES = {"system": "system", "human": "user", "ai": "assistant", "tool": "tool"}


def langchain_trims(
    items: Sequence[MemoryItem], *, max_items: int, budget: int
) -> list[list[Message]]:
    """Return what `trim_messages` keeps: by `len`, by `"approximate"`, by our count, as advised.

    The last is by our count too, with the settings its documentation advises for a valid history.
    """
    messages = [as_langchain(item) for item in items]
    costs = {m.id: item_tokens(i) for m, i in zip(messages, items, strict=True)}

    def counted(some: list[BaseMessage]) -> int:
        return sum(costs[message.id] for message in some) + CONVERSATION_TOKENS

    settings: list[dict[str, Any]] = [
        {"token_counter": len, "max_tokens": max_items},
        {"token_counter": "approximate", "max_tokens": budget},
        {"token_counter": counted, "max_tokens": budget},
    ]
    settings.append(settings[-1] | {"start_on": "human", "include_system": True})
    return [
        list(convert_to_openai_messages(trim_messages(messages, **chosen))) for chosen in settings
    ]


async def agents_session(items: Sequence[MemoryItem], *, limit: int) -> list[Message]:
    """Return the newest entries of an openai-agents session that holds *items*."""
    session = SQLiteSession("case")
    try:
        messages: Any = to_messages(items, "openai-responses").messages
        await session.add_items(messages)
        entries: list[Any] = await session.get_items(limit=limit)
        return entries
    finally:
        session.close()


class LlamaMemories:
    """LlamaIndex memories over one store, counting tokens as we do."""

    def __init__(self) -> None:
        self._store = SQLAlchemyChatStore(table_name="messages")
        self._made = 0

    async def trim(self, items: Sequence[MemoryItem], *, budget: int) -> list[Message]:
        """Return what a new memory with that limit holds after *items*."""
        self._made += 1
        memory = Memory.from_defaults(
            session_id=str(self._made),
            token_limit=budget,
            chat_store=self._store,
            tokenizer_fn=lambda text: list(range(estimate_tokens(text))),
        )
        for part in rounds(items):  # as its agents do: the question, then all that followed
            await memory.aput(_as_llama(part[0]))
            if part[1:]:
                await memory.aput_messages([_as_llama(item) for item in part[1:]])
        return [_from_llama(message) for message in await memory.aget()]


def _as_llama(item: MemoryItem) -> ChatMessage:
    blocks: list[object] = [TextBlock(text=item.content)] if item.content else []
    if isinstance(item, AIMemory):
        blocks += [
            ToolCallBlock(tool_call_id=c["id"], tool_name=c["name"], tool_kwargs=c["arguments"])
            for c in item.tool_calls
        ]
    extra = {"tool_call_id": item.tool_call_id} if isinstance(item, ToolMemory) else {}
    role = MessageRole(_ROLES[item.memory_type])
    return ChatMessage(role=role, blocks=blocks, additional_kwargs=extra)


def _from_llama(message: ChatMessage) -> Message:
    found: Message = {"role": message.role.value, "content": message.content or ""}
    calls = [block for block in message.blocks if isinstance(block, ToolCallBlock)]
    if calls:
        found["tool_calls"] = [
            {
                "id": call.tool_call_id,
                "type": "function",
                "function": {"name": call.tool_name, "arguments": json.dumps(call.tool_kwargs)},
            }
            for call in calls
        ]
    return found | dict(message.additional_kwargs)
