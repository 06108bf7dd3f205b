"""Statements: what the sentences of a text say, and which tell of a change.

"I moved to Paris" tells of a change by a cue ("moved", "no longer", "now", "instead of"), and of
whom and what it is. `_foreign_statements` puts other languages into English first, and `_replaced`
compares statements with each other.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import islice
from typing import NamedTuple

from orbiter.memory._lazy import lazy_pattern
from orbiter.memory.recall._candidate_pool import name_before_colon
from orbiter.memory.recall._dates import (
    TIME_WORDS,
    has_one_date,
    is_for_once,
    labels_in,
    number_of,
    past_month,
)
from orbiter.memory.recall._foreign_statements import (
    has_cue,
    may_tell_change,
    statement_in_english,
)
from orbiter.memory.recall._query_analysis import names_in
from orbiter.memory.text import words
from orbiter.memory.text.languages import MARK, MOVED, STARTED_WORK
from orbiter.memory.text.text_caches import text_cache

__all__ = [
    "PERSON",
    "TOPICS",
    "Sentence",
    "news_in",
    "sentences_of",
    "stems",
    "terms_in",
    "topics_asked",
    "topics_in",
    "topics_of",
]

_MAX_CHARACTERS, _MAX_SENTENCE = 2_000, 400
"""Characters of a text, and of a sentence, that may be a statement about somebody's life."""
_MAX_BYTES = 8 * 2**20
"""How much is remembered of what was read, some 3 KB of a text: each question compares hundreds."""

_SENTENCE = lazy_pattern(r"[^.!?\n]+(?:\.(?=\w)[^.!?\n]+)*[.!?\n]*")
_CLAUSE = lazy_pattern(
    r"[,;:]\s|\s(?:[–—-]+|but|so|and(?: then|(?= (?:i|we|he|she|they)\b)))\s", re.IGNORECASE
)

_PARTS = lazy_pattern(r"[,;:]\s|\s(?:and|or|but|as well as|plus)\s")
"""What stands between the parts of an enumeration, each of which may end alone."""

