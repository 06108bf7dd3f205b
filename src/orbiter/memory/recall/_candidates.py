"""Candidate retrieval: by words, meaning and time, with the conversation around them.

All that recall asks of a store is here. Every question to it carries the caller's filters, which
the store applies before it cuts, so a filter never loses a row to one that it excludes.
"""

import asyncio
import math
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import zip_longest
from typing import NamedTuple
from weakref import finalize

from orbiter.memory._lazy import lazy_pattern
from orbiter.memory.errors import EmbeddingError
from orbiter.memory.model.items import AIMemory, MemoryItem, is_indexed
from orbiter.memory.model.protocols import (
    ConversationStore,
    Embeddings,
    LexicalStore,
    MemoryStore,
    VectorStore,
)
from orbiter.memory.model.query import CosineQuery, Query, WordMatches
from orbiter.memory.recall._candidate_pool import (
    Pool,
    are_many,
    as_indexed,
    as_read,
    is_talk,
    names_in,
    speaker_of,
    told_names,
)
from orbiter.memory.recall._date_phrases import named_day
from orbiter.memory.recall._dates import FIRST, Span, closeness
from orbiter.memory.recall._dedupe_query import (
    MAX_READ,
    fetch,
    fetch_distinct,
    limit_per_cluster,
    limit_per_fact,
    newest_of,
)
from orbiter.memory.recall._features import names_speaker, terms_of
from orbiter.memory.recall._modes import warn_once
from orbiter.memory.recall._query_analysis import Question, read, shortened, user_names
from orbiter.memory.recall._reading import QuestionVector, reading_of
from orbiter.memory.recall.near_duplicates import find_clusters, who_says, without_numbers
from orbiter.memory.tasks.offload import apart, both
from orbiter.memory.text import words
from orbiter.memory.text.first_person import in_first_person
from orbiter.memory.text.ranking import fuse_ranks

__all__ = [
    "FirstLook",
    "Found",
    "embed_question",
    "fill_pool",
    "gather",
    "look",
    "nearest",
    "newest_that_differ",
    "newest_that_hold",
]

_MAX_CANDIDATES = 80
"""Candidates from words, and as many from meaning. With 200, R@10 on dialogues is the same, and a
recall costs a sixth more."""
_DIFFERENT = 50
"""How many of them must differ, or a flood of copies would leave no room for anything else."""
_CHOSEN, _NOTES = 120, 60
"""How many of both are weighed, each with what was said around it; of notes, around which nothing
was said, half as many: with 120 of 8,805 notes, R@10 is 51, with 60 it is 52."""
_LIKELIER = 2.0
"""How many times as much a candidate counts that is by who is asked about, or of a time asked for:
otherwise what others say of the same matter takes its place."""
_NEWEST = 20
_DATED = 50
"""Items of a time that the question names, by words, by meaning and spread over it."""
_SLICES = 5
"""Parts of that time which each give their newest, or its last day would give all."""
_MAX_TIMES = 4
"""Times that are looked for, of all that a question names."""
_EVENTS = 3
"""How many that name an event are asked when it was."""
_BEGINNING = 2_000
"""Characters of a text that are read for that."""
_TELLS_NAME = lazy_pattern(r"\b(?:name|call)", re.IGNORECASE)
_SPAN = 2
_MANY = 100
_FEW, _SOME, _VERY_MANY = 20, 250, 2_000
"""How many are read at first, and then, if most say the same, to find some that differ."""
_PAGE = 500
_PATIENCE = 2.0
"""Seconds that recall waits for what is still to be embedded, once in `_PAUSE` if there is more."""

_LONGEST_WAIT = 15.0
"""Seconds that a model may take for a question before words have to do."""
_PAUSE = 30.0
"""Seconds for which a model that failed is not asked again: most fail by taking their time."""
_failed: dict[int, float] = {}
"""Until when, by the id of the model, which need not be hashable: a dataclass is not."""
_stuck: dict[int, float] = {}
"""Until when what a store has still to embed is not waited for, by the id of the store."""

Found = tuple[Question, Pool]


class FirstLook(NamedTuple):
    """What is read before a model is asked: it says who is spoken of."""

    question: Question
    matches: WordMatches
    newest: list[MemoryItem]
    names: frozenset[str]
    """Names before a colon in the texts of those who speak."""
    now: datetime
    user: str = ""
    """What the user is called, if that is known."""


