"""Times in other languages: what a text says of them, put into the English that `_dates` reads.

"Vor zwei Wochen" becomes "2 week ago", "el 3 de mayo" "3 may". Nothing else of a text is kept.
Months, weekdays and units are those of CLDR (`time_names.txt`, by `docs/build_times.py`), the other
words stand in `time_words.txt`. Chinese, Japanese and Korean are read as one: without a sound sign,
a text in Chinese characters may be of either.
"""

import re
from functools import cache
from pathlib import Path

from orbiter.memory._lazy import lazy_pattern
from orbiter.memory.tasks.offload import SLICE
from orbiter.memory.text.languages import (
    ENGLISH,
    LANGUAGES,
    everyday_words,
    language_of,
    stop_words,
)
from orbiter.memory.text.words import COMMON, is_of_other_script, is_unspaced, tokens

__all__ = ["asks_only_time", "asks_when", "has_time", "in_english"]

_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_UNITS = ("day", "week", "month", "year")
_SEASONS = ("spring", "summer", "autumn", "winter")
_TIMES = frozenset(
    (*_MONTHS, *_DAYS, *_UNITS, *_SEASONS, "weekend", "yesterday", "today", "tomorrow")
)
"""Words that say when something was."""
_UNSPACED = "unspaced"
"""Stands for Chinese, Japanese and Korean."""
_FILES = ("time_names.txt", "time_words.txt")


@cache
def _tables() -> dict[str, dict[str, str]]:
    """Return what each word of each language is in English; `<` and `>` change the order."""
    tables: dict[str, dict[str, str]] = {}
    for name in _FILES:
        listed = Path(__file__).with_name(name).read_text(encoding="utf-8")
        parts = re.split(r"^\[(\w+)\]$", listed, flags=re.MULTILINE)[1:]
        for language, section in zip(parts[::2], parts[1::2], strict=True):
            spaced = language not in ("ja", "ko", "zh", _UNSPACED)
            table = tables.setdefault(language if spaced else _UNSPACED, {})
            for english, forms in (pair.split("=") for pair in section.split()):
                for form in forms.split(","):
                    word = "_".join(tokens(form.replace("_", " "))) if spaced else form
                    table[word] = english.replace("_", " ")
    return tables


_LINKS = ("between", "and", "from", "to", "since", "on", "the", ".")
"""What makes one time of two, or all the time since one; it tells no time by itself."""
_SHORT = 12
_SIGNS = 2
_ENGLISH_TOO = frozenset(
    (*_MONTHS, *_DAYS, *_UNITS, "weekend", "winter", "estate", "once", "mars", "mart", "mayo")
) | {"marco", "sept"}


def _language(text: str) -> str:
    """Return the language of a text: English, that of a table, or `_UNSPACED`."""
    words = tokens(text[:SLICE])
    others = [word for word in words if is_of_other_script(word)]
    if any(map(is_unspaced, others)):
        return _UNSPACED
    if len(others) * 2 > len(words):
        return "ru"
    language = language_of(words, text)
    if language != ENGLISH and len(words) > _SHORT:
        return language
    return _language_of_times(words, language)


@cache
def _signs() -> dict[str, tuple[frozenset[str], frozenset[str]]]:
    """Return the words of each language by which times are named, and all that are known of it.

    The first are those that English has not.
    """
    return {
        language: (
            frozenset(
                word for word, put in table.items() if len(word) > len("for") and put not in _LINKS
            ).difference(_ENGLISH_TOO),
            stop_words(language).union(table) if language in LANGUAGES else frozenset(table),
        )
        for language, table in _tables().items()
        if language != _UNSPACED
    }


def _language_of_times(words: list[str], language: str) -> str:
    """Return the language of a text that is too short to tell it surely, as "Was war gestern?".

    It has the word for a time of that language and another word of it, nothing that is common in
    English only, and more of its words than of the *language* that it seems to be in. Polish and
    Turkish are known by nothing else.
    """
    held = frozenset(words)
    english = held & COMMON
    most = _SIGNS, 0
    if language != ENGLISH:
        named, known = _signs()[language]
        most = len(known & held), len(named & held)
    for each, (named, known) in _signs().items():
        signs = len(known & held), len(named & held)
        if signs[1] and signs > most and english <= known:
            language, most = each, signs
    return language


_PIECE = lazy_pattern(r"\d+(?:[./-]\d+)+|\d+|[^\W\d_]+")
_HAVE = lazy_pattern(r"\bmają\b", re.IGNORECASE)
"""Polish for "they have", which without its accent is May."""
_ANY_UNIT = "|".join((*_UNITS, "weekend", *_DAYS, *_MONTHS, *_SEASONS))
_ANY_MONTH = "|".join((*_MONTHS, *_SEASONS))
_ORDER = (
    (rf"<ago (\d+) ({_ANY_UNIT})\b", r"\1 \2 ago"),
    (rf"\b({_ANY_UNIT}) >last", r"last \1"),
    (rf">last (?={_ANY_UNIT})", "last "),
    (">last", "did"),  # "passé"
    (rf"\bthe (?={_ANY_UNIT})", ""),
    (r"(\d) from (?=[a-z])", r"\1 "),  # "3 de mayo"
    (rf"(?<!\d )(?<!last )(?<!this )\b({_ANY_MONTH})\b", r"in \1"),
    (rf"\b({_ANY_MONTH}) from (?=\d)", r"\1 "),  # "mayo de 2023"
    (rf"(?<!{' )(?<!'.join(_MONTHS)} )\b((?:19|20)\d\d)\b", r"in \1"),
)
"""What makes English of the words: what is replaced, and by what."""


