# Written by docs/build_sync.py from the async names; change those, and run it again.

import builtins
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, Self

from orbiter.memory import agent, episodic, extraction
from orbiter.memory.agent import MemoryEvent
from orbiter.memory.agent._kv import KeyValue
from orbiter.memory.agent.eviction import EvictionResult
from orbiter.memory.agent.facts import Source
from orbiter.memory.agent.inputs import Given, Index
from orbiter.memory.agent.keywords import ItemRef, ScopeId, Time
from orbiter.memory.agent.results import (
    ChatList,
    Evaluation,
    FactDict,
    FactHistory,
    ForgetResult,
    ItemList,
    Page,
    ScopeStats,
    UserPage,
    VersionList,
)
from orbiter.memory.agent.scope import _Client
from orbiter.memory.context import Context
from orbiter.memory.context.persona import Soul
from orbiter.memory.conversation.tokens import TokenCounter
from orbiter.memory.conversation.windows import OpenGroup
from orbiter.memory.extraction._extractor import Extractor
from orbiter.memory.extraction._queue import ExtractionReport
from orbiter.memory.messages import Format, ProviderMessages
from orbiter.memory.model.agent_store import AgentStore
from orbiter.memory.model.audit import AuditEntry, AuditMode, AuditVerification
from orbiter.memory.model.episode import EpisodicMemory
from orbiter.memory.model.facts import FactConflict, FactMemory, FactOp
from orbiter.memory.model.filters import Where
from orbiter.memory.model.items import MemoryItem, MemoryMetadata, MemoryStatus
from orbiter.memory.model.protocols import Clock, Embeddings, MemoryStore, Reranker, Summarizer
from orbiter.memory.model.reports import Erasure, Restored, StoreStats, Verification
from orbiter.memory.model.trust import Trust
from orbiter.memory.model.value_counts import UserOrder, ValueCount
from orbiter.memory.recall import RecallMode, RecallResult
from orbiter.memory.summary import SummaryConfig
from orbiter.memory.sync._background_loop import run as run
from orbiter.memory.sync._facade import Blocking
from orbiter.memory.sync._facade import Stream as Stream
from orbiter.memory.sync._facade import async_form as async_form
from orbiter.memory.tasks.progress import Progress
from orbiter.memory.text.pii import PIIHook
from orbiter.memory.text.redaction import Redact
from orbiter.memory.transfer._migrate import Migration
from orbiter.memory.transfer.io.archives import Limits
from orbiter.memory.transfer.native import ExportResult
from orbiter.memory.transfer.report import ImportResult

__all__ = [
    "AgentMemory",
    "AuditLog",
    "Chat",
    "Facts",
    "FactsView",
    "KeyValue",
    "LongTermMemory",
    "MemoryOrchestrator",
    "PastMemory",
    "ScopedMemory",
    "ShortTermMemoryManager",
    "Stream",
    "async_form",
    "export_file",
    "import_file",
    "migrate",
    "run",
]

