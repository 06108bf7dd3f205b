"""Statements that replace older ones: for a question about now, the newer one comes first.

"I moved to Paris" replaces "I live in Oslo". What tells is a cue of change ("no longer", "moved",
"now", "instead of"), the same subject, the question's topic in both, and who says it later. English
only, and careful: what is not clearly replaced keeps its place, and nothing is ever left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import NamedTuple

from orbiter.memory._lazy import lazy_pattern
from orbiter.memory.model.items import AIMemory, MemoryItem, ToolMemory
from orbiter.memory.model.protocols import LexicalStore, MemoryStore
from orbiter.memory.model.trust import trust_of
from orbiter.memory.recall._candidate_pool import (
    are_many,
    as_indexed,
    name_before_colon,
    speaker_of,
)
from orbiter.memory.recall._explanation import (
    REPLACED,
    REPLACES,
    Explanation,
    Reason,
    quoted,
    replaced_by,
)
from orbiter.memory.recall._mode_search import RecallRequest
from orbiter.memory.recall._modes import RecallMode
from orbiter.memory.recall._query_analysis import Question
from orbiter.memory.recall._relevance import relevance
from orbiter.memory.recall._scoring import Scored, in_time, shifts_behind
from orbiter.memory.recall._select import Candidates
from orbiter.memory.tasks.offload import apart
from orbiter.memory.text import words
from orbiter.memory.text.text_caches import text_cache

__all__ = ["find_replacements", "prefer_newer"]

_MAX_COMPARED = 40
"""How many of the best candidates are compared with each other."""
_BEST = 3
"""Of how many of them a second look asks for what replaces them,"""
_MAX_TERMS = 12
"""by how many of their words each."""
_MAX_CHARACTERS, _MAX_SENTENCE = 2_000, 400
"""Characters of a text, and of a sentence, that may be a statement about somebody's life."""
_MAX_BYTES = 8 * 2**20
"""How much is remembered of what was read, some 3 KB of a text: each question compares hundreds."""

_SENTENCE = lazy_pattern(r"[^.!?\n]+(?:\.(?=\w)[^.!?\n]+)*[.!?\n]*")
_CLAUSE = lazy_pattern(r"[,;:]\s|\s(?:[–—-]+|but|so|and(?: then|(?= (?:i|we|he|she|they)\b)))\s")

_PARTS = lazy_pattern(r"[,;:]\s|\s(?:and|or|but|as well as|plus)\s")
"""What stands between the parts of an enumeration, each of which may end alone."""

