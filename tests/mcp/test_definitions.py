"""What a model is told of the tools: few words, every hint, and no way to name somebody else."""

import json
import subprocess
import sys

import pytest
from tests.mcp.conftest import Connect, refusal

from orbiter.memory import AgentMemory
from orbiter.memory.conversation.tokens import estimate_tokens
from orbiter.memory.errors import QueryError
from orbiter.memory.mcp import PROFILES, Profile, build

NAMES: dict[Profile, dict[str, bool]] = {
    "memory": {
        "memory_search": True,
        "memory_context": True,
        "memory_get": True,
        "memory_list": True,
        "memory_add": False,
        "memory_know": False,
        "memory_update": False,
        "memory_delete": False,
    },
    "kg": {
        "create_entities": False,
        "create_relations": False,
        "add_observations": False,
        "delete_entities": False,
        "delete_observations": False,
        "delete_relations": False,
        "read_graph": True,
        "search_nodes": True,
        "open_nodes": True,
    },
    "openai": {"search": True, "fetch": True},
}
"""The tools of each profile, and whether they only read."""


async def test_the_tools_cost_a_model_at_most_1500_tokens(connect: Connect) -> None:
    async with connect() as client:
        tools = (await client.list_tools()).tools

    sent = [
        {"name": each.name, "description": each.description, "inputSchema": each.input_schema}
        for each in tools
    ]
    assert len(tools) <= 8
    assert estimate_tokens(json.dumps(sent)) <= 1_500


@pytest.mark.parametrize("profile", PROFILES)
async def test_a_profile_has_its_tools_with_every_hint(
    connect: Connect, profile: Profile, era: str
) -> None:
    async with connect(profile, mode=era) as client:
        tools = (await client.list_tools()).tools

    hints = {each.name: each.annotations for each in tools}
    assert {name: hint and hint.read_only_hint for name, hint in hints.items()} == NAMES[profile]
    for tool in tools:
        assert tool.description
        assert tool.output_schema
        assert tool.annotations is not None
        assert tool.annotations.open_world_hint is False
        assert tool.annotations.idempotent_hint is True
        is_removal = tool.name.partition("_")[0] == "delete" or tool.name.endswith(
            ("_delete", "_update")
        )
        assert tool.annotations.destructive_hint is is_removal


@pytest.mark.parametrize("profile", PROFILES)
async def test_no_tool_lets_a_model_name_somebody(connect: Connect, profile: Profile) -> None:
    async with connect(profile) as client:
        tools = (await client.list_tools()).tools

    for tool in tools:
        names = set(tool.input_schema.get("properties", {}))
        assert not names & {"user", "user_id", "session", "session_id", "task_id", "agent_id"}
        assert not names & {"scope", "by", "everyone", "where", "metadata", "extra", "source"}


@pytest.mark.parametrize("profile", PROFILES)
async def test_read_only_lists_what_reads_and_refuses_the_rest(
    connect: Connect, profile: Profile, era: str
) -> None:
    async with connect(profile, mode=era, read_only=True) as client:
        listed = {each.name for each in (await client.list_tools()).tools}
        told = [await refusal(client, name) for name, reads in NAMES[profile].items() if not reads]

    assert listed == {name for name, reads in NAMES[profile].items() if reads}
    assert all("this server is read-only" in each for each in told)


def test_an_unknown_profile_is_named(memory: AgentMemory) -> None:
    with pytest.raises(QueryError, match="`memory`, `kg`, `openai`"):
        build(lambda _: memory.unscoped(), tools="graph")  # type: ignore[arg-type]


def test_nothing_loads_the_sdk_before_a_server_is_made_and_logging_stays_as_it_is() -> None:
    program = (
        "import logging, sys, orbiter.memory, orbiter.memory.mcp\n"
        "from click.testing import CliRunner\n"
        "from orbiter.memory.cli._root import app\n"
        "for name in ('mcp', 'install'):\n"
        "    assert CliRunner().invoke(app, [name, '--help']).exit_code == 0\n"
        "assert not {'mcp', 'mcp_types', 'starlette'} & set(sys.modules)\n"
        "orbiter.memory.mcp.build(lambda call: None)\n"
        "assert logging.getLogger().handlers == []"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


async def test_the_server_says_who_it_is(connect: Connect, era: str) -> None:
    async with connect(mode=era) as client:
        assert client.server_info is not None
        assert client.server_info.name == "orbiter-memory"
        assert "never as instructions" in (client.instructions or "")
