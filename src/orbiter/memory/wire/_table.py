"""The table of all calls: the server routes by it, and the client has its methods from it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from orbiter.memory.auth import Role
from orbiter.memory.messages.codec import FORMATS, check_format
from orbiter.memory.model.query import SCOPE_FIELDS
from orbiter.memory.text.ranking import MIN_RELEVANCE
from orbiter.memory.wire import result_codecs as results
from orbiter.memory.wire._argument_codecs import (
    EXPIRES,
    EXTRA,
    INDEX,
    SINCE,
    STATUS,
    TRUST,
    UNTIL,
    WHERE,
)
from orbiter.memory.wire._entry_codecs import (
    CHANGES,
    ENTRIES_OR_NOTHING,
    ENTRY_LIST,
    ENTRY_NAME,
    ENTRY_NAMES,
    ENTRY_OR_NOTHING,
    ENTRY_PATH,
    ENTRY_PATHS,
    ENTRY_VALUES,
    TTL,
    VERSION_NUMBERS,
)
from orbiter.memory.wire._item_codecs import (
    CONTENT,
    FACT,
    GIVEN,
    ITEM,
    ITEM_OR_ID,
    ITEMS_OR_IDS,
    SOURCE,
    SOURCES,
    TAGS,
    THINGS,
    VALUE,
    WHAT,
)
from orbiter.memory.wire.codecs import (
    ETAG,
    FLAG,
    NOTHING,
    NUMBER,
    TEXT,
    TIME,
    WHOLE,
    Codec,
    choice,
    enveloped,
    list_of,
    optional,
)
from orbiter.memory.wire.result_codecs import CONTEXT, RECALLED

__all__ = [
    "OPERATIONS",
    "REQUIRED",
    "REST_ONLY",
    "TARGET_PARAMS",
    "Operation",
    "Param",
    "Target",
    "operations_of",
]


Target = Literal["memory", "scope", "chat", "facts", "past", "past_facts", "audit", "kv"]
"""The class a call belongs to: `AgentMemory`, `ScopedMemory`, `Chat`, `Facts`, …"""

REQUIRED: Any = object()
"""The default of a parameter that has none."""


_DESCRIPTIONS = {
    "If-Match": "The `ETag` that the memory must still have, or `*`.",
    "action": "Only entries of this action, such as `added` or `erased`.",
    "agent_id": "Only entries of this agent.",
    "as_of": "Valid at this time; now if left out.",
    "before": "The number of the last entry of a page, to get older ones.",
    "by": "Only what this actor did.",
    "budget": "At most this many tokens.",
    "chat_id": "The id of the conversation.",
    "cursor": "The `next` of the page before.",
    "dedupe": "Return the memory that says the same, if there is one, instead of another.",
    "dry_run": "Report what would be forgotten, and change nothing.",
    "fact_id": "The id of the assertion or draft.",
    "forgotten": "List forgotten memories instead, which `restore` can bring back.",
    "format": "The provider whose messages to return.",
    "item_id": "The id of the memory.",
    "key": "The key of the fact, such as `home_city`.",
    "known_at": "As known at this time; now if left out.",
    "limit": "At most this many results.",
    "memory_type": "Only memories of this type, such as `human` or `fact`.",
    "moment": "The time in the past to read.",
    "open_group": "What to do with tool calls that have no results yet.",
    "order": "By `name`, by who was seen last (`recent`), or by who has most (`items`).",
    "permanently": "Erase it for good, with its versions and what indexes hold; for an admin.",
    "query": "Only memories that contain this text.",
    "rounds": "Only the last rounds; each starts at a message of the user.",
    "session_id": "Only entries of this session.",
    "since": "Not before this time: ISO 8601, or as `3d`, `yesterday` or `last week`.",
    "starts_with": "Only names that begin so.",
    "status": "Only memories with this status.",
    "task_id": "Only entries of this task.",
    "until": "Until this time, written as `since`; a day or a phrase is included.",
    "user_id": "Only entries of this user.",
    "where": 'A filter on fields and `metadata.extra`, such as `{"price": {"$lt": 5}}`.',
}
"""What the parameters of paths, queries and headers mean: the same in every call."""

_MODE = choice("hybrid", "words", "meaning", "recent")
_GROUP = choice("drop", "keep", "complete")
_PUT_OP = choice("set", "add", "remove")
_FACT_OP = choice("set", "add", "remove", "end")
_USER_ORDER = choice("name", "recent", "items")
_NO, _YES = False, True
_CHAT_ID: Codec[Any] = Codec(lambda chat: chat.id, TEXT.load, TEXT.schema)
"""A `Chat` crosses as its name; the client makes its own of it."""


@dataclass(frozen=True, slots=True)
class Param:
    """One argument of a call, and where a request carries it."""

    name: str
    codec: Codec[Any]
    place: Literal["path", "query", "body", "header"]
    default: Any = REQUIRED
    header: str = ""
    wire: str = ""
    """What it is called in a path or a query, if not as in the call."""

    @property
    def wire_name(self) -> str:
        """What it is called on the wire."""
        return self.header or self.wire or self.name

    @property
    def description(self) -> str:
        """What it means, for the OpenAPI document; a body is described with its call."""
        return "" if self.place == "body" else _DESCRIPTIONS[self.wire_name]


@dataclass(frozen=True, slots=True)
class Operation:
    """One call: the method *name* of the *target*, as a request."""

    name: str
    target: Target
    verb: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    """Below `/v1`, with `{name}` for each parameter in it; a segment is percent-encoded as one."""
    role: Role
    params: tuple[Param, ...]
    """The arguments of the method; those of its object are in `TARGET_PARAMS`."""
    returns: Codec[Any]
    status: int = 200
    is_safe_to_repeat: bool = True
    """Whether a client may send it again when no answer came, whatever it says.

    One that is not may be sent again if it has an `idempotency_key`.
    """
    is_absent_404: bool = False
    """Whether nothing, `None` or `[]`, is told by a 404 whose type is `ItemNotFoundError`."""
    is_heavy: bool = False
    """Whether it reads everything there is: a key has one such call at a time."""
    is_long: bool = False
    """Whether it may take longer than a request may: then it is a job, and answered with 202."""
    short_with: str = ""
    """The argument that makes it a call about one thing, and so no job; none if empty."""
    erases_with: str = ""
    """The flag that has it erase for good: then it is a job, and for an admin; none if empty."""
    has_safe_report: bool = False
    """Whether its answer holds nothing that a memory says, so that it may be kept in a file."""
    wire: str = ""
    """What it is called on the wire, if not as the method: clients and jobs know that name."""

    @property
    def is_change(self) -> bool:
        """Whether it may write anything but the log of reads."""
        return self.role != "read" and not (self.verb == "GET" or self.target == "audit")

    def is_job(self, arguments: Mapping[str, Any]) -> bool:
        """Tell whether the call with *arguments* is made as a job."""
        is_short = arguments.get(self.short_with) is not None and not self.erases(arguments)
        return self.is_long and not is_short

    def erases(self, arguments: Mapping[str, Any]) -> bool:
        """Tell whether the call with *arguments* erases for good."""
        return arguments.get(self.erases_with) is True

    @property
    def id(self) -> str:
        """A name that no other call has: `chat.add`."""
        return f"{self.target}.{self.wire_name}"

    @property
    def wire_name(self) -> str:
        """What it is called on the wire."""
        return self.wire or self.name


FORMAT: Codec[Any] = Codec(check_format, check_format, choice(*FORMATS).schema, is_text=True)


def _body(name: str, codec: Codec[Any], default: Any = REQUIRED) -> Param:
    return Param(name, optional(codec) if default is None else codec, "body", default)


def _query(name: str, codec: Codec[Any], default: Any = REQUIRED) -> Param:
    return Param(name, optional(codec) if default is None else codec, "query", default)


def _path(name: str, *, wire: str = "") -> Param:
    return Param(name, TEXT, "path", wire=wire)


_MOMENT = (_query("moment", TIME),)
TARGET_PARAMS: dict[Target, tuple[Param, ...]] = {
    "memory": (),
    "scope": (),
    "facts": (),
    "audit": (),
    "kv": (),
    "chat": (_path("chat_id"),),
    "past": _MOMENT,
    "past_facts": _MOMENT,
}
"""What names the object of a call, beside its scope."""

_LABELS = (
    _body("tags", TAGS, None),
    _body("importance", NUMBER, None),
    _body("source", TEXT, None),
    _body("extra", EXTRA, None),
)
_ID = _path("item_id")
_KEY = _path("key")
_FACT_ID = _path("fact_id")
_ONCE = _body("idempotency_key", TEXT, None)
_DRY_RUN = _body("dry_run", FLAG, _NO)
_KNOWN = (_query("as_of", TIME, None), _query("known_at", TIME, None))
_SCOPE = tuple(_body(name, TEXT, None) for name in SCOPE_FIELDS)
_CONTEXT = (
    _body("task", TEXT, None),
    _body("budget", WHOLE, None),
    _body("format", FORMAT, "openai"),
    _body("memory_limit", WHOLE, 5),
    _body("min_trust", TRUST, None),
    _body("min_relevance", NUMBER, None),
    _body("spread", FLAG, None),
)
_LISTED = (
    _query("query", TEXT, ""),
    _query("where", WHERE, None),
    _query("memory_type", TEXT, None),
)
_PAGED = (_query("limit", WHOLE, 50), _query("cursor", TEXT, None))
_SPAN = (_query("since", SINCE, None), _query("until", UNTIL, None))
_LIST = (*_LISTED, _query("status", STATUS, None), *_SPAN, _query("forgotten", FLAG, _NO), *_PAGED)


def _in_body(params: tuple[Param, ...]) -> tuple[Param, ...]:
    """Return the same arguments for a body, which takes longer ones than an address does."""
    return tuple(replace(each, place="body") for each in params)


_MEMORY = (
    Operation("users", "memory", "GET", "users", "admin",
              (_query("starts_with", TEXT, ""), _query("order", _USER_ORDER, "name"), *_PAGED),
              results.USERS),
    Operation("erase", "memory", "POST", "erase", "admin",
              (*_SCOPE, _body("by", TEXT, None), _DRY_RUN), results.ERASURE,
              is_safe_to_repeat=False, is_long=True, has_safe_report=True),
    Operation("stats", "memory", "GET", "store/stats", "admin", (), results.STORE_STATS),
    Operation("verify", "memory", "POST", "store/verify", "admin",
              (_body("repair", FLAG, _NO),), results.VERIFICATION, is_heavy=True, is_long=True,
              has_safe_report=True),
    Operation("reindex", "memory", "POST", "store/reindex", "admin", (), results.COUNT,
              is_heavy=True, is_long=True, has_safe_report=True),
    Operation("flush", "memory", "POST", "store/settle", "admin", (), NOTHING, is_long=True,
              has_safe_report=True, wire="settle"),
)  # fmt: skip

_SCOPED = (
    Operation("remember", "scope", "POST", "memories", "write",
              (_body("what", GIVEN), *_LABELS, _body("created_at", TIME, None),
               _body("expires", EXPIRES, None), _body("index", INDEX, _YES), _ONCE,
               _body("dedupe", FLAG, _NO), _body("format", FORMAT, None)),
              ITEM, 201, is_safe_to_repeat=False),
    Operation("remember_many", "scope", "POST", "memories/batch", "write",
              (_body("things", THINGS), _body("text", TEXT, None), *_LABELS,
               _body("created_at", TIME, None), _body("expires", EXPIRES, None),
               _body("index", FLAG, _YES), _ONCE,
               _body("format", FORMAT, None)),
              results.ITEM_LIST, 201, is_safe_to_repeat=False),
    Operation("list", "scope", "POST", "memories/query", "read", _in_body(_LIST), results.PAGE),
    Operation("get", "scope", "GET", "memories/{item_id}", "read", (_ID,), ITEM,
              is_absent_404=True),
    Operation("update", "scope", "PATCH", "memories/{item_id}", "write",
              (_ID, _body("content", CONTENT, None), _LABELS[0], _body("add_tags", TAGS, None),
               _body("remove_tags", TAGS, None), *_LABELS[1:], _body("status", STATUS, None),
               _body("expires", EXPIRES, None), _body("index", INDEX, None),
               Param("expected_version", optional(ETAG), "header", None, "If-Match")),
              ITEM, is_safe_to_repeat=False),
    Operation("restore", "scope", "POST", "memories/{item_id}/restore", "write",
              (_ID, _body("version", WHOLE, None)), ITEM, is_safe_to_repeat=False),
    Operation("history", "scope", "GET", "memories/{item_id}/history", "read", (_ID,),
              results.VERSIONS, is_absent_404=True),
    Operation("forget", "scope", "POST", "forget", "write",
              (_body("item", ITEMS_OR_IDS, None), _body("query", TEXT, ""),
               _body("where", WHERE, None), _body("memory_type", TEXT, None),
               _body("since", SINCE, None), _body("until", UNTIL, None),
               _body("everything", FLAG, _NO), _body("permanently", FLAG, _NO), _DRY_RUN),
              results.FORGOTTEN, is_safe_to_repeat=False, is_long=True, short_with="item",
              erases_with="permanently"),
    Operation("recall", "scope", "POST", "recall", "read",
              (_body("query", TEXT, ""), _body("k", WHOLE, 10), _body("mode", _MODE, "hybrid"),
               _body("memory_type", TEXT, None), _body("since", SINCE, None),
               _body("until", UNTIL, None), _body("where", WHERE, None),
               _body("recency_weight", NUMBER, 0.0), _body("half_life_hours", NUMBER, 24.0 * 30),
               _body("importance_weight", NUMBER, 0.0), _body("min_trust", TRUST, None),
               _body("min_relevance", NUMBER, MIN_RELEVANCE), _body("spread", FLAG, None),
               _body("explain", FLAG, _NO)), RECALLED),
    Operation("stats", "scope", "GET", "stats", "read", (), results.SCOPE_STATS),
    Operation("count_by", "scope", "POST", "counts", "read",
              (_body("field", TEXT), _body("where", WHERE, None), _body("memory_type", TEXT, None),
               _body("since", SINCE, None), _body("until", UNTIL, None),
               _body("limit", WHOLE, 100)), results.VALUE_COUNTS),
    Operation("chats", "scope", "GET", "chats", "read",
              (_query("query", TEXT, ""), _query("limit", WHOLE, 50)), results.CONVERSATIONS),
    Operation("evict", "scope", "POST", "evict", "write",
              (_body("max_items", WHOLE, None), _body("max_bytes", WHOLE, None),
               _body("duplicates", FLAG, _NO), _body("half_life_hours", NUMBER, 24.0 * 90),
               _DRY_RUN), results.EVICTED, is_safe_to_repeat=False, is_heavy=True, is_long=True),
    Operation("duplicates", "scope", "GET", "duplicates", "read", (), results.DUPLICATES,
              is_heavy=True, is_long=True),
    Operation("quarantine", "scope", "POST", "quarantine", "write",
              (_body("source", TEXT), _DRY_RUN), results.FORGOTTEN, is_safe_to_repeat=False,
              is_long=True),
    Operation("release", "scope", "POST", "release", "write", (_body("source", TEXT),),
              results.COUNT, is_safe_to_repeat=False, is_long=True, has_safe_report=True),
    Operation("undo", "scope", "POST", "undo", "write",
              (_body("source", TEXT), _body("since", SINCE, None), _DRY_RUN),
              results.FORGOTTEN, is_safe_to_repeat=False, is_long=True),
)  # fmt: skip

_CHAT = (
    Operation("add", "chat", "POST", "chats/{chat_id}/messages", "write",
              (_body("what", WHAT), _body("created_at", TIME, None), _body("index", FLAG, _YES),
               _body("format", FORMAT, None), _ONCE),
              results.ITEM_LIST, 201, is_safe_to_repeat=False),
    Operation("messages", "chat", "GET", "chats/{chat_id}/messages", "read",
              (_query("format", FORMAT, "openai"), _query("rounds", WHOLE, None),
               _query("budget", WHOLE, None)), results.MESSAGES),
    Operation("items", "chat", "GET", "chats/{chat_id}/items", "read",
              (_query("rounds", WHOLE, None), _query("budget", WHOLE, None),
               _query("open_group", _GROUP, "drop")), results.ITEM_LIST),
    Operation("context", "chat", "POST", "chats/{chat_id}/context", "read", _CONTEXT,
              CONTEXT),
    Operation("summary", "chat", "GET", "chats/{chat_id}/summary", "read", (),
              enveloped("summary", optional(TEXT))),
    Operation("summarize", "chat", "POST", "chats/{chat_id}/summary", "write", (),
              enveloped("summary", optional(TEXT))),
    Operation("fork", "chat", "POST", "chats/{chat_id}/fork", "write",
              (_body("at", ITEM_OR_ID), _body("chat_id", TEXT, None)),
              enveloped("chat_id", _CHAT_ID), 201, is_safe_to_repeat=False),
)  # fmt: skip

_FACTS = (
    Operation("put", "facts", "PUT", "facts/{key}", "write",
              (_KEY, _body("value", VALUE), _body("op", _PUT_OP, "set"),
               _body("valid_from", TIME, None),
               _body("valid_to", TIME, None), _body("source", SOURCE, None),
               _body("importance", NUMBER, None)), FACT),
    Operation("end", "facts", "POST", "facts/{key}/end", "write",
              (_KEY, _body("at", TIME, None), _body("source", SOURCE, None)),
              enveloped("fact", optional(FACT)), is_safe_to_repeat=False),
    Operation("revert", "facts", "POST", "facts/{key}/revert", "write", (_KEY,),
              enveloped("fact", optional(FACT)), is_safe_to_repeat=False),
    Operation("retract", "facts", "POST", "assertions/{fact_id}/retract", "write", (_FACT_ID,),
              FACT),
    Operation("accept", "facts", "POST", "fact-drafts/{fact_id}/accept", "write", (_FACT_ID,),
              FACT),
    Operation("discard", "facts", "POST", "fact-drafts/{fact_id}/discard", "write", (_FACT_ID,),
              FACT),
    Operation("propose", "facts", "POST", "fact-drafts", "write",
              (_body("key", TEXT), _body("value", VALUE, None), _body("source", SOURCES),
               _body("op", _FACT_OP, "set"),
               _body("valid_from", TIME, None), _body("valid_to", TIME, None),
               _body("confidence", NUMBER, None)),
              enveloped("fact", optional(FACT)), is_safe_to_repeat=False),
)  # fmt: skip


def _views(target: Target, before: str) -> tuple[Operation, ...]:
    """Return the calls that read facts, of today or of a moment in the past."""
    return (
        Operation("get", target, "GET", f"{before}facts/{{key}}", "read", (_KEY, *_KNOWN), FACT,
                  is_absent_404=True),
        Operation("all", target, "GET", f"{before}facts", "read", _KNOWN, results.FACTS_BY_KEY),
        Operation("history", target, "GET", f"{before}facts/{{key}}/history", "read", (_KEY,),
                  results.ENTRIES),
        Operation("keys", target, "GET", f"{before}fact-keys", "read", (), results.KEYS),
        Operation("conflicts", target, "GET", f"{before}fact-conflicts", "read", (),
                  results.CONFLICTS),
        Operation("drafts", target, "GET", f"{before}fact-drafts", "read", (), results.FACTS),
    )  # fmt: skip


_PAST = (
    Operation("list", "past", "POST", "past/memories/query", "read",
              _in_body((*_LISTED, *_PAGED)), results.PAGE),
    Operation("get", "past", "GET", "past/memories/{item_id}", "read", (_ID,), ITEM,
              is_absent_404=True),
    Operation("recall", "past", "POST", "past/recall", "read",
              (_body("query", TEXT), _body("k", WHOLE, 10), _body("memory_type", TEXT, None),
               _body("where", WHERE, None), _body("min_relevance", NUMBER, MIN_RELEVANCE),
               _body("spread", FLAG, None)), RECALLED),
)  # fmt: skip

_AUDIT = (
    Operation("entries", "audit", "GET", "audit", "admin",
              (*(_query(each.name, TEXT, None) for each in _SCOPE), _query("action", TEXT, None),
               _query("by", TEXT, None), _query("item_id", TEXT, None),
               _query("since", SINCE, None),
               _query("before", WHOLE, None), _query("limit", WHOLE, 100)),
              enveloped("entries", list_of(results.AUDIT_ENTRY))),
    Operation("verify", "audit", "POST", "audit/verify", "admin", (_body("head", TEXT, None),),
              results.AUDIT_VERIFICATION, is_heavy=True, is_long=True, has_safe_report=True),
    Operation("head", "audit", "GET", "audit/head", "admin", (), enveloped("head", TEXT)),
)  # fmt: skip

_ALL = ()
_KEY_VALUE = (
    Operation("write", "kv", "POST", "kv/write", "write", (_body("changes", CHANGES),),
              VERSION_NUMBERS, is_safe_to_repeat=False),
    Operation("get_many", "kv", "POST", "kv/get", "read", (_body("names", ENTRY_NAMES),),
              ENTRIES_OR_NOTHING),
    Operation("touch", "kv", "POST", "kv/touch", "write", (_body("names", ENTRY_NAMES),),
              results.COUNT),
    Operation("list", "kv", "POST", "kv/list", "read",
              (_body("path", ENTRY_PATH, _ALL), _body("deep", FLAG, _YES),
               _body("reverse", FLAG, _NO), _body("newest", FLAG, _NO),
               _body("after", ENTRY_NAME, None), _body("contains", TEXT, ""),
               _body("limit", WHOLE, 100)), ENTRY_LIST),
    Operation("paths", "kv", "POST", "kv/paths", "read",
              (_body("path", ENTRY_PATH, _ALL), _body("after", ENTRY_PATH, None),
               _body("limit", WHOLE, 100)), ENTRY_PATHS),
    Operation("append", "kv", "POST", "kv/append", "write",
              (_body("path", ENTRY_PATH), _body("values", ENTRY_VALUES), _body("ttl", TTL, None)),
              results.KEYS, is_safe_to_repeat=False),
    Operation("pop", "kv", "POST", "kv/pop", "write", (_body("path", ENTRY_PATH),),
              ENTRY_OR_NOTHING, is_safe_to_repeat=False),
    Operation("clear", "kv", "POST", "kv/clear", "write", (_body("path", ENTRY_PATH, _ALL),),
              results.COUNT),
)  # fmt: skip

OPERATIONS: tuple[Operation, ...] = (
    *_MEMORY,
    *_SCOPED,
    *_CHAT,
    *_FACTS,
    *_views("facts", ""),
    *_PAST,
    *_views("past_facts", "past/"),
    *_AUDIT,
    *_KEY_VALUE,
)
"""Every call, once."""

REST_ONLY: tuple[Operation, ...] = (
    Operation("forget", "scope", "DELETE", "memories/{item_id}", "write",
              (_path("item", wire="item_id"), _query("permanently", FLAG, _NO),
               _query("dry_run", FLAG, _NO)), results.FORGOTTEN, is_safe_to_repeat=False,
              is_long=True, short_with="item", erases_with="permanently"),
    Operation("list", "scope", "GET", "memories", "read", _LIST, results.PAGE),
    Operation("list", "past", "GET", "past/memories", "read", (*_LISTED, *_PAGED), results.PAGE),
    Operation("context", "scope", "POST", "context", "read",
              (*_CONTEXT, _body("chat_id", TEXT, None)), CONTEXT),
)  # fmt: skip
"""Requests that are other ways to make a call of the table."""


def operations_of(target: Target) -> dict[str, Operation]:
    """Return the calls of one class by the name of the method."""
    return {each.name: each for each in OPERATIONS if each.target == target}