_CHANGE = lazy_pattern(
    r"\b(?:(?<!years )(?<!months )(?<!weeks )(?<!right )(?<!just )(?<!for )(?<!by )(?<!until )now"
    r"(?! and (?:then|again))(?! that)|nowadays|these days|currently|instead|from now on|as of"
    r"|since (?:then|last|this|january|february|march|april|may|june|july|august|september|october"
    r"|november|december|(?:19|20)\d\d)"
    r"|moved|relocated|switched|changed|swapped|replaced|renamed|became|(?:has|have|'ve|'s) become"
    r"|postponed|rescheduled|brought forward|put off|raised|increased|reduced|lowered"
    r"|(?:went|gone) (?:up|down)|rose|risen|(?:dropped|fell|fallen) (?:to|by|from)|turns out"
    r"|turned out|actually|correction|update[sd]?|promoted|transferred|took over|taken over"
    r"|handed over|joined|started (?:as|at|working)|got married)\b"
)
"""Cues that something is no longer what it was."""
_NEW = lazy_pattern(r"\b(?:a|my|our|the|his|her|its|their) new (?P<what>\w+(?: \w+)?)")
"""Something new replaces the old one of its kind."""
_OBJECT_AFTER = lazy_pattern(
    r"\b(?:no longer|used to|instead of|rather than|in place of|stopped|quit|gave up|given up"
    r"|dropped|cancelled|canceled|called off|left|sold|got rid of|pulled out of|backed out of"
    r"|dropped out of|resigned(?: from)?|retired from|withdrew from|ended|broke up with"
    r"|abandoned|replaced"
    r"|(?:switched|changed|moved|went|gone|swapped|transferred) (?:over )?from)\b(?P<object>.*)"
)
"""Cues of an end: what follows is what ended; if nothing follows, it is what stands before."""
_OBJECT_BEFORE = lazy_pattern(
    r"\A(?P<object>.*)\b(?:(?:is|are|was|were|be|been|'s|'re) (?:now |all )?(?:cancelled|canceled"
    r"|called off|off(?! to)|over|closed|gone|history|discontinued|sold|dropped)|fell through"
    r"|fallen through|closed|shut down|has left|have left|(?:is|are)(?:n't| not) happening)\b"
)
_OBJECT_BETWEEN = lazy_pattern(
    r"(?:\bnot\b|n't\b|\bnever\b)(?P<object>.*?)\b(?:any ?more|any longer)\b"
)
_ANY_CUE = lazy_pattern(
    r"\b(?:now|nowadays|these|currently|instead|as of|since|moved|relocated|switched|changed"
    r"|swapped|replaced|renamed|became|become|postponed|rescheduled|brought|put off|raised"
    r"|increased|reduced|lowered|went|gone|rose|risen|dropped|fell|fallen|turns out|turned out"
    r"|actually|correction|update[sd]?|promoted|transferred|took over|taken over|handed over"
    r"|joined|started|got|new|no longer|used to|rather than|in place of|stopped|quit|gave up"
    r"|given up|cancelled|canceled|called off|left|sold|pulled out|backed out|resigned|retired"
    r"|withdrew|ended|broke up|abandoned|off|over|closed|history|discontinued|shut down|happening"
    r"|any ?more|any longer)\b"
)
"""At least one of these stands in whatever one of the cues above is found in."""
_OBJECT_ENDS = lazy_pattern(
    r"\b(?:and|but|because|since|as|to|by|with|for|so|when|after|before|in order|due)\b"
)
_UNREAL = lazy_pattern(
    r"\b(?:maybe|perhaps|might|could|would|should|if|whether|unless"
    r"|(?:think|thought|thinking|dream\w*|talk\w*) (?:about|of)|consider\w*"
    r"|plan(?:s|ned|ning)? (?:to|on)|wants? to|wanted to|hop(?:e|es|ing)|wish\w*|almost|nearly"
    r"|still)\b|\?"
    r"|(?:\bnot|\bnever|n't) (?:yet )?(?:been )?(?:moved|switched|changed|become|renamed|cancelled"
    r"|started|quit|left|stopped)\b"
)
"""What has not happened, or goes on as before."""
_ADDED = lazy_pattern(r"\b(?:also|too(?=\W*$)|as well|another|second|besides|in addition|both)\b")
_PRONOUN = lazy_pattern(r"\b(?:it|them|that|this|him|her|there)\b")
_FIRST = frozenset(("i", "we", "i'm", "i've", "i'd", "i'll", "we're", "we've", "we'll", "we'd"))
_LEADING = frozenset(
    """
    a after all also an and any as at because but by during each every finally for from his her in
    it its last later my new next no now of on our own recently since so some still that the their
    then these this those today until when while with yes your
    """.split()  # noqa: SIM905 - read by people
)
"""Words that may stand before a subject."""
_TIMES = frozenset(
    """
    am day evening friday hour january february march april may june july august september october
    november december last minute moment monday month morning next night noon o'clock pm saturday
    spring summer autumn winter sunday thursday time today tomorrow tonight tuesday wednesday week
    weekend year yesterday yearly monthly weekly daily
    """.split()  # noqa: SIM905 - read by people
)
_LIGHT = """
be become come current do give get go got have keep know like make put start take tell use want
"""
"""Verbs that say little about what a sentence is about."""
_CHANGES = "since change switch new move cancel drop stop quit now longer old previous"
_TOPICS = (
    "live lives reside relocate home moved",
    "work job employ employer hire join profession career",
    "cost price pay fee charge expensive raise",
    "name call rename title",
    "meet meeting meetup",
    "eat diet food vegetarian vegan",
)
"""Words for a state and for its change, which stand for each other."""
_OF_PLACE = lazy_pattern(r"\bmoved (?!the\b|my\b|our\b|his\b|her\b|their\b|a\b|an\b|it\b)")
"""To have moved is to live elsewhere, but not to have moved the sofa."""
_EVENT = lazy_pattern(
    r"(?<!is )(?<!are )(?<!am )(?<!i'm )(?<!be )(?<!'s )(?<!'re )\b(?:\w{2,}ed|ate|bought|broke"
    r"|built|came|did|drank|drove|fell|felt|flew|forgot|found|gave|got|had|heard|held|kept|knew|left|lost"
    r"|made|met|paid|ran|rode|said|sang|saw|sent|slept|sold|spent|stood|swam|taught|thought|told"
    r"|took|was|went|were|woke|won|wore|wrote)\b"
)
"""A verb of what has happened once, and stays true."""
_PERSON = frozenset(
    """
    aunt boss boyfriend brother child colleague cousin dad daughter father flatmate friend
    girlfriend grandfather grandma grandmother grandpa grandson granddaughter husband kid mom mother
    mum neighbor neighbour nephew niece parent partner roommate sister son uncle wife
    """.split()  # noqa: SIM905 - read by people
)