class AgentMemory(Blocking[agent.AgentMemory]):
    """Memory for agents, at the place that *url* names.

    `sqlite:///agent.db` or a path is a file, `memory://` is this process, `postgresql://…` a
    database for many machines, `redis://…` the shared short-term tier, and `http://…` or
    `https://…` a server of memories, of which *token* is a key, by default that in
    `ORBITER_MEMORY_TOKEN`. There a call may take *timeout* seconds with all its tries, by default
    60, and over plain `http` the key goes to other computers only with *insecure*; all other
    options are then the server's own. Without *url* it is `ORBITER_MEMORY_URL`, or a file in the
    user's data directory.

    With *store*, memories are kept in that object instead: any `MemoryStore`. If it is not open
    yet, it is opened and closed with this one; a store that you have opened stays open. What it
    cannot do itself is done here or refused by name.

    *embeddings* are the local model if the extra `[local]` is installed, none with `None`, or your
    own. A *reranker* reads what recall finds best beside the question; there is none by default.
    *episodic* names the place of `ScopedMemory.activity`. *persona* is the path of a SOUL.md, a
    text with spaces, or a `Soul`. *summarizer* sums up long chats as *summaries* says, by default
    without a model; with `summaries=None`, nothing does. *count_tokens* counts for budgets, in
    place of an estimate. *secret* keeps the beginning of contexts the same in all processes that
    share it, as providers' caches want it. On Postgres, *row_security* has the server itself hold
    every handle to its user. With *audit* `writes`, or `all` for reads as well, what is done is
    recorded in a chain that shows whether anybody has changed it. With *redact* `secrets`, tokens,
    keys and passwords become `[redacted: github token]` and the like; without it, that is done in
    what importers and hooks read, and with `none` nowhere. *pii* gets every text before it is
    written or asked for, and returns what may be stored, as a `PIIHasher` does; `tokens` is one
    with the key in `ORBITER_PII_KEY`: see `docs/privacy.md`.

    `scope("alice")` is Alice's memory; a personal agent that names nobody uses `default_user`.

    Use it as `with AgentMemory(…) as memory`, or close it; the first use opens it.
    """

    def __init__(
        self,
        url: str | os.PathLike[str] | None = None,
        *,
        store: MemoryStore | None = None,
        token: str | None = None,
        timeout: float | None = None,
        insecure: bool = False,
        embeddings: Embeddings | Literal["auto"] | None = "auto",
        reranker: Reranker | None = None,
        episodic: str | None = None,
        persona: str | Path | Soul | None = None,
        summarizer: Summarizer | None = None,
        summaries: SummaryConfig | Literal["auto"] | None = "auto",
        count_tokens: TokenCounter | None = None,
        secret: bytes | None = None,
        row_security: bool = False,
        audit: AuditMode | None = None,
        redact: Redact | None = None,
        pii: PIIHook | str | None = None,
    ) -> None: ...
    @property
    def url(self) -> str:
        """Where memories are kept, without a password."""
    @property
    def store(self) -> AgentStore:
        """The store, for what no handle offers; it knows no scope.

        One that was given and lacks something of an `AgentStore` is `store.store`.
        """
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
        user_id: ScopeId | None = None,
        *,
        session_id: ScopeId | None = None,
        task_id: ScopeId | None = None,
        agent_id: ScopeId | None = None,
        name: str | None = None,
        by: str | None = None,
        read_from: str | None = None,
    ) -> ScopedMemory:
        """Return a handle that reads and writes only what has these ids; name at least one.

        A number or a UUID names the same as its text. *name* is what people call the user, where
        the id does not tell: recall then reads "Where does Alice live?" as "Where do I live?". *by*
        is who acts through it, for `history` and the audit log. With *read_from* `replica`, a
        replica of the store may answer reads, if it is not behind this process's own writes: see
        `docs/operate/fleet.md`.
        """
    @property
    def default_user(self) -> ScopedMemory:
        """The handle of a personal agent, whose program names no user: that of `DEFAULT_USER`."""
    def unscoped(self, *, by: str | None = None, read_from: str | None = None) -> ScopedMemory:
        """Return a handle on everyone's memories: for administration, never for an agent."""
    def erase(
        self,
        user_id: ScopeId | None = None,
        *,
        session_id: ScopeId | None = None,
        task_id: ScopeId | None = None,
        agent_id: ScopeId | None = None,
        by: str | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Erasure:
        """Remove for good all that has these ids, everywhere, and check that nothing is left.

        Name at least one. It cannot be undone. The report is true if nothing is left, neither in
        a table nor in the bytes of a file. If it is false, it says why, and calling again resumes.
        With *dry_run* nothing is changed: items, forgotten ones and entries are counted.
        *progress* is called with the steps done and the total.
        """
    @property
    def audit(self) -> AuditLog:
        """What was done in this memory, if it was made with `audit=`."""
    def users(
        self,
        *,
        starts_with: str = "",
        order: UserOrder = "name",
        limit: int = 50,
        cursor: str | None = None,
    ) -> UserPage:
        """Return a page of the users who have memories or entries: how many, and since when.

        *order* is `name`, `recent` (last seen first) or `items` (most memories first).
        *starts_with* is how names begin, and *cursor* is `next` of the page before. The default
        user's name is `~default`; memories without a user are nobody's. A server answers this
        only to the key of an administrator that names nobody.
        """
    def stats(self) -> StoreStats:
        """Return how much the store holds, and how much is not indexed yet."""
    def verify(self, *, repair: bool = False, progress: Progress | None = None) -> Verification:
        """Read everything and check the search structures; with *repair*, rebuild them.

        *progress* is called with rows read and rows in all.
        """
    def reindex(self, *, progress: Progress | None = None) -> int:
        """Embed everything again, as after a change of `embeddings`; return how many items.

        It also opens a memory that is refused because its vectors are of another model.
        *progress* is called with items done and items in all.
        """
    def backup(self, path: str | os.PathLike[str], *, progress: Progress | None = None) -> None:
        """Copy a SQLite memory to a new file while it is in use; `restore` brings it back."""
    def restore(
        self, path: str | os.PathLike[str], *, progress: Progress | None = None
    ) -> Restored:
        """Replace a SQLite memory by a backup, which stays as it is; return what was done.

        This memory is closed for it, and the next use opens what was restored. `StorageError` if
        the backup is damaged, not ours or too new. Also if another process, or another object
        here, has the memory open. Then nothing is changed. The old file is kept beside it.
        """
    def flush(self, *, progress: Progress | None = None) -> None:
        """Wait until background work is done: summaries, indexes and vectors.

        What was remembered a moment ago is then found by meaning, too.
        *progress* is called once it begins, as nobody knows how much there is.
        """

class ScopedMemory(Blocking[agent.ScopedMemory]):
    """What is remembered in one scope; `AgentMemory.scope` makes it."""

    def remember(
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
        format: Format | None = None,
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
    def remember_many(
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
        format: Format | None = None,
    ) -> ItemList:
        """Keep texts, items and messages in one step, all or none; return them as stored.

        With *text*, they are rows: the field of that name is the memory, `created_at` its time, and
        all others go to its `metadata.extra`. Then *created_at* may name the column of times. Rows
        are dicts, a DataFrame, or a `csv.DictReader`.
        With an *idempotency_key*, only the first call stores something. Calling again brings
        nothing back, and returns those that are still there. The rest applies to each of them.
        """
    def recall(
        self,
        query: str = "",
        *,
        k: int = 10,
        mode: RecallMode = "hybrid",
        memory_type: str | None = None,
        since: Time | None = None,
        until: Time | None = None,
        where: Where | None = None,
        recency_weight: float = 0.0,
        half_life_hours: float = ...,
        importance_weight: float = 0.0,
        min_trust: Trust | str | None = None,
        min_relevance: float = ...,
        spread: bool | None = None,
        explain: bool = False,
    ) -> RecallResult:
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
    def get(self, item_id: ItemRef) -> MemoryItem | None:
        """Return the memory of that id, or `None` if there is none in this scope."""
    def update(
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
    def forget(
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
    ) -> ForgetResult:
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
    def restore(self, item_id: ItemRef, *, version: int | None = None) -> MemoryItem:
        """Bring back what was forgotten, or what a memory was in an earlier *version*."""
    def list(
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
    ) -> Page:
        """Return a page of what is remembered, newest first; *cursor* is `next` of the one before.

        With *forgotten*, of what `restore` can bring back instead. What is written meanwhile
        shifts no page. `ended` of the page says which of its facts hold no more. Pending
        extractions are listed only with `memory_type="extraction"`.
        """
    def history(self, item_id: ItemRef) -> VersionList:
        """Return every version of a memory, oldest first, also of a forgotten one."""
    def as_of(self, moment: Time) -> PastMemory:
        """Return everything of this scope as it was stored at *moment*, to be read only.

        What was purged, erased or has expired since is gone from the past, too.
        """
    def chat(self, chat_id: ScopeId) -> Chat:
        """Return the conversation of that name in this scope, which may be a new one.

        It is one step narrower than the handle: a session of it, or, where the handle names a
        session, a task of that session.
        """
    def chats(self, *, query: str = "", limit: int = 50) -> ChatList:
        """Return the conversations of this scope, most recent first.

        With *query*, those whose title or name contains it, in any case of letters.
        """
    def wrap(
        self,
        client: _Client,
        *,
        chat: str = "default",
        budget: int = 8000,
        memory_limit: int = 5,
        active: bool = True,
    ) -> _Client:
        """Return a client of OpenAI, Anthropic or google-genai whose calls have this memory.

        What a call is given and its answer are added to *chat*, and the call is sent with the
        chat's context instead: see `docs/integrations/clients.md`. Not if *active* is false.
        """
    @property
    def facts(self) -> Facts:
        """What is known to be true in this scope, since when, and what was true before."""
    @property
    def kv(self) -> KeyValue:
        """Bytes under a path and a key, for what a program must find again exactly."""
    @property
    def activity(self) -> ShortTermMemoryManager:
        """What was done and met in this scope lately; needs `AgentMemory(episodic=…)`."""
    def events(self) -> Stream[MemoryEvent]:
        """Return what happens in this scope from now on, for a `for` loop."""
    def count_by(
        self,
        field: str,
        *,
        where: Where | None = None,
        memory_type: str | None = None,
        since: Time | None = None,
        until: Time | None = None,
        limit: int = 100,
    ) -> builtins.list[ValueCount]:
        """Return the values of *field* in this scope, most frequent first, each with its count.

        *field* is named as in *where*: `memory_type`, `status`, `session_id` and other ids, or a
        key of `metadata.extra`, such as `tags` or `source`. A list counts by its elements, so that
        `where={field: value}` finds as many memories as are counted. The other arguments narrow it
        down as in `list`.
        """
    def stats(self) -> ScopeStats:
        """Return how many memories there are in this scope."""
    def evaluate(
        self,
        questions: Iterable[tuple[str, ItemRef] | Mapping[str, object]] | Mapping[str, ItemRef],
        *,
        k: int = 10,
        mode: RecallMode = "hybrid",
        where: Where | None = None,
        min_relevance: float = ...,
    ) -> Evaluation:
        """Recall for each question, and return how often the answer was among the first *k* hits.

        Each comes with what answers it: a text that the memory contains, in any case of letters,
        or the memory or its id. A table has these in its first two columns, or in `question` and
        `expected`. No model is asked, and nothing is changed. *mode*, *where* and *min_relevance*
        are those of `recall`.
        """
    def evict(
        self,
        *,
        max_items: int | None = None,
        max_bytes: int | None = None,
        duplicates: bool = False,
        half_life_hours: float = ...,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> EvictionResult:
        """Forget the least valuable memories until the budget is kept; return which, and why.

        The worth of a memory is its importance, halved every *half_life_hours*. What has the
        importance 1, facts that hold and system messages stay; a tool group goes whole. With
        *duplicates*, of memories that say the same only the first stays. `restore` brings a
        memory back. With *dry_run* nothing is forgotten. *progress* is called with memories read
        and memories to read.
        """
    def duplicates(
        self, *, progress: Progress | None = None
    ) -> builtins.list[tuple[MemoryItem, ...]]:
        """Return groups of memories that say the same, the first of each group first.

        *progress* is called with memories read and memories in all.
        """
    def quarantine(
        self, source: str, *, dry_run: bool = False, progress: Progress | None = None
    ) -> ForgetResult:
        """Hide everything that came from *source*, such as `web:example.com`, or all of `web`.

        `release` brings back what was hidden; `undo` forgets what it added and restores what it
        changed.
        *progress* is called with memories found so far, and 0.
        """
    def release(self, source: str, *, progress: Progress | None = None) -> int:
        """Bring back what `quarantine` has hidden of *source*; return how many memories.

        *progress* is called with memories found so far, and 0.
        """
    def undo(
        self,
        source: str,
        *,
        since: Time | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> ForgetResult:
        """Undo everything that *source* added or changed, or did so *since* then.

        What it added is forgotten, what it changed is again what it was before. *progress* is
        called with memories found so far, and 0.
        """
    @property
    def scope(self) -> MemoryMetadata:
        """Whose memories these are."""

class Chat(Blocking[agent.Chat]):
    """One conversation; `ScopedMemory.chat` makes it. Another chat's messages are never in it."""

    @property
    def id(self) -> str:
        """What the conversation is called in its handle's scope."""
    @property
    def scope(self) -> MemoryMetadata:
        """What its messages carry."""
    @property
    def kv(self) -> KeyValue:
        """Bytes under a path and a key that belong to this conversation, and go with it."""
    def add(
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
    def items(
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
        min_trust: Trust | str | None = None,
        min_relevance: float | None = None,
        spread: bool | None = None,
    ) -> Context:
        """Return what the model should see: persona, summary, conversation, memories, the task.

        Without *task*, it is the newest message of the user; if the model has answered that, it is
        asked to continue. Never over *budget*, always legal in *format*. The summary stands for
        what is too old to be shown as it was said. Memories come from the scope of the handle, so
        also from its other conversations; with *min_trust*, only those from so trusted a source.
        What does not answer is left out, and `dropped` of the context names it; with
        *min_relevance*, nothing is looked for that is below it. *spread* is that of `recall`.
        """
    def summary(self) -> str | None:
        """Return the rolling summary as it is stored, or `None` if there is none yet."""
    def summarize(self) -> str | None:
        """Summarize all but the newest messages now; return the summary, if there is one.

        It happens by itself in the background when `SummaryConfig` says so; here a failing
        summarizer is a `SummaryError`.
        """
    def fork(self, at: str | MemoryItem, *, chat_id: str | None = None) -> Chat:
        """Return a new chat with the messages up to and including *at*; this one stays as it is."""

class Facts(Blocking[agent.Facts]):
    """What is true in one scope; `ScopedMemory.facts` makes it."""

    def put(
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
    def end(
        self, key: str, *, at: Time | None = None, source: Source | None = None
    ) -> FactMemory | None:
        """Record that what is true of *key* now, or at *at*, ends then.

        A value that begins later is still true from its time on. Returns `None` if nothing is true
        of the key then or later; where something is true only later, it is a `QueryError`.
        """
    def revert(self, key: str) -> FactMemory | None:
        """Retract what was said last of *key*; return what is true of it now.

        Where several said just the same at once, all of that is retracted.
        """
    def retract(self, fact_id: ItemRef) -> FactMemory:
        """Retract an assertion that was wrong: as known from now on, it was never valid."""
    def accept(self, fact_id: ItemRef) -> FactMemory:
        """Accept a draft as a fact, known from now on; return it.

        Where just that holds already, its sources are added there, and the draft is discarded. One
        that adds or removes a value is discarded, too: what is returned has all values then. So is
        one with nothing to remove or to end, which is returned itself.
        """
    def discard(self, fact_id: ItemRef) -> FactMemory:
        """Discard a draft; the same messages do not propose it again."""
    def propose(
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
    def get(
        self, key: str, *, as_of: Time | None = None, known_at: Time | None = None
    ) -> FactMemory | None:
        """Return what is true of *key*: now or at *as_of*, as known now or at *known_at*."""
    def all(self, *, as_of: Time | None = None, known_at: Time | None = None) -> FactDict:
        """Return everything that is true, by key: now or at *as_of*, as known then."""
    def keys(self) -> list[str]:
        """Return all keys of facts, also of those that have ended."""
    def history(self, key: str) -> FactHistory:
        """Return every assertion in the order of recording, with the time for which it held.

        Retracted ones are included; drafts and discarded ones are not.
        """
    def conflicts(self) -> list[FactConflict]:
        """Return the contradictions; `retract` one side, and a conflict is settled."""
    def drafts(self) -> list[FactMemory]:
        """Return the drafts to review, oldest first: `accept` or `discard` each."""
    @property
    def scope(self) -> MemoryMetadata:
        """Whose memories these are."""

class FactsView(Blocking[agent.FactsView]):
    """What is true in one scope, to be read.

    With *known_at* it is read as it was stored then: with what was forgotten since, and what
    waited for a review. A store without versions has only the facts of today, and tells from them
    what was known. *clock* tells the time.
    """

    def get(
        self, key: str, *, as_of: Time | None = None, known_at: Time | None = None
    ) -> FactMemory | None:
        """Return what is true of *key*: now or at *as_of*, as known now or at *known_at*."""
    def all(self, *, as_of: Time | None = None, known_at: Time | None = None) -> FactDict:
        """Return everything that is true, by key: now or at *as_of*, as known then."""
    def keys(self) -> list[str]:
        """Return all keys of facts, also of those that have ended."""
    def history(self, key: str) -> FactHistory:
        """Return every assertion in the order of recording, with the time for which it held.

        Retracted ones are included; drafts and discarded ones are not.
        """
    def conflicts(self) -> list[FactConflict]:
        """Return the contradictions; `retract` one side, and a conflict is settled."""
    def drafts(self) -> list[FactMemory]:
        """Return the drafts to review, oldest first: `accept` or `discard` each."""
    @property
    def scope(self) -> MemoryMetadata:
        """Whose memories these are."""

class PastMemory(Blocking[agent.PastMemory]):
    """What was remembered in one scope at *moment*; `ScopedMemory.as_of` makes it."""

    @property
    def moment(self) -> datetime:
        """When all this was so."""
    @property
    def facts(self) -> FactsView:
        """What was true then, as it was known then."""
    def get(self, item_id: ItemRef) -> MemoryItem | None:
        """Return the memory of that id as it was, or `None` if there was none in this scope."""
    def list(
        self,
        *,
        query: str = "",
        where: Where | None = None,
        memory_type: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        """Return a page of what was remembered, newest first; *cursor* is `next` of the one before.

        The filters hold of what a memory was then.
        """
    def __iter__(self) -> Stream[MemoryItem]:
        """Yield all that was remembered, newest first."""
    def recall(
        self,
        query: str,
        *,
        k: int = 10,
        memory_type: str | None = None,
        where: Where | None = None,
        min_relevance: float = ...,
        spread: bool | None = None,
    ) -> RecallResult:
        """Return at most *k* memories of then that answer *query* by their words, best first.

        *min_relevance* and *spread* are those of `ScopedMemory.recall`. The newest 5,000 of the
        scope are looked at, and indexed for this one answer.
        """
    @property
    def scope(self) -> MemoryMetadata:
        """Whose memories these are."""

class AuditLog(Blocking[agent.AuditLog]):
    """The log of a memory that was made with `audit`; `AgentMemory.audit` returns it."""

    def entries(
        self,
        *,
        user_id: ScopeId | None = None,
        session_id: ScopeId | None = None,
        task_id: ScopeId | None = None,
        agent_id: ScopeId | None = None,
        action: str | None = None,
        by: str | None = None,
        item_id: ItemRef | None = None,
        since: Time | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> builtins.list[AuditEntry]:
        """Return at most *limit* entries that match all that is given, newest first.

        A user's entries are found by the digest of the name, which the log has in its place. So
        the entries of an erased user are still there for whoever knows the name. *by* is who
        did it. *item_id* finds what was done to an item, except reads. *before* is the number of
        the last entry of a page, to get the page of older ones. `UnsupportedError` if there is no
        log.
        """
    def verify(
        self, *, head: str | None = None, progress: Progress | None = None
    ) -> AuditVerification:
        """Follow the chain, and compare every item with what its entries say of it.

        *head* is what `head()` returned at some time, and was kept elsewhere: without it nobody
        can tell whether somebody has rewritten the whole log. *progress* is called with steps
        done and steps in all.
        """
    def head(self) -> str:
        """Return the hash of the last entry. Keep it where nobody who can write here can."""

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
    def erase_agents(self, *patterns: str) -> Erasure:
        """Remove for good what is kept here of every agent whose id matches one of *patterns*.

        `*` stands for any characters. It is the place that is meant, not this agent alone.
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

class LongTermMemory(Blocking[extraction.LongTermMemory]):
    """The facts of a handle's scope, and what proposes them from its messages."""

    def __init__(self, handle: ScopedMemory, extractor: Extractor) -> None: ...
    @property
    def facts(self) -> Facts:
        """What is true, and what waits for a review."""
    def extract(self, messages: Sequence[MemoryItem]) -> list[FactMemory]:
        """Have facts proposed from stored messages; return the drafts, which wait for a review.

        Each names the messages that it comes from, and is worth no more than the least trusted of
        them. What memories said is no message: an answer of our own tools, or what stands behind a
        fence. It may be repeated: the same messages propose the same once, and nothing that was
        accepted, discarded or forgotten. A failing extractor is an `ExtractionError`; then nothing
        is proposed.
        """
    def drafts(self) -> list[FactMemory]:
        """Return what waits for a review, oldest first."""
    def accept(self, fact_id: str) -> FactMemory:
        """Make a draft a fact that is known from now on."""
    def discard(self, fact_id: str) -> FactMemory:
        """Turn a draft down."""
    def recall(self, query: str, *, k: int = 10) -> RecallResult:
        """Return at most *k* memories that answer *query*, facts among them, best first."""

class MemoryOrchestrator(Blocking[extraction.MemoryOrchestrator]):
    """Has an extractor propose facts from conversations; the drafts wait for a review.

    *memory* is an `AgentMemory`, or the handle of those whose conversations these are. A job is
    up to *batch* messages; *concurrency* of them are worked on at a time, each for at most
    *timeout* seconds. One that fails is tried again after *backoff* seconds, then twice as many
    and so on up to *max_backoff*, and given up after *max_attempts*. In the background the queue
    is looked at every *poll* seconds.
    """

    def __init__(
        self,
        memory: AgentMemory | ScopedMemory,
        extractor: Extractor,
        *,
        batch: int = 50,
        concurrency: int = 2,
        timeout: float = 120.0,
        max_attempts: int = 5,
        backoff: float = 5.0,
        max_backoff: float = 3600.0,
        poll: float = 5.0,
        clock: Callable[[], datetime] = ...,
        pause: Callable[[float], Awaitable[None]] = ...,
        dice: Callable[[], float] = ...,
    ) -> None: ...
    def enqueue(self, chat: Chat) -> int:
        """Queue what was said in *chat* since the last time; return how many jobs that makes."""
    def enqueue_new(self) -> int:
        """Queue every conversation that has gone on since the last time; return how many jobs."""
    def report(self) -> ExtractionReport:
        """Return what waits, what is done, and what failed, why, and how to try it again."""
    def retry(self, job_id: str) -> None:
        """Queue a job again that was given up."""
    def run(self, *, until_empty: bool = True) -> None:
        """Work on the queue until nothing waits in it, not even for another attempt.

        With `until_empty=False`, go on until cancelled.
        """
    def start(self) -> None:
        """Work on the queue in the background until `close`, or until the memory is closed."""
    def close(self) -> None:
        """Give back what is under way, and stop. May be repeated."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

def import_file(
    handle: ScopedMemory,
    path: str | os.PathLike[str],
    *,
    format: str = ...,
    owner: str | None = None,
    text: str | None = None,
    at: str | None = None,
    user_column: str | None = None,
    day_first: bool | None = None,
    progress: Callable[[int, int], None] | None = None,
    limits: Limits | None = None,
) -> ImportResult:
    """Store what the file, folder or archive at *path* holds as memories of the handle's scope.

    *format* is one of `import_formats()`; `auto` looks at the file. *owner* says whose memories are
    taken of a file that holds those of several people, or which session of one with sessions. Of a
    file that `export_file` wrote for another user, it makes copies for the handle's user, with
    their versions, tags and times, under new ids; without it, such a file is an `AccessError`.
    Importing the same again stores nothing; what has changed in the file is updated, and what was
    forgotten here stays forgotten. What cannot be read is among the `problems` of the result, with
    its line, and the rest is stored. A handle of `unscoped()` takes only files that say whose each
    memory is, or that `export_file` wrote.
    Of a table, *text* names the column that is the memory, *at* the one that says when, and
    *user_column* the one that says whose it is; all others go to `metadata.extra`. *day_first*
    says whether `3/4/2026` is in April, if the file does not tell.
    *progress* is told how many bytes of how many are read.
    """

def export_file(
    handle: ScopedMemory,
    target: str | os.PathLike[str] | IO[bytes],
    *,
    format: str = ...,
    progress: Callable[[int, int], None] | None = None,
) -> ExportResult:
    """Write the handle's memories to a new file, which appears when it is complete.

    `jsonl` holds everything, earlier versions and forgotten memories included, and comes back
    exactly; a binary file object takes it, too. `csv`, `markdown` (a folder), `openai`
    (conversations) and `mcp` hold what is remembered now: of facts, those that hold. `auto` goes by
    the ending: `.csv` is a table, a name that ends in `/` a folder of notes, `.jsonl` or no ending
    is `jsonl`. A name that ends in `.gz` is packed. An ending that contradicts *format* is a
    `TransferError`.
    """

def migrate(
    source_url: str,
    target_url: str,
    *,
    progress: Progress | None = None,
    scope: MemoryMetadata | None = None,
    overwrite: bool = False,
) -> Migration:
    """Copy everything, or what is of *scope*, from one store to another; say whether it is there.

    Every item comes with its versions, its deletion, its times and its place among the others.
    Killed at any moment, it may be called again: what is there already is left alone. In the end
    all is read back from the target and compared with what was read from the source. Vectors are
    not copied; the target makes its own, and a SQLite file indexes its texts when it is next open.
    A Redis, and most stores of other packages, keep no versions and nothing soft-deleted, so there
    these are left out.

    An item that is in the target is replaced if the source only knows more of it: the same
    versions, and newer or older ones. If it went on by itself there, it stays, forgotten or not;
    it is counted as `kept`, named in `conflicts`, and makes the answer false. With *overwrite* it
    becomes what it is in the source, with its history.

    *progress* is called with records done and records in all, each counted twice: it is copied,
    and it is read back. What is written to the source meanwhile may be missing in the target;
    a second call brings it over.
    """
