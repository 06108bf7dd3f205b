"""`Chat`: one conversation, from its messages to what a model is shown of it."""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from orbiter.memory.agent.chat_history import (
    append,
    append_once,
    check_messages,
    copies_for,
    find_calls,
    is_known_key,
    is_of,
    read_back,
    read_window,
    seed_of,
)
from orbiter.memory.agent.inputs import (
    Given,
    check_text,
    date_items,
    labels,
    narrowed,
    read_flag,
    read_messages,
    within,
)
from orbiter.memory.agent.interface import ScopedHandle, operation
from orbiter.memory.agent.keywords import ScopeId, Time, as_name
from orbiter.memory.agent.recalled import with_more
from orbiter.memory.agent.results import ItemList
from orbiter.memory.agent.runtime import Store
from orbiter.memory.conversation.tokens import item_tokens
from orbiter.memory.conversation.windows import OpenGroup, last_rounds, trim_to_budget
from orbiter.memory.errors import ItemNotFoundError, MessageError, QueryError
from orbiter.memory.messages import Format, OpenCalls, ProviderMessages, to_messages
from orbiter.memory.messages.costs import sent_tokens
from orbiter.memory.model.copying import item_of_text
from orbiter.memory.model.items import (
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    calls_of,
    new_id,
    role_of,
)
from orbiter.memory.model.query import SCOPE_FIELDS, check_size
from orbiter.memory.tasks.offload import MANY, apart, has_many_values, is_much_text
from orbiter.memory.text.ranking import MIN_RELEVANCE, asked_for_prompt, for_prompt
from orbiter.memory.text.redaction import has_private

if TYPE_CHECKING:
    from orbiter.memory.agent._kv import KeyValue
    from orbiter.memory.agent.interface import ScopeSession
    from orbiter.memory.context import Context, Dropped, Interaction, Reason, RecentActivity
    from orbiter.memory.model.filters import Where
    from orbiter.memory.model.trust import Trust
    from orbiter.memory.recall import Hit, RecallResult


__all__ = ["Chat"]

_HOURS, _MAX_RECENT = 2.0, 10
_SPARE = 10
"""Memories more than there are places for, as some only ask, and come last."""
_MAX_EXTRA = 40
"""Messages of a conversation that may be found before its memories at the same price."""
_ROUND, _MESSAGE = 2, 32
"""How many messages a round is likely to have, and how many tokens a message."""
_FEWEST, _LIMIT = 8, 500  # messages that are asked for at a time
_CONTINUE = "Continue."
_MAX_NAMED = 1_000
"""Messages that are left out of a search one by one."""


class Home(Protocol):
    """What a conversation needs of the handle it was opened from."""

    @property
    def scope(self) -> MemoryMetadata:
        """Whose it is."""
        ...

    @property
    def activity(self) -> "RecentActivity":
        """What happened lately."""
        ...

    def chat(self, chat_id: str) -> "Chat":
        """Return another conversation."""
        ...

    async def recall(
        self,
        query: str,
        *,
        k: int,
        min_trust: "Trust | str | None" = None,
        min_relevance: float = MIN_RELEVANCE,
        spread: bool | None = None,
        where: "Where | None" = None,
    ) -> "RecallResult":
        """Return the memories that answer *query*."""
        ...


