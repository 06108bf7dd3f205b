"""Writes of one scope: edits, restores, pages to change, and idempotent inserts.

Each function sees to it that nothing outside the scope is touched. An idempotency key says which
ids its memories have, and an id that was used once is never used again, also after what it named
was forgotten. So the store decides in one step, and of two who race one is refused.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple
from unicodedata import normalize

from orbiter.memory.agent.extraction_jobs import is_job
from orbiter.memory.agent.hints import warn_of_used_key
from orbiter.memory.agent.inputs import (
    EDITED,
    belongs,
    check_not_private,
    check_text,
    derived_id,
    read_end,
    within,
)
from orbiter.memory.agent.keywords import Time
from orbiter.memory.agent.runtime import Store, keeps_versions, must_find, versioned
from orbiter.memory.errors import AccessError, ItemNotFoundError, QueryError, VersionConflict
from orbiter.memory.model.copying import check_content, copy_item
from orbiter.memory.model.items import (
    INDEXED_BY,
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
    new_id,
)
from orbiter.memory.model.query import SCOPE_FIELDS, Query, require_text
from orbiter.memory.model.trust import trust_of
from orbiter.memory.tasks.offload import SLICE, apart
from orbiter.memory.tasks.progress import advance

if TYPE_CHECKING:
    from orbiter.memory.model.reports import ItemVersion

__all__ = [
    "Changed",
    "change",
    "edit_of",
    "forget_all",
    "insert_distinct",
    "insert_many",
    "insert_one",
    "pages",
    "remove",
    "restore",
    "tag_change",
    "versions",
]

Changed = Callable[[Store, Sequence[MemoryItem]], Awaitable[None]]
"""What is told of items that change: the summaries of their chats."""

_PAGE = 1_000
_TRIES = 100
"""How often a change is retried when others were faster; so many may change one item at once."""


class TagChange(NamedTuple):
    """Tags that a memory gets, and tags that it loses."""

    added: Sequence[str]
    removed: Sequence[str]

    def applied(self, item: MemoryItem) -> list[str]:
        """Return the tags of *item* after the change: its own first, in their order."""
        own = item.metadata.extra.get("tags")
        tags = [*(own if isinstance(own, list) else []), *self.added]
        return [tag for tag in dict.fromkeys(tags) if tag not in self.removed]


def tag_change(
    tags: Sequence[str] | None,
    added: Sequence[str] | None,
    removed: Sequence[str] | None,
    extra: Mapping[str, object],
) -> TagChange | None:
    """Return the change of tags that `update` is asked for; `QueryError` if it contradicts itself.

    *extra* are the other labels, which may hold *tags* already.
    """
    if added is None and removed is None:
        return None
    if tags is not None or "tags" in extra:
        raise QueryError("`tags` replaces all tags; leave it out, or `add_tags` and `remove_tags`")
    lists = {"add_tags": added, "remove_tags": removed}
    checked = {name: _tags(name, each) for name, each in lists.items()}
    if both := set(checked["add_tags"]) & set(checked["remove_tags"]):
        raise QueryError(f"`{min(both)}` is among `add_tags` and `remove_tags`")
    return TagChange(checked["add_tags"], checked["remove_tags"])


def _tags(name: str, tags: Sequence[str] | None) -> list[str]:
    if isinstance(tags, str):
        raise QueryError(f"`{name}` must be a list of strings, not {tags!r}")
    return list(dict.fromkeys(require_text(name, tag) for tag in tags or ()))


_SOURCED = frozenset(("source", "trust"))


def edit_of(
    scope: MemoryMetadata,
    content: str | None,
    marks: Mapping[str, object],
    *,
    swap: "TagChange | None" = None,
    source: str | None,
    status: MemoryStatus | None,
    expires: Time | timedelta | Literal["never"] | None,
) -> Callable[[MemoryItem], None]:
    """Return what changes an item as `update` is asked to; *marks* go to its `extra`."""
    end = None if expires == "never" else read_end(expires, ways=", a timedelta or `never`")

    def edit(item: MemoryItem) -> None:
        # What is not rewritten keeps its source, whoever changes its tags.
        is_signed = bool(scope.extra) and (content is not None or not _SOURCED.isdisjoint(marks))
        signs = scope if is_signed else scope.model_copy(update={"extra": {}})
        new = {**marks, **_edited(item, content, "signed" if is_signed else source)}
        if swap is not None:
            new["tags"] = swap.applied(item)
        if content is not None or INDEXED_BY in marks:
            _check_is_free(item)
        if content is not None:
            check_text(content, may_be_blank=item.memory_type == "file")
            check_not_private(content)
            check_content(type(item), content)
            item.content = content
        if new or is_signed:
            item.metadata = within(signs, item.metadata, new)
        if status is not None and status != item.status:
            _check_has_no_review(item)
            item.transition(status)
        if expires is not None:
            item.expires_at = end

    return edit


def _check_is_free(item: MemoryItem) -> None:
    """Raise `QueryError` for an item whose text follows from something else."""
    if item.memory_type == "fact":
        raise QueryError(
            f"`{item.id}` is a fact, whose text is made from its value; `facts.put(key, value)` "
            "records a new value, `facts.retract(id)` withdraws this one"
        )


def _check_has_no_review(item: MemoryItem) -> None:
    """Raise `QueryError` for an item whose status is changed by a review."""
    if item.memory_type == "fact":
        raise QueryError(
            f"`{item.id}` is a fact, whose status is changed by `facts.accept(id)` or "
            "`facts.discard(id)` for a draft, `facts.retract(id)` for an accepted fact"
        )


def _edited(item: MemoryItem, content: str | None, source: str | None) -> dict[str, object]:
    """Return the mark that *content* makes it no longer its source's own words, if that is new.

    *item* is what it was before. The label stays, as an edit makes nothing more trusted; but what
    somebody else wrote over it is not taken back with the source.
    """
    if source is not None:
        return {EDITED: False} if item.metadata.extra.get(EDITED) else {}
    is_rewritten = content is not None and content != item.content
    return {EDITED: True} if is_rewritten and item.metadata.extra.get("source") else {}


async def change(
    store: Store,
    scope: MemoryMetadata,
    item_id: str,
    edit: Callable[[MemoryItem], None],
    *,
    expected_version: int | None,
) -> MemoryItem:
    """Have *edit* change an item, again if another was faster; return it as stored."""
    for attempt in range(1, _TRIES + 1):
        item = copy_item(await must_find(store, item_id, scope))
        edit(item)
        try:
            expected = item.version if expected_version is None else expected_version
            await store.add(item, expected_version=expected)
            break
        except VersionConflict:
            if expected_version is not None or attempt == _TRIES:
                raise
    return await must_find(store, item_id, scope)


async def pages(
    store: Store, query: Query, *, are_removed: bool, forgotten: bool = False
) -> AsyncIterator[list[MemoryItem]]:
    """Yield all that is asked for, page by page; *are_removed* says that each is gone by then.

    With *forgotten*, what was forgotten before and can be restored instead.
    """
    cursor: MemoryItem | None = None
    search = store.search
    if forgotten:
        search = partial(versioned(store, "finding forgotten memories").search, deleted=True)
    while True:
        page = await search(
            query=query.text,
            metadata=query.metadata,
            memory_type=query.memory_type,
            since=query.since,
            until=query.until,
            where=query.where,
            limit=_PAGE,
            before=cursor,
        )
        if page:
            yield page
        if len(page) < _PAGE:
            return
        cursor = None if are_removed else page[-1]


async def forget_all(
    store: Store, tell: Changed, query: Query, *, dry_run: bool
) -> list[MemoryItem]:
    """Forget all that is asked for, a page at a time; return what."""
    items: list[MemoryItem] = []
    async for page in pages(store, query, are_removed=not dry_run):
        if not dry_run:
            await remove(store, tell, page)
        items += page if query.memory_type is not None else (i for i in page if not is_job(i))
        advance(len(items))
    return items


async def remove(store: Store, tell: Changed, items: Sequence[MemoryItem]) -> None:
    """Forget items; *tell* is called before and after, and drops what says more than they do."""
    # The summary before, so that a crash leaves none that tells more than the chat; and after,
    # as one may have been made meanwhile.
    await tell(store, items)
    await store.delete_many([item.id for item in items])
    await tell(store, items)


async def versions(
    store: Store, scope: MemoryMetadata, item_id: str, what: str
) -> "list[ItemVersion]":
    """Return the versions of an item of *scope*, oldest first; none of another's."""
    all_versions = await versioned(store, what).history(item_id)
    if not all_versions or not belongs(all_versions[-1].item, scope):
        return []
    return [each for each in all_versions if belongs(each.item, scope)]


