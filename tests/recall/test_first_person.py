"""Who is who: "I", "the user" and the name of the user mean the same, in questions and memories."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.agent._served import served
from tests.rows import each_row

from orbiter.memory import AgentMemory, LocalEmbeddings
from orbiter.memory.cli._sample_data import fill
from orbiter.memory.errors import QueryError
from orbiter.memory.recall import no_model_by_choice
from orbiter.memory.text.first_person import in_first_person

NOTES = (
    "I live in Lisbon",
    "I work as a nurse",
    "My daughter is called Mia",
    "I am allergic to peanuts",
    "I run ten kilometres every Sunday",
    "My sister lives in Kiel",
    "I drive a red Volvo",
    "I play the cello",
    "My boss is called Tomas",
    "I was born in 1986 in Porto",
)
OTHERS = ("Bob lives in Bonn", "Alice Springs is hot in January", "Alice is often late")
ASKED = (
    ("Where do I live?", "Where does {} live?"),
    ("What do I work as?", "What does {} work as?"),
    ("Who is my daughter?", "Who is {}'s daughter?"),
    ("What am I allergic to?", "What is {} allergic to?"),
    ("How far do I run on Sundays?", "How far does {} run on Sundays?"),
    ("Where does my sister live?", "Where does {}'s sister live?"),
    ("What car do I drive?", "What car does {} drive?"),
    ("Which instrument do I play?", "Which instrument does {} play?"),
    ("Who is my boss?", "Who is {}'s boss?"),
    ("When was I born?", "When was {} born?"),
)


@pytest.fixture(params=["with the model", "by words"])
def model(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Return the model, or none, by choice."""
    with no_model_by_choice():
        yield LocalEmbeddings() if request.param == "with the model" else None


@pytest.mark.parametrize("mode", ["hybrid", "meaning", "recent"])
async def test_a_question_that_calls_the_user_by_name_is_asked_in_the_first_person(
    model: Any, mode: Any
) -> None:
    if model is None and mode == "meaning":
        pytest.skip("needs a model")
    async with AgentMemory("memory://", embeddings=model) as memory:
        alice = memory.scope("alice")
        await alice.remember_many((*NOTES, *OTHERS))
        await memory.flush()
        right = 0
        for number, (own, of_other) in enumerate(ASKED):
            hits = [
                [(hit.content, hit.relevance) for hit in await alice.recall(question, mode=mode)]
                for question in (own, of_other.format("the user"), of_other.format("Alice"))
            ]
            right += hits[0][0][0] == NOTES[number]

            assert hits[1] == hits[0], of_other
            assert hits[2] == hits[0], of_other

    assert right >= (9 if mode == "hybrid" else 0)


# Known limits, listed in docs/recall-ranking.md. Not strict: processors round differently, and some
# of these are near the line.
@pytest.mark.xfail(reason="beyond the model of now", strict=False)
async def test_notes_in_the_third_person_answer_as_the_users_own_do() -> None:
    told = "{0} lives at Birkenweg 12/{0} works at Acme/{0} has a cat named Pixel/{0}'s wife is Ida"
    asked = "Where do I live?/Where does Alice work?/What is the user's cat called?/Who is my wife?"
    for name in ("Alice", "User"):
        async with AgentMemory("memory://") as memory:
            alice = memory.scope("alice")
            notes = told.format(name).split("/")
            await alice.remember_many([*notes, "Bob lives in Bonn and works at Siemens"])
            await memory.flush()
            for note, question in zip(notes, asked.split("/"), strict=True):
                best = (await alice.recall(question))[0]

                assert (best.content, best.passage) == (note, note)
                assert best.relevance > 0.3


async def test_the_name_of_somebody_else_stays(model: Any) -> None:
    async with AgentMemory("memory://", embeddings=model) as memory:
        alice = memory.scope("alice")
        await alice.remember_many((*NOTES, *OTHERS, "I met another Alice at the harbour"))
        await memory.flush()

        bob = (await alice.recall("Where does Bob live?"))[0]
        another = (await alice.recall("Where did I meet the other Alice?"))[0]

    assert bob.content == "Bob lives in Bonn"
    assert "harbour" in another.content


@pytest.mark.parametrize("is_remote", [False, True])
async def test_a_scope_is_told_the_name_of_its_user(is_remote: bool) -> None:
    async with AgentMemory("memory://") as store, served() as serve:
        memory = serve(store) if is_remote else store
        await memory.scope("u_5519").remember_many(["I live in Lisbon", "Alice Springs is hot"])
        alice = memory.scope("u_5519", name="Alice")
        hits = await alice.recall("Where does Alice live?")
        context = await alice.chat("new").context("Where does Alice live?")
        if is_remote:
            await memory.close()

    assert hits[0].content == "I live in Lisbon"
    assert "Lisbon" in context.text
    assert repr(alice) == "ScopedMemory(user_id='u_5519', name='Alice')"
    with pytest.raises(QueryError, match="`name`"):
        memory.scope("u_5519", name=" ")


async def test_the_sample_says_where_alice_lives() -> None:
    async with AgentMemory("memory://") as memory:
        await fill(memory)
        hits = await memory.scope("alice").recall("Where does Alice live?")

    assert hits[0].content == "home city: Lisbon"
    assert hits[0].relevance > 0.3


@each_row(
    "pair",
    [
        "where does alice live>where do I live",
        "What's Alice allergic to?>What am I allergic to?",
        "What do you know about Alice Martin?>What do you know about me?",
        "Bob told Alice's boss about Alice>Bob told my boss about me",
        "Alice hasn't eaten and Alice goes home>I haven't eaten and I go home",
        "Wo wohnt Alice?>Wo wohnt ich?",
        *(
            f"{same}>{same}"
            for same in (
                "Alice",
                "I met Alice",
                "My name is Alice",
                "Alice Springs is hot",
                "Mary Alice Brown called",
                "Alice: on my way",
                "write to alice@example.org",
                "the Alice of the book",
            )
        ),
    ],
)
def test_a_text_is_put_in_the_first_person(pair: str) -> None:
    text, said = pair.split(">")

    assert in_first_person(text, ["alice martin"]) == said
