import math
from datetime import UTC, datetime, timedelta

import pytest

from orbiter.memory.model.protocols import Embeddings, Summarizer
from orbiter.memory.testing import HashEmbeddings, ManualClock, ScriptedSummarizer

START = datetime(2025, 1, 1, tzinfo=UTC)
TEXTS = ("", " ", "hello", "hello world", "天気は晴れです", "🎉", "a " * 500, "\n\t!?")


def _likeness(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def test_a_clock_stands_still_until_it_is_moved() -> None:
    clock = ManualClock()

    assert [clock(), clock()] == [START, START]
    assert clock().tzinfo is UTC


def test_a_clock_moves_forth_and_back() -> None:
    clock = ManualClock()

    clock.advance(seconds=1.5)
    clock.advance(hours=2, seconds=0.5)
    assert clock() == START + timedelta(hours=2, seconds=2)

    clock.advance(hours=-2)
    clock.advance(seconds=-2)
    clock.advance()
    assert clock() == START


def test_a_clock_starts_when_it_is_told_and_clocks_are_independent() -> None:
    later = START + timedelta(days=400)
    one, other = ManualClock(later), ManualClock()

    one.advance(hours=1)

    assert (one(), other()) == (later + timedelta(hours=1), START)


@pytest.mark.parametrize("dimension", [1, 2, 64, 384])
def test_every_vector_has_the_dimension_and_length_one(dimension: int) -> None:
    embeddings = HashEmbeddings(dimension)

    assert isinstance(embeddings, Embeddings)
    assert embeddings.dimension == dimension
    for text in TEXTS:
        vector = embeddings.embed(text)
        assert len(vector) == dimension
        assert math.hypot(*vector) == pytest.approx(1.0, abs=1e-12)


def test_a_vector_is_the_same_in_every_process_and_version() -> None:
    half = math.sqrt(0.5)

    assert HashEmbeddings(dimension=4).embed("hello world") == pytest.approx([0, half, 0, -half])
    assert HashEmbeddings().embed("hello") == HashEmbeddings().embed("hello")


async def test_waiting_for_a_vector_gives_the_same_vector() -> None:
    embeddings = HashEmbeddings()

    for text in TEXTS:
        assert await embeddings.aembed(text) == embeddings.embed(text)


def test_texts_that_share_words_are_closer_than_texts_that_do_not() -> None:
    embed = HashEmbeddings(dimension=256).embed
    asked = embed("where does the cat sleep?")

    near, far = embed("The CAT: it may sleep here"), embed("stock markets fell again")

    assert _likeness(asked, near) > _likeness(asked, far)
    assert embed("Hello, World!") == embed("hello world")
    assert embed("world hello") == embed("hello world")


def test_words_that_cancel_each_other_out_still_have_a_direction() -> None:
    embeddings = HashEmbeddings(dimension=1)
    words = [f"w{number}" for number in range(50)]
    up = next(word for word in words if embeddings.embed(word) == [1.0])
    down = next(word for word in words if embeddings.embed(word) == [-1.0])

    assert embeddings.embed(f"{up} {down}") == [1.0]


async def test_a_script_is_answered_in_order_and_remembers_its_prompts() -> None:
    summarizer = ScriptedSummarizer("one", "two", "")

    assert isinstance(summarizer, Summarizer)
    assert [await summarizer.summarize(prompt) for prompt in "abc"] == ["one", "two", ""]
    assert summarizer.prompts == ["a", "b", "c"]


async def test_an_exception_in_the_script_is_raised_and_the_script_goes_on() -> None:
    down = OSError("down")
    summarizer = ScriptedSummarizer(down, "up again")

    with pytest.raises(OSError, match="down") as caught:
        await summarizer.summarize("a")

    assert caught.value is down
    assert await summarizer.summarize("b") == "up again"
    assert summarizer.prompts == ["a", "b"]


async def test_a_script_that_is_exhausted_says_at_which_prompt() -> None:
    summarizer = ScriptedSummarizer("only")
    await summarizer.summarize("a")

    for place in (2, 3):
        with pytest.raises(AssertionError, match=f"no answer for prompt {place}"):
            await summarizer.summarize("more")
    assert summarizer.prompts == ["a", "more", "more"]
