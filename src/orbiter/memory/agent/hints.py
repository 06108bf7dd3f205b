"""Hints: what somebody meant who wrote a name that is not there, or a filter that fits nothing.

An unknown keyword is a `TypeError` and an unknown method an `AttributeError`; each names the
nearest one there is.
"""

import inspect
import warnings
from collections.abc import Callable, Coroutine, Sequence, Sized
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from orbiter.memory.model.filters import FIELDS, Exists, Where, parse_where
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.model.query import SCOPE_FIELDS

__all__ = [
    "CHAT_NAME",
    "advised",
    "nearest",
    "too_many_values",
    "unknown_attribute",
    "unknown_keyword",
    "warn_of_used_key",
]

_P = ParamSpec("_P")
_SizedT = TypeVar("_SizedT", bound=Sized)
_ListingT = TypeVar("_ListingT", bound="_Listing")

CHAT_NAME = 'a name, such as `chat("main")`; `chats()` lists those there are'
"""What a call of `chat` needs."""

_MEANINGS = {
    # Arguments
    "rounds": "last n turns",
    "budget": "limit max_length max_tokens n size tokens",
    "k limit memory_limit": "k limit count max max_results memories n n_results num size top top_k",
    "query task": "content message q query question search text",
    "what": "content message messages text texts",
    "where": "filter filters",
    "min_relevance": "min_score score score_threshold similarity threshold",
    "memory_type tags": "category kind type",
    "since": "after from_date start",
    "until": "before end to_date",
    "cursor": "offset page skip",
    "tags": "label labels",
    "extra": "meta metadata",
    "session_id": "run_id",
    "importance": "priority weight",
    "created_at": "at date time timestamp when",
    "expires": "expire expires_at expires_in expiry ttl",
    "idempotency_key": "id key",
    "format": "provider",
    "chat": "conversation session session_id thread thread_id",
    # Methods
    "put add remember": "add add_message add_user_message append insert save set store update",
    "remember_many": "add_documents add_many add_texts",
    "recall": "ask find get_relevant_documents query retrieve search similarity_search",
    "end forget": "clear delete delete_all pop remove reset",
    "all list": "find_all get_all items list values",
    "messages": "get_messages history",
    "scope": "for_user user",
    "flush": "ready wait",
}
"""What other libraries call our arguments and methods; the first of ours that there is is named."""

_WAYS = {
    "ScopedMemory": {
        "count size total": "`stats().items` counts memories, `count_by(field)` by a field",
        "build_context context get_context prompt": (
            "`chat(name).context(task)` builds one; a new name gives memories alone"
        ),
        "dump export save_to to_file": "`orbiter.memory.transfer.export_file(alice, path)`",
        "import_ load load_from": "`orbiter.memory.transfer.import_file(alice, path)`",
    },
    "Chat": {
        "clear delete erase forget remove reset": (
            'the handle of its user forgets it: `forget(where={"session_id": chat.id})`'
        ),
    },
}
"""What is done otherwise, by the class that somebody looked for it in."""

_PERSONA = ("character", "instructions", "persona", "soul", "system", "system_prompt")

_LIBRARY = __name__.partition(".agent.")[0]
_HANDLES = (f"{_LIBRARY}.agent", f"{_LIBRARY}.sync")
"""Where handles are, and their blocking forms: whoever calls them stands above these."""
_COMMANDS = f"{_LIBRARY}.cli"
"""What prints warnings as notes."""


def _most_alike(name: str, names: Sequence[str]) -> str | None:
    from difflib import get_close_matches  # noqa: PLC0415 - for errors alone

    # With less in common, `size` would be taken for `since`, and `text` for `extra`.
    return next(iter(get_close_matches(name, names, n=1, cutoff=0.7)), None)


def nearest(name: str, names: Sequence[str]) -> str | None:
    """Return which of *names* somebody who wrote *name* most likely meant, if any."""
    ours = (each for each, others in _MEANINGS.items() if name in others.split())
    meant = (each for row in ours for each in row.split() if each in names)
    return next(meant, None) or _most_alike(name, names)


def unknown_keyword(call: str, name: str, names: Sequence[str]) -> TypeError:
    """Return the error for a keyword that *call* does not take; *names* are those it does."""
    meant = nearest(name, names)
    scope = name if name in SCOPE_FIELDS else f"{name}_id"
    if meant is not None:
        way = f"did you mean `{meant}`?"
    elif scope in SCOPE_FIELDS and call == "AgentMemory":
        way = (
            f"it holds everyone's memories: `AgentMemory(…).scope({scope}=…)` is the handle of one"
        )
    elif scope in SCOPE_FIELDS:
        way = f"the handle says whose it is: `memory.scope({scope}=…).{call}(…)`"
    elif name == "infer":
        way = "what is given is stored as it is; `MemoryOrchestrator` derives facts, with a model"
    elif call == "context" and name in _PERSONA:
        way = "the persona is the memory's: `AgentMemory(…, persona=…)`"
    elif "what" in names and name in ("author", "name", "role", "speaker"):
        way = f'it is part of the message: `{call}({{"role": …, "content": …}})`'
    elif "where" in names and name in ("importance", "source", "tag", "tags"):
        field = "tags" if name == "tag" else name
        way = f'did you mean `where={{"{field}": …}}`?'
    else:
        way = f"it takes `{'`, `'.join(names)}`" if names else "it takes none"
    return TypeError(f"`{call}` got an unexpected keyword argument `{name}`; {way}")


