"""Languages of texts: told by script and stop words without a model; stop words.

A text is English unless more of its words are stop words of another language: a name, a title or a
greeting in another language leaves it English. Words are as `words.tokens` returns them, without
accents. Changing anything here, or in the lists beside it, changes what indexes hold: raise
`words.VERSION` with it.
"""

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from orbiter.memory._lazy import lazy_pattern

__all__ = [
    "ENGLISH",
    "LANGUAGES",
    "everyday_words",
    "language_of",
    "stop_words",
]

ENGLISH = "en"
"""The language of a text that tells of no other."""


LANGUAGES = (ENGLISH, "de", "fr", "es", "it", "pt", "nl", "ru")
"""The languages whose stems are known."""


class _Lists(NamedTuple):
    """The lists of stop words, and what is made of them."""

    stop_words: dict[str, frozenset[str]]
    english: frozenset[str]
    """Words by which an English text is known."""
    languages: dict[str, tuple[str, ...]]
    """Whose stop word each is, of the languages in Latin letters."""
    foreign: frozenset[str]
    everyday: frozenset[str]
    """English words that tell little of what a text is about."""


@cache
def _lists() -> _Lists:
    """Read the lists when they are first needed: an import opens no file."""
    listed = Path(__file__).with_name("stop_words.txt").read_text(encoding="utf-8")
    parts = re.split(r"^\[(\w+)\]$", listed, flags=re.MULTILINE)[1:]
    words = dict(zip(parts[::2], (frozenset(each.split()) for each in parts[1::2]), strict=True))
    english, everyday = (words.pop(name) for name in ("english", "everyday"))
    latin = [language for language in words if language != "ru"]
    languages = {
        word: tuple(language for language in latin if word in words[language])
        for word in frozenset().union(*(words[language] for language in latin))
        if len(word) > 1  # a letter may be a note, a key or a point of a list
    }
    foreign = frozenset(languages).difference(english)
    return _Lists(words, english, languages, foreign, everyday)


def stop_words(language: str) -> frozenset[str]:
    """Return words of a language other than English that tell nothing about a text."""
    return _lists().stop_words[language]


def everyday_words() -> frozenset[str]:
    """Return English words that stand in many texts, and tell little of what one is about."""
    return _lists().everyday


_LETTERS = {
    **dict.fromkeys("äöß", "de"),
    **dict.fromkeys("ñ¿¡", "es"),
    **dict.fromkeys("œçêîèû", "fr"),
    **dict.fromkeys("ãõ", "pt"),
    **dict.fromkeys("ìò", "it"),
}
"""Letters that one language has and the others have not, or seldom."""
_ELIDED = lazy_pattern(r"\b(?:[jnts]|qu|([ldmc]))['’](?=[^\W\d_]{2})", re.IGNORECASE)
"""Words that lose their vowel before another, as in "j'ai"; some of them are Italian, too."""
_ENDINGS = {
    "de": "ung keit heit lich isch chen en er t te tz ck",
    "fr": "tion ment eur eux euse aux ent ons ez ait que e es",
    "es": "cion dad ando iendo aba ado ica ico os as o a",
    "it": "zione ta are ere ire ato ini oni o i e",
    "pt": "cao coes dade inho inha eiro ando endo em am o a",
    "nl": "heid lijk tje ing en aar cht ij",
}
"""How words often end: it decides between languages with as many stop words."""
_ENOUGH = 512
"""Words that are looked at, the first."""
_SHORT = 2
_SURE = 1.5
"""How many words of a language, or letters beyond ASCII, it takes beside a word of English."""


def language_of(tokens: Sequence[str], text: str) -> str:
    """Return the language of the Latin words among *tokens*, which are those of *text*.

    One of `LANGUAGES` but Russian, whose words are known by their letters.
    """
    lists = _lists()
    if lists.foreign.isdisjoint(tokens):  # as most texts
        return ENGLISH
    tokens, text = tokens[:_ENOUGH], text[: 8 * _ENOUGH]
    english = [word for word in tokens if word in lists.english]
    votes = Counter(each for word in tokens for each in lists.languages.get(word, ()))
    votes.update(_LETTERS[letter] for letter in _LETTERS.keys() & frozenset(text.lower()))
    if elided := _ELIDED.search(text):
        votes.update(("fr", "it") if elided[1] else ("fr",))
    if not votes:
        return ENGLISH
    others = [word for word in tokens if len(word) > _SHORT and word not in lists.languages]
    ends = {each: tuple(_ENDINGS[each].split()) for each in sorted(votes)}
    # In one order: the same text has the same language in every process.
    best = max(ends, key=lambda e: (votes[e], sum(word.endswith(ends[e]) for word in others)))
    if votes[best] <= len(english):
        return ENGLISH
    evidence = len(lists.foreign.intersection(tokens)) + (not text.isascii()) + bool(elided)
    is_pure = lists.stop_words[best].issuperset(english) and len(tokens) > _SHORT
    return best if evidence >= (1 if is_pure else _SURE) else ENGLISH
