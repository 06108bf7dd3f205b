"""Texts as terms and passages: what a question and a memory share when they mean the same."""

import re
from hashlib import sha256
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each_row
from tests.timing import scaled

from orbiter.memory.text.words import (
    _ASCII_WORD,
    COMMON,
    PASSAGE_WORDS,
    VERSION,
    _folded,
    passages,
    stem,
    terms,
    tokens,
)

SAME = """
paint painted painting paints
donate donated donates donating donation donations donator
hike hiked hikes hiking
study studied studies studying
child children
go goes went gone
walk walked walking walks
stop stopped stopping stops
plan planned planning plans
bake baked bakes baking
move moved moves moving
try tried tries trying
cry cried cries crying
play played playing plays
enjoy enjoyed enjoying enjoys
party parties
city cities
berry berries
story stories
family families
class classes
kiss kissed kisses kissing
pass passed passes passing
watch watched watching
teach taught
buy bought
bring brought
think thought
write wrote written
drive drove driven
swim swam swum
run ran running runs
win won winning
read reading reads
see saw seen
take took taken
give gave given
eat ate eaten
speak spoke spoken
person people
man men
woman women
mouse mice
foot feet
tooth teeth
wife wives
knife knives
happy happily happiness
quick quickly quickness
care careful
hope hopeful hoped hoping
create created creates creating
educate educated educating education
celebrate celebrated celebrating celebration celebrations
relate related relating relation relational relations
organize organized organizing organization
friend friends friendship
work worked working
camp camped camping camps
recommend recommendation recommended
explore exploration exploring
inspire inspiration inspired
prepare preparation prepared
volunteer volunteered volunteering volunteers
adopt adopted adopting adoption adopts
connect connected connecting connection
decide decided decides deciding
love loved loves loving
like liked likes liking
travel traveled traveling travelled travelling travels
cancel canceled cancelled cancelling cancels
wake waked waking woke woken
lose lost losing
say said
tell told
good better best
agree agreed agreeing agrees
live lived lives living
allergy allergies allergic
favourite favourites favorite favorites
colour colours coloured color colors colored
neighbour neighbours neighbor
""".strip().splitlines()

DIFFERENT = [
    ("paint", "pain"),
    ("bus", "bush"),
    ("cat", "car"),
    ("sing", "sin"),
    ("king", "kin"),
    ("red", "reed"),
    ("bring", "brine"),
    ("thing", "think"),
    ("spring", "sprint"),
    ("live", "life"),
    ("hour", "hor"),
    ("four", "for"),
    ("pour", "por"),
]

PAIRS = [pair for line in SAME for pair in pairwise(line.split())]


@each_row(("one", "other"), PAIRS)
def test_forms_of_a_word_are_one_term(one: str, other: str) -> None:
    assert stem(one) == stem(other)


@each_row(("one", "other"), DIFFERENT)
def test_other_words_are_other_terms(one: str, other: str) -> None:
    assert stem(one) != stem(other)


@each_row(
    ("text", "expected"),
    [
        ("Ann's", ["ann"]),
        ("Ann’s book", ["ann", "book"]),
        ("the girls' room", ["girl", "room"]),
        ("James' car", ["jame", "car"]),
        ("don't can’t it's I'm you'll we've they're she'd who's shouldn't", []),
        ("O'Neill at five o'clock", ["o", "neill", "five", "o", "clock"]),
        ("l'école d’Avignon", ["l", "ecol", "d", "avignon"]),
        ("café Zürich naïve Ångström", ["cafe", "zurich", "naiv", "angstrom"]),
        ("cafe\u0301", ["cafe"]),
        ("Straße", ["strass"]),
        ("ﬁsh ＨＥＬＬＯ １２", ["fish", "hello", "12"]),
        ("İstanbul", ["istanbul"]),
        ("日本语", ["日", "本", "语", "日本", "本语"]),
        ("貓", ["貓"]),
        ("我要 北京", ["北", "京", "北京"]),
        ("ﾃｽﾄ", ["テスト"]),
        ("ブラウザー", ["ブラウザ", "ブラウ", "ラウザ"]),
        ("ほうれん草です", ["草"]),
        ("ไทย", ["ไท", "ทย"]),
        ("한국어", ["한국", "국어"]),
        ("\u1112\u1161\u11ab", ["한"]),
        ("Москва Москве", ["москв", "москв"]),
        ("हिन्दी", ["हिन्दी"]),
        ("1,234 and 5.5 in 2024", ["1234", "5·5", "2024"]),
        ("on May 1,2023", ["may", "1", "2023"]),
        ("81.7 kg or 81,7kg", ["81·7", "kg", "81·7", "kg"]),
        (
            "3.11.7 of 08.05.2023, 1,2,3 v2.5",
            ["3", "11", "7", "08", "05", "2023", *"123", "v2", "5"],
        ),
        ("C, C++ and C#, F#.", ["c", "c++", "c#", "f#"]),
        ("Я пишу на C++ и C#", ["пиш", "c++", "c#"]),
        ("issue #5 is 1+1", ["issu", "5", "1", "1"]),
        ("room4b snake_case", ["room4b", "snak", "case"]),
        ("🎉 👍🏽 ❤️", []),
        ("", []),
        (" \t\r\n", []),
        ("... ?! --- ___", []),
        ("a\x07b\x1bc", ["b", "c"]),
        ("pay pay paid", ["pay", "pay", "pay"]),
    ],
)
def test_a_text_has_these_terms(text: str, expected: list[str]) -> None:
    assert terms(text) == expected


