"""The calls of a handle on a server, made from the table that the server routes by.

A method has the name, the signature and the documentation of the local one. What is given to it is
bound as Python would, sent, and what comes back is the same value, or the same error.
"""

import inspect
import json
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar
from uuid import uuid4

from orbiter.memory.agent._observed import observed
from orbiter.memory.agent._reading import RESERVED
from orbiter.memory.client._link import Link, Request
from orbiter.memory.errors import ItemNotFoundError, MemoryConnectionError, QueryError
from orbiter.memory.items import MemoryItem
from orbiter.memory.wire import Operation, Target, operations_of, write_call

__all__ = ["Caller", "called_by"]

_Class = TypeVar("_Class", bound="type[Caller]")

_HERE = frozenset(("progress",))
"""Arguments that are for the caller's own process, and not sent."""

_ONCE = "idempotency_key"
_SPOKEN_AS = {"memory": "store.", "scope": "", "past_facts": "facts."}


class Caller:
    """Sends the calls of one object."""

    _link: Link

    def _asked(self) -> dict[str, str]:
        """Return whose memories a request is about, and who acts."""
        return {}

    def _named(self) -> Mapping[str, object]:
        """Return what names this object beside its scope."""
        return {}

    async def _call(self, operation: Operation, given: Mapping[str, Any]) -> Any:
        """Make a call with the arguments *given*; return or raise what the server does."""
        sent = _once(operation, given)
        if _is_nobodys(sent.get("item_id")):
            sent["item_id"] = RESERVED  # which is the id of nothing, too, and can be sent
        try:
            call = write_call(operation, sent, target=self._named())
        except UnicodeEncodeError as exc:
            raise QueryError(
                f"{exc.object!r} holds half a character; nothing is called so"
            ) from None
        body = None if call.body is None else json.dumps(call.body).encode()
        may_repeat = operation.is_safe_to_repeat or bool((call.body or {}).get(_ONCE))
        request = Request(
            call.verb,
            f"/v1/{call.path}",
            {**self._asked(), **call.query},
            {**call.headers, **({} if body is None else {"Content-Type": "application/json"})},
            body,
            may_repeat=may_repeat,
        )
        try:
            answer = await self._link.send(request)
        except ItemNotFoundError:
            if operation.is_absent_404:
                return None
            raise
        try:
            return operation.returns.load(answer.json())
        except (ValueError, KeyError, TypeError) as exc:
            raise MemoryConnectionError(
                f"`{self._link.address.url}` answered with something else than `{operation.id}` "
                f"returns ({type(exc).__name__}); is it of another version?"
            ) from exc


def called_by(target: Target) -> Callable[[_Class], _Class]:
    """Give the decorated class the calls of *target*, but those that it writes down itself."""

    def fill(kind: _Class) -> _Class:
        for name, operation in operations_of(target).items():
            if name not in vars(kind):
                setattr(kind, name, _method(operation, getattr(kind, name)))
        return kind

    return fill


def _method(operation: Operation, local: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(local)

    @wraps(local)
    async def call(self: Caller, /, *args: object, **kwargs: object) -> object:
        given = signature.bind(self, *args, **kwargs).arguments
        given.pop("self")
        return await self._call(operation, given)

    before = _SPOKEN_AS.get(operation.target, f"{operation.target}.")
    return observed(f"{before}{operation.name}")(call)


def _once(operation: Operation, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments to send; what must not be stored twice gets a key.

    An item brings its id along, which a key would change; it is sent once.
    """
    sent = {name: value for name, value in given.items() if name not in _HERE}
    takes_key = any(param.name == _ONCE for param in operation.params)
    if takes_key and sent.get(_ONCE) is None and not _has_item(sent):
        sent[_ONCE] = uuid4().hex
    return sent


def _is_nobodys(item_id: object) -> bool:
    """Tell whether a text is the id of nothing and cannot stand in a path."""
    return isinstance(item_id, str) and (not item_id or "\0" in item_id)


def _has_item(given: Mapping[str, Any]) -> bool:
    what = given.get("what", given.get("things"))
    things = what if isinstance(what, list | tuple) else [what]
    return any(isinstance(thing, MemoryItem) for thing in things)
