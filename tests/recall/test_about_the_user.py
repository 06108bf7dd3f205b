"""Questions of users about themselves: who they are, where they live, what is known of them."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from orbiter.memory import AgentMemory, AIMemory, HumanMemory, LocalEmbeddings, MemoryItem
from orbiter.memory.recall import no_model_by_choice
from orbiter.memory.recall._query_analysis import asks, is_question, read
from orbiter.memory.text.words import terms

OTHERS = ("I work as a nurse at the Charité", "The door code is 4711", "I love the mountains")


@pytest.fixture(scope="module")
def local() -> LocalEmbeddings:
    return LocalEmbeddings()


@pytest.fixture(params=["with the model", "by words"])
def model(request: pytest.FixtureRequest, local: LocalEmbeddings) -> Iterator[Any]:
    """Return the model, or none, by choice."""
    with no_model_by_choice():
        yield local if request.param == "with the model" else None


async def _add(alice: Any, text: str, *, is_note: bool) -> None:
    if is_note:
        await alice.remember(text)
    else:
        await alice.chat("one").add(text)


@pytest.mark.parametrize("is_note", [True, False], ids=["notes", "chat"])
@pytest.mark.parametrize(
    "introduction",
    ["Hi, I'm Alice", "My name is Alice", "I am Alice and new here", "You can call me Al"],
)
async def test_a_user_who_said_who_they_are_is_told_their_name(
    model: Any, introduction: str, is_note: bool
) -> None:
    async with AgentMemory("memory://", embeddings=model) as memory:
        alice = memory.scope(user_id="u-17")
        for text in (*OTHERS, introduction):
            await _add(alice, text, is_note=is_note)
        await memory.flush()

        for question in ("What is my name?", "Who am I?", "what's my name"):
            best = (await alice.recall(question))[0]

            assert best.content == introduction
            assert best.relevance > 0.5
            if "name" not in introduction:
                assert 'is about "name" (1 of 1 word)' in str(best.why)


@pytest.mark.parametrize(
    "text",
    ["I'm German", "call me later", "Call me Monday", "I'm Alice's mother", "Who am I to judge?"],
)
def test_what_only_looks_like_an_introduction_tells_no_name(text: str) -> None:
    assert "name" not in terms(text)


@pytest.mark.parametrize(
    ("key", "value", "question"),
    [
        ("home_city", "Lisbon", "Where do I live?"),
        ("address", "Rua Augusta 5", "Where do I live?"),
        ("employer", "Siemens", "Where do I work?"),
        ("occupation", "nurse", "What is my job?"),
        ("birthday", "3 May 1990", "How old am I?"),
        ("name", "Alice", "Who am I?"),
        ("diet", "vegan", "What do I eat?"),
    ],
)
async def test_a_fact_is_found_by_what_its_key_means(
    model: Any, key: str, value: str, question: str
) -> None:
    async with AgentMemory("memory://", embeddings=model) as memory:
        alice = memory.scope(user_id="alice")
        await alice.facts.put("favourite_city", "Rome")
        await alice.facts.put("lucky_number", "7")
        await alice.facts.put(key, value)
        await memory.flush()

        hits = await alice.recall(question)

    assert hits[0].content.endswith(value)
    assert hits[0].relevance > 0.5
    assert all(hit.relevance < 0.5 for hit in hits[1:])


@pytest.mark.parametrize(
    ("user_id", "texts", "question"),
    [
        ("family", ("I have a big family in Porto", "We like board games"), "Where is my family?"),
        ("family", ("My family likes tea", "We like games"), "What does the family like?"),
        ("python", ("I use Python 3.12", "I use a Mac"), "Which Python version do I use?"),
        ("python", ("I learned python 3 at school", "The rent is 900"), "python 3"),
    ],
)
async def test_a_user_id_that_is_an_ordinary_word_is_no_name(
    model: Any, user_id: str, texts: tuple[str, ...], question: str
) -> None:
    async with AgentMemory("memory://", embeddings=model) as memory:
        scope = memory.scope(user_id=user_id)
        for text in texts:
            await scope.remember(text)
        await memory.flush()

        hits = await scope.recall(question)

    assert user_id in hits.question
    assert hits[0].content == texts[0]
    assert hits[0].relevance > 0.3


DOGS = (
    ("I need a name for our new dog", "How about Biscuit or Pepper?"),
    ("Recommend a film", "Try Arrival, a quiet science fiction film."),
    ("Tell me a joke about cats", "A cat walks into a bar and orders a fish."),
)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Which names did you suggest for the dog?", 0),
        ("Which film did you recommend?", 1),
        ("What joke about cats did you tell me?", 2),
    ],
)
async def test_a_suggestion_answers_and_a_request_does_not(
    model: Any, question: str, answer: int
) -> None:
    async with AgentMemory("memory://", embeddings=model) as memory:
        alice = memory.scope(user_id="alice")
        for request, reply in DOGS:
            await alice.chat("c").add(
                [{"role": "user", "content": request}, {"role": "assistant", "content": reply}]
            )
        await memory.flush()

        hits = {hit.content: hit for hit in await alice.recall(question)}
        context = await alice.chat("another").context(question)

    request, reply = DOGS[answer]
    assert hits[reply].relevance > 0.1
    assert reply in context.text
    if answer:
        assert hits[request].relevance < 0.1
        texts = [reason.text for reason in hits[request].why]
        assert "asks the same, so it is not an answer" in texts


@pytest.mark.parametrize(
    ("item", "is_asking"),
    [
        (HumanMemory(content="Recommend a film"), True),
        (HumanMemory(content="please tell me a joke about cats."), True),
        (HumanMemory(content="Write me a poem"), True),
        (HumanMemory(content="Recommend a film. I like comedies"), False),
        (HumanMemory(content="Tell me when I should leave, I have a train at 5"), False),
        (HumanMemory(content="Suggest a present for my nephew Tom"), False),
        (HumanMemory(content="Call me Al"), False),
        (HumanMemory(content="Remember that the code is 4711"), False),
        (HumanMemory(content="How about Biscuit?"), True),
        (AIMemory(content="How about Biscuit or Pepper?"), False),
        (AIMemory(content="Sure! Have you tried Arrival?"), False),
        (AIMemory(content="Fine. How about you?"), True),
        (AIMemory(content="Which one do you like?"), True),
        (MemoryItem(content="Find a dentist"), False),
    ],
)
def test_what_asks_for_something_is_told_by_who_says_it(item: MemoryItem, is_asking: bool) -> None:
    assert asks(item, is_question=is_question(item.content)) is is_asking


KNOWN = (
    "I live in Oslo",
    "I work as a nurse at the Charité",
    "I like green tea",
    "The door code is 4711",
    "Bob likes coffee",
    "I moved to Paris, I no longer live in Oslo",
)


@pytest.mark.parametrize(
    "question",
    [
        "What do you know about me?",
        "Tell me about myself",
        "what do you remember about me so far",
        "What do you know about Alice?",
    ],
)
async def test_what_is_known_of_the_user_is_what_they_said_of_themselves(
    model: Any, question: str
) -> None:
    async with AgentMemory("memory://", embeddings=model) as memory:
        alice = memory.scope(user_id="alice")
        for text in KNOWN:
            await alice.remember(text)
        await alice.facts.put("diet", "vegan")
        await alice.chat("c").add(
            [
                {"role": "user", "content": "Hi, I have a dog. What can you do?"},
                {"role": "assistant", "content": "I can help you, my friend."},
                {"role": "user", "content": "Can I ask you something?"},
            ]
        )
        await memory.flush()

        hits = await alice.recall(question)
        context = await alice.chat("another").context(question)

    contents = [hit.content for hit in hits]
    assert {*KNOWN[1:3], KNOWN[5], "diet: vegan"} < set(contents)
    assert "Hi, I have a dog. What can you do?" in contents
    assert not {"The door code is 4711", "Bob likes coffee", "Can I ask you something?"} & set(
        contents
    )
    assert "I can help you, my friend." not in contents
    assert "nurse" in context.text
    assert hits.question == "asks what is known of the user"
    oslo = next(hit for hit in hits if hit.content == "I live in Oslo")
    assert oslo.replaced_by is not None
    for hit in hits:
        assert "tells about the user" in str(hit.why)
        assert sum(reason.points for reason in hit.why) == pytest.approx(hit.score)


async def test_what_is_known_of_the_user_comes_spread_over_topics() -> None:
    async with AgentMemory("memory://", embeddings=None) as memory:
        alice = memory.scope(user_id="alice")
        for tea in ("green", "black", "white", "mint", "herbal", "iced"):
            await alice.remember(f"I like {tea} tea")
        await alice.remember("I work as a nurse")
        await alice.remember("My brother plays the violin")

        with no_model_by_choice():
            hits = await alice.recall("What do you know about me?", k=3)

    assert sum("tea" in hit.content for hit in hits) <= 2
    assert "I work as a nurse" in [hit.content for hit in hits]


async def test_a_user_of_whom_nothing_is_known_gets_an_empty_list(model: Any) -> None:
    async with AgentMemory("memory://", embeddings=model) as memory:
        alice = memory.scope(user_id="alice")
        await alice.remember("The door code is 4711")
        await memory.flush()

        assert await alice.recall("What do you know about me?") == []
        unrelated = await alice.recall("What do you know about volcanoes?", min_relevance=0.1)

    assert unrelated == []


@pytest.mark.parametrize(
    ("question", "another", "own"),
    [
        (
            "When is my father's birthday?",
            "My mother's birthday is on 3 May",
            "My dad's birthday is on 3 May",
        ),
        ("Where does my brother live?", "My sister lives in Oslo", "My brother lives in Oslo"),
        (
            "What does Eva's car cost?",
            "My friend Anna's car costs 900",
            "My friend Eva's car costs 900",
        ),
        ("What do my parents drink?", "My aunt drinks tea", "My mother drinks tea"),
    ],
)
async def test_what_is_of_another_person_is_hardly_relevant(
    model: Any, question: str, another: str, own: str
) -> None:
    relevance = []
    for text in (another, own):
        async with AgentMemory("memory://", embeddings=model) as memory:
            alice = memory.scope(user_id="u-17")
            await alice.remember(text)
            await alice.remember("The rent is due on Monday")
            await memory.flush()
            hits = await alice.recall(question)
            relevance.append(max((hit.relevance for hit in hits), default=0.0))

    assert relevance[0] <= 0.3
    assert relevance[0] < relevance[1]


_IN_OTHER_LANGUAGES = """
Was weißt du über mich?/Erzähl mir etwas über mich/¿Qué sabes de mí?/Que sais-tu de moi ?
Qu'est-ce que tu sais sur moi ?/Cosa sai di me?/O que você sabe sobre mim?/Wat weet je over mij?
Что ты знаешь обо мне?/你知道我什么?/你对我了解多少？/私について何を知っていますか？
"""
_OF_SOMETHING_ELSE = """
Was weißt du über Mia?/¿Qué sabes de mi hermana?/Que sais-tu de mon chat ?/Cosa sai di Mia?
你知道我的密码吗/私の仕事について知っていますか
"""


@pytest.mark.parametrize(
    ("questions", "is_of_user"), [(_IN_OTHER_LANGUAGES, True), (_OF_SOMETHING_ELSE, False)]
)
def test_what_is_known_of_the_user_is_asked_in_other_languages_too(
    questions: str, is_of_user: bool
) -> None:
    texts = questions.strip().replace("\n", "/").split("/")
    now = datetime(2026, 3, 2, tzinfo=UTC)

    assert [each for each in texts if read(each, now=now).asks_about_user != is_of_user] == []


async def test_what_a_german_user_said_of_themselves_is_returned(model: Any) -> None:
    async with AgentMemory("memory://", embeddings=model) as memory:
        jonas = memory.scope(user_id="jonas")
        for text in ("Ich wohne in Bonn", "Meine Tochter heißt Mia", "Das Auto muss zum TÜV"):
            await jonas.remember(text)
        hits = await jonas.recall("Was weißt du über mich?")

    assert {hit.content for hit in hits} == {"Ich wohne in Bonn", "Meine Tochter heißt Mia"}
    assert all(hit.relevance >= 0.5 for hit in hits)


@pytest.mark.parametrize("allergy", ["I am allergic to nuts", "Ich bin allergisch gegen Nüsse"])
async def test_who_somebody_is_comes_before_what_they_did_and_like(allergy: str) -> None:
    likes = (
        "My rent is 1150 euros a month",
        "I want to travel to Japan next year",
        "I love hiking",
    )
    did = ("Then I test rode a blue bike in the old town", "I bought new shoes for my trip")
    async with AgentMemory("memory://", embeddings=None) as memory:
        alice = memory.scope("alice")
        await alice.remember(allergy)
        for text in (*likes, *did):
            await alice.remember(text)
        await alice.facts.put("employer", "Acme")

        hits = await alice.recall("What do you know about me?", k=2)

    assert {hit.content for hit in hits} == {"employer: Acme", allergy}
