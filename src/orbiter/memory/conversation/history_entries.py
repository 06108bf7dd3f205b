"""The entries of a history: plain objects a caller may read and change."""

from typing import Any

from orbiter.memory.errors import ToolCallNotFoundError
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.model.tool_calls import ToolCall

__all__ = ["Memory", "ResponseMem", "UserMem"]


class Memory:
    """An entry in a conversation: what was said, when and by whom. Entries compare by value.

    `origin` holds the items it was read from, to give back while the entry says the same.
    """

    def __init__(self, message: str, created: Any, role: str) -> None:
        self.message = message
        self.created = created
        self.role = role
        self.origin: tuple[MemoryItem, ...] = ()

    def __repr__(self) -> str:
        return f"<Memory role={self.role} message={self.message!r} created={self.created}>"

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        mine, theirs = ({**vars(entry), "origin": None} for entry in (self, other))
        return mine == theirs

    __hash__ = None  # type: ignore[assignment]  # entries can change


class ResponseMem(Memory):
    """What the model answered, the tools it called and what they returned."""

    def __init__(
        self,
        message: str,
        created: Any,
        tool_calls: list[ToolCall],
        tool_results: list[Any] | None = None,
        role: str = "assistant",
    ) -> None:
        super().__init__(message, created, role)
        self.tool_calls = tool_calls
        self.tool_results = [] if tool_results is None else tool_results

    def list_tool_calls(self) -> list[str]:
        """Return the names of the called tools, in order."""
        return [call.name for call in self.tool_calls]

    def get_tool_call(self, name: str) -> ToolCall:
        """Return the first call of that tool; `LookupError` if there is none."""
        for call in self.tool_calls:
            if call.name == name:
                return call
        called = ", ".join(f"`{known}`" for known in self.list_tool_calls()) or "no tool"
        raise ToolCallNotFoundError(f"no call of `{name}` in this response; it called {called}")

    def __repr__(self) -> str:
        return (
            f"<Memory role={self.role} message={self.message!r} created={self.created} "
            f"tool_calls={self.tool_calls} tool_results={self.tool_results}>"
        )


class UserMem(Memory):
    """What the user said."""

    def __init__(self, message: str, created: Any, role: str = "user") -> None:
        super().__init__(message, created, role)
