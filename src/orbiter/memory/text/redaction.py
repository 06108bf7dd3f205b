"""Redaction: what is taken out of texts before a store gets them, whichever way they come.

`filter_writes` stands in front of the methods of a store that write items, where everything passes:
an import, a server or a summary cannot go around it. Names stay as they are: ids, scopes and keys,
by which a program finds things again.

What stands between `<private>` and `</private>` is never stored. Secrets are redacted if the memory
was made with `redact="secrets"`, and in what importers and hooks read unless it is `none`. Then
comes the hook for personal data, `pii`.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, wraps
from typing import Any, Literal, get_args

from orbiter.memory._lazy import lazy_pattern
from orbiter.memory.errors import QueryError
from orbiter.memory.model.agent_store import AgentStore
from orbiter.memory.model.items import MemoryItem, calls_of, role_of
from orbiter.memory.model.records import Record
from orbiter.memory.model.validation import Json
from orbiter.memory.tasks.offload import apart, has_many_values

__all__ = [
    "PIIHook",
    "Redact",
    "Redaction",
    "clean_item",
    "filter_questions",
    "filter_writes",
    "has_private",
    "is_all_private",
    "scrub",
    "strip_private",
    "without_private",
]

PIIHook = Callable[[str], str]
"""Gets each text before it is written, and each query; returns what may be stored."""

Redact = Literal["none", "secrets"]
"""Which texts secrets are redacted in: none, or all; by default those of importers and hooks."""

_Change = Callable[[Json, str | None], Json]
"""Gets each text, number or flag of a JSON value, and the name under which it stands, if any."""

PRIVATE = "[private]"
"""What stands for a text that is private as a whole, where a message needs one."""

_NAME_FIELDS = frozenset(
    ("id", "memory_type", "status", "tool_call_id", "tool_name", "key", "source_ids", "metadata")
)
"""Fields of items that are names, or are looked at by themselves."""

_DIGEST = re.compile(r"[0-9a-f]{16}")

_QUESTIONS = frozenset(("query", "task", "where", "source"))
"""Arguments that are compared with what was written."""

# Serializers may write `<` as `\u003c` and `/` as `\/`.
_TAG = lazy_pattern(
    r"(?:<|\\u003c)[ \t]{0,9}(?P<end>\\?/)?[ \t]{0,9}private(?![\w-])"
    r"[^<>\\]{0,200}?(?<!/)(?:>|\\u003e)",
    re.IGNORECASE,
)
_NO_PAYLOAD = frozenset(("type", "role", "name", "id"))
"""Keys of a message's parts that say nothing by themselves."""


@dataclass(frozen=True, slots=True)
class Redaction:
    """What a memory takes out of texts: secrets, as *redact* says, and what *pii* replaces."""

    redact: Redact | None = None
    pii: PIIHook | None = None

    def __post_init__(self) -> None:
        if self.redact is not None and self.redact not in get_args(Redact):
            raise QueryError(
                f"`redact` must be `secrets` or `none`, not {self.redact!r}; what becomes of "
                "personal data, `pii` says"
            )
        if self.pii is not None and not callable(self.pii):
            raise QueryError(
                f"`pii` must be a function from text to text, such as a `PIIHasher`, "
                f"or a word such as `tokens`, not {self.pii!r}"
            )

    def __call__(self, text: str) -> str:
        """Return what may be stored of *text*."""
        return self.replace(strip_private(text))

    def stored(self, value: Json, name: str | None = None) -> Json:
        """Return what may be stored of a JSON *value* that stands under *name*, if under any."""
        return _walk(value, self._stored, name)

    def asked(self, value: Json, name: str | None = None) -> Json:
        """Return *value* as it is compared with what was stored; what is private stays."""
        return _walk(value, self._replaced, name)

    def _stored(self, value: Json, name: str | None) -> Json:
        return self._replaced(strip_private(value) if isinstance(value, str) else value, name)

    def _replaced(self, value: Json, name: str | None) -> Json:
        if self.redact == "secrets" and name is not None and type(value) in (str, int, float):
            from orbiter.memory.text.secret_patterns import kind_under  # noqa: PLC0415 - as below

            if kind := kind_under(name, str(value)):
                return f"[redacted: {kind}]"
        return self.replace(value) if isinstance(value, str) else value

    def replace(self, text: str) -> str:
        """Return *text* with secrets and personal data replaced; what is private stays."""
        # Secrets first: `user:password@host` would be an address.
        if self.redact == "secrets":
            # Here: the patterns of all formats take as long to load as the rest of a short command.
            from orbiter.memory.text.secret_patterns import redact_secrets  # noqa: PLC0415

            text = redact_secrets(text)
        return text if self.pii is None else self.pii(text)

    @property
    def replaces(self) -> bool:
        """Whether texts are written otherwise than they are given, and so asked for otherwise."""
        return self.redact == "secrets" or self.pii is not None

    def for_files(self) -> "Redaction":
        """Return what is taken out of transcripts and imported files, before the store's own."""
        return Redaction(self.redact or "secrets")

    def apply(self, items: Sequence[MemoryItem]) -> list[MemoryItem]:
        """Return *items*, changed to what is stored of them, without those that are not."""
        return [clean_item(item, self) for item in without_private(items)]


