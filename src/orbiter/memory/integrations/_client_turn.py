"""One call of a wrapped client: its body is completed from a chat, and its answer is added.

Bodies are those that go over the wire, so that every method of a client that makes the same
request is served by the same code.
"""

import json
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orbiter.memory.conversation.tokens import estimate_tokens
from orbiter.memory.errors import QueryError
from orbiter.memory.integrations._calls import Calls
from orbiter.memory.integrations._resent_history import (
    Items,
    brings_history,
    find_new,
    lease,
    one_at_a_time,
    read_stored,
)
from orbiter.memory.messages import Format, Message, OpenCalls, as_plain, read_on
from orbiter.memory.model.items import MemoryItem, calls_of, result_id, role_of
from orbiter.memory.model.tool_calls import call_id
from orbiter.memory.tasks.offload import MANY, apart

__all__ = ["COMPLETE", "Complete", "Pieces", "Turn", "warn_of"]

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
        items = [item for piece in pieces for item in piece]
        self.question = _question(items)
        new = await self._find_new(pieces, format)
        if not brings_history(pieces, new):
            return await self._add_new(format, messages, pieces, new)
        async with lease(self._chat):  # another process may just have brought it
            new = await self._find_new(pieces, format)
            return await self._add_new(format, messages, pieces, new)

    async def _find_new(self, pieces: Sequence[Items], format: Format) -> list[bool]:
        stored = await read_stored(self.calls.handle, self.chat_id, pieces, format)
        is_long = sum(map(len, pieces)) + len(stored) > MANY
        return await apart(is_long, find_new, pieces, stored, format)

    async def _add_new(
        self, format: Format, messages: Sequence[Message], pieces: Sequence[Items], new: list[bool]
    ) -> tuple[list[MemoryItem], list[Message]]:
        some = [each for each, is_new in zip(messages, new, strict=True) if is_new]
        # A text is the task of the context, and added behind it; all else has to be in the chat.
        is_text = new[-1] and [role_of(item) for item in pieces[-1]] == ["human"]
        is_text = is_text and not pieces[-1][-1].native
        before, last = (some[:-1], some[-1:]) if is_text else (some, [])
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
            whole = _without_cut(_first_choice(answer), format)
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


def _first_choice(answer: object) -> Any:
    """Return an answer with one of its alternatives: a chat has one answer to a question."""
    plain = as_plain(answer)
    for name in ("choices", "candidates"):
        if isinstance(plain, Mapping) and isinstance(several := plain.get(name), list):
            return {**plain, name: several[:1]}
    return plain


def _question(items: Sequence[MemoryItem]) -> str | None:
    """Return the newest text of a person in a call; `None` if it has only results, or nothing."""
    roles = [role_of(item) for item in items]
    if roles[-1:] == ["ai"]:
        raise QueryError(
            "the last message of this call is the model's; end it with a message of the user or "
            "with results of tools, or make it without the memory, with `extra_headers=OFF`"
        )
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
    return {name: sent[name], **{key: value for key, value in sent.items() if key != name}}


async def _openai(turn: Turn, body: Body, *, format: Format, name: str) -> Body:
    messages = _listed(body.get(name) or [], format)
    systems = [each for each in messages if each.get("role") in _OF_SYSTEM]
    others = [each for each in messages if each.get("role") not in _OF_SYSTEM]
    taken = sum(_cost(each.get("content")) for each in systems) + _cost(body.get("instructions"))
    sent = await _complete(turn, format, name, body, others, taken)
    return body if sent is None else {**body, name: [*systems, *sent[name]]}


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


# Answers that were cut off: a call whose input is not whole can never be answered


def _is_whole(arguments: object) -> bool:
    try:
        return isinstance(json.loads(str(arguments)), dict)
    except ValueError:
        return False


def _legal_openai(message: Body) -> Body:
    calls = message.get("tool_calls") or ()
    whole = [each for each in calls if _is_whole((each.get("function") or {}).get("arguments"))]
    rest = {name: value for name, value in message.items() if name != "tool_calls"}
    return rest | ({"tool_calls": whole} if whole else {})


def _legal_blocks(blocks: Sequence[Body], *, is_full: bool) -> list[Body]:
    """Return what is whole of Anthropic's blocks.

    If the answer *is_full*, its length has reached the limit, and a call that it ends with is cut.
    """
    is_cut = is_full and str(blocks[-1].get("type") if blocks else "").endswith("tool_use")
    rest = blocks[:-1] if is_cut else blocks
    answered = {each.get("tool_use_id") for each in rest}
    of_server = ("server_tool_use", "mcp_tool_use")
    return [
        each
        for each in rest
        if each.get("text") != ""
        and "partial_json" not in each
        and (each.get("type") != "thinking" or each.get("signature"))
        and (each.get("type") not in of_server or each.get("id") in answered)
    ]


def _legal_output(output: Sequence[Body]) -> list[Body]:
    """Return what is whole of the items of a response; a thought goes with what follows it."""
    rest = [
        each
        for each in output
        if not str(each.get("type")).endswith("_call")
        or (each.get("status") != "incomplete" and _is_whole(each.get("arguments", "{}")))
    ]
    while rest and rest[-1].get("type") == "reasoning":
        del rest[-1]
    return rest


