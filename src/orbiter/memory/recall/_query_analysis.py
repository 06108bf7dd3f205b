"""Query analysis: the terms of a question, the people and times it names.

Pure: the same text, names and moment always give the same question.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache, lru_cache
from typing import NamedTuple

from orbiter.memory._lazy import lazy_pattern
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.recall._date_phrases import offsets, spans
from orbiter.memory.recall._dates import Offset, Span
from orbiter.memory.recall._foreign_times import asks_when
from orbiter.memory.text import languages, words
from orbiter.memory.text.first_person import name_in_id

__all__ = [
    "Question",
    "asks_history",
    "in_words",
    "is_question",
    "matter_of",
    "read",
    "shortened",
    "user_names",
    "words_of",
    "written",
]

_WHEN = lazy_pattern(
    r"\s*(?:when|how long|since when|(?:what|which|on what|on which|in what|in which) "
    r"(?:year|month|date|day|time|season))\b",
    re.IGNORECASE,
)
_YOU = lazy_pattern(r"\b(?:you|your|yours)\b", re.IGNORECASE)
_PAST = lazy_pattern(
    r"\b(?:did|didn't|was|wasn't|were|weren't|had|hadn't|used to|ago|previous(?:ly)?|former(?:ly)?"
    r"|originally|initially|earlier|back then|in the past|at first|(?<!how )old|ever)\b"
    r"|\b(?:have|has)\s+(?:i|we|you|they|he|she|it)\b|\bbefore\W*$|^\W*(?:(?:where|what|who|which\s+\w+)\s+)?(?:have|has)\b",
    re.IGNORECASE,
)
"""What makes a question one about the past."""
_PRESENT = lazy_pattern(
    r"\b(?:now|currently?|do|does|don't|doesn't|is|isn't|are|aren't|am|still|today)\b|\w'(?:s|re|m)\b",
    re.IGNORECASE,
)
_BEFORE = lazy_pattern(
    r"\b(?:before|prior|previous(?:ly)?|former(?:ly)?|used to"
    r"|(?<!how )(?<!year )(?<!years )old(?= \w))\b",
    re.IGNORECASE,
)
"""What makes a question about the past one about what came before something else."""
_BEFORE_WHAT = lazy_pattern(
    r"\s+(?:(?:right|just|directly|immediately|shortly) )?(?:before|prior to) "
    r"(?P<what>(?!(?:it|now|that|then|this)\b)[^\d,;.?!]{2,60}?)\s*[.?!]*\s*\Z",
    re.IGNORECASE,
)
_EARLIER = """previous previously former formerly prior old früher vorher auparavant précédent
ancien antes anterior prima precedente vroeger eerder vorige раньше прежде прежний"""
"""Words by which such a question asks, and which no memory that answers it needs to have."""
_OF_STATE = lazy_pattern(
    r"\b(?:address|boss|called|car|company|cost|dentist|doctor|earn|employer|job|live|living|name"
    r"|number|occupation|pay|price|profession|rent|reside|salary|wage|weigh|work|working)\b",
    re.IGNORECASE,
)
"""What a question asks for that is so until it changes: "before" then names the change."""
_SPREAD = lazy_pattern(
    r"\b(?:in (?:which|what) (?:order|sequence)|(?:in )?(?:the )?(?:chronological|temporal) order"
    r"|chronologically|(?:the )?order (?:of|in which)|in order(?! to\b| that\b| for\b)"
    r"|(?:a |the )?(?:timeline|sequence) of"
    r"|what (?:came|happened) first(?: and what (?:came )?later)?"
    r"|summari[sz]e|(?:a |the )?(?:summary|recap) of|sum up|recap|walk me through"
    r"|(?:an? |the )?(?:\w+ )?overview (?:of|on|over)|(?:the )?(?:whole |full )?story of"
    r"|(?:bring|get) me up to (?:date|speed) (?:on|with)|catch me up on|everything (?:about|that)"
    r"|from (?:start|beginning) to (?:finish|end)|from the (?:start|beginning)|step by step"
    r"|over (?:the course of )?time"
    r"|how (?:has|have|did) (?=.{3,80}?\b(?:develop|evolve|progress|unfold|come about)))",
    re.IGNORECASE,
)
"""What asks for a sequence, or for the sum of a long matter."""
_ASKS_TO_TELL = lazy_pattern(
    r"\b(?:(?:can|could|would|will) you|please|give me|tell me|show me|list|describe|mention(?:ed)?"
    r"|only|just|(?:one|two|three|four|five|six|seven|eight|nine|ten|\d+) (?:items|points|things)"
    r"|(?:the )?(?:different|various)? ?(?:aspects|steps|events|stages|topics|things)"
    r"(?: (?:of|around))?"
    r"|(?:i|we) (?:brought up|discussed|talked about|went through|go through|happen)"
    r"|(?:throughout|across|during|in) (?:all )?our (?:conversations?|chats?|talks?)"
    r"|how things went|came about|happen(?:ed)?|develop(?:ed)?|evolved?|progress(?:ed)?"
    r"|unfold(?:ed)?)\b",
    re.IGNORECASE,
)
_ABOUT_USER = lazy_pattern(
    r"\W*(?:(?:hi|hey|so|and|ok|okay|please|can you|could you),?\s+)*(?:"
    r"what (?:(?:else )?(?:do|did|can) )?you (?:already )?(?:know|remember|recall|tell me)"
    r"(?: so far)? (?:about|of) {me}"
    r"|(?:tell|remind) me (?:more |something |everything |all )?(?:you know )?about {me}"
    r"|what (?:have|did) I (?:told|tell) you(?: so far)? about {me}|describe {me})"
    r"(?: (?:so far|already|again|please|now))?\W*$".replace("{me}", "(?:me|myself|I|us)"),
    re.IGNORECASE,
)
"""What asks for all that is known of the one who asks."""
_ABOUT_USER_FOREIGN = lazy_pattern(
    r"[\W_]*(?:was (?:alles )?(?:weißt|weisst) du (?:alles |schon |noch )*(?:über|von) mi(?:ch|r)"
    r"|erzähl(?:e)? mir (?:etwas |was |alles )?(?:über|von) mi(?:ch|r)"
    r"|was habe ich dir (?:alles |schon )?(?:über|von) mi(?:ch|r) erzählt"
    r"|(?:que|qu'est-ce que tu) sais(?:-tu)? (?:de|sur) moi|parle-moi de moi"
    r"|qué sabes (?:de|sobre) mí|(?:dime|cuéntame) (?:algo |todo )?(?:de|sobre) mí"
    r"|(?:che )?cosa sai (?:di|su) me|(?:dimmi|raccontami) (?:qualcosa )?(?:di|su) me"
    r"|o que (?:é que )?(?:você |tu )?(?:sabe|sabes) (?:de|sobre) mim|fala-me de mim"
    r"|wat weet je (?:allemaal )?(?:over|van) m(?:ij|e)|vertel me (?:iets )?over mij(?:zelf)?"
    r"|что ты (?:уже )?знаешь обо мне|расскажи мне обо мне"
    r"|你(?:都)?知道(?:关于)?我(?:的)?(?:什么|哪些(?:事|事情)?)|你了解我(?:的)?(?:什么|多少)|你对我了解多少"
    r"|私(?:について|のこと)(?:で|は|を)?(?:何を|何が)?(?:知って|わかって|覚えて)い(?:ます|る)?か?)\W*$",
    re.IGNORECASE,
)
_AUXILIARY = r"(?:is|are|was|were|do|does|did|can|could|will|would|should|has|have|had)"
_ASKS = lazy_pattern(
    r"\s*(?:(?:and|so|but|ok|okay|hi|hey|please),?\s+)?(?:"
    rf"(?:who|what|when|where|why)\s+{_AUXILIARY}\b|(?:what|how)\s+\w+\s+{_AUXILIARY}\b"
    rf"|how\s+{_AUXILIARY}\b|which\s+(?!(?:is|was|means|makes)\b)\w"
    rf"|{_AUXILIARY}\s+(?:i|you|we|they|he|she|it|there|anyone|anybody)\b)",
    re.IGNORECASE,
)
"""How a question begins that somebody writes without its mark. "What I did" and "when it is" begin
no question."""
_LEAST = 2  # letters of a name
_SAYS_I = lazy_pattern(r"\b(?:I|I['’]m|[Mm]y|[Mm]e|[Mm]ine|[Mm]yself)\b")
_LISTED = 12
_LONGEST = 2_000
"""Characters of a question that count. What is longer is a document with a question at either end,
and to look for each of its words would take seconds."""


class Question(NamedTuple):
    """A question, taken apart."""

    text: str
    terms: tuple[str, ...]
    """Its distinct terms, the names of those who spoke left out: they rarely say their own."""
    people: frozenset[str]
    """Whom of the speakers it is about: the one it names first, or "Ann and Ben" together.
    Case-folded, because some write a name in two ways."""
    times: tuple[Span, ...]
    offsets: tuple[Offset, ...]
    """Times told by something that is named, as "three weeks after the wedding"."""
    asks_when: bool
    asks_you: bool
    """Whether it is about what the assistant said."""
    asks_past: bool = False
    """Whether it is about what was, so that what is newer is no better answer."""
    asks_before: bool = False
    """Whether it is about what came before something else: that is not the answer."""
    before: str = ""
    """Before what, if that is named, as in "Where did I live before Linz?". Not in the terms."""
    asks_about_user: bool = False
    """Whether it asks for nothing but what is known of the user."""
    user_names: tuple[str, ...] | None = None
    """What memories may call the user who asks about themselves, beside "the user"; `None` if it is
    not about them."""


def _is_of_past(text: str, has_times: bool) -> bool:  # noqa: FBT001 - private
    """Tell whether a question is about what was: by its tense, or by the time that it names."""
    return _PAST.search(text) is not None or (has_times and _PRESENT.search(text) is None)


def asks_history(text: str, *, now: datetime) -> bool:
    """Tell whether a question is about the past or a time, so that what held once may answer it."""
    has_times = bool(spans(text, now=now) or offsets(text))
    return has_times or _asks_when(text) or _is_of_past(text, has_times)


def _asks_when(text: str) -> bool:
    return _WHEN.match(text) is not None or asks_when(text)


def is_question(content: str) -> bool:
    """Tell whether a text is a question, by its mark or by how it begins."""
    text = content.rstrip()
    if text.endswith(("?", "？")):
        return True
    return not text.endswith((".", "!", "…")) and _ASKS.match(text) is not None


def matter_of(text: str) -> str | None:
    """Return what is to be told in order or in sum, without the words that ask for that.

    `None` if the question asks for neither.
    """
    if _SPREAD.search(text) is None:
        return None
    matter = _ASKS_TO_TELL.sub(" ", _SPREAD.sub(" ", text))
    return matter if words.terms(matter) else text


def shortened(text: str) -> str:
    """Return *text*, or its beginning and its end if it is very long."""
    if len(text) <= _LONGEST:
        return text
    half = _LONGEST // 2
    return f"{text[:half]} … {text[-half:]}"


def user_names(scope: MemoryMetadata | None, names: Iterable[str] = ()) -> tuple[str, ...]:
    """Return what the user of a scope is called: *names*, and the id where that is a name."""
    return (*names, *name_in_id(None if scope is None else scope.user_id))


def read(
    text: str, *, speakers: Iterable[str] = (), user_names: Sequence[str] = (), now: datetime
) -> Question:
    """Return the question that *text* is, asked at *now* about what *speakers* said.

    It is in the first person where it means the user, who goes by *user_names*. One of them that it
    has nevertheless is somebody else's name.
    """
    times, from_events = spans(text, now=now), offsets(text)
    asks_past = _is_of_past(text, bool(times or from_events))
    is_before = asks_past and not (times or from_events)
    before = _before_what(text) if is_before else None
    wanted = text if before is None else f"{text[: before.start()]}?"
    lowered = text.casefold()
    is_of_user = _SAYS_I.search(text) is not None
    if any(name.casefold() in lowered for name in user_names):
        user_names = ()
    known = {speaker.casefold().strip() for speaker in speakers}
    own = known.intersection(map(str.casefold, user_names)) if is_of_user else set()
    people, unnamed = _without_people(wanted, _people_of(known), of=frozenset(own))
    terms = tuple(dict.fromkeys(words.terms(unnamed)))
    asks_before = is_before and _BEFORE.search(text) is not None
    if asks_before:  # which nothing says of itself
        terms = tuple(term for term in terms if term not in _before_terms()) or terms
    return Question(
        text=text,
        terms=terms,
        people=people,
        times=times,
        offsets=from_events,
        asks_when=_asks_when(text),
        asks_you=_YOU.search(text) is not None,
        asks_past=asks_past,
        asks_before=asks_before,
        before="" if before is None else before["what"],
        asks_about_user=_asks_about_user(text),
        user_names=tuple(user_names) if is_of_user else None,
    )


@cache
def _before_terms() -> frozenset[str]:
    split = words.tokens(_EARLIER)
    every = (words.terms_of(split, language=each) for each in languages.LANGUAGES)
    return frozenset().union(*every)


def _before_what(text: str) -> re.Match[str] | None:
    """Return where a question ends in what something was before: the answer does not name that."""
    return _BEFORE_WHAT.search(text) if _OF_STATE.search(text) else None


def _asks_about_user(text: str) -> bool:
    return any(pattern.match(text) for pattern in (_ABOUT_USER, _ABOUT_USER_FOREIGN))


@lru_cache(maxsize=16)
def written(text: str) -> dict[str, str]:
    """Return how each term is written in *text*: a stem is no word to show.

    A word may have several; of what is written without spaces, each is shown as it is.
    """
    tokens = words.tokens(text)
    language = languages.language_of(tokens, text)
    return {
        term: term if words.is_unspaced(word) else word
        for word in reversed(tokens)
        for term in words.terms_of((word,), language=language)
    }


def words_of(text: str, terms: Iterable[str]) -> list[str]:
    """Return the words of *text* that *terms* are of, to be shown.

    Of what is written without spaces these are the longest runs that consist of terms.
    """
    as_asked = written(text)
    listed = dict.fromkeys(as_asked.get(term, term) for term in terms)
    unspaced = [word for word in listed if words.is_unspaced(word)]
    if not unspaced:
        return list(listed)
    runs: list[str] = []
    for token in filter(words.is_unspaced, words.tokens(text)):
        covered = [False] * len(token)
        for word in unspaced:
            for start in range(len(token)):
                if token.startswith(word, start):
                    covered[start : start + len(word)] = [True] * len(word)
        marked = "".join(map(lambda each, is_in: each if is_in else " ", token, covered))
        runs += marked.split()
    return list(dict.fromkeys((*runs, *(word for word in listed if word.isascii()))))


def in_words(question: Question) -> str:
    """Return how a question was read, for a person."""
    listed = words_of(question.text, question.terms)
    more = f" and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
    parts = [
        f"looks for {', '.join(listed[:_LISTED])}{more}" if listed else "has no word to search for"
    ]
    if question.people:
        parts.append(f"about {' and '.join(name.title() for name in sorted(question.people))}")
    if question.times:
        parts.append(f"of {' or '.join(map(str, question.times))}")
    if question.asks_when:
        parts.append("asks when")
    return "; ".join(parts)


def _without_people(
    text: str, named_people: Mapping[str, frozenset[str]], *, of: frozenset[str]
) -> tuple[frozenset[str], str]:
    """Return whom *text* is about, and what it says beside their names.

    *named_people* by how their names are written; *of* is who is known to be asked about.
    """
    if not named_people:
        return of, text
    one = "|".join(re.escape(part) for part in sorted(named_people, key=_longest_first))
    # Several in a row are about all of them: "Ann and Ben", "Ann, Ben and Cid".
    named = re.compile(
        rf"(?<!\w)(?:{one})(?:(?:\s*,\s*|\s+and\s+|\s*&\s*)(?:{one}))*(?!\w)(?:['’]s?(?=\W|$))?",
        re.IGNORECASE,
    )
    single = re.compile(rf"(?<!\w)(?:{one})(?!\w)", re.IGNORECASE)
    people, unnamed, last = of, "", 0
    for match in named.finditer(text):
        parts = [part for part in single.finditer(text, *match.span()) if _is_name(part)]
        # Ignoring case, "i" is also the Turkish one without a dot, which is in nobody's name.
        who = frozenset().union(*(named_people.get(part[0].casefold(), ()) for part in parts))
        if who:
            people = people or who
            unnamed += f"{text[last : match.start()]} "
            last = match.end()
    return people, unnamed + text[last:]


def _people_of(speakers: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return who may be meant by the whole of each name, and by each word of it."""
    named_people: dict[str, frozenset[str]] = {}
    for name in speakers:
        pieces = [piece for piece in name.split() if piece not in words.COMMON]
        written = {name, *pieces}
        written |= {" ".join(words.tokens(part)) for part in written}  # Jose is José
        for part in written:
            if len(part) >= _LEAST:
                named_people[part] = named_people.get(part, frozenset()) | {name}
    return named_people


def _longest_first(part: str) -> tuple[int, str]:
    return -len(part), part


def _is_name(part: re.Match[str]) -> bool:
    """Tell Will from "will": by a capital, which tells nothing at the start of the question."""
    if part[0].casefold() not in words.COMMON:
        return True
    return part[0][0].isupper() and part.string[: part.start()].strip() != ""
