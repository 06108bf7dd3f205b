"""Languages of texts: told by script and stop words without a model; stop words and synonyms.

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
from orbiter.memory.text.stemmers import stem_in

__all__ = [
    "ENGLISH",
    "EXACT",
    "LANGUAGES",
    "MARK",
    "MOVED",
    "STARTED_WORK",
    "concepts_in",
    "concepts_of",
    "everyday_words",
    "implied_words",
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


_COLUMNS = ("de", "fr", "es", "ru")
MARK = "·"
"""Begins a term that is no word: none that a text has begins so."""
EXACT = "="
"""Begins a word of the table whose stem another word has, too: "portable" and "porte"."""


@cache
def _synonyms() -> list[tuple[str, list[list[str]]]]:
    """Return what words in each column mean, line by line of the table."""
    table = Path(__file__).with_name("synonyms.txt").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in table.splitlines() if not line.startswith("#")]
    return [(MARK + name, [column.split() for column in columns]) for name, *columns in rows]


@cache
def _by_stem(language: str) -> dict[str, tuple[str, ...]]:
    concepts: dict[str, tuple[str, ...]] = {}
    at = _COLUMNS.index(language)
    for concept, columns in _synonyms():
        exact = {word for word in columns[at] if word[0] == EXACT}
        for stem in exact | {stem_in(language, word) for word in columns[at] if word not in exact}:
            concepts[stem] = (*concepts.get(stem, ()), concept)
    return concepts


@cache
def _unspaced() -> tuple[re.Pattern[str], dict[str, tuple[str, ...]]]:
    """Return what finds Japanese and Chinese words in a run, and what each means."""
    concepts: dict[str, tuple[str, ...]] = {}
    for concept, columns in _synonyms():
        for word in dict.fromkeys(columns[-1]):
            concepts[word] = (*concepts.get(word, ()), concept)
    longest_first = sorted(concepts, key=lambda word: (-len(word), word))
    return re.compile("|".join(map(re.escape, longest_first))), concepts


def concepts_of(language: str, stem: str) -> tuple[str, ...]:
    """Return the terms that a word of *language* has in common with its synonyms.

    The model of `LocalEmbeddings` knows that a salary is earned in English only. Of six other
    languages a small table of everyday words knows it.
    """
    return _by_stem(language).get(stem, ()) if language in _COLUMNS else ()


def concepts_in(run: str) -> tuple[str, ...]:
    """Return these terms of a run of Japanese or Chinese without spaces."""
    pattern, concepts = _unspaced()
    return tuple(dict.fromkeys(each for word in pattern.findall(run) for each in concepts[word]))


_INTRODUCES = frozenset(("am", "by", "call", "called", "i'm", "name", "name's"))
"""Words without which nobody says a name."""
_INTRODUCTION = lazy_pattern(
    r"\b(?:I(?:['’]m| am| go by)|[Cc]all(?:ed)? me|[Mm]y (?:\w+ )?name(?:['’]s| is))"
    r" (?P<name>[^\W\d_]+)(?![\w'’])"
)
_WHO = lazy_pattern(r"\bwho (?:(?:am i|i am)|(?:are you|you are))\s*(?:[?.!,]|$)", re.IGNORECASE)
_NOT_A_NAME = frozenset(
    """
    african american arab asian atheist australian austrian belgian brazilian british buddhist
    canadian catholic chinese christian danish dutch egyptian english european finnish french german
    greek hindu hungarian indian irish israeli italian japanese jewish korean latin mexican muslim
    norwegian polish portuguese protestant romanian russian scottish spanish swedish swiss turkish
    ukrainian vegan vegetarian welsh monday tuesday wednesday thursday friday saturday sunday
    """.split()  # noqa: SIM905 - read by people
)
"""What has a capital letter after "I'm", and is nobody's name."""
_LABEL = lazy_pattern(r"\s*([A-Za-z]+(?:[ _.-][A-Za-z]+){0,3})\s*[:=]\s+\S")
_LABEL_WORD = lazy_pattern(r"[a-z]+")
"""A key of a fact may have its words apart by any of these: `home_city`, `home.city`."""
_BEGINNING, _LONGEST_LABEL = 2_000, 40
"""Characters of a text in which somebody may say a name, and in which a label ends."""
_LABEL_FILLERS = frozenset(
    ("current", "date", "first", "full", "main", "my", "number", "of", "profile", "user")
)
_LABELS = tuple(
    (frozenset(words.split()), means)
    for words, means in (
        (
            "address city home live lives location place residence town village",
            "live home ·live ·home",
        ),
        (
            "company employer job occupation position profession role work workplace",
            "work job ·job",
        ),
        ("age birth birthday birthdate born", "old born birthday ·age ·born ·birthday"),
        ("name nickname", "name call ·name"),
        ("husband partner spouse wife", "partner married"),
        ("diet", "eat food ·food"),
        ("income salary", "earn salary ·earn"),
        ("phone telephone mobile", "phone call ·phone"),
    )
)
"""What is said by a label of nothing but these words, beside them: in English, in which a model
writes keys of facts, and by what words of other languages mean, in which its users ask."""


