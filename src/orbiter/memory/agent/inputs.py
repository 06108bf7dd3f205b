"""Input validation: texts, messages and items as items of one scope. Pure functions."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, Protocol

from orbiter.memory._lazy import lazy_pattern
from orbiter.memory.agent.keywords import ScopeId, Time, as_name, read_time
from orbiter.memory.errors import AccessError, MessageError, QueryError
from orbiter.memory.model.copying import copy_item, copy_metadata, item_of_text
from orbiter.memory.model.items import (
    INDEXED_BY,
    RESERVED,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    is_indexed,
    role_of,
)
from orbiter.memory.model.query import SCOPE_FIELDS, check_instant, require_text
from orbiter.memory.model.reserved import check_shapes, refuse_reserved
from orbiter.memory.model.trust import read_source, with_trust
from orbiter.memory.model.validation import Json
from orbiter.memory.text.redaction import is_all_private, without_private

if TYPE_CHECKING:
    from orbiter.memory.messages import Format, OpenCalls

__all__ = [
    "EDITED",
    "Given",
    "Index",
    "as_message",
    "belongs",
    "check_not_private",
    "check_readable",
    "check_text",
    "date_items",
    "derived_id",
    "join_parts",
    "labels",
    "narrowed",
    "read",
    "read_end",
    "read_flag",
    "read_many",
    "read_messages",
    "within",
]


class Dumpable(Protocol):
    """A message as providers' own clients return it."""

    def model_dump(self, *, exclude_none: bool = False) -> dict[str, Any]:
        """Return its fields."""
        ...


class WithParts(Protocol):
    """A message of Pydantic AI: a request or a response."""

    @property
    def kind(self) -> str:
        """Return which of both it is."""
        ...

    @property
    def parts(self) -> Sequence[object]:
        """Return what it holds."""
        ...


Given = str | MemoryItem | Mapping[str, object] | Dumpable | WithParts
"""What can be remembered: a text, an item, or a provider's message, as a dict or an object."""

Index = bool | Sequence[str]
"""Whether recall may return it, or the texts by which it is found instead of its content."""

EDITED = "edited"
"""The key in `metadata.extra` that says that the text is not its source's any more."""

_WHICH = lazy_pattern(r"^message (\d+)")
"""How it is told which message cannot be read."""

ALL_PRIVATE = "there is nothing to store: all of it is marked as private"

_ROLES = ("user", "human", "assistant", "ai", "system", "tool")


def check_text(text: object, *, may_be_blank: bool = False) -> None:
    """Raise `QueryError` for what is no text, or says nothing."""
    if not isinstance(text, str):
        raise QueryError(f"a memory must be a string, not {text!r}")
    if not may_be_blank and not text.strip():
        raise QueryError("there is nothing to store: the text is empty")


def check_not_private(what: Json) -> None:
    """Raise `QueryError` for a text, or other JSON, of which nothing may be stored."""
    if is_all_private(what):
        raise QueryError(ALL_PRIVATE)


def labels(
    tags: Sequence[str] | None,
    importance: float | None,
    source: str | None,
    extra: Mapping[str, object] | None,
    *,
    index: Index | None = None,
) -> dict[str, object]:
    """Return what `metadata.extra` is to hold, checked."""
    if tags is None and importance is None and source is None and extra is None and index is None:
        return {}
    if not isinstance(extra, Mapping | None):
        raise QueryError(f"`extra` must be a mapping, not {extra!r}")
    extras: dict[str, object] = dict(extra or {})
    refuse_reserved(extras)
    named = {"tags": tags, "importance": importance, "source": source}
    for name, value in named.items():
        if value is not None and name in extras:
            raise QueryError(f"`{name}` is given twice, by itself and in `extra`")
    if tags is not None:
        if isinstance(tags, str) or not isinstance(tags, Iterable):
            raise QueryError(f"`tags` must be a list of strings, not {tags!r}")
        extras["tags"] = list(dict.fromkeys(require_text("tags", tag) for tag in tags))
    if importance is not None:
        if isinstance(importance, bool) or not isinstance(importance, int | float):
            raise QueryError(f"`importance` must be a number from 0 to 1, not {importance!r}")
        if not 0 <= importance <= 1:
            raise QueryError(f"`importance` must be from 0 to 1, not {importance}")
        extras["importance"] = importance
    if source is not None:
        extras["source"] = require_text("source", source)
    by = {} if index is None else {INDEXED_BY: _read_index(index)}
    return _sourced({**extras, **by})


