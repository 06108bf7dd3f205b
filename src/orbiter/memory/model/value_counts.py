"""Who has memories, in which chats, and of which values: `users`, `conversations`, `count_by`.

`list_users` and `count_values` say what must come out; a store may ask its database instead, as
long as that counts exactly the same.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, get_args

from typing_extensions import Protocol, runtime_checkable

from orbiter.memory.errors import QueryError
from orbiter.memory.model.derived import EXTRACTION
from orbiter.memory.model.filters import MISSING, Place, Where, read_place
from orbiter.memory.model.items import DEFAULT_USER, SPOKEN, MemoryItem, MemoryMetadata
from orbiter.memory.model.key_value import KeyValueStore, StoredEntry
from orbiter.memory.model.query import SCOPE_FIELDS, check_size
from orbiter.memory.model.reports import ConversationInfo
from orbiter.memory.model.validation import StructuralMeta, check_text

__all__ = [
    "COUNTED_FIELDS",
    "FacetStore",
    "UserInfo",
    "UserOrder",
    "UserQuery",
    "ValueCount",
    "count_conversation",
    "count_values",
    "counted_place",
    "list_conversations",
    "list_users",
    "most_frequent",
    "read_users_of_entries",
    "scalars_in",
    "users_of_entries",
]

COUNTED_FIELDS = ("memory_type", "status", "user_id", "session_id", "task_id", "agent_id")
"""The fields of an item whose values are counted; every key of `metadata.extra` is, too."""

UserOrder = Literal["name", "recent", "items"]
"""How users are ordered: by name, the last seen first, or those with most memories first."""


@dataclass(frozen=True, slots=True)
class UserInfo:
    """One user, and how much they have."""

    user_id: str
    items: int
    """How many memories they have, messages included; what was forgotten is not counted."""
    chats: int
    """How many different sessions their memories name, also those without a message."""
    first_at: datetime
    """When the first of these was created."""
    last_at: datetime
    """When the last of these was created, or put."""
    entries: int = 0
    """How many key-value entries they have; the times are of these, too."""

    @property
    def is_default(self) -> bool:
        """Whether these are the memories of programs that name no user."""
        return self.user_id == DEFAULT_USER


@dataclass(frozen=True, slots=True)
class ValueCount:
    """A value that memories have, and how many have it."""

    value: object
    """A text, a number or a boolean; of a list it is one of its elements."""
    items: int
    """How many memories have it: as many as `where={name: value}` finds."""


@dataclass(frozen=True, slots=True)
class UserQuery:
    """Which users are asked for."""

    starts_with: str = ""
    order: UserOrder = "name"
    after: UserInfo | None = None
    """The last of the page before."""
    limit: int = 50

    def __post_init__(self) -> None:
        check_size("limit", self.limit)
        if self.order not in get_args(UserOrder):
            raise QueryError(f"unknown order `{self.order}`; use `name`, `recent` or `items`")
        if not isinstance(self.starts_with, str):
            raise QueryError(f"`starts_with` must be a string, not {self.starts_with!r}")
        try:
            check_text(self.starts_with, max_bytes=MemoryItem.max_content_bytes)
        except ValueError as exc:
            raise QueryError(f"no name can begin with `starts_with`: {exc}") from None

    def page(self, users: Iterable[UserInfo]) -> list[UserInfo]:
        """Return those of *users* that are asked for, in order."""
        wanted = [each for each in users if each.user_id.startswith(self.starts_with)]
        wanted.sort(key=self._key)
        if self.after is not None:
            behind = self._key(self.after)
            wanted = [each for each in wanted if self._key(each) > behind]
        return wanted[: self.limit]

    def _key(self, user: UserInfo) -> tuple[float, str]:
        if self.order == "name":
            return 0.0, user.user_id
        first = user.items if self.order == "items" else user.last_at.timestamp()
        return -first, user.user_id


@runtime_checkable
class FacetStore(Protocol, metaclass=StructuralMeta):
    """A store that counts users and values itself; others are read from end to end for it."""

    async def users(self, query: UserQuery) -> list[UserInfo]:
        """Return the users who have memories or entries; whoever calls may see everyone's."""
        ...

    async def count_by(
        self,
        field: str,
        *,
        metadata: MemoryMetadata | None = None,
        memory_type: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        where: Where | None = None,
        limit: int = 100,
    ) -> list[ValueCount]:
        """Return the most frequent values of *field* among items that match, with their counts."""
        ...


def counted_place(field: object) -> Place:
    """Return what *field* names, as in `where`; `QueryError` if its values are not counted."""
    if not isinstance(field, str) or not field or field.startswith("$"):
        raise QueryError(f"`field` must be a name, such as `tags` or `memory_type`, not {field!r}")
    place = read_place(field)
    if not place.is_extra and place.name not in COUNTED_FIELDS:
        names = "`, `".join(COUNTED_FIELDS)
        raise QueryError(
            f"the values of `{field}` are not counted; use `{names}` or a key of `extra`"
        )
    return place


