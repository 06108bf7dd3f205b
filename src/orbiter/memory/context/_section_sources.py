"""Sources of a context: an episodic memory, a store, a conversation.

Nothing here may hand on what belongs to another user: a store is asked only with a scope that
names somebody, and what it answers is checked against that scope again.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from inspect import isawaitable, signature
from typing import Any, TypeVar

from typing_extensions import Protocol, runtime_checkable

from orbiter.memory.context.entries import Interaction, Memory
from orbiter.memory.errors import QueryError
from orbiter.memory.model.facts import FactMemory, holding
from orbiter.memory.model.facts.spans import NO_END, assertions, judged_at
from orbiter.memory.model.items import MemoryItem, MemoryMetadata, MemoryStatus, is_indexed
from orbiter.memory.model.protocols import MemoryStore
from orbiter.memory.model.query import SCOPE_FIELDS, Query
from orbiter.memory.model.validation import StructuralMeta
from orbiter.memory.tasks.offload import MANY, apart
from orbiter.memory.text.ranking import asked_for_prompt, for_prompt

_WORDS = 8  # of a query, each one search
_PROBE = 20  # memories looked at for each word
_LONGEST = 4_000  # characters of a query; no memory holds more of it, no embedding takes more
_WORD = re.compile(r"\w{4,}|[A-Z0-9][A-Z0-9]+")
_COMMON = frozenset(
    re.findall(
        r"\w+",
        """about after also because been before between could does each from give have here into
        just know like make many more most much need only other over please should some such tell
        than that their them then there these they this those through very want were what when
        where which while will with would write your""",
    )
)
"""English words that tell nothing about what a question is about."""


_Memory = TypeVar("_Memory", bound=Memory)


@runtime_checkable
class RecentActivity(Protocol, metaclass=StructuralMeta):
    """What remembers the last hours: `ShortTermMemoryManager`, or anything like it."""

    async def get_recent(
        self, hours: float = 2.0, limit: int | None = None
    ) -> Sequence[Interaction]:
        """Return at most *limit* interactions of the last *hours*, newest first."""
        ...


@runtime_checkable
class RecentSummaries(Protocol, metaclass=StructuralMeta):
    """What remembers the last hours as lines of text only."""

    async def get_recent_summaries(
        self, hours: float = 2.0, limit: int | None = None
    ) -> Sequence[str]:
        """Return at most *limit* lines on the last *hours*, newest first."""
        ...


@runtime_checkable
class Recall(Protocol, metaclass=StructuralMeta):
    """What finds memories by relevance, for one user; it knows itself for whom."""

    async def recall(self, query: str, *, limit: int) -> Sequence[Memory]:
        """Return at most *limit* memories that help with *query*, best first."""
        ...


@runtime_checkable
class Hit(Protocol, metaclass=StructuralMeta):
    """A memory that was recalled, and how a model should see it."""

    @property
    def shown(self) -> MemoryItem:
        """The item, with what belongs to it."""
        ...


class RecallHandle(Protocol):
    """A handle of one user's memories, such as `memory.scope(user_id=…)`."""

    async def recall(self, query: str = "", *, k: int = 10) -> Sequence[Hit]:
        """Return at most *k* hits, best first."""
        ...


RecallFunction = Callable[..., Awaitable[Sequence[Memory]]]
"""A coroutine function called like `Recall.recall`."""


@runtime_checkable
class ConversationSource(Protocol, metaclass=StructuralMeta):
    """What holds a conversation: `ShortTermMemory`, or anything like it."""

    async def window(self, *, metadata: MemoryMetadata | None = None) -> list[MemoryItem]:
        """Return the conversation, oldest first."""
        ...


def check_scope(scope: MemoryMetadata | None, what: str) -> MemoryMetadata:
    """Return *scope* if it names somebody; otherwise every user's memories would be shown."""
    if scope is None or not Query(metadata=scope).wanted:
        raise QueryError(
            f"{what} holds the memories of many users, and `scope` does not say which; pass "
            "`scope=MemoryMetadata(user_id=...)`, or another of its four fields"
        )
    return scope


async def read_conversation(
    source: Sequence[MemoryItem] | ConversationSource, scope: MemoryMetadata | None
) -> tuple[list[MemoryItem], list[MemoryItem]]:
    """Return the items of a conversation, and those that are not of the scope."""
    # To ask `isinstance` of a protocol takes some microseconds, and most give a list.
    if is_memory := not isinstance(source, list) and isinstance(source, ConversationSource):
        items = await source.window(metadata=scope)
    else:
        items = _check_items(source)
    own, foreign = await apart(len(items) > MANY, _by_owner, items, scope)
    if is_memory and len(_owners(own) - {(None, None)}) > 1:
        check_scope(None, "the conversation's memory")
    return own, foreign


