"""Random agent histories, as broken as real ones: for fuzzing anything that trims or encodes.

Everything is drawn from the `random.Random` given, so a seed tells the whole case.
"""

import random
from typing import Any

from orbiter.memory.items import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    SystemMemory,
    ToolMemory,
)

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


def random_history(rng: random.Random, *, max_turns: int = 8) -> list[MemoryItem]:
    """Return a history with every fault an agent loop can leave behind.

    Parallel calls; results that are missing, late, doubled or answer nothing; ids that are
    reused, odd or absent; several system messages anywhere; empty contents; kinds of item that
    are no message at all.
    """
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
