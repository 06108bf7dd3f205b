"""`facts` and `review`: current and past values, and drafts to review."""

import asyncio
import json
import re
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Cli

from orbiter.memory import AgentMemory

STYLE = re.compile(r"\x1b\[[0-9;]*m")
posix = pytest.mark.skipif(sys.platform == "win32", reason="terminals of POSIX")


def _propose(cli: Cli, **proposals: object) -> None:
    """Have facts proposed from a message that tries to move the cursor."""

    async def propose() -> None:
        async with AgentMemory(cli.url, embeddings=None) as memory:
            alice = memory.scope(user_id="alice")
            said = await alice.remember("we moved \x1b[2J to Porto")
            for key, value in proposals.items():
                await alice.facts.propose(key, value, source=said)

    asyncio.run(propose())


def _put(cli: Cli, value: str, *args: str) -> str:
    """Record where home is; return the id."""
    return str(cli.json("facts", "put", "home", value, *args)["id"])


def test_a_fact_is_what_it_was_then(cli: Cli) -> None:
    _put(cli, "Berlin", "--valid-from", "2020-01-01")
    lisbon = _put(cli, "Lisbon", "--valid-from", "2024-03-01")

    assert cli.ok("facts", "list", "home") == "Lisbon\n"
    assert cli.ok("facts", "list", "home", "--as-of", "2021-06-01") == "Berlin\n"
    assert (
        cli.ok("facts", "list")
        == cli.ok("facts", "list")
        == f"{lisbon}\thome\tLisbon\tsince 1 Mar 2024\n"
    )
    assert [each["value"] for each in cli.json("facts", "list", "--as-of", "2021-06-01")] == [
        "Berlin"
    ]
    assert cli.json("facts", "list", "--known-at", "2021-06-01") == []
    past = cli.ok("facts", "history", "home").splitlines()
    assert [line.split("\t")[2:] for line in past] == [
        ["Berlin", "2020 to 1 Mar 2024"],
        ["Lisbon", "since 1 Mar 2024"],
    ]
    spans = [each["spans"] for each in cli.json("facts", "history", "home")]
    assert spans[0][0]["end"] == spans[1][0]["start"]


def test_facts_end_are_taken_back_and_contradict_each_other(cli: Cli) -> None:
    _put(cli, "Berlin", "--valid-from", "2020-01-01")
    wrong = _put(cli, "Bern", "--valid-from", "2020-01-01", "--source", "web:example.com")

    conflict = cli.ok("facts", "list", "--conflicts").split("\t")
    (as_json,) = cli.json("facts", "list", "--conflicts")
    cli.ok("facts", "retract", wrong)

    assert conflict[:2] == ["home", "same time"]
    assert as_json["later"]["id"] == conflict[4] == wrong
    assert cli.ok("facts", "list", "--conflicts") == ""
    assert cli.ok("facts", "list", "home") == "Berlin\n"
    assert "\tended\t" in cli.ok("facts", "end", "home")
    assert cli("facts", "list", "home").exit_code == 3


def test_a_value_may_be_json_or_come_from_stdin(cli: Cli) -> None:
    cli.ok("facts", "put", "langs", '["de", "pt"]', "--parse")
    cli.ok("facts", "put", "note", "-", stdin="two\nlines \x1b[2J\n")

    assert cli.ok("facts", "list", "langs") == '["de", "pt"]\n'
    assert cli.ok("facts", "list", "note") == "two\nlines \\x1b[2J\n"
    assert "two lines \\x1b[2J" in cli.ok("facts", "list")


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["put", " home", "x"], "KEY: "),
        (["put", "home", "{", "--parse"], "`--parse`"),
        (["put", "home", "x", "--valid-from", "soon"], "`--valid-from`"),
        (
            ["put", "home", "x", "--valid-from", "2021-01-01", "--valid-to", "2020-01-01"],
            "`--valid",
        ),
        (["list", "--bogus"], "facts list --help"),
        (["lst"], "Did you mean 'list'"),
    ],
)
def test_what_means_nothing_makes_no_store(cli: Cli, args: list[str], told: str) -> None:
    result = cli("facts", *args)

    assert result.exit_code == 2, result.output
    assert told in result.stderr
    assert "valid_" not in result.stderr
    assert not Path(cli.url).exists()


def test_recall_in_a_pipe_says_when_a_replaced_fact_held(cli: Cli) -> None:
    cli.ok("facts", "put", "home", "Oslo", "--valid-from", "2020-01-01")
    cli.ok("facts", "put", "home", "Bergen", "--valid-from", "2023-01-01")

    texts = {line.split("\t")[3] for line in cli.ok("recall", "home").splitlines()}

    assert texts == {"home: Bergen (since 2023)", "home: Oslo (2020 to 2023)"}


