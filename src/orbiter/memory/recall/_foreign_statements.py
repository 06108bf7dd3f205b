"""Statements in other languages, put into the English by which `_statements` reads a change.

"Ich wohne nicht mehr in Oslo" becomes "i no longer live oslo": pronouns, cues of a change and words
for states are those of `foreign_statements.txt`; of other words the stem is kept, and stop words
are left out. German, French, Spanish, Italian, Portuguese, Dutch, Russian, Chinese and Japanese.
"""

import re
import unicodedata
from collections.abc import Iterable
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from orbiter.memory._lazy import lazy_pattern
from orbiter.memory.recall._dates import TELLS_NUMBER
from orbiter.memory.recall._foreign_times import time_words
from orbiter.memory.tasks.offload import SLICE
from orbiter.memory.text.languages import ENGLISH, MARK, language_of, stop_words
from orbiter.memory.text.stemmers import STEMMERS, stem_in
from orbiter.memory.text.text_caches import WordCache, text_cache
from orbiter.memory.text.words import (
    COMMON,
    is_of_other_script,
    is_unspaced,
    terms_of,
    tokens,
)

__all__ = [
    "foreign_terms",
    "has_cue",
    "may_tell_change",
    "statement_in_english",
]

_MAX_BYTES = 4 * 2**20
_LEAST_SIGNS, _LEAST_LETTERS, _NO_SIGN = 2, 4, 1.5
"""How many words tell the language of a short text, one of them a stop word, of how many letters
the others are, and how many more it takes without one of these."""
_ENGLISH_TOO = frozenset(
    [
        "boss",
        "cane",
        "chat",
        "chef",
        "come",
        "cost",
        "cousin",
        "friend",
        "hamster",
        "job",
        "mama",
        "moved",
        "nice",
        "note",
        "papa",
        "partner",
        "plus",
        "pony",
        "son",
        "tante",
    ]
)
_LATIN = tuple(language for language in STEMMERS if language != "ru")
_CUES = frozenset(
    [
        "again",
        "became",
        "cancelled",
        "changed",
        "instead",
        "longer",
        "lowered",
        "moved",
        "new",
        "no",
        "now",
        "postponed",
        "raised",
        "renamed",
        "stopped",
        "switched",
    ]
)
_WORD = lazy_pattern(r"=(?P<english>\w+)|(?P<word>[^\W_](?:[^\W_]|(?<=\w)-(?=\w))*)")
_KANA = lazy_pattern("[぀-ヿ]")
_HAN = lazy_pattern("[一-鿿]")
_SENTENCE_END = lazy_pattern(r"([.!?\n]+(?!\w)\s*)")
_CLAUSE_END = lazy_pattern(r"([.!?\n]+\s*|[,;:]\s+|\s(?:and|but)\s)")
_SUBJECT = lazy_pattern(r"\b(?:i|we)\b")
_VALUE_FOLLOWS = frozenset(
    ("bei", "frau", "heissen", "heisst", "herr", "in", "ist", "nach", "sind")
)
"""German words before a noun without an article that names something; all nouns have a capital."""
_ANY_CUE = lazy_pattern(
    r"\b(?:now|nowadays|these|currently|instead|as of|since|moved|relocated|switched|changed"
    r"|swapped|replaced|renamed|became|become|postponed|rescheduled|rebooked|delayed|brought"
    r"|put off|raised|increased|reduced|lowered|went|gone|rose|risen|dropped|fell|fallen"
    r"|turns out|turned out"
    r"|actually|correction|update[sd]?|promoted|transferred|took over|taken over|handed over"
    r"|joined|started|got|new|again|no longer|used to|rather than|in place of|stopped|quit|gave up"
    r"|given up|cancelled|canceled|called off|left|sold|pulled out|backed out|resigned|retired"
    r"|withdrew|ended|broke up|abandoned|off|over|closed|history|discontinued|shut down|happening"
    r"|any ?more|any longer)\b"
)
"""At least one of these stands in whatever one of the cues of `_statements` is found in."""
_MAY_HAVE_VALUE = lazy_pattern(
    rf"\b(?:my|our|i|we)\b[^.!?\n]*\d|\b{TELLS_NUMBER} (?:[a-z]+ ){{0,3}}?\W?\d"
)
_SUBJECTS = frozenset(("i", "we"))
_NAMES_SUBJECT = frozenset(("i", "is", "my", "our", "we"))


