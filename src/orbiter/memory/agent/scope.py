"""`ScopedMemory`: everything one user, session, task or agent remembers, and nothing else.

Every call carries the handle's scope to the store, below whatever the caller asks for. What an id
names is shown, changed or removed only if it is of the scope; another's is as good as not there.
"""

import builtins
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Literal, TypedDict, TypeVar

from orbiter.memory._lazy import load_adapter
from orbiter.memory.agent._updates import (
    change,
    edit_of,
    forget_all,
    insert_distinct,
    insert_many,
    insert_one,
    join_labels,
    joined_labels,
    remove,
    restore,
    tag_change,
    versions,
)
from orbiter.memory.agent.events import EventStream
from orbiter.memory.agent.extraction_jobs import JOB, without_jobs
from orbiter.memory.agent.hints import CHAT_NAME, advised
from orbiter.memory.agent.inputs import (
    Given,
    Index,
    date_items,
    labels,
    read,
    read_flag,
    read_many,
)
from orbiter.memory.agent.interface import ScopedHandle, operation
from orbiter.memory.agent.keywords import (
    ItemRef,
    ScopeId,
    Time,
    as_bound,
    as_id,
    checked_keywords,
    question_pairs,
    read_time,
    rows_as_items,
)
from orbiter.memory.agent.runtime import (
    Store,
    as_stored,
    check_are_ids,
    check_ids,
    counting_store,
    find,
    ids_of,
    is_known,
    keeps_versions,
    versioned,
)
from orbiter.memory.errors import QueryError
from orbiter.memory.model.episode import activity_name
from orbiter.memory.model.filters import Where
from orbiter.memory.model.items import INDEXED_BY, MemoryItem, MemoryStatus
from orbiter.memory.model.query import Query, check_size, require_text
from orbiter.memory.tasks.offload import apart, has_many_values
from orbiter.memory.tasks.progress import Progress, track
from orbiter.memory.text.ranking import MIN_RELEVANCE
from orbiter.memory.text.redaction import clean_item

if TYPE_CHECKING:
    from orbiter.memory.agent._chat import Chat
    from orbiter.memory.agent._kv import KeyValue
    from orbiter.memory.agent._past import PastMemory
    from orbiter.memory.agent.eviction import EvictionResult
    from orbiter.memory.agent.facts import Facts
    from orbiter.memory.agent.results import (
        ChatList,
        EvaluatedQuestion,
        Evaluation,
        ForgetResult,
        ItemList,
        Page,
        ScopeStats,
        VersionList,
    )
    from orbiter.memory.episodic.manager import ShortTermMemoryManager
    from orbiter.memory.messages import Format
    from orbiter.memory.model.trust import Trust
    from orbiter.memory.model.value_counts import ValueCount
    from orbiter.memory.recall import RecallMode, RecallResult

__all__ = ["ScopedMemory", "sign_writes"]

_Client = TypeVar("_Client")

PAIRS = 'questions with their answers, such as `[("Where does Ann live?", "Oslo")]`'
"""What a call of `evaluate` needs."""


class _TimeSpan(TypedDict):
    since: datetime | None
    until: datetime | None


def _time_span(since: Time | None, until: Time | None) -> _TimeSpan:
    """Return both bounds as a store takes them."""
    return {"since": as_bound("since", since), "until": as_bound("until", until)}


def _ids(hits: "RecallResult") -> list[str]:
    return [hit.item.id for hit in hits]


def sign_writes(handle: "ScopedMemory", source: str) -> "ScopedMemory":
    """Return *handle* as that of a writer whose every memory has that *source*, whatever it says.

    Those who act for several users are none of them: what they write must not pass for a user's.
    """
    from orbiter.memory.model.trust import with_trust  # noqa: PLC0415 - for servers alone

    signed = handle.scope.model_copy(update={"extra": with_trust({"source": source})})
    return ScopedMemory(handle._session._replace(scope=signed))  # noqa: SLF001 - of this class