async def restore(
    store: Store, scope: MemoryMetadata, item_id: str, version: int | None
) -> MemoryItem:
    """Bring an item back, or what it was in an earlier *version*; return it as stored."""
    past = await versions(store, scope, item_id, "undoing")
    if not past:
        raise ItemNotFoundError(item_id, way="history() shows its versions")
    chosen = next((each.item for each in past if each.item.version == version), None)
    if version is not None and chosen is None:
        known = ", ".join(str(each.item.version) for each in past)
        raise ItemNotFoundError(item_id, version=version, way=f"there are {known}")
    if past[-1].change == "deleted":
        await versioned(store, "undoing").restore(item_id)
    if chosen is not None:
        again = copy_item(chosen)
        again.updated_at = datetime.now(UTC)
        await store.add(again)
    return await must_find(store, item_id, scope)


async def insert_one(
    store: Store, scope: MemoryMetadata, item: MemoryItem, key: str
) -> tuple[MemoryItem, bool]:
    """Store *item* unless *key* stands for one already; return that one, and whether it is new.

    What was forgotten since is returned as it was, if the store knows that, and is not stored.
    """
    item_id = derived_id(scope, "once", require_text("idempotency_key", key))
    _prepare(item, item_id)
    if await store.insert([item]):
        return item, True
    there = await store.get(item_id)
    if there is None and keeps_versions(store):
        past = await store.history(item_id)
        there = past[-1].item if past else None
    if there is None:
        return item, False
    warn_of_used_key(key, [item], [_checked(there, scope)])
    return there, False


