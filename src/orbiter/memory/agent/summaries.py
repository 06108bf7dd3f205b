"""Rolling summaries, made in the background and stored beside what they sum up.

A summary is derived: a failing summarizer delays it, and no message is ever lost or changed. It is
kept as a `draft`, which recall and conversations leave out, under an id of its chat's own. It
carries the source of the least trusted message that ever went into it, and is never the system's.
One of messages that are not indexed is not indexed, either: no model of embeddings sees them.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache, partial

from orbiter.memory.agent.chat_history import read_back, read_on
from orbiter.memory.agent.inputs import derived_id
from orbiter.memory.agent.runtime import Core, Store
from orbiter.memory.errors import AccessError, MemoryError, SummaryError, VersionConflict
from orbiter.memory.model.derived import SummaryMemory
from orbiter.memory.model.items import (
    INDEXED_BY,
    MemoryItem,
    MemoryMetadata,
    is_indexed,
    is_own_output,
    role_of,
)
from orbiter.memory.model.protocols import Summarizer
from orbiter.memory.model.query import SCOPE_FIELDS
from orbiter.memory.model.trust import lowest_source
from orbiter.memory.summary import (
    SummaryConfig,
    check_trigger,
    estimated_tokens,
    roll_summary,
)

__all__ = ["Summaries"]

_TICK = timedelta(microseconds=1)
_MAX_COUNTED = 10_000
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 300.0
_QUIET = 0.05
"""Seconds without a new message after which summaries are begun: a turn comes before them."""
_LATEST = 1.0
"""Seconds after which they are begun though messages go on coming."""
_PIECES = 4
"""How many times what triggers a summary is given to a summarizer at once: whatever its limit is,
one chat that was never summed up must not exceed it."""


@dataclass(slots=True)
class _Tally:
    """What came into a conversation since it was last summed up, as far as this process knows."""

    messages: int = 0
    tokens: int = 0
    is_whole: bool = False
    """Whether what the store held before is counted, too."""
    failures: int = 0
    not_before: float = 0.0

    def count(self, items: Sequence[MemoryItem], config: SummaryConfig, sign: int = 1) -> None:
        """Count messages in, or out with a negative *sign*."""
        self.messages += sign * len(items)
        self.tokens += sign * estimated_tokens(items, config)


@dataclass(frozen=True, slots=True)
class _Rolled:
    """Summaries by template, and the messages that are in them."""

    summaries: dict[str, str]
    done: list[MemoryItem]
    covers_id: str
    """The last message that is in them."""
    covers_to: datetime
    """When that one says it was written."""


class Summaries:
    """Makes the summaries of all conversations of one memory."""

    def __init__(
        self, core: Core, config: SummaryConfig | None, summarizer: Summarizer | None
    ) -> None:
        self._core = core
        self._config = config
        self._chosen = summarizer
        self._tallies: OrderedDict[str, _Tally] = OrderedDict()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._waiting: dict[str, tuple[MemoryMetadata, Context]] = {}
        """The conversations to be looked at once it is quiet, and on whose behalf."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_loop: asyncio.AbstractEventLoop | None = None
        self._heard = 0.0
        """When the last message came, by the clock of the loop that has the timer."""

    async def find(self, store: Store, scope: MemoryMetadata) -> SummaryMemory | None:
        """Return the summary of a conversation, if there is one, whoever made it."""
        return _own_summary(await store.get(_summary_id(scope)), scope)

    def note(self, scope: MemoryMetadata, items: list[MemoryItem]) -> None:
        """Count messages that were stored, and begin a summary if there are enough."""
        if self._config is None or not self._core.is_open:
            return
        key, loop = _summary_id(scope), asyncio.get_running_loop()
        self._heard = loop.time()
        tally = self._tally(key)
        tally.count(items, self._config)
        if tally.is_whole and not self._is_due(tally):
            return
        if not self._is_under_way(key):
            self._waiting[key] = scope, copy_context()
            if self._timer is None or self._timer_loop is not loop:  # which may have stopped
                self._timer_loop = loop
                self._timer = loop.call_later(_QUIET, self._begin_if_quiet, self._heard + _LATEST)

    def _begin_if_quiet(self, latest: float) -> None:
        """Begin what waits, unless a message has just come: its turn is not to wait for that."""
        loop = asyncio.get_running_loop()
        quiet = min(self._heard + _QUIET, latest)
        if loop.time() < quiet and loop is self._timer_loop:
            self._timer = loop.call_at(quiet, self._begin_if_quiet, latest)
        else:
            self._begin()

    def _begin(self) -> None:
        """Begin a look at every conversation that waits for one."""
        self._stop_timer()
        waiting, self._waiting = self._waiting, {}
        for key, (scope, context) in waiting.items():
            if not self._is_under_way(key):
                task = asyncio.create_task(self._look(scope, key), context=context)
                self._tasks[key] = task
                task.add_done_callback(partial(self._leave, key))

    def _stop_timer(self) -> None:
        if self._timer is not None and self._timer_loop is asyncio.get_running_loop():
            self._timer.cancel()
        self._timer = None

    def _is_under_way(self, key: str) -> bool:
        task = self._tasks.get(key)
        return task is not None and task.get_loop() is asyncio.get_running_loop()

    def _of_this_loop(self) -> list[asyncio.Task[None]]:
        """Return the tasks that can end; a loop that stopped for good leaves its own behind."""
        loop = asyncio.get_running_loop()
        return [task for task in self._tasks.values() if task.get_loop() is loop]

    def _leave(self, key: str, task: asyncio.Task[None] | None) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]

    def _is_due(self, tally: _Tally) -> bool:
        config = self._config or SummaryConfig()
        is_much = tally.messages > config.message_threshold or tally.tokens > config.token_threshold
        return is_much and asyncio.get_running_loop().time() >= tally.not_before

    async def _look(self, scope: MemoryMetadata, key: str) -> None:
        """Summarise if there is enough; whatever fails is told, and tried again later."""
        tally = self._tally(key)
        try:
            seen = -1
            while (store := self._core.if_open(scope)) is not None:
                await self.roll(store, scope)
                if not self._is_due(tally) or tally.messages == seen:
                    break
                seen = tally.messages  # so much was said meanwhile
        except (MemoryError, OSError) as exc:
            pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**tally.failures)
            tally.failures += 1
            tally.not_before = asyncio.get_running_loop().time() + pause
            log = logging.getLogger("orbiter.memory")  # here: importing must touch no logger
            log.warning("a summary was postponed, nothing is lost: %s", _error_text(exc))
            self._core.events.emit("summary failed", scope, detail=_error_text(exc))
        finally:
            # At once, not when the loop comes to it: what is said from now on begins a new look.
            self._leave(key, asyncio.current_task())

    async def roll(
        self, store: Store, scope: MemoryMetadata, *, force: bool = False
    ) -> SummaryMemory | None:
        """Sum up what came since the last summary, if that is enough; return the newest summary."""
        if self._config is None:
            return None
        config, key = self._config, _summary_id(scope)
        there = await store.get(key)
        last = _own_summary(there, scope)
        tally = self._tally(key)
        # What is said while we read is counted twice rather than not at all: the next look sees.
        tally.messages = tally.tokens = 0
        items, base = await _not_covered(store, scope, last)
        tally.count(items, config)
        tally.is_whole = True
        if not (force or check_trigger(items, config).triggered):
            return last
        if there is not None and last is None:
            raise _not_ours(key)  # before anything is paid for it
        before = {} if base is None else base.summaries
        rolled = await _sum_up(before, items, config, self._summarizer())
        if rolled is None:
            return last
        made = _summary(key, scope, rolled, base)
        try:
            await store.add(made, expected_version=0 if last is None else last.version)
        except VersionConflict:
            current = await self.find(store, scope)  # another process has just made it
            if current is None:
                raise _not_ours(key) from None
            return current
        if not await self._still_holds(store, scope, base, rolled):
            await store.delete_many([key])
            return None
        tally.count(rolled.done, config, -1)
        tally.failures = 0
        self._core.events.emit("summarized", scope, [key], detail=f"{made.covered} messages")
        return made

    async def _still_holds(
        self, store: Store, scope: MemoryMetadata, base: SummaryMemory | None, rolled: _Rolled
    ) -> bool:
        """Tell whether what is summed up is still there as it was.

        Whoever changes a message forgets the summary afterwards, and whoever makes a summary looks
        at the messages afterwards: so one of them sees the other, in whichever processes they are.
        """
        items, _ = await _not_covered(store, scope, base)
        # Not a set of all texts at once: to hash them keeps others waiting.
        there = {item.id: (item.content, is_indexed(item)) for item in items}
        return all(there.get(item.id) == (item.content, is_indexed(item)) for item in rolled.done)

    async def copy(
        self,
        store: Store,
        scope: MemoryMetadata,
        to: MemoryMetadata,
        copies: Sequence[MemoryItem],
    ) -> None:
        """Give a branch that begins with *copies* the summary, unless that reaches further."""
        summary = await self.find(store, scope)
        if summary is None or not copies:
            return
        last = next(
            (
                item
                for item in reversed(copies[:-1])
                if item.metadata.extra.get("forked_from") == summary.covers_id
            ),
            None,
        )
        if last is None and (summary.covers_id or summary.covers_by_time(copies[-1])):
            return
        reach = "" if last is None else last.id
        rolled = _Rolled(summary.summaries, [], reach, summary.covers_to)
        made = _summary(_summary_id(to), to, rolled, summary)
        with suppress(VersionConflict):  # it has one already
            await store.add(made, expected_version=0)

    async def forget(self, store: Store, items: Sequence[MemoryItem]) -> None:
        """Forget the summaries of what changed: they are made again from what is left."""
        keys = []
        for key, scope in summaries_of(items).items():
            if await self.find(store, scope) is not None:
                keys.append(key)
            self._tallies.pop(key, None)
        if keys:
            await store.delete_many(keys)

    def _tally(self, key: str) -> _Tally:
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tallies[key] = _Tally()
        self._tallies.move_to_end(key)
        if len(self._tallies) > _MAX_COUNTED:
            self._tallies.popitem(last=False)
        return tally

    def _summarizer(self) -> Summarizer:
        if self._chosen is None:
            from orbiter.memory.summarizers.extractive import ExtractiveSummarizer  # noqa: PLC0415

            self._chosen = ExtractiveSummarizer()
        return self._chosen

    async def flush(self) -> None:
        """Wait until no summary is under way, or waits for a quiet moment."""
        self._begin()
        while tasks := self._of_this_loop():
            await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        """Give up what is under way: it can be made again."""
        self._stop_timer()
        self._waiting.clear()
        tasks = self._of_this_loop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()
        self._tallies.clear()