def _by_owner(
    items: Sequence[MemoryItem], scope: MemoryMetadata | None
) -> tuple[list[MemoryItem], list[MemoryItem]]:
    """Return the items of the scope, and the others."""
    foreign = _foreign(items, scope)
    others = set(map(id, foreign))
    own = [item for item in items if id(item) not in others] if others else list(items)
    return own, foreign


def _owners(items: Sequence[MemoryItem]) -> set[tuple[str | None, str | None]]:
    """Return who has *items*: users by their id, or by their session where they have none."""
    who = [item.metadata for item in items]
    return {(each.user_id, None if each.user_id else each.session_id) for each in who}


def _check_items(source: object) -> list[MemoryItem]:
    if not isinstance(source, Sequence) or isinstance(source, str):
        raise QueryError(
            f"`conversation` must be a list of items or a `ShortTermMemory`, not "
            f"`{type(source).__name__}`"
        )
    for item in source:
        if not isinstance(item, MemoryItem):
            raise QueryError(
                f"`conversation` holds a `{type(item).__name__}`, which is not a memory item; "
                "`from_messages` makes items of a provider's messages"
            )
    return list(source)


async def read_recent(
    source: RecentActivity | RecentSummaries | None, *, hours: float, limit: int
) -> Sequence[Memory]:
    """Return what *source* remembers of the last *hours*."""
    if source is None:
        return []
    if isinstance(source, RecentActivity):
        return await _remembered(source, "get_recent", hours, limit)
    if isinstance(source, RecentSummaries):
        return await _remembered(source, "get_recent_summaries", hours, limit)
    raise QueryError(
        f"`short_term_manager` must have `get_recent` or `get_recent_summaries`, as a "
        f"`ShortTermMemoryManager` has, and `{type(source).__name__}` has neither; a conversation "
        "goes to `conversation=`"
    )


async def _remembered(source: object, name: str, hours: float, limit: int) -> list[Memory]:
    """Return what *source* answers, whosever it is; nothing at all is an empty list."""
    coming: object = getattr(source, name)(hours=hours, limit=limit)
    method = f"`{name}` of `{type(source).__name__}`"
    if not isawaitable(coming):
        raise QueryError(f"{method} is a plain method; make it `async def`")
    answer: object = await coming
    if answer is None:
        return []
    if isinstance(answer, str) or not isinstance(answer, Iterable):
        raise QueryError(f"{method} must return a list, not `{type(answer).__name__}`")
    return list(answer)[:limit]


async def recall(
    source: MemoryStore | Recall | RecallHandle | RecallFunction,
    query: str,
    *,
    scope: MemoryMetadata | None,
    limit: int,
    min_relevance: float | None = None,
) -> tuple[list[Memory], list[Memory]]:
    """Return what *source* finds for *query*, best first, and what is not of the scope."""
    if limit == 0:
        return [], []
    memories: Sequence[Memory]
    if isinstance(source, Recall):
        memories = await _recalled(source, query, limit, min_relevance)
        foreign = _foreign(memories, scope)
    elif isinstance(source, MemoryStore):
        filters = Query(metadata=check_scope(scope, "the store"))
        items = await _search(source, query, scope=filters.metadata, limit=limit)
        items = memories = await _that_hold(source, items, filters)
        foreign = [item for item in items if not filters.matches(item)]
    elif callable(source):
        coming = source(query, limit=limit)
        if not isawaitable(coming):
            raise QueryError("`long_term` is a plain function; make it `async def`")
        memories = await coming
        foreign = _foreign(memories, scope)
    else:
        raise QueryError(
            f"`{type(source).__name__}` cannot recall; use a handle such as "
            "`memory.scope(user_id=…)`, a store, an object with `recall`, or a coroutine function "
            "`recall(query, limit=...)`"
        )
    allowed = [memory for memory in memories if not any(memory is other for other in foreign)]
    return allowed[:limit], foreign


