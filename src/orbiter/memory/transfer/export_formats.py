"""Export to the formats of others: a CSV table, Markdown notes, conversations, a graph.

What is remembered now is written, and in tables and notes also facts that held before, with their
times; the native format holds all of the past. No spreadsheet runs anything of the table.
"""

import csv
import io
import json
import os
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from typing_extensions import Protocol

from orbiter.memory.agent.chat_history import read_back
from orbiter.memory.agent.runtime import Store
from orbiter.memory.errors import TransferError
from orbiter.memory.messages import to_messages
from orbiter.memory.model.facts import (
    ALWAYS,
    FactMemory,
    FactSpan,
    by_key,
    current,
    dated,
    span_of,
    timeline,
)
from orbiter.memory.model.items import MemoryItem, MemoryMetadata, MemoryStatus, role_of
from orbiter.memory.model.query import SCOPE_FIELDS
from orbiter.memory.model.reports import ConversationInfo
from orbiter.memory.model.serialization import dump_item
from orbiter.memory.model.trust import source_of
from orbiter.memory.transfer.formats.foreign_items import digest
from orbiter.memory.transfer.formats.mcp_memory import observation_of
from orbiter.memory.transfer.formats.registry import AUTO, EXPORTS, NATIVE
from orbiter.memory.transfer.io.output_file import new_file, new_folder
from orbiter.memory.transfer.movable_store import MovableStore
from orbiter.memory.transfer.native import pages_of

__all__ = [
    "CurrentState",
    "RecordStore",
    "conversations",
    "current_states",
    "format_for",
    "merged",
    "safe_cell",
    "write_csv",
    "write_markdown",
    "write_mcp",
    "write_openai",
]

_PAGE = 1_000
_MANY = 10**6
_BOOKKEEPING = ("extraction", "summary")
"""The types of what we derive for ourselves, and can make again."""
_SAID_OTHERWISE = {"key", "value", "valid_from", "valid_to", "retracted_at", "is_end"}
"""Of a fact: what its span tells, or what is so of every fact that holds."""


class RecordStore(Store, MovableStore, Protocol):
    """A store whose items can be walked in the order in which they came."""


@dataclass(frozen=True, slots=True)
class CurrentState:
    """One memory as it is now; a fact with the time for which it holds, or held."""

    item: MemoryItem
    span: FactSpan | None = None

    @property
    def text(self) -> str:
        """What it says; a fact says since when."""
        when = dated(self.span) if self.span else ""
        return f"{self.item.content} ({when})" if when else self.item.content

    @property
    def labels(self) -> Mapping[str, object]:
        """What was noted beside it; not its source, nor a fact's key, which are told by name."""
        hidden = ("source", "trust", "fact") if self.span else ("source", "trust")
        extra = self.item.metadata.extra
        return {name: value for name, value in extra.items() if name not in hidden}

    @property
    def fact(self) -> dict[str, object]:
        """What a fact says: key, value and the ends of its time, if it has any."""
        if self.span is None:
            return {}
        fact, start, end = self.span.fact, self.span.start, self.span.end
        fields: dict[str, object] = {"key": fact.key, "value": fact.value}
        fields |= {} if start == ALWAYS else {"valid_from": start.isoformat()}
        return fields if end is None else {**fields, "valid_to": end.isoformat()}

    @property
    def own_fields(self) -> dict[str, object]:
        """What only items of its kind have, such as tool calls, as JSON; nothing that is empty."""
        hidden = MemoryItem.model_fields.keys() | (_SAID_OTHERWISE if self.span else set())
        fields = dump_item(self.item).items()
        return {
            name: value
            for name, value in fields
            if name not in hidden and value not in (None, "", [], {})
        }


async def current_states(
    store: RecordStore, scope: MemoryMetadata | None, *, past_facts: bool = False
) -> AsyncIterator[CurrentState]:
    """Yield what is remembered now, in the order in which it came.

    With *past_facts*, also facts that held before, or will; never one that was retracted.
    """
    spans = await _fact_spans(store, scope, past_facts=past_facts)
    async for page in pages_of(store, metadata=scope):
        for record in page:
            item = record.item
            if record.deleted or not _is_shown(item):
                continue
            if not isinstance(item, FactMemory):
                yield CurrentState(item)
            elif item.id in spans:
                yield CurrentState(item, spans[item.id])


def _is_shown(item: MemoryItem) -> bool:
    return item.status is MemoryStatus.ACCEPTED and item.memory_type not in _BOOKKEEPING


