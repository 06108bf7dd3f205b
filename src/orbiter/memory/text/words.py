"""Tokens, terms and passages of texts: what a question and a memory share.

Stores index by these functions and recall asks by them, so both always agree. Pure and
deterministic; a change to what they return must raise `VERSION`, which stores keep with their
index to notice that it has to be rebuilt.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache, partial
from itertools import chain

from orbiter.memory._lazy import lazy_pattern
from orbiter.memory.tasks.offload import SLICE, cut_at_spaces, cut_before, find_all, search
from orbiter.memory.text.languages import ENGLISH, LANGUAGES, language_of, stop_words
from orbiter.memory.text.stemmers import compound_parts, stem_in
from orbiter.memory.text.stemming import stem
from orbiter.memory.text.text_caches import WordCache

__all__ = [
    "VERSION",
    "is_filler",
    "is_of_other_script",
    "is_unspaced",
    "passages",
    "stem",
    "terms",
    "terms_of",
    "tokens",
]

VERSION = 11
"""Changes whenever `terms`, `passages` or `index_texts` return something else for the same text."""

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
_DECIMAL = r"(?<![\d.,])\d++(?:\.\d++|,\d{1,3}+)(?![.,]?\d)"
"""A number such as 81.7; not a date, a version or an address, which have more points, nor what
stands before a year ("May 1,2023")."""
_WORD = (
    rf"{_DECIMAL}|[{_UNSPACED}]+"
    rf"|(?:[^\W_{_UNSPACED}]|[\u0300-\u036f\u0591-\u05c7\u064b-\u0652\u0900-\u0dff])+"
    r"(?:'(?:d|ll|m|re|s|t|ve)\b|\+\+|#)?"
)
_ENDING = r"(?:'(?:d|ll|m|re|s|t|ve)\b|\+\+|#)?"
_ASCII_WORD = lazy_pattern(rf"[a-z][a-z0-9]*{_ENDING}|{_DECIMAL}|\d[a-z0-9]*{_ENDING}")
"""What `_WORD` is for most texts, and three times as fast."""
_LETTERS = bytes(
    ord(chr(code).lower()) if chr(code).isalnum() or chr(code) in "'+#" else ord(" ")
    for code in range(128)
).ljust(256)
"""Each byte of an ASCII text in lower case, or a space if it is part of no word."""
_LIKE_DECIMAL = lazy_pattern(r"\d[.,]\d")
_NUMBER = lazy_pattern(r"(\d+)[.,](\d+)")
_THOUSANDS = 3
_POINT = "·"
"""Stands for the point of a number: an index takes no punctuation."""
_CYRILLIC = r"[\u0400-\u04ff]"
_OTHER_SCRIPT = r"[\u0370-\u1dff\u2c00-\uff20\uff66-\uffdc]"
_SCRIPTS = (
    r"(?P<han>[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3005]+)|(?P<katakana>[\u30a1-\u30fa\u30fc]+)"
    r"|(?P<hiragana>[\u3041-\u309f]+)|(?P<other>[^\u3000-\u9fff\uf900-\ufaff]+)"
)
_STOP_HAN = frozenset(
    "的了是在我你您他她它们有和就不都一个也很到要去会着没这那什么哪里谁几多少怎为吗呢吧把被让从对与及"
    "以之而但如因所还又再已经能可最更给跟向得地过来上下中時的私何誰僕俺君彼方事為今每样种时候"
)
"""Chinese and Japanese characters that tell nothing by themselves,"""
_EMPTY_HAN = frozenset("的了我你您他她它们吗呢吧么着是什哪谁怎私何誰僕")
"""and those that no word is made with."""
_PARTICLES = (
    "ありません|ありますか|ましたか|でしょうか|ていますか|ています|していた|しています|ですか|ましょう|"
    "ませんか|くれます|あります|ましたら|ければ|なければ|なりません|ました|ません|でした|でしょう|として|について|"
    "ください|という|といい|によって|ている|ていて|てある|ていた|という|から|まで|より|ので|のに|です|ます|"
    "した|して|する|され|れる|られ|いる|ある|いた|あった|ない|なく|なの|これ|それ|あれ|どれ|ここ|そこ|どこ|"
    "この|その|あの|どの|どんな|どう|どうして|どのくらい|くらい|いつ|いくら|だれ|なに|なぜ|よく|とても|もう|"
    "たち|さん|ちゃん|くん|さま|うち|とき|こと|もの|ため|よう|ほう|でも|には|では|とは|への|での|にも|かも|"
    "[はがのをにへとでもやかねよわなっんてたしいうくけこ]"
)
"""Japanese in hiragana that binds words and tells nothing: particles and endings."""
_REACH = 4
"""Characters beyond a word that its pattern looks at, and some more."""
_ALONE = r"[\x00-\x7f\u4e00-\u9fff]"
"""Characters that are never joined to the one before them when a text is normalised."""
_MARKS = lazy_pattern(r"[\u0300-\u036f]")
# Normalising takes time that grows with the square of so many marks on one letter.
_PILE = lazy_pattern(r"([^\w\s\x00-\x7f]{32})[^\w\s\x00-\x7f]+")

COMMON = frozenset(
    """
    a about after all also am an and any are aren't as at be because been before being but by can
    can't could couldn't did didn't do does doesn't doing don't down each either else ever every
    few for from had hadn't has hasn't have haven't having he he's her here hers him himself his
    how i i'd i'll i'm i've if in into is isn't it it's its itself just let's lot me more most
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
    words: list[str] = []
    for piece in cut_at_spaces(text):
        words += _tokens(piece) if len(piece) <= 2 * SLICE else _unspaced_tokens(piece)
    return words


