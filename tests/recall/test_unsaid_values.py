"""Notes about the right matter that have no value of the kind a question asks for."""

import pytest

from orbiter.memory import MemoryItem, MemoryMetadata, SQLiteMemoryStore
from orbiter.memory.embeddings.local import LocalEmbeddings
from orbiter.memory.recall import recall

MODEL = LocalEmbeddings()
ANN = MemoryMetadata(user_id="ann")

UNSAID = """
    The router is a Fritzbox | What is the password of the router?
    The router is a Fritzbox 7590 | What is the password of the router?
    I bought a tent for the trip to Norway | How much did the tent cost?
    The plumber came on Monday | How much did the plumber charge?
    My sister Eva moves to Oslo in May | How old is my sister Eva?
    The dentist is on Elm Road | What is the phone number of the dentist?
    Our accountant is Frau Winter | What is the email address of our accountant?
    The book club reads Middlemarch | When does the book club meet?
    My passport is in the top drawer | When does my passport expire?
    The insurance of the car is with Allianz | What does the insurance of the car cost?
    Call the tax adviser Mr Ito about the refund | How high is the refund?
    The gym is next to the station | What are the opening hours of the gym?
    I got a promotion to team lead last week | What is my salary as team lead?
    Ben plays basketball | How tall is Ben?
    Lea gets married in a castle | When does Lea get married?
    We travel with Mia in the second week of May | When is Mia's birthday?
    Ben and Lea moved in on 3 June | When is Ben's wedding?
    The report for Frau Winter has 12 pages | When is the deadline of the report?
    Lena is in class 3, her teacher is Ms Wieland | How old is Lena?
    Ordered a birthday present for Tomas: a torque wrench, 89 euros | How old is Tomas?
    Lena's recital is on 3 May at 7:30 pm | How old is Lena?
    Lena geht in Klasse 3 | Wie alt ist Lena?
    I want to visit Japan one day | When did I visit Japan?
    We would love to visit Japan with the kids | When did we visit Japan?
    Quiero visitar Japón | ¿Cuándo visité Japón?
    Leo mag Dinosaurier | Wie alt ist Leo?
    My little sister Eva eats no meat | How old is my sister Eva?
    The report for Frau Winter has no pictures | When is the deadline of the report?
    Der Router steht im Flur | Was ist das Passwort vom Router?
    Le vélo est rouge | Combien a coûté le vélo ?
    La bici es roja | ¿Cuánto costó la bici?
"""
SAID = """
    The tent was eighty euros | How much did the tent cost?
    Parking is free on Sundays | How much does parking cost on Sundays?
    Leo turned six in March | How old is Leo?
    Lena turned 7 in May | How old is Lena?
    Lena is 7 and goes to class 2 | How old is Lena?
    Tomas turns 40 on 3 May | How old is Tomas?
    Tomas was born on 3 May 1980 | How old is Tomas?
    The house was built in 1904 | How old is the house?
    I visited Japan in 2019 and want to go again | When did I visit Japan?
    I wanted to quit, and quit on Monday | When did I quit?
    I want to visit Japan one day | When did I say that I want to visit Japan?
    My password for the router is tulipgarden | What is the password of the router?
    The wifi password is walnut-bridge | What is the password of the wifi?
    Router login: admin | What is the login of the router?
    Our rent went up to nine hundred | How much is our rent?
    The passport is valid until next summer | When does my passport expire?
    Choir practice is every Tuesday evening | When is choir practice?
    The shop opens at noon | When does the shop open?
    The project deadline was moved to the end of March | When is the deadline of the project?
    Mia was born on 3 May 2019 | When is Mia's birthday?
    Mia's birthday party is on Saturday | When is Mia's birthday?
    Ben and Lea get married on 3 June | When is Ben's wedding?
    The report has to be submitted by Friday | When is the deadline of the report?
    Anna's email is anna@example.org | What is the email address of Anna?
    The staging server is staging.example.net | What is the URL of the staging server?
    The plumber took a hundred euros | How much did the plumber charge?
    I love green tea more than anything | How much do I like green tea?
    Der Fahrradhelm hat fast neunzig Euro gekostet | Wie viel hat der Fahrradhelm gekostet?
    Das Passwort vom Router ist tulpe | Was ist das Passwort vom Router?
    Leo ist vier Jahre alt | Wie alt ist Leo?
    Le vélo a coûté cent euros | Combien a coûté le vélo ?
    El alquiler es gratis en enero | ¿Cuánto cuesta el alquiler en enero?
    Der Chor ist donnerstags | Wann ist der Chor?
    Der Zahnarzttermin ist am Montag früh | Wann ist der Zahnarzttermin?
    I take no sugar in my tea | How much sugar do I take in my tea?
    Ich nehme keinen Zucker im Tee | Wie viel Zucker nehme ich im Tee?
    Mia is a year old | How old is Mia?
    Mia ist ein Jahr alt | Wie alt ist Mia?
    I drink a whole pot of coffee every day | How much coffee do I drink?
    I eat little meat | How much meat do I eat?
    I hardly eat any meat | How much meat do I eat?
    I drink none of the wine | How much wine do I drink?
    The ticket was a fiver | How much did the ticket cost?
    I take my vitamins with breakfast | When do I take my vitamins?
    I walk the dog at lunchtime | When do I walk the dog?
    The bins are emptied once a fortnight | When are the bins emptied?
    Wifi passphrase is correct horse battery staple | What is the wifi password?
"""
SAID_IN_OTHER_WORDS = """
    My brother turns 40 on 2 December | When is my brother's birthday?
    The report has to be in by 15 January | When is the deadline for the report?
    Vitamins with breakfast | When do I take my vitamins?
"""


def _pairs(lines: str) -> list[tuple[str, str]]:
    split = (line.partition("|") for line in lines.strip().splitlines())
    return [(note.strip(), question.strip()) for note, _, question in split]


async def _relevance_of(note: str, question: str, model: LocalEmbeddings | None) -> float:
    async with SQLiteMemoryStore(":memory:", embeddings=model) as store:
        await store.add(MemoryItem(content=note, metadata=ANN))
        hits = await recall(store, question, scope=ANN)
    return hits[0].relevance if hits else 0.0


@pytest.mark.parametrize("model", [None, LocalEmbeddings()], ids=["by words", "with the model"])
async def test_a_note_without_such_a_value_is_no_answer(model: LocalEmbeddings | None) -> None:
    found = {pair: await _relevance_of(*pair, model) for pair in _pairs(UNSAID)}

    assert {pair: value for pair, value in found.items() if value > 0.3} == {}


@pytest.mark.parametrize("model", [None, LocalEmbeddings()], ids=["by words", "with the model"])
async def test_a_note_with_one_still_is(model: LocalEmbeddings | None) -> None:
    found = {pair: await _relevance_of(*pair, model) for pair in _pairs(SAID)}

    assert {pair: value for pair, value in found.items() if value <= 0.3} == {}


async def test_a_value_in_other_words_is_one_for_the_model() -> None:
    relevant = {pair: await _relevance_of(*pair, MODEL) for pair in _pairs(SAID_IN_OTHER_WORDS)}

    assert {pair: value for pair, value in relevant.items() if value <= 0.5} == {}


async def test_the_own_date_of_a_note_may_say_when_something_was() -> None:
    note, question = "I bought the tent in the outdoor shop", "When did I buy the tent?"

    assert await _relevance_of(note, question, None) > 0.5