_NO_PLACE = (
    r"(?! (?:the |next |last |this )?(?:\d|first|last|next|second|(?:mon|tues|wednes|thurs|fri"
    r"|satur|sun)day|january|february|march|april|may|june|july|august|(?:septem|octo|novem|decem)ber"
    r"|tomorrow|today|noon|(?:late|earli)er))"
    r"(?! [^,;.]*\b(?:back|bottom|department|desk|end|folder|front|group|list|position|role|row"
    r"|seat|table|team|top)\b)"
)
_NO_HOME = (
    r"(?! (?:tears|(?:an?|the|my|our|another|new|different|better|cheaper|its)"
    r" (?:(?:new|different|better|cheaper) )?(?:app|bank|browser|database|editor|framework"
    r"|laptop|library|phone|plan|platform|program|provider|software|system|tariff|tool|version)|android|aws|azure|chrome|debian"
    r"|discord|docker|emacs|evernote|excel|fedora|firefox|gcp|git(?:hub|lab)?|gmail|google|ios"
    r"|iphone|java|javascript|jira|kotlin|kubernetes|linear|linux|mac(?:os)?|mysql|neovim|notion"
    r"|obsidian|outlook|postgres(?:ql)?|python|react|rust|safari|signal|slack|spotify|sqlite"
    r"|telegram|typescript|ubuntu|vim|vs ?code|vue|whatsapp|windows)\b)"
)
"""Who is moved to tears lives where they lived, and so does who uses another program."""
_MOVED = (
    r"(?<!am )(?<!was )(?<!were )(?<!been )moved "
    r"(?:(?:again|away|back|just|out|over|recently|together) )*(?:(?:abroad|away|here|home|house|in"
    rf"|out|there)\b|(?:from|into|to)\b{_NO_HOME}{_NO_PLACE})"
)
MOVED = lazy_pattern(rf"\b{_MOVED}", re.IGNORECASE)
"""To have moved is to live elsewhere, but not to have moved the sofa, nor to Friday."""
_STARTED = (
    r"(?:started (?:work(?:ing)? )?(?:as|at|with)\b(?! \d|[^,;.]*\b(?:beginning|bottom|chapter"
    r"|college|dawn|end|gym|home|ironman|kindergarten|level|marathon|midnight|noon|page|race|school|top|tournament|triathlon|university)\b)"
    r"|joined (?:(?:\w+ ){1,3}as (?:an?|the|their)\b"
    r"|(?!(?:an?|for|forces|her|him|his|in|it|me|my|our|the|their|them|up|us|with)\b)[\w&-]+"
    r"(?= (?:as|in|last|on|this|today|yesterday)\b|\W*(?:\Z|[\n,.;!]))))"
)
STARTED_WORK = lazy_pattern(rf"\b{_STARTED}", re.IGNORECASE)
_SELF = (
    r"(?:\A|[.!?\n]\s*|\b(?:I|we)(?:['’]ve| have)? |\buser(?: has)? )(?:(?:already|also|finally"
    r"|just|last \w+|now|recently|then|this \w+|today|yesterday),? )*"
)
_LIVES_NOW = lazy_pattern(rf"{_SELF}{_MOVED}", re.IGNORECASE)
_LIVES_NOW_FOREIGN = lazy_pattern(
    r"\b(?:ich|wir)\b[^.!?,;\n]*\b(?:umgezogen|hingezogen|nach \w[^.!?,;\n]* gezogen)\b"
    r"|\b(?:j['’]ai|nous avons|on a) (?:\w+ ){0,2}?(?:dé|em)ménagé\b"
    r"|\b(?:me mudé|nos mudamos|me he mudado|nos hemos mudado)\b"
    r"|\b(?:я|мы) (?:\w+ ){0,2}?переехал[аи]?\b|\A\W*переехал[аи]?\b"
    r"|我们?[^。,，]{0,8}搬(?:家|到|去|进)"
    r"|(?:\A|私|僕|俺)(?:たち)?は?[^。、はが]*(?:引っ越|転居)し(?:まし)?た",
    re.IGNORECASE,
)
_WORKS_NOW = lazy_pattern(
    rf"{_SELF}(?:{_STARTED}|started (?:in |at )?(?:my|a) new job\b)", re.IGNORECASE
)
_CUES = frozenset(
    """
    joined live lived lives living moved started umgezogen hingezogen gezogen demenage
    emmenage mude mudamos mudado переехал переехала переехали
    """.split()  # noqa: SIM905 - read by people
)
"""One of these is in what tells of a move, a new job or a home; one of these signs, where texts
have no spaces."""
_SIGNS = ("搬", "引っ越", "転居")
_LIVES_WITH = lazy_pattern(
    r"\bliv(?:e[ds]?|ing) (?:together )?with\b|\bmoved in (?:together )?with\b"
    r"|\bwith whom?\b.* live\b",
    re.IGNORECASE,
)
"""With whom somebody lives, which is not told by where."""