_CHANGE = lazy_pattern(
    r"\b(?:(?<!years )(?<!months )(?<!weeks )(?<!right )(?<!just )(?<!for )(?<!by )(?<!until )now"
    r"(?! and (?:then|again))(?! that)|nowadays|these days|currently|instead|from now on|as of"
    r"|since (?:then|last|this|january|february|march|april|may|june|july|august|september|october"
    r"|november|december|(?:19|20)\d\d)"
    r"|moved|relocated|switched|changed|swapped|replaced|renamed|became|(?:has|have|'ve|'s) become"
    r"|postponed|rescheduled|rebooked|delayed|brought forward|put off|raised|increased|reduced"
    r"|lowered"
    r"|(?:went|gone) (?:up|down)|rose|risen|(?:dropped|fell|fallen) (?:to|by|from)|turns out"
    r"|turned out|actually|correction|update[sd]?|promoted|transferred|took over|taken over"
    r"|handed over|joined|started (?:as|at|working)|got married)\b"
)
"""Cues that something is no longer what it was."""
_AGAIN = lazy_pattern(r"(?<!once )(?<!yet )(?<!time and )\bagain\W*\Z")
"""A cue of change for what had ended, or was not so."""
_ABSTAINS = lazy_pattern(r"\b(?:sober|teetotal|vegan|vegetarian)\b")
_NEW = lazy_pattern(
    r"(?:\b(?:a|my|our|the|his|her|its|their|user's) |\A)new (?P<what>\w+(?: \w+)?)"
)
"""Something new replaces the old one of its kind."""
_OBJECT_AFTER = lazy_pattern(
    r"\b(?:no longer|used to|instead of|rather than|in place of|stopped|quit|gave up|given up"
    r"|dropped|cancelled|canceled|called off|left|sold|got rid of|pulled out of|backed out of"
    r"|dropped out of|resigned(?: from)?|retired from|withdrew from|ended|broke up with"
    r"|abandoned|replaced"
    r"|(?:switched|changed|moved|went|gone|swapped|transferred) (?:over )?from)\b(?P<object>.*)"
)
"""Cues of an end: what follows is what ended; if nothing follows, it is what stands before."""
_INSTEAD = lazy_pattern(r"instead of|rather than|in place of")
_OBJECT_BEFORE = lazy_pattern(
    r"\A(?P<object>.*)\b(?:(?:is|are|was|were|be|been|'s|'re) (?:now |all )?(?:cancelled|canceled"
    r"|called off|history|discontinued|sold|dropped"
    # Not "over the moon", "off to school" or "closed on Mondays".
    r"|(?:off|over|closed|gone)(?=\W*\Z| (?:again|already|anyway|as|because|by|due|for good|for now"
    r"|forever|now|permanently|since)\b))"
    r"|fell through|fallen through|(?<!is )(?<!are )(?<!was )(?<!were )(?<!'s )closed(?! on| at)"
    r"|shut down|(?:has|have) left(?=\W*\Z| (?:already|for good|forever|now|us)\b)"
    r"|(?:is|are)(?:n't| not) happening)\b"
)
_OBJECT_BETWEEN = lazy_pattern(
    r"(?:\b(?:not|never|no)\b|n't\b)(?P<object>.*?)\b(?:any ?more|any longer)\b"
)
_OBJECT_ENDS = lazy_pattern(
    r"\b(?:and|but|because|since|as|to|by|with|for|so|when|after|before|in order|due)\b"
)
_NO_OBJECT = lazy_pattern(r"\W*(?:\Z|(?:after|already|because|before|due|since|when)\b)")
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
_NEGATED = lazy_pattern(r"\b(?:not|never|no|cannot)\b|n't\b")
_LEAD_IN = lazy_pattern(
    r"\A\W*(?:(?:hi|hey|ok|okay|please|fyi|btw|by the way|note|remember|remind me|keep in mind)\b"
    r"(?: that\b)?\W*)+"
)
"""What only introduces a statement."""
_PRONOUN = lazy_pattern(r"\b(?:it|them|that|this|him|her|there)\b")
_DID = lazy_pattern(
    r"\W*(?:(?:actually|also|and|finally|just|now|recently|so|sorry|then|today|yesterday"
    r"|(?:last|this) \w+)\W+)*"
    r"(?:abandoned|adopted|became|began|booked|bought|broke up|cancell?ed|changed|dropped|ended"
    r"|gave up|got|joined|left|lowered|moved|ordered|planned|postponed|quit|raised|reduced"
    r"|relocated|rented|replaced|rescheduled|resigned|retired|signed up|sold|started|stopped"
    r"|swapped|switched|took|traded|transferred|went)\b"
    r"(?! (?:by|out)\b| (?!(?:an?|the|my|our|to|at|from)\b)(?:\w+ ){1,2}(?:are|has|have|hurts?|is"
    r"|was|were)\b)"
)
"""How a note begins that leaves out "I", as "Moved to Paris", and not "Left knee hurts"."""
_VERB = (
    r"(?:also|always|are|can|cannot|currently|did|does|had|has|have|is|just|never|no|not|now"
    r"|recently|still|was|were|will|\w+ed|became|bought|gave|got|left|quit|sold|took|went|\w{2,}(?<!s)s)\b"
)
_USER_DOES = lazy_pattern(rf"(?!(?!(?:does|has|is|was)\b)\w+s {_VERB}){_VERB}")
"""What follows a user who is the subject. In "user stories moved" they are not."""
_OWNS = lazy_pattern(
    r"(?!(?:an?|at|been|got|gone|in|left|no|not|now|off|on|the|to|\w+ed|\w+ing)\b"
    r"|(?:\w+ )?(?:address|diet|employer|home|income|job|name|profession|salary|wage|weight)\b)\w"
)
"""What follows an owner whose thing is the subject, as in "Anika's fever has gone down"."""
_FIRST = frozenset(("i", "we", "i'm", "i've", "i'd", "i'll", "we're", "we've", "we'll", "we'd"))
_LEADING = frozenset(
    """
    a actually after all also an and any as at because btw but by did during each every finally for
    from his her hey hi in it its last later my new next no now of oh ok okay on our own recently
    since so some sorry still that the their then these this those today unfortunately until well
    when while with yes your
    """.split()  # noqa: SIM905 - read by people
)
"""Words that may stand before a subject."""
_CAPITAL = lazy_pattern(r"[^\W\da-z_][^\WA-Z_]")
_CLOCK = lazy_pattern(r"\b\d{1,2}(?::\d\d|\s?[ap]m\b)")
_USER = "user"
"""How a note calls the one who speaks, if an assistant writes it."""
_LIGHT = """
already be become come current do finally give get go got have keep know lie like make put recently
sit stand start take tell unfortunately use want
"""
"""Verbs that say little about what a sentence is about."""
_CHANGES = """
again since change switch new move cancel drop stop quit now longer old previous actually currently
update correction rebook reschedule postpone delay
"""
TOPICS = (
    "live lives reside relocate home moved",
    "work job employ employer hire profession career",
    "cost price pay fee charge expensive raise",
    "name call rename title",
    "meet meeting meetup",
    "eat diet food vegetarian vegan",
    "weigh weight weighs",
    "earn salary income wage",
)
"""Words for a state and for its change, which stand for each other."""
_LIVE_WITH = lazy_pattern(r"\blives? with (?:(?!in\b|at\b|near\b|on\b)\w+ ?){1,3}\W*\Z")
"""With whom somebody lives, and not where."""
_QUIT = lazy_pattern(
    r"\b(?:quit|resigned|retired)\b(?! \w+ing\b"
    r"|[^,;]*\b(?:band|choir|class|club|course|gym|lessons?|team)\b)"
)
"""Who quits that has left a job, unless it is smoking or a choir."""
_OWN_STATE = lazy_pattern(
    r"\b(?:my|our) (?:new |current |own )?(?:address|diet|employer|home|income|job|name|profession"
    r"|salary|wage|weight) (?:is|are|was|has|went|rose|fell|dropped|changed)\b"
)
"""What somebody says of themselves without "I": "My weight is …" is "I weigh …"."""
PERSON = frozenset(
    """
    aunt boss boyfriend brother child colleague cousin dad daughter father flatmate friend
    girlfriend grandfather grandma grandmother grandpa grandson granddaughter husband kid mom mother
    mum neighbor neighbour nephew niece parent partner roommate sister son uncle wife
    """.split()  # noqa: SIM905 - read by people
)
_LEAST_TOLD = 4  # words of a clause that says something of a person, unlike "my wife Eva"
_PERSONS = "|".join(sorted(PERSON)) + (
    "|baby|cat|client|coach|company|dentist|doctor|dog|employer|horse|landlord|manager|pet|student"
    "|teacher|team|tenant|therapist|trainer"
)
_OWNER = lazy_pattern(r"\b(\w+)'s\b")
_WHOSE_PERSON = lazy_pattern(rf"\b(my|our|\w+(?='s))(?:'s)? (?:\w+ ){{0,2}}?(?:{_PERSONS})\b")
"""Whose wife or dog somebody is, who is not that one."""
_OWN_THING = lazy_pattern(r"\b(?:my|our) (?:\w+ ){1,3}(?:is|are) (?:an?|the|called|named)\b")
_EVENT = lazy_pattern(
    r"(?<!is )(?<!are )(?<!am )(?<!i'm )(?<!be )(?<!'s )(?<!'re )\b(?:\w{2,}ed|ate|bought|broke"
    r"|built|came|did|drank|drove|fell|felt|flew|forgot|found|gave|got|had|heard|held|kept|knew|left|lost"
    r"|made|met|paid|ran|rode|said|sang|saw|sent|slept|sold|spent|stood|swam|taught|thought|told"
    r"|took|was|went|were|woke|won|wore|wrote)\b"
)
"""A verb of what has happened once, and stays true."""


