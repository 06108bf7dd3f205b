"""Notes that tell of another person or thing than a question asks about."""

from collections.abc import Iterable

import pytest

from orbiter.memory import AgentMemory, HumanMemory, MemoryItem, MemoryMetadata, SQLiteMemoryStore
from orbiter.memory.embeddings.local import LocalEmbeddings
from orbiter.memory.recall import RecallMode, recall

ANN = MemoryMetadata(user_id="ann")
KINDS = ("person", "pet", "number")
BOTH = pytest.mark.parametrize("model", [None, LocalEmbeddings()], ids=["by words", "by both"])

OF_ANOTHER_PERSON = """
    Tomas is allergic to nuts | Am I allergic to nuts?
    Tomas is allergic to nuts | What am I allergic to?
    Tomas's blood type is A | What is my blood type?
    Anna earns 5,200 euros a month | How much do I earn?
    Tomas was born on 3 May 1980 | When was I born?
    Tomas's flight leaves on 3 May at 7:10 | When is my flight?
    Tomas Berg works at Acme | Where do I work?
    My colleague Tomas works at Acme | Where do I work?
    Mum works at the town hall | Where do I work?
    My mother-in-law lives in Rome | Where does my mother live?
    The user's sister works in Kiel | Where do I work?
    Uwe arbeitet bei Bosch | Wo arbeite ich?
    Uwe arbeitet bei Bosch | Wo arbeitet Klara?
    Klara ist allergisch gegen Nüsse | Wogegen bin ich allergisch?
    Klara wurde am 3. Mai 1980 geboren | Wann wurde ich geboren?
    Oma hat am 13. Juli Geburtstag, sie wird 85. | Wann hat Uwe Geburtstag?
    Ma sœur Chloé est allergique aux noix | À quoi suis-je allergique ?
    Chloé travaille chez Renault | Où est-ce que je travaille ?
    Marta vive en Madrid | ¿Dónde vivo?
    Luca lavora alla Fiat | Dove lavoro?
    Joana mora no Porto | Onde é que eu moro?
    Daan woont in Utrecht | Waar woon ik?
    Иван живёт в Москве | Где я живу?
    小明住在上海 | 我住在哪里？
    妹は大阪に住んでいます | 私はどこに住んでいますか？
    田中さんは大阪に住んでいます | 私はどこに住んでいますか？
"""
OF_THE_PERSON = """
    I am allergic to nuts | Am I allergic to nuts?
    User is allergic to nuts | What am I allergic to?
    The user works at Bosch | Where do I work?
    Ann works at Bosch | Where do I work?
    Ann was born on 3 May 1980 | When was I born?
    Ann's flight leaves on 3 May at 7:10 | When is my flight?
    Tomas works at Acme with me | Where do I work?
    Tomas works at Acme | Where does Tomas work?
    Ann arbeitet bei Bosch | Wo arbeite ich?
    Uwe arbeitet bei Bosch | Wo arbeitet Uwe?
    Uwe arbeitet bei Bosch | Wer arbeitet bei Bosch?
    Ich arbeite bei Bosch | Wo arbeite ich?
    TU Delft, studied physics until 2011 | Where did I study?
    Der Nutzer arbeitet bei Bosch | Wo arbeite ich?
    Oma hat am 13. Juli Geburtstag, sie wird 85. | Wann hat Oma Geburtstag?
    Je suis allergique aux noix | À quoi suis-je allergique ?
    Vivo en Madrid | ¿Dónde vivo?
    Lavoro alla Fiat | Dove lavoro?
    Wohne in Graz | Wo wohne ich?
    私は大阪に住んでいます | 私はどこに住んでいますか？
    大阪に住んでいます | 私はどこに住んでいますか？
    The Netflix password is tulip-9 | What is my Netflix password?
"""
WHO = """
    My neighbour feeds Mimi | Who feeds my cat?
    My mother picks up Lea | Who picks up my daughter?
    Anna's husband picks up Lea | Who picks up my daughter?
"""
OF_ANOTHER_PET = """
    My neighbour feeds my dog | Who feeds my cat?
    My neighbour is called Tom | Who is my boss?

    My cat is called Luna | What is my dog called?
    Meine Katze heißt Luna | Wie heißt mein Hund?
    Mi gato se llama Luna | ¿Cómo se llama mi perro?
    Mon chat s'appelle Luna | Comment s'appelle mon chien ?
    Il mio gatto si chiama Luna | Come si chiama il mio cane?
    私の猫の名前はルナです | 私の犬の名前は何ですか？
"""
OF_THE_PET = """
    My cat is called Luna | What is my cat called?
    My puppy is called Bruno | What is my puppy called?
    Meine Katze heißt Luna | Wie heißt meine Katze?
    Mon chat s'appelle Luna | Comment s'appelle mon chat ?
    私の猫の名前はルナです | 私の猫の名前は何ですか？
    Our dog is called Bruno, our cat Luna | What is our dog called?
"""
OF_ANOTHER_NUMBER = """
    Our Q4 target is 15 incidents | How many incidents did we have in Q3?
    Room 12 is booked on Monday | Is room 14 booked on Monday?
    Room 12 is booked on Monday | Is room 14 booked?
    Raum 12 ist am Montag gebucht | Ist Raum 14 am Montag gebucht?
    La salle 12 est réservée lundi | La salle 14 est-elle réservée lundi ?
    We moved to Python 3.11 in May | When did we move to Python 3.12?
    The meeting room 12 is booked | Is the meeting room 14 booked?
    Invoice number 4711 is paid | Is the invoice number 4712 paid?
    Gate 12 opens at dawn | Does gate 14 open at dawn?
    We closed Q4 well | Did Q3 close well?
"""
OF_THE_NUMBER = """
    Room 14 is booked on Monday | Is room 14 booked?
    Room 14 is booked on Monday | Is room 14 booked on Monday?
    Rooms 12 and 14 are booked on Monday | Is room 14 booked on Monday?
    Rooms 12-16 are booked on Monday | Is room 14 booked on Monday?
    Raum 14 ist am Montag gebucht | Ist Raum 14 am Montag gebucht?
    We had 12 incidents in Q3 | How many incidents did we have in Q3?
    We use Python 3.12 | Do we use Python 3?
    I paid 30 euros for the ticket | Did I pay 20 euros for the ticket?
    The meeting is on May 7 | Is the meeting on May 5?
    Retro is in room 8 | Is the retro in room 5?
    We use Python 3.11 | Do we use Python 3.12?
    My phone is an iPhone 15 | Is my phone an iPhone 13?
    I live in flat 4 | Do I live in flat 6?
    My flat is number 4 | Is my flat number 6?
    I take bus line 14 to work | Hi, do I take bus line 12 to work?
    The meeting is at 3 pm | Is the meeting at 4 pm?
    The parcel weighs 3 kg | Does it weigh more than 2 kg?
    Plumber charged 180 | Did the plumber charge 200?
    Room 14 is booked at 4 | Is room 14 booked at 5?
    Die Retro ist in Raum 8 | Ist die Retro in Raum 5?
    Wir benutzen Python 3.11 | Benutzen wir Python 3.12?
"""


