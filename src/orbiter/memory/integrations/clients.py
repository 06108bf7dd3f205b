"""Clients of providers with a memory: each call sees what is remembered, and is remembered itself.

`wrap(client, alice)` returns a client of the same type. What a call is given is added to a chat,
the call is sent with the context of that chat instead, under a budget, and the answer is added.
Nothing is sent to anybody but the provider that the client is of.
"""

import copy
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from typing import Any, TypeVar

from orbiter.memory.conversation.tokens import estimate_tokens
from orbiter.memory.errors import QueryError
from orbiter.memory.integrations._calls import AnyHandle, Calls
from orbiter.memory.messages import Format, Message, OpenCalls, as_plain, read_on
from orbiter.memory.model.items import MemoryItem, calls_of, result_id, role_of
from orbiter.memory.model.tool_calls import call_id

__all__ = ["wrap"]

_Client = TypeVar("_Client")

_OF_SYSTEM = ("system", "developer")
_MESSAGE_TOKENS = 8
"""What a system message costs beside its text, rather too much than too little."""
_ROUNDS = 20
"""How far back the tool call of a result is looked for."""
_MAX_QUESTIONS = 1_000


def wrap(
    client: _Client,
    handle: AnyHandle,
    *,
    chat: str = "default",
    budget: int = 8_000,
    memory_limit: int = 5,
    active: bool = True,
) -> _Client:
    """Return a client like *client* whose calls have the memory of *handle*.

    That is for `chat.completions.create` and `responses.create` of `OpenAI`, `messages.create` of
    `Anthropic`, and `models.generate_content` and its streaming form of google-genai's `Client`,
    and for their async clients. Everything else of the client is as it was.

    A call may be given the newest message alone, or all that was said: what *chat* has already is
    not added twice. System messages and instructions of the call go along as they are; they count
    against *budget*, and are not stored. At most *memory_limit* memories are recalled for a call.
    An answer that is streamed is remembered once it was read to its end. With *active* false, the
    client is returned as it is.
    """
    if not active:
        return client
    turn = _Turn(Calls(handle, "wrap"), chat, budget, memory_limit)
    module = type(client).__module__.partition(".")[0]
    wrapped = _WRAPPERS.get(module)
    if wrapped is None:
        raise QueryError(
            f"`wrap` takes a client of openai, anthropic or google-genai, not {client!r}"
        )
    made: _Client = wrapped(client, turn)
    return made


@dataclass(slots=True)
class _Turn:
    """One call in a chat: what it asks, and what it is answered."""

    calls: Calls
    chat_id: str
    budget: int
    memory_limit: int
    questions: dict[str, str] = field(default_factory=dict)
    """What was asked when the model made a tool call, by the call's id; all turns share it."""
    question: str | None = None

    @property
    def _chat(self) -> Any:
        return self.calls.handle.chat(self.chat_id)

    async def begin(self, format: Format, messages: Sequence[Message], room: int) -> dict[str, Any]:
        """Add what is new of *messages*; return what is sent, as the provider's call takes it.

        Other calls may add to the chat at any time, so what this one asks is never looked for at
        the end of it. A call that is refused leaves nothing in the chat.
        """
        chat = self._chat
        pieces = _read(messages, format)
        items = [item for piece in pieces for item in piece]
        self.question = _question(items)
        humans = sum(role_of(item) == "human" for item in items)
        stored = await chat.items(rounds=humans + 1, open_group="keep")
        new = list(messages[_known(pieces, stored) :])
        # A text is the task of the context, and added behind it; all else has to be in the chat.
        is_text = bool(new) and [role_of(item) for item in pieces[-1]] == ["human"]
        is_text = is_text and not items[-1].native
        before, last = (new[:-1], new[-1:]) if is_text else (new, [])
        added = await chat.add(before, format=format) if before else []
        try:
            if self.question is None:
                self.question = await self._question_of_results(added)
            context = await chat.context(
                self.question, budget=room, format=format, memory_limit=self.memory_limit
            )
            if last:
                await chat.add(last, format=format)
        except BaseException:  # cancellation included: a call that was not sent leaves nothing
            for item in added:
                await self.calls.handle.forget(item)
            raise
        sent: dict[str, Any] = context.messages().as_kwargs()
        return sent

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
        try:
            added = await self._chat.add(answer, format=format)
            if self.question is not None:
                made = [call_id(call) for item in added for call in calls_of(item)]
                self.questions.update(dict.fromkeys(made, self.question))
        except Exception as exc:  # noqa: BLE001 - it was paid for, whatever is wrong here
            log = logging.getLogger("orbiter.memory")
            log.warning("an answer was not remembered: %s: %s", type(exc).__name__, exc)
        while len(self.questions) > _MAX_QUESTIONS:
            del self.questions[next(iter(self.questions))]


