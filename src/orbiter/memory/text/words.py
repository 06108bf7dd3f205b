"""Tokens, terms and passages of texts: what a question and a memory share.

Stores index by these functions and recall asks by them, so both always agree. Pure and
deterministic; a change to what they return must raise `VERSION`, which stores keep with their
index to notice that it has to be rebuilt.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache

from orbiter.memory.tasks.offload import SLICE, cut_at_spaces, cut_before, find_all, search
from orbiter.memory.text.stemming import stem

__all__ = ["VERSION", "passages", "stem", "terms", "terms_of", "tokens"]

VERSION = 1
"""Changes whenever `terms` or `passages` return something else for the same text."""

PASSAGE_WORDS = 120
"""About how long a passage is; a text half as long again is still one."""

_WORD_LENGTH = 16
"""Characters that are a word even if there is no space among them."""

# Written without spaces, or with endings glued on: these are told apart by pairs of characters.
_UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
    r"\uf900-\ufaff"
)
# Letters with the vowel signs and points that Python does not count as parts of a word. Endings are
# those of English: what follows in "l'école" is a word of its own.
_WORD = (
    rf"[{_UNSPACED}]+"
    rf"|(?:[^\W_{_UNSPACED}]|[\u0300-\u036f\u0591-\u05c7\u064b-\u0652\u0900-\u0dff])+"
    r"(?:'(?:d|ll|m|re|s|t|ve)\b|\+\+|#)?"
)
_ASCII_WORD = re.compile(r"[a-z0-9]+(?:'(?:d|ll|m|re|s|t|ve)\b|\+\+|#)?")
"""What `_WORD` is for most texts, and three times as fast."""
_REACH = 4
"""Characters beyond a word that its pattern looks at, and some more."""
_ALONE = r"[\x00-\x7f\u4e00-\u9fff]"
"""Characters that are never joined to the one before them when a text is normalised."""
_MARKS = re.compile(r"[\u0300-\u036f]")
# Normalising takes time that grows with the square of so many marks on one letter.
_PILE = re.compile(r"([^\w\s\x00-\x7f]{32})[^\w\s\x00-\x7f]+")

COMMON = frozenset(
    """
    a about after all also am an and any are aren't as at be because been before being but by can
    can't could couldn't did didn't do does doesn't doing don't down each either else ever every
    few for from had hadn't has hasn't have haven't having he he's her here hers him himself his
    how i i'd i'll i'm i've if in into is isn't it it's its itself just let's like lot me more most
    much my myself no nor not now of off on once only or other our ours out over own really same
    she she's should shouldn't so some such than that that's the their theirs them themselves then
    there there's these they they're they've this those through to too under until up upon us very
    was wasn't we we're we've were weren't what what's when where which while who whom whose why
    will with won't would wouldn't yet you you'd you'll you're you've your yours yourself
    """.split()  # noqa: SIM905 - read by people
)
"""English words that tell nothing about what a text is about. Of other languages they are left
in: that they stand everywhere makes them count for little."""


def tokens(text: str) -> list[str]:
    """Return the words of *text* in order: case-folded, without accents, none left out."""
    if len(text) <= SLICE:
        return _tokens(text)
    # A pattern keeps the interpreter's lock until all of its text is read: others go on between.
    found: list[str] = []
    for piece in cut_at_spaces(text):
        found += _tokens(piece) if len(piece) <= 2 * SLICE else _unspaced_tokens(piece)
    return found


def _tokens(text: str) -> list[str]:
    folded = _folded(text)
    return (_ASCII_WORD if folded.isascii() else _compiled(_WORD)).findall(folded)


def _unspaced_tokens(text: str) -> list[str]:
    """Return the words of a long text that has no spaces to cut it at."""
    folded = "".join(map(_folded, cut_before(_compiled(_ALONE), text)))
    pattern = _ASCII_WORD if folded.isascii() else _compiled(_WORD)
    return [word[0] for word in find_all(pattern, folded, reach=_REACH)]


def _folded(text: str) -> str:
    text = text.replace("’", "'")
    if text.isascii():
        return text.lower()
    text = _PILE.sub(r"\1", text)
    folded = unicodedata.normalize("NFKC", text).casefold()
    if not folded.isascii():
        folded = _MARKS.sub("", unicodedata.normalize("NFD", folded))
        folded = unicodedata.normalize("NFC", folded)
    return folded


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern when it is first needed: these large ones take 12 ms, and many never are."""
    return re.compile(pattern)


def terms(text: str) -> list[str]:
    """Return the terms of *text*, repeats included: stems, without what tells nothing."""
    return terms_of(tokens(text))


def terms_of(tokens: Iterable[str]) -> list[str]:
    """Return the terms of words that `tokens` returned."""
    return [term for word in tokens for term in _TERMS[word]]


class _Terms(dict[str, tuple[str, ...]]):
    """The terms of each word met so far: looking one up costs a tenth of making it."""

    cache_clear = dict.clear

    def __missing__(self, word: str) -> tuple[str, ...]:
        if len(self) >= _MAX_WORDS:
            self.clear()
        found = _terms(word)
        if len(word) <= 2 * _WORD_LENGTH:
            self[word] = found
        return found


_MAX_WORDS = 50_000
_TERMS = _Terms()


def _terms(word: str) -> tuple[str, ...]:
    if not word.isascii() and _compiled(f"[{_UNSPACED}]").match(word):
        pairs = (word[start : start + 2] for start in range(len(word) - 1))
        return (word,) if len(word) == 1 else tuple(pairs)
    start = word.partition("'")[0]
    return () if word in COMMON or start in COMMON else (stem(start),)