def _pairs(lines: str) -> list[tuple[str, str]]:
    split = (line.partition("|") for line in lines.strip().splitlines())
    return [(note.strip(), question.strip()) for note, _, question in split]


async def _recalled(
    notes: Iterable[str | MemoryItem],
    question: str,
    model: LocalEmbeddings | None,
    *,
    scope: MemoryMetadata = ANN,
) -> list[tuple[str, float]]:
    async with SQLiteMemoryStore(":memory:", embeddings=model) as store:
        items = (MemoryItem(content=n, metadata=scope) if isinstance(n, str) else n for n in notes)
        await store.add_many(list(items))
        await store.catch_up()
        hits = await recall(store, question, scope=scope)
    return [(hit.item.content, hit.relevance) for hit in hits]


async def _each(lines: str, model: LocalEmbeddings | None) -> dict[tuple[str, str], float]:
    """Return how relevant each note is to its question, beside no other."""
    recalled = {pair: await _recalled(pair[:1], pair[1], model) for pair in _pairs(lines)}
    return {pair: hits[0][1] if hits else 0.0 for pair, hits in recalled.items()}


@BOTH
@pytest.mark.parametrize("lines", [OF_ANOTHER_PERSON, OF_ANOTHER_PET, OF_ANOTHER_NUMBER], ids=KINDS)
async def test_what_is_told_of_another_is_no_answer(
    lines: str, model: LocalEmbeddings | None
) -> None:
    relevant = await _each(lines, model)

    assert {pair: value for pair, value in relevant.items() if value > 0.3} == {}


@BOTH
@pytest.mark.parametrize("lines", [OF_THE_PERSON, OF_THE_PET, OF_THE_NUMBER], ids=KINDS)
async def test_what_is_told_of_whom_a_question_is_about_answers_it(
    lines: str, model: LocalEmbeddings | None
) -> None:
    relevant = await _each(lines, model)

    assert {pair: value for pair, value in relevant.items() if value <= 0.3} == {}