class Sentence(NamedTuple):
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
    owners: frozenset[str]
    """Whose something is, as of "my sister's salary"."""
    whose_persons: frozenset[str]
    """Whose wife or dog it is about, "I" for the one who speaks: not about that one."""
    is_own: bool
    """Whether it says what something of theirs is, as "My car is a Golf"."""
    is_event: bool
    """Whether it tells what has happened, not what is."""
    ended: tuple[frozenset[str], ...]
    """What has ended, by each cue of an end."""
    changed: tuple[frozenset[str], ...]
    """All the words of each clause that has a cue of change."""
    kept: tuple[frozenset[str], ...]
    """All the words of each clause that tells what goes on, or has not happened."""
    renewed: tuple[frozenset[str], ...]
    """Topics of which there is something new."""
    tokens: frozenset[str]
    is_negated: bool
    is_added: bool
    is_again: bool
    """Whether its only cue of change is that something is so again."""
    excludes: bool
    """Whether it says that something is not so, as what may be so again."""
    parts: tuple[frozenset[str], ...]
    """What each part of an enumeration is about, as of "green tea and dark chocolate"."""
    names: frozenset[str]
    """The terms of the names in it."""
    has_number: bool
    has_time: bool
    labels: Mapping[tuple[str, str], frozenset[str]]
    """What tells things of one kind apart, as "Friday" does calls."""
    is_for_once: bool
    """Whether what changed has done so for one day, or for a time."""
    has_date: bool
    month: tuple[int, int] | None
    """The year and the month in which it happened, if it names one."""
    value: frozenset[str]
    """What a number is the value of, as of "My rent is 1150 euros"; nothing if it tells no such."""