def _without_cut(answer: Any, format: Format) -> Any:
    """Return an answer without the call that the limit of its length cut off; `None` if no more."""
    if not isinstance(answer, Mapping):
        return answer
    if format == "openai" and (choices := answer.get("choices")):
        if choices[0].get("finish_reason") == "length":
            message = _legal_openai(choices[0]["message"])
            return message if message.get("content") or "tool_calls" in message else None
    elif format == "anthropic" and answer.get("stop_reason") == "max_tokens":
        blocks = _legal_blocks(answer["content"], is_full=True)
        return {**answer, "content": blocks} if blocks else None
    elif format == "openai-responses" and answer.get("status") == "incomplete":
        output = _legal_output(answer["output"])
        return {**answer, "output": output} if output else None
    return answer


@dataclass
class Pieces:
    """Puts the pieces of a stream together; `whole` is there with the last that matters."""

    format: Format
    whole: object = None
    _text: str = ""
    _calls: dict[int, Body] = field(default_factory=dict)
    _blocks: list[Body] = field(default_factory=list)
    _stop: str | None = None

    def add(self, piece: Any) -> None:
        """Take a piece: an event of the client, or for Gemini the JSON of one."""
        getattr(self, f"_add_{self.format.replace('-', '_')}")(piece)

    def close(self) -> None:
        """Take the end of a stream that did not say so: it was cut, or its server never does.

        What was whole until then is the answer, but for calls that may be cut off.
        """
        if self.whole is not None:
            return
        if self.format == "openai":
            choice = {"finish_reason": "length", "message": self._message()}
            self.whole = _without_cut({"choices": [choice]}, "openai")
        elif self.format == "openai-responses":
            output = _legal_output([*self._blocks, *self._text_item()])
            self.whole = {"output": output} if output else None
        elif self.format == "anthropic":
            self._end_blocks()
        elif self._blocks:
            self.whole = {"role": "model", "parts": self._blocks}

    def _message(self) -> Body:
        calls = {"tool_calls": list(self._calls.values())} if self._calls else {}
        return {"role": "assistant", "content": self._text or None, **calls}

    def _text_item(self) -> list[Body]:
        part = {"type": "output_text", "text": self._text, "annotations": []}
        item = {"type": "message", "role": "assistant", "content": [part]}
        return [item] if self._text else []

    def _end_blocks(self) -> None:
        blocks = _legal_blocks(self._blocks, is_full=self._stop == "max_tokens")
        if {"text", "tool_use"}.intersection(each.get("type", "") for each in blocks):
            self.whole = {"role": "assistant", "content": blocks}

    def _add_openai(self, piece: Any) -> None:
        for choice in piece.choices or ():
            if choice.index:  # another alternative
                continue
            delta = choice.delta  # pieces of Azure's content filter have none
            self._text += (delta and delta.content) or ""
            for part in (delta and delta.tool_calls) or ():
                call = self._calls.setdefault(
                    part.index,
                    {"id": "", "type": "function", "function": {"name": "", "arguments": ""}},
                )
                call["id"] = part.id or call["id"]
                if part.function is not None:
                    call["function"]["name"] += part.function.name or ""
                    call["function"]["arguments"] += part.function.arguments or ""
            if choice.finish_reason == "length":
                self.close()
            elif choice.finish_reason:
                self.whole = self._message()

    def _add_openai_responses(self, piece: Any) -> None:
        if piece.type in ("response.completed", "response.incomplete"):
            self.whole = piece.response
        elif piece.type == "response.output_text.delta":
            self._text += piece.delta
        elif piece.type == "response.output_item.done":
            self._blocks.append(as_plain(piece.item))
            self._text = ""

    def _add_anthropic(self, piece: Any) -> None:
        if piece.type == "content_block_start":
            block = piece.content_block.model_dump(exclude_none=True)
            self._blocks.append(block | ({"partial_json": ""} if "input" in block else {}))
        elif piece.type == "content_block_delta":
            block = self._blocks[piece.index]
            for name in ("text", "thinking", "signature", "partial_json"):
                if isinstance(more := getattr(piece.delta, name, None), str):
                    block[name] = block.get(name, "") + more
        elif piece.type == "content_block_stop":
            block = self._blocks[piece.index]
            text = block.get("partial_json")
            if text and _is_whole(text):
                block["input"] = json.loads(text)
            if not text or _is_whole(text):
                block.pop("partial_json", None)
        elif piece.type == "message_delta":
            self._stop = piece.delta.stop_reason
        elif piece.type == "message_stop":
            self._end_blocks()

    def _add_gemini(self, piece: Any) -> None:
        for candidate in piece.get("candidates", [])[:1]:
            for part in candidate.get("content", {}).get("parts", ()):
                last = self._blocks[-1] if self._blocks else {}
                if part.keys() == last.keys() == {"text"}:
                    last["text"] += part["text"]
                else:
                    self._blocks.append(dict(part))
            if candidate.get("finishReason"):
                self.whole = {"role": "model", "parts": self._blocks}