# What is private


def has_private(text: str) -> bool:
    """Tell whether something in *text* is marked as private."""
    return ("<" in text or "\\u003" in text) and _TAG.search(text) is not None


def strip_private(text: str) -> str:
    """Return *text* without what is marked as private; without an end tag, that is the rest."""
    if not has_private(text):
        return text
    if text.lstrip()[:1] in ("{", "["):
        try:  # a tool's arguments: what is left must be JSON, too
            value = json.loads(text)
        except (ValueError, RecursionError):
            pass
        else:
            return json.dumps(scrub(value, _strip_part), ensure_ascii=False)
    return _stripped(text, 0)[0]


def _stripped(text: str, depth: int) -> tuple[str, int]:
    """Return what is left of *text*, and how many marks are open behind it and were before."""
    parts, at = [], 0
    for tag in _TAG.finditer(text):
        if depth == 0 and not tag["end"]:
            parts.append(text[at : tag.start()])
        if not tag["end"]:
            depth += 1
        elif depth:
            depth -= 1
            at = tag.end()
    return "".join([*parts, "" if depth else text[at:]]), depth


def _strip_part(text: str) -> str:
    """Return what is left of a text within a message; providers refuse an empty one."""
    left = strip_private(text)
    return left if left is text or left.strip() else PRIVATE


def _strip_native(value: Json) -> Json:
    """Return a provider's message without what is private.

    Its texts are one: what is private may begin in one part and end in another. A part of which
    nothing is left goes.
    """
    if isinstance(value, str):
        return _strip_part(value)
    if isinstance(value, dict):
        return {key: _strip_native(inner) for key, inner in value.items()}
    if not isinstance(value, list):
        return value
    kept: list[Json] = []
    depth = 0
    for block in value:
        said = block.get("text") if isinstance(block, dict) else None
        if not isinstance(block, dict) or not isinstance(said, str):
            kept.append(_strip_native(block))
            continue
        left, depth = _stripped(said, depth)
        if left == said or left.strip():
            kept.append({**{key: _strip_native(each) for key, each in block.items()}, "text": left})
    return kept


def _holds_private(value: object) -> bool:
    if isinstance(value, str):
        return has_private(value)
    if isinstance(value, Mapping):
        return any(map(_holds_private, value.values()))
    return isinstance(value, list | tuple) and any(map(_holds_private, value))


def _is_public(item: MemoryItem) -> bool:
    """Tell whether nothing in *item* is private, as in most."""
    return not (_holds_private(item.__dict__) or _holds_private(item.metadata.extra))


def scrub(value: Json, hook: PIIHook) -> Json:
    """Return a copy of the JSON *value* with *hook* applied to every string in it.

    Keys stay: they are names a program looks up, and two that became one would lose a value.
    Numbers stay too, so a card number kept as an integer is not found; store it as a string.
    """
    if isinstance(hook, Redaction):
        return hook.stored(value)
    return _walk(value, lambda leaf, _: hook(leaf) if isinstance(leaf, str) else leaf, None)


def _walk(value: Json, change: _Change, name: str | None) -> Json:
    """Return a copy of *value* with each leaf changed; those of a list have the name of the list.

    What a dict holds is named by its own keys alone: a `password` of a schema is no password.
    """
    if isinstance(value, list | tuple):
        return [_walk(inner, change, name) for inner in value]
    if isinstance(value, dict):
        return {key: _walk(inner, change, key) for key, inner in value.items()}
    return change(value, name)


def _strip(value: Json, _name: str | None) -> Json:
    return strip_private(value) if isinstance(value, str) else value


def is_all_private(value: Json) -> bool:
    """Tell whether nothing is left of *value*, a text or other JSON, without what is private."""
    return _holds_private(value) and _is_blank(_walk(value, _strip, None))


def _is_blank(value: Json) -> bool:
    if isinstance(value, dict):
        return all(map(_is_blank, value.values()))
    if isinstance(value, list):
        return all(map(_is_blank, value))
    return isinstance(value, str) and not value.strip()


def without_private(items: Sequence[MemoryItem]) -> list[MemoryItem]:
    """Return *items* without what is private; a message of only that is left out.

    Calls of tools and their results stay, so that a conversation is still legal.
    """
    kept = []
    for item in items:
        if _is_public(item):
            kept.append(item)
            continue
        content, native = item.content, _strip_native(item.native)
        _clean(item, _strip)
        item.__dict__["native"] = native
        if item.content is not content and not item.content.strip():
            item.__dict__["content"] = ""
            if role_of(item) == "tool":
                item.__dict__.update(content=PRIVATE, native={})
            elif not calls_of(item) and not any(_payload(item.native)):
                continue
        elif item.content is not content and native:
            item.__dict__["content"] = item.content.strip("\n")  # as its parts are joined
        kept.append(item)
    return kept


