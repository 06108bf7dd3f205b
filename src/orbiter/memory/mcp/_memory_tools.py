"""The eight tools of the profile `memory`: what a model needs to remember, and nothing more."""

import shlex
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from mcp.types import CallToolResult
from pydantic import BaseModel, BeforeValidator, Field, WithJsonSchema

from orbiter.memory.agent.forgetting import Forgotten, forget_item
from orbiter.memory.agent.inputs import labels, read
from orbiter.memory.agent.short_ids import find_item, short_id
from orbiter.memory.errors import QueryError
from orbiter.memory.mcp._caller import source_of_call
from orbiter.memory.mcp._rendering import (
    Memory,
    entry_of,
    fenced,
    known,
    share,
    to_memory,
    within_budget,
)
from orbiter.memory.mcp._sdk import Context
from orbiter.memory.mcp._tools import Definition, answer, error_text, plain
from orbiter.memory.model.filters import Where
from orbiter.memory.model.serialization import unknown_kind
from orbiter.memory.recall.time_bounds import read_bound
from orbiter.memory.text.ranking import asked_for_prompt, for_prompt

if TYPE_CHECKING:
    from orbiter.memory.agent import ScopedMemory
    from orbiter.memory.mcp._caller import HandleOfCall
    from orbiter.memory.model.items import MemoryItem
    from orbiter.memory.recall import RecallResult

__all__ = ["MemoryTools"]


_MAX_TEXTS = 50


Importance = Annotated[float | None, Field(ge=0, le=1)]
Spread = Annotated[
    bool | None, Field(description="cover a matter over time, oldest first; else as asked")
]
# Plain texts with no default but "": the SDK reads a text that may be `null` as JSON first.
Kind = Annotated[str, Field(description="item (a note), human, ai, tool, fact, summary")]
MinRelevance = Annotated[
    float | None, Field(ge=0, le=1, description="probability that a memory answers")
]
FactKey = Annotated[
    str, Field(description="What the fact is about, in lower case, such as `home.city`.")
]
FactValue = Annotated[
    str,
    Field(description="What is true now, such as `Oslo`; nothing if nothing is true any more."),
]
_MAX_HITS = 50
_MAX_REPEATS = 20
_MAX_WORDS = 1_000
"""Characters of a memory by which others that say the same are searched."""
_PART = 12_000
"""Characters that `memory_get` returns at a time."""


class Added(BaseModel):
    """What `memory_add` stored, or had stored before."""

    ids: list[str]


class Hit(Memory):
    """A memory that answers a question."""

    score: float
    relevance: float
    why: str
    replaced_by: str | None = None
    """The id of a newer memory that says what holds now."""


class Hits(BaseModel):
    """What `memory_search` found, best first."""

    results: list[Hit]


class Part(Memory):
    """A memory, or a part of a long one."""

    next_offset: int | None = None


class Known(BaseModel):
    """A fact as `memory_know` recorded it."""

    id: str
    key: str
    value: str
    """Empty where nothing is true of the key any more."""
    before: str | None = None
    """The value that was true until now, if it was another."""


class Deleted(BaseModel):
    """What `memory_delete` removed, and how a person brings it back."""

    id: str
    restore: str
    ended: str | None = None
    """The key of a fact that went with all its values: nothing is true of the key any more."""
    repeats: list[str] = []
    """Ids of memories that say the same in the same words, and are still there."""


class Listed(BaseModel):
    """A page of memories, newest first."""

    memories: list[Memory]
    next: str | None = None


class ContextText(BaseModel):
    """What is known for a task."""

    text: str
    tokens: int
    ids: list[str]
    left_out: int


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _as_instant(value: object) -> object:
    return read_bound("since", value) if isinstance(value, str) else value


Texts = Annotated[list[str], BeforeValidator(_as_list), Field(min_length=1, max_length=_MAX_TEXTS)]
Tags = Annotated[list[str] | None, BeforeValidator(_as_list)]
Since = Annotated[datetime | None, BeforeValidator(_as_instant), WithJsonSchema({"type": "string"})]


