"""Our items as langchain's messages."""

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from orbiter.memory.model.items import AIMemory, MemoryItem, SystemMemory, ToolMemory


def as_langchain(item: MemoryItem) -> BaseMessage:
    """Return the langchain message that says the same; it keeps the id."""
    if isinstance(item, AIMemory):
        calls = [
            {"id": c["id"], "name": c["name"], "args": c["arguments"], "type": "tool_call"}
            for c in item.tool_calls
        ]
        return AIMessage(item.content, tool_calls=calls, id=item.id)
    if isinstance(item, ToolMemory):
        return ToolMessage(item.content, tool_call_id=item.tool_call_id, id=item.id)
    kind = SystemMessage if isinstance(item, SystemMemory) else HumanMessage
    return kind(item.content, id=item.id)
