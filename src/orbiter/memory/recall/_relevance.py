"""Relevance: the probability that a hit answers the question, on one scale for every store.

A logistic model over absolute measures of one candidate beside the question. Nothing here may
depend on the other candidates or on the size of the store, but for names that mean the user: a
memory must be worth the same among five memories and among thousands.
`python -m benchmarks.recall_relevance` fits the weights.
"""

import math
import re
from collections.abc import Mapping, Sequence, Set
from datetime import datetime
from functools import cache
from types import MappingProxyType

from orbiter.memory._lazy import lazy_pattern
from orbiter.memory.model.items import AIMemory, MemoryItem
from orbiter.memory.recall._candidate_pool import Pool, as_shown, is_talk, speaker_of
from orbiter.memory.recall._dates import Span, closeness, is_within
from orbiter.memory.recall._features import (
    FeatureTable,
    best_passage,
    lenders,
    names_speaker,
    says_when,
    terms_of,
)
from orbiter.memory.recall._foreign_times import asks_only_time
from orbiter.memory.recall._mismatch import contradicts, lacks_value, without_values
from orbiter.memory.recall._query_analysis import Question, asks, is_question, names_in, shortened
from orbiter.memory.text import languages, words
from orbiter.memory.text.text_caches import text_cache

__all__ = [
    "OUTDATED",
    "WEIGHTS",
    "coverage_of",
    "measures",
    "measures_of_fact",
    "measures_of_text",
    "measures_of_vector",
    "relevance",
    "weights_for",
]

Measures = Mapping[str, float]

_TELLS_LITTLE = 0.4
"""What an everyday word counts where another counts 1. The store's own counts would tell rare words
better, and would make every number depend on the store."""
_TIMES = """january february march april may june july august september october november december
    monday tuesday wednesday thursday friday saturday sunday did happened summary summarize"""
_ASKS_TIME = """jan feb mar apr jun jul aug sep sept oct nov dec spring summer autumn fall winter
    quarter q1 q2 q3 q4 christmas halloween weekend morning afternoon evening between since
    until till early mid late beginning middle end half done discuss speak spoke said told write
    wrote chat"""
"""Words of a question about a time that name nothing else; in a text some are names."""
_OWN = lazy_pattern(r"\b(?:I|my|me|mine|we|our|ours|us|user)\b", re.IGNORECASE)
_IN_TIME, _NEAR_TIME = 0.5, 0.3
"""Not fitted: how relevant what is of the time is to a question that names nothing else, and what
is near it, as people tell of a day in the days after it."""
_ABOUT_ANOTHER = 0.3
"""Not fitted: what is left of the relevance of a note about another than the question names. It may
still be meant, by a name that the note does not know."""
_WITHOUT_VALUE = 0.3
"""Not fitted: what is left of the relevance of a note that has none of the kind asked for."""
OUTDATED = 0.3
"""Not fitted: what is left of the relevance of what does not hold at the time asked about."""
_FILLER = 0.1
"""Not fitted: what is left of the relevance of what is only polite: "That sounds lovely"."""
_BRIEF, _NOT_BRIEF = 2.2, 2.8
"""Not fitted: `length` up to which a message is brief, 8 terms, and from which it is not, 15."""
_BEGINNING = 200
"""Characters of a text that tell in which script it is."""
_MAX_BYTES = 8 * 2**20
"""How much is remembered of the sentences of texts."""
_ECHO = -3.0
"""Not fitted: the question that was just stored must not be its own answer."""


def measures(question: Question, pool: Pool, table: FeatureTable, place: int) -> dict[str, float]:
    """Return what is measured of the candidate in a row of *table*, with what was said around it.

    `cosine` is there if it has a vector, `detail` if it was looked at word by word.
    """
    item, before = table.items[place], table.before[place]
    near = lenders(place, table.before, table.after, table.columns["echo"])
    values = measures_of_text(question, item, names=pool.names, own_names=pool.own_names)
    with_previous = [place] if before is None else [place, before]
    values["prev"] = _share(question.terms, *(table.matched[at] for at in with_previous))
    values["near"] = _share(question.terms, *(table.matched[at] for at in near))
    values["chat_near"] = values["chat"] * values["near"]
    values["note_near"] = values["note"] * values["near"]
    values["echo"] = table.columns["echo"][place]
    cosine = None if pool.similarity is None else pool.similarity.get(item.id)
    if cosine is not None:
        known = coverage_of(item, pool.coverage, elsewhere=pool.elsewhere)
        values |= measures_of_vector(values, cosine, coverage=known)
        if place in table.details:
            values["detail"], values["detail_near"] = table.details[place]
            values["chat_detail"] = values["chat"] * values["detail"]
    return values