async def _recalled(
    source: Recall | RecallHandle, query: str, limit: int, min_relevance: float | None
) -> list[Memory]:
    """Return what an object recalls: one of ours says `k` for how many, and answers with hits."""
    known = signature(source.recall).parameters
    takes_any = any(each.kind is each.VAR_KEYWORD for each in known.values())
    names = [name for name in ("limit", "k") if name in known]
    if not names and not takes_any:
        raise QueryError(
            f"`recall` of `{type(source).__name__}` takes neither `limit` nor `k`; let it take one"
        )
    asked: dict[str, Any] = {names[0] if names else "limit": limit}
    if "min_relevance" in known:
        asked["min_relevance"] = asked_for_prompt(min_relevance)
    coming: object = source.recall(query, **asked)
    if not isawaitable(coming):
        raise QueryError(
            f"`recall` of `{type(source).__name__}` is a plain method; make it `async def`"
        )
    hits = list(await coming)
    if all(hasattr(hit, "relevance") for hit in hits):  # as those of ours have
        hits = for_prompt(hits, min_relevance=min_relevance)
    return [hit.shown if isinstance(hit, Hit) else hit for hit in hits]


async def _that_hold(store: MemoryStore, items: list[MemoryItem], query: Query) -> list[MemoryItem]:
    """Return *items* with what holds now in the place of each fact, if anything does."""
    keys = sorted({item.key for item in items if isinstance(item, FactMemory)})
    if not keys:
        return items
    facts: dict[object, list[FactMemory]] = {}
    for fact in await assertions(store, query, keys):
        facts.setdefault(_fact_key(fact), []).append(fact)
    now = datetime.now(UTC)
    current: dict[str, MemoryItem] = {}
    for item in items:
        holds: MemoryItem | None = item
        if isinstance(item, FactMemory):
            of_key = facts.get(_fact_key(item), [])
            holds = holding(of_key, as_of=judged_at(of_key, now), known_at=NO_END)
        if holds is not None:
            current.setdefault(holds.id, holds)
    return list(current.values())


def _fact_key(fact: FactMemory) -> object:
    return (*(getattr(fact.metadata, name) for name in SCOPE_FIELDS), fact.key)


def _foreign(memories: Sequence[_Memory], scope: MemoryMetadata | None) -> list[_Memory]:
    """Return those that name another user, session, task or agent than *scope*."""
    wanted = [] if scope is None else list(Query(metadata=scope).wanted.items())

    def is_foreign(metadata: MemoryMetadata) -> bool:
        named = metadata.__dict__
        for name, value in wanted:  # noqa: SIM110 - `any` takes three times as long
            if named[name] != value and named[name] is not None:
                return True
        return False

    return [
        memory
        for memory in memories
        if isinstance(memory, MemoryItem) and is_foreign(memory.metadata)
    ]


async def _search(
    store: MemoryStore, query: str, *, scope: MemoryMetadata | None, limit: int
) -> list[MemoryItem]:
    """Return what holds the whole query, or is near to it, then what shares words with it.

    Most stores look for a literal text, and hardly a memory holds a whole question. So each of its
    longest words is looked for as well; a memory earns the more for a word the fewer others hold
    it, and those that earn less than half of the best are left out. The newest items of a scope
    are not relevant for being new, and are never filled in.
    """
    accepted = MemoryStatus.ACCEPTED
    whole = query[:_LONGEST]
    # Some more, as those that are not indexed are left out.
    whole_matches = await store.search(
        query=whole, metadata=scope, status=accepted, limit=limit + _PROBE
    )
    whole_hits = [item for item in whole_matches if is_indexed(item)][:limit]
    if len(whole_hits) >= limit:
        return whole_hits
    items = {item.id: item for item in whole_hits}
    scores: dict[str, float] = {}
    for word in _words(query):
        starts_word = re.compile(rf"\b{re.escape(word)}")
        hits = [
            item
            for item in await store.search(
                query=word, metadata=scope, status=accepted, limit=_PROBE
            )
            if is_indexed(item)
            and item.id not in {known.id for known in whole_hits}
            and starts_word.search(item.content.casefold())
        ]
        for item in hits:
            items[item.id] = item
            scores[item.id] = scores.get(item.id, 0.0) + 1 / len(hits)
    best = max(scores.values(), default=0.0)
    newest = sorted(scores, key=lambda key: items[key].created_at, reverse=True)
    ranked = sorted(newest, key=lambda key: -scores[key])
    return [*whole_hits, *(items[key] for key in ranked if scores[key] * 2 >= best)][:limit]


def _words(query: str) -> list[str]:
    """Return the words that say most: the longest ones, and abbreviations."""
    words = dict.fromkeys(word.casefold() for word in _WORD.findall(query) if len(word) <= 64)
    return sorted((word for word in words if word not in _COMMON), key=len, reverse=True)[:_WORDS]
