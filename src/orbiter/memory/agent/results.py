"""Results of the calls of `AgentMemory`: pages, what was forgotten, counts, an event."""

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from orbiter.memory.errors import QueryError
from orbiter.memory.model.display import Sheet, Table, TableList, html_table
from orbiter.memory.model.items import MemoryItem, MemoryMetadata, item_row
from orbiter.memory.model.query import SCOPE_FIELDS, Cursor, check_instant, check_size
from orbiter.memory.model.reports import ConversationInfo, Erasure, ItemVersion
from orbiter.memory.model.validation import check_name
from orbiter.memory.model.value_counts import UserInfo, UserOrder, UserQuery

if TYPE_CHECKING:
    from orbiter.memory.model.facts import FactEntry, FactMemory

__all__ = [
    "ChatList",
    "EvaluatedQuestion",
    "Evaluation",
    "EventKind",
    "FactDict",
    "FactHistory",
    "ForgetResult",
    "ItemList",
    "MemoryEvent",
    "Page",
    "ScopeStats",
    "UserPage",
    "VersionList",
    "check_cursor",
    "page_of",
    "user_page",
    "user_query",
]

_LONGEST = 256
"""Characters of a user's name."""

EventKind = Literal[
    "remembered",
    "updated",
    "forgotten",
    "restored",
    "recalled",
    "said",
    "assembled",
    "summarized",
    "summary failed",
    "forked",
    "missed",
]
"""What can happen. `said`: messages came into a chat. `missed`: the reader was too slow."""


class ItemList(TableList[MemoryItem]):
    """Some items."""

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the fields of each item."""
        return [item_row(item) for item in self]

    def _columns(self) -> list[str]:
        return list(item_row(MemoryItem(content="")))

    def _title(self) -> str:
        return _counted(len(self), "memory", "memories")

    def _state(self, item: MemoryItem) -> str:
        """Return what a reader must know beside the text of *item*; nothing of most."""
        del item
        return ""

    def _sheet(self) -> Sheet:
        rows = [
            (
                f"{item.content} ({state})" if (state := self._state(item)) else item.content,
                item.memory_type,
                _labels(item),
                item.created_at,
                item.id,
            )
            for item in self
        ]
        users = [item.metadata.user_id for item in self]
        columns = ("memory", "type", "labels", "created", "id")
        return Sheet(columns, rows, title=self._title(), users=users)


class Page(ItemList):
    """Some items, newest first, and where the next page begins."""

    def __init__(
        self,
        items: list[MemoryItem],
        *,
        next: str | None,
        ended: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(items)
        self.ended = dict(ended or {})
        """What became of facts that hold no more, by id: `replaced by …`, `ended …`."""
        self.next = next
        """Pass it as `cursor=` to get the page of older items; `None` if this is the last.

        A slice has the same: it goes on behind the page, not behind the slice.
        """

    def _state(self, item: MemoryItem) -> str:
        return self.ended.get(item.id, "")

    def _title(self) -> str:
        return super()._title() + (", and more: see `next`" if self.next else "")


class VersionList(TableList[ItemVersion]):
    """What a memory was, oldest first."""

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return who changed what when, and the fields that the memory had then."""
        return [_version_row(each) for each in self]

    def _columns(self) -> list[str]:
        now = datetime.now(UTC)
        return list(_version_row(ItemVersion(MemoryItem(content=""), "added", now, None)))

    def _sheet(self) -> Sheet:
        rows = [
            (each.item.version, each.change, each.item.content, each.by, each.at) for each in self
        ]
        title = _counted(len(self), "version", "versions")
        return Sheet(("version", "change", "memory", "by", "at"), rows, title=title)


def _version_row(version: ItemVersion) -> dict[str, Any]:
    made = {"change": version.change, "at": version.at, "by": version.by}
    return {"version": version.item.version, **made, **item_row(version.item)}


@dataclass(frozen=True, slots=True)
class EvaluatedQuestion:
    """A question, what should answer it, and whether that was among the hits."""

    question: str
    expected: str
    rank: int | None
    """The place of the first hit that answers, from 1; `None` if none does."""
    relevance: float | None
    """That of this hit."""
    first: str
    """What was recalled first; empty if nothing was."""
    is_stored: bool
    """Whether what is expected is remembered at all: else no search can return it."""


