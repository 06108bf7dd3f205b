"""One call of a wrapped client: its body is completed from a chat, and its answer is added.

Bodies are those that go over the wire, so that every method of a client that makes the same
request is served by the same code.
"""

import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orbiter.memory.agent.interface import session_of
from orbiter.memory.conversation.tokens import estimate_tokens
from orbiter.memory.errors import QueryError
from orbiter.memory.integrations._calls import Calls
from orbiter.memory.integrations._client_answers import as_remembered
from orbiter.memory.integrations._resent_history import (
    Items,
    brings_history,
    find_new,
    lease,
    one_at_a_time,
    read_stored,
)
from orbiter.memory.messages import Format, Message, OpenCalls, as_plain, codec_for, read_on
from orbiter.memory.model.items import MemoryItem, calls_of, result_id, role_of
from orbiter.memory.model.tool_calls import call_id

__all__ = ["COMPLETE", "Complete", "Turn", "warn_of"]

Body = dict[str, Any]

_OF_SYSTEM = ("system", "developer")
_MESSAGE_TOKENS = 8
"""What a system message costs beside its text, rather too much than too little."""
_ROUNDS = 20
"""How far back the tool call of a result is looked for."""
_MAX_QUESTIONS = 1_000
_KEPT_ELSEWHERE = ("previous_response_id", "conversation", "cachedContent")
"""Where the provider itself has the conversation, and must not be sent it again."""


@dataclass(slots=True)
class Turn:
    """One call in a chat: what it asks, and what it is answered."""

    calls: Calls
    chat_id: str
    budget: int
    memory_limit: int
    questions: dict[str, str] = field(default_factory=dict)
    """What was asked when the model made a tool call, by the call's id; all turns share it."""
    question: str | None = None
    is_remembered: bool = True
    """Whether the answer is added; not that of a call in which nobody says anything."""
    prefill: Sequence[Message] = ()
    """What the call has the model begin its answer with, unless the chat ends so already."""

    @property
    def _chat(self) -> Any:
        return self.calls.handle.chat(self.chat_id)

    async def begin(self, format: Format, messages: Sequence[Message], room: int) -> Body:
        """Add what is new of *messages*; return what is sent, as the provider's call takes it.

        Other calls may add to the chat at any time, so what this one asks is never looked for at
        the end of it. A call that is refused leaves nothing in the chat.
        """
        async with one_at_a_time(self._chat.scope):
            added, last = await self._add(format, messages)
            try:
                if self.question is None:
                    self.question = await self._question_of_results(added)
                context = await self._chat.context(
                    self.question, budget=room, format=format, memory_limit=self.memory_limit
                )
                if last:
                    await self._chat.add(last, format=format)
            except BaseException:  # cancellation included: a call that was not sent leaves nothing
                for item in added:
                    await self.calls.handle.forget(item)
                raise
        sent: Body = context.messages().as_kwargs()
        return sent

    async def note(self, format: Format, messages: Sequence[Message]) -> None:
        """Add what is new of *messages* to the chat, for a call that is sent as it is."""
        async with one_at_a_time(self._chat.scope):
            _, last = await self._add(format, messages)
            if last:
                await self._chat.add(last, format=format)

    async def _add(
        self, format: Format, messages: Sequence[Message]
    ) -> tuple[list[MemoryItem], list[Message]]:
        """Add what is new but for the text that the call ends with; return both."""
        pieces = _read(messages, format)
        self.question = _question([item for piece in pieces for item in piece])
        # They are compared with what the chat has, which is what was stored of them.
        pieces = [self._redacted(piece) for piece in pieces]
        new = await self._find_new(pieces, format)
        if not brings_history(pieces, new):
            return await self._add_new(format, messages, pieces, new)
        async with lease(self._chat):  # another process may just have brought it
            new = await self._find_new(pieces, format)
            return await self._add_new(format, messages, pieces, new)

    def _redacted(self, items: Items) -> list[MemoryItem]:
        return session_of(self.calls.handle).engine.redacted(items)

    async def _find_new(self, pieces: Sequence[Items], format: Format) -> list[bool]:
        stored = await read_stored(self.calls.handle, self.chat_id, pieces, format)
        begun = [self._redacted(piece) for piece in _read(self.prefill, format)]
        texts = [item.content for items in begun for item in items]
        if texts and texts == [item.content for item in stored[-len(texts) :]]:
            self.prefill = ()  # the model is to go on with what it said
        else:
            begun = []
        return find_new([*pieces, *begun], stored, format)[: len(pieces)]

    async def _add_new(
        self, format: Format, messages: Sequence[Message], pieces: Sequence[Items], new: list[bool]
    ) -> tuple[list[MemoryItem], list[Message]]:
        some = [each for each, is_new in zip(messages, new, strict=True) if is_new]
        # A text is the task of the context, and added behind it; all else has to be in the chat.
        is_text = new[-1] and [role_of(item) for item in pieces[-1]] == ["human"]
        is_text = is_text and not pieces[-1][-1].native
        before, last = (some[:-1], some[-1:]) if is_text else (some, [])
        if not is_text and pieces[-1]:  # it is asked as it is in the chat, lest it be sent twice
            self.question = _question([item for piece in pieces for item in piece])
        return await self._chat.add(before, format=format) if before else [], last

    async def _question_of_results(self, added: Sequence[MemoryItem]) -> str | None:
        """Return what was asked when the model made the calls that *added* has results of."""
        ids = {result_id(item) for item in added if role_of(item) == "tool"}
        for id in ids & self.questions.keys():
            return self.questions[id]
        question = None
        for item in await self._chat.items(rounds=_ROUNDS) if ids else ():
            if role_of(item) == "human":
                question = item.content or question
            elif ids.intersection(map(call_id, calls_of(item))):
                return question
        return None

    async def end(self, format: Format, answer: object) -> None:
        """Add an answer; one that cannot be added is not taken from the caller for it."""
        if not self.is_remembered:
            return
        try:
            whole = as_remembered(answer, format, self.prefill)
            added = await self._chat.add(whole, format=format) if whole is not None else []
            if self.question is not None:
                made = [call_id(call) for item in added for call in calls_of(item)]
                self.questions.update(dict.fromkeys(made, self.question))
        except Exception as exc:  # noqa: BLE001 - it was paid for, whatever is wrong here
            warn_of(exc)
        while len(self.questions) > _MAX_QUESTIONS:
            del self.questions[next(iter(self.questions))]


