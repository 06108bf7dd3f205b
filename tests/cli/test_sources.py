"""`quarantine`, `release`, `undo` and `duplicates`; and `--as-of`, `--by` and `--expires`."""

from datetime import UTC, datetime

import pytest
from tests.cli.conftest import Cli


def test_a_source_is_hidden_brought_back_and_undone(cli: Cli) -> None:
    kept = cli.remember("tea")
    spam = cli.remember("buy \x1b[2J now", "--source", "web:spam.example")
    cli.ok("remember", "bob's", "--source", "web", "--user", "bob")

    would = cli.json("quarantine", "web", "--dry-run")
    refused = cli("quarantine", "web")
    hidden = cli.ok("quarantine", "web:spam.example", "--yes")
    left = [item["id"] for item in cli.json("list")["items"]]
    back = cli.ok("quarantine", "web", "--release")
    undone = cli.json("undo", "web", "--yes")

    assert [item["id"] for item in would["items"]] == [spam]
    assert refused.exit_code == 2
    assert "this would hide 1 memory from `web` of user `alice`" in refused.stderr
    assert hidden.startswith(f"{spam}\t")
    assert "\x1b" not in hidden
    assert left == [kept]
    assert back == "1 memory released\n"
    assert [item["id"] for item in undone["items"]] == [spam]
    assert [item["id"] for item in cli.json("list")["items"]] == [kept]
    assert len(cli.json("list", "--all")["items"]) == 2
    assert cli("undo", "web", "--since", "never").exit_code == 2


def test_doubting_asks_and_takes_no_for_an_answer(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.ok("remember", "buy", "--source", "web")
    monkeypatch.setattr("orbiter.memory.cli._output.can_ask", lambda _: True)

    for command, asked in (("quarantine", "Hide"), ("undo", "Undo")):
        no = cli(command, "web", stdin="n\n")
        assert no.exit_code == 1
        assert f"{asked} 1 memory from `web` of user `alice`? [y/N]" in no.stderr
    assert len(cli.json("list")["items"]) == 1
    assert cli("undo", "web", stdin="y\n").exit_code == 0
    assert cli.json("list")["items"] == []


def test_what_was_is_listed_and_found_as_it_was(cli: Cli) -> None:
    item_id = cli.remember("black tea", "--by", "bob")
    then = datetime.now(UTC).isoformat()
    cli.ok("edit", item_id, "coffee", "--by", "carol")
    cli.ok("remember", "more tea")

    was = cli.json("list", "--as-of", then)
    found = cli.json("recall", "tea", "--as-of", then)

    assert [item["content"] for item in was["items"]] == ["black tea"]
    assert [hit["item"]["content"] for hit in found["hits"]] == ["black tea"]
    assert [each["by"] for each in cli.json("show", item_id, "--history")] == ["bob", "carol"]
    asked = ["recall", "tea", "--as-of", then, "--min-relevance"]
    assert [len(cli.json(*asked, least)["hits"]) for least in ("0", "1")] == [1, 0]
    for args in (
        ["list", "--as-of", then, "--forgotten"],
        ["recall", "tea", "--as-of", then, "--mode", "recent"],
        ["recall", "tea", "--as-of", then, "--min-trust", "user"],
    ):
        assert cli(*args).exit_code == 2, args


def test_an_end_is_given_and_taken_away(cli: Cli) -> None:
    item_id = cli.remember("tea")

    cli.ok("edit", item_id, "--expires", "30d")
    ends = cli.json("show", item_id).get("expires_at")
    cli.ok("edit", item_id, "--expires", "never")

    assert ends is not None
    assert cli.json("show", item_id).get("expires_at") is None
    assert cli("edit", item_id, "--expires", "2020-01-01").exit_code == 2


def test_a_name_that_signs_must_be_one_and_makes_no_store(cli: Cli) -> None:
    assert cli("remember", "tea", "--by", "~quarantine").exit_code == 2
    assert cli("list").exit_code == 1


def test_what_does_not_hold_is_marked_and_a_conflict_names_its_sources(cli: Cli) -> None:
    cli.ok("facts", "put", "home", "Berlin", "--valid-from", "2020-01-01")
    cli.ok(
        "facts", "put", "home", "Porto", "--valid-from", "2020-01-01", "--source", "web:x.example"
    )

    row = cli.ok("facts", "list", "--conflicts").splitlines()[0].split("\t")
    cli.ok("facts", "retract", row[4])
    kinds = {line.split("\t")[2] for line in cli.ok("list").splitlines()}

    assert row[-2:] == ["user", "web:x.example"]
    assert kinds == {"fact", "fact retracted"}
