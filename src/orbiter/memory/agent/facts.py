"""`Facts`: what is true in one scope, since when, and since when that is known.

Every change adds an assertion or closes one; nothing is overwritten. Facts are of exactly the
handle's scope: those of one of its sessions are that session's.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Literal, NamedTuple

from pydantic import ValidationError

from orbiter.memory.agent._facts_view import FactsView
from orbiter.memory.agent._updates import change
from orbiter.memory.agent.inputs import belongs, check_not_private, derived_id, labels, within
from orbiter.memory.agent.interface import operation
from orbiter.memory.agent.keywords import ItemRef, Time, as_id, read_time
from orbiter.memory.agent.runtime import Store, find, keeps_versions
from orbiter.memory.errors import (
    AccessError,
    ItemNotFoundError,
    QueryError,
    VersionConflict,
)
from orbiter.memory.model.copying import copy_item
from orbiter.memory.model.facts import (
    ALWAYS,
    MAX_SOURCES,
    FactMemory,
    FactOp,
    FactSpan,
    dated,
    holding,
    said_already,
    said_last,
    same_value,
    show_value,
    span_of,
    timeline,
)
from orbiter.memory.model.facts.assertion import FACT_OP, changed_values, op_of
from orbiter.memory.model.items import MemoryItem, MemoryMetadata, MemoryStatus
from orbiter.memory.model.query import check_instant, require_text
from orbiter.memory.model.trust import (
    SOURCE_KINDS,
    lowest_source,
    parse_source,
    source_of,
    trust_of,
)
from orbiter.memory.model.validation import Json

__all__ = ["Facts"]

_LIKE_ID = re.compile(r"~?[0-9a-f]{32}")
_TRIES = 100
"""How often a change is retried when others were faster."""

Source = MemoryItem | Sequence[MemoryItem] | str
"""What a fact is taken from: memories, the id of one, or a label such as `web:example.com`."""


class Facts(FactsView):
    """What is true in one scope; `ScopedMemory.facts` makes it."""

    # Changing

    @operation("facts.put", "PUT facts/{key}", role="write")
    async def put(
        self,
        key: str,
        value: object,
        *,
        op: Literal["set", "add", "remove"] = "set",
        valid_from: Time | None = None,
        valid_to: Time | None = None,
        source: Source | None = None,
        importance: float | None = None,
    ) -> FactMemory:
        """Record that *key* is *value*, from now or *valid_from* on; return it as stored.

        With *op* `add`, the value joins those that the key has, in a list; with `remove` it is
        taken out of them, and the key ends if none is left.
        What was valid before is kept with its time. *source* is the memory or memories that say
        so (the least trusted counts), the id of one, or a label such as `web:example.com`. A value
        that is already valid for all that time is not recorded twice: it is returned, with the new
        source added. A value that was valid once, and has ended, is recorded, and `conflicts`
        shows it.
        """
        store = await self._store()
        ids, extra = await self._provenance(store, source, importance)
        require_text("key", key)
        if value is None:
            raise QueryError(
                f"`None` is not a value; `end({key!r})` says that none is true any more"
            )
        value = self._storable(key, value)
        if op != "set":
            if op not in ("add", "remove"):
                raise QueryError(f"`op` must be `set`, `add` or `remove`, not {op!r}")
            change = _Change(op, key, value, ids, extra)
            made = await self._combine(
                store, change, lambda now: _valid_span(valid_from, valid_to, now)
            )
            if made is None:
                raise QueryError(f"`{key}` has no value then from which one could be removed")
            return made
        now = self._clock()
        span = _valid_span(valid_from, valid_to, now)
        facts = await self._about(key, span.start)
        if (later := self._after(facts, now)) > now:
            now, span = later, _valid_span(valid_from, valid_to, later)
            facts = await self._about(key, span.start)
        made = _assertion(
            key=key,
            value=value,
            valid_from=span.start,
            valid_to=span.end,
            recorded_at=now,
            source_ids=ids,
            metadata=self._labelled(extra),
        )
        held = await self._confirmed(store, made, facts, now, is_whole=True)
        if held is not None:
            return held
        await store.add(made, expected_version=0)
        self._core.events.emit_items("remembered", [made])
        return made

    @operation(
        "facts.end", "POST facts/{key}/end", role="write", answer="fact", is_safe_to_repeat=False
    )
    async def end(
        self, key: str, *, at: Time | None = None, source: Source | None = None
    ) -> FactMemory | None:
        """Record that what is true of *key* now, or at *at*, ends then.

        A value that begins later is still true from its time on. Returns `None` if nothing is true
        of the key then or later; where something is true only later, it is a `QueryError`.
        """
        store = await self._store()
        ids, extra = await self._provenance(store, source, None)
        facts = await self._read(require_text("key", key))
        now = self._after(facts)
        moment = now if at is None else check_instant("at", read_time("at", at))
        if holding(facts, as_of=moment, known_at=now) is None:
            for span in timeline(facts, known_at=now):
                if span.start > moment:
                    raise _nothing_to_end(key, moment, span, now)
            return None
        made = _assertion(
            key=key,
            is_end=True,
            valid_from=moment,
            recorded_at=now,
            source_ids=ids,
            metadata=self._labelled(extra),
        )
        await store.add(made, expected_version=0)
        self._core.events.emit_items("remembered", [made])
        return made

    @operation(
        "facts.revert",
        "POST facts/{key}/revert",
        role="write",
        answer="fact",
        is_safe_to_repeat=False,
    )
    async def revert(self, key: str) -> FactMemory | None:
        """Retract what was said last of *key*; return what is true of it now.

        Where several said just the same at once, all of that is retracted.
        """
        require_text("key", key)
        store = await self._store()
        tries = _TRIES
        while True:
            facts = await self._read(key)
            now = self._after(facts)
            last = said_last(facts, known_at=now)
            try:
                for said in last:
                    await self._take_back(store, said, now)
            except VersionConflict:  # another was faster, and something else was said last
                tries -= 1
                if not tries:
                    raise
                continue
            gone = {fact.id for fact in last}
            left = [fact for fact in facts if fact.id not in gone]
            return holding(left, as_of=now, known_at=now)

    async def _take_back(self, store: Store, said: FactMemory, now: datetime) -> None:
        twin = copy_item(said)
        twin.retracted_at = now
        await store.add(twin, expected_version=said.version)
        self._core.events.emit_items("updated", [twin])

    @operation("facts.retract", "POST assertions/{fact_id}/retract", role="write")
    async def retract(self, fact_id: ItemRef) -> FactMemory:
        """Retract an assertion that was wrong: as known from now on, it was never valid."""
        store = await self._store()
        stored = await self._find(store, as_id(fact_id))
        if stored.status is not MemoryStatus.ACCEPTED:
            raise QueryError(f"`{stored.id}` is not an accepted fact; use `discard` for a draft")
        if stored.retracted_at is not None:
            return stored
        now = self._after([stored])

        def edit(fact: FactMemory) -> None:
            if fact.retracted_at is None:
                fact.retracted_at = now

        return await self._change(store, stored.id, edit)

    # Reviewing

    @operation("facts.accept", "POST fact-drafts/{fact_id}/accept", role="write")
    async def accept(self, fact_id: ItemRef) -> FactMemory:
        """Accept a draft as a fact, known from now on; return it.

        Where just that holds already, its sources are added there, and the draft is discarded. One
        that adds or removes a value is discarded, too: what is returned has all values then. So is
        one with nothing to remove or to end, which is returned itself.
        """
        store = await self._store()
        draft = await self._find(store, as_id(fact_id))
        if draft.status is MemoryStatus.ACCEPTED:
            return draft
        facts = await self._read(draft.key)
        now = self._after(facts)
        op = op_of(draft)
        if draft.status is MemoryStatus.DRAFT and op in ("add", "remove"):
            extra = {n: v for n, v in draft.metadata.extra.items() if n not in ("fact", FACT_OP)}
            change = _Change(op, draft.key, draft.value, draft.source_ids, extra)
            span = _ValidSpan(draft.valid_from, draft.valid_to)
            made = await self._combine(store, change, lambda _: span)
            discarded = await self.discard(draft)
            return discarded if made is None else made
        if draft.status is MemoryStatus.DRAFT and op == "end":
            if holding(facts, as_of=draft.valid_from, known_at=now) is None:
                return await self.discard(draft)
        elif draft.status is MemoryStatus.DRAFT:
            held = await self._confirmed(store, draft, facts, now)
            if held is not None:
                await self.discard(draft)
                return held

        def edit(fact: FactMemory) -> None:
            if fact.status is not MemoryStatus.ACCEPTED:
                fact.transition(MemoryStatus.ACCEPTED)
                fact.recorded_at = now

        return await self._change(store, draft.id, edit)

    @operation("facts.discard", "POST fact-drafts/{fact_id}/discard", role="write")
    async def discard(self, fact_id: ItemRef) -> FactMemory:
        """Discard a draft; the same messages do not propose it again."""
        store = await self._store()
        stored = await self._find(store, as_id(fact_id))
        if stored.status is MemoryStatus.DISCARD:
            return stored

        def edit(fact: FactMemory) -> None:
            if fact.status is MemoryStatus.ACCEPTED:
                raise QueryError(f"`{stored.id}` is accepted; `retract` it")
            if fact.status is not MemoryStatus.DISCARD:
                fact.transition(MemoryStatus.DISCARD)

        return await self._change(store, stored.id, edit)

    @operation(
        "facts.propose", "POST fact-drafts", role="write", answer="fact", is_safe_to_repeat=False
    )
    async def propose(
        self,
        key: str,
        value: object = None,
        *,
        source: MemoryItem | Sequence[MemoryItem],
        op: FactOp = "set",
        valid_from: Time | None = None,
        valid_to: Time | None = None,
        confidence: float | None = None,
    ) -> FactMemory | None:
        """Store a draft of a fact that memories seem to say; return it, or `None` if it is known.

        *op* says what it does once it is accepted: `set`, `add` or `remove` as for `put`, or
        `end`. A value of `None` is an end, too.
        It is since the newest of them was said, unless *valid_from* says otherwise. The same
        memories propose the same value for the same time once: not again what was accepted,
        discarded, retracted or forgotten. What no time is given for is taken for a draft that
        waits for the same value.
        """
        store = await self._store()
        said = [source] if isinstance(source, MemoryItem) else list(source)
        ids, extra = await self._provenance(store, said, None)
        if not ids:
            raise QueryError(
                "a proposed fact needs the memories that it comes from: give `source=`"
            )
        facts = await self._read(require_text("key", key))
        now = self._after(facts)
        if op not in ("set", "add", "remove", "end"):
            raise QueryError(f"`op` must be `set`, `add`, `remove` or `end`, not {op!r}")
        op = "end" if value is None else op
        if op == "end":
            value, valid_from, valid_to = None, valid_to or valid_from, None
        elif op != "set":
            extra[FACT_OP] = op
        value = self._storable(key, value)
        span = _valid_span(valid_from, valid_to, max(item.created_at for item in said))
        made = _proposal(
            _assertion(
                key=key,
                value=value,
                is_end=op == "end",
                valid_from=span.start,
                valid_to=span.end,
                recorded_at=now,
                source_ids=ids,
                status=MemoryStatus.DRAFT,
                metadata=self._labelled(extra),
            ),
            self._scope,
            confidence,
        )
        given_times = _GivenTimes(start=valid_from is not None, end=valid_to is not None)
        if _is_known(made, facts, given_times, now=now):
            return None
        for fact in facts:
            if not _is_alike(fact, made, given_times):
                continue
            if fact.status is MemoryStatus.DRAFT:
                return fact
            if not set(made.source_ids).isdisjoint(fact.source_ids):
                return None
        if keeps_versions(store) and await store.history(made.id):
            return None  # it was forgotten
        try:
            await store.add(made, expected_version=0)
        except VersionConflict:  # another has just proposed it
            stored = await self._find(store, made.id)
            return stored if stored.status is MemoryStatus.DRAFT else None
        self._core.events.emit_items("remembered", [made])
        return made

    # How it is done

    def _storable(self, key: str, value: object) -> Json:
        """Return what is stored of *value*, which is compared with what was stored before."""
        given = _assertion(key=key, value=value).value
        check_not_private(given)
        return self._core.redaction.stored(given, key)

    def _labelled(self, extra: dict[str, object]) -> MemoryMetadata:
        return within(self._scope, None, extra)

    async def _provenance(
        self, store: Store, source: Source | None, importance: float | None
    ) -> tuple[list[str], dict[str, object]]:
        """Return the ids of the memories, and what `metadata.extra` tells of source and trust."""
        if isinstance(source, str) and source.partition(":")[0] not in SOURCE_KINDS:
            memory = await find(store, source, self._scope) if source else None
            if memory is None and _LIKE_ID.fullmatch(source):
                raise QueryError(
                    f"`source` looks like the id of a memory, but there is no `{source}` in this "
                    "scope; a label of your own is better as `user:…`, `tool:…` or `import:…`"
                )
            source = source if memory is None else memory
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
                raise AccessError(f"the source `{item.id}` belongs to another scope than {self!r}")
        extra = labels(None, importance, None, None)
        worst = lowest_source(items)
        if worst is not None:
            extra["source"], extra["trust"] = worst[0], int(worst[1])
        return list(dict.fromkeys(item.id for item in items))[:MAX_SOURCES], extra

    async def _confirmed(
        self,
        store: Store,
        said: FactMemory,
        facts: Sequence[FactMemory],
        now: datetime,
        *,
        is_whole: bool = False,
    ) -> FactMemory | None:
        """Return what holds, with the sources of *said*, if *said* says nothing else.

        If it *is_whole*, it counts for all its time until now, not only for its beginning.
        """
        held = holding(facts, as_of=said.valid_from, known_at=now)
        if held is not None:
            is_same = held.valid_to == said.valid_to and same_value(held.value, said.value)
            span = span_of(held, facts, as_of=said.valid_from, known_at=now)
            if not is_same or (is_whole and _ends_before(span, said.valid_to, now)):
                held = None
        if held is None and is_whole and any(f.valid_from == said.valid_from for f in facts):
            held = said_already(said, await self._read(said.key), known_at=now)
        if held is None:
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
            fact.metadata = fact.metadata.model_copy(
                update={"extra": {**fact.metadata.extra, **news}}
            )

        with suppress(_RetractedError, ItemNotFoundError):  # just now: then it is to be said again
            return await self._change(store, held.id, edit)
        return None

    async def _combine(
        self, store: Store, change: "_Change", span_at: "Callable[[datetime], _ValidSpan]"
    ) -> FactMemory | None:
        """Add or remove values; return what holds then, or `None` where nothing does.

        The id of what is written follows from all that is known of the key: of two who change the
        same at once, the second finds the first, and changes that.
        """
        before: list[str] = []
        again, tries = 0, _TRIES
        while True:
            facts = await self._read(change.key)
            now = self._after(facts)
            made, held = change.made(facts, span_at(now), now, self._labelled)
            if not made:
                return held
            accepted = (each for each in facts if each.status is MemoryStatus.ACCEPTED)
            known = sorted(f"{each.id} {each.version}" for each in accepted)
            again, before = (again + 1 if known == before else 0), known
            *others, last = made
            last.__dict__["id"] = derived_id(self._scope, "values", change.key, again, *known)
            try:
                await store.add(last, expected_version=0)
            except VersionConflict:  # another was faster, or that one was forgotten since
                tries -= 1
                if not tries:
                    raise
                continue
            for each in others:
                await store.add(each, expected_version=0)
            self._core.events.emit_items("remembered", made)
            return last

    async def _change(
        self, store: Store, fact_id: str, edit: Callable[[FactMemory], None]
    ) -> FactMemory:
        item = await change(store, self._scope, fact_id, edit, expected_version=None)  # type: ignore[arg-type]  # it is a fact
        self._core.events.emit_items("updated", [item])
        return item  # type: ignore[return-value]  # told above


class _Change(NamedTuple):
    """Values that a key gets or loses, and who says so."""

    op: FactOp
    key: str
    value: object
    source_ids: Sequence[str]
    extra: Mapping[str, object]

    def made(
        self,
        facts: Sequence[FactMemory],
        span: "_ValidSpan",
        now: datetime,
        labelled: Callable[[dict[str, object]], MemoryMetadata],
    ) -> tuple[list[FactMemory], FactMemory | None]:
        """Return the assertions to be written, the last for the last time, and what holds then.

        Each time that something else begins to hold within *span*, that gets and loses them, too.
        """
        spans = timeline(facts, known_at=now)
        turns = {turn for each in spans for turn in (each.start, each.end) if turn is not None}
        within = sorted(t for t in turns if t > span.start and (span.end is None or t < span.end))
        starts = [span.start, *within]
        made: list[FactMemory] = []
        held: FactMemory | None = None
        for start, end in zip(starts, [*within, span.end], strict=True):
            held = holding(facts, as_of=start, known_at=now)
            fact = self._assertion(held, labelled, valid_from=start, valid_to=end, recorded_at=now)
            if fact is not None:
                made.append(fact)
        return made, held

    def _assertion(
        self,
        held: FactMemory | None,
        labelled: Callable[[dict[str, object]], MemoryMetadata],
        **times: object,
    ) -> FactMemory | None:
        """Return what says all values that there are after it; `None` if that changes nothing."""
        have = changed_values(None if held is None else held.value, "add", None)
        values = changed_values(have, self.op, self.value)  # type: ignore[arg-type]  # checked below
        if len(values) == len(have):
            return None
        extra, ids = dict(self.extra), [*self.source_ids]
        plain = _assertion(key=self.key, metadata=labelled(extra))
        if held is not None:
            extra = {**held.metadata.extra, **extra}
            ids = list(dict.fromkeys([*held.source_ids, *ids]))
            worst = lowest_source([held, plain])
            if worst is not None and "source" in extra:
                extra |= {"source": worst[0], "trust": int(worst[1])}
        return _assertion(
            key=self.key,
            value=values or None,
            is_end=not values,
            source_ids=ids[:MAX_SOURCES],
            metadata=labelled({**extra, FACT_OP: self.op}),
            **times,
        )


def _ends_before(span: FactSpan, end: datetime | None, now: datetime) -> bool:
    """Tell whether a time is over before *end*, or by now if that is open."""
    if span.end is None:
        return False
    return span.end <= now if end is None else span.end < end


class _RetractedError(Exception):
    """What was to be confirmed does not hold any more."""


_MAX_VALUE = 60


def _assertion(**fields: object) -> FactMemory:
    """Return an assertion, or raise a `QueryError` of one line that says what is wrong with it."""
    try:
        return FactMemory(**fields)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        name = ".".join(map(str, first["loc"]))
        text = first["msg"].removeprefix("Value error, ")
        message = f"`{name}`: {text}" if name else text
        raise QueryError(" ".join(message.split())) from None


def _nothing_to_end(key: str, at: datetime, span: FactSpan, now: datetime) -> QueryError:
    """Return what to say of an end before the first value."""
    value = show_value(span.fact.value)
    short_value = value if len(value) <= _MAX_VALUE else f"{value[:_MAX_VALUE]}…"
    when = dated(replace(span, end=None), now=now)
    return QueryError(
        f"`{key}` has no value at {at.isoformat(timespec='seconds')} that could be ended; it is "
        f"`{short_value}` {when}: give a later `at`, or `retract({span.fact.id!r})` if that was "
        "never true"
    )


class _ValidSpan(NamedTuple):
    """From when to when something is said to hold."""

    start: datetime
    end: datetime | None


def _valid_span(valid_from: Time | None, valid_to: Time | None, said: datetime) -> _ValidSpan:
    """Return from when to when it holds, if it is said at that instant.

    Of what is over by then, nobody knows since when it held.
    """
    end = None if valid_to is None else check_instant("valid_to", read_time("valid_to", valid_to))
    start = said if end is None or end > said else ALWAYS
    if valid_from is not None:
        start = check_instant("valid_from", read_time("valid_from", valid_from))
    return _ValidSpan(start, end)


class _GivenTimes(NamedTuple):
    """Which of its times a proposal was given; the others follow from when it was said."""

    start: bool
    end: bool


def _is_known(
    made: FactMemory, facts: Sequence[FactMemory], given_times: _GivenTimes, *, now: datetime
) -> bool:
    """Tell whether *facts* of its key say already what *made* does: the value, and until when."""
    op = op_of(made)
    as_of = made.valid_from if op in ("set", "end") or any(given_times) else now
    held = holding(facts, as_of=as_of, known_at=now)
    if op in ("add", "remove"):
        have = changed_values(None if held is None else held.value, "add", None)
        return len(changed_values(have, op, made.value)) == len(have)
    if op == "end":
        return held is None
    if held is None or not same_value(held.value, made.value):
        return False
    span = span_of(held, facts, as_of=made.valid_from, known_at=now)
    return not any(given_times) or made.valid_to in (held.valid_to, span.end)


def _is_alike(fact: FactMemory, made: FactMemory, given_times: _GivenTimes) -> bool:
    """Tell whether *fact* says of its time what *made* proposes, as far as that was given."""
    if op_of(fact) != op_of(made) or not same_value(fact.value, made.value):
        return False
    if not any(given_times):
        return fact.valid_to is None or fact.covers(made.valid_from)
    if given_times.start:
        return (fact.valid_from, fact.valid_to) == (made.valid_from, made.valid_to)
    return fact.valid_to == made.valid_to


def _proposal(fact: FactMemory, scope: MemoryMetadata, confidence: float | None) -> FactMemory:
    """Return *fact*, which nobody has seen yet, as the proposal that its sources make.

    The id is the same each time, so that proposing again finds what became of it.
    """
    value = json.dumps(fact.value, sort_keys=True)
    sources = json.dumps(sorted(fact.source_ids))
    span = [None if at is None else at.isoformat() for at in (fact.valid_from, fact.valid_to)]
    extra = dict(fact.metadata.extra)
    if confidence is not None:
        if isinstance(confidence, bool) or not isinstance(confidence, int | float):
            raise QueryError(f"`confidence` must be a number from 0 to 1, not {confidence!r}")
        if not 0 <= confidence <= 1:
            raise QueryError(f"`confidence` must be from 0 to 1, not {confidence}")
        extra["confidence"] = confidence
    fields = {**fact.metadata.__dict__, "extra": extra}
    fact.__dict__["metadata"] = MemoryMetadata(**fields)
    op = [] if op_of(fact) == "set" else [op_of(fact)]
    parts = (fact.key, value, sources, json.dumps(span), *op)
    fact.__dict__["id"] = derived_id(scope, "proposal", *parts)
    return fact