async def _fact_spans(
    store: RecordStore, scope: MemoryMetadata | None, *, past_facts: bool
) -> dict[str, FactSpan]:
    """Return facts by id, each with its time: those that hold now, as `facts.all()` tells them.

    With *past_facts*, all that ever hold: of one that held twice, the last time.
    """
    scopes: dict[tuple[str | None, ...], list[FactMemory]] = {}
    before: MemoryItem | None = None
    while True:
        page = await store.search(
            metadata=scope,
            memory_type="fact",
            status=MemoryStatus.ACCEPTED,
            limit=_PAGE,
            before=before,
        )
        for item in page:
            if isinstance(item, FactMemory):
                # Those of a session are no facts of its user's: each scope speaks for itself.
                own_scope = tuple(getattr(item.metadata, name) for name in SCOPE_FIELDS)
                scopes.setdefault(own_scope, []).append(item)
        if len(page) < _PAGE:
            break
        before = page[-1]
    read = _timelines if past_facts else _spans
    return {span.fact.id: span for facts in scopes.values() for span in read(facts)}


def _timelines(facts: list[FactMemory]) -> Iterable[FactSpan]:
    known = datetime.max.replace(tzinfo=UTC)
    now_held = {span.fact.id: span for span in _spans(facts)}
    for of_key in by_key(facts).values():
        for span in timeline(of_key, known_at=known):
            yield now_held.get(span.fact.id, span)


def _spans(facts: list[FactMemory]) -> Iterable[FactSpan]:
    known = datetime.max.replace(tzinfo=UTC)
    # What is recorded has happened, even by a clock that is ahead of this one.
    last = max((fact.recorded_at for fact in facts if fact.is_known(known)), default=ALWAYS)
    now = max(datetime.now(UTC), last)
    grouped = by_key(facts)
    for key, fact in current(facts, as_of=now, known_at=known).items():
        yield span_of(fact, grouped[key], as_of=now, known_at=known)


async def conversations(store: RecordStore, scope: MemoryMetadata | None) -> list[ConversationInfo]:
    """Return the conversations, the one that ended first first."""
    infos = await store.conversations(metadata=scope, limit=_MANY)
    return infos[::-1]


def merged(
    ours: Mapping[str, object], labels: Mapping[str, object], *, reserved: Iterable[str] = ()
) -> dict[str, object]:
    """Return *ours* with a caller's labels beside it.

    One that has a name of ours, or one that is *reserved*, stands under `extra`.
    """
    taken = {*ours, *reserved, "extra"}
    clashing = {name: value for name, value in labels.items() if name in taken}
    beside = {name: value for name, value in labels.items() if name not in taken}
    return {**ours, **beside, **({"extra": clashing} if clashing else {})}


_OURS = (
    "id", "created_at", "updated_at", "expires_at", "memory_type", "status", "source", "trust",
    *SCOPE_FIELDS, "key", "value", "valid_from", "valid_to",
)  # fmt: skip
"""What front matter means to us, whether this note has it or not."""

_YAML_WORDS = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null"])
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


async def write_markdown(
    store: RecordStore, scope: MemoryMetadata | None, path: Path, on_progress: Callable[[], None]
) -> None:
    """Write a note for each memory, and one for each conversation."""
    with new_folder(path) as folder:
        talks = await conversations(store, scope)
        scopes = {info.metadata.model_dump_json() for info in talks}
        async for each in current_states(store, scope, past_facts=True):
            if _is_said(each.item, scopes):
                continue
            _write(folder / _file_name(each.item), _note(each))
            on_progress()
        for number, info in enumerate(talks, 1):
            items, _ = await read_back(store, info.metadata)
            title = _title(items)
            name = _slug(title or info.metadata.session_id or info.metadata.task_id or "chat")
            inside = folder / "conversations"
            inside.mkdir(mode=0o700, exist_ok=True)
            text = _talk(info, title, items)
            _write(inside / f"{info.first_at:%Y-%m-%d}-{name}-{number}.md", text)
            for _ in items:
                on_progress()


def _is_said(item: MemoryItem, scopes: set[str]) -> bool:
    """Tell whether *item* stands in one of the conversations."""
    metadata = item.metadata.model_copy(update={"extra": {}})
    return role_of(item) is not None and metadata.model_dump_json() in scopes