class _AllStems(dict[str, WordCache[str]]):
    """The stem of each word met so far, by language."""

    def __missing__(self, language: str) -> WordCache[str]:
        return self.setdefault(language, WordCache(partial(_stem, language)))

    def cache_clear(self) -> None:
        self.clear()


class _Table(NamedTuple):
    """What the words of a language are in English."""

    phrases: re.Pattern[str] | None
    english: dict[str, str]
    patterns: tuple[tuple[re.Pattern[str], str], ...]
    """What is replaced before single words are."""
    event: re.Pattern[str]
    """What has happened once, and stays true."""
    cues: frozenset[str]
    """Words at least one of which stands in what tells of a change; none if any text may."""


@cache
def _lines() -> dict[str, list[str]]:
    text = Path(__file__).with_name("foreign_statements.txt").read_text(encoding="utf-8")
    parts = re.split(r"^\[(\w+)\]$", text, flags=re.MULTILINE)[1:]
    return {
        language: [line for line in lines.splitlines() if line]
        for language, lines in zip(parts[::2], parts[1::2], strict=True)
    }


@cache
def _table(language: str) -> _Table:
    patterns, english = [], dict(time_words(language))
    event, cues = re.compile("(?!)"), set[str]()
    for line in _lines()[language]:
        if line.startswith("did: "):
            event = re.compile(line.removeprefix("did: "))
        elif line.startswith("cues: "):
            cues.update(line.removeprefix("cues: ").split(", "))
        elif " <= " in line:
            put, _, pattern = line.partition(" <= ")
            patterns.append((re.compile(pattern), f" {put} "))
        elif " => " in line:
            pattern, _, put = line.partition(" => ")
            patterns.append((re.compile(pattern), f" {put} "))
        else:
            meaning, _, forms = line.partition("| ")
            english |= dict.fromkeys(forms.split(", "), meaning.strip())
            if not _CUES.isdisjoint(meaning.split()):
                cues.update(max(tokens(form), key=len) for form in forms.split(", "))
    several = sorted((form for form in english if not form.isalpha()), key=len, reverse=True)
    phrases = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, several))})(?!\w)", re.IGNORECASE)
    return _Table(phrases if several else None, english, tuple(patterns), event, frozenset(cues))


@cache
def _signs(language: str) -> frozenset[str]:
    """Return words of the table that tell the language of a text."""
    return frozenset(
        word for word in _table(language).english if len(word) >= _LEAST_LETTERS
    ).difference(_ENGLISH_TOO, stop_words(language))


@cache
def _english_only() -> frozenset[str]:
    others = (*map(stop_words, _LATIN), *(_table(each).english for each in _LATIN))
    return COMMON.difference(*others, ("the",))  # French for tea, without its accent


def _language(text: str) -> str | None:
    """Return the language of a text, or nothing of one in English or in one without a table."""
    if not _english_only().isdisjoint(text[:SLICE].lower().split()):
        return None  # as most English texts: to cut one into words takes ten times as long
    split = tokens(text[:SLICE])
    held = frozenset(split)
    others = [] if text.isascii() else [word for word in split if is_of_other_script(word)]
    if others and any(map(is_unspaced, others)):
        return "ja" if _KANA.search(text) else "zh" if _HAN.search(text) else None
    if len(others) * 2 > len(split):
        return "ru"
    language = language_of(split, text)
    best, most = None, _LEAST_SIGNS - 0.5
    for each in _LATIN:
        own, signs = held & stop_words(each), held & _signs(each)
        count = len(own) + len(signs) + (each == language) / 2 - (0 if signs else _NO_SIGN)
        if own and count > most and held & COMMON <= own:
            best, most = each, count
    return best if best or language == ENGLISH else language


@text_cache(max_bytes=_MAX_BYTES, size_of=lambda _: 0)
def may_tell_change(text: str) -> bool:
    """Tell whether a text has a cue at all: to read one takes a hundred times as long."""
    if has_cue(text):
        return True
    language = _language(text)
    if language is None:
        return False
    cues = _table(language).cues
    return (not cues or not cues.isdisjoint(tokens(text))) and has_cue(statement_in_english(text))


def has_cue(text: str) -> bool:
    text = text.replace("’", "'").lower()
    return _ANY_CUE.search(text) is not None or _MAY_HAVE_VALUE.search(text) is not None