def _read_index(index: object) -> bool | list[str]:
    if isinstance(index, bool):
        return index
    if isinstance(index, str) or not isinstance(index, Sequence) or not index:
        raise QueryError(f"`index` must be True, False or a list of texts, not {index!r}")
    texts = list(dict.fromkeys(require_text("index", text) for text in index))
    if not all(text.strip() for text in texts):
        raise QueryError("a text of `index` is empty; leave it out")
    return texts


def read_flag(index: object) -> Literal[False] | None:
    """Return what `labels` is told of several memories: nothing, unless they are not indexed."""
    if isinstance(index, bool):
        return None if index else False
    more = "; texts are for one memory: use `remember`" if isinstance(index, Sequence) else ""
    raise QueryError(f"`index` must be True or False, not {index!r}{more}")


def _sourced(extra: Mapping[str, object]) -> dict[str, object]:
    """Return labels in which source and trust stand together; one without the other is no use."""
    extras = dict(extra)
    label = extras.get("source")
    if isinstance(label, str) and label.strip():
        extras["source"] = read_source(label)
    return with_trust(extras)


def date_items(
    items: Sequence[MemoryItem],
    created_at: Time | None,
    expires: Time | timedelta | None,
) -> None:
    """Date new items; they are copies that nobody has seen."""
    if created_at is not None:
        moment = check_instant("created_at", read_time("created_at", created_at))
        for item in items:
            item.__dict__["created_at"] = item.__dict__["updated_at"] = moment
    end = read_end(expires)
    for item in items if end is not None else ():
        item.__dict__["expires_at"] = end


def read_end(expires: Time | timedelta | None, *, ways: str = " or a timedelta") -> datetime | None:
    """Return the instant at which something is to be gone, given as one or as a time from now.

    *ways* says what it may be but a datetime.
    """
    if expires is None:
        return None
    now = datetime.now(UTC)
    if isinstance(expires, timedelta):
        try:
            end = now + expires
        except OverflowError:
            raise QueryError(f"`expires` is out of range: {expires}") from None
    elif isinstance(expires, datetime):
        end = check_instant("expires", expires)
    else:
        raise QueryError(f"`expires` must be a datetime{ways}, not {expires!r}")
    if end <= now:
        raise QueryError(
            f"`expires` is in the past: {end.isoformat(timespec='seconds')}; give a time in the "
            "future, or `forget` the memory"
        )
    return end


def read(
    what: Given, scope: MemoryMetadata, extra: Mapping[str, object], format: "Format | None"
) -> MemoryItem:
    """Return *what* as one item of *scope*."""
    if isinstance(what, str):
        check_text(what)
        items = without_private([item_of_text(MemoryItem, what, within(scope, None, extra))])
    else:
        items = read_messages([what], scope, extra, format, as_human=False)
    if not items:
        raise QueryError(ALL_PRIVATE)
    if len(items) != 1:
        raise QueryError(
            f"this message contains {len(items)} memories, such as several tools' results; use "
            "`remember_many([message])`"
        )
    return items[0]


def read_messages(
    what: Given | Sequence[Given],
    scope: MemoryMetadata,
    extra: Mapping[str, object],
    format: "Format | None",
    *,
    as_human: bool,
    open_calls: "OpenCalls | None" = None,
) -> list[MemoryItem]:
    """Return *what* as items of *scope*, in order; a text is a person's words, or a plain item.

    What is marked as private is not in them; a message of only that is left out.

    With *open_calls* it goes on with a conversation: calls get ids, and results are those of calls.
    """
    read_in = _read_all(what, scope, extra, format, as_human=as_human, open_calls=open_calls)
    return without_private(read_in)


