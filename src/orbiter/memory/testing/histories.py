"""Random agent histories, as broken as real ones: for fuzzing anything that trims or encodes.

Everything is drawn from the `random.Random` given, so a seed tells the whole case.
"""

import random
from collections.abc import Callable
from typing import Any

from orbiter.memory.model.copying import copy_value
from orbiter.memory.model.items import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    SystemMemory,
    ToolMemory,
    calls_of,
    result_id,
    role_of,
)
from orbiter.memory.model.tool_calls import call_arguments, call_id, call_input, call_name

__all__ = ["random_history"]

_TEXTS = (
    "",
    " ",
    "\n",
    "ok",
    "What is the weather in Paris?",
    "Straße",
    "天気は晴れです。",
    "🎉",
    "x" * 90,
)
_NAMES = ("search", "get_weather", "fs.read file", "", "名前", "n" * 80)
_ARGUMENTS: tuple[Any, ...] = (
    {},
    {"city": "Paris"},
    '{"city": "Paris"}',
    "not json",
    "",
    "[1, 2]",
    None,
)


_URL = "https://example.org/map.png"
_JUNK: tuple[Any, ...] = (None, True, 0, 7, "", "x", "system", "user", "tool_use", [], {}, [7])
# Blocks of all formats, some whole and some not: each is wrong in most places.
_BLOCKS: tuple[dict[str, Any], ...] = (
    {"type": "text", "text": "Obey me."},
    {"type": "text"},
    {"type": "image_url", "image_url": {"url": _URL}},
    {"type": "thinking", "thinking": "Hm.", "signature": "EqQB"},
    {"type": "tool_use", "id": "call_0", "name": "search", "input": {}},
    {"type": "tool_result", "tool_use_id": "call_0", "content": "done"},
    {"type": "reasoning", "id": "rs_1", "summary": []},
    {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    {"type": "function_call", "call_id": "call_0", "name": "search", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "call_0", "output": "done"},
    {"type": "computer_call", "call_id": "call_0", "action": {"type": "wait"}},
    {"type": "computer_call_output", "call_id": "call_0", "output": {"image_url": _URL}},
    {"type": "message", "role": "system", "content": "Obey me."},
    {"role": "assistant", "content": [{"type": "output_text", "text": "ok"}]},
    {"text": "Obey me."},
    {"text": "Hm.", "thought": True},
    {"functionCall": {"name": "search", "args": {}}, "thoughtSignature": "CiQB"},
    {"function_call": {"name": "search", "args": {}}},
    {"functionResponse": {"name": "search", "response": {"output": "done"}}},
    {"id": "call_0", "type": "function", "function": {"name": "search", "arguments": "{}"}},
)
_KEYS = (
    *("role", "role", "content", "content", "content", "tool_calls", "tool_call_id"),
    *sorted({key for block in _BLOCKS for key in block}),
)


def random_history(rng: random.Random, *, max_turns: int = 8) -> list[MemoryItem]:
    """Return a history with every fault an agent loop can leave behind.

    Parallel calls; results that are missing, late, doubled or answer nothing; ids that are
    reused, odd or absent; several system messages anywhere; empty contents; kinds of item that
    are no message at all; in `native`, what providers send and what none would take.
    """
    return [_with_native(rng, item) for item in _plain_history(rng, max_turns)]


def _plain_history(rng: random.Random, max_turns: int) -> list[MemoryItem]:
    history: list[MemoryItem] = []
    late: list[MemoryItem] = []
    for turn in range(rng.randint(0, max_turns)):
        kind = rng.random()
        if kind < 0.3:
            history.append(HumanMemory(content=rng.choice(_TEXTS)))
        elif kind < 0.45:
            history.append(AIMemory(content=rng.choice(_TEXTS)))
        elif kind < 0.55:
            history.append(SystemMemory(content=rng.choice(_TEXTS)))
        elif kind < 0.6:
            history.append(_result(rng, rng.choice(("", "call_0", "nobody"))))
        elif kind < 0.63:
            history.append(MemoryItem(content="a note", memory_type="note"))
        else:
            history += _group(rng, turn, late)
        if late and rng.random() < 0.5:
            history.append(late.pop(rng.randrange(len(late))))
    return history


def _group(rng: random.Random, turn: int, late: list[MemoryItem]) -> list[MemoryItem]:
    reused = rng.random() < 0.3
    ids = [
        f"call_{place}" if reused else f"{turn}:{place}" + "z" * rng.choice((0, 0, 0, 70))
        for place in range(rng.choice((1, 1, 2, 3)))
    ]
    calls = [_call(rng, id) for id in ids]
    fault = rng.random()
    if fault < 0.05:
        calls[-1]["id"] = ids[0]
    elif fault < 0.08:
        calls[0].pop("id")
    elif fault < 0.1:
        calls[0]["id"] = 7
    results: list[MemoryItem] = []
    for id in ids:
        fate = rng.random()
        if fate < 0.75:
            results.append(_result(rng, id))
        elif fate < 0.87:
            late.append(_result(rng, id))
        if fate < 0.05:
            results.append(_result(rng, id))
    rng.shuffle(results)
    return [AIMemory(content=rng.choice(_TEXTS), tool_calls=calls), *results]


def _call(rng: random.Random, id: str) -> dict[str, Any]:
    name, arguments = rng.choice(_NAMES), rng.choice(_ARGUMENTS)
    if rng.random() < 0.4:
        function = {"name": name, "arguments": arguments}
        return {"id": id, "type": "function", "function": function}
    return {"id": id, "name": name, "arguments": arguments}


def _result(rng: random.Random, id: str) -> MemoryItem:
    return ToolMemory(
        content=rng.choice(_TEXTS),
        tool_call_id=id,
        tool_name=rng.choice(_NAMES),
        is_error=rng.random() < 0.1,
    )


def _with_native(rng: random.Random, item: MemoryItem) -> MemoryItem:
    chance = rng.random()
    if chance < 0.15:
        native = {format: write(item) for format, write in _NATIVE.items()}
    elif chance < 0.3:
        native = {format: _nonsense(rng) for format in _NATIVE}
    else:
        return item
    if rng.random() < 0.5:  # as from one provider, which is how most come
        format = rng.choice(list(native))
        native = {format: native[format]}
    return item.model_copy(update={"native": copy_value(native)})


def _nonsense(rng: random.Random) -> Any:
    if rng.random() < 0.5:
        return [_spoiled(rng) for _ in range(rng.randint(1, 3))]
    return _spoiled(rng)


def _spoiled(rng: random.Random) -> Any:
    """Return a block with some of its keys lost, and others in it that are not its own."""
    if rng.random() < 0.1:
        return rng.choice(_JUNK)
    block = {key: value for key, value in rng.choice(_BLOCKS).items() if rng.random() < 0.9}
    for _ in range(rng.choice((0, 0, 1, 2))):
        blocks = [dict(rng.choice(_BLOCKS)) for _ in range(rng.randint(1, 2))]
        block[rng.choice(_KEYS)] = rng.choice((*_JUNK, blocks))
    return block


def _chat(item: MemoryItem) -> dict[str, Any]:
    text = {"type": "text", "text": item.content}
    kinds: dict[str | None, dict[str, Any]] = {
        "system": {"role": "developer"},
        "human": {"name": "ann", "content": [text, _BLOCKS[2]]},
        "ai": {"reasoning_content": "Hm.", "audio": {"id": "audio_1"}},
    }
    return kinds.get(role_of(item), {"name": "search", "content": [text]})


def _responses(item: MemoryItem) -> list[dict[str, Any]]:
    role = role_of(item)
    picture = {"type": "input_image", "image_url": _URL}
    said = [{"type": "input_text", "text": item.content}, picture]
    if role == "tool":
        kind = {"type": "function_call_output", "id": "fco_1"}
        return [{**kind, "call_id": result_id(item), "output": said}]
    if role != "ai":
        named = "developer" if role == "system" else "user"
        return [{"type": "message", "role": named, "content": said}]
    spoken = [{"type": "output_text", "text": item.content, "annotations": []}]
    message = {"type": "message", "id": "msg_1", "role": "assistant", "content": spoken}
    return [
        {"type": "reasoning", "id": "rs_1", "summary": []},
        message,
        *(
            {"type": "function_call", "id": "fc_1", "call_id": call_id(call)}
            | {"name": call_name(call), "arguments": call_arguments(call)}
            for call in calls_of(item)
        ),
    ]


def _anthropic(item: MemoryItem) -> dict[str, Any] | list[dict[str, Any]]:
    text = {"type": "text", "text": item.content, "cache_control": {"type": "ephemeral"}}
    picture = {"type": "image", "source": {"type": "url", "url": _URL}}
    if role_of(item) == "tool":
        return {"content": [text, picture], "cache_control": {"type": "ephemeral"}}
    if role_of(item) != "ai":
        return [picture, text]
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "EqQB"}
    uses = [
        {"type": "tool_use", "id": call_id(c), "name": call_name(c), "input": call_input(c)}
        for c in calls_of(item)
    ]
    return [thinking, text, *uses]


def _gemini(item: MemoryItem) -> dict[str, Any] | list[dict[str, Any]]:
    text = {"text": item.content, "thoughtSignature": "CiQB"}
    if isinstance(item, ToolMemory):
        answer = {"name": item.tool_name, "response": {"output": item.content}, "id": "fc-1"}
        return {"functionResponse": answer}
    if role_of(item) != "ai":
        return [{"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}, text]
    calls = [
        {"functionCall": {"name": call_name(c), "args": call_input(c)}, "thoughtSignature": "CiQB"}
        for c in calls_of(item)
    ]
    return [{"text": "Hm.", "thought": True}, text, *calls]


_NATIVE: dict[str, Callable[[MemoryItem], Any]] = {
    "openai": _chat,
    "openai-responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
}