def _tokens(text: str) -> list[str]:
    folded = _folded(text)
    if not folded.isascii():
        return _compiled(_WORD).findall(folded)
    if "_" in folded or _LIKE_DECIMAL.search(folded):
        return _ASCII_WORD.findall(folded)
    # The same for texts whose words stand alone, five times as fast.
    words = folded.encode().translate(_LETTERS).decode().split()
    if "'" in folded or "+" in folded or "#" in folded:
        split: list[str] = []
        for word in words:
            if word.isalnum():
                split.append(word)
            else:
                split += _ASCII_WORD.findall(word)
        return split
    return words


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
    split = tokens(text)
    return terms_of(split, language=language_of(split, text))


def terms_of(tokens: Iterable[str], *, language: str = ENGLISH) -> list[str]:
    """Return the terms of words that `tokens` returned, of a text in *language*."""
    return list(chain.from_iterable(map(_TERMS[language].__getitem__, tokens)))


class _AllTerms(dict[str, WordCache[tuple[str, ...]]]):
    """The terms of each word met so far, by language: to look one up is a tenth of making it."""

    def cache_clear(self) -> None:
        for terms in self.values():
            terms.clear()


def _terms(language: str, word: str) -> tuple[str, ...]:
    if not word.isascii():
        if is_unspaced(word):
            starts = range(0, len(word), SLICE)
            return tuple(each for at in starts for each in _unspaced_terms(word[at : at + SLICE]))
        if _compiled(_CYRILLIC).match(word):
            return () if word in stop_words("ru") else (stem_in("ru", word),)
    if word[0].isdigit() and (number := _NUMBER.fullmatch(word)):
        return (_number(number),)
    start = word.partition("'")[0]
    english = () if word in COMMON or start in COMMON else (stem(start),)
    if language == ENGLISH:
        return english
    if start in stop_words(language):
        return ()
    # With the English stem, too: too short a text to tell its language has no other.
    parts = compound_parts(start) if language == "de" else ()
    return tuple(dict.fromkeys((stem_in(language, start), *parts, *english)))