def _note(each: CurrentState) -> str:
    item = each.item
    head: dict[str, object] = {"id": item.id, "created_at": item.created_at.isoformat()}
    if item.expires_at is not None:
        head["expires_at"] = item.expires_at.isoformat()
    head |= {"memory_type": item.memory_type, "source": source_of(item)}
    head |= {**_scope_fields(item.metadata), **each.fact}
    return _with_head(merged(head, each.labels, reserved=_OURS), each.text)


def _talk(info: ConversationInfo, title: str, items: Sequence[MemoryItem]) -> str:
    head: dict[str, object] = {"title": title} if title else {}
    head |= {"created_at": info.first_at.isoformat(), **_scope_fields(info.metadata)}
    said = (
        f"## {item.memory_type}, {item.created_at:%Y-%m-%d %H:%M}\n\n{item.content}"
        for item in items
    )
    return _with_head(head, "\n\n".join(said))


def _title(items: Sequence[MemoryItem]) -> str:
    """Return what a conversation is called; its messages say so if it was imported."""
    titles = (item.metadata.extra.get("title") for item in reversed(items))
    return next((title for title in titles if isinstance(title, str) and title.strip()), "")


def _scope_fields(who: MemoryMetadata) -> dict[str, object]:
    named = {name: getattr(who, name) for name in SCOPE_FIELDS}
    return {name: value for name, value in named.items() if value is not None}


def _with_head(head: Mapping[str, object], body: str) -> str:
    lines = "".join(f"{_key(name)}: {_yaml_value(value)}\n" for name, value in head.items())
    return f"---\n{lines}---\n{body}\n"


def _key(name: str) -> str:
    is_plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", name) and name.lower() not in _YAML_WORDS
    return name if is_plain else _yaml_value(name)


