"""agno: the ready-made tools as a toolkit, blocking and async."""

from pathlib import Path

import pytest

pytest.importorskip("agno")

from agno.tools import Toolkit
from agno.tools.function import FunctionCall
from tests.docs.pages import run_page

from orbiter.memory import AgentMemory
from orbiter.memory.integrations.tools import memory_tools

DISTRIBUTION = "agno"
PAGE = Path(__file__).parents[2] / "docs/integrations/agno.md"


@pytest.mark.filterwarnings("ignore:recall uses words")
def test_an_agent_knows_what_it_was_told_in_another_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(PAGE)


async def test_the_tools_of_an_async_handle_are_awaited(tmp_path: Path) -> None:
    async with AgentMemory(tmp_path / "agent.db", embeddings=None) as memory:
        functions = list(memory_tools(memory.scope(user_id="alice")))
        tools = Toolkit(name="memory", tools=functions).async_functions
        for each in tools.values():
            each.process_entrypoint()

        told = FunctionCall(function=tools["remember"], arguments={"text": "Alice drinks tea."})
        await told.aexecute()
        found = await FunctionCall(function=tools["recall"], arguments={"query": "tea"}).aexecute()

    assert "Alice drinks tea." in found.result
    about = tools["recall"].parameters["properties"]["query"]["description"]
    assert about.startswith("What to look for")