async def _not_covered(
    store: Store, scope: MemoryMetadata, summary: SummaryMemory | None
) -> tuple[list[MemoryItem], SummaryMemory | None]:
    """Return the messages that are not in *summary*, and the summary that they follow.

    That is none if nobody knows any more how far it reaches: then all are to be summed up.
    """
    if summary is not None and summary.covers_id:
        items = await read_on(store, scope, summary.covers_id)
        if items is not None:
            return items, summary
        summary = None
    since = None if summary is None else summary.covers_to + _TICK
    return (await read_back(store, scope, since=since))[0], summary


def _own_summary(item: MemoryItem | None, scope: MemoryMetadata) -> SummaryMemory | None:
    """Return *item* if it is the summary of this very conversation: anybody may take its id."""
    if not isinstance(item, SummaryMemory):
        return None
    is_own = all(getattr(item.metadata, name) == getattr(scope, name) for name in SCOPE_FIELDS)
    return item if is_own else None


def _not_ours(key: str) -> AccessError:
    return AccessError(f"the summary `{key}` was forgotten, or belongs to somebody else")


def summaries_of(items: Iterable[MemoryItem]) -> dict[str, MemoryMetadata]:
    """Return the ids of the summaries that may say what *items* do, and their conversations."""
    said = [item.metadata for item in items if role_of(item) is not None]
    scopes = {tuple(getattr(who, name) for name in SCOPE_FIELDS) for who in said}
    chats = [MemoryMetadata(**dict(zip(SCOPE_FIELDS, each, strict=True))) for each in scopes]
    return {_summary_id(scope): scope for scope in chats}