def warn_of(exc: Exception) -> None:
    """Log why an answer is not in the chat."""
    log = logging.getLogger("orbiter.memory")
    log.warning("an answer was not remembered: %s: %s", type(exc).__name__, exc)


def _question(items: Sequence[MemoryItem]) -> str | None:
    """Return the newest text of a person in a call; `None` if it has only results, or nothing."""
    roles = [role_of(item) for item in items]
    for place in range(len(items) - 1, -1, -1):
        if roles[place] == "human" and items[place].content.strip():
            return items[place].content
        if roles[place] == "ai" and "human" in roles[place:]:
            break
    if "human" in roles:
        raise QueryError(
            "the newest message of this call has no text, so nothing can be recalled for it; say "
            "in words what is wanted, or make it without the memory, with `extra_headers=OFF`"
        )
    return None


def _read(messages: Sequence[Message], format: Format) -> list[list[MemoryItem]]:
    """Return the items of each message."""
    open_calls = OpenCalls(())
    return [read_on([message], format, open_calls) for message in messages]


# A call that ends with a message of the model, which begins its answer: a prefill


def _split_prefill(
    messages: Sequence[Message], format: Format
) -> tuple[list[Message], list[Message]]:
    """Return the messages of a call up to the prefill, and the prefill."""
    roles = [{role_of(item) for item in items} for items in _read(messages, format)]
    end = len(messages)
    while end and roles[end - 1] == {"ai"}:
        end -= 1
    return list(messages[:end]), list(messages[end:])


# Bodies


def _listed(messages: object, format: Format) -> list[Message]:
    """Return what a call was given as a list of messages."""
    is_one = isinstance(messages, str | Mapping) or hasattr(messages, "model_dump")
    several = [messages] if is_one or not isinstance(messages, Iterable) else messages
    return [_message(each, format) for each in several]


def _message(message: object, format: Format) -> Message:
    if isinstance(message, str):
        return {"role": "user", "content": message}
    plain = as_plain(message)
    if not isinstance(plain, Mapping):
        raise QueryError(f"a wrapped client takes messages, not {message!r}")
    if format == "anthropic" and not isinstance(plain.get("content"), str | list):
        content = plain.get("content")
        blocks = list(content) if isinstance(content, Iterable) else content
        return {**plain, "content": as_plain(blocks)}
    return dict(plain)