class MemoryTools:
    """The tools over the handle of each call."""

    def __init__(self, handle_of_call: "HandleOfCall") -> None:
        self._handle_of_call = handle_of_call

    def definitions(self) -> list[Definition]:
        """Return the tools, those that read first."""
        return [
            Definition(
                self.memory_search,
                "Search memory",
                "Find memories that answer a question, best first. Search before you answer from "
                "memory or add. Filters: type, tags (all of them), since (ISO date, `last week`).",
                reads=True,
            ),
            Definition(
                self.memory_context,
                "Context for a task",
                "Get what is known about a task as one text of at most `budget` tokens. Call it "
                "when you begin.",
                reads=True,
            ),
            Definition(
                self.memory_get,
                "Read a memory",
                "Read one memory. A long one comes in parts: repeat with `offset` = next_offset.",
                reads=True,
            ),
            Definition(
                self.memory_list,
                "List memories",
                "List memories, newest first; `cursor` is `next` of the previous page.",
                reads=True,
            ),
            Definition(
                self.memory_add,
                "Remember",
                "Store what will matter later: preferences, decisions, facts, lessons. Each text "
                "one statement that is clear by itself. A repeated text is stored once.",
            ),
            Definition(
                self.memory_know,
                "Record a fact",
                # The words of `know` in `memory_tools`; a test compares them.
                "Record a fact that has one value at a time, such as where the user lives. "
                "Another value is true from now on; the earlier ones stay known with their time.",
            ),
            Definition(
                self.memory_update,
                "Correct a memory",
                "Change the given fields of a memory; the old version is kept. With "
                "expected_version it fails if somebody else changed it since you read it.",
                destroys=True,
            ),
            Definition(
                self.memory_delete,
                "Forget a memory",
                "Remove a memory that is wrong or unwanted. A person can restore it.",
                destroys=True,
            ),
        ]

    async def memory_search(
        self,
        ctx: Context,
        query: str,
        k: Annotated[int, Field(ge=1, le=_MAX_HITS)] = 8,
        type: Kind = "",
        tags: Tags = None,
        since: Since = None,
        min_relevance: MinRelevance = None,
        spread: Spread = None,
    ) -> Annotated[CallToolResult, Hits]:
        """Find memories that answer a question."""
        handle = self._handle_of_call(ctx)
        recalled = await handle.recall(
            query,
            k=k,
            memory_type=type or None,
            where=_tagged(tags),
            since=since,
            min_relevance=asked_for_prompt(min_relevance),
            spread=spread,
        )
        chosen = for_prompt(recalled, min_relevance=min_relevance)
        most = share(len(chosen))
        hits = []
        for hit in chosen:
            long = len(hit.item.content) > most
            text = hit.passage if long and hit.passage and len(hit.passage) <= most else None
            one = to_memory(hit.item, text=text, most=most)
            fields = {**one.model_dump(), "is_cut": True if long else None}
            if hit.span is not None and not long:
                fields["text"] = entry_of(hit.shown).content  # a fact says until when it held
            reasons = {"why": str(hit.why), "replaced_by": hit.replaced_by}
            numbers = {"score": round(hit.score, 3), "relevance": round(hit.relevance, 3)}
            hits.append(Hit(**fields, **numbers, **reasons))
        if not hits:
            _check_kind(type)
            return answer(Hits(results=[]), _nothing_answers(recalled))
        entries = [
            entry_of(each.item, text=f"{hit.text} ({hit.why})")
            for each, hit in zip(chosen, hits, strict=True)
        ]
        return answer(Hits(results=hits), fenced(entries) + _rest(hits))

    async def memory_context(
        self,
        ctx: Context,
        task: str,
        budget: Annotated[int, Field(ge=100, le=20_000)] = 1_500,
        min_relevance: MinRelevance = None,
    ) -> Annotated[CallToolResult, ContextText]:
        """Return what is known about a task."""
        handle = self._handle_of_call(ctx)
        if not task.strip():
            raise QueryError("`task` must say what the agent should do")
        recalled = await handle.recall(
            task,
            k=min(_MAX_HITS, max(8, budget // 40)),
            min_relevance=asked_for_prompt(min_relevance),
        )
        chosen = for_prompt(recalled, min_relevance=min_relevance)
        entries = [known(hit, names_id=False) for hit in chosen]
        text, tokens, kept = within_budget(entries, budget)
        result = ContextText(
            text=text,
            tokens=tokens,
            ids=[chosen[place].item.id for place in kept],
            left_out=len(chosen) - len(kept),
        )
        nothing = "there are no memories about this"
        if recalled:
            nothing = _nothing_answers(recalled)
        if chosen:
            nothing = f"nothing fits in {budget} tokens; raise `budget`, or use `memory_search`"
        return answer(result, text or nothing)

    async def memory_get(
        self, ctx: Context, id: str, offset: Annotated[int, Field(ge=0)] = 0
    ) -> Annotated[CallToolResult, Part]:
        """Return one memory, or a part of it."""
        item = await find_item(self._handle_of_call(ctx), id)
        end = offset + _PART
        text = item.content[offset:end]
        if offset and not text:
            raise QueryError(
                f"the memory has {len(item.content)} characters; `offset` is past the end"
            )
        is_more = end < len(item.content)
        fields = {
            **to_memory(item, text=text).model_dump(),
            "text": text,
            "is_cut": is_more or None,
        }
        part = Part(**fields, next_offset=end if is_more else None)
        rest = f"\n{len(item.content) - end} characters more: offset {end}" if is_more else ""
        return answer(part, fenced([entry_of(item, text=text)]) + rest)

    async def memory_list(
        self,
        ctx: Context,
        type: Kind = "",
        tags: Tags = None,
        since: Since = None,
        limit: Annotated[int, Field(ge=1, le=100)] = 20,
        cursor: str = "",
    ) -> Annotated[CallToolResult, Listed]:
        """Return a page of memories."""
        page = await self._handle_of_call(ctx).list(
            memory_type=type or None,
            where=_tagged(tags),
            since=since,
            limit=limit,
            cursor=cursor or None,
        )
        max_chars = share(len(page))
        listed = [to_memory(item, most=max_chars) for item in page]
        if not listed:
            _check_kind(type)
            return answer(Listed(memories=[]), "there are no memories here")
        entries = [entry_of(item, text=one.text) for item, one in zip(page, listed, strict=True)]
        more = f"\nmore: cursor {page.next}" if page.next else ""
        result = Listed(memories=listed, next=page.next)
        return answer(result, fenced(entries) + _rest(listed) + more)

    async def memory_add(
        self, ctx: Context, texts: Texts, tags: Tags = None, importance: Importance = None
    ) -> Annotated[CallToolResult, Added]:
        """Store texts, each as a memory."""
        handle = self._handle_of_call(ctx)
        if any(not text.strip() for text in texts):
            raise QueryError("a text is empty; nothing was stored")
        source = source_of_call(ctx)
        _check_all(handle, texts, labels(tags, importance, source, None))
        stored = [
            await handle.remember(
                text, tags=tags, importance=importance, source=source, dedupe=True
            )
            for text in texts
        ]
        ids = [item.id for item in stored]
        return answer(Added(ids=ids), f"remembered as {', '.join(map(short_id, ids))}")

    async def memory_know(
        self, ctx: Context, key: FactKey, value: FactValue = ""
    ) -> Annotated[CallToolResult, Known]:
        """Record what is true from now on; the value of before stays known."""
        facts = self._handle_of_call(ctx).facts
        held = await facts.get(key)
        if not value:
            ended = await facts.end(key, source=source_of_call(ctx))
            before = None if held is None else str(held.value)
            told = "" if before is None else f" from now on; before, it was {plain(before)}"
            known = Known(id=ended.id if ended else "", key=key, value="", before=before)
            return answer(known, f"Known: {plain(key)} has no value{told}.")
        fact = await facts.put(key, value, source=source_of_call(ctx))
        stored = str(fact.value)  # without what is private, and redacted
        before = None if held is None or held.value == fact.value else str(held.value)
        line = f"Known: {plain(key)} is {plain(stored)}"
        line += "." if before is None else f" from now on; before, it was {plain(before)}."
        return answer(Known(id=fact.id, key=key, value=stored, before=before), line)

    async def memory_update(
        self,
        ctx: Context,
        id: str,
        text: str = "",
        tags: Tags = None,
        importance: Importance = None,
        expected_version: Annotated[int | None, Field(ge=1)] = None,
    ) -> Annotated[CallToolResult, Memory]:
        """Change a memory; another text is the agent's, whoever said the one before."""
        if not text and tags is None and importance is None:
            raise QueryError("give `text`, `tags` or `importance`; there is nothing to change")
        handle = self._handle_of_call(ctx)
        before = await find_item(handle, id)
        id = before.id
        is_rewritten = bool(text) and text != before.content
        if not is_rewritten and tags is None and importance is None:
            return answer(to_memory(before), f"unchanged: {plain(short_id(id))} says that already")
        item = await handle.update(
            id,
            text if is_rewritten else None,
            tags=tags,
            importance=importance,
            source=source_of_call(ctx) if is_rewritten else None,
            expected_version=expected_version,
        )
        return answer(
            to_memory(item), f"changed; {plain(short_id(id))} has version {item.version} now"
        )

    async def memory_delete(self, ctx: Context, id: str) -> Annotated[CallToolResult, Deleted]:
        """Forget a memory, or a fact with all values. What says the same stays, and is named."""
        handle = self._handle_of_call(ctx)
        item = await find_item(handle, id)
        id = item.id
        gone = await forget_item(handle, item)
        way = _restoring(short_id(id)) if gone.is_kept else ""
        repeats = await _repeats_of(handle, item)
        names = ", ".join(plain(short_id(each)) for each in repeats)
        said = f"; {names} say the same and are still there: delete these, too" if repeats else ""
        return answer(
            Deleted(id=id, restore=way, ended=gone.key, repeats=repeats),
            _told(gone, way) + said,
        )


def _check_kind(kind: str) -> None:
    """Refuse a type where nothing is of it, if it is no type: a store may have types of its own."""
    if wrong := unknown_kind(kind or None):
        raise QueryError(wrong)


def _check_all(handle: "ScopedMemory", texts: list[str], more: dict[str, object]) -> None:
    """Refuse all texts if one of them cannot be stored."""
    for place, text in enumerate(texts):
        try:
            read(text, handle.scope, more, None)
        except ValueError as exc:
            raise QueryError(f"`texts.{place}`: {error_text(exc)}; nothing was stored") from exc


async def _repeats_of(handle: "ScopedMemory", item: "MemoryItem") -> list[str]:
    """Return the ids of what says the same as *item*, which search shows as one memory."""
    from orbiter.memory.recall.near_duplicates import said_again  # noqa: PLC0415 - few need it

    # What says the same answers nothing.
    text = item.content[:_MAX_WORDS]
    hits = await handle.recall(text, mode="words", k=_MAX_REPEATS, min_relevance=0)
    others = {each.id: each for hit in hits for each in (hit.item, *hit.repeats)}
    return [each.id for each in said_again(item, others.values()) if each.id != item.id]


def _restoring(item_id: str) -> str:
    """Return the line that brings a memory back, which a person may paste into a shell.

    An id is free text, and must be no more than one word of that line.
    """
    if not item_id.isprintable():
        return "orbiter-memory restore ID"
    begin = "-- " if item_id.startswith("-") else ""
    return f"orbiter-memory restore {begin}{shlex.quote(item_id)}"


def _told(gone: Forgotten, way: str) -> str:
    """Return what to tell of what was forgotten; *way* brings it back."""
    what = "forgotten"
    if gone.key is not None:
        what += (
            f": {plain(gone.key)} has no value now, and no earlier one is true again; its values "
            "are in no recall and no context any more"
        )
    if not gone.is_kept:
        return f"{what}; this store keeps nothing that could be brought back"
    return f"{what}; a person brings {'it' if gone.key is None else 'this one'} back with `{way}`"


def _nothing_answers(recalled: "RecallResult") -> str:
    """Return what to tell where nothing is left of what was recalled."""
    if not recalled:
        return "no memory answers this"
    best = max(hit.relevance for hit in recalled)
    return (
        f"no memory answers this: the nearest has a relevance of {best:.2f}; `min_relevance` 0 "
        "shows it"
    )


def _tagged(tags: list[str] | None) -> Where | None:
    return {"$and": [{"tags": {"$contains": tag}} for tag in tags]} if tags else None


def _rest(memories: "list[Hit] | list[Memory]") -> str:
    """Return how to read the whole of what was cut."""
    is_cut = any(each.is_cut for each in memories)
    return "\nlong texts are cut; `memory_get` has the whole" if is_cut else ""