_MAX_LIVES = 64
"""How often a text may be forgotten or changed and said again before it is simply stored."""
_ASKED = 100
"""Characters of a text by which the store is asked for the same; the rest is compared here."""
_CANDIDATES = 50
_ASIDE = frozenset(("tags", "importance", "source", EDITED))
"""Labels that do not make two memories of one text; of sources, their trust counts."""
_FULL_STOP = " .!,;:\u2026\u3002\uff01\uff0e"
"""What may end a text and says nothing. A question mark does."""


async def insert_distinct(
    store: Store, scope: MemoryMetadata, item: MemoryItem
) -> tuple[MemoryItem, bool]:
    """Store *item* unless *scope* has one that says the same; return that, and whether it is new.

    It is compared as it is: secrets and personal data in it were replaced.
    The ids of its lives, after each time that it was forgotten or changed, follow from what it
    says. So writers who meet choose the same id, and the store lets one of them have it.
    """
    said = await apart(len(item.content) > SLICE, _meaning, item)
    asked = said[0][:_ASKED].strip()
    for query in dict.fromkeys((asked, normalize("NFD", asked))):  # it may be stored either way
        there = await store.search(
            query=query,
            metadata=MemoryMetadata(**{name: getattr(scope, name) for name in SCOPE_FIELDS}),
            memory_type=item.memory_type,
            limit=_CANDIDATES,
        )
        for each in reversed(there):  # the oldest was first
            if _says(each, item, said, scope):
                return each, False
    for life in range(_MAX_LIVES):
        item_id = derived_id(scope, "same", *said, life)
        _prepare(item, item_id)
        if await store.insert([item]):
            return item, True
        held = await store.get(item_id)
        if held is not None and _says(_checked(held, scope), item, said, scope):
            return held, False
    _prepare(item, new_id())
    await store.add(item)
    return item, True