def scalars_in(value: object) -> list[object]:
    """Return what a value counts as, each once: itself, or the elements of a list."""
    values: dict[tuple[bool, object], object] = {}
    for each in value if isinstance(value, list) else [value]:
        if each is not None and each is not MISSING and not isinstance(each, dict | list):
            values.setdefault((isinstance(each, bool), each), each)
    return list(values.values())


def most_frequent(counted: Iterable[tuple[object, int]], limit: int) -> list[ValueCount]:
    """Return the values of *counted*, most frequent first, of equals by kind and value.

    What a list holds counts by element. `True` is not 1, and 1 is 1.0, as for `where`.
    """
    counts: dict[tuple[bool, object], int] = {}
    for value, items in counted:
        for each in scalars_in(value):
            key = (isinstance(each, bool), each)
            counts[key] = counts.get(key, 0) + items
    values = [ValueCount(_plain(value), items) for (_, value), items in counts.items()]
    values.sort(key=_by_frequency)
    return values[:limit]


def _plain(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _by_frequency(each: ValueCount) -> tuple[Any, ...]:
    kind = 0 if isinstance(each.value, str) else 2 if isinstance(each.value, bool) else 1
    return -each.items, kind, each.value


def count_values(items: Iterable[MemoryItem], field: str, limit: int) -> list[ValueCount]:
    """Return the most frequent values of *field* among *items*."""
    place = counted_place(field)
    return most_frequent(((_plain_text(place.read(item)), 1) for item in items), limit)


def _plain_text(value: object) -> object:
    return str(value) if isinstance(value, str) else value


def list_users(
    items: Iterable[MemoryItem], query: UserQuery, entries: Iterable[UserInfo] = ()
) -> list[UserInfo]:
    """Return the users of *items* and of *entries*, see `users_of_entries`, as asked for."""
    users: dict[str, UserInfo] = {}
    sessions: dict[str, set[str | None]] = {}
    for item in items:
        if item.metadata.user_id is not None:
            sessions.setdefault(item.metadata.user_id, {None}).add(item.metadata.session_id)
            if item.memory_type != EXTRACTION:
                at = item.created_at
                _join(users, UserInfo(item.metadata.user_id, 1, 0, at, at))
    for each in entries:
        _join(users, each)
    chats = {name: len(theirs) - 1 for name, theirs in sessions.items()}
    return query.page(replace(user, chats=chats.get(name, 0)) for name, user in users.items())


def users_of_entries(entries: Iterable[StoredEntry]) -> Iterator[UserInfo]:
    """Yield whose each entry is, if it is a user's."""
    for stored in entries:
        if stored.scope.user_id is not None:
            times = stored.entry.created_at, stored.entry.updated_at
            yield UserInfo(stored.scope.user_id, 0, 0, *times, entries=1)


async def read_users_of_entries(store: object) -> list[UserInfo]:
    """Return whose the entries of *store* are, if it keeps any; every one is read for it."""
    kept: KeyValueStore | None = getattr(store, "key_value", None)
    users: dict[str, UserInfo] = {}
    last = None
    while kept is not None and (page := await kept.dump(after=last)):
        for each in users_of_entries(page):
            _join(users, each)
        last = page[-1]
    return list(users.values())


def _join(users: dict[str, UserInfo], more: UserInfo) -> None:
    known = users.get(more.user_id)
    if known is None:
        users[more.user_id] = more
        return
    users[more.user_id] = UserInfo(
        more.user_id,
        known.items + more.items,
        0,  # sessions are counted by their names
        min(known.first_at, more.first_at),
        max(known.last_at, more.last_at),
        known.entries + more.entries,
    )


def count_conversation(
    item: MemoryItem, chats: dict[tuple[str | None, ...], ConversationInfo]
) -> None:
    """Count an item, older than those before it, as part of its conversation."""
    who = item.metadata
    if item.memory_type not in SPOKEN or (who.session_id, who.task_id) == (None, None):
        return
    scope = tuple(getattr(who, name) for name in SCOPE_FIELDS)
    known = chats.get(scope)
    if known is None:
        metadata = MemoryMetadata.model_validate(dict(zip(SCOPE_FIELDS, scope, strict=True)))
        chats[scope] = ConversationInfo(metadata, 1, item.created_at, item.created_at)
    else:
        chats[scope] = replace(known, items=known.items + 1, first_at=item.created_at)


def list_conversations(newest_first: Iterable[MemoryItem]) -> list[ConversationInfo]:
    """Return the conversations that items are of, most recent first."""
    chats: dict[tuple[str | None, ...], ConversationInfo] = {}
    for item in newest_first:
        count_conversation(item, chats)
    return list(chats.values())