def test_an_ending_of_another_alphabet_does_not_tell_words_apart() -> None:
    assert stem("картинами") == stem("картинах")
    assert stem("картина") != stem("картофель")


def test_words_that_tell_nothing_are_left_out_but_are_tokens() -> None:
    text = " ".join(sorted(COMMON))

    assert terms(text) == []
    assert tokens(text) == sorted(COMMON)


def test_upper_case_and_lower_case_have_the_same_terms() -> None:
    text = "Ann Painted a HOUSE in Zürich, Ελλάδα and МОСКВА"

    assert terms(text) == terms(text.upper()) == terms(text.lower())


PIECES = st.sampled_from(
    [
        "it's",
        "don't",
        "c++",
        "c#",
        "3.14",
        "1,250",
        "81.7,",
        "v1.2.3",
        "a_b",
        "x'",
        "'t",
        "'s",
        "O'Neil's",
        "F#m",
        "++",
        "#tag",
        "a+b",
        "3d",
        "don't_x",
        "Caroline:",
        "word",
        "5",
        "1.",
        "_",
        "-",
        ",",
        ".",
        "!",
        "'d_",
    ]
)


@given(st.lists(PIECES | st.sampled_from((" ", "\n", "’", "\x1f")), max_size=12).map("".join))
def test_a_plain_text_has_the_tokens_that_the_pattern_of_words_finds(text: str) -> None:
    assert tokens(text) == _ASCII_WORD.findall(_folded(text))


def test_a_very_long_word_is_one_term() -> None:
    assert len(terms("z" * 100_000)) == 1
    assert len(terms("日" * 1000)) == 1000 + 999


TEXTS = st.one_of(
    st.text(),
    st.text(alphabet="ab. \n\t\r!?。日本ไ'’\u0301\u00a0\u3000,", max_size=3000),
    st.lists(
        st.sampled_from(["word", "日本語", "a.b", "\n", ". ", "x" * 300, "語" * 200, "\r"])
    ).map(" ".join),
)


@given(TEXTS)
def test_terms_of_any_text_are_words_without_spaces_and_always_the_same(text: str) -> None:
    found = terms(text)

    assert all(found)
    assert not any(re.search(r"\s", term) for term in found)
    assert terms(text) == found


@pytest.mark.slow
@given(st.from_regex(r"[a-z]{3,12}[bdfgklmnprt]", fullmatch=True))
def test_a_plural_has_the_stem_of_its_singular(word: str) -> None:
    assert stem(f"{word}s") == stem(word)


@pytest.mark.slow
@given(st.text(alphabet=st.characters(max_codepoint=127)))
def test_a_letter_of_another_alphabet_changes_no_other_word(text: str) -> None:
    assert tokens(f"{text} é") == [*tokens(text), "e"]


def _squeezed(text: str) -> str:
    return "".join(text.split())


@given(TEXTS)
def test_passages_lose_nothing_but_space(text: str) -> None:
    cut = passages(text)

    assert cut
    assert _squeezed("".join(cut)) == _squeezed(text)


@pytest.mark.slow
@given(st.lists(st.from_regex(r"[a-zA-Z]{1,12}[.,!?]?", fullmatch=True), max_size=700))
def test_passages_keep_every_word_whole(words: list[str]) -> None:
    text = " ".join(words)

    assert [word for passage in passages(text) for word in passage.split()] == words