def terms_in(text: str) -> list[str]:
    """Return the terms of an English text: one word alone does not tell its language."""
    return words.terms_of(words.tokens(text))


@cache
def stems(text: str) -> frozenset[str]:
    return frozenset(terms_in(text))


@cache
def _topic_of() -> Mapping[str, str]:
    return {term: topic.split()[0] for topic in TOPICS for term in stems(topic)}


def _about(text: str) -> frozenset[str]:
    """Return what a text is about: its terms without times, cues and verbs that say little."""
    kept = [word for word in words.tokens(text) if word not in TIME_WORDS]
    terms = {term for term in words.terms_of(kept) if not term.isdigit()}
    if not text.isascii():  # of a run of characters its pairs: one alone is in many words
        terms -= {term for word in kept if len(word) > 1 for term in word if not term.isascii()}
    return _telling(terms)


def _telling(terms: Iterable[str]) -> frozenset[str]:
    return frozenset(terms) - stems(_LIGHT) - stems(_CHANGES) - {_USER}


def topics_asked(terms: Iterable[str]) -> frozenset[str]:
    """Return the topics of a question's terms, which are stems: to cut "coffe" again is "coff"."""
    stripped = (term.removeprefix(MARK) for term in terms)
    kept = [term for term in stripped if not (term.isdigit() or term in _time_stems())]
    return topics_of(_telling(kept))


@cache
def _time_stems() -> frozenset[str]:
    return frozenset(words.terms_of(TIME_WORDS))


def topics_in(text: str) -> frozenset[str]:
    topics = topics_of(_about(text))
    if _LIVE_WITH.search(text):
        topics -= {_topic_of()["live"]}
    if MOVED.search(text):
        topics |= {_topic_of()["live"]}
    if STARTED_WORK.search(text) or _QUIT.search(text):
        topics |= {_topic_of()["work"]}
    return topics


def topics_of(terms: frozenset[str]) -> frozenset[str]:
    names = _topic_of()
    return frozenset(names.get(term, term) for term in terms)