class Chat(ScopedHandle):
    """One conversation; `ScopedMemory.chat` makes it. Another chat's messages are never in it."""

    def __init__(self, session: "ScopeSession", handle: Home, chat_id: ScopeId) -> None:
        super().__init__(session)
        self._handle = handle
        self._scope = narrowed(handle.scope, chat_id)
        self._id = str(as_name(chat_id))

    def _address(self) -> tuple[str, dict[str, object]]:
        return "chat", {"chat_id": self._id}

    @property
    def id(self) -> str:
        """What the conversation is called in its handle's scope."""
        return self._id

    @property
    def scope(self) -> MemoryMetadata:
        """What its messages carry."""
        return self._scope

    def __repr__(self) -> str:
        return f"Chat({self._id!r})"

    @property
    def kv(self) -> "KeyValue":
        """Bytes under a path and a key that belong to this conversation, and go with it."""
        from orbiter.memory.agent._kv import KeyValue  # noqa: PLC0415 - few chats have any

        return KeyValue(self._session._replace(scope=self._scope))

    # Writing

    @operation(
        "chat.add",
        "POST chats/{chat_id}/messages",
        role="write",
        status=201,
        is_safe_to_repeat=False,
    )
    async def add(
        self,
        what: Given | Sequence[Given],
        *,
        created_at: Time | None = None,
        index: bool = True,
        format: Format | None = None,
        idempotency_key: str | None = None,
    ) -> ItemList:
        """Append messages, all or none; return them as stored, once they are durable.

        A text is what the user says; a message may be a dict or what a provider's client returns.
        A tool call without an id gets one, and a result without one answers the first open call of
        its name. What is of no known shape is a `MessageError`.
        What is marked `<private>` is not stored, nor is a message of only that.
        What has an *idempotency_key* is appended once, however often it is tried. *created_at* is
        when they were said, by default now, or that of a message that has one. A conversation is
        in the order in which it is added, whatever the time. With `index=False`, they are in this
        conversation only: no recall returns them.
        """
        more = labels(None, None, None, None, index=read_flag(index))
        # As most are: it concerns no call.
        if type(what) is str and idempotency_key is None and not has_private(what):
            check_text(what)
            item = item_of_text(HumanMemory, what, within(self._scope, None, more))
            date_items([item], created_at, None)
            await (await self._store()).add(item)
            return self._said([item])
        seed = seed_of(self._scope, idempotency_key)

        async def read(calls: OpenCalls) -> list[MemoryItem]:
            is_long, scope = has_many_values(what), self._scope
            items: list[MemoryItem] = await apart(
                is_long, read_messages, what, scope, more, format, as_human=True, open_calls=calls
            )
            date_items(items, created_at, None)
            return items

        calls = OpenCalls(seed=seed, orphans="note")
        items = await read(calls)
        if not items:
            return ItemList()
        check_messages(items, self._scope)
        store = await self._store()
        if not calls.unmatched:
            return await self._append(store, items, idempotency_key, have_ids=_has_items(what))
        # One after the other: of two results without ids, each must find another call.
        async with self._chats.answering(self._scope):
            if not await is_known_key(store, self._scope, idempotency_key):
                before = await find_calls(store, self._scope, calls.unmatched)
                try:
                    items = await read(OpenCalls(before, seed=seed, orphans="refuse"))
                except MessageError:
                    # The same request, elsewhere, may just have answered the call.
                    if not await is_known_key(store, self._scope, idempotency_key):
                        raise
            return await self._append(store, items, idempotency_key, have_ids=_has_items(what))

    async def _append(
        self, store: Store, items: Sequence[MemoryItem], key: str | None, *, have_ids: bool
    ) -> ItemList:
        if key is not None:
            stored, is_done = await append_once(store, self._scope, items, key)
            if is_done:
                return ItemList(stored)
        else:
            stored = await append(store, self._scope, items, have_ids=have_ids)
        if changed := [item for item in stored if item.version > 1]:
            await self._chats.changed(store, changed)
        return self._said(stored)

    def _said(self, stored: list[MemoryItem]) -> ItemList:
        """Tell of new messages those who listen, and what makes summaries."""
        self._core.events.emit("said", self._scope, [item.id for item in stored])
        self._chats.summaries.note(self._scope, stored)
        return ItemList(stored)

    # Reading

    @operation("chat.items", "GET chats/{chat_id}/items")
    async def items(
        self,
        *,
        rounds: int | None = None,
        budget: int | None = None,
        open_group: OpenGroup = "drop",
    ) -> ItemList:
        """Return the last *rounds*, or what fits in *budget* tokens, as it was added; else all.

        Tool groups are complete or absent; system messages are kept however old they are. With
        `open_group="keep"`, calls of the last turn without results are included, so that an agent
        that was interrupted sees what it had begun.
        """
        store = await self._store()
        window = await self._window(store, rounds=rounds, budget=budget)
        if rounds:
            window = last_rounds(window, rounds)
        count = self._chats.count_tokens
        is_long = len(window) > MANY
        return ItemList(
            await apart(
                is_long, trim_to_budget, window, budget=budget, counter=count, open_group=open_group
            )
        )

    @operation("chat.messages", "GET chats/{chat_id}/messages")
    async def messages(
        self, *, format: Format = "openai", rounds: int | None = None, budget: int | None = None
    ) -> ProviderMessages:
        """Return the conversation as messages that the provider accepts; see `items`.

        The budget holds for what is sent, which may cost more than the items.
        """
        count = self._chats.count_tokens
        items: list[MemoryItem] = await self.items(rounds=rounds, budget=budget)
        room = most = 0 if budget is None else budget

        def fitting() -> ProviderMessages:
            nonlocal items, room
            while most and items and (over := sent_tokens(items, format, counter=count) - most) > 0:
                room = max(room - over, 0)
                items = trim_to_budget(items, budget=room, counter=count)
            return to_messages(items, format)

        return await apart(len(items) > MANY, fitting)

    async def _window(
        self, store: Store, *, rounds: int | None, budget: int | None
    ) -> list[MemoryItem]:
        """Return enough of the newest messages for *rounds* and *budget*, and the system's."""
        most = None if rounds is None else check_size("rounds", rounds)
        room = None if budget is None else check_size("budget", budget)
        seen, tokens, humans, count = 0, 0, 0, self._chats.count_tokens

        def is_enough(items: Sequence[MemoryItem]) -> bool:
            nonlocal seen, tokens, humans
            for item in items[seen:]:
                humans += role_of(item) == "human"
                if room is not None:
                    tokens += item_tokens(item, counter=count)
            seen = len(items)
            # A round begins with what a person says, and is whole once that is there.
            return (most is not None and 0 < most <= humans) or (
                room is not None and tokens > room and humans > 0
            )

        if not most and room is None:
            return (await read_back(store, self._scope))[0]
        likely = _ROUND * most + 1 if most else (room or 0) // _MESSAGE
        limit = min(max(likely, _FEWEST), _LIMIT)
        return await read_window(store, self._scope, is_enough=is_enough, limit=limit, rounds=most)

    # What a model is shown

    @operation("chat.context", "POST chats/{chat_id}/context")
    async def context(
        self,
        task: str | None = None,
        *,
        budget: int | None = None,
        format: Format = "openai",
        memory_limit: int = 5,
        min_trust: "Trust | str | None" = None,
        min_relevance: float | None = None,
        spread: bool | None = None,
    ) -> "Context":
        """Return what the model should see: persona, summary, conversation, memories, the task.

        Without *task*, it is the newest message of the user; if the model has answered that, it is
        asked to continue. Never over *budget*, always legal in *format*. The summary stands for
        what is too old to be shown as it was said. Memories come from the scope of the handle, so
        also from its other conversations; with *min_trust*, only those from so trusted a source.
        What does not answer is left out, and `dropped` of the context names it; with
        *min_relevance*, nothing is looked for that is below it. *spread* is that of `recall`.
        """
        store = await self._store()
        said = await self._window(store, rounds=None, budget=budget)
        question, asked = (task, task) if task is not None else _question(said)
        ask = partial(self._handle.recall, question, min_trust=min_trust, spread=spread)
        ask = partial(ask, min_relevance=asked_for_prompt(min_relevance))
        recalled = await self._recalled(ask, said, memory_limit)
        hits = for_prompt(recalled, min_relevance)
        recent = await self._recent()

        async def assemble(summary: str | None) -> "Context":
            in_chat = {item.id for item in said}
            while True:
                memories = [hit for hit in hits if hit.item.id not in in_chat][:memory_limit]
                context = await self._chats.assembler.assemble(
                    asked,
                    recent=recent,
                    conversation=said,
                    summary=summary,
                    memories=[hit.shown for hit in memories],
                    scope=self._scope,
                    budget=budget,
                    format=format,
                )
                # A message that has no room in the conversation may still be a memory.
                lost = (each.id for each in context.dropped if each.reason != "shortened")
                missing = in_chat.intersection(id for id in lost if id)
                in_chat -= missing
                if all(hit.item.id not in missing for hit in hits):
                    known = {item.id for item in said}.union(hit.item.id for hit in memories)
                    left = self._left_out(recalled, hits, known)
                    return replace(context, dropped=(*context.dropped, *left))

        # Once, as a rule: whether a summary is needed is plain, unless the conversation is about as
        # long as its part of the budget.
        fits = budget is None or await apart(is_much_text(said), self._fits, said, budget // 2)
        context = await assemble(None) if fits else None
        if context is None or any(_is_too_old(each) for each in context.dropped):
            summed_up = await self._summed_up(store, assemble)
            context = summed_up or context or await assemble(None)
        self._core.events.emit("assembled", self._scope, detail=f"{context.tokens} tokens")
        return context

    async def _summed_up(
        self, store: Store, assemble: "Callable[[str], Awaitable[Context]]"
    ) -> "Context | None":
        """Return the context with the summary; `None` if there is none, or all is shown whole."""
        kept = await self._chats.summaries.find(store, self._scope)
        context = None if kept is None else await assemble(kept.content)
        if context is None or all(each.section != "conversation" for each in context.dropped):
            return None
        return context

    def _left_out(
        self, recalled: "Sequence[Hit]", answers: "Sequence[Hit]", known: Collection[str]
    ) -> "Iterator[Dropped]":
        """Yield the memories that were recalled, and not offered; *known* are those that were."""
        from orbiter.memory.context import Dropped  # noqa: PLC0415 - it is loaded by now
        from orbiter.memory.context.entries import speaker  # noqa: PLC0415

        answering = {hit.item.id for hit in answers}
        for hit in recalled:
            if hit.item.id not in known:
                reason: Reason = "limit" if hit.item.id in answering else "relevance"
                cost = item_tokens(hit.item, counter=self._chats.count_tokens)
                yield Dropped("memories", speaker(hit.item), reason, cost, hit.item.id)

    def _fits(self, items: Sequence[MemoryItem], room: int) -> bool:
        for cost in map(partial(item_tokens, counter=self._chats.count_tokens), items):
            room -= cost
            if room < 0:
                return False
        return True

    async def _recent(self) -> "Sequence[Interaction]":
        if not self._core.has_activity:
            return []
        try:
            return await self._handle.activity.get_recent(hours=_HOURS, limit=_MAX_RECENT)
        except (ConnectionError, TimeoutError) as exc:
            # It is a part that may be missing; the rest must not fail with its server.
            log = logging.getLogger("orbiter.memory")
            log.warning("the context is built without recent activity: %s", type(exc).__name__)
            return []

    async def _recalled(
        self, ask: "Callable[..., Awaitable[RecallResult]]", said: Sequence[MemoryItem], limit: int
    ) -> "RecallResult | Sequence[Hit]":
        """Return memories, at least *limit* of them that the conversation does not show itself."""
        if not check_size("memory_limit", limit):
            return []
        here = {item.id for item in said}
        wanted = limit + max(_SPARE, min(len(here), _MAX_EXTRA))
        hits = await ask(k=wanted)
        elsewhere = sum(hit.item.id not in here for hit in hits)
        if (elsewhere < limit and len(hits) == wanted) or hits.spread:  # all but these are shown
            more = await ask(k=limit, where=_without(here, self._scope))
            return with_more(hits, more)
        return hits

    @operation("chat.summary", "GET chats/{chat_id}/summary", answer="summary")
    async def summary(self) -> str | None:
        """Return the rolling summary as it is stored, or `None` if there is none yet."""
        current = await self._chats.summaries.find(await self._store(), self._scope)
        return None if current is None else current.content

    @operation("chat.summarize", "POST chats/{chat_id}/summary", role="write", answer="summary")
    async def summarize(self) -> str | None:
        """Summarize all but the newest messages now; return the summary, if there is one.

        It happens by itself in the background when `SummaryConfig` says so; here a failing
        summarizer is a `SummaryError`.
        """
        made = await self._chats.summaries.roll(await self._store(), self._scope, force=True)
        return None if made is None else made.content

    # Branching

    async def fork(self, at: str | MemoryItem, *, chat_id: str | None = None) -> "Chat":
        """Return a new chat with the messages up to and including *at*; this one stays as it is."""
        name = await self._fork(at, chat_id=chat_id)
        return Chat(self._session, self._handle, name)

    @operation(
        "chat.fork",
        "POST chats/{chat_id}/fork",
        role="write",
        answer="chat_id",
        status=201,
        is_safe_to_repeat=False,
    )
    async def _fork(self, at: str | MemoryItem, *, chat_id: str | None = None) -> str:
        """Make the new chat; return what it is called."""
        store = await self._store()
        place = at.id if isinstance(at, MemoryItem) else at
        last = await store.get(place)
        if last is None or not is_of(last, self._scope):
            raise ItemNotFoundError(place, way="fork at a message of this chat")
        name = f"{self._id}/{new_id()[-8:]}" if chat_id is None else chat_id
        branch = Chat(self._session, self._handle, name)
        before, _ = await read_back(store, self._scope, before=last)
        copies = await branch._begin_with(store, [*before, last])
        await self._chats.summaries.copy(store, self._scope, branch.scope, copies)
        self._core.events.emit("forked", branch.scope, detail=f"of {self._id}")
        return name

    async def _begin_with(self, store: Store, items: Sequence[MemoryItem]) -> Sequence[MemoryItem]:
        """Begin with copies of another chat's messages, unless it has begun; return these."""
        there, _ = await read_back(store, self._scope)
        copies = copies_for(self._scope, items)
        if not there and await store.insert(copies):
            return copies
        there, _ = await read_back(store, self._scope)  # another fork may just have been faster
        if [item.metadata.extra.get("forked_from") for item in there] != [i.id for i in items]:
            raise QueryError(f"there is a chat `{self._id}` already; give the branch another name")
        return there


def _without(ids: Collection[str], scope: MemoryMetadata) -> "Where":
    """Return the filter that leaves messages out: each by its id, or all of their conversation."""
    if len(ids) <= _MAX_NAMED:
        return {"id": {"$nin": sorted(ids)}}
    return {"$not": {name: getattr(scope, name) for name in SCOPE_FIELDS}}


def _has_items(what: Given | Sequence[Given]) -> bool:
    """Tell whether there is an item, which brings its id along; ids made here are nobody's."""
    if isinstance(what, str | MemoryItem):
        return not isinstance(what, str)
    return isinstance(what, Sequence) and any(isinstance(one, MemoryItem) for one in what)


def _is_too_old(dropped: "Dropped") -> bool:
    """Tell whether there was no room for a message, which a summary may stand for."""
    return dropped.section == "conversation" and dropped.reason == "budget"


def _question(items: Sequence[MemoryItem]) -> tuple[str, str]:
    """Return what memories are to be recalled for, and what the model is asked.

    Both are the newest message of the user. If the model has answered it, it is asked to continue:
    chat templates want the user to speak last.
    """
    spoken = [item for item in reversed(items) if role_of(item) not in ("system", None)]
    texts = (item.content for item in spoken if role_of(item) == "human")
    question = next((text for text in texts if text.strip()), "")
    if spoken and role_of(spoken[0]) == "ai" and not calls_of(spoken[0]):
        return question or spoken[0].content.strip() or _CONTINUE, _CONTINUE
    if not question:
        raise QueryError(
            'the user has said nothing in this chat yet; give the task: `chat.context("…")`'
        )
    return question, question