class _Sentence(NamedTuple):
    """What a sentence says."""

    terms: frozenset[str]
    """What it is about: without times, cues and verbs that say little."""
    topics: frozenset[str]
    """The same, with one word for those that stand for each other."""
    leads: frozenset[str]
    """The topics that its clauses begin with: the subject, and what is said of it first."""
    heads: frozenset[str]
    """The first word of the subject of each clause; empty for pronouns."""
    is_first_person: bool
    """Whether a clause is about the one who speaks."""
    is_event: bool
    """Whether it tells what has happened, not what is."""
    ended: tuple[frozenset[str], ...]
    """What has ended, by each cue of an end."""
    changed: tuple[frozenset[str], ...]
    """All the words of each clause that has a cue of change."""
    renewed: tuple[frozenset[str], ...]
    """Topics of which there is something new."""
    tokens: frozenset[str]
    is_added: bool
    parts: tuple[frozenset[str], ...]
    """What each part of an enumeration is about, as of "green tea and dark chocolate"."""


def _terms(text: str) -> list[str]:
    """Return the terms of an English text: one word alone does not tell its language."""
    return words.terms_of(words.tokens(text))


@cache
def _stems(text: str) -> frozenset[str]:
    return frozenset(_terms(text))


@cache
def _topic_of() -> Mapping[str, str]:
    return {term: topic.split()[0] for topic in _TOPICS for term in _stems(topic)}


def _about(text: str) -> frozenset[str]:
    """Return what a text is about: its terms without times, cues and verbs that say little."""
    kept = [word for word in words.tokens(text) if word not in _TIMES]
    terms = {term for term in words.terms_of(kept) if not term.isdigit()}
    return frozenset(terms) - _stems(_LIGHT) - _stems(_CHANGES)


def _topics(text: str) -> frozenset[str]:
    topics = _topics_of(_about(text))
    return topics | {_topic_of()["live"]} if _OF_PLACE.search(text) else topics


def _topics_of(terms: frozenset[str]) -> frozenset[str]:
    names = _topic_of()
    return frozenset(names.get(term, term) for term in terms)


