"""The tokenizer gives what the reference gives; these cases were written down from it."""

import orbiter_memory_minilm
import pytest

from orbiter.memory.text.word_piece import WordPiece


@pytest.fixture(scope="module")
def pieces() -> WordPiece:
    text = orbiter_memory_minilm.VOCABULARY.read_text(encoding="utf-8")
    return WordPiece(text.removesuffix("\n").split("\n"))


GOLDEN = {
    "": "",
    " \t\r\n\u00a0\u2028\u3000": "",
    "Hello, World!": "hello , world !",
    "unaffable": "una ##ffa ##ble",
    "don't": "don ' t",
    "ÀÉÎõü naïve Ångström": "ae ##io ##u naive ang ##strom",
    "e\u0301te\u0301": "et ##e",
    "İstanbul": "istanbul",
    "straße": "st ##raße",
    "ΟΔΟΣ": "ο ##δ ##ο ##σ",
    "東京 Tokyo": "東 京 tokyo",
    "ab東cd": "ab 東 cd",
    "日本語です": "日 本 語 て ##す",
    "한국": "ᄒ ##ᅡ ##ᆫ ##ᄀ ##ᅮ ##ᆨ",
    "Привет": "п ##р ##и ##в ##е ##т",
    "مرحبا": "م ##ر ##ح ##ب ##ا",
    "I \U0001f600 it": "i [UNK] it",
    "\U0001f600\U0001f680": "[UNK]",
    "a\x00b\x07c\u200bd\ufffde\u00adf": "abc ##de ##f",
    "tab\there": "tab here",
    "x" * 100: "xx" + " ##xx" * 49,
    "x" * 101: "[UNK]",
    "$5.00 + 3% = ~8^2 <b> `c` |d|": "$ 5 . 00 + 3 % = ~ 8 ^ 2 < b > ` c ` | d |",
    "“quoted” – dash… ¿que?": "“ quoted ” – dash … ¿ que ?",
    "snake_case CamelCase": "snake _ case camel ##case",
    "[CLS] [SEP] [UNK]": "[ cl ##s ] [ sep ] [ un ##k ]",
    "##ing": "# # ing",
    "１２３": "[UNK]",
    "\ud800": "",
}


@pytest.mark.parametrize("text", GOLDEN)
def test_a_text_has_the_pieces_of_the_reference(pieces: WordPiece, text: str) -> None:
    assert " ".join(pieces.names(pieces.words(text))) == GOLDEN[text]


def test_a_word_stays_together(pieces: WordPiece) -> None:
    assert [pieces.names([word]) for word in pieces.words("an unaffable man")] == [
        ["an"],
        ["una", "##ffa", "##ble"],
        ["man"],
    ]


def test_text_cannot_pass_for_the_frame(pieces: WordPiece) -> None:
    numbers = {number for word in pieces.words("[CLS]x[SEP]") for number in word}

    assert not numbers & {pieces.start, pieces.end}
