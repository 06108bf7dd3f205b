"""Memory items: what is remembered, by whom, in which state.

An item checks itself when made and when a field is set, so a store never meets a bad one unless
a list or dict inside it was changed behind its back; stores take `validated_copy` for that.
"""

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StrictStr,
    field_validator,
)

from orbiter.memory.errors import ItemTypeError, StatusError
from orbiter.memory.model.display import html_table, not_a_dict, shortened
from orbiter.memory.model.fences import has_fence, without_fences
from orbiter.memory.model.own_output import hosted_answers, is_own_tool, own_calls
from orbiter.memory.model.tool_calls import ToolCall, call_id, call_input, call_name
from orbiter.memory.model.validation import Json, check_json, check_name, check_text, to_utc

__all__ = [
    "DEFAULT_USER",
    "INDEXED_BY",
    "MAX_JSON",
    "MAX_NATIVE",
    "MAX_SCOPE_ID",
    "QUOTES",
    "RESERVED",
    "SCRIPTED",
    "SPOKEN",
    "AIMemory",
    "HumanMemory",
    "MemoryItem",
    "MemoryMetadata",
    "MemoryStatus",
    "Role",
    "SystemMemory",
    "ToolMemory",
    "calls_of",
    "index_texts",
    "is_indexed",
    "is_own_output",
    "item_row",
    "kept_extra",
    "new_id",
    "result_id",
    "role_of",
]

RESERVED = "~"
"""How ids begin that are derived from names: no handle takes such an id from outside, or anybody
who knows the names could take it before its owner does."""

DEFAULT_USER = "~default"
"""The user of a personal agent, which names none: no user of yours should be called so."""

INDEXED_BY = "indexed_by"
"""The key of `metadata.extra` that says by what an item is indexed, if not by its content. `False`
is by nothing: no index holds it, and no recall returns it. A list of texts is by each of these."""

QUOTES = "quotes_memories"
"""The key of `extra` that marks a message of the model which calls our tools, or in which a
provider says what our server answered it: it is looked through when a memory is forgotten."""

SCRIPTED = "scripted"
"""The key of `extra` that marks an answer which a program made of memories, without a model."""

_NOT_IN_REPR = frozenset(
    ("id", "content", "metadata", "native", "created_at", "updated_at", "recorded_at")
)
"""Fields that would make a line at a prompt long, and those that it has already."""

_lock = Lock()
_last_ms = 0
_counter = 0


def new_id() -> str:
    """Return 32 hex digits, a UUIDv7: later ids of one process are always greater.

    The random part is read from the system each time, so forked processes never collide.
    """
    global _last_ms, _counter  # noqa: PLW0603 - order within one millisecond needs the previous id
    noise = int.from_bytes(os.urandom(8), "big") >> 2
    with _lock:
        now = time.time_ns() // 1_000_000
        if now > _last_ms:
            _last_ms, _counter = now, 0
        elif _counter < 0xFFF:  # same millisecond, or the clock stepped back
            _counter += 1
        else:
            _last_ms, _counter = _last_ms + 1, 0
        head = _last_ms << 16 | 0x7000 | _counter
    return f"{head << 64 | 0x2 << 62 | noise:032x}"


Role = Literal["system", "human", "ai", "tool"]
"""Who speaks in a conversation."""

SPOKEN: tuple[Role, ...] = ("system", "human", "ai", "tool")
"""The types of the items that conversations are made of."""

_ROLES: frozenset[str] = frozenset(SPOKEN)

MAX_JSON = 2**20
"""Most bytes of JSON in `metadata.extra`, and in a message's tool calls."""

MAX_NATIVE = 8 * 2**20
"""Most bytes of JSON in `native`: pictures are sent in it."""


MAX_SCOPE_ID = 1024
"""Most bytes of a user's id, and of a session's, a task's and an agent's."""


def _name(value: str) -> str:
    return check_name(value, max_chars=256)


def _scope_id(value: str) -> str:
    return check_text(value, max_bytes=MAX_SCOPE_ID)


def _json(value: object) -> Json:
    return check_json(value, max_bytes=MAX_JSON)


def _native(value: object) -> Json:
    return check_json(value, max_bytes=MAX_NATIVE)


def _now() -> datetime:
    return datetime.now(UTC)


def _iso(value: datetime) -> str:
    # Fixed width, so that text order is time order in every store.
    return value.isoformat(timespec="microseconds")


_Name = Annotated[StrictStr, AfterValidator(_name)]
_ScopeId = Annotated[StrictStr, AfterValidator(_scope_id)]
_JsonObject = Annotated[dict[str, Any], BeforeValidator(_json)]
_NativeObject = Annotated[dict[str, Any], BeforeValidator(_native)]
_JsonObjects = Annotated[list[dict[str, Any]], BeforeValidator(_json)]
_Instant = Annotated[
    datetime, AfterValidator(to_utc), PlainSerializer(_iso, return_type=str, when_used="json")
]