async def gather(
    store: MemoryStore, text: str, asked: Query, *, now: datetime, by_meaning: bool = True
) -> Found:
    """Return the question that *text* is, and what may answer it, *by_meaning* with the model."""
    seen = await look(store, text, asked, now=now)
    vector = await embed_question(store, seen) if by_meaning else None
    return seen.question, await fill_pool(store, seen, asked, vector)


async def look(
    store: MemoryStore,
    text: str,
    query: Query,
    *,
    now: datetime,
    names: Sequence[str] = (),
    by_words: bool = True,
) -> FirstLook:
    """Return the question that *text* is, with the newest items and those that hold its words.

    *names* are what the user is called, beside the name that their id may be.
    """
    called = user_names(query.metadata, names)
    text = in_first_person(shortened(text), called)
    newest = newest_of(store, replace(query, limit=_NEWEST))
    if by_words:
        matches, latest = await both(_by_words(store, text, _some(query)), newest)
        if query.metadata is not None and (told := _told_name(text, matches.items)) is not None:
            called = (*called, told)
            text = in_first_person(text, called)
    else:
        matches, latest = WordMatches([], {}, 0), await newest
    latest, _ = limit_per_fact(latest, query.max_per_fact)
    speaking = names_in(items := [*matches.items, *latest])
    speakers = {name for item in items if (name := speaker_of(item, speaking)) is not None}
    question = read(text, speakers=speakers, user_names=called, now=now)
    if question.offsets:
        times = (*question.times, *_event_times(question, matches.items))
        question = question._replace(times=tuple(dict.fromkeys(times)))
    return FirstLook(question, matches, latest, speaking, now, next(iter(called), ""))


def _told_name(text: str, items: Sequence[MemoryItem]) -> str | None:
    """Return the name in *text* by which a user goes: "I'm Joana" tells one, "I'm German" none."""
    telling = (each for each in items if _TELLS_NAME.search(each.content, 0, _BEGINNING))
    names = (name for item in telling for name in told_names(item, shortened(item.content)))
    said = frozenset(words.tokens(text))
    return next((name for name in names if said.intersection(words.tokens(name)[:1])), None)


def _event_times(question: Question, items: Sequence[MemoryItem]) -> list[Span]:
    """Return the times told by an event, as "the day after the concert", from what names it."""
    times: list[Span] = []
    for offset in question.offsets:
        wanted = frozenset(words.terms(offset.anchor))
        held = [(len(wanted & terms_of(item)), item) for item in items]
        most = max((count for count, _ in held), default=0)
        named = [item for count, item in held if count == most] if most else []
        for item in named[:_EVENTS]:
            day = named_day(item.content[:_BEGINNING], now=item.created_at) or item.created_at
            times.append(offset.from_day(day))
    return times


def _some(query: Query) -> Query:
    return replace(query, limit=max(_MAX_CANDIDATES, query.limit))