def too_many_values(
    call: str, args: Sequence[object], names: Sequence[str], *, most: int
) -> TypeError:
    """Return the error for more than *most* values without a name; *names* are all it takes."""
    others = names[most:]
    way = f"name the others: `{'`, `'.join(others)}`" if others else "leave the others out"
    if names[:1] == ["what"] and args[0] in ("assistant", "system", "tool", "user"):
        way = f'a message is one dict: `{call}({{"role": {args[0]!r}, "content": …}})`'
    values = "1 positional argument" if most == 1 else f"{most} positional arguments"
    return TypeError(f"`{call}` takes {values}, not {len(args)}; {way}")


def unknown_attribute(owner: object, name: str, *, handle: type | None = None) -> AttributeError:
    """Return the error for what *owner* does not have, with what it is called here, if it is.

    *handle* is what *owner* makes for each user, which may have it.
    """
    text = f"{type(owner).__name__!r} object has no attribute {name!r}"
    way = None if name.startswith("_") else _way_to(type(owner), name, handle)
    # Without `name`, or Python would suggest another one behind it.
    return AttributeError(f"{text}; {way}" if way else text)


def _way_to(cls: type, name: str, handle: type | None) -> str | None:
    for names, way in _WAYS.get(cls.__name__, {}).items():
        if name in names.split():
            return way
    if handle is not None and hasattr(handle, name):
        theirs: str | None = name
    elif meant := nearest(name, _public(cls)):
        return f"did you mean `{meant}`?"
    else:
        theirs = nearest(name, _public(handle)) if handle is not None else None
    return theirs and (
        f"a user's handle has: `memory.scope(user_id=…).{theirs}`, or for a personal agent "
        f"`memory.default_user.{theirs}`"
    )


def _public(cls: type) -> list[str]:
    return [each for each in dir(cls) if not each.startswith("_")]


# Filters that nothing can match


class _Listing(Protocol):
    """A handle whose memories can be listed."""

    async def list(self, *, where: Where | None = None, limit: int = 50) -> "list[MemoryItem]":
        """Return the newest memories that match."""
        ...


_checked_fields: set[int] = set()
"""Hashes of the fields that were looked for already, so that each costs a search only once."""


def advised(
    method: Callable[Concatenate[_ListingT, _P], Coroutine[Any, Any, _SizedT]],
) -> Callable[Concatenate[_ListingT, _P], Coroutine[Any, Any, _SizedT]]:
    """Warn if the decorated method finds nothing and `where` names a field that no memory has."""

    @wraps(method)
    async def call(handle: _ListingT, /, *args: _P.args, **kwargs: _P.kwargs) -> _SizedT:
        result = await method(handle, *args, **kwargs)
        where = kwargs.get("where")
        if where and not result and not kwargs.get("cursor") and _is_call_of_program():
            await _warn_of_unused_fields(handle, where)
        return result

    return call


def warn_of_used_key(key: str, items: Sequence[MemoryItem], there: Sequence[MemoryItem]) -> None:
    """Warn if *key* stands for other texts than those of *items*, which are not stored then.

    What was changed since is compared with nothing: it may have had the same text.
    """
    texts = {item.id: item.content for item in items}
    is_other = any(each.version == 1 and texts.get(each.id) != each.content for each in there)
    if is_other and _is_call_of_program(or_command=True):
        warnings.warn(
            f"the `idempotency_key` `{key}` was used before, with another text: that memory is "
            "returned, and this one is not stored; use a new key for it",
            stacklevel=3,
        )


def _is_call_of_program(*, or_command: bool = False) -> bool:
    """Tell whether a call is the user's own, and not one of a server, a command or an adapter."""
    frame = inspect.currentframe()
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if not module.startswith(_HANDLES):
            is_command = or_command and module.startswith(_COMMANDS)
            return is_command or not module.startswith(_LIBRARY)
        frame = frame.f_back
    return True


async def _warn_of_unused_fields(handle: _Listing, where: Any) -> None:
    condition = parse_where(where)
    if condition is None or isinstance(condition, Exists):  # which asks just that
        return
    for name in {place.name: None for place in condition.places() if place.name not in FIELDS}:
        if hash(name) in _checked_fields:
            continue
        _checked_fields.add(hash(name))
        newest = await handle.list(limit=50)
        if not newest or await handle.list(where={name: {"$exists": True}}, limit=1):
            continue
        used = sorted({key for item in newest for key in item.metadata.extra})
        meant = nearest(name, [*used, *sorted(FIELDS)])
        way = f"did you mean `{meant}`?" if meant else f"the newest have `{'`, `'.join(used)}`"
        text = f"no memory here has the field `{name}`, by which `where` filters"
        warnings.warn(f"{text}; {way}" if meant or used else text, stacklevel=3)