def read_many(
    things: Sequence[Given],
    scope: MemoryMetadata,
    extra: Mapping[str, object],
    format: "Format | None",
) -> list[MemoryItem]:
    """Return *things* as items of *scope*, in order, if none of them is private as a whole."""
    items = _read_all(things, scope, extra, format, as_human=False)
    kept = without_private(items)
    if len(kept) < len(items):
        from orbiter.memory.messages import OpenCalls  # noqa: PLC0415 - as below

        for place, thing in enumerate(things):
            with suppress(MessageError):  # a part of a message, which says nothing by itself
                calls = OpenCalls(orphans="note")
                alone = _read_all([thing], scope, {}, format, as_human=False, open_calls=calls)
                if alone and not without_private(alone):
                    raise QueryError(f"message {place}: {ALL_PRIVATE}")
    return kept


def _read_all(
    what: Given | Sequence[Given],
    scope: MemoryMetadata,
    extra: Mapping[str, object],
    format: "Format | None",
    *,
    as_human: bool,
    open_calls: "OpenCalls | None" = None,
) -> list[MemoryItem]:
    """Return *what* as `read_messages` does, with what is private."""
    is_list = isinstance(what, Sequence) and not isinstance(what, str | bytes)
    things: Sequence[Any] = what if is_list else [what]  # type: ignore[assignment]  # told above
    if isinstance(what, tuple) and len(what) == 2 and what[0] in _ROLES:
        raise QueryError(
            f"{what!r} would be two messages; write {{'role': {what[0]!r}, 'content': {what[1]!r}}}"
        )
    items: list[MemoryItem] = []
    messages: list[tuple[int, Any]] = []  # those that stand together, as one may go on with another
    for place, thing in enumerate(things):
        if not isinstance(thing, str | MemoryItem):
            messages.append((place, thing))
            continue
        items += _read_together(messages, scope, extra, format, open_calls)
        messages = []
        if isinstance(thing, MemoryItem):
            item = copy_item(thing)
            if open_calls is not None:
                open_calls.take(item, place)
            items.append(_placed(item, scope, extra))
            continue
        if open_calls is not None:
            open_calls.speak()
        check_text(thing)
        kind = HumanMemory if as_human else MemoryItem
        items.append(item_of_text(kind, thing, within(scope, None, extra)))
    return items + _read_together(messages, scope, extra, format, open_calls)


def _read_together(
    messages: Sequence[tuple[int, object]],
    scope: MemoryMetadata,
    extra: Mapping[str, object],
    format: "Format | None",
    open_calls: "OpenCalls | None",
) -> list[MemoryItem]:
    """Return the items of messages that stand together; each comes with its place in the list."""
    if not messages:
        return []
    # Here, as most of what is remembered is a text.
    from orbiter.memory.messages import (  # noqa: PLC0415
        OpenCalls,
        check_is_whole,
        read_on,
        read_shape,
    )

    messages = _with_joined_parts(messages)
    calls = OpenCalls() if open_calls is None else open_calls
    runs: list[tuple[Format, datetime | None, list[tuple[int, dict[str, Any]]]]] = []
    for place, what in messages:
        message, at = _without_time(as_message(what))
        with _naming([place], what):
            check_is_whole(message, type(what).__name__)
            shapes = read_shape(message, format)
        for form, each in shapes:
            if not runs or runs[-1][:2] != (form, at):
                runs.append((form, at, []))
            runs[-1][2].append((place, each))
    items = []
    for form, at, run in runs:
        only = messages[0][1] if len(messages) == 1 else None
        with _naming([place for place, _ in run], only):
            of_run = read_on([each for _, each in run], form, calls)
        date_items(of_run, at, None)
        items += of_run
    return [_placed(_with_speaker(item), scope, extra) for item in items]