def _question(items: Sequence[MemoryItem]) -> str | None:
    """Return the newest text of a person in a call; `None` if it has only results, or nothing."""
    roles = [role_of(item) for item in items]
    if roles[-1:] == ["ai"]:
        raise QueryError(
            "the last message of this call is the model's; end it with a message of the user or "
            "with results of tools, or use the client that is not wrapped"
        )
    for place in range(len(items) - 1, -1, -1):
        if roles[place] == "human" and items[place].content.strip():
            return items[place].content
        if roles[place] == "ai" and "human" in roles[place:]:
            break
    if "human" in roles:
        raise QueryError(
            "the newest message of this call has no text, so nothing can be recalled for it; say "
            "in words what is wanted, or use the client that is not wrapped"
        )
    return None


def _read(messages: Sequence[Message], format: Format) -> list[list[MemoryItem]]:
    """Return the items of each message."""
    open_calls = OpenCalls(())
    return [read_on([message], format, open_calls) for message in messages]


def _known(pieces: Sequence[Sequence[MemoryItem]], stored: Sequence[MemoryItem]) -> int:
    """Return how many messages, from the first on, are the end of what is stored."""
    there = [_mark(item) for item in stored]
    marks = [[_mark(item) for item in piece] for piece in pieces]
    for count in range(len(marks), 0, -1):
        beginning = [mark for piece in marks[:count] for mark in piece]
        if beginning and beginning == there[-len(beginning) :]:
            return count
    return 0


def _mark(item: MemoryItem) -> tuple[object, ...]:
    """Return what two messages have in common that are the same; ids of calls may be ours."""
    calls = getattr(item, "calls", ())
    return role_of(item), item.content, tuple(call.name for call in calls)


# What a call was given


def _listed(messages: object, format: Format) -> list[Message]:
    """Return what a call was given as a list of messages."""
    several = messages if isinstance(messages, list | tuple) else [messages]
    return [_message(each, format) for each in several]


def _message(message: object, format: Format) -> Message:
    if isinstance(message, str):
        return (
            {"role": "user", "parts": [{"text": message}]}
            if format == "gemini"
            else {"role": "user", "content": message}
        )
    plain = message if isinstance(message, Mapping) else as_plain(message)
    if not isinstance(plain, Mapping):
        raise QueryError(f"a wrapped client takes messages, not {message!r}")
    if format == "gemini" and "parts" not in plain:  # a part alone is what the user says
        return {"role": "user", "parts": [dict(plain)]}
    return dict(plain)


def _cost(value: object) -> int:
    """Return about what a system text costs, in whichever shape it is."""
    if not value:
        return 0
    texts = [value] if isinstance(value, str) else [str(each) for each in _flat(value)]
    return sum(estimate_tokens(text) + _MESSAGE_TOKENS for text in texts)