def measures_of_text(
    question: Question,
    item: MemoryItem,
    *,
    names: frozenset[str] = frozenset(),
    own_names: frozenset[str] = frozenset(),
) -> dict[str, float]:
    """Return what is measured of an item by itself.

    *names* are those before a colon that speak, *own_names* those that mean the one who asks.
    """
    terms, is_asking = terms_of(item), asks(item, is_question=is_question(item.content))
    held, length = frozenset(question.terms).intersection(terms), math.log1p(len(terms))
    share = _share(question.terms, held)
    speaker = speaker_of(item, names)
    is_note = not is_talk(item, names)
    brief = 0.0 if is_note or speaker is not None or is_asking else _how_brief(length)
    chat = float(not is_note and speaker is None) - brief
    is_assistants = isinstance(item, AIMemory) and speaker is None
    alone = is_note + brief
    return {
        "own": sum(_tells(term) for term in held),
        "prev": share,
        "near": share,
        "speaker": names_speaker(question, speaker),
        "people": float(bool(question.people)),
        "assistant": chat if is_assistants else 0.0,
        "you": float(question.asks_you),
        "assistant_you": float(is_assistants and question.asks_you),
        "note": float(is_note),
        "note_near": share if is_note else 0.0,
        "chat": chat,
        "chat_near": chat * share,
        "sentence": chat * _share_of_sentence(question, item, held) if chat and held else 0.0,
        "brief": brief,
        "brief_share": brief * share,
        "times": float(bool(question.times)),
        "date": closeness(item.created_at, question.times) if question.times else 0.0,
        "only_time": _asks_only_time(question) and _of_time(item.created_at, question.times),
        "implied": float(share >= 1 and _is_implied(held, question.text, item.content)),
        "another": alone * _about_another(question, item, held, own_names) if alone else 0.0,
        "no_value": alone * lacks_value(question, item.content) if alone else 0.0,
        "asks_when": float(question.asks_when),
        "when": float(question.asks_when and says_when(item.content)),
        "question": float(is_asking),
        "filler": float(brief > 0 and words.is_filler(item.content)),
        "length": length,
    }


def _is_implied(held: Set[str], *texts: str) -> bool:
    """Tell whether one of *texts* means some of the terms without having a word for them."""
    return any(not held.isdisjoint(words.implied_terms(text)) for text in texts)


def _how_brief(length: float) -> float:
    """Return how much a message of a chat is like a note, from 0 to 1: one short statement."""
    return min(1.0, max(0.0, (_NOT_BRIEF - length) / (_NOT_BRIEF - _BRIEF)))


def _share_of_sentence(question: Question, item: MemoryItem, held: frozenset[str]) -> float:
    """Return how much of the question the best sentence of an item holds, from 0 to 1.

    Who tells much at once answers by one sentence; words from all over a text meet by chance. What
    a short text means without a word for it counts for each sentence.
    """
    if len(held) == 1 and "?" not in item.content:  # as mostly: it stands in a statement
        return _share(question.terms, held)
    passage = best_passage(item.content, held)
    sentences = _sentences(passage)
    implied = held.difference(*(terms for terms, _ in sentences))
    if passage is not item.content:
        implied = frozenset()
    shares = (_share(question.terms, terms, implied) for terms, asks in sentences if not asks)
    return max(shares, default=0.0)


_sentences = text_cache(
    max_bytes=_MAX_BYTES, size_of=lambda cut: sum(300 + 100 * len(terms) for terms, _ in cut)
)(words.sentence_terms)


def measures_of_vector(values: Measures, cosine: float, *, coverage: float) -> dict[str, float]:
    """Return what the *cosine* of an item says, beside what was measured of its text.

    Among notes, each of which is about something else, it says more than in a talk about one thing.
    So it does of a brief message.
    *coverage* is how well the model knows the language of the question, and that of the item.
    """
    return {
        "cosine": cosine,
        "note_cosine": values["note"] * cosine,
        "brief_cosine": values["brief"] * cosine,
        "coverage": coverage,
    }


