"""Items as rows of `memory_items`, and rows as items: the ten columns, the same in every SQL store.

Reading is the hot path: a row that a store wrote becomes an item without being checked again,
some five times faster. A row that looks unlike what `encode` writes, because a newer version or
a person wrote it, goes through `load_item`, which checks everything.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel

from orbiter.memory.errors import StorageError
from orbiter.memory.model.copying import SLOT_SETTERS, validated_copy
from orbiter.memory.model.items import (
    MAX_JSON,
    MAX_NATIVE,
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
    SystemMemory,
    ToolMemory,
    kept_extra,
)
from orbiter.memory.model.query import SCOPE_FIELDS
from orbiter.memory.model.serialization import dump_item, kind_of, load_item
from orbiter.memory.model.validation import check_json, check_text, is_stored_json, to_utc
from orbiter.memory.tasks.offload import apart, has_many_values

__all__ = [
    "COLUMNS",
    "ENDS",
    "END_WIDTH",
    "EXACT",
    "READ",
    "Row",
    "decode",
    "decode_all",
    "decode_some",
    "encode",
    "encode_all",
    "encode_one",
    "end_of",
    "iso",
    "usual_metadata",
]

COLUMNS = (
    "id", "content", "memory_type", "status", "metadata", "extra_json", "created_at", "updated_at",
    "deleted", "version",
)  # fmt: skip
"""The columns of `memory_items`, in order."""

READ = (*COLUMNS[:8], "version")
"""The columns an item is made of."""

EXACT = "@extra"
"""Key in `extra_json` of a literal copy of `metadata.extra`, for databases whose JSON type turns
1e16 into a whole number. It counts only while it equals the column, so edits by hand are seen."""

ENDS = '{"expires_at":"'
"""How the `extra_json` of an item that has an end begins; the instant follows, of one width. So
its first bytes tell whether an item is over, however long it is."""

END_WIDTH = 32
"""Characters of such an instant."""


class Row(NamedTuple):
    """What a store writes of an item; `deleted` and `version` are the database's own affair."""

    id: str
    content: str
    memory_type: str
    status: str
    metadata: str
    extra_json: str
    created_at: datetime
    updated_at: datetime


_METADATA, _EXTRA, _KIND = map(READ.index, ("metadata", "extra_json", "memory_type"))
_LONG = 16 * 1024
"""Characters of JSON that are read in a thread: the rest of a row costs next to nothing."""
_ROW, _SLICE = 256, 32 * 1024
"""What a row costs, in characters of JSON, and what is read before others go on."""
_SHORT = 512
"""Characters of JSON that are remembered as what they say: rows of a conversation repeat them."""
_SINGLE = frozenset((str, int, float, bool, type(None)))
_AT_ONCE = 50
"""Items that are made into rows before others go on: some five milliseconds."""

_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
_Model = TypeVar("_Model", bound=BaseModel)
_Plain = tuple[dict[str, str | None], dict[str, Any]]
_Rows = Sequence[Sequence[Any]]

_new = object.__new__
_set_dict, _set_fields_set, _set_extra, _set_private = SLOT_SETTERS
_SCOPE_SET = {*SCOPE_FIELDS, "extra"}
_NO_SCOPE: dict[str, Any] = dict.fromkeys(SCOPE_FIELDS)
_STATUS = {status.value: status for status in MemoryStatus}
_STATUS_TEXT = {status: status.value for status in MemoryStatus}
_ITEM_FIELDS = {
    "id", "content", "memory_type", "status", "metadata", "native", "created_at", "updated_at",
    "version", "expires_at",
}  # fmt: skip
_COMMON = _ITEM_FIELDS - {"native"}
"""The fields of every item that have columns of their own, or a place of their own."""
_OWN: dict[type[MemoryItem], dict[str, Any]] = {
    MemoryItem: {},
    SystemMemory: {},
    HumanMemory: {},
    AIMemory: {"tool_calls": list},
    ToolMemory: {"tool_call_id": str, "tool_name": str, "is_error": bool},
}
"""What the known kinds have of their own, and how to make it when it is not written down."""
_KINDS = {kind.model_fields["memory_type"].default: kind for kind in _OWN}
_FACT_SET = _ITEM_FIELDS | {
    "key", "value", "valid_from", "valid_to", "recorded_at", "retracted_at", "is_end", "source_ids",
}  # fmt: skip
_FIELDS_SET = {kind: _ITEM_FIELDS | own.keys() for kind, own in _OWN.items()}


