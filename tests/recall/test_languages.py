"""Notes of seven languages are found, and words of each language have stems of their own."""

from itertools import pairwise

import pytest
from benchmarks.recall_languages import below, ranks, read
from tests.recall.conftest import Opening
from tests.rows import each_row

from orbiter.memory import MemoryItem, MemoryMetadata, PostgresMemoryStore, SQLiteMemoryStore
from orbiter.memory.embeddings.local import LocalEmbeddings
from orbiter.memory.model.facts import FactMemory
from orbiter.memory.recall import RecallMode, recall
from orbiter.memory.testing import HashEmbeddings
from orbiter.memory.text.first_person import in_first_person
from orbiter.memory.text.languages import language_of
from orbiter.memory.text.stemmers import compound_parts, stem_in
from orbiter.memory.text.words import tokens

ANN = MemoryMetadata(user_id="ann")
SETS = read()
LATIN = ("en", "fr", "es", "de")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
@pytest.mark.parametrize("mode", ["hybrid", "words"])
async def test_notes_of_every_language_are_found(opened: Opening, mode: RecallMode) -> None:
    model = LocalEmbeddings() if mode == "hybrid" else None
    async with opened(model) as store:
        too_few = {each["name"]: below(await ranks(store, each, mode=mode), mode) for each in SETS}

    if model is None:
        del too_few["paraphrased"]  # which share few words
    assert not any(too_few.values()), too_few


@pytest.mark.slow
async def test_stores_agree_in_every_language(postgres_dsn: str) -> None:
    async with SQLiteMemoryStore(":memory:") as sqlite, PostgresMemoryStore(postgres_dsn) as server:
        places = [await ranks(store, SETS[1], mode="words") for store in (sqlite, server)]

    assert places[0] == places[1]


@pytest.mark.parametrize("language", LATIN)
def test_the_language_of_a_text_is_told(language: str) -> None:
    texts = [
        text
        for each in SETS
        for text in (
            *each["languages"][language]["notes"],
            *each["languages"][language]["questions"],
        )
    ]

    others = [text for text in texts if language_of(tokens(text), text) != language]

    assert len(others) <= 0.03 * len(texts), others


@each_row(
    "text",
    [
        "Los Angeles",
        "La La Land was on TV",
        "Das Boot",
        "door code",
        "The car is at the garage",
        "Zoë and José had crème brûlée",
        "I met Mia per chance",
        "Notre Dame",
        "",
        "81.7",
    ],
)
def test_names_and_titles_leave_a_text_english(text: str) -> None:
    assert language_of(tokens(text), text) == "en"


@each_row(
    ("language", "forms"),
    [
        ("de", "katze katzen"),
        ("de", "wohne wohnt wohnen wohnung"),
        ("de", "startet starten gestartet"),
        ("de", "fliege flug geflogen"),
        ("de", "umziehen umgezogen"),
        ("de", "allergie allergisch"),
        ("fr", "habite habiter habitent"),
        ("fr", "preferer prefere preferee"),
        ("fr", "cheval chevaux"),
        ("fr", "allergie allergique allergies"),
        ("es", "trabajo trabaja trabajar trabajando"),
        ("es", "gato gatos gata"),
        ("es", "declaracion declarar"),
        ("it", "lavoro lavora lavorare lavorando"),
        ("pt", "trabalho trabalha trabalhar trabalhando"),
        ("nl", "woon wonen"),
        ("nl", "kopen koopt gekocht"),
        ("ru", "кошка кошки кошек кошку"),
        ("ru", "работаю работает работать работа"),
        ("ru", "квартира квартиру квартире"),
    ],
)
def test_forms_of_a_word_have_one_stem(language: str, forms: str) -> None:
    for one, other in pairwise(forms.split()):
        assert stem_in(language, one) == stem_in(language, other)


@each_row(
    ("word", "parts"),
    [
        ("zahnarzttermin", ("zahnarzt", "termin")),
        ("blutdrucktabletten", ("blutdruck", "tablette")),
        ("schuhgrosse", ("schuh", "grosse")),
        ("steuererklarung", ("steuer", "erklaren")),
        ("meeresfruchte", ("meer", "frucht")),
        ("versicherung", ()),
        ("arbeiter", ()),
    ],
)
def test_a_compound_has_its_parts(word: str, parts: tuple[str, ...]) -> None:
    assert set(compound_parts(word)) >= {stem_in("de", part) for part in parts}
    assert bool(compound_parts(word)) is bool(parts)


@pytest.mark.parametrize("key", ["home_city", "home.city", "home-city", "user.home_city"])
async def test_words_of_a_key_may_be_apart_by_any_mark(key: str) -> None:
    async with SQLiteMemoryStore(":memory:") as store:
        await store.add(FactMemory(key=key, value="Lisbon", metadata=ANN))
        [hit] = await recall(store, "my home city", scope=ANN, mode="words")

    assert hit.relevance > 0.3


async def test_a_number_with_decimals_is_one_word_in_every_store(opened: Opening) -> None:
    texts = ["I weigh 81.7 kilos", "Room 81 has 7 beds", "7 to 81", "It costs 1,250 euros"]
    async with opened() as store:
        await store.add_many([MemoryItem(content=text, metadata=ANN) for text in texts])

        decimals = await recall(store, "81.7", scope=ANN, mode="words")
        with_comma = await recall(store, "81,7", scope=ANN, mode="words")
        thousands = await recall(store, "1250", scope=ANN, mode="words")

    assert [hit.item.content for hit in decimals] == texts[:1]
    assert [hit.item.content for hit in with_comma] == texts[:1]
    assert [hit.item.content for hit in thousands] == texts[3:]


class _Unsure(HashEmbeddings):
    """Knows nothing of what it is asked."""

    async def coverage(self, text: str) -> float:
        assert text
        return 0.0


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
async def test_a_model_that_does_not_know_a_language_has_no_say(opened: Opening) -> None:
    notes = [f"note {number} on tea and {name}" for number, name in enumerate(("ann", "ben"))]
    async with opened(_Unsure(64)) as store:
        await store.add_many([MemoryItem(content=text, metadata=ANN) for text in notes])
        await store.catch_up()

        unsure = await recall(store, "tea with ben", scope=ANN)
        words = await recall(store, "tea with ben", scope=ANN, mode="words")

    assert [hit.item.id for hit in unsure] == [hit.item.id for hit in words]


async def test_the_local_model_covers_english_and_little_else() -> None:
    model = LocalEmbeddings()

    covered = {
        language: await model.coverage(SETS[0]["languages"][language]["questions"][0])
        for language in ("en", "de", "ru", "zh")
    }

    assert covered["en"] == 1.0
    assert covered["de"] < 0.7
    assert covered["ru"] == covered["zh"] == 0.0


@each_row(
    ("text", "said"),
    [
        ("User lives in Oslo", "I live in Oslo"),
        ("The user studies law. User no longer eats meat", "I study law. I no longer eat meat"),
        ("User goes, fixes and was", "I go, fixes and was"),
        ("User isn't married; user has a cat", "I am not married; I have a cat"),
        ("The user's wife says that the user can swim", "my wife says that I can swim"),
        ("Where does the user live?", "Where do I live?"),
        ("User stories moved to Friday", "User stories moved to Friday"),
        ("Is user testing done?", "Is user testing done?"),
        ("Tom met a user; username ann", "Tom met a user; username ann"),
    ],
)
def test_what_is_told_of_the_user_is_read_as_they_would_say_it(text: str, said: str) -> None:
    assert in_first_person(text) == said