def _flat(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else [value]


def _room(turn: _Turn, taken: int) -> int:
    if taken >= turn.budget:
        raise QueryError(
            f"the system's part of this call takes about {taken:,} tokens, and the `budget` of the "
            f"wrapped client is {turn.budget:,}; raise that"
        )
    return turn.budget - taken


async def _begin_openai(
    turn: _Turn, arguments: dict[str, Any], *, format: Format, name: str
) -> dict[str, Any]:
    messages = _listed(arguments.get(name) or [], format)
    systems = [each for each in messages if each.get("role") in _OF_SYSTEM]
    others = [each for each in messages if each.get("role") not in _OF_SYSTEM]
    taken = sum(_cost(each.get("content")) for each in systems) + _cost(
        arguments.get("instructions")
    )
    sent = await turn.begin(format, others, _room(turn, taken))
    return {**arguments, name: [*systems, *sent[name]]}


async def _begin_anthropic(turn: _Turn, arguments: dict[str, Any]) -> dict[str, Any]:
    system = arguments.get("system")
    if not isinstance(system, str | list | tuple):
        system = ""  # the client's own mark for what is not given
    sent = await turn.begin(
        "anthropic",
        _listed(arguments.get("messages") or [], "anthropic"),
        _room(turn, _cost(system)),
    )
    if own := sent.get("system", ""):
        if isinstance(system, str):
            system = f"{system}\n\n{own}" if system else own
        else:
            system = [*system, {"type": "text", "text": own}]
    return {**arguments, "messages": sent["messages"], **({"system": system} if system else {})}


async def _begin_gemini(turn: _Turn, arguments: dict[str, Any]) -> dict[str, Any]:
    config = arguments.get("config")
    system = _field(config, "system_instruction")
    sent = await turn.begin(
        "gemini", _listed(arguments.get("contents") or [], "gemini"), _room(turn, _cost(system))
    )
    own = sent.get("config", {}).get("system_instruction")
    if own:
        both = own if not system else [*_flat(system), own]
        config = (
            {**(config or {}), "system_instruction": both}
            if config is None or isinstance(config, Mapping)
            else config.model_copy(update={"system_instruction": both})
        )
    return {**arguments, "contents": sent["contents"], **({"config": config} if config else {})}


def _field(value: object, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


# Streamed answers


@dataclass
class _Pieces:
    """Puts the pieces of a stream together."""

    format: Format
    text: str = ""
    calls: dict[int, dict[str, Any]] = field(default_factory=dict)
    blocks: list[dict[str, Any]] = field(default_factory=list)
    whole: object = None

    def add(self, piece: Any) -> None:
        """Take a piece."""
        getattr(self, f"_add_{self.format.replace('-', '_')}")(piece)

    def _add_openai(self, piece: Any) -> None:
        for choice in piece.choices[:1]:
            self.text += choice.delta.content or ""
            for part in choice.delta.tool_calls or ():
                call = self.calls.setdefault(
                    part.index,
                    {"id": "", "type": "function", "function": {"name": "", "arguments": ""}},
                )
                call["id"] = part.id or call["id"]
                if part.function is not None:
                    call["function"]["name"] += part.function.name or ""
                    call["function"]["arguments"] += part.function.arguments or ""
            if choice.finish_reason:
                calls = {"tool_calls": list(self.calls.values())} if self.calls else {}
                self.whole = {"role": "assistant", "content": self.text or None, **calls}

    def _add_openai_responses(self, piece: Any) -> None:
        if piece.type in ("response.completed", "response.incomplete"):
            self.whole = piece.response

    def _add_anthropic(self, piece: Any) -> None:
        if piece.type == "content_block_start":
            self.blocks.append(piece.content_block.model_dump(exclude_none=True))
        elif piece.type == "content_block_delta":
            self._add_delta(self.blocks[piece.index], piece.delta)
        elif piece.type == "content_block_stop":
            block = self.blocks[piece.index]
            if (text := block.pop("partial_json", None)) is not None:
                block["input"] = _json(text)
        elif piece.type == "message_stop":
            self.whole = {"role": "assistant", "content": self.blocks}

    @staticmethod
    def _add_delta(block: dict[str, Any], delta: Any) -> None:
        for name in ("text", "thinking", "signature", "partial_json"):
            if isinstance(more := getattr(delta, name, None), str):
                block[name] = block.get(name, "") + more

    def _add_gemini(self, piece: Any) -> None:
        for candidate in (piece.candidates or [])[:1]:
            for part in (candidate.content and candidate.content.parts) or ():
                plain: dict[str, Any] = dict(as_plain(part))
                last = self.blocks[-1] if self.blocks else {}
                if plain.keys() == last.keys() == {"text"}:
                    last["text"] += plain["text"]
                else:
                    self.blocks.append(plain)
            if candidate.finish_reason:
                self.whole = {"role": "model", "parts": self.blocks}


def _json(text: str) -> Any:
    import json  # noqa: PLC0415 - of streamed tool calls only

    return json.loads(text or "{}")


def _watched(pieces: Iterator[Any], turn: _Turn, format: Format) -> Iterator[Any]:
    seen = _Pieces(format)
    for piece in pieces:
        seen.add(piece)
        yield piece
    if seen.whole is not None:
        turn.calls.run(turn.end(format, seen.whole))


async def _awatched(pieces: AsyncIterator[Any], turn: _Turn, format: Format) -> AsyncIterator[Any]:
    seen = _Pieces(format)
    async for piece in pieces:
        seen.add(piece)
        yield piece
    if seen.whole is not None:
        await turn.calls.wait(turn.end(format, seen.whole))


# The clients

Begin = Callable[[_Turn, dict[str, Any]], Any]


def _blocking(
    method: Callable[..., Any], chat: _Turn, format: Format, begin: Begin, *, streams: bool
) -> Callable[..., Any]:
    @wraps(method)
    def call(**arguments: Any) -> Any:
        turn = replace(chat)
        answer = method(**turn.calls.run(begin(turn, arguments)))
        if hasattr(answer, "_iterator"):  # a stream of openai's and anthropic's clients
            answer._iterator = _watched(answer._iterator, turn, format)  # noqa: SLF001
        elif streams:
            return _watched(answer, turn, format)
        else:
            turn.calls.run(turn.end(format, answer))
        return answer

    return call


def _awaiting(
    method: Callable[..., Any], chat: _Turn, format: Format, begin: Begin, *, streams: bool
) -> Callable[..., Any]:
    @wraps(method)
    async def call(**arguments: Any) -> Any:
        turn = replace(chat)
        answer = await method(**await turn.calls.wait(begin(turn, arguments)))
        if hasattr(answer, "_iterator"):
            answer._iterator = _awatched(answer._iterator, turn, format)  # noqa: SLF001
        elif streams:
            return _awatched(answer, turn, format)
        else:
            await turn.calls.wait(turn.end(format, answer))
        return answer

    return call


def _put(
    owner: Any, name: str, turn: _Turn, format: Format, begin: Begin, *,
    is_async: bool, streams: bool = False,
) -> None:  # fmt: skip
    """Give an object of a client a call that remembers, in the place of its own."""
    make = _awaiting if is_async else _blocking
    setattr(owner, name, make(getattr(owner, name), turn, format, begin, streams=streams))


def _openai(client: Any, turn: _Turn) -> Any:
    made, is_async = client.copy(), type(client).__name__.startswith("Async")
    chat = partial(_begin_openai, format="openai", name="messages")
    _put(made.chat.completions, "create", turn, "openai", chat, is_async=is_async)
    responses = partial(_begin_openai, format="openai-responses", name="input")
    _put(made.responses, "create", turn, "openai-responses", responses, is_async=is_async)
    return made


def _anthropic(client: Any, turn: _Turn) -> Any:
    made, is_async = client.copy(), type(client).__name__.startswith("Async")
    _put(made.messages, "create", turn, "anthropic", _begin_anthropic, is_async=is_async)
    return made


def _gemini(client: Any, turn: _Turn) -> Any:
    made = copy.copy(client)
    made._wrapped = client  # noqa: SLF001 - which closes the connections of both when it is let go
    made._models = copy.copy(client.models)  # noqa: SLF001 - it has no public way to make another
    made._aio = copy.copy(client.aio)  # noqa: SLF001
    made._aio._models = copy.copy(client.aio.models)  # noqa: SLF001
    for models, is_async in ((made.models, False), (made.aio.models, True)):
        for name, streams in (("generate_content", False), ("generate_content_stream", True)):
            _put(models, name, turn, "gemini", _begin_gemini, is_async=is_async, streams=streams)
    return made


_WRAPPERS: Mapping[str, Callable[[Any, _Turn], Any]] = {
    "openai": _openai,
    "anthropic": _anthropic,
    "google": _gemini,
}
