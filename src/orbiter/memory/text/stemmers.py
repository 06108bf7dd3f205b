"""Light stemmers of German, French, Spanish, Italian, Portuguese, Dutch and Russian; compounds.

In the manner of Snowball's and of the light stemmers of information retrieval, cut down to the
endings that pay in notes and talk, with the irregular verbs people use when they talk. Written here
and not taken from a package, as an index must not change with a version of it. Words come without
accents, as `words.tokens` returns them: German umlauts have no dots, and Russian has no й and no ё.
Changing anything here changes what indexes hold: raise `words.VERSION` with it.
"""

import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from orbiter.memory._lazy import lazy_pattern

__all__ = ["STEMMERS", "compound_parts", "irregular_forms", "stem_in"]


@cache
def _irregular() -> dict[str, dict[str, str]]:
    listed = Path(__file__).with_name("irregular_forms.txt").read_text(encoding="utf-8")
    parts = re.split(r"\[(\w+)\]\n", listed)[1:]
    return {
        language: {form: forms[0] for forms in map(str.split, lines.splitlines()) for form in forms}
        for language, lines in zip(parts[::2], parts[1::2], strict=True)
    }


def irregular_forms(language: str) -> dict[str, str]:
    """Return the word that each irregular form is of."""
    return _irregular()[language]


def _without(word: str, endings: tuple[str, ...], left: int) -> str:
    """Return *word* without the first of *endings* it has, if so many letters are *left*."""
    for ending in endings:
        if word.endswith(ending) and len(word) - len(ending) >= left:
            return word[: -len(ending)]
    return word


_SEPARABLE = lazy_pattern(
    r"(ab|an|auf|aus|bei|ein|her|hin|los|mit|nach|um|vor|weg|zu|zuruck|zusammen|weiter|fern|statt)"
    r"((?:ge|zu)?)(?=[a-z]{4})(.+)"
)
_GERMAN_ENDINGS = (
    "lichkeit", "igkeit", "keit", "heit", "ung", "lich", "isch", "ig", "ern", "est", "end", "em",
    "en", "er", "es", "et", "ie", "e", "s", "n",
)  # fmt: skip


def _german(word: str) -> str:
    if word in irregular_forms("de"):
        return _strip_german(irregular_forms("de")[word])
    parts = _separable(word)
    if parts is not None:
        return parts[0] + parts[1]
    return _strip_german(word)


def _separable(word: str) -> tuple[str, str] | None:
    """Return the prefix of a separable German verb and the stem of the rest; `None` of others."""
    match = _SEPARABLE.fullmatch(word)
    if match is None:
        return None
    prefix, infix, rest = match.groups()
    for candidate in (f"ge{rest}" if infix == "ge" else rest, rest, f"{infix}{rest}"):
        if candidate in irregular_forms("de"):
            return prefix, _strip_german(irregular_forms("de")[candidate])
    if infix != "ge" or not rest.endswith(("t", "en")):
        return None
    return prefix, _strip_german(rest.removesuffix("t"))


def _strip_german(word: str) -> str:
    for _ in range(2):
        word = _without(_without(word, ("innen", "in"), 5), _GERMAN_ENDINGS, 4)
    if word.startswith("ge") and word.endswith("t") and 6 < len(word) < 12:
        word = word[2:]
    return word[:-1] if len(word) > 4 and word[-1] == "t" else word


_FRENCH_DERIVED = (
    "issement", "atrice", "ateur", "ation", "ement", "euse", "eur", "eux", "ique", "able", "iste",
    "isme", "ive", "if", "age", "ure", "ite", "ance", "ence",
)  # fmt: skip
_FRENCH_ENDINGS = (
    "issaient", "issante", "issant", "issent", "issons", "issait", "issez", "eraient", "erait",
    "erons", "eront", "erai", "eras", "erez", "era", "aient", "ante", "ant", "ions", "iez", "ait",
    "ais", "ai", "ent", "ons", "ez", "er", "ir", "ee", "it", "i", "e",
)  # fmt: skip


def _french(word: str) -> str:
    if word in irregular_forms("fr"):
        word = irregular_forms("fr")[word]
    elif word.endswith("aux") and len(word) > 5:
        word = word[:-3] + "al"
    elif word.endswith(("s", "x")) and len(word) > 3:
        word = word[:-1]
    shorter = _without(word, _FRENCH_DERIVED, 4)
    word = _without(word, _FRENCH_ENDINGS, 3) if shorter == word else shorter
    word = word[:-1] if len(word) > 4 and word[-1] == "i" else word
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] else word


