"""What type checkers are told: checked by mypy with everything else, and run once as well."""

from collections.abc import Callable
from typing import Any, assert_type

import pytest
from tests.rows import each_row

from orbiter.memory import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryStatus,
    MemoryStore,
    ShortTermMemory,
    Summarizer,
    SummaryConfig,
    SummaryResult,
    TriggerResult,
    agent,
    check_trigger,
    conversation,
    episodic,
    from_messages,
    generate_summary,
    messages,
    model,
    recall,
    server,
    summarizers,
    sync,
    to_messages,
    transfer,
    validate,
)
from orbiter.memory.backends import postgres, redis, registry, sqlite, vector
from orbiter.memory.conversation import rounds, trim_to_budget
from orbiter.memory.conversation.history import History, Memory
from orbiter.memory.messages import Problem, ProviderMessages
from orbiter.memory.summarizers import ExtractiveSummarizer


async def test_the_public_names_have_the_types_they_claim() -> None:
    memory = ShortTermMemory()
    store: MemoryStore = memory
    summarizer: Summarizer = ExtractiveSummarizer()
    items: list[MemoryItem] = [HumanMemory(content="hi there"), AIMemory(content="ho")]

    assert_type(await store.get("x"), MemoryItem | None)
    assert_type(await store.search(), list[MemoryItem])
    assert_type(await store.clear(), int)
    assert_type(await memory.window(budget=10), list[MemoryItem])
    assert_type(items[0].status, MemoryStatus)
    assert_type(AIMemory(content="").tool_calls, list[dict[str, Any]])
    assert_type(trim_to_budget(items, budget=10), list[MemoryItem])
    assert_type(rounds(items), list[list[MemoryItem]])
    assert_type(to_messages(items, "openai"), ProviderMessages)
    assert_type(from_messages([], "gemini"), list[MemoryItem])
    assert_type(validate([], "anthropic"), list[Problem])
    assert_type(check_trigger(items, SummaryConfig()), TriggerResult)
    assert_type(
        await generate_summary(items, SummaryConfig(keep_recent=0), summarizer), SummaryResult
    )
    assert_type(History().window(3), list[Memory])


# Were a name that is not there no error for mypy, the comments would be: they were of no use.
@each_row(
    "load",
    [
        lambda: agent.Typo,  # type: ignore[attr-defined]
        lambda: postgres.Typo,  # type: ignore[attr-defined]
        lambda: redis.Typo,  # type: ignore[attr-defined]
        lambda: registry.Typo,  # type: ignore[attr-defined]
        lambda: sqlite.Typo,  # type: ignore[attr-defined]
        lambda: vector.Typo,  # type: ignore[attr-defined]
        lambda: conversation.Typo,  # type: ignore[attr-defined]
        lambda: episodic.Typo,  # type: ignore[attr-defined]
        lambda: messages.Typo,  # type: ignore[attr-defined]
        lambda: model.Typo,  # type: ignore[attr-defined]
        lambda: recall.Typo,  # type: ignore[attr-defined]
        lambda: server.Typo,  # type: ignore[attr-defined]
        lambda: summarizers.Typo,  # type: ignore[attr-defined]
        lambda: sync.Typo,  # type: ignore[attr-defined]
        lambda: transfer.Typo,  # type: ignore[attr-defined]
    ],
)
def test_a_misspelt_name_is_an_error_for_type_checkers_as_for_python(
    load: Callable[[], object],
) -> None:
    with pytest.raises(AttributeError, match="no attribute .Typo"):
        load()