_Meaning = tuple[str, str, int, str]


def _meaning(item: MemoryItem) -> _Meaning:
    """Return what makes two items one: their text without what says nothing, trust and labels."""
    folded = normalize("NFC", " ".join(item.content.casefold().split()))
    extra = {name: each for name, each in item.metadata.extra.items() if name not in _ASIDE}
    extra.pop("trust", None)
    labels = json.dumps(extra, sort_keys=True, default=str)
    return folded.rstrip(_FULL_STOP) or folded, item.memory_type, int(trust_of(item)), labels


def _says(there: MemoryItem, item: MemoryItem, said: _Meaning, scope: MemoryMetadata) -> bool:
    """Tell whether one that is there says what *item* says, in this *scope*, and lasts as long."""
    end = there.expires_at
    lasts = end is None or (item.expires_at is not None and item.expires_at <= end)
    is_here = all(getattr(there.metadata, name) == getattr(scope, name) for name in SCOPE_FIELDS)
    is_told = lasts and is_here and there.status is MemoryStatus.ACCEPTED
    return is_told and _meaning(there) == said


def joined_labels(there: MemoryItem, item: MemoryItem) -> dict[str, object]:
    """Return what *item*, which says the same, changes of the labels of one that is there.

    It gets the tags that it lacks, and the importance if that is higher.
    """
    own, new = there.metadata.extra, item.metadata.extra
    joined: dict[str, object] = {}
    tags = TagChange(new.get("tags") or (), ()).applied(there)
    if tags != (own.get("tags") or []):
        joined["tags"] = tags
    importance, held = new.get("importance"), own.get("importance")
    is_number = isinstance(held, int | float)
    if importance is not None and not (is_number and held >= importance):
        joined["importance"] = importance
    return joined


def join_labels(there: MemoryItem, item: MemoryItem) -> None:
    """Give one that is there the labels of *item*; nobody has written it anew, so none signs it."""
    unsigned = MemoryMetadata(**{name: getattr(there.metadata, name) for name in SCOPE_FIELDS})
    there.metadata = within(unsigned, there.metadata, joined_labels(there, item))


async def insert_many(
    store: Store, scope: MemoryMetadata, kind: str, items: Sequence[MemoryItem], key: str
) -> tuple[list[MemoryItem], bool]:
    """Store items unless *key* stands for some already; return those, and whether they are new.

    Of what is stored already, that is what is left of it. *kind* keeps the keys of one call apart
    from those of another.
    """
    require_text("idempotency_key", key)
    for place, item in enumerate(items):
        _prepare(item, derived_id(scope, kind, key, place))
    if items and await store.insert(items):
        return list(items), True
    places = await _places(store, scope, kind, key, len(items))
    if len(items) > len(places):  # the rest would be lost without a word
        raise QueryError(
            f"the `idempotency_key` `{key}` was used for {len(places)} items, and this call has "
            f"{len(items)}; nothing was stored: use a new key for these"
        )
    there = [_checked(item, scope) for item in places if item is not None]
    warn_of_used_key(key, items, there)
    return there, False


def _prepare(item: MemoryItem, item_id: str) -> None:
    """Give a copy that nobody has seen yet its id."""
    item.__dict__.update(id=item_id, version=1)


def _checked(item: MemoryItem, scope: MemoryMetadata) -> MemoryItem:
    """Return *item* if it is of *scope*; whoever writes past a handle may take any id."""
    if not belongs(item, scope):
        raise AccessError(f"the id `{item.id}` is taken; use another `idempotency_key`")
    return item


async def _places(
    store: Store, scope: MemoryMetadata, kind: str, key: str, count: int
) -> list[MemoryItem | None]:
    """Return what was stored under *key*, *count* or not; `None` for what was forgotten since."""
    items: list[MemoryItem | None] = []
    while True:
        start = len(items)
        ids = [derived_id(scope, kind, key, n) for n in range(start, start + count + 1)]
        used = await store.used_ids(ids)
        for item_id in ids:
            if item_id not in used:
                return items
            items.append(await store.get(item_id))