class ScopedMemory(ScopedHandle):
    """What is remembered in one scope; `AgentMemory.scope` makes it."""

    def _address(self) -> tuple[str, dict[str, object]]:
        return "scope", {}

    def __repr__(self) -> str:
        named = [f"{name}={value!r}" for name, value in Query(metadata=self._scope).wanted.items()]
        named += [] if self._session.name is None else [f"name={self._session.name!r}"]
        return f"ScopedMemory({', '.join(named)})"

    # Remembering

    @operation("remember", "POST memories", role="write", status=201, is_safe_to_repeat=False)
    async def remember(  # noqa: PLR0913 - what may be kept with it
        self,
        what: Given,
        *,
        tags: Sequence[str] | None = None,
        importance: float | None = None,
        source: str | None = None,
        extra: Mapping[str, object] | None = None,
        created_at: Time | None = None,
        expires: Time | timedelta | None = None,
        index: Index = True,
        idempotency_key: str | None = None,
        dedupe: bool = False,
        format: "Format | None" = None,
    ) -> MemoryItem:
        """Keep a text, an item or a provider's message; return it as stored, once it is durable.

        *tags*, *importance* (0 to 1) and *source* go to `metadata.extra`, with *extra*.
        *created_at* is when it was said, by default now. At *expires*, a time or a duration from
        now, it is removed for good. With `index=False`, no recall returns it; with texts, it is
        found by these. A message may be a dict or what a provider's client returns; *format* names
        the provider, if it should not be detected. With an *idempotency_key*, only the first call
        stores something. Calling again, after a timeout or a crash, returns what was stored, even
        if it was changed or forgotten since. With *dedupe*, a memory of this scope that says the
        same is returned instead, with the new tags as well and the higher importance: letter case,
        white space, how accents are encoded and punctuation at the end (no question mark) aside,
        of the same trust and `extra`; a key has no effect then. An item with an id that is stored
        replaces it.
        """
        more = labels(tags, importance, source, extra, index=None if index is True else index)
        if type(what) is str and not more:  # as most are
            item = read(what, self._scope, more, format)
        else:
            load = partial(read, what, self._scope, more, format)
            item = await apart(has_many_values([what, more]), load)
        date_items([item], created_at, expires)
        store = await self._store()
        if dedupe:  # a client of a server sends a key with every call
            return await self._remember_once(store, item)
        if idempotency_key is not None:
            stored, is_new = await insert_one(store, self._scope, item, idempotency_key)
            if is_new:
                self._core.events.emit_items("remembered", [stored])
            return stored
        if isinstance(what, MemoryItem):
            return (await self._replace(store, [item]))[0]
        await store.add(item)
        self._core.events.emit_items("remembered", [item])
        return item

    async def _remember_once(self, store: Store, item: MemoryItem) -> MemoryItem:
        await apart(has_many_values([item.metadata.extra]), clean_item, item, self._core.redaction)
        stored, is_new = await insert_distinct(store, self._scope, item)
        if is_new:
            self._core.events.emit_items("remembered", [stored])
            return stored
        if not joined_labels(stored, item):
            return stored
        join = partial(join_labels, item=item)
        joined = await change(store, self._scope, stored.id, join, expected_version=None)
        self._core.events.emit_items("updated", [joined])
        return joined

    @operation(
        "remember_many", "POST memories/batch", role="write", status=201, is_safe_to_repeat=False
    )
    async def remember_many(  # noqa: PLR0913 - as for `remember`
        self,
        things: Iterable[Given],
        *,
        text: str | None = None,
        tags: Sequence[str] | None = None,
        importance: float | None = None,
        source: str | None = None,
        extra: Mapping[str, object] | None = None,
        created_at: Time | None = None,
        expires: Time | timedelta | None = None,
        index: bool = True,
        idempotency_key: str | None = None,
        format: "Format | None" = None,
    ) -> "ItemList":
        """Keep texts, items and messages in one step, all or none; return them as stored.

        With *text*, they are rows: the field of that name is the memory, `created_at` its time, and
        all others go to its `metadata.extra`. Then *created_at* may name the column of times. Rows
        are dicts, a DataFrame, or a `csv.DictReader`.
        With an *idempotency_key*, only the first call stores something. Calling again brings
        nothing back, and returns those that are still there. The rest applies to each of them.
        """
        from orbiter.memory.agent.results import ItemList  # noqa: PLC0415 - as below

        if isinstance(things, str) or not isinstance(things, Sequence):
            raise QueryError("`remember_many` takes a list; use `remember` for one")
        more = labels(tags, importance, source, extra, index=read_flag(index))
        load = partial(read_many, scope=self._scope, extra=more, format=format)
        is_much = has_many_values([things, more])
        items = await apart(is_much, lambda: load(rows_as_items(things, text)))
        date_items(items, created_at, expires)
        store = await self._store()
        if idempotency_key is not None:
            many, is_new = await insert_many(store, self._scope, "many", items, idempotency_key)
            if is_new:
                self._core.events.emit_items("remembered", many)
            return ItemList(many)
        if any(isinstance(thing, MemoryItem) for thing in things):
            return ItemList(await self._replace(store, items))
        await store.add_many(items)
        self._core.events.emit_items("remembered", items)
        return ItemList(items)

    async def _replace(
        self, store: Store, items: builtins.list[MemoryItem]
    ) -> builtins.list[MemoryItem]:
        """Store items that brought their ids along, over those of this scope only."""
        await check_ids(store, items, self._scope)
        await store.add_many(items, within=self._filter)
        stored = await as_stored(store, items)
        await self._chats.changed(store, [item for item in stored if item.version > 1])
        self._core.events.emit_items("remembered", stored)
        return stored

    # Recalling

    @advised
    @operation("recall", "POST recall")
    async def recall(  # noqa: PLR0913 - the filters of a search, and what may weigh in
        self,
        query: str = "",
        *,
        k: int = 10,
        mode: "RecallMode" = "hybrid",
        memory_type: str | None = None,
        since: Time | None = None,
        until: Time | None = None,
        where: Where | None = None,
        recency_weight: float = 0.0,
        half_life_hours: float = 24.0 * 30,
        importance_weight: float = 0.0,
        min_trust: "Trust | str | None" = None,
        min_relevance: float = MIN_RELEVANCE,
        spread: bool | None = None,
        explain: bool = False,
    ) -> "RecallResult":
        """Return at most *k* memories that answer *query*, best first, each with the reasons why.

        *mode* is `hybrid`, `words`, `meaning` or `recent`, the newest first. *since* and *until*
        bound the time, *where* filters by fields and by keys of `metadata.extra`, with operators
        such as `{"price": {"$lt": 5}}`. With *min_trust*, only what comes from such a source or a
        better one: `user`, `agent`, `tool`, `import`, `web`. Hits answer with a probability of at
        least *min_relevance*, from 0 to 1: what clearly does not answer is left out by default, and
        nothing with `0`. For a question about a sequence or a summary, hits cover the topic over
        time, oldest first; *spread* forces or prevents that. Of those, the default leaves out none.
        With *explain*, `left_out` of the result lists the best that were left out, and why. See
        `docs/recall.md`.
        """
        # Here, as writing needs none of it.
        from orbiter.memory.recall import no_model_by_choice, recall  # noqa: PLC0415

        store = await self._store()
        ask = partial(recall, store) if self._core.is_indexed else self._core.mirror().recall
        read = partial(
            ask,
            query,
            scope=self._filter,
            k=k,
            mode=mode,
            memory_type=memory_type,
            **_time_span(since, until),
            where=where,
            recency_weight=recency_weight,
            half_life_hours=half_life_hours,
            importance_weight=importance_weight,
            min_trust=min_trust,
            min_relevance=min_relevance,
            spread=spread,
            explain=explain,
            reranker=self._core.reranker,
            user_name=self._session.name,
        )
        with no_model_by_choice() if self._core.is_model_declined else nullcontext():
            if getattr(store, "audit", None) == "all":  # all that it reads is one entry
                from orbiter.memory.agent._audit import read_as_one  # noqa: PLC0415 - few need it

                hits = await read_as_one(self._core, self._scope, "recall", read, _ids)
            else:
                hits = await read()
        self._core.events.emit("recalled", self._scope, _ids(hits))
        return hits

    # Looking, changing, forgetting

    @operation("get", "GET memories/{item_id}", is_absent_404=True)
    async def get(self, item_id: ItemRef) -> MemoryItem | None:
        """Return the memory of that id, or `None` if there is none in this scope."""
        return await find(await self._store(), as_id(item_id), self._scope)

    @operation("update", "PATCH memories/{item_id}", role="write", is_safe_to_repeat=False)
    async def update(  # noqa: PLR0913 - what may be changed
        self,
        item_id: ItemRef,
        content: str | None = None,
        *,
        tags: Sequence[str] | None = None,
        add_tags: Sequence[str] | None = None,
        remove_tags: Sequence[str] | None = None,
        importance: float | None = None,
        source: str | None = None,
        extra: Mapping[str, object] | None = None,
        status: MemoryStatus | None = None,
        expires: Time | timedelta | Literal["never"] | None = None,
        index: Index | None = None,
        expected_version: int | None = None,
    ) -> MemoryItem:
        """Change what is given of a memory, and return it; the earlier version stays in `history`.

        *tags* are all it has then; *add_tags* and *remove_tags* leave the others as they are.
        *extra* is added to what there is. *source* is who writes the new version; without it the
        label stays, as an edit makes nothing more trusted. Only a `file` may become empty.
        *expires* and *index* are as for `remember`; `never` removes the expiry. With
        *expected_version* it is changed only if nobody changed it since; else `VersionConflict` is
        raised, and nothing is changed.
        """
        more = labels(tags, importance, source, extra, index=index)
        swap = tag_change(tags, add_tags, remove_tags, more)
        if not more and not swap and content is None and status is None and expires is None:
            raise QueryError(
                "there is nothing to change; give `content`, `tags=` or others; "
                '`expires="never"` removes the expiry'
            )
        edit = edit_of(
            self._scope, content, more, swap=swap, source=source, status=status, expires=expires
        )
        store = await self._store()
        item_id = as_id(item_id)
        item = await change(store, self._scope, item_id, edit, expected_version=expected_version)
        if content is not None or status is not None or INDEXED_BY in more:
            await self._chats.changed(store, [item])
        self._core.events.emit_items("updated", [item])
        return item

    @operation(
        "forget",
        "POST forget",
        role="write",
        is_safe_to_repeat=False,
        is_long=True,
        short_with="item",
        erases_with="permanently",
    )
    async def forget(  # noqa: PLR0913 - the filters
        self,
        item: ItemRef | Sequence[ItemRef] | None = None,
        *,
        query: str = "",
        where: Where | None = None,
        memory_type: str | None = None,
        since: Time | None = None,
        until: Time | None = None,
        everything: bool = False,
        permanently: bool = False,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> "ForgetResult":
        """Forget one memory, a list of them, or all that match the filters; return which.

        A hit stands for what says the same: `repeats` in its words go with it; its `item` is one.
        `restore` brings it back. *query* is a text that it contains. Without any filter,
        *everything* must be true. With *dry_run* nothing is forgotten. The summary of a chat that
        loses a message is forgotten, too, and made again from what is left. What our own tools
        answered and were given in the user's conversations says `(forgotten)` in its place.
        *progress* is called with memories found so far, and 0.

        With *permanently*, nothing can bring it back, nor what was forgotten before. Items,
        versions, vectors and index entries are erased, and `erasure` of the result says what was
        checked. That rewrites the store's file: give one list rather than many calls.
        """
        from orbiter.memory.agent.results import ForgetResult  # noqa: PLC0415 - seldom needed

        filters = (query, where, memory_type, since, until)
        has_filter = any(value not in ("", None, {}) for value in filters)
        if [item is not None, has_filter, everything].count(True) != 1:
            raise QueryError(
                "`forget` takes an item or its id, or filters such as `where=`, "
                "or `everything=True` for all of this scope; exactly one of these"
            )
        store = await self._store()
        items: builtins.list[MemoryItem] = []
        # What waits to be extracted goes with its conversation, but says nothing by itself.
        what = without_jobs(where, memory_type) if query else where
        condition = Query(query, self._filter, memory_type, where=what, **_time_span(since, until))
        ids = None if item is None else ids_of(item)
        if permanently:
            from orbiter.memory.agent._erase import erase_items  # noqa: PLC0415 - seldom needed

            with track(progress):
                return await erase_items(self._session, ids, condition, dry_run=dry_run)
        if ids is not None:
            there = [await find(store, item_id, self._scope) for item_id in ids]
            items = [each for each in there if each is not None]
            check_are_ids(ids, items)
            if items and not dry_run:
                await remove(store, self._chats.changed, items)
        else:
            with track(progress):
                items = await forget_all(store, self._chats.changed, condition, dry_run=dry_run)
        if items and not dry_run:
            from orbiter.memory.agent.quotations import (  # noqa: PLC0415 - seldom needed
                strike_forgotten,
                texts_of,
            )

            texts = await texts_of(store, items)
            await strike_forgotten(store, self._chats.changed, self._filter, texts)
            self._core.events.emit_items("forgotten", items)
        return ForgetResult(tuple(items), dry_run)

    @operation("restore", "POST memories/{item_id}/restore", role="write", is_safe_to_repeat=False)
    async def restore(self, item_id: ItemRef, *, version: int | None = None) -> MemoryItem:
        """Bring back what was forgotten, or what a memory was in an earlier *version*."""
        store = await self._store()
        item = await restore(store, self._scope, as_id(item_id), version)
        await self._chats.changed(store, [item])
        self._core.events.emit_items("restored", [item])
        return item

    @advised
    @operation("list", "POST memories/query", also="GET memories")
    async def list(  # noqa: PLR0913 - the filters
        self,
        *,
        query: str = "",
        where: Where | None = None,
        memory_type: str | None = None,
        status: MemoryStatus | None = None,
        since: Time | None = None,
        until: Time | None = None,
        forgotten: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> "Page":
        """Return a page of what is remembered, newest first; *cursor* is `next` of the one before.

        With *forgotten*, of what `restore` can bring back instead. What is written meanwhile
        shifts no page. `ended` of the page says which of its facts hold no more. Pending
        extractions are listed only with `memory_type="extraction"`.
        """
        from orbiter.memory.agent.results import check_cursor, page_of  # noqa: PLC0415 - as above

        check_size("limit", limit)
        store = await self._store()
        last = await check_cursor(cursor, partial(is_known, store, scope=self._scope))
        search = store.search
        if forgotten:
            search = partial(versioned(store, "listing forgotten memories").search, deleted=True)
        items = await search(
            query=query,
            metadata=self._filter,
            memory_type=memory_type,
            status=status,
            **_time_span(since, until),
            where=without_jobs(where, memory_type),
            limit=limit + 1 if limit else 0,
            before=last,
        )
        page = page_of(items, limit, last)
        if any(item.memory_type == "fact" for item in page):
            from orbiter.memory.model.audit import silently  # noqa: PLC0415 - not all have facts
            from orbiter.memory.model.facts.spans import ended  # noqa: PLC0415

            with silently():
                page.ended = await ended(store, self._filter, page)
        return page

    # The past

    @operation("history", "GET memories/{item_id}/history", is_absent_404=True)
    async def history(self, item_id: ItemRef) -> "VersionList":
        """Return every version of a memory, oldest first, also of a forgotten one."""
        from orbiter.memory.agent.results import VersionList  # noqa: PLC0415

        store = await self._store()
        past = await versions(store, self._scope, as_id(item_id), "reading the past")
        return VersionList(past)

    def as_of(self, moment: Time) -> "PastMemory":
        """Return everything of this scope as it was stored at *moment*, to be read only.

        What was purged, erased or has expired since is gone from the past, too.
        """
        from orbiter.memory.agent._past import PastMemory  # noqa: PLC0415

        return PastMemory(self._session, read_time("moment", moment))

    # Conversations

    @checked_keywords("chat", needs=CHAT_NAME)
    def chat(self, chat_id: ScopeId) -> "Chat":
        """Return the conversation of that name in this scope, which may be a new one.

        It is one step narrower than the handle: a session of it, or, where the handle names a
        session, a task of that session.
        """
        from orbiter.memory.agent._chat import Chat  # noqa: PLC0415 - not everyone talks

        return Chat(self._session, self, chat_id)

    @operation("chats", "GET chats")
    async def chats(
        self,
        *,
        query: str = "",
        limit: int = 50,
    ) -> "ChatList":
        """Return the conversations of this scope, most recent first.

        With *query*, those whose title or name contains it, in any case of letters.
        """
        from orbiter.memory.agent.chat_history import list_chats  # noqa: PLC0415
        from orbiter.memory.agent.results import ChatList  # noqa: PLC0415

        check_size("limit", limit)
        store = await self._store()
        return ChatList(await list_chats(store, self._filter, query=query, limit=limit))

    def wrap(
        self,
        client: _Client,
        *,
        chat: str = "default",
        budget: int = 8_000,
        memory_limit: int = 5,
        active: bool = True,
    ) -> _Client:
        """Return a client of OpenAI, Anthropic or google-genai whose calls have this memory.

        What a call is given and its answer are added to *chat*, and the call is sent with the
        chat's context instead: see `docs/integrations/clients.md`. Not if *active* is false.
        """
        options = {"chat": chat, "budget": budget, "memory_limit": memory_limit, "active": active}
        wrapped: _Client = load_adapter("wrap")(client, self, **options)
        return wrapped

    # What else it holds

    @property
    def facts(self) -> "Facts":
        """What is known to be true in this scope, since when, and what was true before."""
        from orbiter.memory.agent.facts import Facts  # noqa: PLC0415

        return Facts(self._session)

    @property
    def kv(self) -> "KeyValue":
        """Bytes under a path and a key, for what a program must find again exactly."""
        from orbiter.memory.agent._kv import KeyValue  # noqa: PLC0415

        return KeyValue(self._session)

    @property
    def activity(self) -> "ShortTermMemoryManager":
        """What was done and met in this scope lately; needs `AgentMemory(episodic=…)`."""
        return self._engine.core_for("activity").activity(activity_name(self._scope))

    def events(self) -> EventStream:
        """Return what happens in this scope from now on, for `async for`."""
        return self._engine.events(self._session)

    # Counts and quality

    @operation("count_by", "POST counts", answer="counts")
    async def count_by(
        self,
        field: str,
        *,
        where: Where | None = None,
        memory_type: str | None = None,
        since: Time | None = None,
        until: Time | None = None,
        limit: int = 100,
    ) -> "builtins.list[ValueCount]":
        """Return the values of *field* in this scope, most frequent first, each with its count.

        *field* is named as in *where*: `memory_type`, `status`, `session_id` and other ids, or a
        key of `metadata.extra`, such as `tags` or `source`. A list counts by its elements, so that
        `where={field: value}` finds as many memories as are counted. The other arguments narrow it
        down as in `list`.
        """
        check_size("limit", limit)
        return await counting_store(await self._store()).count_by(
            field,
            metadata=self._filter,
            memory_type=memory_type,
            **_time_span(since, until),
            where=without_jobs(where, memory_type),
            limit=limit,
        )

    @operation("stats", "GET stats")
    async def stats(self) -> "ScopeStats":
        """Return how many memories there are in this scope."""
        from orbiter.memory.agent.results import ScopeStats  # noqa: PLC0415

        store = await self._store()
        if keeps_versions(store):
            return ScopeStats(*await store.counts(metadata=self._filter, with_jobs=False))
        # One call for one instant: a count of jobs beside it may be of another.
        by_type = await counting_store(store).count_by(
            "memory_type", metadata=self._filter, limit=sys.maxsize
        )
        return ScopeStats(sum(each.items for each in by_type if each.value != JOB), None)

    @checked_keywords("evaluate", needs=PAIRS)
    async def evaluate(
        self,
        questions: Iterable[tuple[str, ItemRef] | Mapping[str, object]] | Mapping[str, ItemRef],
        *,
        k: int = 10,
        mode: "RecallMode" = "hybrid",
        where: Where | None = None,
        min_relevance: float = MIN_RELEVANCE,
    ) -> "Evaluation":
        """Recall for each question, and return how often the answer was among the first *k* hits.

        Each comes with what answers it: a text that the memory contains, in any case of letters,
        or the memory or its id. A table has these in its first two columns, or in `question` and
        `expected`. No model is asked, and nothing is changed. *mode*, *where* and *min_relevance*
        are those of `recall`.
        """
        from orbiter.memory.agent.results import Evaluation  # noqa: PLC0415

        pairs = question_pairs(questions)
        for place, pair in enumerate(pairs):
            is_pair = isinstance(pair, tuple | list) and len(pair) == 2
            if not is_pair or not isinstance(pair[0], str):
                raise QueryError(
                    f"question {place} must be a pair of a question and what answers it, such as "
                    f'("Where does Ann live?", "Oslo"), not {pair!r}'
                )
        ask = partial(self.recall, k=k, mode=mode, where=where, min_relevance=min_relevance)
        return Evaluation([await self._evaluated(ask, *pair) for pair in pairs], k=k)

    async def _evaluated(
        self, ask: "Callable[[str], Awaitable[RecallResult]]", question: str, answer: ItemRef
    ) -> "EvaluatedQuestion":
        from orbiter.memory.agent.results import EvaluatedQuestion  # noqa: PLC0415

        expected = require_text("expected", as_id(answer))
        hits = await ask(question)
        text = expected.casefold()

        def answers(item: MemoryItem) -> bool:
            return item.id == expected or text in item.content.casefold()

        places = [
            place for place, hit in enumerate(hits) if any(map(answers, (hit.item, *hit.repeats)))
        ]
        is_stored = bool(places) or await self.get(expected) is not None
        is_stored = is_stored or bool(await self.list(query=expected, limit=1))
        return EvaluatedQuestion(
            question,
            expected,
            rank=places[0] + 1 if places else None,
            relevance=hits[places[0]].relevance if places else None,
            first=hits[0].content if hits else "",
            is_stored=is_stored,
        )

    # Upkeep

    @operation(
        "evict", "POST evict", role="write", is_safe_to_repeat=False, is_heavy=True, is_long=True
    )
    async def evict(
        self,
        *,
        max_items: int | None = None,
        max_bytes: int | None = None,
        duplicates: bool = False,
        half_life_hours: float = 24.0 * 90,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> "EvictionResult":
        """Forget the least valuable memories until the budget is kept; return which, and why.

        The worth of a memory is its importance, halved every *half_life_hours*. What has the
        importance 1, facts that hold and system messages stay; a tool group goes whole. With
        *duplicates*, of memories that say the same only the first stays. `restore` brings a
        memory back. With *dry_run* nothing is forgotten. *progress* is called with memories read
        and memories to read.
        """
        from orbiter.memory.agent.eviction import evict  # noqa: PLC0415

        with track(progress):
            return await evict(
                self._session,
                max_items=max_items,
                max_bytes=max_bytes,
                duplicates=duplicates,
                half_life_hours=half_life_hours,
                dry_run=dry_run,
            )

    @operation("duplicates", "GET duplicates", answer="groups", is_heavy=True, is_long=True)
    async def duplicates(
        self, *, progress: Progress | None = None
    ) -> builtins.list[tuple[MemoryItem, ...]]:
        """Return groups of memories that say the same, the first of each group first.

        *progress* is called with memories read and memories in all.
        """
        from orbiter.memory.agent.eviction import duplicates  # noqa: PLC0415

        with track(progress):
            return await duplicates(self._session)

    @operation("quarantine", "POST quarantine", role="write", is_safe_to_repeat=False, is_long=True)
    async def quarantine(
        self, source: str, *, dry_run: bool = False, progress: Progress | None = None
    ) -> "ForgetResult":
        """Hide everything that came from *source*, such as `web:example.com`, or all of `web`.

        `release` brings back what was hidden; `undo` forgets what it added and restores what it
        changed.
        *progress* is called with memories found so far, and 0.
        """
        from orbiter.memory.agent.quarantine import quarantine  # noqa: PLC0415

        with track(progress):
            return await quarantine(self._session, source, dry_run=dry_run)

    @operation(
        "release",
        "POST release",
        role="write",
        answer="count",
        is_safe_to_repeat=False,
        is_long=True,
        has_safe_report=True,
    )
    async def release(self, source: str, *, progress: Progress | None = None) -> int:
        """Bring back what `quarantine` has hidden of *source*; return how many memories.

        *progress* is called with memories found so far, and 0.
        """
        from orbiter.memory.agent.quarantine import release  # noqa: PLC0415

        with track(progress):
            return await release(self._session, source)

    @operation("undo", "POST undo", role="write", is_safe_to_repeat=False, is_long=True)
    async def undo(
        self,
        source: str,
        *,
        since: Time | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> "ForgetResult":
        """Undo everything that *source* added or changed, or did so *since* then.

        What it added is forgotten, what it changed is again what it was before. *progress* is
        called with memories found so far, and 0.
        """
        from orbiter.memory.agent.quarantine import undo  # noqa: PLC0415

        with track(progress):
            start = as_bound("since", since)
            return await undo(self._session, source, since=start, dry_run=dry_run)
