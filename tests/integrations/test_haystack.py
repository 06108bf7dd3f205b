"""Haystack: the ready-made tools in its agent, and as tools of an async handle."""

from pathlib import Path

import pytest

pytest.importorskip("haystack")

from haystack.tools import create_tool_from_function
from tests.docs.pages import run_page

from orbiter.memory import AgentMemory
from orbiter.memory.integrations.tools import memory_tools

DISTRIBUTION = "haystack-ai"
PAGE = Path(__file__).parents[2] / "docs/integrations/haystack.md"


@pytest.mark.filterwarnings("ignore:recall uses words")
def test_an_agent_knows_what_it_was_told_in_another_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(PAGE)


async def test_the_tools_of_an_async_handle_are_awaited(tmp_path: Path) -> None:
    async with AgentMemory(tmp_path / "agent.db", embeddings=None) as memory:
        functions = memory_tools(memory.scope(user_id="alice"))
        tools = {each.__name__: create_tool_from_function(each) for each in functions}

        await tools["remember"].invoke_async(text="Alice drinks tea.")

        assert "Alice drinks tea." in await tools["recall"].invoke_async(query="tea")
    assert tools["recall"].parameters["required"] == ["query"]