def _without_time(message: Mapping[str, Any]) -> tuple[Mapping[str, Any], datetime | None]:
    """Return a message without `created_at`, and that time: no provider takes it back."""
    if "created_at" not in message or "role" not in message:
        return message, None
    at = message["created_at"]
    if isinstance(at, int | float) and not isinstance(at, bool):  # as OpenAI's threads have it
        at = datetime.fromtimestamp(at, UTC)
    moment = None if at is None else check_instant("created_at", read_time("created_at", at))
    return {name: each for name, each in message.items() if name != "created_at"}, moment


def join_parts(things: Sequence[object]) -> list[object]:
    """Return *things* with those in a row that are one message as that.

    These are `Part` objects of Gemini, and the events of a stream of Bedrock.
    """
    return [thing for _, thing in _with_joined_parts(list(enumerate(things)))]


def _with_joined_parts(things: Sequence[tuple[int, object]]) -> list[tuple[int, object]]:
    if any(isinstance(thing, Mapping) and "messageStart" in thing for _, thing in things):
        things = _with_joined_events(things)
    if all(isinstance(thing, str | Mapping | MemoryItem) for _, thing in things):
        return list(things)
    from orbiter.memory import messages  # noqa: PLC0415 - as above

    pairs: list[tuple[int, object]] = []
    for is_part, group in groupby(things, lambda pair: messages.is_part(pair[1])):
        run = list(group)
        place = run[0][0]
        joined = (
            [(place, messages.join_parts([part for _, part in run], place))] if is_part else run
        )
        pairs += joined
    return pairs


def _with_joined_events(things: Sequence[tuple[int, object]]) -> list[tuple[int, object]]:
    from orbiter.memory.messages import is_converse_event, join_events  # noqa: PLC0415 - as above

    joined: list[tuple[int, object]] = []
    streams: dict[int, list[Any]] = {}
    for place, thing in things:
        is_first = isinstance(thing, Mapping) and "messageStart" in thing
        if is_first or not (is_converse_event(thing) and joined and joined[-1][0] in streams):
            joined.append((place, thing))
            streams |= {place: [thing]} if is_first else {}
        else:
            streams[joined[-1][0]].append(thing)
    return [
        (place, join_events(streams[place], place) if place in streams else thing)
        for place, thing in joined
    ]


@contextmanager
def _naming(places: Sequence[int], what: object) -> Iterator[None]:
    """Say of a message that cannot be read which of all it is, and of an object its type."""
    try:
        yield
    except MessageError as exc:
        which = _WHICH.match(str(exc))
        if which is None:
            raise
        place, said = places[int(which[1])], str(exc)[which.end() :]
        if not isinstance(what, Mapping | None):
            said = f", a `{_full_name(type(what))}`{said}"
        raise type(exc)(f"message {place}{said}") from None  # it says all of it


def as_message(what: object) -> Mapping[str, Any]:
    """Return a message as plain JSON values: a dict, or what a provider's client returned."""
    from orbiter.memory.messages import as_plain, is_part, join_parts  # noqa: PLC0415 - as above

    message = join_parts([what], 0) if is_part(what) else as_plain(what)
    if not isinstance(message, Mapping):
        kind = type(what)
        name = kind.__name__ if kind.__module__ == "builtins" else _full_name(kind)
        if (call := _call_for_rows(what)) is not None:
            raise QueryError(
                f"a `{name}` cannot be stored as one memory; its rows are stored by `{call}`"
            )
        raise QueryError(
            f"a `{name}` cannot be stored; give a string, a `MemoryItem`, a provider's message, "
            "or {'role': …, 'content': …}"
            + ("; several at once: `remember_many`" if isinstance(what, list | tuple) else "")
        )
    return message


def _call_for_rows(what: object) -> str | None:
    """Return the call that stores the rows of *what*, if it is a table or a list of rows."""
    if hasattr(what, "columns") and (hasattr(what, "to_dict") or hasattr(what, "to_dicts")):
        return 'remember_many(df, text="column")'
    first = what[0] if isinstance(what, list | tuple) and what else None
    if isinstance(first, Mapping) and first and not {"role", "type"} & {*first}:
        return f'remember_many(rows, text="{next(iter(first))}")'
    return None