def _head(clause: str) -> str | None:
    """Return the first word of a clause's subject: `I`, a term, or nothing for a pronoun."""
    for word in words.tokens(clause):
        if word in _FIRST:
            return "I"
        if word in _LEADING or word in _TIMES or word.isdigit():
            continue
        terms = _terms(word)
        return terms[0] if terms else None
    return None


def _ended(clause: str, before: str) -> list[frozenset[str]]:
    """Return what has ended by a clause; *before* is what "it" stands for."""
    sets = []
    for form in (_OBJECT_BETWEEN, _OBJECT_AFTER, _OBJECT_BEFORE):
        if match := form.search(clause):
            what = match["object"]
            if form is _OBJECT_AFTER:
                what = _OBJECT_ENDS.split(what)[0]
            terms = _about(what)
            if form is not _OBJECT_BEFORE and _PRONOUN.search(what):
                terms |= _about(before)
            if not terms:  # "Frau Winter has left"
                terms = _about(clause[: match.start("object")])
            sets.append(terms)
    return [terms for terms in sets if terms]


def _leads(clause: str, head: str | None) -> list[str]:
    """Return the topic of the subject, and of the word that says most about what it does."""
    ordered = (term for word in words.tokens(clause) for term in _ordered_topics(word, clause))
    return list(islice(ordered, 1 if head == "I" else 2))


def _ordered_topics(word: str, clause: str) -> frozenset[str]:
    return _topics(f"{word} to" if word == "moved" and _OF_PLACE.search(clause) else word)


def _read(sentence: str) -> _Sentence:
    text = sentence.replace("’", "'").lower()
    clauses = [clause for clause in _CLAUSE.split(text) if clause.strip()]
    heads = [_head(clause) for clause in clauses]
    ended: list[frozenset[str]] = []
    changed: list[frozenset[str]] = []
    renewed: list[frozenset[str]] = []
    for number, clause in enumerate(clauses):
        if _UNREAL.search(clause):
            continue
        ended += _ended(clause, " ".join(clauses[:number]))
        if _CHANGE.search(clause):
            changed.append(frozenset(words.tokens(clause)))
        renewed += [_topics(match["what"]) for match in _NEW.finditer(clause)]
    leads = [lead for each in zip(clauses, heads, strict=True) for lead in _leads(*each)]
    return _Sentence(
        _about(text),
        _topics(text),
        frozenset(leads),
        frozenset(head for head in heads if head not in (None, "I")),
        "I" in heads,
        _EVENT.search(clauses[0]) is not None if clauses else False,
        tuple(ended),
        tuple(changed),
        tuple(renewed),
        frozenset(words.tokens(text)) - words.COMMON,
        _ADDED.search(text) is not None,
        tuple(filter(None, map(_about, _PARTS.split(text)))),
    )


@text_cache(max_bytes=_MAX_BYTES)
def _sentences(content: str) -> tuple[_Sentence, ...]:
    """Return the sentences of a text that are no questions; a document makes no statement."""
    if len(content) > _MAX_CHARACTERS:
        return ()
    if name := name_before_colon(content):
        content = content.partition(f"{name}:")[2]
    parts = [part for part in _SENTENCE.findall(content) if not part.rstrip().endswith("?")]
    parts = [part for part in parts if len(part) <= _MAX_SENTENCE]
    return tuple(_read(part) for part in parts)


def _replaces(newer: _Sentence, older: _Sentence, topics: frozenset[str]) -> bool:
    """Tell whether a sentence says that another one does not hold any more."""
    if not _is_same_subject(newer, older):
        return False
    if any(
        2 * len(ended & older.terms) > len(ended) and not _leaves(older, ended, topics)
        for ended in newer.ended
    ):
        return True
    is_same_again = any(older.tokens <= clause for clause in newer.changed)
    if newer.is_added or older.is_event or is_same_again:
        return False
    topic = topics & older.topics
    return _is_new_of(newer, topic & newer.topics, topics) and _covers(newer, older, topic)


