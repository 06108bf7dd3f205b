# Written by docs/build_sync.py from the async classes; change those, and run it again.

import builtins
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from orbiter.memory import agent, episodic
from orbiter.memory.agent import MemoryEvent
from orbiter.memory.agent._reading import Given
from orbiter.memory.agent._results import Forgotten, Page, ScopeStats
from orbiter.memory.backends.postgres import PostgresMemoryStore
from orbiter.memory.backends.redis import RedisMemoryStore
from orbiter.memory.backends.sqlite import SQLiteMemoryStore
from orbiter.memory.context import Context
from orbiter.memory.conversation import OpenGroup
from orbiter.memory.episodes import EpisodicMemory
from orbiter.memory.filters import Where
from orbiter.memory.items import MemoryItem, MemoryMetadata, MemoryStatus
from orbiter.memory.messages import Format, ProviderMessages
from orbiter.memory.pii import PIIHook
from orbiter.memory.protocols import Clock, Embeddings, Summarizer
from orbiter.memory.recall import Recalled, RecallMode
from orbiter.memory.reports import ConversationInfo, ItemVersion, StoreStats, Verification
from orbiter.memory.soul import Soul
from orbiter.memory.summary import SummaryConfig
from orbiter.memory.sync._loop import run as run
from orbiter.memory.sync._proxies import Blocking
from orbiter.memory.sync._streams import Stream as Stream
from orbiter.memory.tokens import TokenCounter

__all__ = ["AgentMemory", "Chat", "ScopedMemory", "ShortTermMemoryManager", "Stream", "run"]

class AgentMemory(Blocking[agent.AgentMemory]):
    """Memory for agents, at the place that *url* names.

    `sqlite:///agent.db` or a path is a file, `memory://` is this process, `postgresql://…` a
    database for many machines, `redis://…` the shared short-term tier. Without *url* it is
    `ORBITER_MEMORY_URL`, or a file in the user's data directory.

    *embeddings* are the local model if the extra `[local]` is installed, none with `None`, or your
    own. *episodic* names the place of `ScopedMemory.activity`. *persona* is a `Soul` or the path
    of a SOUL.md. *summarizer* sums up long chats as *summaries* says, by default without a model;
    with `summaries=None`, nothing does. *count_tokens* counts for budgets, in place of an
    estimate. *secret* keeps the beginning of contexts the same in all processes that share it, as
    providers' caches want it. On Postgres, *row_security* has the server itself hold every handle
    to its user.

    Use it as `with AgentMemory(…) as memory`, or close it; the first use opens it.
    """

    def __init__(
        self,
        url: str | os.PathLike[str] | None = None,
        *,
        embeddings: Embeddings | Literal["auto"] | None = "auto",
        episodic: str | None = None,
        persona: str | Path | Soul | None = None,
        summarizer: Summarizer | None = None,
        summaries: SummaryConfig | Literal["auto"] | None = "auto",
        count_tokens: TokenCounter | None = None,
        secret: bytes | None = None,
        row_security: bool = False,
    ) -> None: ...
    @property
    def url(self) -> str:
        """Where memories are kept, without a password."""
    @property
    def store(self) -> SQLiteMemoryStore | PostgresMemoryStore | RedisMemoryStore:
        """The store, for what no handle offers; it knows no scope."""
    def init(self) -> None:
        """Open the store. May be repeated, and need not be called."""
    def close(self) -> None:
        """Finish and close everything; the next use opens it again."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    def scope(
        self,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        task_id: str | None = None,
        agent_id: str | None = None,
    ) -> ScopedMemory:
        """Return a handle that reads and writes only what has these ids; name at least one."""
    def unscoped(self) -> ScopedMemory:
        """Return a handle on everyone's memories: for administration, never for an agent."""
    def events(self) -> Stream[MemoryEvent]:
        """Return everything that happens through this object from now on, for a `for` loop."""
    def stats(self) -> StoreStats:
        """Return how much the store holds, and what waits to be indexed."""
    def verify(self, *, repair: bool = False) -> Verification:
        """Read everything and check the search structures; with *repair*, build them anew."""
    def reindex(self, *, progress: Callable[[int, int], None] | None = None) -> int:
        """Embed everything anew, as after a change of `embeddings`; return how many items.

        Where the stored vectors are of another model, this opens the memory, which `init` refuses.
        """
    def backup(
        self, path: str | os.PathLike[str], *, progress: Callable[[int, int], None] | None = None
    ) -> None:
        """Copy a SQLite memory to a new file while it is in use."""
    def settle(self) -> None:
        """Wait until what goes on in the background is done: summaries, indexes and vectors.

        What was remembered a moment ago is then found by meaning, too, however much it was.
        """