def encode(item: MemoryItem, *, exact_extra: bool = False) -> Row:
    """Return the row of *item*, or raise `InvalidItemError`; `exact_extra` adds `EXACT`."""
    own = _OWN.get(type(item))
    if own is not None:
        try:
            row = _encode_known(item, own, exact_extra=exact_extra)
        except (ValueError, KeyError, AttributeError, TypeError):
            row = None  # `validated_copy` says what is wrong with it, or puts it right
        if row is not None:
            return row
    item = validated_copy(item)
    dumped = dump_item(item)
    extra = {key: value for key, value in dumped.items() if key not in _COMMON}
    if own is not None:  # what is empty need not be said
        extra = {key: value for key, value in extra.items() if value}
    if _is_utc(item.expires_at):
        extra = {"expires_at": dumped["expires_at"], **extra}
    elif "expires_at" in dumped:  # a kind of item that calls something else so
        extra["expires_at"] = dumped["expires_at"]
    metadata = item.metadata
    if exact_extra and metadata.extra:
        extra[EXACT] = metadata.extra
    return Row(
        item.id,
        item.content,
        item.memory_type,
        item.status.value,
        _who(metadata.__dict__, metadata.extra),
        _dumps(extra) if extra else "{}",
        item.created_at,
        item.updated_at,
    )


def _encode_known(item: MemoryItem, own: dict[str, type], *, exact_extra: bool) -> Row | None:
    """Check and write down an item of a known kind whose fields are what they should be.

    It accepts nothing that `validated_copy` would not, in a third of the time; most items pass.
    """
    fields = item.__dict__
    who = fields["metadata"].__dict__
    if (
        len(fields) != len(_ITEM_FIELDS) + len(own)
        or len(who) != len(_SCOPE_SET)
        or not fields["id"]
        or not _is_word(fields["id"], 256)
        or type(fields["content"]) is not str
        or _KINDS.get(fields["memory_type"]) is not type(item)
        or type(fields["status"]) is not MemoryStatus
        or type(fields["metadata"]) is not MemoryMetadata
        or type(fields["version"]) is not int
        or fields["version"] < 1
        or not _is_utc(fields["created_at"])
        or not _is_utc(fields["updated_at"])
        or type(fields["native"]) is not dict
        or type(who["extra"]) is not dict
    ):
        return None
    scope = (who["user_id"], who["session_id"], who["task_id"], who["agent_id"])
    for value in scope:
        if value is not None and not _is_word(value, 1024):
            return None
    named: dict[str, Any] = {}
    if fields["expires_at"] is not None:
        if not _is_utc(fields["expires_at"]):
            return None
        named["expires_at"] = iso(fields["expires_at"])  # the first, see `ENDS`
    for name, kind in own.items():
        value = fields[name]
        if type(value) is not kind or (kind is str and not _is_word(value, 1024)):
            return None
        if value:
            named[name] = check_json(value, max_bytes=MAX_JSON)
    if "tool_calls" in named and not _are_dicts(named["tool_calls"]):
        return None
    if fields["native"]:
        named["native"] = check_json(fields["native"], max_bytes=MAX_NATIVE)
    extra: Any = kept_extra(item)
    extra = extra and check_json(extra, max_bytes=MAX_JSON)
    if extra and exact_extra:
        named[EXACT] = extra
    return Row(
        fields["id"],
        check_text(fields["content"], max_bytes=item.max_content_bytes),
        fields["memory_type"],
        _STATUS_TEXT[fields["status"]],
        _who(who, extra) if extra else usual_metadata(*scope),
        _dumps(named) if named else "{}",
        fields["created_at"],
        fields["updated_at"],
    )


