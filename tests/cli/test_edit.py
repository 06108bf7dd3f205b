"""`edit`, `forget`, `restore` and `history`: memories are changed, and changes undone."""

import pytest
from tests.cli.conftest import Cli
from tests.cli.terminal import environment, in_terminal


def test_an_edit_keeps_the_old_version_and_history_shows_the_difference(cli: Cli) -> None:
    item_id = cli.remember("The budget is 120 euros")

    cli.ok("edit", item_id, "The budget is 150 euros", "--source", "a call")

    assert "The budget is [-120-]{+150+} euros" in cli.ok("show", item_id, "--history")
    assert "source: none → a call" in cli.ok("show", item_id, "--history")
    versions = cli.json("show", item_id, "--history")
    assert [each["change"] for each in versions] == ["added", "updated"]
    assert versions[0]["item"]["content"] == "The budget is 120 euros"


def test_an_edit_of_a_memory_that_has_moved_on_exits_with_4(cli: Cli) -> None:
    item_id = cli.remember("first")
    cli.ok("edit", item_id, "second", "--expect", "1")

    late = cli("edit", item_id, "third", "--expect", "1")

    assert late.exit_code == 4
    assert "version 2" in late.stderr
    assert f"`orbiter-memory show {item_id} --history`" in late.stderr
    assert "`--expect 2`" in late.stderr
    assert cli.json("show", item_id)["content"] == "second"


def test_an_edit_says_whether_recall_may_return_it(cli: Cli) -> None:
    item_id = cli.remember("The alarm code is 4711")

    cli.ok("edit", item_id, "--no-index")
    hidden, listed = cli.json("recall", "alarm code")["hits"], cli.ok("list")
    cli.ok("edit", item_id, "--index")

    assert hidden == []
    assert "\titem not recalled\tThe alarm code" in listed
    assert [hit["item"]["id"] for hit in cli.json("recall", "alarm code")["hits"]] == [item_id]
    assert "not recalled" not in cli.ok("list")


def test_an_edit_takes_text_from_stdin_and_labels_alone(cli: Cli) -> None:
    item_id = cli.remember("first")

    cli.ok("edit", item_id, "-", stdin="from a pipe\n")
    cli.ok("edit", item_id, "--tag", "piped")

    item = cli.json("show", item_id)
    assert item["content"] == "from a pipe"
    assert item["metadata"]["extra"]["tags"] == ["piped"]
    assert cli("edit", item_id).exit_code == 2  # no terminal for an editor


def test_what_is_forgotten_is_gone_and_can_be_restored(cli: Cli) -> None:
    item_id = cli.remember("door code 4711")

    cli.ok("forget", item_id)

    assert [item["id"] for item in cli.json("list", "--forgotten")["items"]] == [item_id]
    assert cli.ok("list") == ""
    assert cli.ok("restore", item_id).startswith(item_id)
    assert cli.json("show", item_id)["content"] == "door code 4711"
    assert cli.ok("list", "--forgotten") == ""


def test_what_was_forgotten_is_told_apart_from_what_was_never_there(cli: Cli) -> None:
    item_id = cli.remember("door code 4711")
    cli.ok("forget", item_id)

    for args in (["show", item_id], ["edit", item_id, "x"], ["forget", item_id]):
        result = cli(*args)

        assert result.exit_code == 3, args
        assert "was forgotten" in result.stderr
        assert f"`orbiter-memory restore {item_id}`" in result.stderr
    assert "forgotten" not in cli("show", item_id, "--user", "bob").stderr


def test_restore_goes_back_to_a_version(cli: Cli) -> None:
    item_id = cli.remember("first")
    cli.ok("edit", item_id, "second")

    restored = cli.json("restore", item_id, "--version", "1")

    assert restored["content"] == "first"
    lacking = cli("restore", item_id, "--version", "77")
    assert lacking.exit_code == 3
    assert "has no version 77; it has 1, 2, 3" in lacking.stderr


def test_forgetting_by_filter_asks_first_and_refuses_where_nobody_can_answer(cli: Cli) -> None:
    cli.remember_all("tea", "green tea", "coffee")

    refused = cli("forget", "--query", "tea")
    tried = cli.json("forget", "--query", "tea", "--dry-run")

    assert refused.exit_code == 2
    assert "2 memories" in refused.stderr
    assert "--yes" in refused.stderr
    assert len(tried["items"]) == 2
    assert len(cli.json("list")["items"]) == 3


def test_forgetting_permanently_asks_first_and_proves_it(cli: Cli) -> None:
    cup, pot = (cli.remember(f"a {each} of gingertea") for each in ("cup", "pot"))
    cli.ok("forget", pot)

    refused = cli("forget", cup, "--permanently")
    tried = cli.json("forget", cup, pot, "--permanently", "--dry-run")
    assert refused.exit_code == 2
    assert "this would erase 1 memory for good; give `--yes`" in refused.stderr
    assert {each["id"] for each in tried["items"]} == {cup, pot}
    assert cli.json("show", cup)["id"] == cup

    done = cli.json("forget", cup, pot, "--permanently", "--yes")

    assert (done["proven"], sorted(done["ids"])) == (True, sorted([cup, pot]))
    assert (done["items"], done["forgotten"], done["problems"]) == (1, 1, [])
    for item_id in (cup, pot):
        assert cli("restore", item_id).exit_code == 3
    assert cli("forget", cup, "--permanently", "--yes").exit_code == 3