def implied_words(tokens: Sequence[str], text: str) -> list[str]:
    """Return English words, or terms with a `MARK`, that *text* means and may not have.

    "Hi, I'm Alice" tells a name, "Who am I?" asks for it, and "home city: Lisbon" says where
    somebody lives.
    """
    implied = _of_label(text) + _of_change(tokens, text)
    if "who" in tokens and _WHO.search(text[:_BEGINNING]):
        implied += " name"
    elif not _INTRODUCES.isdisjoint(tokens) and _is_introduction(text[:_BEGINNING]):
        implied += " name call"
    return implied.split()


def _of_change(tokens: Sequence[str], text: str) -> str:
    """Return what it implies that somebody moved or has a new job: where they live or work."""
    if _CUES.isdisjoint(tokens) and (text.isascii() or not any(map(text.__contains__, _SIGNS))):
        return ""  # as most texts
    text = text[:_BEGINNING]
    implied = " together" if _LIVES_WITH.search(text) else ""
    if _WORKS_NOW.search(text):
        implied += " work ·job"
    if _LIVES_NOW.search(text):
        return f"{implied} live ·live ·home"
    is_foreign = _LIVES_NOW_FOREIGN.search(text) is not None
    return f"{implied} ·live ·home wohn wohnen habit viv vivo живу 住在" if is_foreign else implied


def _is_introduction(text: str) -> bool:
    """Tell whether somebody says by which name they go."""
    names = (match["name"] for match in _INTRODUCTION.finditer(text))
    return any(
        name[0].isupper() and name[1:].islower() and name.lower() not in _NOT_A_NAME
        for name in names
    )


def _of_label(text: str) -> str:
    """Return what the words before a colon imply, as the key of a fact has them."""
    if text.find(":", 0, _LONGEST_LABEL) < 0 and text.find("=", 0, _LONGEST_LABEL) < 0:
        return ""  # as most texts, which need no pattern
    label = _LABEL.match(text)
    if label is None:
        return ""
    parts = frozenset(_LABEL_WORD.findall(label[1].lower())) - _LABEL_FILLERS
    return next((means for words, means in _LABELS if parts and parts <= words), "")