def _cost(value: object) -> int:
    """Return about what a system text costs, in whichever shape it is."""
    if not value:
        return 0
    texts = [str(each) for each in value] if isinstance(value, list | tuple) else [str(value)]
    return sum(estimate_tokens(text) + _MESSAGE_TOKENS for text in texts)


async def _complete(
    turn: Turn, format: Format, name: str, body: Body, others: Sequence[Message], taken: int
) -> Body | None:
    """Return what the context has for a body; `None` if that is sent as it is."""
    others, prefill = _split_prefill(others, format)
    turn.prefill = prefill
    taken += sum(_cost(each.get("content") or each.get("parts")) for each in prefill)
    if not others:  # there is nobody to recall for, and an answer to nobody is none of a chat
        turn.is_remembered = False
        return None
    if any(body.get(each) for each in _KEPT_ELSEWHERE):
        await turn.note(format, others)
        return None
    if taken >= turn.budget:
        raise QueryError(
            f"the system's part of this call takes about {taken:,} tokens, and the `budget` of the "
            f"wrapped client is {turn.budget:,}; raise that"
        )
    sent = await turn.begin(format, others, turn.budget - taken)
    messages = codec_for(format).arrange([*sent[name], *prefill])
    return {name: messages, **{key: value for key, value in sent.items() if key != name}}


async def _openai(turn: Turn, body: Body, *, format: Format, name: str) -> Body:
    messages = _listed(body.get(name) or [], format)
    systems = [each for each in messages if each.get("role") in _OF_SYSTEM]
    others = [each for each in messages if each.get("role") not in _OF_SYSTEM]
    instructions = body.get("instructions")
    taken = sum(_cost(each.get("content")) for each in systems) + _cost(instructions)
    sent = await _complete(turn, format, name, body, others, taken)
    if sent is None:
        return body
    # The call's own text first: it stays the same from call to call, whatever is remembered.
    messages = codec_for(format).arrange([*systems, *sent[name]])
    if not instructions or not isinstance(instructions, str) or not messages:
        return {**body, name: messages}
    own, rest = messages[0], messages[1:]
    if own.get("role") not in _OF_SYSTEM or not isinstance(own.get("content"), str):
        return {**body, name: messages}
    # A server of open models makes a system message of them, and there can be only one.
    return {**body, name: rest, "instructions": f"{instructions}\n\n{own['content']}"}


async def _chat_completions(turn: Turn, body: Body) -> Body:
    return await _openai(turn, body, format="openai", name="messages")


async def _responses(turn: Turn, body: Body) -> Body:
    return await _openai(turn, body, format="openai-responses", name="input")


async def _anthropic(turn: Turn, body: Body) -> Body:
    system = body.get("system")
    if not isinstance(system, str) and isinstance(system, Iterable):
        system = list(system)
    if not isinstance(system, str | list):
        system = ""  # the client's own mark for what is not given
    messages = _listed(body.get("messages") or [], "anthropic")
    body = {**body, "messages": messages} | ({"system": system} if system else {})
    sent = await _complete(turn, "anthropic", "messages", body, messages, _cost(system))
    if sent is None:
        return body
    if own := sent.get("system", ""):
        if isinstance(system, str):
            system = f"{system}\n\n{own}" if system else own
        else:
            system = [*system, {"type": "text", "text": own}]
    return {**body, "messages": sent["messages"], **({"system": system} if system else {})}


async def _gemini(turn: Turn, body: Body) -> Body:
    contents = _listed(body.get("contents") or [], "gemini")
    system = body.get("systemInstruction")
    parts = list(system.get("parts") or []) if isinstance(system, Mapping) else []
    sent = await _complete(turn, "gemini", "contents", body, contents, _cost(parts))
    if sent is None:
        return body
    made = {**body, "contents": sent["contents"]}
    if own := sent.get("config", {}).get("system_instruction"):
        made["systemInstruction"] = {**(system or {}), "parts": [*parts, {"text": own}]}
    return made


Complete = Callable[[Turn, Body], Coroutine[Any, Any, Body]]

COMPLETE: Mapping[str, tuple[Format, Complete]] = {
    "/chat/completions": ("openai", _chat_completions),
    "/responses": ("openai-responses", _responses),
    "/v1/messages": ("anthropic", _anthropic),
    ":generateContent": ("gemini", _gemini),
    ":streamGenerateContent": ("gemini", _gemini),
}
"""The format of a request by its path, and what completes its body."""