def in_english(text: str) -> str | None:
    """Return the times that *text* names as English names them; `None` of an English text."""
    language = _language(text)
    if language == ENGLISH:
        return None
    if language == _UNSPACED:
        return " . ".join(map(_unspaced_time, _unspaced().finditer(text[:SLICE])))
    table = _tables()[language]
    words = _joined_words(_HAVE.sub(" ", text[:SLICE]), language)
    put = " ".join(word if word.isdigit() else table.get(word, ".") for word in words)
    for pattern, order in _ORDER:
        put = re.sub(pattern, order, put)
    numeric = (piece for piece in _PIECE.findall(text[:SLICE]) if not piece.isalnum())
    return " ".join((put, *numeric))


@cache
def _phrases(language: str) -> re.Pattern[str]:
    phrases = [phrase.replace("_", " ") for phrase in _tables()[language] if "_" in phrase]
    return re.compile(rf"(?<!\S)(?:{'|'.join(sorted(phrases, key=len, reverse=True))})(?!\S)")


def _joined_words(text: str, language: str) -> list[str]:
    """Return the words of a text, those that name a time together as one."""
    joined = _phrases(language).sub(
        lambda match: match[0].replace(" ", "_"), " ".join(tokens(text))
    )
    return joined.split()


@cache
def _forms(*english: str) -> str:
    """Return a pattern for what Chinese, Japanese and Korean have for English words."""
    forms = [form for form, put in _tables()[_UNSPACED].items() if put in english]
    return "|".join(r"\s?".join(form.split("_")) for form in sorted(forms, key=len, reverse=True))


@cache
def _unspaced() -> re.Pattern[str]:
    """Return what finds a time in Chinese, Japanese or Korean."""
    number = rf"(?:\d{{1,4}}|(?:{_forms(*map(str, range(1, 11)))}){{1,3}})"
    of_now = (f"{which} {unit}" for which in ("last", "this") for unit in _UNITS)
    others = ("yesterday", "today", "tomorrow", "weekend", "2 day ago")
    whole = _forms(*of_now, *others, *_DAYS, *_SEASONS)
    return re.compile(
        rf"(?:(?P<of>\d{{4}})\s?[年년]\s?)?(?P<month>{number})\s?[月월]"
        rf"(?:\s?(?P<day>{number})\s?[日号號일])?(?!\s?[前전])"
        rf"|(?P<count>{number})\s?(?P<unit>{_forms(*_UNITS)})\s?(?:{_forms('ago')})"
        r"|(?P<year>\d{4})\s?[年년]"
        rf"|(?P<whole>{whole})"
        rf"|(?P<which>{_forms('last', 'this')})\s?(?P<one>{_forms('weekend', *_UNITS)})"
    )


def _unspaced_time(match: re.Match[str]) -> str:
    table = _tables()[_UNSPACED]
    if match["month"]:
        month, day = _counted(match["month"]), match["day"] and _counted(match["day"])
        if not 1 <= month <= len(_MONTHS):
            return ""
        return f"{day or 'in'} {_MONTHS[month - 1]} {match['of'] or ''}"
    if match["count"]:
        return f"{_counted(match['count'])} {table[match['unit']]} ago"
    if match["year"]:
        return f"in {match['year']}"
    if match["which"]:
        return f"{table[match['which']]} {table[match['one']]}"
    return table[match["whole"]]


def _counted(number: str) -> int:
    """Return a number up to 99 that is written in digits or in characters."""
    if number.isdecimal():
        return int(number)
    digits = _tables()[_UNSPACED]
    tens, ten, ones = number.replace("열", "十").rpartition("十")
    if not ten:
        return int(digits.get(number, "0"))
    return 10 * int(digits.get(tens, "1")) + int(digits.get(ones, "0"))


def asks_when(text: str) -> bool:
    """Tell whether a question in another language than English asks when something was."""
    language = _language(text)
    if language == ENGLISH:
        return False
    if language == _UNSPACED:
        return re.search(_forms("when"), text) is not None
    return any(_tables()[language].get(word) == "when" for word in _joined_words(text, language))


def asks_only_time(text: str) -> bool:
    """Tell whether a question that is about a time names nothing else."""
    language = _language(text)
    if language == ENGLISH:
        known = _COUNTS | COMMON | everyday_words() | _TIMES
        return all(word in known or word[0].isdigit() for word in tokens(text))
    if language == _UNSPACED:
        return not re.sub(rf"{_forms('did')}|\W", "", _unspaced().sub(" ", text))
    _, known = _signs()[language]
    return all(word in known or word.isdigit() for word in _joined_words(text, language))


_COUNTS = frozenset(
    """three four five six seven eight nine ten eleven twelve few day days week weeks month months
    year years happened previous""".split()  # noqa: SIM905 - read by people
)
"""Words of an English time that are not everyday words."""


def has_time(text: str) -> bool:
    """Tell whether a text in another language than English says when something was."""
    put = in_english(text)
    return put is not None and not _TIMES.isdisjoint(put.split())
