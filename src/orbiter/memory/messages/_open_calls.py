"""The tool calls of a conversation that wait for a result: what a reader must know to go on.

A call without an id gets one, always the same for the same seed; a result without one answers the
first open call of its name, in the newest turn that has such a call.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Literal

from orbiter.memory.errors import MessageError
from orbiter.memory.model.items import AIMemory, MemoryItem, ToolMemory, result_id, role_of
from orbiter.memory.model.tool_calls import call_id, call_input, call_name

__all__ = ["OpenCalls", "Orphans"]

Orphans = Literal["read", "note", "refuse"]
"""What becomes of a result without an id that answers no call known here.

`read` leaves it to the format, of which most refuse it; `note` reads it and has it in `unmatched`;
`refuse` is a `MessageError` in every format.
"""


class OpenCalls:
    """The open calls after *items*; each message that is read changes them."""

    def __init__(
        self, items: Iterable[MemoryItem] = (), *, seed: str = "", orphans: Orphans = "read"
    ) -> None:
        self.unmatched: list[tuple[str, str]] = []
        """Id and tool name of each result whose call was not found."""
        self._seed = seed
        self._orphans = orphans
        self._made = 0
        self._names: dict[str, str] = {}
        self._turns: list[dict[str, None]] = []
        """The open calls of each turn that has any, in order."""
        self._homes: dict[str, dict[str, None]] = {}
        """The turn that each open call is of."""
        self._is_in_turn = False
        for item in items:
            self._note(item)

    def knows(self, id: str, name: str) -> bool:
        """Tell whether the call of a result is here: by its id, or open and of that name."""
        return id in self._names if id else self._find(name) is not None

    def open(self, calls: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the calls of one message of the model, each with an id; they are open now."""
        opened = []
        for call in calls:
            id = call_id(call) or self._new_id(call)
            self._close(id)  # of an earlier call of the same id
            if not self._is_in_turn:
                self._turns.append({})
            self._is_in_turn = True
            self._names[id] = call_name(call)
            self._turns[-1][id] = None
            self._homes[id] = self._turns[-1]
            opened.append({**call, "id": id})
        return opened

    def answer(
        self, id: object, name: object, *, index: int, field: str, by_name: bool = False
    ) -> tuple[str, str]:
        """Return the id of the call that a result answers, and the name of its tool.

        An id that no call here has is kept, unless *by_name* lets the name decide.
        """
        self._is_in_turn = False
        tool = name if isinstance(name, str) else ""
        if id is not None and not isinstance(id, str):
            raise MessageError(f"message {index}: {field} must be a str, not {type(id).__name__}")
        matched_id = id if id and id in self._names else None
        if matched_id is None and (by_name or not id):
            matched_id = self._find(tool)
        if matched_id is not None:
            self._close(matched_id)
            return matched_id, tool or self._names[matched_id]
        self.unmatched.append((id or "", tool))
        is_missing = id is None and not by_name
        if not id and (self._orphans == "refuse" or (self._orphans == "read" and is_missing)):
            of_tool = f" of `{tool}`" if tool else ""
            raise MessageError(
                f"message {index}: the result{of_tool} has no {field}, and no call{of_tool} is "
                "open before it; add the message with the call first, or name its id"
            )
        return id or "", tool

    def speak(self) -> None:
        """Note that somebody else than the model spoke: its next calls are another turn's."""
        self._is_in_turn = False

    def take(self, item: MemoryItem, index: int) -> None:
        """Give the calls of a hand-made *item* ids, or a hand-made result its call's, in place."""
        if isinstance(item, AIMemory) and item.tool_calls:
            item.__dict__["tool_calls"] = self.open(item.tool_calls)
        elif isinstance(item, ToolMemory):
            id, name = self.answer(
                item.tool_call_id, item.tool_name, index=index, field="`tool_call_id`"
            )
            item.__dict__.update(tool_call_id=id, tool_name=name)
        elif role_of(item) != "ai":
            self.speak()

    def _note(self, item: MemoryItem) -> None:
        if isinstance(item, AIMemory) and item.tool_calls:
            self.open(item.tool_calls)
        elif role_of(item) != "ai":
            self.speak()
            self._close(result_id(item))

    def _find(self, name: str) -> str | None:
        for turn in reversed(self._turns):
            for id in turn:
                if name in ("", self._names[id]):
                    return id
        return None

    def _close(self, id: str) -> None:
        turn = self._homes.pop(id, None)
        if turn is None:
            return
        del turn[id]
        while self._turns and not self._turns[-1]:
            self._turns.pop()
            self._is_in_turn = False

    def _new_id(self, call: Mapping[str, Any]) -> str:
        while True:
            what = [self._seed, self._made, call_name(call), call_input(call)]
            self._made += 1
            text = json.dumps(what, ensure_ascii=False, default=str)
            digest = blake2b(text.encode(errors="replace"), digest_size=12).hexdigest()
            if f"call_{digest}" not in self._names:
                return f"call_{digest}"
