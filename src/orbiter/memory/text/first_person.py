"""First person: texts that call the user by name, or "the user", as that user would say them.

"Where does Alice live?" is "Where do I live?", and "User's daughter is Mia" is "my daughter is
Mia". Questions and memories are read by the same rules, so both meet in one wording. What is stored
and shown stays as it is.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from orbiter.memory._lazy import lazy_pattern
from orbiter.memory.text import words
from orbiter.memory.text.languages import ENGLISH, language_of

__all__ = ["in_first_person", "name_in_id"]

_LEAST = 2
"""Letters of a name."""
_BETWEEN_NAMES = lazy_pattern(r"[\s._-]+")
_NO_NAMES = frozenset(
    """
    admin agent anonymous assistant bot customer default demo guest human local main me nobody owner
    personal root self support system team test user
    """.split()  # noqa: SIM905 - read by people
)
"""Words in the ids of users who have no name."""
_DETERMINERS = frozenset(
    """
    a an any each every her his its my no our some that the their these this those which your
    """.split()  # noqa: SIM905 - read by people
)
_NO_PERSON = (
    "accounts?|data|experience|flows?|groups?|guides?|ids?|input|interfaces?|interviews?|lists?"
    "|manuals?|names?|pages?|permissions?|policy|profiles?|roles?|sessions?|settings?|stories"
    "|story|tests?|testing|types?"
)
"""What stands after "user" where that is no person, as in "User stories are estimated"."""
_SAYS_I = lazy_pattern(r"\b(?:I|I['’]\w+|[Mm]y|[Mm]e|[Mm]ine|[Mm]yself|[Ww]e|[Oo]ur|us)\b")
_ASKS_ME = lazy_pattern(r"\b(?:tell|show|give|remind) (?:me|us)\b|\bcan I\b", re.IGNORECASE)
_AUXILIARY = lazy_pattern(
    r"\b(?P<verb>(?:are|can|could|did|do|does|had|has|is|may|might|must|shall|should|was|will|would)"
    r"(?:n['’]t)?)\s+\Z|\b(?:how|what|when|where|who|why)(?P<short>['’]s)\s+\Z",
    re.IGNORECASE,
)
"""The verb of a question, before the one who does it: "does" of "Where does Alice live?"."""
_CLAUSE = lazy_pattern(
    r"(?:\A\W*|[.!?;\n]\s*|\b(?:and|because|but|how|if|so|than|that|what|when|where|whether|which"
    r"|while|who|why),?\s+)\Z",
    re.IGNORECASE,
)
"""What stands before the one who does something in a statement."""
_VERB = lazy_pattern(
    r"(?P<how>\s+(?:(?:also|always|currently|mostly|never|no longer|now|often|only|really|still"
    r"|usually)\s+)?)(?P<verb>[^\W\d_]+(?:['’]t)?)"
)
_FIRST_PERSON = {
    "is": "am", "are": "am", "has": "have", "does": "do", "was": "was",
    "isn't": "am not", "hasn't": "haven't", "doesn't": "don't", "wasn't": "wasn't",
}  # fmt: skip
_ENDING = lazy_pattern(r"(?:(?<=[^aeiou])(?P<y>ies)|(?<=ss|sh|ch|.o|.x|.z)es|(?<=[^s])s)\Z")
_CAPITAL = lazy_pattern(r"\s+[^\W\d_a-z][a-z]")
_ENDS = lazy_pattern(r"\W*\Z|\s*[.,;:!?)]|\s+(?:about|and|at|for|from|in|on|or|to|with)\b")
"""What follows "the user" where something is done to them."""
_WORD = lazy_pattern(r"\w")
_NEAR = 40
"""Characters before a name that tell what it does in a sentence."""
_I = {"de": "ich", "es": "yo", "fr": "je", "it": "io", "nl": "ik", "pt": "eu", "ru": "я"}
"""What a name is in other languages, whatever part of the sentence it is."""


def name_in_id(user_id: str | None) -> tuple[str, ...]:
    """Return the name in the id of a user, as in "alice" and "alice.reed@example.com", if any."""
    name = _BETWEEN_NAMES.sub(" ", (user_id or "").partition("@")[0]).strip()
    parts = words.tokens(name)
    is_name = all(map(str.isalpha, parts)) and _NO_NAMES.isdisjoint(parts)
    return (name,) if is_name and len(name) >= _LEAST else ()


def in_first_person(text: str, names: Sequence[str] = ()) -> str:
    """Return what is told or asked of the user as they would say it.

    *names* are what they are called. Whoever says "I" does not call themselves by name, so in such
    a text it is another's; and a text of nothing but the name stays.
    """
    lowered = text.casefold()
    called = _called(tuple(names)) if names else ()
    if not any(name in lowered for name in called) or _SAYS_I.search(_ASKS_ME.sub(" ", text)):
        called = ()
    if not called and "user" not in lowered:  # as most texts
        return text
    language = language_of(words.tokens(text), text) if called else ENGLISH
    if language != ENGLISH and language not in _I:
        return text
    said, last = "", 0
    for person in _person(called).finditer(text):
        read = _read(person, language)
        if read is not None and read.start >= last:
            said += text[last : read.start] + read.said
            last = read.end
    said += text[last:]
    return said if _WORD.search(_person(called).sub("", text)) else text


class _Read(NamedTuple):
    """A part of a text, and what the user would say there."""

    start: int
    said: str
    end: int


def _read(person: re.Match[str], language: str) -> _Read | None:
    text, (start, end) = person.string, person.span()
    before = text[max(0, start - _NEAR) : start]
    verb = _AUXILIARY.search(before)
    if person["name"] and not _is_name(person, before, language, is_asked=verb is not None):
        return None
    if language != ENGLISH or person["own"]:
        return _Read(start, _I.get(language, "my"), end)
    if verb is not None:
        is_short = verb["short"] is not None
        begin = start - len(before) + (verb.start("short") if is_short else verb.start("verb"))
        asked = " am" if is_short else _first_person(verb["verb"])
        return _Read(begin, f"{asked} I", end)
    does = _VERB.match(text, end)
    if does is not None and _CLAUSE.search(before) is not None:
        return _Read(start, f"I{does['how']}{_first_person(does['verb'])}", does.end())
    is_object = bool(person["name"] or (person["the"] and _ENDS.match(text, end)))
    return _Read(start, "me", end) if is_object else None


def _is_name(person: re.Match[str], before: str, language: str, *, is_asked: bool) -> bool:
    """Tell whether a word of a text is the user's name, and not another's or any other word."""
    text, end = person.string, person.end()
    previous = before.split()[-1:]
    if previous and previous[0].lower() in _DETERMINERS:
        return False
    if person["name"][0].islower():  # where a text has other capitals, so have its names
        is_told = person["own"] or is_asked or bool(previous and previous[0] in words.COMMON)
        return text.islower() and bool(is_told)
    if is_asked or person["own"] or language != ENGLISH:
        return True
    is_first = _CLAUSE.search(before) is not None
    if person["name"].lower() in words.COMMON and is_first:
        return False
    is_of_longer = not is_first and previous and previous[0][0].isupper() and previous[0] != "I"
    return not is_of_longer and _CAPITAL.match(text, end) is None


@lru_cache(maxsize=1024)
def _called(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return how a user of these names may be called, the longest first: also by the first name."""
    every = {part for name in names for part in (name.casefold(), name.casefold().split()[0])}
    return tuple(sorted((each for each in every if len(each) >= _LEAST), key=len, reverse=True))


@lru_cache(maxsize=256)
def _person(called: tuple[str, ...]) -> re.Pattern[str]:
    named = "|".join(map(re.escape, called)) or r"(?!)"
    return re.compile(
        rf"(?<![\w@/.-])(?:(?P<name>{named})|(?P<the>the )?user(?! (?:{_NO_PERSON})\b))"
        r"(?P<own>['’]s|(?<=s)['’](?= ))?(?![\w@-]|\.\w|\s*:)",
        re.IGNORECASE,
    )


def _first_person(verb: str) -> str:
    known = _FIRST_PERSON.get(verb.lower().replace("’", "'"))
    return known or _ENDING.sub(lambda match: "y" if match["y"] else "", verb)
