"""All calls and all requests that a server answers as one of them."""

from dataclasses import replace
from typing import Any

from orbiter.memory.wire.arguments import argument_codec
from orbiter.memory.wire.operations import HANDLES, REQUIRED, Operation, Param, operations_of

__all__ = ["OPERATIONS", "REST_ONLY"]

OPERATIONS: tuple[Operation, ...] = tuple(
    each for target in HANDLES for each in operations_of(target).values()
)
"""Every call, once."""


def _with_params(operation: Operation, *params: Param, **changes: Any) -> Operation:
    changed = replace(operation, **changes)
    changed.__dict__["params"] = params  # in the place of those of the method
    return changed


def _forget_one() -> Operation:
    forget = operations_of("scope")["forget"]
    _, *flags = (each for each in forget.params if each.name in ("item", "permanently", "dry_run"))
    item = Param("item", argument_codec("item_id", str, REQUIRED), "path", wire_name="item_id")
    params = (item, *(replace(each, place="query") for each in flags))
    return _with_params(forget, *params, request="DELETE memories/{item_id}")


def _context_of_scope() -> Operation:
    context = operations_of("chat")["context"]
    chat_id = Param("chat_id", argument_codec("chat_id", str, None), "body", None)
    params = (*context.params, chat_id)
    return _with_params(context, *params, request="POST context", target="scope")


REST_ONLY: tuple[Operation, ...] = (
    _forget_one(),
    *(replace(each, request=each.also) for each in OPERATIONS if each.also),
    _context_of_scope(),
)
"""Requests that are other ways to make a call."""