class MemoryStatus(StrEnum):
    """Where an item stands: only `draft` may still go both ways."""

    DRAFT = "draft"
    ACCEPTED = "accepted"
    DISCARD = "discard"


_MOVES = {
    (MemoryStatus.DRAFT, MemoryStatus.ACCEPTED),
    (MemoryStatus.DRAFT, MemoryStatus.DISCARD),
    (MemoryStatus.ACCEPTED, MemoryStatus.DISCARD),
}


class MemoryMetadata(BaseModel):
    """Whose memory it is. As a filter, a field counts only when it is not `None`."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    user_id: _ScopeId | None = None
    session_id: _ScopeId | None = None
    task_id: _ScopeId | None = None
    agent_id: _ScopeId | None = None
    extra: _JsonObject = Field(default_factory=dict)


class MemoryItem(BaseModel):
    """Anything remembered. Subclass it, with a `memory_type` of your own, for your own kinds.

    Setting a field checks it and touches `updated_at`. Items compare by value.
    """

    # Building seven validators takes longer than importing most of pydantic; each waits for use.
    model_config = ConfigDict(validate_assignment=True, extra="forbid", defer_build=True)

    max_content_bytes: ClassVar[int] = 2**20
    """Longest content in UTF-8 bytes; a subclass may raise it."""

    registered: ClassVar[bool] = True
    """Set to `False` in a class that is only a base for others and never stored itself."""

    id: _Name = Field(default_factory=new_id)
    content: StrictStr
    memory_type: _Name = "item"
    status: MemoryStatus = MemoryStatus.ACCEPTED
    metadata: MemoryMetadata = Field(default_factory=MemoryMetadata)
    native: _NativeObject = Field(default_factory=dict)
    """What a provider's message held beyond text and tool calls, by message format."""
    created_at: _Instant = Field(default_factory=_now)
    updated_at: _Instant = Field(default_factory=_now)
    version: int = Field(default=1, ge=1)
    """How many times a store has written the item; the store sets it."""
    expires_at: _Instant | None = None
    """From this instant on the item is gone, from every read and for good; `None` keeps it."""

    @field_validator("content")
    @classmethod
    def _check_content(cls, value: str) -> str:
        return check_text(value, max_bytes=cls.max_content_bytes)

    @field_validator("memory_type")
    @classmethod
    def _check_type(cls, value: str) -> str:
        own = cls.model_fields["memory_type"].default
        if own not in ("item", value):
            raise ValueError(f"a `{cls.__name__}` is always `{own}`, not `{value}`")
        return value

    def model_post_init(self, _context: Any, /) -> None:
        """Start `updated_at` at `created_at`: a new item has not been changed."""
        if "updated_at" not in self.model_fields_set:
            self.__dict__["updated_at"] = self.created_at

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if cls.__dict__.get("registered", True):
            _register(cls)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        yield None, shortened(self.content)
        yield "id", self.id
        for name, value in (*self.metadata, *super().__repr_args__()):
            field = type(self).model_fields.get(str(name))
            is_usual = value in (None, {}, []) or (field is not None and value == field.default)
            if name not in _NOT_IN_REPR and not is_usual:
                yield name, value.value if isinstance(value, MemoryStatus) else value

    if not TYPE_CHECKING:  # else types would take any key

        def __getitem__(self, key: object) -> object:
            raise not_a_dict(self, key)

    def _repr_html_(self) -> str:
        hidden = ("content", "updated_at")
        rows = [(name, value) for name, value in item_row(self).items() if name not in hidden]
        named = [(name, value) for name, value in rows if value not in (None, "", {}, [])]
        return html_table((type(self).__name__, self.content), named)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name not in {"updated_at", "version"}:
            super().__setattr__("updated_at", _now())

    def transition(self, status: MemoryStatus) -> None:
        """Move to *status* and touch `updated_at`; raise `StatusError` if that is not allowed."""
        if (self.status, status) not in _MOVES:
            raise StatusError(self.status, status)
        self.status = MemoryStatus(status)


def item_row(item: MemoryItem) -> dict[str, Any]:
    """Return the fields of an item side by side, those of its metadata among them."""
    fields = dict(item.__dict__)
    fields.pop("native")
    first = {name: fields.pop(name) for name in ("id", "content", "memory_type")}
    status, metadata = str(fields.pop("status")), fields.pop("metadata")
    return {**first, "status": status, **metadata.__dict__, **fields}


_registry: dict[str, type[MemoryItem]] = {}


def _bases(cls: type[MemoryItem]) -> list[type[MemoryItem]]:
    return [base for base in cls.__mro__[1:] if issubclass(base, MemoryItem)]