async def test_who_does_something_may_be_of_the_family() -> None:
    relevant = await _each(WHO, LocalEmbeddings())

    assert {pair: value for pair, value in relevant.items() if value <= 0.3} == {}


@BOTH
@pytest.mark.parametrize(
    ("own", "others", "question"),
    [
        ("I work at Siemens", ["Tomas works at Acme", "Dmitri works at Bosch"], "Where do I work?"),
        ("User is allergic to nuts", ["Tomas is allergic to milk"], "What am I allergic to?"),
        ("Ich wohne in Graz", ["Uwe wohnt in Wien", "Klara wohnt in Linz"], "Wo wohne ich?"),
    ],
)
async def test_what_is_told_of_oneself_comes_before_what_is_told_of_others(
    own: str, others: list[str], question: str, model: LocalEmbeddings | None
) -> None:
    hits = await _recalled([*others, own], question, model)

    assert hits[0][0] == own
    assert hits[0][1] > 0.3
    assert all(value <= 0.3 for _, value in hits[1:])


NUMBERED = MemoryMetadata(user_id="user-42")


@BOTH
@pytest.mark.parametrize(
    ("notes", "is_user"),
    [
        (["Tomas works at Acme", "Tomas likes green tea"], True),
        (["Tomas works at Acme", "My name is Tomas"], True),
        (["Tomas works at Acme", "The user's name is Tomas Berg"], True),
        (["Tomas works at Acme"], False),
        (["Tomas works at Acme", "Tomas likes green tea", "I like coffee"], False),
        (["Tomas works at Acme", "Tomas likes green tea", "Dana is Tomas's wife"], True),
        (["Tomas works at Acme", "Tomas likes green tea", "Dana has a dog"], True),
        (["Tomas works at Acme", "Dana likes green tea"], False),
        (["Tomas works at Acme", "Tomas likes tea", "Dana has a dog", "Dana likes tea"], False),
        (["Tomas works at Acme", "My name's Tomas"], True),
        (["Tomas works at Acme", "Name is Tomas"], True),
        (["Tomas works at Acme", "Hi, I'm Tomas"], True),
        (["Tomas works at Acme", "I'm called Tomas"], True),
    ],
)
async def test_whom_most_notes_call_by_name_is_the_user(
    notes: list[str], model: LocalEmbeddings | None, *, is_user: bool
) -> None:
    hits = dict(await _recalled(notes, "Where do I work?", model, scope=NUMBERED))

    assert (hits.get(notes[0], 0.0) > 0.3) is is_user


@BOTH
@pytest.mark.parametrize("told", ["My name's Joana", "Hi, I'm Joana", "I'm called Joana"])
async def test_who_told_a_name_is_meant_by_it(told: str, model: LocalEmbeddings | None) -> None:
    notes = [told, "I work at a bakery", "I have a cat"]
    hits = dict(await _recalled(notes, "Where does Joana work?", model, scope=NUMBERED))
    others = dict(await _recalled(notes, "Where does Ute work?", model, scope=NUMBERED))

    assert hits["I work at a bakery"] > 0.5
    assert others.get("I work at a bakery", 0.0) <= 0.3


async def test_what_the_model_cannot_read_is_no_answer() -> None:
    notes = ("🍕🍕🍕", "👍", "完了", "!!!", "The door code is 4711")

    for question in ("x", "q", "zz", "xyzzy", "the", "done"):
        hits = await _recalled(notes, question, LocalEmbeddings())

        assert [hit for hit in hits if hit[1] > 0.3] == [], question
    read = dict(await _recalled(notes, "完了", LocalEmbeddings()))
    assert read["完了"] > 0.5, "by its words"


@BOTH
async def test_what_speakers_say_of_themselves_is_theirs(model: LocalEmbeddings | None) -> None:
    tomas = NUMBERED.model_copy(update={"extra": {"speaker": "Tomas"}})
    said = HumanMemory(content="I work at Acme", metadata=tomas)

    [(_, relevance)] = await _recalled([said], "Where does Tomas work?", model, scope=NUMBERED)

    assert relevance > 0.3


async def test_both_modes_that_weigh_words_know_the_names_of_the_user() -> None:
    async with AgentMemory("memory://", embeddings=LocalEmbeddings()) as memory:
        user = memory.scope(user_id="user-42")
        for text in ("Tomas works at Acme", "Tomas likes green tea"):
            await user.remember(text)
        await memory.flush()
        modes: tuple[RecallMode, ...] = ("hybrid", "words")
        for mode in modes:
            hits = await user.recall("Where do I work?", mode=mode)

            assert max(hit.relevance for hit in hits) > 0.3, mode