def _payload(value: object) -> Iterator[str]:
    """Yield what the parts of a message say beside text that was private."""
    if isinstance(value, str):
        if value.strip() and value != PRIVATE:
            yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if key not in _NO_PAYLOAD:
                yield from _payload(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _payload(inner)


# The door of a store


def filter_writes(store: AgentStore, redaction: Redaction) -> None:
    """Have items changed before *store* writes them, as they are handed to it.

    The store gets a class of its own, so that what is made from it, as for row-level security, is
    filtered, too, and by its own methods. A store that several memories share keeps what one of
    them replaces.
    """
    if redaction.replaces or "_redaction" not in store.__dict__:
        store.__dict__["_redaction"] = redaction
    store.__class__ = _filtered_class(type(store))


@cache
def _filtered_class(kind: type) -> type:
    """Return the class of stores of that *kind* that filter what they write."""
    if hasattr(kind, "_filters_writes"):
        return kind
    writers: dict[str, Callable[[Any, Redaction], Any]] = {
        "add": clean_item,
        "add_many": _clean_items,
        "insert": _clean_items,
        "put_records": _clean_records,
    }
    methods = {name: _filtered(kind, name, clean) for name, clean in writers.items()}
    own = {"_filters_writes": True, "__doc__": kind.__doc__, "__module__": kind.__module__}
    return type(kind.__name__, (kind,), {**methods, **own})


def _filtered(kind: type, name: str, clean: Callable[[Any, Redaction], Any]) -> Callable[..., Any]:
    async def filtered(store: Any, what: Any, *args: Any, **kwargs: Any) -> Any:
        redaction = store.__dict__["_redaction"]
        is_long = has_many_values([what])
        cleaned = await apart(is_long, clean, what, redaction)
        if hasattr(kind, name):
            return await getattr(kind, name)(store, cleaned, *args, **kwargs)
        # A store that hands on to another has its methods by `__getattr__`.
        return await store.__getattr__(name)(cleaned, *args, **kwargs)

    return wraps(getattr(kind, name, filtered))(filtered)


def clean_item(item: MemoryItem, redaction: Redaction) -> MemoryItem:
    """Change *item* itself: what a call returns is then what it has stored."""
    if not redaction.replaces and _is_public(item):
        return item
    return _clean(item, redaction.stored)


def _clean(item: MemoryItem, change: _Change) -> MemoryItem:
    fields = item.__dict__
    own = _said_of_fact(item, change)
    for name, value in fields.items():
        if name not in _NAME_FIELDS and isinstance(value, str | list | dict) and value:
            fields[name] = _walk(value, change, name)
    fields.update(own)
    extra = item.metadata.extra
    names = {"fact": fields.get("key")}
    if str(extra.get("source")).startswith("import:") and _DIGEST.fullmatch(
        str(extra.get("imported"))
    ):
        names["imported"] = extra["imported"]
    # By these this library finds an item again; another's label of that name is as any.
    labels = {
        name: label if name in names and label == names[name] else _walk(label, change, name)
        for name, label in extra.items()
    }
    fields["metadata"] = item.metadata.model_copy(update={"extra": labels})
    return item


def _said_of_fact(item: MemoryItem, change: _Change) -> dict[str, Json]:
    """Return what may be stored of what a fact says: its value by its key, and so in its text."""
    if item.memory_type != "fact":  # as most
        return {}
    from orbiter.memory.model.facts import FactMemory, show_value  # noqa: PLC0415 - few are facts

    if not isinstance(item, FactMemory) or item.is_end:
        return {}
    value = _walk(item.value, change, item.key)
    said = show_value(item.value)
    if not item.content.endswith(said):
        return {"value": value}
    begin = change(item.content.removesuffix(said), None)
    return {"value": value, "content": f"{begin}{show_value(value)}"}


def _clean_items(items: Sequence[MemoryItem], redaction: Redaction) -> list[MemoryItem]:
    return [clean_item(item, redaction) for item in items]


def _clean_records(records: Sequence[Record], redaction: Redaction) -> list[Record]:
    return [
        Record(
            clean_item(each.item, redaction),
            deleted=each.deleted,
            versions=[
                replace(past, item=clean_item(past.item, redaction)) for past in each.versions
            ],
            recorded_at=each.recorded_at,
            recorded_by=each.recorded_by,
        )
        for each in records
    ]


def filter_questions(
    method: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    redaction: Redaction,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call with what asks for something as what was stored of it."""
    names = method.__code__.co_varnames[1:]
    cleaned = tuple(
        redaction.asked(value) if name in _QUESTIONS else value
        for name, value in zip(names, args, strict=False)
    )
    named = {
        name: redaction.asked(value) if name in _QUESTIONS else value
        for name, value in kwargs.items()
    }
    return cleaned, named