_SPANISH_ENDINGS = (
    "aciones", "acion", "iciones", "icion", "amientos", "amiento", "imientos", "imiento",
    "idades", "idad", "adores", "adora", "ador", "ancias", "ancia", "encias", "encia", "mente",
    "ariamos", "eriamos", "iremos", "aremos", "eremos", "arian", "erian", "irian", "aron", "ieron",
    "aria", "eria", "iria", "aran", "eran", "iran", "ando", "iendo", "yendo", "abamos", "iamos",
    "aban", "abas", "aba", "ados", "adas", "ado", "ada", "idos", "idas", "ido", "ida", "emos",
    "amos", "imos", "asteis", "aste", "iste", "ares", "ara", "era", "ira", "are", "ere", "ire",
    "arse", "erse", "irse", "ian", "ias", "ia", "ar", "er", "ir", "an", "en", "io", "os", "as",
    "es", "ces", "o", "a", "e", "i", "s",
)  # fmt: skip
_ITALIAN_ENDINGS = (
    "azioni", "azione", "izioni", "izione", "amenti", "amento", "imenti", "imento", "mente",
    "atrice", "atori", "atore", "eranno", "erebbe", "iranno", "avamo", "evamo", "avano", "evano",
    "ivano", "iamo", "ando", "endo", "ato", "ata", "ati", "ate", "uto", "uta", "uti", "ito", "ita",
    "iti", "ite", "ava", "avo", "eva", "evo", "iva", "ivo", "era", "ero", "are", "ere", "ire",
    "arsi", "ersi", "irsi", "ano", "ono", "chi", "che", "ghi", "ghe", "ia", "ie", "io", "ii", "i",
    "e", "o", "a",
)  # fmt: skip
_PORTUGUESE_ENDINGS = (
    "acoes", "acao", "icoes", "icao", "amentos", "amento", "imentos", "imento", "idades", "idade",
    "adores", "adora", "ador", "mente", "ariamos", "aremos", "avamos", "aram", "eram", "iram",
    "ariam", "aria", "eria", "iria", "ando", "endo", "indo", "avam", "ava", "ados", "adas", "ado",
    "ada", "idos", "idas", "ido", "ida", "amos", "emos", "imos", "asse", "esse", "isse", "arei",
    "ara", "era", "ira", "ar", "er", "ir", "am", "em", "ou", "eu", "iu", "oes", "aes", "ao", "eis",
    "ais", "ia", "io", "os", "as", "es", "o", "a", "e", "s",
)  # fmt: skip


def _by_endings(language: str, endings: tuple[str, ...], word: str) -> str:
    return _without(irregular_forms(language).get(word, word), endings, 3)


def _dutch(word: str) -> str:
    word = irregular_forms("nl").get(word, word)
    if word.startswith("ge") and word.endswith(("t", "d")) and len(word) > 6:
        word = word[2:]
    word = _without(word, ("heden", "heid", "lijke", "lijk", "ingen", "ing", "tjes", "tje"), 4)
    word = _without(word, ("eren", "en", "es", "e", "s"), 3)
    if len(word) > 4 and word.endswith(("t", "d")) and word[-2] not in "aeiou":
        word = word[:-1]
    # "maan" and "manen", "bomen" and "boom": a vowel is written once or twice.
    word = re.sub(r"(aa|ee|oo|uu)(?=[^aeiou]$)", lambda pair: pair[0][0], word)
    word = {"v": word[:-1] + "f", "z": word[:-1] + "s"}.get(word[-1:], word)
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] else word