def test_forgetting_what_is_not_there_says_that_and_nothing_else(cli: Cli) -> None:
    cup = cli.remember("a cup of tea")
    shell = environment(cli.url)
    cli.ok("forget", cup)

    again = in_terminal(["forget", cup], shell)
    absent = in_terminal(["forget", "nonsense"], shell)
    tried = in_terminal(["forget", "nonsense", "--dry-run"], shell)
    for_good = in_terminal(["forget", "nonsense", "--permanently", "--yes"], shell)
    counted = in_terminal(["forget", "nonsense", "--permanently", "--dry-run"], shell)

    assert "was forgotten" in again.stdout.replace("\n", " ")
    for each in (absent, tried, for_good, counted):
        assert "there is no memory `nonsense`" in each.stdout
    for each in (again, absent, tried, for_good, counted):
        assert each.code == 3
        for more in ("note:", "undoes it", "nothing to erase", "looked for", "0 would"):
            assert more not in each.stdout, each


def test_forgetting_permanently_takes_filters(cli: Cli) -> None:
    for text in ("green tea", "black tea", "coffee"):
        cli.ok("remember", text)

    told = cli.ok("forget", "--query", "tea", "--permanently", "--yes")

    assert "erased 2" in told
    assert "nothing is left" in told
    assert [each["content"] for each in cli.json("list")["items"]] == ["coffee"]


def test_forgetting_by_filter_with_yes_forgets_what_matches(cli: Cli) -> None:
    cli.remember("tea", "--extra", '{"price": 1}')
    cli.remember("wine", "--extra", '{"price": 9}')

    cli.ok("forget", "--where", '{"price": {"$lt": 5}}', "--yes")
    assert [item["content"] for item in cli.json("list")["items"]] == ["wine"]

    cli.ok("forget", "--everything", "--yes")
    assert cli.json("list")["items"] == []


def test_forgetting_by_tag_forgets_what_has_every_tag(cli: Cli) -> None:
    cli.remember("tea", "--tag", "drink", "--tag", "hot")
    cli.remember("lemonade", "--tag", "drink")

    refused = cli("forget", "--tag", "hot", "--tag", "drink")
    cli.ok("forget", "--tag", "hot", "--tag", "drink", "--yes")

    assert "would forget 1 memory;" in refused.stderr
    assert [item["content"] for item in cli.json("list")["items"]] == ["lemonade"]
    assert cli("forget", "--tag", "", "--yes").exit_code == 2


def test_forgetting_everything_forgets_only_this_scope(cli: Cli) -> None:
    cli.remember("mine")
    cli.remember("bob's", "--user", "bob")

    cli.ok("forget", "--everything", "--yes")

    assert [item["content"] for item in cli.json("list", "--all")["items"]] == ["bob's"]


def test_forgetting_needs_ids_or_a_filter_and_not_both(cli: Cli) -> None:
    item_id = cli.remember("tea")

    assert cli("forget").exit_code == 2
    assert cli("forget", item_id, "--everything", "--yes").exit_code == 2
    assert len(cli.json("list")["items"]) == 1


def test_ids_come_from_a_pipe_and_one_that_is_not_there_exits_with_3(cli: Cli) -> None:
    ids = cli.remember_all("one", "two").split()

    result = cli("forget", "-", "nowhere", stdin="\n".join(ids))

    assert result.exit_code == 3
    assert "`nowhere`" in result.stderr
    assert cli.ok("list") == ""


def test_what_is_not_there_exits_with_3(cli: Cli) -> None:
    cli.remember("something")

    for args in (["show"], ["edit"], ["show", "--history"], ["restore"]):
        result = cli(*args, "nowhere", *(["text"] if args == ["edit"] else []))

        assert result.exit_code == 3, args
        assert "there is no memory `nowhere` of user `alice`" in result.stderr
        assert "()" not in result.stderr  # a shell has no methods
        assert result.stdout == ""


def test_a_change_is_signed_by_the_computers_user_and_not_by_whose_it_is(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "officer")
    made = cli.remember("likes tea")
    cli.ok("edit", made, "likes coffee")
    cli.ok("forget", made, "--yes")
    cli.ok("restore", made)
    cli.ok("edit", made, "likes rum", "--by", "ann")

    changes = [(each["change"], each["by"]) for each in cli.json("show", made, "--history")]
    assert changes == [
        ("added", "officer"),
        ("updated", "officer"),
        ("deleted", "officer"),
        ("restored", "officer"),
        ("updated", "ann"),
    ]


def test_a_computers_user_whose_name_is_reserved_stops_nothing(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "~evict")

    assert cli.json("show", cli.remember("likes tea"), "--history")[0]["by"] != "~evict"


def test_a_fact_is_edited_by_the_commands_of_facts(cli: Cli) -> None:
    made = cli.ok("facts", "put", "city", "Oslo").split()[0]

    refused = cli("edit", made, "Rome")

    assert refused.exit_code == 2
    assert "`orbiter-memory facts put KEY VALUE` records a new value" in refused.stderr
    assert "`orbiter-memory facts retract ID` withdraws this one" in refused.stderr
    assert "facts.put" not in refused.stderr


def test_a_tag_is_added_and_another_removed(cli: Cli) -> None:
    item_id = cli.remember("Backups run at 3 am", "--tag", "ops", "--tag", "old")

    cli.ok("edit", item_id, "--add-tag", "night", "--remove-tag", "old")
    both = cli("edit", item_id, "--tag", "x", "--add-tag", "y")

    assert cli.json("show", item_id)["metadata"]["extra"]["tags"] == ["ops", "night"]
    assert (both.exit_code, "`--tag` replaces all tags" in both.stderr) == (2, True)
