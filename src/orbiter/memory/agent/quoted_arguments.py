"""What a model gave our own tools: the arguments of its calls repeat what was remembered of them.

What goes out of them leaves JSON of the same shape, so that the call is as legal as before.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from orbiter.memory.model.own_output import own_calls
from orbiter.memory.model.tool_calls import ARGUMENTS

__all__ = ["STRUCK", "are_in_calls", "strike_calls"]

STRUCK = "(forgotten)"
"""What stands in the place of a line that repeated a memory."""

_Quotes = Callable[[str], bool]
_Strike = Callable[[str], str]

_TOGETHER = (
    ("{key} is {value}", "value"),
    ("{entityName}: {contents}", "contents"),
    ("{entityName}: {observations}", "observations"),
    ("{name}: {observations}", "observations"),
    ("{name} ({entityType})", "name"),
    ("{from} {relationType} {to}", "to"),
)
"""What arguments say together, and which of them goes if that is forgotten."""


def are_in_calls(value: object, quotes: _Quotes, strike: _Strike) -> bool:
    """Tell whether the arguments of a call of ours in the JSON *value* repeat something."""
    return any(_struck(call, quotes, strike) != call for call in own_calls(value))


def strike_calls(value: object, quotes: _Quotes, strike: _Strike) -> None:
    """Change the calls of ours in the JSON *value* so that they have nothing that *quotes* finds.

    *strike* does that for a text.
    """
    for call in own_calls(value):
        call.update(_struck(call, quotes, strike))


def _struck(call: Mapping[str, Any], quotes: _Quotes, strike: _Strike) -> dict[str, Any]:
    return {
        name: _without(each, quotes, strike) if name in ARGUMENTS else each
        for name, each in call.items()
    }


def _without(value: Any, quotes: _Quotes, strike: _Strike) -> Any:
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            read = json.loads(value)
            if isinstance(read, dict | list):
                struck = _without(read, quotes, strike)
                return value if struck == read else json.dumps(struck, ensure_ascii=False)
        return strike(value)
    if isinstance(value, list):
        return [_without(each, quotes, strike) for each in value]
    if not isinstance(value, dict):
        return value
    struck = {name: _without(each, quotes, strike) for name, each in value.items()}
    for form, last in _TOGETHER:
        with suppress(KeyError):  # not what these arguments are
            if isinstance(value[last], list) and last != "value":
                told = [form.format_map({**value, last: each}) for each in value[last]]
                struck[last] = [
                    STRUCK if quotes(text) else each
                    for text, each in zip(told, struck[last], strict=True)
                ]
            elif quotes(form.format_map(value)):
                struck[last] = STRUCK
    return struck
