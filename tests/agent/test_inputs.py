"""What `remember` accepts is read as it is meant, or refused with the way out."""

import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from benchmarks._chat_templates import refusals
from pydantic import BaseModel
from tests.messages._samples import CALLS, RESULTS
from tests.rows import each_row

from orbiter.memory import AgentMemory, AIMemory, ToolMemory, validate
from orbiter.memory.errors import QueryError
from orbiter.memory.messages import FORMATS, Format, format_of
from orbiter.memory.testing import HashEmbeddings

Open = Callable[..., AgentMemory]


@pytest.mark.parametrize("format", CALLS)
async def test_a_message_is_told_from_those_of_other_providers(format: Format) -> None:
    async with AgentMemory("memory://", embeddings=None) as memory:
        chat = memory.scope(user_id="ann").chat("c")

        await chat.add("What is 6 times 7?")
        (call,) = await chat.add(CALLS[format])
        (result,) = await chat.add(RESULTS[format])

        assert isinstance(call, AIMemory)
        assert [(each.name, each.id) for each in call.calls] == [("f", "c")]
        assert isinstance(result, ToolMemory)
        assert result.tool_call_id == "c"
        for other in CALLS:
            sent = await chat.messages(format=other)
            assert validate(sent.messages, other) == []
            assert "42" in str(sent.messages)


@each_row(
    ("message", "format"),
    [
        ({"role": "user", "content": "hi"}, "openai"),
        ({"role": "user", "content": [{"type": "text", "text": "hi"}]}, "openai"),
        ({"role": "user", "parts": [{"text": "hi"}]}, "gemini"),
        ({"role": "assistant", "content": [{"type": "bash_tool_result"}]}, "anthropic"),
        ({"role": "assistant", "content": [{"type": "mcp_tool_use", "id": "m"}]}, "anthropic"),
        ({"role": "assistant", "content": [{"type": "compaction", "content": "s"}]}, "anthropic"),
        ({"role": "user", "content": [{"type": "search_result", "title": "t"}]}, "anthropic"),
        (
            {"type": "message", "role": "assistant", "content": [{"type": "output_text"}]},
            "openai-responses",
        ),
        (
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "text", "text": "hi"}],
                "stop_reason": "end_turn",
            },
            "anthropic",
        ),
    ],
)
def test_what_could_be_anyones_is_openais(message: dict[str, Any], format: Format) -> None:
    assert format_of(message) == format


class Reply(BaseModel):
    role: str = "assistant"
    content: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


async def test_what_a_providers_client_returns_is_a_message() -> None:
    async with AgentMemory("memory://", embeddings=None) as memory:
        ann = memory.scope(user_id="ann")
        chat = ann.chat("c")
        calls = CALLS["openai"]["tool_calls"]

        (said,) = await chat.add(Reply(tool_calls=calls))
        kept = await ann.remember(Reply(content="You like tea."))

        assert isinstance(said, AIMemory)
        assert said.calls[0].name == "f"
        assert (kept.memory_type, kept.content) == ("ai", "You like tea.")


@each_row("what", [("user", "hi"), "", "  ", ["fine", ""], 7, object()])
async def test_what_is_no_message_is_refused_and_nothing_is_kept(what: Any) -> None:
    async with AgentMemory("memory://", embeddings=None) as memory:
        chat = memory.scope(user_id="ann").chat("c")

        with pytest.raises(QueryError):
            await chat.add(what)

        assert await chat.items() == []


async def test_what_an_interrupted_agent_had_begun_can_be_seen() -> None:
    async with AgentMemory("memory://", embeddings=None) as memory:
        chat = memory.scope(user_id="ann").chat("c")
        await chat.add("What is 6 times 7?")
        await chat.add(CALLS["openai"])

        assert [item.memory_type for item in await chat.items()] == ["human"]
        *_, begun = await chat.items(open_group="keep")

        assert isinstance(begun, AIMemory)
        assert begun.calls[0].id == "c"


@pytest.mark.parametrize("later", [[], [{"role": "system", "content": "Be kind."}]])
@pytest.mark.parametrize("earlier", [[], ["Who feeds my cat?"]])
async def test_after_an_answer_the_model_is_asked_to_continue(
    earlier: list[str], later: list[dict[str, str]]
) -> None:
    async with AgentMemory("memory://", embeddings=None) as memory:
        ann = memory.scope(user_id="ann")
        await ann.remember("My neighbour feeds my cat")
        chat = ann.chat("c")
        await chat.add([*earlier, {"role": "assistant", "content": "Hello!"}, *later])

        goes_on = await chat.context()
        other = await chat.context("Say goodbye")

        for format in FORMATS:
            assert validate(goes_on.messages(format), format) == []
        assert list(refusals(goes_on.messages())) == []
        assert goes_on.messages()[-1]["content"].endswith("Continue.")
        assert ("neighbour" in goes_on.text) == bool(earlier)  # recalled for the question
        assert other.messages()[-1] == {"role": "user", "content": "Say goodbye"}


async def test_a_memory_can_have_been_made_earlier() -> None:
    async with AgentMemory("memory://", embeddings=None) as memory:
        ann = memory.scope(user_id="ann")
        day = datetime(2024, 5, 1, tzinfo=UTC)

        old = await ann.remember("We moved", created_at=day)
        await ann.remember("We unpacked")
        many = await ann.remember_many(["We packed"], created_at=day.replace(day=2))

        assert old.created_at == day == (await ann.get(old.id)).created_at  # type: ignore[union-attr]  # it is there
        assert [item.content for item in await ann.list()] == [
            "We unpacked",
            "We packed",
            "We moved",
        ]
        assert many[0].updated_at == many[0].created_at


async def test_a_label_given_twice_is_refused() -> None:
    async with AgentMemory("memory://", embeddings=None) as memory:
        with pytest.raises(QueryError, match="`tags` is given twice"):
            await memory.scope(user_id="ann").remember("x", tags=["a"], extra={"tags": ["b"]})


async def test_what_was_just_remembered_is_found_by_meaning_once_it_settled(tmp_path: Path) -> None:
    async with AgentMemory(tmp_path / "m.db", embeddings=HashEmbeddings()) as memory:
        ann = memory.scope(user_id="ann")
        await ann.remember_many([f"note {number}" for number in range(300)])

        await memory.flush()

        assert (await memory.stats()).unembedded == 0


async def test_whoever_declined_a_model_is_not_told_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbiter.memory.recall._modes._warned", set())
    async with AgentMemory("memory://", embeddings=None) as memory:
        ann = memory.scope(user_id="ann")
        await ann.remember("tea")

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert await ann.recall("tea")