def _summary_id(scope: MemoryMetadata) -> str:
    return _derived_id(*(getattr(scope, name) for name in SCOPE_FIELDS))


@lru_cache(maxsize=1024)
def _derived_id(*scope_ids: str | None) -> str:
    """Return the id of a summary; every message that is added asks for it."""
    scope = MemoryMetadata(**dict(zip(SCOPE_FIELDS, scope_ids, strict=True)))
    return derived_id(scope, "summary")


def _summary(
    key: str, scope: MemoryMetadata, rolled: _Rolled, last: SummaryMemory | None
) -> SummaryMemory:
    """Return the summary that goes on from *last*; it is worth no more than the worst in it."""
    covered = 0 if last is None else last.covered
    said = [item for item in rolled.done if not is_own_output(item)]
    parts = said if last is None else [*said, last]
    worst = lowest_source(parts)
    fields = {name: getattr(scope, name) for name in SCOPE_FIELDS}
    extra: dict[str, object] = {}
    if worst is not None:
        extra = {"source": worst[0], "trust": int(worst[1])}
    if not all(map(is_indexed, parts)):
        extra[INDEXED_BY] = False
    try:
        return SummaryMemory(
            id=key,
            content=_text(rolled.summaries),
            metadata=MemoryMetadata(**fields, extra=extra),
            summaries=rolled.summaries,
            covers_id=rolled.covers_id,
            covers_to=rolled.covers_to,
            covered=len(rolled.done) + covered,
        )
    except ValueError as exc:  # a text that no store keeps
        raise SummaryError(next(iter(rolled.summaries)), exc) from exc


