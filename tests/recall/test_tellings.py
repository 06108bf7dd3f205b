"""However a conversation says who speaks, recall knows."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.recall.pools import talk, turn
from tests.rows import each_row

from orbiter.memory import AgentMemory, AIMemory, HumanMemory, MemoryItem
from orbiter.memory.recall._candidate_pool import is_talk, name_before_colon, names_in, speaker_of
from orbiter.memory.recall._rerank import ASSISTANT, ASSISTANT_OVER_TIME, PEOPLE, kind_of

SAID = [
    ("Caroline", "I went to a support group yesterday."),
    ("Melanie", "That is brave of you."),
    ("Caroline", "My favourite food is lasagne."),
    ("Melanie", "My favourite food is sushi."),
    ("Caroline", "We should cook together."),
    ("Melanie", "Yes, on Sunday."),
]
TELLINGS: dict[str, Callable[[str, str], Any]] = {
    "speaker": lambda who, text: HumanMemory(content=text, metadata={"extra": {"speaker": who}}),
    "text": lambda who, text: HumanMemory(content=f"{who}: {text}"),
    "name": lambda who, text: {"role": "user", "name": who, "content": text},
    "roles": lambda who, text: (HumanMemory if who == "Melanie" else AIMemory)(
        content=f"{who}: {text}"
    ),
}


@pytest.mark.parametrize("telling", [*TELLINGS, "note"])
async def test_the_one_who_is_asked_about_answers(telling: str, tmp_path: Path) -> None:
    async with AgentMemory(tmp_path / "memory.db", embeddings=None) as memory:
        alice = memory.scope(user_id="alice")
        for who, text in SAID:
            if telling == "note":
                await alice.remember(f"{who}: {text}")
            else:
                await alice.chat("c").add(TELLINGS[telling](who, text))

        for who, food in (("Caroline", "lasagne"), ("Melanie", "sushi")):
            hits = await alice.recall(f"What is {who}'s favourite food?", k=2, mode="words")

            assert food in hits[0].item.content
            assert any("who is asked about" in reason.text for reason in hits[0].why)


@each_row(
    ("text", "name"),
    [
        ("Caroline: I went home.", "Caroline"),
        ("  Mary Ann O'Neil: yes", "Mary Ann O'Neil"),
        ("José-Luis: sí", "José-Luis"),
        ("Note: buy milk", None),
        ("To-do: buy milk", None),
        ("User: hello", None),
        ("groceries: milk", None),
        ("I said: no", None),
        ("https://example.org", None),
        ("12:30 lunch", None),
        ("Caroline:", None),
        ("One Two Three Four: five", None),
        ("x" * 100_000 + ": y", None),
    ],
)
def test_a_name_may_stand_before_a_colon(text: str, name: str | None) -> None:
    assert name_before_colon(text) == name


def notes(*texts: str) -> list[MemoryItem]:
    return [MemoryItem(content=text) for text in texts]


def test_several_who_speak_more_than_once_are_a_conversation() -> None:
    said = notes(*(f"{who}: {text}" for who, text in SAID))

    names = names_in(said)

    assert names == {"Caroline", "Melanie"}
    assert [speaker_of(item, names) for item in said] == [who for who, _ in SAID]
    assert all(is_talk(item, names) for item in said)
    assert not any(map(is_talk, said))


def test_labels_of_lists_are_nobody() -> None:
    assert names_in(notes("Milan: sunny", "Rome: rain", "Oslo: snow")) == frozenset()
    assert names_in(notes("Ann: a", "Ann: b", "Ann: c")) == frozenset()
    lists = notes("Garden: roses", "Garden: a hose", "Kitchen: tiles", "Kitchen: a lamp")
    assert names_in([*lists, *notes("the garden is wet", "our kitchen's light")]) == frozenset()


def test_words_of_agreement_are_nobody() -> None:
    said = notes("Noted: tea", "Understood: no sugar", "Noted: at five", "Understood: two cups")

    assert names_in(said) == frozenset()


def test_an_extra_speaker_counts_more_than_the_text() -> None:
    item = turn("a", "Ben: hello", speaker="Ann")

    assert speaker_of(item, frozenset({"Ben"})) == "Ann"


def test_people_who_talk_by_roles_are_people() -> None:
    said = [
        (HumanMemory if who == "Melanie" else AIMemory)(content=f"{who}: {text}")
        for who, text in SAID
    ]

    assert kind_of(said, names_in(said)) is PEOPLE
    assert kind_of(said) is ASSISTANT
    assert kind_of(said, spread=True) is ASSISTANT_OVER_TIME
    assert kind_of(said, names_in(said), spread=True) is PEOPLE
    assert kind_of([*talk("a"), turn("b", "x", speaker="Ben", assistant=True)]) is PEOPLE