def _leaves(older: _Sentence, ended: frozenset[str], topics: frozenset[str]) -> bool:
    """Tell whether only another part of an enumeration has ended than the question is about."""
    if not any(part <= ended for part in older.parts):
        return False
    left = frozenset().union(*(part for part in older.parts if not part <= ended)) - ended
    return bool(left) and (bool(topics & left) or topics.isdisjoint(_topics_of(ended)))


def _is_new_of(newer: _Sentence, shared: frozenset[str], topics: frozenset[str]) -> bool:
    """Tell whether a sentence speaks of a change of what both are about, if that is asked."""
    if not shared or 2 * len(shared) < len(topics):
        return False
    return bool(newer.changed) or any(shared & new for new in newer.renewed)


def _covers(newer: _Sentence, older: _Sentence, topic: frozenset[str]) -> bool:
    """Tell whether the newer sentence speaks of all that the older one says about the question."""
    if len(topic) == 1:  # one word may stand anywhere by chance
        return topic <= older.leads and topic <= newer.leads
    shared = topic & newer.topics
    is_named = bool(newer.heads & older.terms or older.heads & newer.terms)
    return shared == topic or (is_named and 2 * len(shared) >= len(topic))


def _is_same_subject(newer: _Sentence, older: _Sentence) -> bool:
    if newer.heads & older.terms:
        return True
    if older.is_first_person and newer.is_first_person:
        return True
    if older.heads & newer.terms:
        return not (newer.is_first_person and older.heads <= _PERSON)
    return False


def find_replacements(
    question: Question, older: Sequence[MemoryItem], newer: Sequence[MemoryItem]
) -> dict[str, MemoryItem]:
    """Return which of *older* are replaced, by id, each with the newest of *newer* that does so."""
    topics = _topics(" ".join(question.terms))  # without the names of those who speak
    changes: dict[_Who, list[tuple[MemoryItem, list[_Sentence]]]] = {}
    for item in sorted(filter(_is_statement, newer), key=in_time, reverse=True):
        if news := _news(item.content):
            changes.setdefault(_who_states(item), []).append((item, news))
    replaced: dict[str, MemoryItem] = {}
    for item in filter(_is_statement, older) if changes else ():
        for later, news in changes.get(_who_states(item), ()):
            if later.created_at <= item.created_at:
                break  # and so are all that follow
            if (
                any(
                    _replaces(one, other, topics)
                    for one in news
                    for other in _sentences(item.content)
                )
                and trust_of(later) >= trust_of(item)  # a web page does not overrule its reader
            ):
                replaced[item.id] = later
                break
    return replaced


def _news(content: str) -> list[_Sentence]:
    """Return the sentences of a text that say that something ended, changed or is new."""
    if not _may_tell_news(content):
        return []
    return [one for one in _sentences(content) if one.changed or one.ended or one.renewed]


@text_cache(max_bytes=_MAX_BYTES, size_of=lambda _: 0)
def _may_tell_news(content: str) -> bool:
    """Tell whether a text has a cue at all: to read one takes a hundred times as long."""
    return _ANY_CUE.search(content.replace("’", "'").lower()) is not None


def _is_statement(item: MemoryItem) -> bool:
    if item.memory_type == "fact" or isinstance(item, ToolMemory):
        return False  # facts are judged by their keys
    return not isinstance(item, AIMemory) or speaker_of(item) is not None


_Who = tuple[str | None, str | None, str | None]


def _who_states(item: MemoryItem) -> _Who:
    """Return whose statement it is: only what the same person says can replace it."""
    return item.metadata.user_id, speaker_of(item), name_before_colon(item.content)