async def fill_pool(
    store: MemoryStore, seen: FirstLook, query: Query, vector: QuestionVector | None
) -> Pool:
    """Return the items that may answer a question, with what was said around them."""
    question, matches, newest, names, now, _ = seen
    nearby = None if vector is None else _Nearest(store, vector.whole)
    near: Sequence[MemoryItem] = [] if nearby is None else await fetch(nearby.ask, _some(query))
    dated = await _dated(store, question, query, nearby, now=now)
    known = {item.id: item for item in (*matches.items, *near, *dated, *newest)}
    clusters = await apart(are_many(known.values()), find_clusters, known.values())
    if clusters and nearby is not None:  # which may have left no room for anything else
        near = await fetch_distinct(nearby.ask, _some(query), enough=_DIFFERENT, first=near)
        more = {item.id: item for item in near if item.id not in known}
        if more:
            known |= more
            clusters = await apart(are_many(known.values()), find_clusters, known.values())
    are_notes = not any(is_talk(item, names) for item in known.values())
    room = max(_NOTES if are_notes else _CHOSEN, 2 * query.limit)
    lists = {"words": matches.items, "meaning": near, "time": dated}
    best = fuse_ranks(
        {
            name: [item.id for item in limit_per_cluster(items, clusters, max_of_series=room // 2)]
            for name, items in lists.items()
        },
        weights=None if vector is None else {"meaning": vector.coverage},
    )
    likely = {key: points * _likelihood(question, known[key], names) for key, points in best}
    chosen = sorted(likely, key=lambda item_id: -likely[item_id])[:room]
    if len(chosen) < _NEWEST:
        chosen = list(dict.fromkeys((*chosen, *(item.id for item in newest))))
    stored = await _around(store, [known[item_id] for item_id in chosen], names, nearby)
    windows = [[as_read(item, question.user_names) for item in window] for window in stored]
    items = [item for window in windows for item in window]
    all_clusters = clusters
    if clusters and any(item.id not in known for item in items):
        seen_items = (known | {item.id: item for item in items}).values()
        all_clusters = await apart(are_many(seen_items), find_clusters, seen_items)
    # What was found matches; what stands around it may not, nor what has only the basic filters.
    sure = known if isinstance(store, LexicalStore) else {}
    eligible = frozenset(
        item.id
        for item in items
        if (item.id in sure or query.matches(item)) and item.content.strip()
    )
    pool = Pool(
        windows, eligible, matches.frequency, matches.passages, clusters=all_clusters, names=names
    )
    if nearby is None or vector is None:
        return pool
    return pool._replace(
        similarity=await nearby.similarities([item.id for item in items]),
        query_token_vectors=vector.words,
        token_dimension=nearby.detail_dimension,
        coverage=vector.coverage,
    )


def _likelihood(question: Question, item: MemoryItem, names: frozenset[str]) -> float:
    """Return how much likelier than others an item answers, by who said it and when."""
    is_asked = question.asks_you or not isinstance(item, AIMemory)
    if not is_asked or len(question.people) == 1:  # else it may be anyone's
        who = speaker_of(item, names)
        is_asked = is_asked if who is None else names_speaker(question, who) >= 0
    is_then = bool(question.times) and closeness(item.created_at, question.times) > 0
    return (_LIKELIER if is_asked else 1.0) * (_LIKELIER if is_then else 1.0)


class _Nearest:
    """Searches by one vector; the cosine of all that were found is kept."""

    def __init__(self, store: MemoryStore, vector: Sequence[float]) -> None:
        assert isinstance(store, VectorStore)  # noqa: S101 - it has made the vector
        self._store, self._vector = store, vector
        self.known: dict[str, float] = {}
        self._without: set[str] = set()
        self.detail_dimension = 0 if store.embeddings is None else store.embeddings.detail_dimension

    async def ask(self, query: Query) -> list[MemoryItem]:
        """Return what is near, nearest first."""
        near = await self._store.nearest(self._vector, query)
        self.known.update((item.id, cosine) for item, cosine in near)
        return [as_indexed(item) for item, _ in near]

    async def similarities(self, item_ids: Sequence[str]) -> dict[str, float]:
        """Return the cosines of these items and of all that were found."""
        unknown = [item_id for item_id in item_ids if item_id not in self.known]
        if self._without.issuperset(unknown):
            return self.known
        return self.known | await self._store.similarities(self._vector, unknown)

    async def around(
        self, store: ConversationStore, item_ids: Sequence[str], others: Sequence[str]
    ) -> list[list[MemoryItem]]:
        """Return what was said around items, and note how near it is."""
        asked = CosineQuery(self._vector, others, self.known)
        stretches, cosines = await store.around_scored(item_ids, asked, span=_SPAN)
        unknown = asked.unknown(item.id for items in stretches for item in items)
        self._without.update(item_id for item_id in unknown if item_id not in cosines)
        self.known |= cosines
        return stretches


async def _by_words(store: MemoryStore, text: str, asked: Query) -> WordMatches:
    """Return what holds words of *text*, and how common these are."""
    if not isinstance(store, LexicalStore):
        return WordMatches([], {}, 0)
    terms, answers = list(dict.fromkeys(words.terms(text))), list[WordMatches]()

    async def ask(some: Query) -> Sequence[MemoryItem]:
        answers.append(await store.match_words(terms, some))
        return [as_indexed(item) for item in answers[-1].items]

    items = await fetch_distinct(ask, asked, enough=_DIFFERENT)
    return replace(answers[0], items=items)  # of these the counts hold: nothing was left out


async def nearest(
    store: MemoryStore, asked: Query, vector: QuestionVector
) -> list[tuple[MemoryItem, float]]:
    """Return what is near to a question, nearest first, with its cosine."""
    nearby = _Nearest(store, vector.whole)
    items = await fetch_distinct(nearby.ask, _some(asked), enough=_DIFFERENT)
    return [(item, nearby.known[item.id]) for item in items]


async def embed_question(
    store: MemoryStore, seen: FirstLook, *, is_all: bool = False
) -> QuestionVector | None:
    """Return what the store's model makes of a question; `None` without one, or if it fails.

    What waits to be embedded is waited for, at least for a while. If meaning *is_all* there is to
    go by, a model that fails is an `EmbeddingError`.
    """
    text = seen.question.text
    if not isinstance(store, VectorStore) or store.embeddings is None or not text.strip():
        return None
    made = await _embedded(store.embeddings, text, is_all=is_all)
    if made is None:
        return None
    waiting = await store.catch_up(within=0.0)
    is_patient = is_all or time.monotonic() >= _stuck.get(id(store), 0.0)
    if waiting and is_patient and (waiting := await store.catch_up(within=_PATIENCE)):
        if waiting >= _MANY:
            warn_once(
                "not embedded",
                f"{waiting:,} memories are not embedded yet, and are found by their words only; "
                "embedding continues in the background, and `flush()` of the memory waits for it",
            )
        # They are many, or with another process, which may be dead: not every question waits.
        if id(store) not in _stuck:
            finalize(store, _stuck.pop, id(store), None)
        _stuck[id(store)] = time.monotonic() + _PAUSE
    coverage = min(1.0, max(0.0, await store.embeddings.coverage(text)))
    reading = await reading_of(
        store.embeddings,
        text,
        (made.whole, made.words),
        user=seen.user,
        terms=frozenset(seen.question.terms),
    )
    return made._replace(coverage=coverage, waiting=waiting, reading=reading)


async def _embedded(
    embeddings: Embeddings, text: str, *, is_all: bool = False
) -> QuestionVector | None:
    """Return the question's vector and those of its words; `None` if the model fails."""
    if not is_all and time.monotonic() < _failed.get(id(embeddings), 0.0):
        return None
    try:
        async with asyncio.timeout(_LONGEST_WAIT):
            [(vector, details)] = await embeddings.aembed_details([text])
        if not _is_sound(vector, embeddings.dimension):
            raise EmbeddingError(f"no vector of {embeddings.dimension} numbers")  # noqa: TRY301
    except Exception as exc:  # of any model; words still answer, or it is told
        if id(embeddings) not in _failed:
            finalize(embeddings, _failed.pop, id(embeddings), None)
        _failed[id(embeddings)] = time.monotonic() + _PAUSE
        if is_all:
            raise EmbeddingError(
                f"{embeddings!r} could not embed the question ({type(exc).__name__}: {exc}); "
                "modes `hybrid` and `words` answer without it"
            ) from exc
        warn_once(
            "no vector",
            f"recall uses words and structure only: {embeddings!r} could not embed the question "
            f"({type(exc).__name__}: {exc})",
        )
        return None
    return QuestionVector(vector, details)


def _is_sound(vector: Sequence[float], dimension: int) -> bool:
    """Tell whether a model's answer is a vector that points somewhere."""
    return len(vector) == dimension and any(vector) and all(map(math.isfinite, vector))


async def _dated(
    store: MemoryStore, question: Question, query: Query, nearby: _Nearest | None, *, now: datetime
) -> list[MemoryItem]:
    """Return items of the times that the question names: what fits it, and some of each day."""
    found: list[MemoryItem] = []
    every = (span.latest(now).bounds() for span in question.times[:_MAX_TIMES])
    for begin, end in filter(None, every):
        since = begin if query.since is None else max(begin, query.since)
        until = end if query.until is None else min(end, query.until)
        if FIRST < since < until:  # what was before a time may be anything
            some = replace(query, limit=_DATED, since=since, until=until)
            found += await _of_span(store, question, some, nearby)
    return found


async def _of_span(
    store: MemoryStore, question: Question, some: Query, nearby: _Nearest | None
) -> list[MemoryItem]:
    """Return items from `some.since` to `some.until`, those that fit the question first."""
    assert some.since is not None  # noqa: S101 - it is a span
    assert some.until is not None  # noqa: S101
    lists: dict[str, Sequence[MemoryItem]] = {}
    if isinstance(store, LexicalStore) and question.terms:
        matches = await store.match_words(list(question.terms), some)
        lists["words"] = [as_indexed(item) for item in matches.items]
    if nearby is not None:
        lists["meaning"] = await nearby.ask(some)
    lists = {name: limit_per_fact(each, some.max_per_fact)[0] for name, each in lists.items()}
    ask = partial(newest_of, store)
    newest = await fetch_distinct(ask, some, enough=_DATED // 2)
    lists["newest"] = [item for item in newest if some.since <= item.created_at < some.until]
    if len(newest) >= _DATED and isinstance(store, LexicalStore):
        width = (some.until - some.since) / _SLICES
        ends = [some.until - number * width for number in range(1, _SLICES)]
        slices = [await ask(replace(some, limit=_DATED // _SLICES, until=end)) for end in ends]
        lists["spread"] = [each for row in zip_longest(*slices) for each in row if each is not None]
    known = {item.id: item for items in lists.values() for item in items}
    ranked = fuse_ranks({name: [item.id for item in items] for name, items in lists.items()})
    return [known[item_id] for item_id, _ in ranked]


async def _around(
    store: MemoryStore,
    items: Sequence[MemoryItem],
    names: frozenset[str],
    nearby: _Nearest | None,
) -> Sequence[Sequence[MemoryItem]]:
    """Return each item with what was said around it; nothing was, around what is no talk."""
    if not isinstance(store, ConversationStore):
        return [[item] for item in items]
    notes = [item for item in items if not is_talk(item, names)]
    others = dict.fromkeys(item.id for item in notes)
    ids = [item.id for item in items if item.id not in others]
    plain = partial(store.around, ids, span=_SPAN)
    read_them = plain if nearby is None else partial(nearby.around, store, ids, list(others))
    spoken = await read_them() if ids else []
    # Notes may stand between the messages of a session; each has a stretch of its own, or none.
    talks = [
        [as_indexed(item) for item in window if is_talk(item, names) and is_indexed(item)]
        for window in spoken
    ]
    return [*([item] for item in notes), *talks]


async def newest_that_differ(
    store: MemoryStore, terms: list[str], asked: Query, *, count: int
) -> list[MemoryItem]:
    """Return the newest items that match, with or without copies, *count* of which differ."""
    ask = partial(newest_that_hold, store, terms)
    found: Sequence[MemoryItem] = []
    for size in (_FEW, _SOME, _VERY_MANY):
        some = replace(asked, limit=max(size, 2 * count))
        found = await (ask(some) if size == _FEW else fetch_distinct(ask, some, enough=count))
        texts = {(who_says(item), without_numbers(item.content)) for item in found}
        if len(texts) >= count or len(found) != some.limit:
            break
    return list(found)


async def newest_that_hold(store: MemoryStore, terms: list[str], asked: Query) -> list[MemoryItem]:
    """Return at most `asked.limit` items that match, newest first; those without text never.

    With *terms*, only items that hold one of them.
    """
    if not isinstance(store, LexicalStore):
        found = await newest_of(store, replace(asked, limit=max(MAX_READ, asked.limit)))
        wanted = frozenset(terms)
        matching = (item for item in found if item.content.strip() and asked.matches(item))
        held = [item for item in matching if not wanted or not wanted.isdisjoint(terms_of(item))]
        return _newest_first(held)[: asked.limit]
    return await (_matching(store, terms, asked) if terms else _newest(store, asked))


async def _newest(store: MemoryStore, asked: Query) -> list[MemoryItem]:
    found: list[MemoryItem] = []
    page: list[MemoryItem] = []
    while len(found) < asked.limit:
        some = replace(asked, limit=asked.limit - len(found))
        page = await newest_of(store, some, before=page[-1] if page else None)
        found += [item for item in page if item.content.strip()]
        if len(page) < some.limit:
            break
    return found


async def _matching(store: LexicalStore, terms: list[str], asked: Query) -> list[MemoryItem]:
    """Return the newest matches, though the store has the best of them first.

    If it has more than it returned, none of the newest is older than the oldest that would do
    among those: so the next question begins there, and fewer and fewer are left.
    """
    limit = _PAGE + asked.limit
    since = asked.since
    while True:
        matches = await store.match_words(terms, replace(asked, limit=limit, since=since))
        found = _newest_first([as_indexed(item) for item in matches.items])[: asked.limit]
        if len(matches.items) < limit or not found:
            return found
        if since == found[-1].created_at:
            limit *= 2  # so many at one instant
        since = found[-1].created_at


def _newest_first(items: Sequence[MemoryItem]) -> list[MemoryItem]:
    return sorted(items, key=lambda item: (-item.created_at.timestamp(), item.id))
