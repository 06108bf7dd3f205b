"""Memories are embedded by the next command, or it says how many are pending."""

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.timing import HANG

from orbiter.memory.agent import AgentMemory
from orbiter.memory.cli import _embed_progress
from orbiter.memory.cli._embed_progress import embed_waiting
from orbiter.memory.cli._output import Output
from orbiter.memory.cli.commands import chat, recall, remember
from orbiter.memory.testing.fakes import HashEmbeddings

MODEL = {"ORBITER_MEMORY_MODEL": "auto"}
NOTES = [f"note {n}: the meeting about topic {n * 7 % 83} was moved" for n in range(100)]


class Slow(HashEmbeddings):
    async def aembed_many(self, texts: Sequence[str]) -> list[list[float]]:
        await asyncio.sleep(0.2)
        return await super().aembed_many(texts)


class Stuck(HashEmbeddings):
    is_stuck = True

    async def aembed_many(self, texts: Sequence[str]) -> list[list[float]]:
        if self.is_stuck:
            await asyncio.sleep(600)
        return await super().aembed_many(texts)


class Broken(HashEmbeddings):
    async def aembed_many(self, texts: Sequence[str]) -> list[list[float]]:
        raise RuntimeError("no model today")


def _embed(url: Path, model: HashEmbeddings, *, within: float | None) -> int:
    """Return how many of the notes still wait."""

    async def call() -> int:
        async with asyncio.timeout(HANG), AgentMemory(url, embeddings=model) as memory:
            await memory.scope(user_id="alice").remember_many(NOTES)
            return await embed_waiting(Output(), memory, within=within)

    return asyncio.run(call())


def test_many_that_were_just_stored_are_found_by_meaning(cli: Cli) -> None:
    pytest.importorskip("orbiter_memory_minilm")
    cli.env = MODEL
    lines = "\n".join([*NOTES, "I love hiking in the mountains"])

    cli.ok("remember", "-", "--lines", stdin=lines)
    counted = cli.json("stats")["store"]
    found = cli.json("recall", "outdoor activities", "--limit", "1")

    assert counted["unembedded"] == 0
    assert found["hits"][0]["item"]["content"] == "I love hiking in the mountains"
    assert found["unembedded"] == 0


def test_what_was_stored_one_by_one_is_embedded_by_the_next_recall(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("orbiter_memory_minilm")
    cli.ok("remember", "-", "--lines", stdin="\n".join([*NOTES[:20], "I love hiking"]))
    cli.env = MODEL

    # What recall itself would wait for is too short for a process that has to load the model.
    monkeypatch.setattr("orbiter.memory.recall._candidates._PATIENCE", 0.0)
    found = cli.json("recall", "outdoor activities", "--limit", "1")

    assert found["hits"][0]["item"]["content"] == "I love hiking"


def test_a_question_waits_only_so_long_and_says_what_it_may_lack(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("orbiter_memory_minilm")
    cli.ok("remember", "-", "--lines", stdin="\n".join(NOTES[:20]))
    monkeypatch.setattr(recall, "PATIENCE", 0.0)
    monkeypatch.setattr(chat, "PATIENCE", 0.0)
    monkeypatch.setattr("orbiter.memory.recall._candidates._PATIENCE", 0.0)

    late = cli("recall", "a meeting", env=MODEL)
    # What waited may be embedded by now, while the question was read.
    cli.ok("remember", "-", "--lines", stdin="\n".join(NOTES[20:40]))
    shown = cli("context", "monday", "Which meeting?", env=MODEL)
    by_words = cli("recall", "a meeting", "--mode", "words", env=MODEL)

    assert late.exit_code == shown.exit_code == by_words.exit_code == 0
    for each in (late, shown):
        assert re.search(r"note: \d\d memories are not embedded yet", each.stderr)
        assert len(each.stderr.splitlines()) == 1
    assert by_words.stderr == ""


def test_a_few_memories_are_stored_without_waiting_for_the_model(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[AgentMemory] = []

    async def called(_: Output, memory: AgentMemory) -> int:
        calls.append(memory)
        return 0

    monkeypatch.setattr(remember, "embed_waiting", called)

    cli.remember("I love hiking in the mountains")
    cli.remember_all("tea", "coffee")
    assert calls == []

    cli.ok("remember", "-", "--lines", stdin="\n".join(NOTES[:20]))
    assert len(calls) == 1


def test_what_takes_too_long_goes_on_waiting(tmp_path: Path) -> None:
    async def call() -> tuple[int, int]:
        model = Stuck()
        async with (
            asyncio.timeout(HANG),
            AgentMemory(tmp_path / "memory.db", embeddings=model) as memory,
        ):
            alice = memory.scope(user_id="alice")
            model.is_stuck = False
            await alice.remember_many(NOTES[:40])
            first = await embed_waiting(Output(), memory)
            model.is_stuck = True
            await alice.remember_many(NOTES[40:])
            return first, await embed_waiting(Output(), memory, within=0.3)

    assert asyncio.run(call()) == (0, 60)


def test_all_are_embedded_without_a_limit_of_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_embed_progress, "_SLICE", 0.05)

    waiting = _embed(tmp_path / "memory.db", Slow(), within=None)

    assert waiting == 0


def test_a_model_that_fails_is_not_waited_for(tmp_path: Path) -> None:
    waiting = _embed(tmp_path / "memory.db", Broken(), within=None)

    assert waiting == len(NOTES)


def test_vectors_that_never_come_are_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_embed_progress, "_SLICE", 0.02)
    monkeypatch.setattr(_embed_progress, "_STALLED", 0.05)

    waiting = _embed(tmp_path / "memory.db", Stuck(), within=None)

    assert waiting == len(NOTES)


def test_stats_say_what_is_found_by_words_only_and_until_when(cli: Cli) -> None:
    pytest.importorskip("orbiter_memory_minilm")
    cli.remember("likes tea")
    before = cli.ok("stats")  # by words only, as it was chosen

    waiting = " ".join(cli.ok("stats", "--model", "auto").split())

    assert "by meaning" not in before
    assert "not found by meaning yet 1 (by words only; the next `recall` embeds them)" in waiting
