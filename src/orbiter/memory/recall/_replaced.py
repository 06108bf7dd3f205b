"""Statements that replace older ones: for a question about now, the newer one comes first.

"I moved to Paris" replaces "I live in Oslo". What tells is a cue of change ("no longer", "moved",
"now", "instead of"), the same subject, the question's topic in both, and who says it later.
Careful: what is not clearly replaced keeps its place, and nothing is ever left out.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice, repeat

from orbiter.memory._lazy import lazy_pattern
from orbiter.memory.model.items import AIMemory, MemoryItem, ToolMemory
from orbiter.memory.model.protocols import LexicalStore, MemoryStore
from orbiter.memory.model.trust import trust_of
from orbiter.memory.recall._candidate_pool import (
    are_many,
    as_indexed,
    as_read,
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
from orbiter.memory.recall._foreign_statements import foreign_terms, statement_in_english
from orbiter.memory.recall._mode_search import RecallRequest
from orbiter.memory.recall._modes import RecallMode
from orbiter.memory.recall._query_analysis import Question
from orbiter.memory.recall._relevance import relevance
from orbiter.memory.recall._scoring import Scored, in_time, shifts_behind
from orbiter.memory.recall._select import Candidates
from orbiter.memory.recall._statements import (
    PERSON,
    TOPICS,
    Sentence,
    news_in,
    sentences_of,
    stems,
    terms_in,
    topics_asked,
    topics_in,
    topics_of,
)
from orbiter.memory.tasks.offload import apart
from orbiter.memory.text import words

__all__ = ["find_replacements", "prefer_newer"]

_MAX_COMPARED = 40
"""How many of the best candidates are compared with each other."""
_BEST = 3
"""Of how many of them a second look asks for what replaces them,"""
_MAX_TERMS = 12
"""by how many of their words each."""
_MEASURES = """
age cost dollar euro fee increase kg lower meter mile number pay per percent pound price raise
reduce
"""
"""Words that only say of what kind a value is, or how it changed."""
_TELLS_BEFORE = lazy_pattern(
    r"\b(?:before|former(?:ly)?|from|previous(?:ly)?|prior|used to)\b", re.IGNORECASE
)
"""What a text tells of a change that also tells what was before it."""
_TELLS_BOTH = 0.7
"""Not fitted: how likely such a text answers what was before that change."""
_WITH_WHOM = lazy_pattern(r"\bwhom?\b.*\bwith\b|\bwith whom?\b", re.IGNORECASE)
_STATES = tuple(frozenset((topic.split()[0],)) for topic in TOPICS)
"""What is so of somebody, each as the topics of a question."""
_REPEATED = 2 / 3
"""Share of its words from which a sentence of an assistant only repeats what it was told."""


def _replaces(
    newer: Sentence, older: Sentence, topics: frozenset[str], names: frozenset[str]
) -> bool:
    """Tell whether a sentence says that another one does not hold any more.

    *topics* and *names* are the question's.
    """
    is_own = newer.is_first_person and older.is_own and older.heads.isdisjoint(PERSON)
    is_same = _is_same_subject(newer, older)
    who = names | PERSON
    is_resumed = newer.is_again and any(topics & each for each in _resumed(newer, older))
    if (is_same and is_resumed) or (
        (is_same or is_own)
        and any(
            _has_ended(newer, older, ended, topics)
            and not ended <= who & newer.heads  # one who has left has not lost everything
            and not _leaves(older, ended, topics)
            for ended in newer.ended
        )
    ):
        return True
    if not is_same or newer.is_added or older.is_event or _says_again(newer, older):
        return False
    topic = topics & older.topics
    if topic and newer.value and newer.value == older.value:
        return _numbers(newer) != _numbers(older)
    shared = topic & newer.topics
    if not _is_new_of(newer, older, shared, topics):
        return False
    who |= older.heads & newer.terms
    is_renewed = any(shared & new for new in _renewed(newer, older))
    if (is_renewed or not shared <= who) and _covers(newer, older, topic, who):
        return True
    who |= newer.heads & older.terms
    is_another = bool(names & older.terms - newer.terms)  # the meeting with Ana, not with Ben
    is_named = bool(newer.heads & names)
    return not is_another and _is_of_one_kind(newer, older, who, is_named=is_named)


def _may_replace(newer: Sentence, older: Sentence, stated: tuple[int, int]) -> bool:
    """Tell whether both may be about one thing, of which the newer one tells what lasts.

    *stated* is the year and month of the older one: what happened before is no news.
    """
    if newer.is_for_once and not older.has_date:
        return False
    both = newer.labels.keys() & older.labels.keys()
    if any(newer.labels[each].isdisjoint(older.labels[each]) for each in both):
        return False  # the Friday call is not the Monday call
    return newer.month is None or newer.month >= stated


def _has_ended(
    newer: Sentence, older: Sentence, ended: frozenset[str], topics: frozenset[str]
) -> bool:
    """Tell whether what has *ended* is what the older sentence is about.

    Half of its words are enough if both tell of what is asked, and each has a word of its own:
    the fire brigade may be the fire station, and a choir of the hospital is not the hospital.
    """
    both = ended & older.terms
    if 2 * len(both) != len(ended):
        return 2 * len(both) > len(ended)
    rest = topics - newer.heads - ended
    return bool(rest & older.topics & newer.topics and older.topics - topics - ended)


def _resumed(newer: Sentence, older: Sentence) -> list[frozenset[str]]:
    """Return what had ended and is so again: what is done, or the subject and nothing besides."""
    done = newer.terms - newer.heads
    return [ended for ended in older.ended if ended <= done or ended == newer.terms]


def _numbers(sentence: Sentence) -> set[str]:
    return {word for word in sentence.tokens if word[0].isdigit()}


def _says_again(newer: Sentence, older: Sentence) -> bool:
    """Tell whether the newer one says the same, or only that something is so again."""
    clauses = (*newer.changed, *newer.kept)
    is_within = any(older.tokens <= clause for clause in clauses)
    if newer.is_again and not older.excludes:  # who plays chess again may still play tennis
        return True
    return is_within and newer.is_negated == older.is_negated


def _is_of_one_kind(
    newer: Sentence, older: Sentence, who: frozenset[str], *, is_named: bool
) -> bool:
    """Tell whether two sentences that share only whom they are about say the same about them.

    "Anika is 7 now" does of "Anika is 6", and "Anika joined a chess club" does of neither. They
    tell values of one kind and nothing else; *is_named* is a subject that the question names, of
    which much may be told.
    """
    own, others = (each.terms - each.names - who - stems(_MEASURES) for each in (newer, older))
    both = newer.names & older.names
    has_name = all(each.names - who - both - each.heads for each in (newer, older))
    if own == others and (has_name or (newer.has_number and older.has_number)):
        return True
    is_same = own == others if is_named or newer.heads <= PERSON else own <= others
    return is_same and newer.has_time and older.has_time


def _renewed(newer: Sentence, older: Sentence) -> list[frozenset[str]]:
    """Return of what there is something new that the older sentence is about, too."""
    return [new for new in newer.renewed if new - newer.names <= older.topics]


def _leaves(older: Sentence, ended: frozenset[str], topics: frozenset[str]) -> bool:
    """Tell whether only another part of an enumeration has ended than the question is about."""
    if not any(part <= ended for part in older.parts):
        return False
    left = frozenset().union(*(part for part in older.parts if not part <= ended)) - ended
    return bool(left) and (bool(topics & left) or topics.isdisjoint(topics_of(ended)))


def _is_new_of(
    newer: Sentence, older: Sentence, shared: frozenset[str], topics: frozenset[str]
) -> bool:
    """Tell whether a sentence speaks of a change of what both are about, if that is asked."""
    if not shared or 2 * len(shared) < len(topics - stems(_MEASURES)):
        return False
    return bool(newer.changed) or any(shared & new for new in _renewed(newer, older))


def _covers(newer: Sentence, older: Sentence, topic: frozenset[str], who: frozenset[str]) -> bool:
    """Tell whether the newer sentence speaks of all that the older one says about the question."""
    if len(topic) == 1:  # one word may stand anywhere by chance
        return topic <= older.leads and topic <= newer.leads
    if topic <= newer.topics:
        return True
    is_named = bool(newer.heads & older.terms or older.heads & newer.terms)
    return is_named and topic - who <= newer.topics


def _is_same_subject(newer: Sentence, older: Sentence) -> bool:
    owners = (newer.whose_persons, older.whose_persons)
    if all(owners) and owners[0].isdisjoint(owners[1]):  # my wife is not Tom's
        return False
    if both := newer.heads & (older.terms - older.whose_persons):
        is_state = older.is_first_person and not older.heads and both <= stems("live work")
        return not is_state or newer.is_first_person  # who works has not changed the work trip
    if older.is_first_person and newer.is_first_person:
        return True
    if older.heads & (newer.terms - newer.whose_persons):
        if newer.owners - older.terms:  # "my sister's salary" is not "my salary"
            return False
        return not (newer.is_first_person and older.heads <= PERSON)
    return False


def find_replacements(
    question: Question, older: Sequence[MemoryItem], newer: Sequence[MemoryItem]
) -> dict[str, MemoryItem]:
    """Return which of *older* are replaced, by id, each with the newest of *newer* that does so."""
    text = statement_in_english(question.as_statement)
    is_foreign = text != question.as_statement
    # Without the names of those who speak.
    topics = topics_in(text) if is_foreign else topics_asked(question.terms)
    if _WITH_WHOM.search(text):  # who moves may still live with the same person
        topics -= topics_in("live work")
    # Who asks for all of it asks for each of these.
    matters = _STATES if question.asks_about_user else (topics,)
    changes: dict[_Who, list[tuple[MemoryItem, list[Sentence]]]] = {}
    for item in sorted(filter(_is_statement, newer), key=in_time, reverse=True):
        if news := news_in(item.content):
            changes.setdefault(_who_states(item), []).append((item, news))
    replaced: dict[str, MemoryItem] = {}
    outdated: list[tuple[MemoryItem, list[Sentence]]] = []
    for item in filter(_is_statement, older) if changes else ():
        if item.content == question.text:  # asked for by its very words
            continue
        for later, news in changes.get(_who_states(item), ()):
            if later.created_at <= item.created_at:
                break  # and so are all that follow
            stated = (item.created_at.year, item.created_at.month)
            if trust_of(later) < trust_of(item):  # a web page does not overrule its reader
                continue
            sentences = [
                other
                for other in sentences_of(item.content)
                if any(
                    _replaces(one, other, matter, question.names)
                    and _may_replace(one, other, stated)  # last, as few get there
                    for one in news
                    for matter in matters
                )
            ]
            if sentences:
                replaced[item.id] = later
                outdated.append((item, sentences))
                break
    return replaced | _confirmed(older, replaced, outdated)


def _confirmed(
    older: Sequence[MemoryItem],
    replaced: Mapping[str, MemoryItem],
    outdated: Sequence[tuple[MemoryItem, list[Sentence]]],
) -> dict[str, MemoryItem]:
    """Return what an assistant repeats of the *outdated* sentences of a statement before, by id."""
    confirmed: dict[str, MemoryItem] = {}
    for item in filter(_is_assistants, older) if outdated else ():
        for stated, sentences in outdated:
            if (
                stated.created_at <= item.created_at < replaced[stated.id].created_at
                and item.metadata.user_id == stated.metadata.user_id
                and any(map(_repeats, sentences_of(item.content), repeat(sentences)))
            ):
                confirmed[item.id] = replaced[stated.id]
                break
    return confirmed


def _repeats(own: Sentence, sentences: Sequence[Sentence]) -> bool:
    """Tell whether a sentence hardly says more than one of *sentences*."""
    least = max(1, _REPEATED * len(own.tokens))
    return any(len(own.tokens & other.tokens) >= least for other in sentences)


def _is_assistants(item: MemoryItem) -> bool:
    return isinstance(item, AIMemory) and speaker_of(item) is None


def _is_statement(item: MemoryItem) -> bool:
    if item.memory_type == "fact" or isinstance(item, ToolMemory):
        return False  # facts are judged by their keys
    return not _is_assistants(item)


_Who = tuple[str | None, str | None, str | None]


def _who_states(item: MemoryItem) -> _Who:
    """Return whose statement it is: only what the same person says can replace it."""
    return item.metadata.user_id, speaker_of(item), name_before_colon(item.content)


async def prefer_newer(
    store: MemoryStore, candidates: Candidates, request: RecallRequest, *, mode: RecallMode
) -> Candidates:
    """Return the candidates with each statement behind the one that replaces it.

    It is the other way round where what came before is asked for. A statement that replaces one of
    the best is brought in if nothing else speaks for it. In mode `recent` the order is that of
    time, and what is replaced is only marked.
    """
    worthy = list(islice(filter(candidates.has_evidence, candidates.scored), _MAX_COMPARED))
    if candidates.question.asks_before and mode != "recent":
        return await apart(are_many(one.item for one in worthy), _earlier_first, candidates, worthy)
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
    text = candidates.question.text
    own = frozenset(terms_in(statement_in_english(text)))  # no `stems`: it keeps what it is asked
    topics = [topic for topic in TOPICS if own & stems(topic)]
    terms = [term for topic in topics for term in sorted(stems(topic))]
    terms += foreign_terms(text, [*terms, *" ".join(topics).split()])
    terms += [term for item in best for term in words.terms(item.content)[:_MAX_TERMS]]
    since = min(item.created_at for item in best)
    if request.filters.since is not None:
        since = max(since, request.filters.since)
    query = replace(request.filters, since=since, limit=_MAX_COMPARED)
    matches = await store.match_words(list(dict.fromkeys(terms)), query)
    known = {one.item.id for one in candidates.scored}
    names = candidates.question.user_names
    found = (item for item in matches.items if item.id not in known)
    return [Scored(as_read(as_indexed(item), names), -1, {}) for item in found]


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

    def has_evidence(one: Scored) -> bool:
        return one.item.id in brought or candidates.has_evidence(one)

    def measures(one: Scored) -> Mapping[str, float]:
        # What replaces another answers at least as well.
        both = [one] if one.place >= 0 else []
        both += [older[one.item.id]] if one.item.id in older else []
        return {} if of_table is None else max(map(of_table, both), key=relevance)

    of_table = candidates.measures
    older = {replaced[one.item.id].id: one for one in reversed(worthy) if one.item.id in replaced}
    kept = [one for one in scored if one.place >= 0 or one.item.id in brought]
    return _shifted(candidates, kept, shifts, texts)._replace(
        has_evidence=has_evidence,
        replaced={**candidates.replaced, **replaced},
        measures=None if of_table is None else measures,
    )


def _earlier_first(candidates: Candidates, worthy: Sequence[Scored]) -> Candidates:
    """Return the candidates with what came later behind what came before it, which is asked for."""
    items = [one.item for one in worthy if _is_statement(one.item)]
    replaced = find_replacements(candidates.question, items, items)
    later = {newer.id for newer in replaced.values()}.difference(replaced)
    both = set[str]()
    if named := topics_in(candidates.question.before).difference(*_STATES):
        statements = [
            one.item for one in candidates.scored[:_MAX_COMPARED] if _is_statement(one.item)
        ]
        statements = [item for item in statements if named <= frozenset(terms_in(item.content))]
        both = {item.id for item in statements if _TELLS_BEFORE.search(item.content)}
        change = [item for item in statements if item.id not in both]
        if change:
            since, involved = min(item.created_at for item in change), {*replaced, *later}
            later = {item.id for item in change}
            later |= {each.id for each in items if each.id in involved and each.created_at >= since}
    later -= both
    if not (later or both):
        return candidates
    earlier = [item for item in items if item.id in replaced and item.id not in later]
    texts = {item.id: (REPLACED, replaced_by(replaced[item.id])) for item in earlier}
    shifts: dict[str, float] = {}
    if earlier:
        last = max(earlier, key=in_time)
        shifts = shifts_behind(worthy, dict.fromkeys(later, last))
        texts |= dict.fromkeys(later, (REPLACES, f"came after {quoted(last)}"))

    def has_evidence(one: Scored) -> bool:
        return one.item.id in both or candidates.has_evidence(one)

    def measures(one: Scored) -> Mapping[str, float]:
        values = {} if of_table is None else of_table(one)
        if one.item.id in both:
            return {"known": max(_TELLS_BOTH, relevance(values))}
        return {**values, "outdated": 1.0} if one.item.id in later else values

    of_table = candidates.measures
    return _shifted(candidates, candidates.scored, shifts, texts)._replace(
        has_evidence=has_evidence,
        replaced={**candidates.replaced, **{item.id: replaced[item.id] for item in earlier}},
        measures=None if of_table is None else measures,
    )


def _shifted(
    candidates: Candidates,
    scored: Sequence[Scored],
    shifts: Mapping[str, float],
    texts: Mapping[str, tuple[str, str]],
) -> Candidates:
    """Return the candidates in the order that *shifts* make, with *texts* as further reasons."""

    def why(one: Scored) -> Explanation:
        if one.item.id not in texts:
            return candidates.why(one)
        part, text = texts[one.item.id]
        others = {name: points for name, points in one.points.items() if name != part}
        reasons = candidates.why(Scored(one.item, one.place, others)) if others else ()
        reasons = (*reasons, Reason(part, shifts.get(one.item.id, 0.0), text))
        return Explanation(sorted(reasons, key=lambda reason: -abs(reason.points)))

    placed = [
        Scored(one.item, one.place, {**one.points, texts[one.item.id][0]: shift})
        if (shift := shifts.get(one.item.id))
        else one
        for one in scored
    ]
    if shifts:
        placed.sort(key=lambda one: (-one.score, -one.item.created_at.timestamp(), one.item.id))
    return candidates._replace(scored=placed, why=why)