class Evaluation(TableList[EvaluatedQuestion]):
    """How well recall answers questions whose answers are known."""

    def __init__(self, questions: list[EvaluatedQuestion], *, k: int) -> None:
        super().__init__(questions)
        self.k = k
        """How many hits each question had at most."""

    @property
    def hit_rate(self) -> float:
        """The share of questions with an answer among the first *k* hits, also called hit@k."""
        return sum(each.rank is not None for each in self) / max(len(self), 1)

    @property
    def mrr(self) -> float:
        """The mean reciprocal rank: 1 if every answer comes first, 0.5 if every one is second."""
        return sum(1 / each.rank for each in self if each.rank is not None) / max(len(self), 1)

    @property
    def misses(self) -> "Evaluation":
        """The questions without an answer among the hits."""
        return Evaluation([each for each in self if each.rank is None], k=self.k)

    def __repr__(self) -> str:
        count = _counted(len(self), "question", "questions")
        return f"Evaluation({count}, hit@{self.k} {self.hit_rate:.2f}, MRR {self.mrr:.2f})"

    __str__ = __repr__

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the fields of each question."""
        return [asdict(each) for each in self]

    def _columns(self) -> list[str]:
        return [each.name for each in fields(EvaluatedQuestion)]

    def _sheet(self) -> Sheet:
        rows = [
            (
                each.question,
                each.expected if each.is_stored else f"{each.expected} (not remembered)",
                each.rank or "miss",
                "" if each.relevance is None else f"{each.relevance:.2f}",
                each.first,
            )
            for each in self
        ]
        title = f"{self!r}"[len("Evaluation(") : -1]
        columns = ("question", "expected", "rank", "relevance", "recalled first")
        return Sheet(columns, rows, title=title)


class ChatList(TableList[ConversationInfo]):
    """Conversations, most recent first."""

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the scope and the counts of each conversation."""
        return [_chat_row(each) for each in self]

    def _columns(self) -> list[str]:
        now = datetime.now(UTC)
        return list(_chat_row(ConversationInfo(MemoryMetadata(), 0, now, now)))

    def _sheet(self) -> Sheet:
        rows = [
            (
                " / ".join(filter(None, (each.metadata.session_id, each.metadata.task_id))),
                each.title,
                each.items,
                each.first_at,
                each.last_at,
            )
            for each in self
        ]
        title = _counted(len(self), "chat", "chats")
        users = [each.metadata.user_id for each in self]
        columns = ("chat", "title", "messages", "first", "last")
        return Sheet(columns, rows, title=title, users=users)


def _chat_row(chat: ConversationInfo) -> dict[str, Any]:
    row = asdict(replace(chat, metadata=None))  # type: ignore[arg-type]  # it is no dataclass
    del row["metadata"]
    return {**{name: getattr(chat.metadata, name) for name in SCOPE_FIELDS}, **row}


class FactDict(Table, dict[str, "FactMemory"]):
    """What is true, by key."""

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the fields of each fact."""
        return [_fact_row(fact) for fact in self.values()]

    def _columns(self) -> list[str]:
        return list(_fact_row())

    def _sheet(self) -> Sheet:
        rows = [
            (row["key"], row["value"], row["valid_from"], row["valid_to"], row["id"])
            for row in self.to_dicts()
        ]
        title = _counted(len(self), "fact", "facts")
        return Sheet(("key", "value", "since", "until", "id"), rows, title=title)


class FactHistory(TableList["FactEntry"]):
    """Every assertion about a key, in the order of recording."""

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the fields of each assertion, and when it held."""
        return [{**_fact_row(each.fact), "held": _held(each)} for each in self]

    def _columns(self) -> list[str]:
        return [*_fact_row(), "held"]

    def _sheet(self) -> Sheet:
        rows = [
            (row["key"], row["value"], row["held"], row["recorded_at"], row["id"])
            for row in self.to_dicts()
        ]
        title = _counted(len(self), "assertion", "assertions")
        return Sheet(("key", "value", "held", "recorded", "id"), rows, title=title)


def _fact_row(fact: "FactMemory | None" = None) -> dict[str, Any]:
    from orbiter.memory.model.facts import ALWAYS, FactMemory  # noqa: PLC0415 - few have facts

    fact = FactMemory(key="none") if fact is None else fact
    is_dated = fact.valid_from != ALWAYS
    return {**item_row(fact), "valid_from": fact.valid_from if is_dated else None}


def _held(entry: "FactEntry") -> str:
    from orbiter.memory.model.facts.spans import dated  # noqa: PLC0415 - as above

    return " and ".join(dated(span) or "always" for span in entry.spans) or "never"