class ScopedMemory(Blocking[agent.ScopedMemory]):
    """What is remembered in one scope; `AgentMemory.scope` makes it."""

    @property
    def scope(self) -> MemoryMetadata:
        """Whose memories these are."""
    def remember(
        self,
        what: Given,
        *,
        tags: Sequence[str] | None = None,
        importance: float | None = None,
        source: str | None = None,
        extra: Mapping[str, object] | None = None,
        created_at: datetime | None = None,
        idempotency_key: str | None = None,
        format: Format | None = None,
    ) -> MemoryItem:
        """Keep a text, an item or a provider's message; return it as stored, once it is durable.

        *tags*, *importance* (0 to 1) and *source* go to `metadata.extra`, with *extra*.
        *created_at* is when it was said, if not now. A message may be a dict or what a provider's
        client returns; *format* is whose it is, if it is to be taken for no other. Whatever is
        remembered under an *idempotency_key* first stays: calling again, after a timeout or a
        crash, stores nothing and returns that. An item of an id that is there already replaces it.
        """
    def remember_many(
        self,
        things: Sequence[Given],
        *,
        tags: Sequence[str] | None = None,
        importance: float | None = None,
        source: str | None = None,
        extra: Mapping[str, object] | None = None,
        created_at: datetime | None = None,
        format: Format | None = None,
    ) -> builtins.list[MemoryItem]:
        """Keep texts, items and messages in one step, all or none; return them as stored.

        Everything else is for each of them, as in `remember`.
        """
    def recall(
        self,
        query: str = "",
        *,
        k: int = 10,
        mode: RecallMode = "hybrid",
        memory_type: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        where: Where | None = None,
        recency_weight: float = 0.0,
        half_life_hours: float = ...,
        importance_weight: float = 0.0,
        explain: bool = False,
    ) -> Recalled:
        """Return at most *k* memories that answer *query*, best first, each with the reasons why.

        *mode* is `hybrid`, `words`, `meaning` or `recent`, the newest first. *since* and *until*
        bound the time, *where* filters by fields and by keys of `metadata.extra`, with operators
        such as `{"price": {"$lt": 5}}`. With *explain*, `left_out` of the result says what came
        next, and why it is not among them. See `docs/recall.md`.
        """
    def get(self, item_id: str) -> MemoryItem | None:
        """Return the memory of that id, or `None` if there is none in this scope."""
    def update(
        self,
        item_id: str,
        content: str | None = None,
        *,
        tags: Sequence[str] | None = None,
        importance: float | None = None,
        source: str | None = None,
        extra: Mapping[str, object] | None = None,
        status: MemoryStatus | None = None,
        expected_version: int | None = None,
    ) -> MemoryItem:
        """Change what is given of a memory, and return it; the earlier version stays in `history`.

        *extra* is added to what there is. With *expected_version* it is changed only if nobody
        changed it since; else `VersionConflict` is raised, and nothing is changed.
        """
    def forget(
        self,
        item: str | MemoryItem | None = None,
        *,
        query: str = "",
        where: Where | None = None,
        memory_type: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        everything: bool = False,
        dry_run: bool = False,
    ) -> Forgotten:
        """Forget one memory, or all that match the filters; return what.

        `restore` brings it back. *query* is a text that it holds. Without any filter,
        *everything* must be said. With *dry_run* nothing is forgotten. The summary of a chat that
        loses a message is forgotten, too, and made anew from what is left.
        """
    def restore(self, item_id: str, *, version: int | None = None) -> MemoryItem:
        """Bring back what was forgotten, or what a memory was in an earlier *version*."""
    def history(self, item_id: str) -> builtins.list[ItemVersion]:
        """Return every version of a memory, oldest first, also of a forgotten one."""
    def list(
        self,
        *,
        query: str = "",
        where: Where | None = None,
        memory_type: str | None = None,
        status: MemoryStatus | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        forgotten: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        """Return a page of what is remembered, newest first; *cursor* is `next` of the one before.

        With *forgotten*, of what `restore` can bring back instead. What is written meanwhile
        shifts no page.
        """
    def stats(self) -> ScopeStats:
        """Return how much is remembered here."""
    def events(self) -> Stream[MemoryEvent]:
        """Return what happens in this scope from now on, for a `for` loop."""
    def chat(self, chat_id: str) -> Chat:
        """Return the conversation of that name in this scope, which may be a new one.

        It is one step narrower than the handle: a session of it, or, where the handle names a
        session, a task of that session.
        """
    def chats(self, *, limit: int = 50) -> builtins.list[ConversationInfo]:
        """Return the conversations of this scope, the one spoken in last first."""
    @property
    def activity(self) -> ShortTermMemoryManager:
        """What was done and met in this scope lately; needs `AgentMemory(episodic=…)`."""
    def add(
        self,
        messages: Given | Sequence[Given],
        *,
        metadata: Mapping[str, object] | None = None,
        format: Format | None = None,
    ) -> builtins.list[MemoryItem]:
        """Remember one or several things; *metadata* goes to `metadata.extra`."""
    def search(self, query: str, *, limit: int = 10, filters: Where | None = None) -> Recalled:
        """Recall; *filters* are `where`."""
    def get_all(self, *, limit: int = 100, filters: Where | None = None) -> Page:
        """List what is remembered, newest first; *filters* are `where`."""
    def delete(self, memory_id: str) -> Forgotten:
        """Forget one memory."""

class Chat(Blocking[agent.Chat]):
    """One conversation; `ScopedMemory.chat` makes it. Another chat's messages are never in it."""

    @property
    def id(self) -> str:
        """What the conversation is called in its handle's scope."""
    @property
    def scope(self) -> MemoryMetadata:
        """What its messages carry."""
    def add(
        self,
        what: Given | Sequence[Given],
        *,
        format: Format | None = None,
        idempotency_key: str | None = None,
    ) -> list[MemoryItem]:
        """Append messages, all or none; return them as stored, once they are durable.

        A text is what the user says; a message may be a dict or what a provider's client returns.
        What has an *idempotency_key* is appended once, however often it is tried. A message dated
        before the newest one is dated just after it: clocks of different machines must not change
        the order of a conversation.
        """
    def items(
        self,
        *,
        rounds: int | None = None,
        budget: int | None = None,
        open_group: OpenGroup = "drop",
    ) -> list[MemoryItem]:
        """Return the newest *rounds*, or what fits in *budget* tokens, oldest first; else all.

        Tool groups are whole or absent; system messages are kept however old they are. A call
        whose results have not come is there with `open_group="keep"`, if it is the last turn's:
        so an agent that was interrupted sees what it had begun.
        """
    def messages(
        self, *, format: Format = "openai", rounds: int | None = None, budget: int | None = None
    ) -> ProviderMessages:
        """Return the conversation as messages that the provider accepts; see `items`.

        The budget holds for what is sent, which may cost more than the items.
        """
    def context(
        self,
        task: str | None = None,
        *,
        budget: int | None = None,
        format: Format = "openai",
        memory_limit: int = 5,
    ) -> Context:
        """Return what the model should see: persona, summary, conversation, memories, the task.

        Without *task*, it is the newest message of the user. Never over *budget*, always legal in
        *format*. The summary stands for what is too old to be shown as it was said. Memories come
        from the scope of the handle, so also from its other conversations.
        """
    def summary(self) -> str | None:
        """Return the rolling summary as it is stored, or `None` if there is none yet."""
    def summarize(self) -> str | None:
        """Sum up all but the newest messages now; return the summary, if there is one.

        It happens by itself in the background when `SummaryConfig` says so; here a failing
        summarizer is a `SummaryError`.
        """
    def fork(self, at: str | MemoryItem, *, chat_id: str | None = None) -> Chat:
        """Return a new chat with the messages up to and including *at*; this one stays as it is."""

class ShortTermMemoryManager(Blocking[episodic.ShortTermMemoryManager]):
    """Remembers what one agent did and was told, for some hours.

    *pii* gets content, platform and the texts of the metadata before they are written, see
    `PIIHasher`. A server that is silent for *deadline* seconds is a `ConnectionError`. *clock*
    dates the interactions, and ends them where there is no server that does. *ttl_hours* is how
    long one is remembered unless it says otherwise.
    """

    redis_url: str
    agent_id: str
    def __init__(
        self,
        redis_url: str = "redis://localhost:6379/0",
        agent_id: str = "nova",
        *,
        pii: PIIHook | None = None,
        ttl_hours: float = ...,
        deadline: float = 10.0,
        clock: Clock = ...,
    ) -> None: ...
    def connect(self) -> None:
        """Connect, and see that it works; else raise `ConnectionError`. Idempotent.

        It need not be called: the first use connects, too.
        """
    def disconnect(self) -> None:
        """Close what this manager holds open. Idempotent; the next use connects again."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    def add_interaction(
        self,
        interaction_type: str,
        content: str,
        platform: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        ttl_hours: float | None = None,
    ) -> EpisodicMemory:
        """Remember an interaction for *ttl_hours*, or as long as usual; return it once kept."""
    def add(self, memory: EpisodicMemory) -> EpisodicMemory:
        """Remember *memory* as it is, with a time of its own; under the same id it stays one.

        Returns what is kept, which is *memory* after the `pii` hook.
        """
    def forget(
        self,
        memory: EpisodicMemory | str | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        interaction_type: str | None = None,
        platform: str | None = None,
        everything: bool = False,
    ) -> int:
        """Forget one memory, or all that match every filter given; return how many.

        A filter by time alone, and *everything*, also take what cannot be read any more.
        """
    def get_recent(self, hours: float = 2.0, limit: int | None = None) -> list[EpisodicMemory]:
        """Return the interactions of the last *hours*, newest first, at most *limit*."""
    def get_recent_summaries(self, hours: float = 2.0, limit: int | None = None) -> list[str]:
        """Return `get_recent` as lines for a prompt: `[HH:MM] type on platform: content`.

        The time is UTC. A line never breaks, whatever the content.
        """
    def get_range(
        self,
        since: datetime | None = None,
        until: datetime | None = None,
        *,
        limit: int | None = None,
    ) -> list[EpisodicMemory]:
        """Return the interactions from *since* on and before *until*, newest first."""
    def search(
        self,
        query: str = "",
        *,
        hours: float | None = None,
        interaction_type: str | None = None,
        platform: str | None = None,
        limit: int | None = 10,
    ) -> list[EpisodicMemory]:
        """Return the newest interactions whose content holds *query*, in any case."""
    def count(self, since: datetime | None = None, until: datetime | None = None) -> int:
        """Return how many interactions are remembered."""
    def stream(self, since: datetime | None = None) -> Stream[EpisodicMemory]:
        """Yield interactions as they are added, by whomever, in the order in which they arrive.

        With *since*, first those that are there already, so that nothing falls between a look
        back and the start of the stream.
        """
