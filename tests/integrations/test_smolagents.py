"""smolagents: the ready-made tools in its agents, for tool calls and for code."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("smolagents")

from smolagents import ChatMessage, CodeAgent, Model, tool
from tests.docs.pages import run_page

from orbiter.memory import sync
from orbiter.memory.integrations.tools import memory_tools

DISTRIBUTION = "smolagents"
PAGE = Path(__file__).parents[2] / "docs/integrations/smolagents.md"


@pytest.mark.filterwarnings("ignore:recall uses words")
def test_an_agent_knows_what_it_was_told_in_another_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(PAGE)


class Programmer(Model):  # type: ignore[misc]  # its framework is not there when types are checked
    """Writes a program that remembers, and asks for it."""

    def generate(self, *_: Any, **__: Any) -> ChatMessage:
        code = 'remember(text="Alice drinks tea.")\nfinal_answer(recall(query="tea"))'
        said = f"Thought: I call the tools.\n<code>\n{code}\n</code>"
        return ChatMessage.from_dict({"role": "assistant", "content": said})


def test_an_agent_that_writes_code_calls_them(tmp_path: Path) -> None:
    with sync.AgentMemory(tmp_path / "agent.db", embeddings=None) as memory:
        tools = [tool(each) for each in memory_tools(memory.scope(user_id="alice"))]
        answer = CodeAgent(tools=tools, model=Programmer(), verbosity_level=0).run("…")

    assert "Alice drinks tea." in str(answer)
