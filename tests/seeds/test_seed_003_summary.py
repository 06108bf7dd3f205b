"""Seed 003, line by line: `orbiter.memory.summary`."""

import dataclasses
import inspect
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import pytest
from tests.rows import each_row
from tests.seeds._examples import printed_by

import orbiter.memory
from orbiter.memory import AIMemory, HumanMemory, MemoryItem
from orbiter.memory.summary import (
    Summarizer,
    SummaryConfig,
    SummaryResult,
    SummaryTemplate,
    TriggerResult,
    check_trigger,
    generate_summary,
)
from orbiter.memory.testing import ScriptedSummarizer

EXAMPLE = """\
import asyncio
from orbiter.memory import (
    HumanMemory, AIMemory,
    SummaryConfig, SummaryTemplate,
    check_trigger, generate_summary,
)

class MySummarizer:
    async def summarize(self, prompt: str) -> str:
        return "Summary: Discussion about Python programming."

async def main():
    items = [
        HumanMemory(content=f"Message {i}") for i in range(25)
    ]

    config = SummaryConfig(
        message_threshold=20,
        templates=(SummaryTemplate.CONVERSATION, SummaryTemplate.FACTS),
        keep_recent=4,
    )

    # Check trigger
    trigger = check_trigger(items, config)
    print(f"Triggered: {trigger.triggered}")  # True
    print(f"Reason: {trigger.reason}")

    if trigger.triggered:
        result = await generate_summary(items, config, MySummarizer())
        print(f"Summaries: {list(result.summaries.keys())}")
        print(f"Kept {len(result.compressed_items)} recent items")
        print(f"Original count: {result.original_count}")

asyncio.run(main())
"""


@pytest.mark.slow
def test_the_example_prints_what_it_says() -> None:
    assert printed_by(EXAMPLE) == [
        "Triggered: True",
        "Reason: Message count 25 exceeds 20",
        "Summaries: ['conversation', 'facts']",
        "Kept 4 recent items",
        "Original count: 25",
    ]


def test_the_package_exports_the_same_names() -> None:
    for name in (
        "Summarizer",
        "SummaryConfig",
        "SummaryResult",
        "SummaryTemplate",
        "TriggerResult",
        "check_trigger",
        "generate_summary",
    ):
        assert getattr(orbiter.memory, name) is globals()[name]


def test_the_templates_are_three_strings() -> None:
    assert issubclass(SummaryTemplate, StrEnum)
    assert {t.name: t.value for t in SummaryTemplate} == {
        "CONVERSATION": "conversation",
        "FACTS": "facts",
        "PROFILES": "profiles",
    }


@pytest.mark.parametrize(
    ("template", "focus"),
    [
        (SummaryTemplate.CONVERSATION, ("key decisions", "action items", "important context")),
        (SummaryTemplate.FACTS, ("factual statements", "verified information")),
        (SummaryTemplate.PROFILES, ("preferences", "personality traits", "background")),
    ],
)
def test_a_built_in_prompt_has_the_seeds_focus(
    template: SummaryTemplate, focus: tuple[str, ...]
) -> None:
    prompt = SummaryConfig().get_prompt(template)

    assert all(words in prompt for words in focus)


def test_the_config_is_frozen_with_the_seeds_defaults() -> None:
    config = SummaryConfig()

    assert dataclasses.asdict(config) == {
        "message_threshold": 20,
        "token_threshold": 4000,
        "templates": (SummaryTemplate.CONVERSATION,),
        "prompts": {},
        "keep_recent": 4,
        "token_estimate_ratio": 4.0,
    }
    assert not hasattr(config, "__dict__")
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.keep_recent = 5  # type: ignore[misc]  # the mistake under test


def test_an_own_prompt_replaces_the_built_in_one() -> None:
    config = SummaryConfig(prompts={SummaryTemplate.FACTS: "Facts only: {content}"})

    assert config.get_prompt(SummaryTemplate.FACTS) == "Facts only: {content}"
    assert "decisions" in config.get_prompt(SummaryTemplate.CONVERSATION)


def test_a_trigger_result_is_frozen_with_the_seeds_fields() -> None:
    fields = [(f.name, f.type) for f in dataclasses.fields(TriggerResult)]

    assert fields == [
        ("triggered", bool),
        ("reason", str),
        ("message_count", int),
        ("estimated_tokens", int),
    ]
    assert not hasattr(TriggerResult(True, "", 0, 0), "__dict__")
    with pytest.raises(dataclasses.FrozenInstanceError):
        TriggerResult(True, "", 0, 0).triggered = False  # type: ignore[misc]  # under test


def test_a_summary_result_can_change_and_needs_its_items() -> None:
    result = SummaryResult(compressed_items=[], original_count=3)
    result.original_count = 4

    assert (result.summaries, result.compressed_items, result.original_count) == ({}, [], 4)
    assert not hasattr(result, "__dict__")
    with pytest.raises(TypeError):
        SummaryResult()  # type: ignore[call-arg]  # the mistake under test


def test_anything_that_summarizes_is_a_summarizer() -> None:
    assert isinstance(ScriptedSummarizer(), Summarizer)
    assert not isinstance(object(), Summarizer)


def test_check_trigger_has_the_seeds_signature() -> None:
    signature = inspect.signature(check_trigger)

    assert {n: p.annotation for n, p in signature.parameters.items()} == {
        "items": Sequence[MemoryItem],
        "config": SummaryConfig,
    }
    assert signature.return_annotation is TriggerResult


def test_generate_summary_has_the_seeds_signature() -> None:
    signature = inspect.signature(generate_summary)

    assert inspect.iscoroutinefunction(generate_summary)
    assert {n: p.annotation for n, p in signature.parameters.items()} == {
        "items": Sequence[MemoryItem],
        "config": SummaryConfig,
        "summarizer": Any,
    }
    assert signature.return_annotation is SummaryResult


@each_row(
    ("count", "characters", "reason"),
    [
        (20, 0, ""),
        (21, 0, "Message count 21 exceeds 20"),
        (1, 16_000, ""),
        (1, 16_004, "Estimated token count 4001 exceeds 4000"),
        (25, 1000, "Message count 25 exceeds 20; estimated token count 6250 exceeds 4000"),
    ],
)
def test_either_threshold_triggers_when_exceeded(count: int, characters: int, reason: str) -> None:
    items = [HumanMemory(content="x" * characters) for _ in range(count)]

    result = check_trigger(items, SummaryConfig())

    assert result == TriggerResult(bool(reason), reason, count, count * characters // 4)


async def test_older_items_are_summarised_and_recent_ones_returned() -> None:
    items: list[MemoryItem] = [
        HumanMemory(content="I live in Oslo."),
        AIMemory(content="Noted."),
        HumanMemory(content="What now?"),
    ]
    summarizer = ScriptedSummarizer("lives in Oslo")

    result = await generate_summary(items, SummaryConfig(keep_recent=1), summarizer)

    assert result.summaries == {"conversation": "lives in Oslo"}
    assert result.compressed_items == items[2:]
    assert result.original_count == 3
    assert summarizer.prompts[0].endswith("[HUMAN]: I live in Oslo.\n[AI]: Noted.")
