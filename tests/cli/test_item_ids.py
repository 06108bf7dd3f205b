"""Ids by a part of them or by the row of the last list, and what a shell completes."""

import asyncio

import pytest
from tests.cli.conftest import Cli

from orbiter.memory import AgentMemory, MemoryItem, MemoryMetadata


def _store(cli: Cli, **ids: str) -> None:
    """Store memories of alice by these ids."""

    async def add() -> None:
        async with AgentMemory(cli.url, embeddings=None) as memory:
            for item_id, text in ids.items():
                about = MemoryMetadata(user_id="alice")
                await memory.store.add(MemoryItem(id=item_id, content=text, metadata=about))

    asyncio.run(add())


ONE = "01a1dfc25f54700087932c115e9b1259"
TWO = "01a1dfc25f54700187932c115e9bffff"


@pytest.fixture
def two(cli: Cli) -> Cli:
    _store(cli, **{ONE: "likes green tea", TWO: "lives in Lisbon"})
    return cli


def test_a_memory_is_shown_by_the_beginning_or_the_end_of_its_id(two: Cli) -> None:
    assert two.json("show", "01a1dfc25f547000")["id"] == ONE
    assert two.json("show", "1259")["id"] == ONE
    assert two.json("show", "ffff")["id"] == TWO


def test_every_command_that_takes_an_id_takes_a_part_of_it(two: Cli) -> None:
    two.ok("edit", "1259", "likes black tea")
    assert two.json("show", "1259", "--history")[-1]["item"]["content"] == "likes black tea"
    assert two.json("forget", "1259", "ffff")["items"][0]["id"] == ONE
    assert two.json("show", "1259", "--history")[-1]["change"] == "deleted"
    two.ok("restore", "1259")
    assert [each["id"] for each in two.json("list")["items"]] == [ONE]
    assert two.json("list", "--cursor", "1259")["items"] == []

    two.ok("facts", "put", "city", "Lisbon")
    fact = two.json("facts", "list")[0]["id"]
    two.ok("facts", "retract", fact[-8:])
    assert two.json("facts", "list") == []


def test_an_ambiguous_part_lists_the_candidates_and_changes_nothing(two: Cli) -> None:
    result = two("forget", "01a1dfc2")

    assert result.exit_code == 2
    assert "`01a1dfc2` is ambiguous" in result.stderr
    assert f"{ONE}  likes green tea" in result.stderr
    assert f"{TWO}  lives in Lisbon" in result.stderr
    assert len(two.json("list")["items"]) == 2


def test_a_part_of_less_than_four_characters_means_nothing(two: Cli) -> None:
    _store(two, **{"12": "a whole id"})

    refused = two("show", "fff")  # the end of one

    assert refused.exit_code == 3
    assert "give four or more characters of its id" in refused.stderr
    assert two.json("show", "12")["content"] == "a whole id"


def test_the_beginning_of_an_imported_id_needs_no_mark(cli: Cli) -> None:
    _store(cli, **{f"~75d3{ONE[4:]}": "likes tea", f"~6b0c{TWO[4:]}": "runs", "6b0cfe": "rows"})

    assert cli.json("show", "75d3")["id"] == cli.json("show", "~75d")["id"] == f"~75d3{ONE[4:]}"
    assert cli.json("show", f"75d3{ONE[4:]}")["content"] == "likes tea"
    cli.ok("edit", "75d3", "likes black tea")
    cli.ok("forget", "75d3")
    assert cli.json("show", "75d3", "--history")[-1]["change"] == "deleted"
    assert cli.json("show", f"75d3{ONE[4:]}", "--history")[-1]["change"] == "deleted"
    cli.ok("restore", "75d3")
    assert cli.json("show", "75d3")["content"] == "likes black tea"
    refused = cli("forget", "6b0c")
    assert refused.exit_code == 2
    assert "`6b0c` is ambiguous" in refused.stderr
    assert cli("show", "75d3", "--user", "bob").exit_code == 3


def test_an_id_that_is_the_beginning_of_another_means_itself(cli: Cli) -> None:
    _store(cli, note="the short one", note2="the long one")

    assert cli.json("show", "note")["content"] == "the short one"


def test_a_part_never_means_a_memory_of_another_user(two: Cli) -> None:
    for part in ("01a1dfc25f547000", "1259"):
        for command in ("show", "forget", "restore"):
            result = two(command, part, "--user", "bob")
            assert result.exit_code == 3, result.output
            assert ONE not in result.output
    assert two.json("show", "1259", "--all")["id"] == ONE
