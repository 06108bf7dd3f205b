"""Microsoft Agent Framework: a history provider, and a context provider that recalls.

`OrbiterHistoryProvider` keeps the messages of a session exactly. What was said is also in the chat
of the session's id, where `OrbiterContextProvider` finds it from any other session.
"""

import json
from collections.abc import Sequence
from typing import Any

from orbiter.memory._lazy import missing_extra
from orbiter.memory.integrations._calls import AnyHandle, Calls, shielded
from orbiter.memory.integrations._message_log import (
    LoggedMessage,
    MessageLog,
    chat_items,
    is_edited,
)
from orbiter.memory.integrations.tools import recalled_text
from orbiter.memory.model.items import MemoryItem

try:
    from agent_framework import (
        AgentSession,
        Content,
        ContextProvider,
        HistoryProvider,
        Message,
        SessionContext,
        SupportsAgentRun,
    )
except ModuleNotFoundError as exc:
    raise missing_extra(
        "the adapters for Microsoft Agent Framework need agent-framework-core", "agent-framework"
    ) from exc

__all__ = ["OrbiterContextProvider", "OrbiterHistoryProvider"]

_ROOT = "agent-framework"
"""Also the chat of what has no session."""


class OrbiterHistoryProvider(HistoryProvider):  # type: ignore[misc]  # their types are not read
    """The sessions of one handle, for `Agent(context_providers=[…])`.

    *handle* is of `orbiter.memory` or of `orbiter.memory.sync`. With *remember* false, what is said
    does not go to a chat. The other arguments are those of `HistoryProvider`.
    """

    def __init__(
        self,
        handle: AnyHandle,
        *,
        source_id: str = "orbiter_history",
        remember: bool = True,
        load_messages: bool = True,
        store_inputs: bool = True,
        store_context_messages: bool = False,
        store_context_from: set[str] | None = None,
        store_outputs: bool = True,
    ) -> None:
        super().__init__(
            source_id,
            load_messages=load_messages,
            store_inputs=store_inputs,
            store_context_messages=store_context_messages,
            store_context_from=store_context_from,
            store_outputs=store_outputs,
        )
        self._calls = Calls(handle, "OrbiterHistoryProvider")
        self._remember = remember

    async def get_messages(
        self,
        session_id: str | None,
        *,
        state: dict[str, Any] | None = None,  # noqa: ARG002 - nothing is kept in the session
        **kwargs: Any,  # noqa: ARG002
    ) -> list[Message]:
        """Return the messages of a session in order."""
        rows = await self._calls.wait(self._log(session_id).read())
        return [_message(row) for row in rows]

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[Message],
        *,
        state: dict[str, Any] | None = None,  # noqa: ARG002
        **kwargs: Any,  # noqa: ARG002
    ) -> None:
        """Append messages, all or none; those that repeat the end of the session are left out.

        A cancelled call ends after they are stored.
        """
        if messages:
            await shielded(self._calls.wait(self._save(session_id, list(messages))))

    async def clear(self, session_id: str | None) -> None:
        """Remove the messages of a session for good; what was said is forgotten."""
        await shielded(self._calls.wait(self._log(session_id).clear()))

    def _log(self, session_id: str | None) -> MessageLog:
        handle = self._calls.handle
        return MessageLog(handle, _ROOT, session_id or _ROOT, remember=self._remember)

    async def _save(self, session_id: str | None, messages: Sequence[Message]) -> None:
        log = self._log(session_id)
        stored = [_message(row) for row in await log.read()]
        new = messages[_repeated(stored, messages) :]
        await log.add([(_plain(message), _items(message)) for message in new])


