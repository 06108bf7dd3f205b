"""The benchmark of relevance works it out as recall does, and finds weights that tell answers."""

from collections.abc import Iterator

import numpy as np
import pytest
from benchmarks import recall_newer, recall_relevance
from benchmarks._relevance_report import Example, auc
from benchmarks._scenes import scenes, told
from benchmarks.recall_quality import fill, opened

from orbiter.memory.embeddings.local import LocalEmbeddings
from orbiter.memory.recall import no_model_by_choice, recall
from orbiter.memory.recall._relevance import WEIGHTS


@pytest.fixture(params=["read", "words"])
def kind(request: pytest.FixtureRequest) -> Iterator[str]:
    with no_model_by_choice():
        yield request.param


async def test_what_the_benchmark_judges_is_what_recall_says(kind: str) -> None:
    name, scene = next(scenes(["everyday"]))
    conversation, user = told(name, scene), scene.get("user")
    tables = {each: dict(weights) for each, weights in WEIGHTS.items()}
    async with opened(None, LocalEmbeddings() if kind == "read" else None) as store:
        await fill(store, conversation)
        for asked in conversation.questions:
            found = await recall(
                store,
                asked.text,
                scope=conversation.scope,
                user_name=user,
                now=conversation.end,
                min_relevance=0.0,
                mode="hybrid",
            )
            measured = await recall_relevance.example(store, conversation, asked, user)
            if measured is None or any(hit.replaced_by is not None for hit in found):
                continue
            one = Example("", "", "", 0, *measured)
            said = recall_relevance.said_of(one, tables, kind)
            shown = sorted((hit.relevance for hit in found), reverse=True)
            best = np.sort(said[said > 0])[::-1].tolist()
            assert shown[:3] == pytest.approx(best[:3], abs=1e-6), asked.text


def test_a_fit_weighs_what_tells_answers_from_the_rest() -> None:
    dice = np.random.default_rng(3)
    answers = dice.random(2_000) < 0.2
    rows = np.ones((2_000, 6))
    rows[:, 1:] = dice.normal(size=(2_000, 5))
    rows[:, 2] += 2 * answers

    weights = recall_relevance.fit(rows, answers, ("standing", "answers"))

    assert weights.answers == pytest.approx(2, abs=0.3)
    assert abs(weights.standing) < 0.2
    assert weights.cosine == 0
    assert auc(rows @ np.array(weights), answers) > 0.9


def test_pairs_are_of_one_speaker_and_near_each_other() -> None:
    reader = LocalEmbeddings().reader
    _, scene = next(scenes(["everyday"]))

    found = list(recall_newer.pairs(scene, reader))

    texts = [note if isinstance(note, str) else note["text"] for note in scene["notes"]]
    assert found
    assert all(texts.index(pair.older) < texts.index(pair.newer) for pair in found)
    assert recall_newer.REPLACES in {pair.label for pair in found}