def _who(scope: Mapping[str, Any], extra: Any) -> str:
    who = {name: scope[name] for name in SCOPE_FIELDS if scope[name] is not None}
    return _dumps({**who, "extra": extra} if extra else who)


@lru_cache(maxsize=1024)
def usual_metadata(*scope: str | None) -> str:
    """Return how `encode` writes the metadata of items that say whose they are, and no more."""
    return _who(dict(zip(SCOPE_FIELDS, scope, strict=True)), None)


def _is_word(value: object, most: int) -> bool:
    """Tell whether *value* is a short text that every store can hold."""
    return type(value) is str and len(value) <= most and value.isascii() and "\0" not in value


def _is_utc(value: object) -> bool:
    return type(value) is datetime and value.tzinfo is UTC


def decode(row: Sequence[Any]) -> MemoryItem:
    """Return the item of a row of the columns `READ`."""
    return decode_some((row,))[0]


def decode_some(rows: _Rows, *, usual: str | None = None) -> list[MemoryItem]:
    """Return the items of rows of the columns `READ`.

    With *usual*, the metadata of most of them, a row has `None` where it says what most say.
    """
    items: list[MemoryItem] = []
    known = None if usual is None else _plain(usual, "{}")
    for row in rows:
        try:
            items.append(_decode_plain(row, known) or _decode_other(_whole(row, usual)))
        except (ValueError, TypeError, AttributeError, KeyError) as exc:
            what = f"row `{row[0]}` of `memory_items` cannot be read: {exc!r}"
            raise StorageError(f"{what}; repair or delete it, or see `verify()`") from exc
    return items


async def decode_all(rows: _Rows, *, usual: str | None = None) -> list[MemoryItem]:
    """Return what `decode_some` returns; others go on while that takes long."""
    items: list[MemoryItem] = []
    done = spent = 0
    for place, row in enumerate(rows):
        size = len(row[_METADATA] or "") + len(row[_EXTRA] or "")
        spent += size + _ROW
        if spent > _SLICE or size > _LONG:
            items += decode_some(rows[done:place], usual=usual)
            items.append(await apart(size > _LONG, decode, _whole(row, usual)))
            done, spent = place + 1, 0
            await asyncio.sleep(0)
    return items + decode_some(rows[done:], usual=usual)


async def encode_one(item: MemoryItem, *, exact_extra: bool = False) -> Row:
    """Return the row of *item*; others go on while that takes long."""
    if not _is_long(item):
        return encode(item, exact_extra=exact_extra)
    return await apart(True, encode, item, exact_extra=exact_extra)  # noqa: FBT003 - it is long


async def encode_all(items: Sequence[MemoryItem], *, exact_extra: bool = False) -> list[Row]:
    """Return the rows of *items*; others go on while that takes long."""
    rows: list[Row] = []
    for item in items:
        rows.append(await encode_one(item, exact_extra=exact_extra))
        if not len(rows) % _AT_ONCE:
            await asyncio.sleep(0)
    return rows


def _is_long(item: object) -> bool:
    if not isinstance(item, MemoryItem):
        return False
    # What was never checked may have anything for metadata, and is refused when it is encoded.
    fields, extra = vars(item), getattr(item.metadata, "extra", None)
    if type(item) in _OWN and not (extra or fields.get("native") or fields.get("tool_calls")):
        return False  # as most are: nothing else of a known kind holds other values
    return has_many_values(fields) or has_many_values(extra)


def _whole(row: Sequence[Any], usual: str | None) -> Sequence[Any]:
    """Return *row* with what it does not say."""
    *head, status, metadata, extra_json, created, updated, version = row
    changed = (status or "accepted", metadata or usual, extra_json or "{}")
    return (*head, *changed, created, updated or created, version) if None in row else row