class OrbiterContextProvider(ContextProvider):  # type: ignore[misc]  # as above
    """What is remembered about the newest question, for `Agent(context_providers=[…])`.

    At most *k* memories of the handle are added to the instructions, fenced as data; those below
    *min_relevance* are not, nor by default what answers nothing. It stands after the history
    provider, whose messages it does not repeat.
    """

    def __init__(
        self,
        handle: AnyHandle,
        *,
        source_id: str = "orbiter_memory",
        k: int = 5,
        min_relevance: float | None = None,
    ) -> None:
        super().__init__(source_id)
        self._calls = Calls(handle, "OrbiterContextProvider")
        self._k = k
        self._min_relevance = min_relevance

    async def before_run(
        self,
        *,
        agent: SupportsAgentRun,  # noqa: ARG002 - the framework hands it over
        session: AgentSession,  # noqa: ARG002
        context: SessionContext,
        state: dict[str, Any],  # noqa: ARG002
    ) -> None:
        """Add what is remembered about the newest question."""
        questions = [message.text for message in context.input_messages if message.role == "user"]
        if not questions:
            return
        work = recalled_text(
            self._calls.handle,
            questions[-1],
            k=self._k,
            min_relevance=self._min_relevance,
            known={message.text for message in context.get_messages(include_input=True)},
        )
        if recalled := await self._calls.wait(work):
            context.extend_instructions(self.source_id, recalled)


def _plain(message: Message) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(message.to_json())
    return plain


def _message(row: LoggedMessage) -> Message:
    """Return a message as it was stored, with what it says now."""
    message = Message.from_dict(row.message)
    if not row.items:
        return message
    split = len(row.items) - len(_results(message))
    results = iter(row.items[split:])
    message.contents = [
        _as_edited(content, next(results)) if content.type == "function_result" else content
        for content in message.contents
    ]
    for said in row.items[:split]:
        if is_edited(said, message.text):
            others = [content for content in message.contents if content.type != "text"]
            message.contents = [Content.from_text(said.content), *others]
    return message


def _as_edited(result: Content, item: MemoryItem) -> Content:
    if not is_edited(item, _result_text(result)):
        return result
    return Content.from_function_result(result.call_id, result=item.content)


def _items(message: Message) -> list[MemoryItem]:
    """Return what stands for a message in a chat: what is said, and each result of a tool."""
    calls = [
        {
            "id": content.call_id or "",
            "name": content.name,
            "arguments": content.arguments
            if isinstance(content.arguments, str)
            else json.dumps(dict(content.arguments or {})),
        }
        for content in message.contents
        if content.type == "function_call"
    ]
    said = [] if message.role == "tool" else chat_items(message.role, message.text, calls=calls)
    results = _results(message)
    answers = [
        item
        for each in results
        for item in chat_items("tool", _result_text(each), call_id=each.call_id or "")
    ]
    return [*said, *answers] if len(answers) == len(results) else []


def _results(message: Message) -> list[Content]:
    return [content for content in message.contents if content.type == "function_result"]


def _result_text(result: Content) -> str:
    output = result.result if result.exception is None else result.exception
    return output if isinstance(output, str) else json.dumps(output, default=str)


def _repeated(stored: Sequence[Message], new: Sequence[Message]) -> int:
    """Return how many messages, from the first on, only repeat what is stored.

    Some programs give the whole conversation with each run. A single message without an id may
    well be said twice, and so may one turn that is all there is.
    """
    before, after = [_mark(each) for each in stored], [_mark(each) for each in new]
    for start in range(len(after) - len(before) + 1):
        end = start + len(before)
        if before and after[start:end] == before and not _is_said_again(new, start, end):
            return end
    for count in range(min(len(before), len(after)), 0, -1):
        if before[-count:] == after[:count] and not _is_said_again(new, 0, count):
            return count
    return 0


def _is_said_again(new: Sequence[Message], start: int, end: int) -> bool:
    """Tell whether messages from *start* to *end* may be meant, though they were said before."""
    messages = new[start:end]
    if any(message.message_id for message in messages):
        return False
    is_turn = not any(message.role == "user" for message in messages[1:])
    return len(messages) == 1 or (is_turn and len(messages) == len(new))


def _mark(message: Message) -> object:
    """Return what two messages have in common that are the same."""
    if message.message_id:
        return message.role, message.message_id
    return message.role, message.author_name, [each.to_dict() for each in message.contents]
