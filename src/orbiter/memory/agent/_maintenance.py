"""Maintenance calls of a handle: facts, chats, counts, the past, evaluation, eviction, undo.

Each call is a line here; the work is in a module of its own, loaded when it is first needed.
"""

import builtins
import inspect
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict

from orbiter.memory.agent._updates import versions
from orbiter.memory.agent.events import EventStream
from orbiter.memory.agent.extraction_jobs import JOB, without_jobs
from orbiter.memory.agent.interface import ScopedHandle, operation
from orbiter.memory.agent.keywords import (
    ItemRef,
    Time,
    as_bound,
    as_id,
    checked_keywords,
    question_pairs,
    read_time,
)
from orbiter.memory.agent.runtime import counting_store, keeps_versions
from orbiter.memory.errors import QueryError
from orbiter.memory.model.episode import activity_name
from orbiter.memory.model.filters import Where
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.model.query import check_size, require_text
from orbiter.memory.tasks.progress import Progress, track
from orbiter.memory.text.ranking import MIN_RELEVANCE

if TYPE_CHECKING:
    from orbiter.memory.agent._kv import KeyValue
    from orbiter.memory.agent._past import PastMemory
    from orbiter.memory.agent.eviction import EvictionResult
    from orbiter.memory.agent.facts import Facts
    from orbiter.memory.agent.results import (
        ChatList,
        EvaluatedQuestion,
        Evaluation,
        ForgetResult,
        ScopeStats,
        VersionList,
    )
    from orbiter.memory.episodic.manager import ShortTermMemoryManager
    from orbiter.memory.model.value_counts import ValueCount
    from orbiter.memory.recall import RecallMode, RecallResult

__all__ = ["MaintenanceMixin", "time_span"]


class _TimeSpan(TypedDict):
    since: datetime | None
    until: datetime | None


def time_span(since: Time | None, until: Time | None) -> _TimeSpan:
    """Return both as a store takes them."""
    return {"since": as_bound("since", since), "until": as_bound("until", until)}


PAIRS = 'questions with their answers, such as `[("Where does Ann live?", "Oslo")]`'
"""What a call of `evaluate` needs."""


class MaintenanceMixin(ScopedHandle):
    """The part of `ScopedMemory` that thinks in years."""

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

    def events(self) -> EventStream:
        """Return what happens in this scope from now on, for `async for`."""
        return self._engine.events(self._session)

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
            **time_span(since, until),
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
        return Evaluation(
            [
                await self._evaluated(
                    question, answer, k=k, mode=mode, where=where, min_relevance=min_relevance
                )
                for question, answer in pairs
            ],
            k=k,
        )

    async def _evaluated(
        self, question: str, answer: ItemRef, *, k: int, **options: Any
    ) -> "EvaluatedQuestion":
        from orbiter.memory.agent.results import EvaluatedQuestion  # noqa: PLC0415

        memory: Any = self  # a `ScopedMemory`, of which this is a part
        expected = require_text("expected", as_id(answer))
        hits: RecallResult = await memory.recall(question, k=k, **options)
        text = expected.casefold()

        def answers(item: MemoryItem) -> bool:
            return item.id == expected or text in item.content.casefold()

        places = [
            place for place, hit in enumerate(hits) if any(map(answers, (hit.item, *hit.repeats)))
        ]
        is_stored = bool(places) or await memory.get(expected) is not None
        is_stored = is_stored or bool(await memory.list(query=expected, limit=1))
        return EvaluatedQuestion(
            question,
            expected,
            rank=places[0] + 1 if places else None,
            relevance=hits[places[0]].relevance if places else None,
            first=hits[0].content if hits else "",
            is_stored=is_stored,
        )

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


def _rename(owner: type, public: str) -> None:
    """Have errors name the methods of *owner* by the class that people know them from."""
    for each in list(vars(owner).values()):
        method = each.fget if isinstance(each, property) else each
        while inspect.isfunction(method):
            method.__qualname__ = f"{public}.{method.__name__}"
            method = getattr(method, "__wrapped__", None)


_rename(MaintenanceMixin, "ScopedMemory")
