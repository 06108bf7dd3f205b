"""Light stemmers of German, French, Spanish, Italian, Portuguese, Dutch and Russian; compounds.

In the manner of Snowball's and of the light stemmers of information retrieval, cut down to the
endings that pay in notes and talk, with the irregular verbs people use when they talk. Written here
and not taken from a package, as an index must not change with a version of it. Words come without
accents, as `words.tokens` returns them: German umlauts have no dots, and Russian has no й and no ё.
Changing anything here changes what indexes hold: raise `words.VERSION` with it.
"""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

from orbiter.memory._lazy import lazy_pattern

__all__ = ["STEMMERS", "compound_parts", "stem_in"]


@cache
def _irregular() -> dict[str, dict[str, str]]:
    """Return the word that each irregular form is of, by language."""
    listed = Path(__file__).with_name("irregular_forms.txt").read_text(encoding="utf-8")
    parts = re.split(r"\[(\w+)\]\n", listed)[1:]
    return {
        language: {
            form: base
            for base, *forms in map(str.split, lines.splitlines())
            for form in (base, *forms)
        }
        for language, lines in zip(parts[::2], parts[1::2], strict=True)
    }


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
_GERMAN_DERIVED = ("igkeit", "lichkeit", "keit", "heit", "ung", "lich", "isch", "ig")
_KEPT_GERMAN = frozenset(("zeitung", "meinung", "leitung", "stunden", "stunde", "kunden", "kunde"))


def _german(word: str) -> str:
    if word in _irregular()["de"]:
        return _strip_german(_irregular()["de"][word])
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
        if candidate in _irregular()["de"]:
            return prefix, _strip_german(_irregular()["de"][candidate])
    if infix != "ge" or not rest.endswith(("t", "en")):
        return None
    return prefix, _strip_german(rest.removesuffix("t"))


def _strip_german(word: str) -> str:
    if word in _KEPT_GERMAN:
        return word[:-1] if word.endswith("e") else word.removesuffix("n").removesuffix("e")
    for _ in range(2):
        word = _without(word, ("innen", "in"), 5)
        word = _without(word, ("ern", "est", "end", "em", "en", "er", "es", "et", "ie", "e"), 3)
        if len(word) > 4 and word[-1] == "s" and word[-2] in "bdfghklmnrtaou":
            word = word[:-1]
        if len(word) > 5 and word[-1] == "n" and word[-2] in "lr":
            word = word[:-1]
        shorter = _without(
            word, ("igkeit", "lichkeit", "keit", "heit", "ung", "lich", "isch", "ig"), 4
        )
        if shorter == word:
            break
        word = shorter
    if word.startswith("ge") and word.endswith("t") and 6 < len(word) < 12:
        word = word[2:]
    if len(word) > 5 and word.endswith("st") and word[-3] in "bdfghklmn":
        word = word[:-2]
    elif len(word) > 4 and word.endswith("t") and word[-2] not in "aeiou":
        word = word[:-1]
    return word[:-1] if len(word) > 4 and word[-1] == word[-2] else word


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
    if word in _irregular()["fr"]:
        word = _irregular()["fr"][word]
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


def _spanish(word: str) -> str:
    word = _irregular()["es"].get(word, word)
    if len(word) > 5:
        word = _without(word, ("selas", "selos", "melo", "mela", "telo"), 4)
    if word.endswith("ces") and len(word) > 4:
        word = word[:-3] + "z"
    return _without(word, _SPANISH_ENDINGS, 3)


_ITALIAN_ENDINGS = (
    "azioni", "azione", "izioni", "izione", "amenti", "amento", "imenti", "imento", "mente",
    "atrice", "atori", "atore", "eranno", "erebbe", "iranno", "avamo", "evamo", "avano", "evano",
    "ivano", "iamo", "ando", "endo", "ato", "ata", "ati", "ate", "uto", "uta", "uti", "ito", "ita",
    "iti", "ite", "ava", "avo", "eva", "evo", "iva", "ivo", "era", "ero", "are", "ere", "ire",
    "arsi", "ersi", "irsi", "ano", "ono", "chi", "che", "ghi", "ghe", "ia", "ie", "io", "ii", "i",
    "e", "o", "a",
)  # fmt: skip