def coverage_of(item: MemoryItem, coverage: float, *, elsewhere: float) -> float:
    """Return how well the model knows both the question and an item.

    Texts of which it knows nothing are all alike for it, and near to a question that says little.
    """
    text = item.content[:_BEGINNING]
    if elsewhere >= coverage or (text.isascii() and any(map(str.isalnum, text))):
        return coverage
    is_elsewhere = all(
        each.isdigit() or words.is_of_other_script(each) for each in words.tokens(text)
    )
    return elsewhere if is_elsewhere else coverage


def measures_of_fact(
    question: Question,
    fact: MemoryItem,
    values: Measures,
    *,
    answers: bool | None,
    has_begun_then: bool,
) -> Measures:
    """Return *values* as those of a fact: its time is when it holds, not when it was written down.

    One that *answers* holds at the time asked about, so it has the words for that time, too; `None`
    if no time is asked about, or what held before may answer as well. *has_begun_then* is whether
    it is something that happened at that time.
    """
    happened = float(bool(question.times) and has_begun_then)
    only_time = _IN_TIME * happened if _asks_only_time(question) else 0.0
    if answers is None:
        return {**values, "date": happened, "only_time": only_time}
    if not answers:
        return {**values, "date": 0.0, "only_time": only_time, "outdated": 1.0}
    changed = {"date": happened, "only_time": only_time}
    held = frozenset(question.terms) & terms_of(fact)
    if question.times and held:
        times = {term for term in question.terms if _is_time(term)}
        part = 1 - _share(question.terms, times - held)
        for name in ("prev", "near", "note_near", "chat_near", "brief_share"):
            if name in values:
                changed[name] = min(1.0, values[name] / part)
        changed["date"] = 1.0
        if changed.get("near", 0.0) >= 1:
            changed["implied"] = float(_is_implied(held, question.text, fact.content))
    return {**values, **changed}


def _share(terms: Sequence[str], *held: Set[str]) -> float:
    """Return how much of *terms* is held, from 0 to 1."""
    total = share = 0.0
    everyday = _everyday()
    for term in terms:
        tells = _TELLS_LITTLE if term in everyday else 1.0
        total += tells
        for each in held:
            if term in each:
                share += tells
                break
    return share / total if total else 0.0


def _tells(term: str) -> float:
    return _TELLS_LITTLE if term in _everyday() else 1.0


@cache
def _everyday() -> frozenset[str]:
    return frozenset(words.terms(" ".join(languages.everyday_words())))


def _about_another(
    question: Question, item: MemoryItem, held: Set[str], own_names: Set[str]
) -> float:
    """Return how much of what the question names is not in a note that names another: 0 to 1.

    In a talk that tells nothing, as a name is said once. Neither does it in a note that somebody
    wrote about themselves.
    """
    contradicting = contradicts(question, item, held, own_names=own_names)
    missing = question.names - held - _time_terms()
    if question.times:  # which `date` is about
        missing = frozenset(name for name in missing - _asks_time() if not _is_number(name))
    if any(map(_is_number, missing)):
        naming = frozenset(words.terms(without_values(question.text)))
        missing = frozenset(name for name in missing if name in naming or not _is_number(name))
    if missing and item.metadata.user_id is not None:
        missing -= frozenset(words.terms(item.metadata.user_id))
    content = as_shown(item).content
    if not missing or contradicting == 1 or _OWN.search(content) is not None:
        return contradicting
    others = names_in(shortened(content)).difference(question.terms, _time_terms())
    kinds = set(map(_is_number, others))
    return max(
        contradicting, sum(_is_number(name) in kinds for name in missing) / len(question.names)
    )


def _is_number(name: str) -> bool:
    return any(map(str.isdigit, name))


def _asks_only_time(question: Question) -> bool:
    """Tell whether it asks what happened at a time, and names nothing else."""
    if not (question.times and question.asks_past):
        return False
    says_little = (_is_time(term) or term in _everyday() for term in question.terms)
    return all(says_little) or asks_only_time(question.text)


def _of_time(moment: datetime, times: Sequence[Span]) -> float:
    """Return how relevant what is of *moment* is to a question about nothing but *times*."""
    return (_IN_TIME if is_within(moment, times) else _NEAR_TIME) * closeness(moment, times)


def _is_time(term: str) -> bool:
    is_number = term.rstrip("stndrh").isdigit()
    return is_number or term in _time_terms() or term in _asks_time()


@cache
def _time_terms() -> frozenset[str]:
    return frozenset(words.terms(_TIMES))