def _counted(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"


def _labels(item: MemoryItem) -> str:
    labels = []
    for name, value in item.metadata.extra.items():
        text = ", ".join(map(str, value)) if isinstance(value, list) else value
        labels.append(f"{name}: {text}")
    return "; ".join(labels)


def page_of(items: Sequence[MemoryItem], limit: int, before: Cursor | None) -> Page:
    """Return the first *limit* of the items found behind *before*, one more than that at most."""
    if len(items) <= limit:
        return Page(list(items), next=None)
    last = items[limit - 1]
    former = before
    if limit > 1:
        former = Cursor(items[limit - 2].id, items[limit - 2].created_at)
    neighbour = former.item_id if former and former.created_at == last.created_at else None
    is_first = neighbour is None and (former is None or former.created_at is not None)
    cursor = Cursor(last.id, last.created_at, neighbour, is_first)
    return Page(list(items[:limit]), next=cursor.to_text())


async def check_cursor(
    cursor: str | None, is_known: Callable[[str], Awaitable[bool]]
) -> Cursor | None:
    """Return where a page goes on, or raise `QueryError`.

    What `Page.next` says may have gone meanwhile; an id alone must name an item that *is_known*.
    """
    if cursor is None:
        return None
    try:
        parsed = Cursor.from_text(cursor)
        for name in (parsed.item_id, parsed.neighbour):
            if name is not None:
                check_name(name, max_chars=256)
    except (TypeError, ValueError):
        raise QueryError(f"`cursor` must be `next` of the previous page, not {cursor!r}") from None
    if parsed.created_at is None and not await is_known(parsed.item_id):
        raise QueryError(
            f"`cursor` names `{cursor}`, which does not exist here; start again without it"
        )
    return parsed


_USER_COLUMNS = ("user", "memories", "sessions", "entries", "first", "last")


class UserPage(TableList[UserInfo]):
    """Some users, and where the next page begins."""

    def __init__(self, users: list[UserInfo], *, next: str | None) -> None:
        super().__init__(users)
        self.next = next
        """Pass it as `cursor=` to get the next page; `None` if this is the last."""

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the fields of each user."""
        return [asdict(user) for user in self]

    def _columns(self) -> list[str]:
        return [each.name for each in fields(UserInfo)]

    def _sheet(self) -> Sheet:
        rows = [
            (
                f"{user.user_id} (default user)" if user.is_default else user.user_id,
                user.items,
                user.chats,
                user.entries,
                user.first_at,
                user.last_at,
            )
            for user in self
        ]
        title = _counted(len(self), "user", "users") + (
            ", and more: see `next`" if self.next else ""
        )
        return Sheet(_USER_COLUMNS, rows, title=title)


def user_query(starts_with: str, order: UserOrder, limit: int, cursor: str | None) -> UserQuery:
    """Return what is asked for, one user more than *limit*, so that a next page is known."""
    check_size("limit", limit)
    after = None
    if cursor is not None:
        try:
            name, items, last = json.loads(cursor)
            moment = check_instant("cursor", datetime.fromisoformat(last))
            after = UserInfo(check_name(name, max_chars=_LONGEST), int(items), 0, moment, moment)
            check_size("cursor", after.items)
            if after.items >= 2**63:
                raise ValueError  # noqa: TRY301 - as for all that no page ends with
        except (ValueError, TypeError, OverflowError, RecursionError, QueryError):
            raise QueryError(
                f"`cursor` must be `next` of the previous page, not {cursor!r}"
            ) from None
    return UserQuery(starts_with, order, after, limit + 1 if limit else 0)


def user_page(users: list[UserInfo], limit: int) -> UserPage:
    """Return the first *limit* of *users*, one more than that at most."""
    if len(users) <= limit:
        return UserPage(users, next=None)
    last = users[limit - 1]
    cursor = json.dumps([last.user_id, last.items, last.last_at.isoformat()], ensure_ascii=False)
    return UserPage(users[:limit], next=cursor)


@dataclass(frozen=True, slots=True)
class ForgetResult:
    """What `forget` removed, or would remove. It is true if there is anything."""

    items: tuple[MemoryItem, ...]
    dry_run: bool = False
    erased: tuple[str, ...] = ()
    """The ids of what is gone for good; no item is left of it."""
    erasure: Erasure | None = None
    """What was removed for good and checked; it is false if something is left."""

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of all that it removed."""
        return (*(item.id for item in self.items), *self.erased)

    def __len__(self) -> int:
        return len(self.items) + len(self.erased)

    def __iter__(self) -> Iterator[MemoryItem]:
        return iter(self.items)

    def __repr__(self) -> str:
        things = "item" if len(self) == 1 else "items"
        return f"ForgetResult({len(self)} {things}, dry_run={self.dry_run})"

    def _repr_html_(self) -> str:
        if self.erasure is not None:
            return self.erasure._repr_html_()
        sheet = ItemList(self.items)._sheet()  # noqa: SLF001 - of this module
        would = "would be forgotten" if self.dry_run else "forgotten"
        return html_table(
            sheet.columns, sheet.rows, title=f"{sheet.title} {would}", users=sheet.users
        )


@dataclass(frozen=True, slots=True)
class ScopeStats:
    """How much is remembered in a scope."""

    items: int
    forgotten: int | None
    """What `restore` can still bring back; `None` where the store keeps nothing of it."""


@dataclass(frozen=True, slots=True)
class MemoryEvent:
    """Something that happened through an `AgentMemory` of this process; it holds no content."""

    kind: EventKind
    at: datetime
    scope: MemoryMetadata
    item_ids: tuple[str, ...] = ()
    detail: str = ""