def _text(summaries: Mapping[str, str]) -> str:
    said = {name: text for name, text in summaries.items() if text}
    if len(said) == 1:
        return next(iter(said.values()))
    return "\n\n".join(f"{name}: {text}" for name, text in said.items())


def _error_text(exc: BaseException) -> str:
    # The cause's own words may hold what was said; its kind is enough.
    if isinstance(exc, SummaryError):
        return f"the summarizer failed on template `{exc.template}` ({_kind(exc.__cause__)})"
    return _kind(exc)


def _kind(exc: BaseException | None) -> str:
    return type(exc).__name__


async def _sum_up(
    before: Mapping[str, str],
    items: Sequence[MemoryItem],
    config: SummaryConfig,
    summarizer: Summarizer,
) -> _Rolled | None:
    """Sum up all but the newest *items* with the summaries *before* them; `None` for nothing new.

    What is too much at once is summed up piece by piece.
    """
    rest, summaries = list(items), dict(before)
    while (size := _piece(rest, config)) < len(rest) - config.keep_recent:
        result = await roll_summary(
            summaries, rest[:size], replace(config, keep_recent=0), summarizer
        )
        taken = size - len(result.compressed_items)
        if not taken:  # one tool group fills the piece
            break
        summaries, rest = result.summaries, rest[taken:]
    result = await roll_summary(summaries, rest, config, summarizer)
    done = list(items[: len(items) - len(result.compressed_items)])
    if not done or not result.summaries:
        return None
    return _Rolled(result.summaries, done, done[-1].id, done[-1].created_at)


def _piece(items: Sequence[MemoryItem], config: SummaryConfig) -> int:
    """Return how many of *items*, from the first on, are summed up at once."""
    most = max(_PIECES * config.message_threshold, 1)
    size = min(len(items), most)
    room = _PIECES * config.token_threshold
    while size > 1 and estimated_tokens(items[:size], config) > room:
        size //= 2
    return size
