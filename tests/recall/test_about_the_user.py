"""Questions of users about themselves: who they are, where they live, what is known of them."""

from collections.abc import Iterator
from typing import Any

import pytest

from orbiter.memory import AgentMemory, LocalEmbeddings
from orbiter.memory.recall import no_model_by_choice
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