def _italian(word: str) -> str:
    word = _irregular()["it"].get(word, word)
    shorter = _without(word, _ITALIAN_ENDINGS, 3)
    if shorter != word and word.endswith(("chi", "che", "ghi", "ghe")):
        return word[:-2]
    return shorter


_PORTUGUESE_ENDINGS = (
    "acoes", "acao", "icoes", "icao", "amentos", "amento", "imentos", "imento", "idades", "idade",
    "adores", "adora", "ador", "mente", "ariamos", "aremos", "avamos", "aram", "eram", "iram",
    "ariam", "aria", "eria", "iria", "ando", "endo", "indo", "avam", "ava", "ados", "adas", "ado",
    "ada", "idos", "idas", "ido", "ida", "amos", "emos", "imos", "asse", "esse", "isse", "arei",
    "ara", "era", "ira", "ar", "er", "ir", "am", "em", "ou", "eu", "iu", "oes", "aes", "ao", "eis",
    "ais", "ia", "io", "os", "as", "es", "o", "a", "e", "s",
)  # fmt: skip


def _portuguese(word: str) -> str:
    return _without(_irregular()["pt"].get(word, word), _PORTUGUESE_ENDINGS, 3)


def _dutch(word: str) -> str:
    word = _irregular()["nl"].get(word, word)
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
    word = _irregular()["ru"].get(word, word)
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
    "es": _spanish,
    "it": _italian,
    "pt": _portuguese,
    "nl": _dutch,
    "ru": _russian,
}
"""The stemmer of each language but English."""


def stem_in(language: str, word: str) -> str:
    """Return the stem of a case-folded *word* without accents of one of `STEMMERS`."""
    return STEMMERS[language](word) if word.isalpha() else word


_LINKS = ("", "s", "n", "en", "es", "er", "e")
_NO_PART = (
    "ung", "lich", "heit", "keit", "isch", "schaft", "chen", "lein", "bar", "los", "haft", "sam",
    "ern", "eln", "ieren", "iert", "ig",
)  # fmt: skip
_SHORTEST, _LEAST, _UNKNOWN = 7, 3, 4


@cache
def _known() -> tuple[frozenset[str], frozenset[str]]:
    """Return the parts that stand in many compounds of everyday life, and their stems."""
    listed = Path(__file__).with_name("german_parts.txt").read_text(encoding="utf-8")
    parts = frozenset(" ".join(listed.splitlines()[1:]).split())
    return parts, frozenset(map(_german, parts))


def _is_head(head: str) -> bool:
    parts, _ = _known()
    return any(head.endswith(link) and head[: len(head) - len(link)] in parts for link in _LINKS)


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
    splits: list[tuple[int, int, str, str]] = []
    for at in range(_LEAST, len(word) - _LEAST + 1):
        head, tail = word[:at], word[at:]
        if tail.startswith(_NO_PART):
            continue
        is_head, is_tail = _is_head(head), _german(tail) in stems
        if is_head and is_tail:
            splits.append((2, at, head, tail))
        elif (is_head and len(head) >= _UNKNOWN and len(tail) > _UNKNOWN) or (
            is_tail and len(tail) >= _UNKNOWN and len(head) >= _UNKNOWN
        ):
            splits.append((1, len(head if is_head else tail), head, tail))
    if not splits:
        return None
    *_, head, tail = max(splits)
    return _unlinked(head), tail


def _unlinked(head: str) -> str:
    parts, _ = _known()
    for link in _LINKS:
        if head.endswith(link) and head[: len(head) - len(link)] in parts:
            return head[: len(head) - len(link)]
    return head.removesuffix("s") if len(head) > _UNKNOWN else head