def _register(cls: type[MemoryItem]) -> None:
    name = cls.model_fields["memory_type"].default
    inherited = (base.model_fields["memory_type"].default for base in _bases(cls))
    if not isinstance(name, str) or name in inherited:
        raise ItemTypeError(
            f"`{cls.__name__}` needs a `memory_type` of its own, so that stores can bring it back "
            f'as itself; add: memory_type: str = "{cls.__name__.lower()}"'
        )
    taken = _registry.get(name)
    # A class defined again, in a notebook cell or inside a function, replaces its former self.
    renewed = taken is not None and (
        (taken.__module__, taken.__qualname__) == (cls.__module__, cls.__qualname__)
        or ("<locals>" in taken.__qualname__ and "<locals>" in cls.__qualname__)
    )
    if taken is not None and not renewed:
        raise ItemTypeError(
            f"`{cls.__qualname__}` claims memory_type `{name}`, which is "
            f"`{taken.__module__}.{taken.__qualname__}`'s; choose another"
        )
    _registry[name] = cls


class SystemMemory(MemoryItem):
    """Instructions to the model."""

    memory_type: str = "system"


class HumanMemory(MemoryItem):
    """What a person said; it starts a round."""

    memory_type: str = "human"


class AIMemory(MemoryItem):
    """What the model said, and the tools it called; a call's id is its `"id"`."""

    memory_type: str = "ai"
    tool_calls: _JsonObjects = Field(default_factory=list)

    @field_validator("content", mode="before")
    @classmethod
    def _read_null(cls, value: object) -> object:
        return "" if value is None else value  # what OpenAI sends beside a call

    @field_validator("tool_calls", mode="before")
    @classmethod
    def _read_no_calls(cls, value: object) -> object:
        return [] if value is None else value

    @property
    def calls(self) -> list[ToolCall]:
        """The tool calls with name, arguments and id, whatever shape they came in."""
        return [
            ToolCall(call_name(call), call_input(call), call_id(call) or None)
            for call in self.tool_calls
        ]


class ToolMemory(MemoryItem):
    """One tool's answer to one call."""

    memory_type: str = "tool"
    tool_call_id: StrictStr = ""
    tool_name: StrictStr = ""
    is_error: bool = False

    @field_validator("tool_call_id", "tool_name")
    @classmethod
    def _check_names(cls, value: str) -> str:
        return check_text(value, max_bytes=1024)


_KINDS: dict[type[MemoryItem], Role] = {
    HumanMemory: "human",
    AIMemory: "ai",
    ToolMemory: "tool",
    SystemMemory: "system",
}


@lru_cache(maxsize=256)
def _role_of_kind(kind: type[MemoryItem]) -> Role | None:
    return next((role for base in kind.__mro__ if (role := _KINDS.get(base)) is not None), None)


def role_of(item: MemoryItem) -> Role | None:
    """Return who speaks in *item*; `None` for a kind that is not part of a conversation."""
    role = _role_of_kind(item.__class__)  # asked for every item of every window
    if role is not None:
        return role
    return item.memory_type if item.memory_type in _ROLES else None  # type: ignore[return-value]  # narrowed by the set


def is_own_output(item: MemoryItem) -> bool:
    """Tell whether *item* says what memories said: the answer of a tool of ours, or a fence.

    Such an item is a part of its conversation and of nothing else.
    """
    has_memories = has_fence(item.content)
    if isinstance(item, ToolMemory):
        return has_memories or is_own_tool(item.tool_name)
    if not has_memories:
        return False
    return role_of(item) == "system" or not without_fences(item.content)


def kept_extra(item: MemoryItem) -> dict[str, Any]:
    """Return `metadata.extra` as a store keeps it: a tool's answer may be marked as not indexed.

    Other texts may be changed, and then say something; until then `index_texts` finds nothing.
    """
    extra = item.metadata.extra
    if isinstance(item, AIMemory) and (item.native or item.tool_calls):
        said = [item.native, item.tool_calls]
        if any(own_calls(said)) or any(hosted_answers(item.native)):
            return {**extra, QUOTES: True}
    is_marked = isinstance(item, ToolMemory) and is_own_output(item)
    return {**extra, INDEXED_BY: False} if is_marked else extra


def is_indexed(item: MemoryItem) -> bool:
    """Tell whether recall may return *item*."""
    return item.metadata.extra.get(INDEXED_BY) is not False and not is_own_output(item)


def index_texts(content: str, indexed_by: object) -> list[str]:
    """Return the texts by which an item is found; *indexed_by* is what `metadata.extra` says.

    What is quoted from memories in them, behind a fence, is left out.
    """
    if indexed_by is False:
        return []
    texts = [content]
    if isinstance(indexed_by, list) and indexed_by:
        is_list = all(isinstance(text, str) and text.strip() for text in indexed_by)
        texts = indexed_by if is_list else texts
    if not any(map(has_fence, texts)):
        return texts
    return [rest for text in texts if (rest := without_fences(text))]


def calls_of(item: MemoryItem) -> list[dict[str, Any]]:
    """Return the tool calls of *item*; none unless the model made it."""
    return item.tool_calls if isinstance(item, AIMemory) else []


def result_id(item: MemoryItem) -> str:
    """Return the id of the call that *item* answers, or `""`."""
    return item.tool_call_id if isinstance(item, ToolMemory) else ""
