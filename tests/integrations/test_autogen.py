"""AutoGen: the ready-made tools in its assistant, and as tools of a blocking handle."""

from pathlib import Path

import pytest

pytest.importorskip("autogen_agentchat")

from autogen_core import CancellationToken
from autogen_core.tools import FunctionTool
from tests.docs.pages import run_page

from orbiter.memory import sync
from orbiter.memory.integrations.tools import memory_tools

DISTRIBUTION = "autogen-agentchat"
PAGE = Path(__file__).parents[2] / "docs/integrations/autogen.md"


@pytest.mark.filterwarnings("ignore:recall uses words")
def test_an_agent_knows_what_it_was_told_in_another_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(PAGE)


async def test_the_tools_of_a_blocking_handle_are_called(tmp_path: Path) -> None:
    with sync.AgentMemory(tmp_path / "agent.db", embeddings=None) as memory:
        functions = memory_tools(memory.scope(user_id="alice"))
        tools = {each.__name__: FunctionTool(each, each.__doc__) for each in functions}
        token = CancellationToken()

        await tools["remember"].run_json({"text": "Alice drinks tea."}, token)
        found = await tools["recall"].run_json({"query": "tea"}, token)

    assert "Alice drinks tea." in found
    assert tools["recall"].schema["parameters"]["required"] == ["query"]
