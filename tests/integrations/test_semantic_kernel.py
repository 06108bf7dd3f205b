"""Semantic Kernel: the ready-made tools as a plugin, async and blocking."""

from pathlib import Path

import pytest

pytest.importorskip("semantic_kernel")

from semantic_kernel import Kernel
from semantic_kernel.functions import KernelPlugin, kernel_function
from tests.docs.pages import run_page

from orbiter.memory import sync
from orbiter.memory.integrations.tools import memory_tools

DISTRIBUTION = "semantic-kernel"
PAGE = Path(__file__).parents[2] / "docs/integrations/semantic-kernel.md"


@pytest.mark.filterwarnings("ignore:recall uses words")
def test_an_agent_knows_what_it_was_told_in_another_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(PAGE)


async def test_the_tools_of_a_blocking_handle_are_called(tmp_path: Path) -> None:
    with sync.AgentMemory(tmp_path / "agent.db", embeddings=None) as memory:
        functions = memory_tools(memory.scope(user_id="alice"))
        tools = {each.__name__: kernel_function(each) for each in functions}
        plugin = KernelPlugin.from_object("memory", tools)

        await plugin["remember"].invoke(Kernel(), text="Alice drinks tea.")
        found = await plugin["recall"].invoke(Kernel(), query="tea")

    assert "Alice drinks tea." in str(found)
