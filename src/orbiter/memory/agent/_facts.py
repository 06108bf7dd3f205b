"""`Facts`: what is true in one scope, since when, and since when that is known.

Every change adds an assertion or closes one; nothing is overwritten. Facts are of exactly the
handle's scope: those of one of its sessions are that session's.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from orbiter.memory.agent._changes import change
from orbiter.memory.agent._core import Store, keeps_versions
from orbiter.memory.agent._facts_view import FactsView
from orbiter.memory.agent._observed import observed
from orbiter.memory.agent._proposing import proposal
from orbiter.memory.agent._reading import belongs, check_given, labels
from orbiter.memory.copies import copy_item
from orbiter.memory.errors import (
    AccessError,
    ItemNotFoundError,
    QueryError,
    UnsupportedError,
    VersionConflict,
)
from orbiter.memory.facts import (
    ALWAYS,
    MAX_SOURCES,
    FactMemory,
    holding,
    latest,
    newest,
    same_value,
)
from orbiter.memory.items import MemoryItem, MemoryMetadata, MemoryStatus
from orbiter.memory.query import SCOPE_FIELDS, check_instant
from orbiter.memory.trust import lowest_source, parse_source, source_of, trust_of

__all__ = ["Facts"]

_TICK = timedelta(microseconds=1)
_TRIES = 100
"""How often a change is made anew when others were faster."""

Source = MemoryItem | Sequence[MemoryItem] | str
"""What a fact is taken from: memories, or a label such as `web:example.com`."""


class Facts(FactsView):
    """What is true in one scope; `ScopedMemory.facts` makes it. With *known_at*, only to read."""

    # Changing

    @observed("facts.put")
    async def put(
        self,
        key: str,
        value: object,
        *,
        valid_from: datetime | None = None,
        valid_to: datetime | None = None,
        source: Source | None = None,
        importance: float | None = None,
    ) -> FactMemory:
        """Say that *key* is *value*, from now or *valid_from* on; return it as stored.

        What held before is kept with its time. *source* is the memory or memories that say so,
        of which the least trusted counts, or a label such as `web:example.com`. What holds already
        is not recorded twice: it is returned, with the new source added.
        """
        ids, extra = self._provenance(source, importance)
        store = await self._writable()
        facts = await self._read(check_given("key", key))
        now = self._after(facts)
        made = FactMemory(
            key=key,
            value=value,
            **_span(valid_from, valid_to, now),
            recorded_at=now,
            source_ids=ids,
            metadata=self._labelled(extra),
        )
        held = await self._confirmed(store, made, facts, now)
        if held is not None:
            return held
        await store.add(made, expected_version=0)
        self._core.events.tell_of("remembered", [made])
        return made

    @observed("facts.end")
    async def end(
        self, key: str, *, at: datetime | None = None, source: Source | None = None
    ) -> FactMemory | None:
        """Say that nothing is true of *key* from now or *at* on; `None` if nothing was anyway."""
        ids, extra = self._provenance(source, None)
        store = await self._writable()
        facts = await self._read(check_given("key", key))
        now = self._after(facts)
        moment = now if at is None else check_instant("at", at)
        if holding(facts, as_of=moment, known_at=now) is None:
            return None
        made = FactMemory(
            key=key,
            is_end=True,
            valid_from=moment,
            recorded_at=now,
            source_ids=ids,
            metadata=self._labelled(extra),
        )
        await store.add(made, expected_version=0)
        self._core.events.tell_of("remembered", [made])
        return made

    @observed("facts.revert")
    async def revert(self, key: str) -> FactMemory | None:
        """Retract what was said last of *key*; return what is true of it now."""
        check_given("key", key)
        store = await self._writable()
        tries = _TRIES
        while True:
            facts = await self._read(key)
            now = self._after(facts)
            last = newest(facts, known_at=now)
            if last is None:
                return None
            twin = copy_item(last)
            twin.retracted_at = now
            try:
                await store.add(twin, expected_version=last.version)
            except VersionConflict:  # another was faster, and something else was said last
                tries -= 1
                if not tries:
                    raise
                continue
            self._core.events.tell_of("updated", [twin])
            left = [fact for fact in facts if fact.id != last.id]
            return holding(left, as_of=now, known_at=now)

    @observed("facts.retract")
    async def retract(self, fact_id: str) -> FactMemory:
        """Say that an assertion was wrong: it holds no more, at any time, as known from now on."""
        store = await self._writable()
        found = await self._find(store, fact_id)
        if found.status is not MemoryStatus.ACCEPTED:
            raise QueryError(f"`{fact_id}` is no accepted fact; a draft is for `discard`")
        if found.retracted_at is not None:
            return found
        now = self._after([found])

        def edit(fact: FactMemory) -> None:
            if fact.retracted_at is None:
                fact.retracted_at = now

        return await self._change(store, fact_id, edit)

    # Reviewing

    @observed("facts.accept")
    async def accept(self, fact_id: str) -> FactMemory:
        """Make a draft a fact, known from now on; return it.

        Where just that holds already, its sources are added there, and the draft is discarded.
        """
        store = await self._writable()
        draft = await self._find(store, fact_id)
        if draft.status is MemoryStatus.ACCEPTED:
            return draft
        facts = await self._read(draft.key)
        now = self._after(facts)
        if draft.status is MemoryStatus.DRAFT:
            held = await self._confirmed(store, draft, facts, now)
            if held is not None:
                await self.discard(fact_id)
                return held

        def edit(fact: FactMemory) -> None:
            if fact.status is not MemoryStatus.ACCEPTED:
                fact.transition(MemoryStatus.ACCEPTED)
                fact.recorded_at = now

        return await self._change(store, fact_id, edit)

    @observed("facts.discard")
    async def discard(self, fact_id: str) -> FactMemory:
        """Turn a draft down; the same messages do not propose it again."""
        store = await self._writable()
        found = await self._find(store, fact_id)
        if found.status is MemoryStatus.DISCARD:
            return found

        def edit(fact: FactMemory) -> None:
            if fact.status is MemoryStatus.ACCEPTED:
                raise QueryError(f"`{fact_id}` is accepted; `retract` it")
            if fact.status is not MemoryStatus.DISCARD:
                fact.transition(MemoryStatus.DISCARD)

        return await self._change(store, fact_id, edit)

    @observed("facts.propose")
    async def propose(
        self,
        key: str,
        value: object,
        *,
        source: MemoryItem | Sequence[MemoryItem],
        valid_from: datetime | None = None,
        valid_to: datetime | None = None,
        confidence: float | None = None,
    ) -> FactMemory | None:
        """Keep as a draft what memories seem to say; return it, or `None` if it is known.

        It is since the newest of them was said, unless *valid_from* says otherwise. The same
        memories propose the same once: not again what was accepted, discarded, retracted or
        forgotten.
        """
        ids, extra = self._provenance(source, None)
        if not ids:
            raise QueryError("a proposal needs the memories that it is taken from: `source=`")
        said = [source] if isinstance(source, MemoryItem) else source
        store = await self._writable()
        facts = await self._read(check_given("key", key))
        now = self._after(facts)
        made = proposal(
            FactMemory(
                key=key,
                value=value,
                **_span(valid_from, valid_to, max(item.created_at for item in said)),
                recorded_at=now,
                source_ids=ids,
                status=MemoryStatus.DRAFT,
                metadata=self._labelled(extra),
            ),
            self._scope,
            confidence,
        )
        held = holding(facts, as_of=made.valid_from, known_at=now)
        if held is not None and same_value(held.value, made.value):
            return None
        alike = [f for f in facts if not f.is_end and same_value(f.value, made.value)]
        for fact in alike:
            if fact.status is MemoryStatus.DRAFT:
                return fact
            if not set(made.source_ids).isdisjoint(fact.source_ids):
                return None
        if keeps_versions(store) and await store.history(made.id):
            return None  # it was forgotten
        try:
            await store.add(made, expected_version=0)
        except VersionConflict:  # another has just proposed it
            found = await self._find(store, made.id)
            return found if found.status is MemoryStatus.DRAFT else None
        self._core.events.tell_of("remembered", [made])
        return made

    # How it is done

    async def _find(self, store: Store, fact_id: str) -> FactMemory:
        item = await store.get(check_given("fact_id", fact_id))
        if not isinstance(item, FactMemory) or any(
            getattr(item.metadata, name) != getattr(self._scope, name) for name in SCOPE_FIELDS
        ):
            raise ItemNotFoundError(
                fact_id, way="`history(key)` and `drafts()` show the facts of this scope"
            )
        return item

    async def _writable(self) -> Store:
        if self._known_at is not None:
            raise UnsupportedError("this is the past, which can only be read; use `facts` of today")
        return await self._store()

    def _after(self, facts: Sequence[FactMemory]) -> datetime:
        """Return now, and later than all that was said of a key, whatever clock that was said by.

        Else what a machine says whose clock is slow would be past as soon as it is said.
        """
        last = max((latest(fact) for fact in facts), default=ALWAYS)
        return max(self._clock(), last + _TICK) if last > ALWAYS else self._clock()

    def _labelled(self, extra: dict[str, object]) -> MemoryMetadata:
        return MemoryMetadata(**{n: getattr(self._scope, n) for n in SCOPE_FIELDS}, extra=extra)

    def _provenance(
        self, source: Source | None, importance: float | None
    ) -> tuple[list[str], dict[str, object]]:
        """Return the ids of the memories, and what `metadata.extra` tells of source and trust."""
        if source is None or isinstance(source, str):
            extra = labels(None, importance, source, None)
            if source is not None:
                extra["trust"] = int(parse_source(source))
            return [], extra
        items = [source] if isinstance(source, MemoryItem) else list(source)
        for item in items:
            if not isinstance(item, MemoryItem):
                raise QueryError(f"`source` must be memories or a label, not {item!r}")
            if not belongs(item, self._scope):
                raise AccessError(f"the source `{item.id}` is of another scope than {self!r}")
        extra = labels(None, importance, None, None)
        worst = lowest_source(items)
        if worst is not None:
            extra["source"], extra["trust"] = worst[0], int(worst[1])
        return list(dict.fromkeys(item.id for item in items))[:MAX_SOURCES], extra

    async def _confirmed(
        self, store: Store, said: FactMemory, facts: Sequence[FactMemory], now: datetime
    ) -> FactMemory | None:
        """Return what holds, with the sources of *said*, if *said* says nothing else."""
        held = holding(facts, as_of=said.valid_from, known_at=now)
        if held is None or held.valid_to != said.valid_to or not same_value(held.value, said.value):
            return None
        news = {n: v for n, v in said.metadata.extra.items() if n not in ("source", "trust")}
        if trust_of(said) > trust_of(held):  # what two say is worth what the better one is
            news |= {"source": source_of(said), "trust": int(trust_of(said))}
        more = [each for each in said.source_ids if each not in held.source_ids]
        if not more and news.items() <= held.metadata.extra.items():
            return held

        def edit(fact: FactMemory) -> None:
            if not fact.is_known(now):
                raise _RetractedError
            fact.source_ids = [*fact.source_ids, *more][:MAX_SOURCES]
            fact.metadata = self._labelled({**fact.metadata.extra, **news})

        with suppress(_RetractedError, ItemNotFoundError):  # just now: then it is to be said anew
            return await self._change(store, held.id, edit)
        return None

    async def _change(
        self, store: Store, fact_id: str, edit: Callable[[FactMemory], None]
    ) -> FactMemory:
        item = await change(store, self._scope, fact_id, edit, expected_version=None)  # type: ignore[arg-type]  # it is a fact
        self._core.events.tell_of("updated", [item])
        return item  # type: ignore[return-value]  # told above


def _span(
    valid_from: datetime | None, valid_to: datetime | None, said: datetime
) -> dict[str, datetime | None]:
    """Return from when to when it holds, if it is said at that instant.

    Of what is over by then, nobody knows since when it held.
    """
    end = None if valid_to is None else check_instant("valid_to", valid_to)
    start = said if end is None or end > said else ALWAYS
    if valid_from is not None:
        start = check_instant("valid_from", valid_from)
    return {"valid_from": start, "valid_to": end}


class _RetractedError(Exception):
    """What was to be confirmed does not hold any more."""
