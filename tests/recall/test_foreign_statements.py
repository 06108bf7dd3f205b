"""Statements in other languages that replace older ones, and those that only look like it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.recall.conftest import MODELS, Opening

from orbiter.memory import HumanMemory, MemoryItem, MemoryMetadata
from orbiter.memory.recall import recall
from orbiter.memory.recall._foreign_statements import statement_in_english
from orbiter.memory.recall._query_analysis import read
from orbiter.memory.recall._replaced import find_replacements
from orbiter.memory.testing import HashEmbeddings

ANN = MemoryMetadata(user_id="ann")
NOW = datetime(2026, 3, 2, tzinfo=UTC)
LANGUAGES = ("de", "fr", "es", "it", "pt", "nl", "ru", "zh", "ja")


def _said(item_id: str, text: str, days_ago: int) -> MemoryItem:
    at = NOW - timedelta(days=days_ago)
    return HumanMemory(id=item_id, content=text, metadata=ANN, created_at=at)


def _pairs(language: str, kind: str) -> list[list[str]]:
    """Return question, older and newer statement of the pairs of one kind: "", "-" or "~"."""
    text = Path(__file__).with_name("foreign_replacements.txt").read_text(encoding="utf-8")
    part = text.partition(f"[{language}]\n")[2].partition("\n[")[0]
    lines = [line for line in part.splitlines() if line != "==="]
    signs = ((line[0] if line[0] in "-~" else "", line.lstrip("-~ ")) for line in lines)
    return [line.split(" | ") for sign, line in signs if sign == kind]


def _is_marked(question: str, older: str, newer: str) -> bool:
    both = [_said("older", older, 30), _said("newer", newer, 3)]
    return list(find_replacements(read(question, now=NOW), both[:1], both)) == ["older"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_changed_replaces_what_was_said_before(language: str) -> None:
    pairs = _pairs(language, "")

    assert len(pairs) >= 10
    assert [pair for pair in pairs if not _is_marked(*pair)] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_only_looks_like_a_change_replaces_nothing(language: str) -> None:
    pairs = _pairs(language, "-")

    assert len(pairs) >= 10
    assert [pair for pair in pairs if _is_marked(*pair)] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_news_about_something_else_replace_nothing(language: str) -> None:
    # What is told of homes may replace each other, and so may what is told of one appointment.
    pairs = [pair for kind in ("", "-", "~") for pair in _pairs(language, kind)]
    alone = [
        pair
        for pair in pairs
        if not any(word in " ".join((*pair, *map(statement_in_english, pair))) for word in _SEVERAL)
    ]
    marked = [
        newer
        for at, (question, older, _) in enumerate(alone)
        for other, (_, _, newer) in enumerate(alone)
        if at != other and _is_marked(question, older, newer)
    ]

    assert len(alone) >= 12
    assert marked == _GIVEN_UP.get(language, [])


_SEVERAL = ("live", "moved", "boss", "dentist", "tandarts", "Zahnarzt", "стомат", "牙医", "歯医者")
_GIVEN_UP = {
    "nl": ["Ik ben gestopt met Spaans"],
    "zh": ["我放弃学西班牙语了"],
    "ja": ["スペイン語の勉強をやめました"],
}
"""Who stops Spanish speaks it no longer: "I gave up Spanish" does so in English, too."""


@MODELS
async def test_a_german_question_about_now_prefers_what_replaces_another(
    opened: Opening, model: HashEmbeddings | None
) -> None:
    others = [_said(f"n{day}", f"Der Regen am Tag {day} war warm", day) for day in range(30, 280)]
    oslo = _said("oslo", "Ich wohne in Oslo", 300)
    linz = _said("linz", "Wir sind im Herbst nach Linz umgezogen", 15)
    async with opened(model) as store:
        await store.add_many([oslo, *others, linz])

        found = await recall(store, "Wo wohne ich jetzt?", scope=ANN, now=NOW)
        past = await recall(store, "Wo habe ich früher gewohnt?", scope=ANN, now=NOW)

    assert [hit.item.id for hit in found][:2] == ["linz", "oslo"]
    assert found[1].replaced_by == "linz"
    assert 'replaces "Ich wohne in Oslo"' in [reason.text for reason in found[0].why]
    assert all(hit.replaced_by is None for hit in past)


_NOW = """
Was ist mein Beruf?/Was trinke ich morgens?/Wie alt ist meine Tochter?/Wo wohne ich?
Quel âge a mon mari ?/Où est-ce que j'habite ?/Quel est mon salaire ?/Qu'est-ce que j'aime ?
Quanti anni ha mio marito?/Dove abito?/Ho un gatto?/Qual è il mio stipendio?
¿Qué tomo, café o té?/¿Cuántos años tiene mi bebé?/¿Dónde vivo?/¿Cuál es mi dirección?
Onde eu moro?/Qual é o meu salário?/Eu sou casado?/O que eu estou lendo?
Wat is mijn gewicht?/Waar woon ik nu?/Heb ik een kat?
Где я живу?/Какая у меня зарплата?/В какой школе учится дочь?/Какой у меня любимый спортзал?
我住在哪里?/我的工作是什么?/どこに住んでいますか?/私の仕事は何ですか?
"""
_PAST = """
Wo habe ich früher gewohnt?/Wo war mein Büro?/Was habe ich gestern gegessen?/Wie hieß unser Team?
Où est-ce que j'habitais avant ?/Qu'est-ce que j'ai mangé hier ?/Où ai-je travaillé ?
Dove abitavo prima?/Cosa ho mangiato ieri?/¿Dónde vivía antes?/¿Qué comí ayer?/¿Dónde he vivido?
Onde eu morava antes?/O que eu comprei ontem?/Waar woonde ik vroeger?/Wat heb ik gisteren gegeten?
Где я жил раньше?/Что я купила вчера?/我以前住在哪里?/以前どこに住んでいましたか?
"""


@pytest.mark.parametrize(("questions", "is_past"), [(_NOW, False), (_PAST, True)])
def test_whether_a_question_is_about_the_past_is_told_in_each_language(
    questions: str, is_past: bool
) -> None:
    texts = questions.strip().replace("\n", "/").split("/")

    assert [text for text in texts if read(text, now=NOW).asks_past != is_past] == []


@pytest.mark.parametrize(
    "text",
    [
        "I moved to Paris last month, I no longer live in Oslo",
        "Milk costs 1.20 at the corner shop",
        "Team lunch: Mexican place, Friday",
        "Die Hard is my favourite film",
        "Passport expires June 2027",
        "Frau Winter teaches maths.",
        "",
    ],
)
def test_english_texts_stay_as_they_are(text: str) -> None:
    assert statement_in_english(text) == text