def check_readable(what: object) -> None:
    """Raise what names the type of an object that is a message of no format.

    For whoever sends it to a server, which would see only what it holds.
    """
    from orbiter.memory.messages import FORMATS, OpenCalls  # noqa: PLC0415 - as above

    refusal = None
    for format in (None, *FORMATS):
        try:
            calls = OpenCalls(orphans="note")
            _read_together([(0, what)], MemoryMetadata(), {}, format, calls)
        except MessageError as exc:
            refusal = refusal or exc
        else:
            return
    if refusal is not None:
        raise refusal


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _with_speaker(item: MemoryItem) -> MemoryItem:
    """Return *item* with who speaks, if its message says so; recall and filters look there."""
    native = item.native.get("openai")
    name = native.get("name") if isinstance(native, Mapping) else None
    if isinstance(name, str) and name.strip() and role_of(item) in ("human", "ai", "system"):
        extra = {"speaker": name, **item.metadata.extra}
        item.__dict__["metadata"] = item.metadata.model_copy(update={"extra": extra})
    return item


def _placed(item: MemoryItem, scope: MemoryMetadata, extra: Mapping[str, object]) -> MemoryItem:
    own = item.metadata
    if own.extra:
        check_shapes(own.extra)
        own = own.model_copy(update={"extra": _sourced(own.extra)})
    for name in SCOPE_FIELDS:
        if getattr(own, name) == "":
            raise QueryError(f"the item's `{name}` is empty; give a name, or leave it `None`")
    item.__dict__["metadata"] = within(scope, own, extra)  # it is a copy, and not changed
    if item.memory_type == "fact" and not is_indexed(item):
        raise QueryError(
            f"`{item.id}` is a fact, and a fact is always indexed, or recall could say what no "
            "longer holds; leave out `index=False`"
        )
    return item


def within(
    scope: MemoryMetadata, own: MemoryMetadata | None, extra: Mapping[str, object]
) -> MemoryMetadata:
    """Return the metadata of something of *scope*; `AccessError` if it names another's.

    What the scope has in `extra` wins: see `sign_writes`.
    """
    if own is None and not extra and not scope.extra:  # as for most texts
        return copy_metadata(scope)
    own = own or MemoryMetadata()
    fields: dict[str, Any] = {}
    for name in SCOPE_FIELDS:
        has, wants = getattr(own, name), getattr(scope, name)
        if None not in (has, wants) and has != wants:
            raise AccessError(
                f"the item names `{name}` `{has}`, this handle is for `{wants}`; remember it with "
                f"`memory.scope({name}={has!r}, …)`"
            )
        fields[name] = has if wants is None else wants
    both = {**own.extra, **extra, **scope.extra}
    return MemoryMetadata(**fields, extra=with_trust(both) if "trust" in extra else both)


def belongs(item: MemoryItem, scope: MemoryMetadata) -> bool:
    """Tell whether *item* is of *scope*: equal in every field that the scope names."""
    return all(
        getattr(scope, name) in (None, getattr(item.metadata, name)) for name in SCOPE_FIELDS
    )


def derived_id(scope: MemoryMetadata, *parts: str | int) -> str:
    """Return the id that *parts* have in *scope*: the same each time, another in each scope."""
    scope_ids = [getattr(scope, name) for name in SCOPE_FIELDS]
    digest = blake2b(json.dumps([scope_ids, *parts]).encode(), digest_size=16).hexdigest()
    return f"{RESERVED}{digest}"


def narrowed(scope: MemoryMetadata, chat_id: ScopeId) -> MemoryMetadata:
    """Return the scope of a conversation: one step narrower than *scope*."""
    name_of_chat = require_text("chat_id", as_name(chat_id))
    fields = {name: getattr(scope, name) for name in SCOPE_FIELDS}
    for name in ("session_id", "task_id"):
        if fields[name] is None:
            fields[name] = name_of_chat
            return MemoryMetadata(**fields, extra=scope.extra)
    raise QueryError(
        f"this handle is already one task of one session, `{scope.task_id}` of "
        f"`{scope.session_id}`; a chat needs a handle without `task_id`"
    )