_RUSSIAN_VERB = (
    "ировать", "ываться", "иваться", "ываешь", "ировал", "уемся", "ывают", "ивают", "ывает",
    "ивает", "ываю", "иваю", "ывать", "ивать", "ывал", "ивал", "ующии", "ающии", "ешься", "аться",
    "яться", "иться", "еться", "аете", "яете", "аешь", "яешь", "ается", "яется", "аются", "яются",
    "ились", "ились", "алась", "илась", "ался", "ился", "ится", "ятся", "ется", "утся", "ются",
    "ают", "яют", "еют", "уют", "ает", "яет", "еет", "ует", "аем", "яем", "уем", "ете", "ите",
    "ешь", "ишь", "аю", "яю", "ую", "ала", "яла", "ила", "али", "яли", "или", "ало",
    "ило", "ать", "ять", "ить", "еть", "уть", "ыть", "ал", "ял", "ил", "ую", "ут", "ют", "ат",
    "ят", "ит", "ет", "им", "ем", "ть",
)  # fmt: skip
_RUSSIAN_NOUN = (
    "остями", "остях", "ости", "остью", "ость", "иями", "ениями", "ениям", "ениях", "ением",
    "ении", "ение", "ения", "ению", "ании", "анием", "ание", "ания", "анию", "ыми", "ими", "ого",
    "его", "ому", "ему", "ого", "ая", "яя", "ое", "ее", "ые", "ие", "ыи", "ии", "ои", "ую", "юю",
    "ых", "их", "ым", "иях", "иям", "ием", "ами", "ями", "ах", "ях", "ам", "ям", "ом", "ем", "ов",
    "ев", "еи", "ью", "ия", "ию", "ье", "ья", "а", "я", "о", "е", "ы", "и", "у", "ю", "ь",
)  # fmt: skip


def _russian(word: str) -> str:
    word = irregular_forms("ru").get(word, word)
    if word.endswith(("ся", "сь")) and len(word) > 5:
        word = word[:-2]
    left = 3 if word.endswith(("ат", "ят", "ит", "ет", "ут", "ют", "им", "ем")) else 2
    both = _without(word, _RUSSIAN_NOUN, 2), _without(word, _RUSSIAN_VERB, left)
    word = _without(min(both, key=len), ("еньк", "оньк", "ов", "ев", "нн", "н"), 4)
    # A vowel comes and goes before it: "кошка", "кошек".
    return _without(word, ("ек", "ок", "к"), 3).removesuffix("ь")


STEMMERS: dict[str, Callable[[str], str]] = {
    "de": _german,
    "fr": _french,
    "es": partial(_by_endings, "es", _SPANISH_ENDINGS),
    "it": partial(_by_endings, "it", _ITALIAN_ENDINGS),
    "pt": partial(_by_endings, "pt", _PORTUGUESE_ENDINGS),
    "nl": _dutch,
    "ru": _russian,
}
"""The stemmer of each language but English."""


def stem_in(language: str, word: str) -> str:
    """Return the stem of a case-folded *word* without accents of one of `STEMMERS`."""
    return STEMMERS[language](word) if word.isalpha() else word


_LINKS = ("", "s", "n", "en", "es", "er", "e")
_NO_PART = ("ung", "lich", "heit", "keit", "isch")
_SHORTEST, _LEAST = 7, 4


@cache
def _known() -> tuple[frozenset[str], frozenset[str]]:
    """Return the parts that stand in many compounds of everyday life, and their stems."""
    listed = Path(__file__).with_name("german_parts.txt").read_text(encoding="utf-8")
    parts = frozenset(" ".join(listed.splitlines()[1:]).split())
    return parts, frozenset(map(_german, parts))


def _known_head(head: str) -> str | None:
    """Return the known part that *head* is, without the letters that link it to the next."""
    parts, _ = _known()
    return next((left for link in _LINKS if (left := head.removesuffix(link)) in parts), None)


def compound_parts(word: str) -> tuple[str, ...]:
    """Return the stems of the parts of a German *word*; none of one that is not a compound.

    `Zahnarzttermin` is also a `Zahnarzt` and a `Termin`. It is split at parts that are known; of
    the two sides of a split one may be any word. Of a separable verb the part is the verb.
    """
    if (parts := _separable(word)) is not None:
        return (parts[1],)
    split = _split(word)
    if split is None:
        return ()
    head, tail = split
    return (*_part(head), *_part(tail))


def _part(word: str) -> tuple[str, ...]:
    return (_german(word), *compound_parts(word))


def _split(word: str) -> tuple[str, str] | None:
    """Return a word in two, without the letter that links them."""
    known, stems = _known()
    if len(word) < _SHORTEST or word in known or _german(word) in stems:
        return None
    splits: list[tuple[int, str, str]] = []
    for at in range(_LEAST, len(word) - _LEAST + 1):
        head, tail = word[:at], word[at:]
        signs = (_known_head(head) is not None) + (_german(tail) in stems)
        if signs and not tail.startswith(_NO_PART):
            splits.append((signs, head, tail))
    if not splits:
        return None
    _, head, tail = max(splits)
    return _known_head(head) or head.removesuffix("s"), tail