def _head(clause: str, *, may_be_left_out: bool) -> str | None:
    """Return the first word of a clause's subject: `I`, a term, or nothing for a pronoun.

    Who writes a note may leave out "I".
    """
    if may_be_left_out and _DID.match(clause):
        return "I"
    split = words.tokens(clause)
    for at, word in enumerate(split):
        following = " ".join(split[at + 1 : at + 3])
        if word in _FIRST or (word == _USER and _USER_DOES.match(following)):
            return "I"
        if word in _LEADING or word in TIME_WORDS or word.isdigit() or word == _USER:
            continue
        if word.endswith("'s") and following and _OWNS.match(following):
            continue
        terms = terms_in(word)
        if len(terms) > 1 and words.is_unspaced(word):
            terms = [term for term in terms if len(term) > 1]
        if terms == [_USER]:
            return "I"
        return terms[0] if terms else None
    return None


def _ended(clause: str, before: str) -> list[frozenset[str]]:
    """Return what has ended by a clause; *before* is what "it" stands for."""
    sets = []
    for form in (_OBJECT_BETWEEN, _OBJECT_AFTER, _OBJECT_BEFORE):
        if match := form.search(clause):
            what = match["object"]
            if form is _OBJECT_AFTER:
                if _INSTEAD.match(match[0]) and _EVENT.search(clause, 0, match.start()):
                    continue  # what was done once instead of something ends nothing
                what = _OBJECT_ENDS.split(what)[0]
            terms = _about(what)
            if form is not _OBJECT_BEFORE and _PRONOUN.search(what):
                terms |= _about(before)
            if not terms and _NO_OBJECT.match(match["object"]):  # "Frau Winter has left"
                terms = _about(clause[: match.start("object")])
            sets.append(terms)
    return [terms for terms in sets if terms]


def _leads(clause: str, head: str | None) -> list[str]:
    """Return the topic of the subject, and of the word that says most about what it does."""
    ordered = (term for word in words.tokens(clause) for term in _ordered_topics(word, clause))
    return list(islice(ordered, 1 if head == "I" else 2))


def _ordered_topics(word: str, clause: str) -> frozenset[str]:
    if word == "moved" and MOVED.search(clause):
        return frozenset((_topic_of()["live"],))
    if word in ("started", "joined") and STARTED_WORK.search(clause):
        return frozenset((_topic_of()["work"],))
    return topics_in(word)


def _by_subject(sentence: str) -> list[str]:
    """Return a sentence in parts, where it tells of the one who speaks and of somebody else."""
    parts, start, last = list[str](), 0, None
    cuts = list(_CLAUSE.finditer(sentence))
    ends = [*(cut.start() for cut in cuts), len(sentence)]
    for begin, end in zip((0, *(cut.end() for cut in cuts)), ends, strict=True) if cuts else ():
        clause = sentence[begin:end].replace("’", "'").lower()
        subject = _head(clause, may_be_left_out=last is None)
        if subject is None or not (subject == "I" or _tells_of(subject, clause)):
            continue
        if last is not None and (subject == "I") != (last == "I"):
            parts.append(sentence[start:begin])
            start = begin
        last = subject
    parts.append(sentence[start:])
    # Of other languages, "did" tells before all clauses that something has happened.
    did = "did " if sentence.startswith("did ") else ""
    return [parts[0], *(did + part for part in parts[1:])]


def _tells_of(subject: str, clause: str) -> bool:
    """Tell whether a clause tells of the life of its subject, and not only who joins in."""
    is_long = subject in PERSON and len(words.tokens(clause)) >= _LEAST_TOLD
    return is_long or any(each.search(clause) for each in (MOVED, STARTED_WORK, _QUIT))