@cache
def _asks_time() -> frozenset[str]:
    return frozenset(words.terms(_ASKS_TIME))


def relevance(values: Measures, *, weights: Mapping[str, Measures] | None = None) -> float:
    """Return the probability that what was measured so answers the question.

    What is `known` without a comparison is as it is. As far as the model does not know the language
    of the question, words decide. So they do for
    what a text says without the word: a model sees no name in "I'm Alice". What happened at a time
    is told by when a memory is of, whatever its words are. A note about another than the
    question names is hardly an answer, and neither is what is only polite.
    """
    if "known" in values:
        return values["known"]
    weights = WEIGHTS if weights is None else weights
    likely = _probability(values, weights[weights_for(values)])
    coverage = values.get("coverage", 1.0)
    if coverage < 1:
        likely = coverage * likely + (1 - coverage) * _probability(values, weights["words"])
    if values["implied"]:
        likely += (1 - likely) * _probability(values, weights["words"])
    if values["only_time"] and not values["question"]:
        likely = max(likely, values["only_time"] * (1 - values.get("echo", 0.0)))
    likely *= 1 - (1 - _FILLER) * values["filler"]
    likely *= 1 - (1 - _WITHOUT_VALUE) * values["no_value"]
    likely *= 1 - (1 - OUTDATED) * values.get("outdated", 0.0)
    return likely * (1 - (1 - _ABOUT_ANOTHER) * values["another"])


def _probability(values: Measures, weights: Measures) -> float:
    points = _ECHO * values.get("echo", 0.0)
    for name, weight in weights.items():
        points += weight * (1.0 if name == "always" else values[name])
    return 1 / (1 + math.exp(-points))


def weights_for(values: Measures) -> str:
    """Return the name of the weights for what was measured."""
    if "detail" in values:
        return "details"
    if "cosine" not in values:
        return "words"
    return "meaning" if "echo" in values else "nearest"


def _weights(**values: float) -> Measures:
    return MappingProxyType(values)


# Fitted: `python -m benchmarks.recall_relevance --data … --write` replaces all below.
WEIGHTS: Mapping[str, Measures] = MappingProxyType({
    "words": _weights(
        always=-3.92, own=0.47, prev=1.91, near=1.3, speaker=2.1, people=-0.98, assistant=-3.08,
        you=-1.74, assistant_you=3.37, note=0.51, note_near=4.38, chat=0.55, chat_near=-3.72,
        sentence=3.58, brief=-1.96, brief_share=7.32, times=-0.04, date=1.2, asks_when=-1.35,
        when=1.59, question=-0.56, length=-0.2,
    ),
    "meaning": _weights(
        always=-5.04, own=0.16, prev=1.4, near=1.02, speaker=2.0, people=-0.98, assistant=-2.88,
        you=-1.26, assistant_you=3.02, note=-2.69, note_near=-0.41, chat=0.94, chat_near=-4.44,
        sentence=4.14, brief=-2.01, brief_share=-1.89, times=-0.3, date=1.17, asks_when=-1.35,
        when=1.34, question=-0.54, length=0.06, cosine=3.5, note_cosine=12.28, brief_cosine=9.57,
    ),
    "details": _weights(
        always=-5.99, own=0.14, prev=0.39, near=0.58, speaker=1.98, people=-0.97, assistant=-2.7,
        you=-1.05, assistant_you=3.07, note=-2.42, note_near=0.06, chat=-1.14, chat_near=-4.53,
        sentence=2.91, brief=-1.89, brief_share=-1.35, times=-0.39, date=1.38, asks_when=-1.32,
        when=1.26, question=-0.55, length=-0.08, cosine=1.51, note_cosine=11.08, brief_cosine=8.65,
        detail=2.33, detail_near=2.31, chat_detail=3.95,
    ),
    "nearest": _weights(
        always=-4.66, own=0.55, speaker=2.69, people=-1.1, assistant=-4.95, you=-2.64,
        assistant_you=4.86, note=-3.51, chat=-0.38, brief=-2.33, brief_share=0.59, times=-1.59,
        date=2.46, asks_when=-1.56, when=1.89, question=-0.74, length=0.23, cosine=3.06,
        note_cosine=13.39, brief_cosine=8.46,
    ),
})  # fmt: skip
"""By what is at hand: words; vectors, too; vectors of words, too; one item's words and cosine."""