_TERMS = _AllTerms({each: WordCache(partial(_terms, each)) for each in LANGUAGES})


def is_unspaced(word: str) -> bool:
    """Tell whether a word is a run of a script without spaces, and so more than one word."""
    return not word.isascii() and _compiled(f"[{_UNSPACED}]").match(word) is not None


def is_of_other_script(word: str) -> bool:
    """Tell whether a word is written in another script than Latin."""
    return not word.isascii() and _compiled(_OTHER_SCRIPT).search(word) is not None


def _number(number: re.Match[str]) -> str:
    """Return one term for "1,250" and "1.250", and one for "81.7" and "81,7"."""
    whole, part = number.groups()
    is_thousands = len(part) == _THOUSANDS and 0 < len(whole) <= _THOUSANDS and whole[0] != "0"
    return whole + part if is_thousands else f"{whole}{_POINT}{part}"


def _unspaced_terms(run: str) -> tuple[str, ...]:
    """Return the terms of a run without spaces: single characters and pairs, by script."""
    made: list[str] = []
    for piece in _compiled(_SCRIPTS).finditer(run):
        text = piece[0]
        if piece.lastgroup == "han":
            made += [letter for letter in text if letter not in _STOP_HAN]
            made += [pair for pair in _pairs(text) if _EMPTY_HAN.isdisjoint(pair)]
        elif piece.lastgroup == "katakana":
            word = text.rstrip("ー") or text
            made += [word] if len(word) < 4 else [word, *_grams(word, 3)]
        elif piece.lastgroup == "hiragana":
            for rest in _compiled(_PARTICLES).split(text):
                made += _pairs(rest)
        else:
            made += _pairs(text) or [text]
    return tuple(made)


def _pairs(text: str) -> list[str]:
    return _grams(text, 2)


def _grams(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(len(text) - size + 1)]


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
_SENTENCE = lazy_pattern(r".+?(?:(?<=.[.!?…])(?=\s)|[。！？]|\n|$)\s*", re.DOTALL)
_STOP = lazy_pattern(r"[.!?…。！？\n](?:(?<=[。！？\n])|(?=\s))\s*")
"""The end of a sentence, for one that is long; it begins with a character, as that is fast."""
_SPACED = lazy_pattern(r"\S+\s*")
_HANDFUL = lazy_pattern(rf"(?:\S+\s*+){{1,{PASSAGE_WORDS}}}")
_STEP = PASSAGE_WORDS * 2
_LONG_SPACE = _STEP - 2 * _WORD_LENGTH
_LONG_RUN = lazy_pattern(rf"\s{{{_LONG_SPACE}}}")
# Without a space to cut at, after a comma or the like; without any, anywhere.
_CHUNK = lazy_pattern(rf".{{1,{_STEP}}}(?<=\W)|.{{1,{_STEP}}}", re.DOTALL)
# Of an indented or Windows line end, only the line end.
_SPACE = lazy_pattern(r"[ \n]|(?<!\s)[^\S \n]++(?![ \n])")
_RARE_SPACE = lazy_pattern(r"[^\S \n]")