def _read(sentence: str, *, is_foreign: bool) -> Sentence:
    text = sentence.replace("’", "'").lower()
    clauses = [clause for clause in _CLAUSE.split(_LEAD_IN.sub("", text, 1)) if clause.strip()]
    heads: list[str | None] = []
    for clause in clauses:
        # Of other languages some leave out "she", too.
        heads.append(_head(clause, may_be_left_out=not (is_foreign or any(heads))))
    ended: list[frozenset[str]] = []
    changed: list[frozenset[str]] = []
    kept: list[frozenset[str]] = []
    renewed: list[frozenset[str]] = []
    again = False
    for number, clause in enumerate(clauses):
        if _UNREAL.search(clause):
            kept.append(frozenset(words.tokens(clause)))
            continue
        if heads[number] != "I" and any("still" in each for each in kept):
            continue  # "I still live in Oslo, now with a balcony"
        ended += _ended(clause, " ".join(clauses[:number]))
        if _CHANGE.search(clause):
            changed.append(frozenset(words.tokens(clause)))
        elif _AGAIN.search(clause):
            again = True
        renewed += [topics_in(match["what"]) for match in _NEW.finditer(clause)]
    lasting = [clause for clause in clauses if not is_for_once(clause)]
    is_again = again and not changed
    changed += [frozenset(words.tokens(text))] * is_again
    is_negated = _NEGATED.search(text) is not None
    leads = [lead for each in zip(clauses, heads, strict=True) for lead in _leads(*each)]
    return Sentence(
        _about(text),
        topics_in(text),
        frozenset(leads),
        frozenset(head for head in heads if head not in (None, "I")),
        "I" in heads or _OWN_STATE.search(text) is not None,
        frozenset(terms_in(" ".join(_OWNER.findall(text)))) if "'s" in text else frozenset(),
        _whose_persons(text),
        _OWN_THING.search(text) is not None,
        _EVENT.search(clauses[0]) is not None if clauses else False,
        tuple(ended),
        tuple(changed),
        tuple(kept),
        tuple(renewed),
        frozenset(words.tokens(text)) - words.COMMON,
        is_negated,
        _ADDED.search(text) is not None,
        is_again,
        is_negated or bool(ended) or _ABSTAINS.search(text) is not None,
        tuple(filter(None, map(_about, _PARTS.split(text)))),
        # Read only where there may be some: that takes as long as a quarter of all else.
        names_in(sentence) - TIME_WORDS if _CAPITAL.search(sentence, 1) else frozenset(),
        any(map(str.isdigit, text)),
        not TIME_WORDS.isdisjoint(words.tokens(text)) or _CLOCK.search(text) is not None,
        labels_in(sentence),
        len(lasting) < len(clauses) and not any(map(has_cue, lasting)),
        has_one_date(text),
        past_month(text),
        frozenset() if _UNREAL.search(text) else number_of(_LEAD_IN.sub("", text, 1)),
    )


def _whose_persons(text: str) -> frozenset[str]:
    written = _WHOSE_PERSON.findall(text)
    owners = frozenset(terms_in(" ".join(written)))
    return owners if {"my", "our", _USER}.isdisjoint(written) else owners | {"I"}


@text_cache(max_bytes=_MAX_BYTES)
def sentences_of(content: str) -> tuple[Sentence, ...]:
    """Return the sentences of a text that are no questions; a document makes no statement."""
    if len(content) > _MAX_CHARACTERS:
        return ()
    if name := name_before_colon(content):
        content = content.partition(f"{name}:")[2]
    stated, content = content, statement_in_english(content)
    parts = [part for part in _SENTENCE.findall(content) if not part.rstrip().endswith("?")]
    parts = [part for part in parts if len(part) <= _MAX_SENTENCE]
    parts = [own for part in parts for own in _by_subject(part)]
    return tuple(_read(part, is_foreign=content != stated) for part in parts)


def news_in(content: str) -> list[Sentence]:
    """Return the sentences of a text that say that something ended, changed or is new.

    So may one that tells a value.
    """
    if len(content) > _MAX_CHARACTERS or not may_tell_change(content):
        return []
    return [
        one for one in sentences_of(content) if one.changed or one.ended or one.renewed or one.value
    ]