def test_what_is_not_known_is_told_in_words_of_a_shell(cli: Cli) -> None:
    assert cli("facts", "list").exit_code == 1  # there is no store
    _put(cli, "Berlin")
    item_id = cli.remember("no fact")

    for args, told in (
        (["list", "hom"], "there is `home`"),
        (["list", "home", "--as-of", "2001-01-01"], "`home` had no value then for user `alice`"),
        (["list", "home", "--as-of", "2001-01-01"], "facts history home"),
        (["history", "hom"], "there is `home`"),
        (["end", "hom"], "there is `home`"),
        (["retract", item_id], "`facts history KEY`"),
        (["list", "home", "--user", "bob"], "user `bob`"),
    ):
        result = cli("facts", *args)

        assert result.exit_code == 3, args
        assert told in result.stderr
        assert "()" not in result.stderr


def test_proposals_are_listed_accepted_and_discarded(cli: Cli) -> None:
    _propose(cli, home="Porto", pet="cat", car="none")
    ids = {each["key"]: each["id"] for each in cli.json("review")}

    listed = cli.ok("review")  # nobody can be asked
    accepted = cli.ok("review", ids["home"], ids["pet"], "--accept")
    discarded = cli.json("review", ids["car"], "--discard")
    refused = cli("review", ids["home"], "--discard")
    asked = cli("review", "all")

    assert [line.split("\t")[1:] for line in listed.splitlines()] == [
        [key, value, "from 1 memory"]
        for key, value in (("home", "Porto"), ("pet", "cat"), ("car", "none"))
    ]
    assert accepted.count("\taccepted\n") == 2
    assert discarded[0]["status"] == "discard"
    assert (refused.exit_code, asked.exit_code) == (2, 2)
    assert "`orbiter-memory facts retract`" in refused.stderr
    assert cli.json("review") == []
    assert cli("review", "nope", "--accept").exit_code == 3
    assert sorted(each["key"] for each in cli.json("facts", "list")) == ["home", "pet"]


def test_a_memory_shows_its_end_and_a_fact_its_dates(cli: Cli) -> None:
    item_id = cli.remember("a code", "--expires", "30d")
    fact_id = _put(cli, "Lisbon", "--valid-from", "2024-03-01")

    shown, fact = cli.ok("show", item_id), cli.ok("show", fact_id)

    assert "expires    20" in shown
    assert "key        home" in fact
    assert "valid from 2024-03-01 00:00" in fact
    assert "extra.fact" not in fact
    assert "trust      web" in cli.ok("show", cli.remember("tea", "--source", "web:example.com"))
    assert "valid from" not in cli.ok("show", _put(cli, "Bern", "--valid-to", "2019-01-01"))


def test_an_end_is_to_come_and_recall_goes_by_trust(cli: Cli) -> None:
    for given in ("yesterday", "2020-01-01", "now", "soon", "999999999w"):
        result = cli("remember", "x", "--expires", given)
        assert result.exit_code == 2
        assert "`--expires`" in result.stderr
    assert not Path(cli.url).exists()
    cli.ok("remember", "tea is green", "--source", "web:example.com", "--expires", "2099-01-01")
    cli.ok("remember", "tea is brown")

    found = json.loads(cli("recall", "tea", "--min-trust", "tool", "--json").stdout)["hits"]

    assert [hit["item"]["content"] for hit in found] == ["tea is brown"]
    assert len(cli.json("recall", "tea", "--min-trust", "web")["hits"]) == 2
    assert cli("recall", "tea", "--min-trust", "nobody").exit_code == 2


def test_a_list_marks_facts_that_hold_no_more(cli: Cli) -> None:
    cli.ok("facts", "put", "city", "Oslo")
    cli.ok("facts", "put", "city", "Bergen")
    cli.ok("facts", "put", "pet", "cat")
    cli.ok("facts", "end", "pet")
    cli.ok("facts", "put", "city", "Rome", "--user", "bob")

    rows = [line.split("\t")[2:] for line in cli.ok("list").splitlines()]
    listed = cli.json("list")

    marks = {text: kind for kind, text in rows}
    assert marks["city: Oslo"] == 'fact replaced by "city: Bergen"'
    assert marks["pet: cat"].startswith("fact ended ")
    assert (marks["city: Bergen"], marks["pet: ended"]) == ("fact", "fact")
    ids = {item["content"]: item["id"] for item in listed["items"]}
    assert listed["ended"].keys() == {ids["city: Oslo"], ids["pet: cat"]}
    assert cli.json("list", "--user", "bob")["ended"] == {}
    assert 'replaced by "city: Bergen"' in cli.ok("list", "--all")