@text_cache(max_bytes=_MAX_BYTES)
def statement_in_english(text: str) -> str:
    """Return *text*, or of one in another language what it says of states and changes."""
    language = _language(text)
    if language is None:
        return text
    table = _table(language)
    text = unicodedata.normalize(
        "NFKC", text.replace("’", "'").replace("œ", "oe").replace("。", ". ")
    )
    if language in ("zh", "ja"):
        return _of_unspaced(text, table, is_japanese=language == "ja")
    parts = _SENTENCE_END.split(text)
    parts[::2] = (_put(part, language, table) for part in parts[::2])
    return "".join(parts)


def _put(sentence: str, language: str, table: _Table) -> str:
    is_event = table.event.search(sentence) is not None
    for pattern, put in table.patterns:
        sentence = pattern.sub(put, sentence)
    sentence = _folded(sentence)
    if table.phrases is not None:
        sentence = table.phrases.sub(lambda each: _english(table, each[0]), sentence)
    last = ""

    def put_one(match: re.Match[str]) -> str:
        nonlocal last
        before, last = last, match[0]
        return match["english"] or _one(match["word"], language, table, before)

    return _in_order(_WORD.sub(put_one, sentence.replace("'", " ")), is_event=is_event)


def _folded(text: str) -> str:
    """Return a text without accents, as `words.tokens` returns words, with its capitals."""
    marked = unicodedata.normalize("NFD", text.replace("ß", "ss"))
    return "".join(each for each in marked if not unicodedata.combining(each))


def _english(table: _Table, phrase: str) -> str:
    return " ".join(f"={word}" for word in table.english[phrase.lower()].split()) or " "


def _one(word: str, language: str, table: _Table, before: str) -> str:
    lower = word.lower()
    if (meaning := table.english.get(lower)) is not None:
        is_name = language == "de" and word[0].isupper() and before.lower() == "ist"
        if not is_name:
            return meaning.replace("*", _STEMS[language][lower])
    elif lower in stop_words(language):
        return ""
    stem = _STEMS[language][lower]
    if not word[0].isupper():
        return stem
    if language == "de" and not (before.lower() in _VALUE_FOLLOWS or before[:1].isupper()):
        return stem
    return stem.capitalize()


def _stem(language: str, word: str) -> str:
    """Return one stem for a verb with "I" and by itself, as "estudio" and "estudiar"."""
    if word.isdigit() or language == "ru":  # those of Russian are made where it is read
        return word
    stem = stem_in(language, word)
    return stem.removesuffix("i") if len(stem) > _LEAST_LETTERS else stem


_STEMS = _AllStems()


def _in_order(sentence: str, *, is_event: bool) -> str:
    """Return a sentence with "i" or "we" before what else its clauses say, as English has it."""
    parts = _CLAUSE_END.split(re.sub(r" {2,}", " ", sentence))
    for at in range(0, len(parts), 2):
        if subject := _SUBJECT.search(parts[at]):
            rest = parts[at][: subject.start()] + parts[at][subject.end() :]
            parts[at] = f"{subject[0]} {rest.strip()}"
    return "did " * is_event + "".join(parts)


def _of_unspaced(text: str, table: _Table, *, is_japanese: bool) -> str:
    parts = _CLAUSE_END.split(re.sub(r"[,、;](?! )", ", ", text))
    said: list[str] = []
    for at in range(0, len(parts), 2):
        if not parts[at].strip():
            continue
        is_event = table.event.search(parts[at]) is not None
        for pattern, put in table.patterns:
            parts[at] = pattern.sub(put, parts[at])
        words = parts[at].replace("=", "").split()
        is_own = _NAMES_SUBJECT.isdisjoint(words) and (is_japanese or ("i" in said and at > 0))
        words = ["i", *words] if is_own else words
        if not _SUBJECTS.isdisjoint(words):  # what is said of them stands before whom or where
            words.sort(
                key=lambda word: (not word.isascii() or word.isdigit(), word not in _SUBJECTS)
            )
        said = words
        parts[at] = " ".join((*["did"] * is_event, *words))
    return "".join(parts)


def foreign_terms(text: str, english: Iterable[str]) -> list[str]:
    """Return the terms by which texts in the language of *text* say one of some *english* words.

    None if *text* is in English.
    """
    language, wanted = _language(text), frozenset(english)
    if language is None:
        return []
    if language in ("ja", "zh"):
        return [f"{MARK}{word}" for word in sorted(wanted)]
    named = _table(language).english.items()
    split = [
        word
        for form, meaning in named
        if not wanted.isdisjoint(meaning.split())
        for word in tokens(form)
    ]
    return list(dict.fromkeys(terms_of(split, language=language if language != "ru" else ENGLISH)))