def _decode_plain(row: Sequence[Any], plain: "_Plain | None") -> MemoryItem | None:
    """Return the item of a row with nothing unusual in it, as most are; else `None`.

    *plain* is what a row says that has neither metadata nor anything beside them.
    """
    item_id, content, memory_type, status, metadata, extra_json, created, updated, version = row
    kind = _KINDS.get(memory_type)
    if kind is None or type(content) is not str or type(version) is not int:
        return None
    if metadata is not None and extra_json is not None:
        # Long metadata is seldom the same twice, and would only fill the cache.
        is_short = len(metadata) < _SHORT and len(extra_json) < _SHORT
        plain = _plain(metadata, extra_json) if is_short else None
    if plain is None or (metadata is None) is not (extra_json is None):
        return None
    scope, extra = plain
    if type(created) is str:  # as SQLite keeps times
        same = updated is None or created == updated
        created = _instant(created)
        updated = created if same else _instant(updated)
    # `_build`, written out twice: calling it would cost a tenth of all this.
    who = _new(MemoryMetadata)
    _set_dict(who, {**scope, "extra": {**extra}})
    _set_fields_set(who, _SCOPE_SET)
    _set_extra(who, None)
    _set_private(who, None)
    fields = {
        "id": item_id,
        "content": content,
        "memory_type": memory_type,
        "status": _STATUS[status or "accepted"],
        "metadata": who,
        "native": {},
        "created_at": created,
        "updated_at": updated,
        "version": version,
        "expires_at": None,
    }
    for name, make in _OWN[kind].items():
        fields[name] = make()
    item = _new(kind)
    _set_dict(item, fields)
    _set_fields_set(item, _FIELDS_SET[kind])
    _set_extra(item, None)
    _set_private(item, None)
    return item


def _decode_other(row: Sequence[Any]) -> MemoryItem:
    """Return the item of a row; facts of one key are read again and again."""
    if row[_KIND] != "fact" or len(row[_EXTRA]) >= _SHORT:
        return _decode(row)
    item = _known_fact(tuple(row))
    if type(item) is not kind_of("fact"):
        return _decode(row)
    fields, who = item.__dict__, item.metadata.__dict__
    own = {
        "metadata": _build(MemoryMetadata, {**who, "extra": {**who["extra"]}}, _SCOPE_SET),
        "native": {**fields["native"]},
        "source_ids": [*fields["source_ids"]],
    }
    return _build(type(item), {**fields, **own}, item.__pydantic_fields_set__)


@lru_cache(maxsize=2048)
def _known_fact(row: tuple[Any, ...]) -> MemoryItem | None:
    """Return the item of a row, which nobody may change; `None` if it holds more than texts."""
    item = _decode(row)
    values = (getattr(item, "value", None), *item.metadata.extra.values(), *item.native.values())
    return item if all(type(value) in _SINGLE for value in values) else None


def _decode(row: Sequence[Any]) -> MemoryItem:
    item_id, content, memory_type, status, metadata, extra_json, created, updated, version = row
    extra = {} if extra_json == "{}" else json.loads(extra_json)
    fields = {
        "id": item_id,
        "content": content,
        "memory_type": memory_type,
        "status": _STATUS[status],
        "metadata": _known_metadata(metadata, extra.pop(EXACT, None)),
        "native": extra.pop("native", None) or {},
        "created_at": _instant(created) if type(created) is str else created,
        "updated_at": _instant(updated) if type(updated) is str else updated,
        "version": version,
        "expires_at": None,
    }
    if type(extra.get("expires_at")) is str and memory_type in _KINDS:
        fields["expires_at"] = _instant(extra.pop("expires_at"))
    kind = _KINDS.get(memory_type)
    if kind is not None and type(content) is str and type(version) is int:  # noqa: SIM102
        if _fill(fields, _OWN[kind], extra):
            return _build(kind, fields, _FIELDS_SET[kind])
    is_fact = memory_type == "fact" and type(fields["native"]) is dict and bool(content)
    if is_fact and type(content) is str and type(version) is int:
        from orbiter.memory.model.facts.assertion import stored_fields  # noqa: PLC0415 - are few

        own = stored_fields(extra, named=fields["metadata"].extra.get("fact"))
        if own is not None:
            return _build(kind_of("fact"), {**fields, **own}, _FACT_SET)
    if fields["expires_at"] is None:
        del fields["expires_at"]  # what a record does not say
    return load_item({**fields, **extra, "status": status})


