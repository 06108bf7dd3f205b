"""The calls that a server offers, read from the methods: each with its request and its arguments.

A server routes by them, its OpenAPI document is written from them, and a client sends by them.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, fields
from functools import cache, cached_property
from inspect import Parameter, signature, unwrap
from operator import attrgetter
from typing import Any, Literal

from orbiter.memory import agent
from orbiter.memory.agent.endpoint import Endpoint
from orbiter.memory.agent.interface import endpoints_of
from orbiter.memory.agent.keywords import Time
from orbiter.memory.wire.arguments import argument_codec
from orbiter.memory.wire.codecs import Codec
from orbiter.memory.wire.results import hints_of, wire_type

__all__ = [
    "HANDLES",
    "REQUIRED",
    "TARGET_PARAMS",
    "Operation",
    "Param",
    "Target",
    "operations_of",
]

Target = Literal["memory", "scope", "chat", "facts", "past", "past_facts", "audit", "kv"]
"""The class a call belongs to: `AgentMemory`, `ScopedMemory`, `Chat`, `Facts`, …"""

HANDLES: dict[Target, str] = {
    "memory": "AgentMemory",
    "scope": "ScopedMemory",
    "chat": "Chat",
    "facts": "Facts",
    "past": "PastMemory",
    "past_facts": "FactsView",
    "audit": "AuditLog",
    "kv": "KeyValue",
}

REQUIRED: Any = object()
"""The default of a parameter that has none."""

_HERE = ("self", "progress")
"""Arguments that are for the caller's own process, and not sent."""

_HEADERS = {"expected_version": "If-Match"}


@dataclass(frozen=True)
class Param:
    """One argument of a call, and where a request carries it."""

    name: str
    codec: Codec
    place: Literal["path", "query", "body", "header"]
    default: Any = REQUIRED
    wire_name: str = ""
    """What it is called on the wire; as in the call, if empty."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "wire_name", self.wire_name or self.name)


@dataclass(frozen=True)
class Operation(Endpoint):
    """One call: the method *name* of the *target*, as a request."""

    _: KW_ONLY
    target: Target
    method: Callable[..., Any]

    @property
    def id(self) -> str:
        """A name that no other call has: `chat.add`."""
        return f"{self.target}.{self.name}"

    @property
    def is_change(self) -> bool:
        """Whether it may write anything but the log of reads."""
        return self.role != "read" and not (self.verb == "GET" or self.target == "audit")

    @cached_property
    def params(self) -> tuple[Param, ...]:
        """The arguments of the method; those of its object are in `TARGET_PARAMS`."""
        hints = hints_of(unwrap(self.method))
        return tuple(
            self._param(each, hints[name])
            for name, each in signature(self.method).parameters.items()
            if name not in _HERE and each.kind is not Parameter.VAR_KEYWORD
        )

    def _param(self, argument: Parameter, hint: Any) -> Param:
        name = argument.name
        default = REQUIRED if argument.default is Parameter.empty else argument.default
        codec = argument_codec(name, hint, default)
        header = _HEADERS.get(name, "")
        if header:
            return Param(name, codec, "header", default, header)
        of_target = [each.name for each in TARGET_PARAMS[self.target]]
        if f"{{{name}}}" in self.path and name not in of_target:
            return Param(name, codec, "path", default)
        return Param(name, codec, "query" if self.verb in ("GET", "DELETE") else "body", default)

    @cached_property
    def returns(self) -> Codec:
        """What it returns."""
        hint = hints_of(unwrap(self.method))["return"]
        if hint is type(None):
            return Codec(dict[str, object], dump_value=lambda _: {}, load_value=lambda _: None)
        if self.id == "chat.fork":  # the other side makes a `Chat` of its own
            return Codec(wire_type(str), self.answer, dump_value=attrgetter("id"))
        if self.is_absent_404:  # nothing is told by the status
            hint = hint.__args__[0] if type(None) in getattr(hint, "__args__", ()) else hint
        return Codec(wire_type(hint), self.answer)

    @property
    def returns_page(self) -> bool:
        """Whether it returns a page of memories."""
        return self.name == "list" and self.target in ("scope", "past")


@cache
def operations_of(target: Target) -> dict[str, Operation]:
    """Return the calls of one class by the name of the method."""
    found = {}
    for name, (endpoint, method) in endpoints_of(getattr(agent, HANDLES[target])).items():
        declared = {each.name: getattr(endpoint, each.name) for each in fields(Endpoint)}
        verb, path = endpoint.verb, endpoint.path
        request = f"{verb} past/{path}" if target == "past_facts" else endpoint.request
        named = {**declared, "name": name, "request": request}
        found[name] = Operation(**named, target=target, method=method)
    return found


_MOMENT = (Param("moment", argument_codec("moment", Time, REQUIRED), "query"),)
TARGET_PARAMS: dict[Target, tuple[Param, ...]] = {
    **dict.fromkeys(HANDLES, ()),
    "chat": (Param("chat_id", argument_codec("chat_id", str, REQUIRED), "path"),),
    "past": _MOMENT,
    "past_facts": _MOMENT,
}
"""What names the object of a call, beside its scope."""
