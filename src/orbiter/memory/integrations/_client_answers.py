"""Answers of providers as a chat takes them: whole, legal, and put together from a stream."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orbiter.memory.messages import Format, Message, as_plain

__all__ = ["Pieces", "as_remembered"]

Body = dict[str, Any]


def as_remembered(answer: object, format: Format, prefill: Sequence[Message] = ()) -> Any:
    """Return what a chat keeps of an answer; `None` if it keeps nothing."""
    whole = _without_cut(_first_choice(answer), format)
    return _joined(prefill, whole, format) if prefill and whole is not None else whole


def _first_choice(answer: object) -> Any:
    """Return an answer with one of its alternatives: a chat has one answer to a question."""
    plain = as_plain(answer)
    for name in ("choices", "candidates"):
        if isinstance(plain, Mapping) and isinstance(several := plain.get(name), list):
            return {**plain, name: several[:1]}
    return plain


def _joined(prefill: Sequence[Message], answer: Any, format: Format) -> Any:
    """Return an answer with its prefill as the model means it.

    Claude and Gemini go on in the middle of it; models of OpenAI answer after it.
    """
    name = {"anthropic": "content", "gemini": "parts"}.get(format)
    if name is None or not isinstance(answer, Mapping):
        return [*prefill, answer]
    if candidates := answer.get("candidates"):
        answer = candidates[0].get("content") or {}
    blocks = [block for each in prefill for block in _blocks(each.get(name))]
    more = _blocks(answer.get(name))
    if blocks and more and _is_text(blocks[-1]) and _is_text(more[0]):
        more[0] = {**more[0], "text": blocks.pop()["text"] + more[0]["text"]}
    return {"role": prefill[-1].get("role"), name: [*blocks, *more]}


def _blocks(content: Any) -> list[Body]:
    is_text = isinstance(content, str)
    return [{"type": "text", "text": content}] if is_text else list(content or ())


def _is_text(block: Body) -> bool:
    return isinstance(block.get("text"), str) and not block.get("thought")


# A call whose input was cut off can never be answered


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
    _refusal: str = ""
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
        refusal = {"refusal": self._refusal} if self._refusal else {}
        return {"role": "assistant", "content": self._text or None, **refusal, **calls}

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
            self._refusal += getattr(delta, "refusal", None) or ""
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
