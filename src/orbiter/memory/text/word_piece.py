"""WordPiece, the tokenizer of BERT and its like.

The numbers of its pieces must be those of the reference tokenizer, as a model understands no
others. Most models read texts without case and accents.
"""

import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

__all__ = ["UNKNOWN", "Word", "WordPiece", "is_mark", "read_vocabulary"]

UNKNOWN = "[UNK]"
"""The piece of a word that has none in the vocabulary."""
START, END, PAD = "[CLS]", "[SEP]", "[PAD]"

_MAX_WORD = 100
"""A longer word is unknown, as in the reference; this also bounds the search for pieces."""

_CJK = (
    *((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F)),
    *((0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)),
)

Word = tuple[int, ...]
"""The pieces of one word."""


def read_vocabulary(path: Path) -> list[str]:
    """Return the pieces of a `vocab.txt`, one to a line, in the order of their numbers."""
    # Not `splitlines`: some pieces are characters that it takes for the end of a line.
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


class _Letters(dict[int, str | None]):
    """What becomes of each character; worked out when it is first met."""

    def __init__(self, *, cased: bool) -> None:
        super().__init__()
        self._cased = cased

    def __missing__(self, code: int) -> str | None:
        self[code] = result = _letter(code, cased=self._cased)
        return result


def _letter(code: int, *, cased: bool) -> str | None:
    letter = chr(code)
    category = unicodedata.category(letter)
    if letter in "\t\n\r" or category[0] == "Z":
        return " "
    # What is unassigned to this Python may be an emoji to the next; it counts as a letter.
    is_unseen = category[0] == "C" and category != "Cn"
    if is_unseen or (category == "Mn" and not cased) or code == 0xFFFD:
        return None
    if is_mark(letter) or any(low <= code <= high for low, high in _CJK):
        return f" {letter} "
    return letter if cased else letter.lower()


def is_mark(letter: str) -> bool:
    """Tell whether *letter* is punctuation, which is always a word of its own."""
    # ASCII's `$+<=>^`|~` are symbols to Unicode and punctuation to BERT.
    return unicodedata.category(letter)[0] == "P" or (letter.isascii() and not letter.isalnum())


class WordPiece:
    """Splits texts by a vocabulary, where case counts only if it is *cased*.

    Safe to share between threads. `KeyError` if the vocabulary lacks one of BERT's own pieces.
    """

    def __init__(self, vocabulary: Sequence[str], *, cased: bool = False) -> None:
        self._numbers = {piece: number for number, piece in enumerate(vocabulary)}
        self._pieces = vocabulary
        self.start, self.end = self._numbers[START], self._numbers[END]
        self.pad = self._numbers.get(PAD, 0)
        self._unknown: Word = (self._numbers[UNKNOWN],)
        self._letters = _Letters(cased=cased)
        self._cased = cased
        # Most words of a text were met before, in it or in another one.
        self._word = lru_cache(maxsize=2**14)(self._split)

    def words(self, text: str) -> list[Word]:
        """Return the pieces of each word of *text*; a mark or a CJK character is a word."""
        if not text.isascii() and not self._cased:
            text = unicodedata.normalize("NFD", text)
        split_words = text.translate(self._letters).split()
        # A word that is too long for the vocabulary is not remembered either.
        return [self._word(w) if len(w) <= _MAX_WORD else self._split(w) for w in split_words]

    def names(self, words: Sequence[Word]) -> list[str]:
        """Return the pieces as text; those inside a word begin with `##`."""
        return [self._pieces[number] for word in words for number in word]

    def _split(self, word: str) -> Word:
        if word in self._numbers:
            return (self._numbers[word],)
        if len(word) > _MAX_WORD:
            return self._unknown
        numbers: list[int] = []
        begin, prefix = 0, ""
        while begin < len(word):
            end = len(word)
            while (number := self._numbers.get(prefix + word[begin:end])) is None:
                end -= 1
                if end == begin:
                    return self._unknown
            numbers.append(number)
            begin, prefix = end, "##"
        return tuple(numbers)