@given(TEXTS)
def test_a_passage_is_never_long(text: str) -> None:
    for passage in passages(text):
        assert len(passage.split()) <= PASSAGE_WORDS * 3 // 2
        assert len(re.findall(r"[日本ไ語]", passage)) <= 2 * 300
        assert len(_squeezed(passage)) <= 16 * 300


@each_row("text", ["", " ", "Hello.", " two lines\nof text ", "word " * 150, "日本" * 100])
def test_a_short_text_is_its_own_passage(text: str) -> None:
    assert passages(text) == [text]


def test_a_long_text_is_cut_at_its_sentences() -> None:
    text = " ".join(f"Sentence {n} has these six words." for n in range(100))

    cut = passages(text)

    assert len(cut) > 3
    assert all(passage.startswith("Sentence") and passage.endswith("words.") for passage in cut)
    assert all(60 <= len(passage.split()) <= 150 for passage in cut)


def test_a_sentence_without_end_is_cut_between_words() -> None:
    cut = passages("word " * 1000)

    assert {word for passage in cut for word in passage.split()} == {"word"}
    assert max(len(passage.split()) for passage in cut) <= PASSAGE_WORDS + 30


def test_what_has_commas_instead_of_spaces_is_cut_after_one() -> None:
    cut = passages(",".join(f"name{n}" for n in range(2000)))

    assert len(cut) > 3
    assert all(passage.endswith(",") for passage in cut[:-1])


@each_row("space", ["\t", "\r", "\r\n", "\u00a0", "\u3000", "\u2028", "\x1f"])
def test_any_space_tells_words_apart(space: str) -> None:
    cut = passages(space.join(f"w{n}" for n in range(2000)))

    assert all(50 <= len(passage.split()) <= 150 for passage in cut)


def test_the_indent_of_a_line_is_no_word() -> None:
    lines = [f"* point {n} of the list" for n in range(28)]

    assert len(passages("\n".join(lines))) == len(passages("\n\t".join(lines))) == 1


def test_words_of_an_unspaced_script_among_others_are_cut_too() -> None:
    cut = passages("one two three " * 60 + "日" * 5000 + " four" * 60)

    assert max(map(len, cut)) < 1000


MEGABYTES = {
    "spaces": " " * 10**6,
    "lines": "\n" * 10**6,
    "one letter": "a" * 10**6,
    "dots": "." * 10**6,
    "dots before a word": "." * 500_000 + "a" + " a" * 200,
    "marks of two kinds": "a" + "\u0301\u0316" * 250_000,
    "marks after words": ("a" + "\u0316\u0301\u0327" * 50_000 + " b") * 3 + " b" * 200,
    "no spaces": "日本語" * 100_000,
    "apostrophes": "a'" * 300_000,
    "spaces between": ("a" + " " * 3000) * 300,
    "tabs after words": ("a" + "\t" * 3000 + " ") * 300,
    "stops and spaces": "? " * 100_000,
    "commas": "x," * 300_000,
    "tabs": "a\t" * 100_000,
}


@pytest.mark.slow
@pytest.mark.timeout(scaled(20))
@each_row("name", MEGABYTES)
def test_a_megabyte_of_anything_is_read_in_one_go(name: str) -> None:
    text = MEGABYTES[name]

    cut = passages(text)
    found = terms(text)

    assert len(cut) <= len(text) // 10
    # A character of Chinese stands alone, with the next, and for what it means.
    assert len(found) <= 3 * len(text)


MANY_TEXTS = f"""{SAME}
My name's Alice, I'm called Al, and I moved to Munich in March 2024 with 2.5 kg of C++ books.
We don't use home_city, home.city or home-city; Joana's mother-in-law runs 10 km on Mondays.
Ich wohnte früher in Köln und fahre gern Fahrräder. Où habitent tes frères ? J'aime l'école.
¿Dónde vivían los niños? Gli amici mangiavano le mele. De kinderen speelden buiten.
Где живут мои друзья? 我住在北京，喜欢喝绿茶。 東京に住んでいます。
저는 서울에 살아요. أسكن في القاهرة
"""


def test_a_change_of_the_terms_raises_their_version() -> None:
    made = [[sorted(terms(line)) for line in passages(text)] for text in MANY_TEXTS.splitlines()]
    digest = sha256(repr(made).encode()).hexdigest()[:16]

    # Another digest: raise `VERSION`, or files that are there keep what the old terms found.
    assert (VERSION, digest) == (11, "05564fd9c71a660b")