def _yaml_value(value: object) -> str:
    """Return *value* as JSON, which is YAML: it can neither end the head nor become another."""
    # Readers of YAML take half a character for each half of an escaped emoji, so it stands as it
    # is; what they refuse, or end a line at, is escaped.
    text = json.dumps(value, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _file_name(item: MemoryItem) -> str:
    title = item.metadata.extra.get("title")
    words = title if isinstance(title, str) and title else item.content
    return f"{item.created_at:%Y-%m-%d}-{_slug(words)}-{digest(item.id, size=6)}.md"


def _slug(text: str) -> str:
    return "-".join(re.findall(r"[a-z0-9]+", text.lower()[:200]))[:40].strip("-") or "memory"


def _write(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8", newline="\n") as file:
        path.chmod(0o600)
        file.write(text)


_COLUMNS = (
    "id", "created_at", "updated_at", "expires_at", "memory_type", "status", "user_id",
    "session_id", "task_id", "agent_id", "source", "tags", "importance", "content", "key", "value",
    "valid_from", "valid_to", "extra",
)  # fmt: skip

# Spreadsheets skip what cannot be seen before a sign, and some read fullwidth signs as their own.
_FORMULA = re.compile("[\\s\ufeff\u200b-\u200f\u2060]*[=+\\-@＝＋－＠]")
_QUOTED = ("'", "\t", "\r", "\n")


def safe_cell(text: str) -> str:
    """Return *text* so that no spreadsheet takes it for a formula.

    It gets a `'` in front; so does text that begins with one, so that a first `'` can always be
    taken away.
    """
    return f"'{text}" if text.startswith(_QUOTED) or _FORMULA.match(text) else text


async def write_csv(
    store: RecordStore, scope: MemoryMetadata | None, path: Path, on_progress: Callable[[], None]
) -> None:
    """Write a table with a row for each memory."""
    with new_file(path, may_pack=True) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        rows = csv.writer(text)
        rows.writerow(_COLUMNS)
        async for each in current_states(store, scope, past_facts=True):
            cells = _cells(each)
            rows.writerow([safe_cell(str(cells.get(name, ""))) for name in _COLUMNS])
            on_progress()
        text.detach()


def _cells(each: CurrentState) -> dict[str, object]:
    item, labels, fact = each.item, dict(each.labels), each.fact
    tags = labels.pop("tags", [])
    if fact:
        fact["value"] = _json(fact["value"])
    more = merged(each.own_fields, {n: v for n, v in labels.items() if n != "importance"})
    ends = {} if item.expires_at is None else {"expires_at": item.expires_at.isoformat()}
    scope = {name: getattr(item.metadata, name) or "" for name in SCOPE_FIELDS}
    return {
        "id": item.id,
        "created_at": item.created_at.isoformat(),
        "updated_at": item.updated_at.isoformat(),
        **ends,
        "memory_type": item.memory_type,
        "status": item.status.value,
        **scope,
        "source": source_of(item),
        "tags": ", ".join(map(str, tags)) if isinstance(tags, list) else str(tags),
        "importance": labels.get("importance", ""),
        "content": item.content,
        **fact,
        "extra": _json(more) if more else "",
    }


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


_ENDINGS = {
    ending: tuple(name for name, export in EXPORTS.items() if ending in export.endings)
    for each in EXPORTS.values()
    for ending in each.endings
}
"""The formats whose files may end so; without another word, it is the first."""


def format_for(
    target: str | os.PathLike[str] | object, format: str, *, known: tuple[str, ...]
) -> str:
    """Return the format to write, or raise `TransferError` where name and format disagree.

    `auto` is what the ending says, and `jsonl` without one or for a stream.
    """
    if format != AUTO and format not in known:
        names = "`, `".join((AUTO, *known))
        raise TransferError(f"there is no format `{format}` to write; use one of `{names}`")
    if not isinstance(target, str | os.PathLike):
        if format not in (AUTO, NATIVE):
            raise TransferError(
                f"`{format}` needs the name of a file; only `{NATIVE}` takes a stream"
            )
        return NATIVE
    name = os.fspath(target)
    path = Path(name)
    is_packed = path.suffix.lower() == ".gz"
    ending = (path.with_suffix("") if is_packed else path).suffix.lower()
    if format == AUTO:
        return _named(name, ending, is_packed=is_packed, known=known)
    if format == "markdown" and is_packed:
        raise TransferError(
            f"`{name}` ends in `.gz`, and `markdown` is a folder, which is not compressed"
        )
    fitting = _ENDINGS.get(ending)
    if fitting is not None and format not in fitting:
        raise TransferError(
            f"`{name}` ends in `{ending}`, which is not `{format}` but `{'` or `'.join(fitting)}`; "
            "choose another name, or another format"
        )
    return format


def _named(name: str, ending: str, *, is_packed: bool, known: tuple[str, ...]) -> str:
    if name.endswith(("/", os.sep)) and not is_packed:
        return "markdown"
    if not ending:
        return NATIVE
    format = _ENDINGS.get(ending, ("",))[0]
    if format == "markdown":
        raise TransferError(
            f"`{name}` ends in `{ending}`, and notes are written as a folder; "
            "name a folder, and the format `markdown`"
        )
    if not format:
        raise TransferError(
            f"`{name}` ends in `{ending}`, which names no format; "
            f"choose it as well, one of `{'`, `'.join(known)}`"
        )
    return format


_RELATION = ("from", "to", "relationType")


async def write_openai(
    store: RecordStore, scope: MemoryMetadata | None, path: Path, on_progress: Callable[[], None]
) -> None:
    """Write a line for each conversation, `{"messages": […]}`; memories that are none are left."""
    with new_file(path, may_pack=True) as file:
        for info in await conversations(store, scope):
            items, _ = await read_back(store, info.metadata)
            sent = to_messages(items, "openai").messages
            if not sent:
                continue
            file.write(_line({"messages": sent}))
            for _ in sent:
                on_progress()


async def write_mcp(
    store: RecordStore, scope: MemoryMetadata | None, path: Path, on_progress: Callable[[], None]
) -> None:
    """Write an entity for whatever memories are about, with them as its observations."""
    with new_file(path, may_pack=True) as file:
        entities: dict[str, tuple[str, list[str]]] = {}
        relations: list[Mapping[str, object]] = []
        async for each in current_states(store, scope):
            if relation := _relation(each.item):
                relations.append(relation)
                on_progress()
                continue
            name, kind, text = observation_of(each.item)
            if not text and "entity" not in each.item.metadata.extra:  # a call without words
                continue
            _, observations = entities.setdefault(name, (kind, []))
            if text:
                observations.append(each.text if each.span else text)
            on_progress()
        for name, (kind, observations) in entities.items():
            entity = {"name": name, "entityType": kind, "observations": observations}
            file.write(_line({"type": "entity", **entity}))
        for one in relations:
            file.write(_line(one))


def _relation(item: MemoryItem) -> Mapping[str, object] | None:
    """Return the relation that *item* is, if it came from such a file."""
    relation = item.metadata.extra.get("relation")
    ends = [relation.get(name) for name in _RELATION] if isinstance(relation, Mapping) else []
    if not ends or not all(isinstance(end, str) and end for end in ends):
        return None
    return {"type": "relation", **dict(zip(_RELATION, ends, strict=True))}


def _line(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"