def passages(text: str) -> list[str]:
    """Cut *text* into passages of about `PASSAGE_WORDS` words, at sentences where there are any.

    Most messages are one passage: themselves.
    """
    if _size(text) <= PASSAGE_WORDS * 3 // 2:
        return [text]
    cut: list[str] = []
    current, size = "", 0
    for piece in _pieces(text):
        length = _size(piece)
        if current.strip() and size + length > PASSAGE_WORDS:
            cut.append(current.strip())
            current, size = "", 0
        current, size = current + piece, size + length
    if current.strip():
        cut.append(current.strip())
    if len(cut) > 1 and _size(cut[-1]) < PASSAGE_WORDS // 4:
        last = cut.pop()
        cut[-1] = f"{cut[-1]}\n{last}"
    return cut or [text]


# Looking back for the stop, not ahead for all of them: a line of dots is read once.
_SENTENCE = re.compile(r".+?(?:(?<=.[.!?…])(?=\s)|[。！？]|\n|$)\s*", re.DOTALL)
_STOP = re.compile(r"[.!?…。！？\n](?:(?<=[。！？\n])|(?=\s))\s*")
"""The end of a sentence, for one that is long; it begins with a character, as that is fast."""
_SPACED = re.compile(r"\S+\s*")
_HANDFUL = re.compile(rf"(?:\S+\s*+){{1,{PASSAGE_WORDS}}}")
_STEP = PASSAGE_WORDS * 2
_LONG_SPACE = _STEP - 2 * _WORD_LENGTH
_LONG_RUN = re.compile(rf"\s{{{_LONG_SPACE}}}")
# Without a space to cut at, after a comma or the like; without any, anywhere.
_CHUNK = re.compile(rf".{{1,{_STEP}}}(?<=\W)|.{{1,{_STEP}}}", re.DOTALL)
# Of an indented or Windows line end, only the line end.
_SPACE = re.compile(r"[ \n]|(?<!\s)[^\S \n]++(?![ \n])")
_RARE_SPACE = re.compile(r"[^\S \n]")


def _pieces(text: str) -> list[str]:
    """Return sentences, and of one that is too long its words in handfuls."""
    found: list[str] = []
    for sentence in _sentences(text):
        if _size(sentence) <= PASSAGE_WORDS:
            found.append(sentence)
            continue
        if _is_plain(sentence):
            found += [handful[0] for handful in _HANDFUL.finditer(sentence)] or [""]
            continue
        handful, size = "", 0
        for word in _words(sentence):
            bare = word.rstrip()
            # As `_size` has it, for most words: without a space, and of plain letters.
            length = max(1, len(bare) // _WORD_LENGTH) if bare.isascii() else _size(bare)
            if size and size + length > PASSAGE_WORDS:
                found.append(handful)
                handful, size = "", 0
            handful, size = handful + word, size + length
        found.append(handful)
    return found


def _is_plain(sentence: str) -> bool:
    """Tell whether every word of a long sentence counts as one: word by word takes ten times."""
    unspaced = None if sentence.isascii() else _compiled(f"[{_UNSPACED}]")
    if unspaced is not None and search(unspaced, sentence, reach=0):
        return False
    spaces = 0
    for piece in cut_at_spaces(sentence):
        lengths = [len(word) for word in piece.split()]
        if max(lengths, default=0) >= 2 * _WORD_LENGTH:
            return False
        spaces += len(piece) - sum(lengths) - len(lengths)
    # Most words have one space beside them, so that there is no long run of it.
    return spaces < _LONG_SPACE - 2 or search(_LONG_RUN, sentence, reach=_STEP) is None


def _sentences(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        edge = start + 2 * SLICE
        for found in _SENTENCE.finditer(text, start, edge):
            if found.end() >= edge < len(text):  # it may be longer still
                break
            yield found[0]
            start = found.end()
        if start + 2 * SLICE == edge:
            # Before the spaces at the edge there is no end; a stop alone is one where it follows.
            first = start if start and text[start] in ".!?…" else start + 1
            last = start + len(text[start:edge].rstrip()) - 1
            stop = search(_STOP, text, max(first, last), reach=1)
            end = len(text) if stop is None else stop.end()
            yield text[start:end]
            start = end


def _words(sentence: str) -> Iterator[str]:
    for match in _SPACED.finditer(sentence):
        word = match[0]
        if len(word) <= _STEP:
            yield word
        else:
            yield from (chunk[0] for chunk in _CHUNK.finditer(word))


def _size(text: str) -> int:
    """Return how many words *text* has; two characters of an unspaced script are one.

    What has hardly any spaces, such as a table or an encoded file, has words of some length.
    """
    if _has_rare_space(text):
        words = sum(1 for _ in find_all(_SPACE, text, reach=1)) + 1
    else:
        words = text.count(" ") + text.count("\n") + 1
    if not text.isascii():
        unspaced = _compiled(f"[{_UNSPACED}]")
        starts = range(0, len(text), SLICE)
        words += sum(len(unspaced.findall(text, at, at + SLICE)) for at in starts) // 2
    return max(words, len(text) // _WORD_LENGTH)


def _has_rare_space(text: str) -> bool:
    if text.isascii():  # a search for each takes a tenth of one for all
        return any(map(text.__contains__, "\t\r\v\f\x1c\x1d\x1e\x1f"))
    return search(_RARE_SPACE, text, reach=0) is not None
