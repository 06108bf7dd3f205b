"""Stemmer: `painting`, `painted` and `paints` are one term.

English in the manner of Porter's algorithm (1980), cut down to endings that pay in conversations,
with the irregular verbs and plurals people use when they talk. A stem is only ever compared with
another stem, so it need not be a word. Changing anything here changes what indexes hold: raise
`words.VERSION` with it.
"""

import re

from orbiter.memory.text.stemmers import irregular_forms

__all__ = ["stem"]

_HAS_VOWEL = re.compile(r"[aeiouy]")
_DOUBLE = re.compile(r"([bdfgmnprt])\1$")
_SHORT = re.compile(r"^[^aeiou]*[aeiouy][^aeiouwxy]$")
# Ending, what stands for it, and how many syllables must be left before it.
_ENDINGS = (
    ("ational", "ate", 1), ("ization", "ize", 1), ("fulness", "ful", 1), ("ousness", "ous", 1),
    ("iveness", "ive", 1), ("tional", "tion", 1), ("ically", "ic", 1), ("ation", "ate", 1),
    ("ingly", "", 1), ("ality", "al", 1), ("ivity", "ive", 1), ("bility", "ble", 1),
    ("ator", "ate", 1), ("ness", "", 1), ("ment", "", 2), ("able", "", 2), ("ible", "", 2),
    ("ance", "", 2), ("ence", "", 2), ("ally", "al", 1), ("ship", "", 1), ("ful", "", 1),
    ("ist", "", 2), ("ism", "", 2), ("ive", "", 2), ("ize", "", 2), ("ise", "", 2),
    ("ous", "", 2), ("ion", "", 2), ("ate", "", 2), ("ant", "", 2), ("ent", "", 2),
    ("ity", "", 2), ("ly", "", 1), ("al", "", 2), ("er", "", 2), ("or", "", 2), ("ic", "i", 2),
)  # fmt: skip
_BY_LAST_LETTER = {
    last: tuple(each for each in _ENDINGS if each[0][-1] == last)
    for last in {ending[-1] for ending, *_ in _ENDINGS}
}
# As in "colour" and "favourite", and not as in "hour" and "journey".
_BRITISH = re.compile(r"(?<=[a-z][bdlmnpv])our(?=$|it)")
_SYLLABLE = re.compile(r"[aeiouy]+[^aeiouy]+")


def stem(word: str) -> str:
    """Return the stem of a case-folded word without accents."""
    if (base := irregular_forms("en").get(word)) is not None:
        return base
    if len(word) < 4 or not word.isascii() or not word.isalpha():
        # Of an alphabet other than Latin, the start is what inflection leaves alone.
        return word[:6] if not word.isascii() else word
    word = _past(_plural(word))
    word = _BRITISH.sub("or", word)
    shorter = _without_ending(word)
    if shorter != word and shorter.endswith(("ate", "ize")):  # celebration as celebrate
        shorter = _without_ending(shorter)
    word = shorter
    if len(word) > 4 and word.endswith("e"):
        word = word[:-1]
    if len(word) > 3 and word.endswith("y") and word[-2] not in "aeiou":
        word = word[:-1] + "i"
    return word[:-1] if word.endswith("ll") and len(word) > 5 else word


def _plural(word: str) -> str:
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith("ies"):
        return word[:-3] + "y" if len(word) > 4 else word[:-1]
    if word.endswith("s") and word[-2] not in "sui":
        return word[:-1]
    return word


def _past(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _HAS_VOWEL.search(word[:-3]) else word
    if word.endswith("ied") and len(word) == 5:
        return word[:-3] + "y"
    for ending in ("ed", "ing"):
        left = word[: -len(ending)]
        if word.endswith(ending) and len(left) > 1 and _HAS_VOWEL.search(left):
            if left.endswith(("at", "bl", "iz")):
                return left + "e"
            if _DOUBLE.search(left):
                return left[:-1]
            return left + "e" if _SHORT.match(left) and len(left) < 4 else left
    return word


def _without_ending(word: str) -> str:
    for ending, stands_for, syllables in _BY_LAST_LETTER.get(word[-1], ()):
        if word.endswith(ending):
            left = word[: -len(ending)]
            if len(_SYLLABLE.findall(left)) >= syllables and (ending != "ion" or left[-1] in "st"):
                return left + stands_for
            return word
    return word