def _pieces(text: str) -> list[str]:
    """Return sentences, and of one that is too long its words in handfuls."""
    pieces: list[str] = []
    for sentence in _sentences(text):
        if _size(sentence) <= PASSAGE_WORDS:
            pieces.append(sentence)
            continue
        if _is_plain(sentence):
            pieces += [handful[0] for handful in _HANDFUL.finditer(sentence)] or [""]
            continue
        handful, size = "", 0
        for word in _words(sentence):
            bare = word.rstrip()
            # As `_size` has it, for most words: without a space, and of plain letters.
            length = max(1, len(bare) // _WORD_LENGTH) if bare.isascii() else _size(bare)
            if size and size + length > PASSAGE_WORDS:
                pieces.append(handful)
                handful, size = "", 0
            handful, size = handful + word, size + length
        pieces.append(handful)
    return pieces


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
        for match in _SENTENCE.finditer(text, start, edge):
            if match.end() >= edge < len(text):  # it may be longer still
                break
            yield match[0]
            start = match.end()
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
    if text.isprintable():  # as most texts are: then a blank is their only space
        words = text.count(" ") + 1
    elif _has_rare_space(text):
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


_COURTESY = frozenset(
    """
    ok okay k kk thanks thank thx cheers please welcome hi hello hey bye goodbye noted understood
    sure great good nice lovely perfect cool fine alright right yes yeah yep yup no nope wow oh ah
    aha hm hmm sorry excellent wonderful awesome fantastic super brilliant absolutely exactly indeed
    certainly definitely interesting agreed done well amazing congratulations congrats haha lol
    danke dank vielen bitte gern gerne gut guten schon prima klar alles genau verstanden notiert ja
    nein hallo tschuss toll genial stimmt
    merci bien bonjour salut oui non parfait accord super note compris entendu voila
    gracias vale bueno bien perfecto hola si claro entendido anotado genial adios
    grazie bene va perfetto ciao capito certo prego
    obrigado obrigada bem perfeito ola sim nao certo entendido
    bedankt dankjewel prima goed mooi ja nee hoi begrepen
    спасибо хорошо ладно да нет пожалуйста понятно привет пока отлично
    谢谢 好的 好 是的 嗯 你好 再见 明白 了解
    ありがとう ありがとうございます はい いいえ わかりました 了解です
    감사합니다 네 안녕하세요 알겠습니다
    """.split()  # noqa: SIM905 - read by people
)
"""Words that are polite and tell nothing, without accents as `tokens` returns them."""
_PHRASE = lazy_pattern(
    r"(?i)\b(?:have a (?:nice|good|great|lovely) (?:day|evening|night|weekend|trip|one)"
    r"|good (?:morning|day|afternoon|evening|night)|of course|no (?:problem|worries)(?: at all)?"
    r"|my pleasure|same to you|(?:see|talk to) you(?: (?:soon|later|then|tomorrow))?|got it|will do"
    r"|sounds (?:like )?(?:an? )?(?:good|great|nice|lovely|perfect|wonderful|amazing|fun)"
    r"|(?:good|glad|happy|nice|lovely) to (?:know|hear|help|see)(?: that| it)?|so much|sure thing"
    r"|how are you(?: (?:doing|today))*|i love (?:that|it)"
    r"|(?:let me know|is there|do you need)(?: if)?(?: you need)? anything else"
    r"|i(?:'ll| will) (?:remember|keep) (?:that|it)(?: in mind)?|bis (?:bald|dann|später|morgen)"
    r"|guten (?:morgen|tag|abend)|gute nacht|kein problem|de rien|de nada|bonne (?:journée|soirée)"
    r"|buenos días|buenas (?:tardes|noches)|d'accord)\b"
)
_INNER_NAME = lazy_pattern(r"(?<=[^\W\d_A-Z,;] )(?!I\b)[A-Z][^\W\d_]*")
_FILLER_LENGTH = 100


def is_filler(text: str) -> bool:
    """Tell whether a text is polite and tells nothing, such as "Okay, noted." or "Thanks!".

    A number, a name within a sentence, or any word that is neither polite nor a stop word of a
    known language tells something.
    """
    if len(text) > _FILLER_LENGTH or not text.strip():
        return False
    rest = _PHRASE.sub(" ", text)
    if any(name.casefold() not in _COURTESY for name in _INNER_NAME.findall(rest)):
        return False
    said = list(tokens(rest))
    if not said:
        return rest != text
    own = stop_words(language) if (language := language_of(said, rest)) != ENGLISH else frozenset()
    return all(word in COMMON or word in _COURTESY or word in own for word in said) and any(
        word in _COURTESY for word in tokens(text)
    )