async def prefer_newer(
    store: MemoryStore, candidates: Candidates, request: RecallRequest, *, mode: RecallMode
) -> Candidates:
    """Return the candidates with each statement behind the one that replaces it.

    A statement that replaces one of the best is brought in if nothing else speaks for it. In mode
    `recent` the order is that of time, and what is replaced is only marked.
    """
    worthy = list(islice(filter(candidates.has_evidence, candidates.scored), _MAX_COMPARED))
    scored = list(candidates.scored)
    if worthy and candidates.question.asks_now and mode in ("hybrid", "words"):
        scored += await _look_further(store, candidates, request, worthy)
    is_long = are_many(one.item for one in scored)
    return await apart(is_long, _placed, candidates, scored, worthy, is_ordered=mode == "recent")


async def _look_further(
    store: MemoryStore, candidates: Candidates, request: RecallRequest, worthy: Sequence[Scored]
) -> list[Scored]:
    """Return newer items that share words with the best, or with a change of what is asked."""
    best = [one.item for one in worthy if _is_statement(one.item)][:_BEST]
    if not isinstance(store, LexicalStore) or not best:
        return []
    own = frozenset(_terms(candidates.question.text))  # no `_stems`: it keeps what it is asked
    terms = [term for topic in _TOPICS if own & _stems(topic) for term in sorted(_stems(topic))]
    terms += [term for item in best for term in words.terms(item.content)[:_MAX_TERMS]]
    since = min(item.created_at for item in best)
    if request.filters.since is not None:
        since = max(since, request.filters.since)
    query = replace(request.filters, since=since, limit=_MAX_COMPARED)
    matches = await store.match_words(list(dict.fromkeys(terms)), query)
    known = {one.item.id for one in candidates.scored}
    return [Scored(item, -1, {}) for item in map(as_indexed, matches.items) if item.id not in known]


def _placed(
    candidates: Candidates, scored: list[Scored], worthy: list[Scored], *, is_ordered: bool
) -> Candidates:
    items = [one.item for one in scored]
    replaced = find_replacements(candidates.question, [one.item for one in worthy], items)
    if not replaced:
        return candidates
    by = {newer.id for newer in replaced.values()}
    own = {one.item.id for one in worthy}
    brought = set[str]() if is_ordered else by - own
    involved = [one for one in scored if one.item.id in own or one.item.id in brought]
    shifts = {} if is_ordered else shifts_behind(involved, replaced)
    texts = {older: (REPLACED, replaced_by(newer)) for older, newer in replaced.items()}
    for one in worthy:
        if newer := replaced.get(one.item.id):
            texts.setdefault(newer.id, (REPLACES, f"replaces {quoted(one.item)}"))

    def why(one: Scored) -> Explanation:
        if one.item.id not in texts:
            return candidates.why(one)
        part, text = texts[one.item.id]
        others = {name: points for name, points in one.points.items() if name != part}
        reasons = candidates.why(Scored(one.item, one.place, others)) if others else ()
        reasons = (*reasons, Reason(part, shifts.get(one.item.id, 0.0), text))
        return Explanation(sorted(reasons, key=lambda reason: -abs(reason.points)))

    def has_evidence(one: Scored) -> bool:
        return one.item.id in brought or candidates.has_evidence(one)

    def measures(one: Scored) -> Mapping[str, float]:
        # What replaces another answers at least as well.
        both = [one] if one.place >= 0 else []
        both += [older[one.item.id]] if one.item.id in older else []
        return {} if of_table is None else max(map(of_table, both), key=relevance)

    of_table = candidates.measures
    older = {replaced[one.item.id].id: one for one in reversed(worthy) if one.item.id in replaced}
    placed = [
        Scored(one.item, one.place, {**one.points, texts[one.item.id][0]: shift})
        if (shift := shifts.get(one.item.id))
        else one
        for one in scored
        if one.place >= 0 or one.item.id in brought
    ]
    if not is_ordered:
        placed.sort(key=lambda one: (-one.score, -one.item.created_at.timestamp(), one.item.id))
    return candidates._replace(
        scored=placed,
        why=why,
        has_evidence=has_evidence,
        replaced={**candidates.replaced, **replaced},
        measures=None if of_table is None else measures,
    )