def _build(kind: type[_Model], fields: dict[str, Any], fields_set: set[str]) -> _Model:
    """Make a model of checked fields, as pydantic would."""
    model = _new(kind)
    _set_dict(model, fields)
    # Shared: it names every field, so nothing is ever added to it.
    _set_fields_set(model, fields_set)
    _set_extra(model, None)
    _set_private(model, None)
    return model


def _fill(fields: dict[str, Any], own: dict[str, Any], extra: dict[str, Any]) -> bool:
    """Add the fields of a known kind; tell whether the row holds these and nothing else."""
    for name, make in own.items():
        value = extra.pop(name, None)
        if value is None:
            value = make()
        elif type(value) is not make or (make is list and not _are_dicts(value)):
            extra[name] = value
            return False
        fields[name] = value
    return not extra and type(fields["native"]) is dict


def _are_dicts(values: list[Any]) -> bool:
    return all(type(value) is dict for value in values)


@lru_cache(maxsize=4096)
def _plain(metadata: str, extra_json: str) -> _Plain | None:
    """Return the scope fields and the `extra` of a row that says no more; `None` if it does.

    Of `extra` there are single values only, so that a copy of the dictionary shares nothing.
    """
    fields = json.loads(metadata)
    if extra_json == "{}" and fields.keys() <= _NO_SCOPE.keys():  # as of most rows
        scope = {**_NO_SCOPE, **fields}
        if all(value is None or type(value) is str for value in scope.values()):
            return scope, {}
    beside = json.loads(extra_json)
    if type(beside) is not dict or not (fields.keys() <= _SCOPE_SET and beside.keys() <= {EXACT}):
        return None
    who = _metadata(metadata, beside.get(EXACT)).__dict__
    if not all(type(value) in _SINGLE for value in who["extra"].values()):
        return None
    return {name: who[name] for name in SCOPE_FIELDS}, who["extra"]


def _known_metadata(text: str, exact: Any) -> MemoryMetadata:
    """Return what `_metadata` returns, without reading again what many rows say."""
    plain = _plain(text, "{}") if exact is None and len(text) < _SHORT else None
    if plain is None:
        return _metadata(text, exact)
    return _build(MemoryMetadata, {**plain[0], "extra": {**plain[1]}}, _SCOPE_SET)


def _metadata(text: str, exact: Any) -> MemoryMetadata:
    fields = json.loads(text)
    if exact is not None and is_stored_json(exact, fields.get("extra")):
        fields["extra"] = exact
    extra = fields.get("extra", {})
    if fields.keys() <= _SCOPE_SET and type(extra) is dict:
        scope: dict[str, Any] = {name: fields.get(name) for name in SCOPE_FIELDS}
        if all(value is None or type(value) is str for value in scope.values()):
            checked = check_json(extra, max_bytes=MAX_JSON)
            return _build(MemoryMetadata, {**scope, "extra": checked}, _SCOPE_SET)
    return MemoryMetadata.model_validate(fields)


def _instant(text: str) -> datetime:
    instant = datetime.fromisoformat(text)
    return instant if instant.tzinfo is UTC else to_utc(instant)


def end_of(row: Row) -> datetime | None:
    """Return when the item of a row is over."""
    if not row.extra_json.startswith(ENDS):
        return None
    return _instant(row.extra_json[len(ENDS) : len(ENDS) + END_WIDTH])


def iso(instant: datetime) -> str:
    """Return *instant* as text of one width, so that text order is time order."""
    return instant.isoformat(timespec="microseconds")
