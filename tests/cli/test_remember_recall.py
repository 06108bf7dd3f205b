"""`remember`, `recall`, `list` and `show`: memories are stored and found."""

import json
from datetime import UTC, datetime

import pytest
from tests.cli.conftest import Cli
from tests.cli.terminal import environment, in_terminal

from orbiter.memory.recall import RecallResult
from orbiter.memory.text.ranking import ANSWERED


def test_texts_in_quotes_are_a_memory_each_and_words_without_are_one(cli: Cli) -> None:
    two = cli.ok("remember", "green tea", "the red door", "--json")
    one = cli.ok("remember", "I", "like", "green tea", "--json")

    assert [each["content"] for each in json.loads(two)] == ["green tea", "the red door"]
    assert [each["content"] for each in json.loads(one)] == ["I like green tea"]


def test_what_is_remembered_is_recalled_listed_and_shown(cli: Cli) -> None:
    item_id = cli.remember(
        "I love hiking in the mountains", "--tag", "outdoor", "--tag", "joy", "--importance", "0.8"
    )

    recalled = cli.ok("recall", "hiking")
    listed = cli.ok("list")
    shown = cli.ok("show", item_id)

    assert recalled.split("\t")[0] == item_id
    assert listed.startswith(f"{item_id}\t")
    assert listed.endswith("\titem\tI love hiking in the mountains\n")
    for part in ("#outdoor #joy", "importance 0.8", "version    1", "user alice", item_id):
        assert part in shown


def test_words_without_quotes_are_one_memory(cli: Cli) -> None:
    cli.ok("remember", "Mia", "likes", "green tea", "--tag", "food")

    assert [item["content"] for item in cli.json("list")["items"]] == ["Mia likes green tea"]
    refused = cli("remember", "Mia", "-", "--lines", stdin="tea\n")
    assert (refused.exit_code, "give `-` as the text" in refused.stderr) == (2, True)


def test_what_is_only_private_makes_no_store(cli: Cli) -> None:
    for said, where in (
        (("remember", "<private>7261"), ""),
        (("remember", "green tea", "<private>the pin</private>"), "text 2: "),
        (("facts", "put", "pin", "<private>7261"), ""),
    ):
        refused = cli(*said)

        assert refused.exit_code == 2, said
        assert f"{where}there is nothing to store: all of it is marked as private" in refused.stderr
    assert "there is no store" in cli("list").stderr


def test_stdin_beside_words_is_refused_and_not_dropped(cli: Cli) -> None:
    for words in (("title", "-"), ("-", "title"), ("-", "-")):
        refused = cli("remember", *words, stdin="the text itself\n")
        assert (refused.exit_code, "`-` reads stdin" in refused.stderr) == (2, True)
    cli.ok("remember", "Rome", "-", "Paris", "by", "train")
    cli.ok("remember", "a dash: -")

    told = [item["content"] for item in cli.json("list")["items"]]
    assert told == ["a dash: -", "Rome - Paris by train"]


def test_what_is_not_indexed_is_listed_and_not_recalled(cli: Cli) -> None:
    item_id = cli.remember("The alarm code is 4711", "--no-index")

    listed = cli.ok("list", "--query", "4711")
    assert listed.startswith(item_id)
    assert listed.endswith("\titem not recalled\tThe alarm code is 4711\n")
    assert cli.json("recall", "alarm code")["hits"] == []


def test_recall_gives_scores_and_reasons_as_json(cli: Cli) -> None:
    item_id = cli.remember("Mia is allergic to peanuts")
    cli.remember("We fly on Monday")

    (hit,) = cli.json("recall", "peanuts")["hits"]

    assert hit["item"]["id"] == item_id
    assert hit["score"] == pytest.approx(sum(reason["points"] for reason in hit["why"]))
    assert any("peanut" in reason["text"] for reason in hit["why"])


def test_recall_explains_with_points_and_says_what_came_next(cli: Cli) -> None:
    cli.remember("Mia is allergic to peanuts")
    cli.remember("Mia loves trams")

    asked = ("recall", "what is Mia allergic to", "--limit", "1", "--explain")
    told = cli.ok(*asked)

    assert "+" in told.splitlines()[2]
    assert "trams" in told
    assert cli.json(*asked)["left_out"][0]["item"]["content"] == "Mia loves trams"


def test_recall_needs_no_question_for_the_newest_and_names_a_tag_that_is_near(cli: Cli) -> None:
    cli.remember("Mia is my niece", "--tag", "family")
    cli.remember("The door code is 4711")

    newest = cli.json("recall", "--mode", "recent")["hits"]
    missing = cli("recall")
    misspelt = cli("recall", "Mia", "--tag", "familly")

    assert [hit["item"]["content"] for hit in newest] == [
        "The door code is 4711",
        "Mia is my niece",
    ]
    assert missing.exit_code == 2
    assert "missing argument QUESTION" in missing.stderr
    assert "no tag `familly` in the memories of user `" in misspelt.stderr
    assert "did you mean `family`?" in misspelt.stderr


def test_a_type_that_is_none_is_named_where_nothing_is_found(cli: Cli) -> None:
    cli.remember("Mia is my niece")

    said = [cli(*asked, "--type", "note").stderr for asked in (["recall", "Mia"], ["list"])]

    assert all("unknown type `note`; use `item` for notes, or `ai`" in each for each in said)
    assert cli.json("recall", "Mia", "--type", "item")["hits"]


def test_recall_as_json_has_the_names_of_python(cli: Cli) -> None:
    cli.remember("The door code is 4711")

    found = cli.json("recall", "door code?", "--mode", "words")

    assert set(found) - {"hits", "unembedded"} == {
        "considered", "left_out", "mode", "question", "reranking", "spread",
    }  # fmt: skip
    assert set(found) - {"hits"} <= set(vars(RecallResult()))
    assert found["mode"] == "words"
    assert found["question"] == "looks for door, code"


def test_recall_leaves_out_what_is_less_relevant(cli: Cli) -> None:
    cli.remember("The door code is 4711")
    cli.remember("The garden door is green")
    asked = ("recall", "What is the door code?")

    every = cli.json(*asked)["hits"]
    best = cli.json(*asked, "--min-relevance", f"{every[0]['relevance'] - 0.001:.4f}")["hits"]
    shell = environment(cli.url)
    nothing, everyone = (
        " ".join(in_terminal([*asked, "--min-relevance", "1", *more], shell).stdout.split())
        for more in ((), ("--all",))
    )

    assert [0 < hit["relevance"] < 1 for hit in every] == [True, True]
    assert [hit["item"]["content"] for hit in best] == ["The door code is 4711"]
    assert f"\t{best[0]['relevance']:.2f}\t" in cli.ok(*asked)
    assert "nothing found in the memories of user `" in nothing
    assert "` with a relevance of 1 or more; `--all` searches everyone's;" in nothing
    assert "nothing found with a relevance of 1 or more; `list` shows all memories" in everyone
    assert cli(*asked, "--min-relevance", "2").exit_code == 2
    assert "4711" in cli.ok("context", "new", "What is the door code?")
    assert "4711" not in cli.ok("context", "new", "What is the door code?", "--min-relevance", "1")


def test_recall_says_when_nothing_answers(cli: Cli) -> None:
    cli.remember("a number of things were said about the time of the year, and many more besides")

    asked = (
        "Did you tell me the time at which hafnium melts in a tungsten furnace of the steelworks "
        "in Essen, with gloves, masks and helmets for everybody who stands near?"
    )
    found = in_terminal(["recall", asked], environment(cli.url))

    told = " ".join(found.stdout.split())
    assert "a number of things" in told
    assert "nothing here answers the question: relevance at most 0.0" in told


def test_recall_says_when_its_answers_are_only_possible(cli: Cli) -> None:
    cli.remember_all("The garden door is green", "The office has a new printer code")
    shell = environment(cli.url)

    unlikely, likely = (
        " ".join(in_terminal(["recall", asked], shell).stdout.split())
        for asked in ("Which code opens the safe at home?", "Is the garden door green?")
    )

    best = max(
        hit["relevance"] for hit in cli.json("recall", "Which code opens the safe at home?")["hits"]
    )
    assert ANSWERED < best < 0.5
    assert (
        f"note: possible answers: none is likelier than not, relevance at most {best:.2f}"
        in unlikely
    )
    assert "possible answers" not in likely


def test_recall_is_narrowed_by_time_kind_and_filter(cli: Cli) -> None:
    cli.remember("the red kite", "--extra", '{"price": 3}')
    cli.remember("the blue kite", "--extra", '{"price": 9}')

    cheap = cli.json("recall", "kite", "--where", '{"price": {"$lt": 5}}')["hits"]

    assert [hit["item"]["content"] for hit in cheap] == ["the red kite"]
    assert cli.json("recall", "kite", "--until", "1h")["hits"] == []
    assert len(cli.json("recall", "kite", "--since", "2020-01-01")["hits"]) == 2
    assert cli.json("recall", "kite", "--type", "human")["hits"] == []
    assert len(cli.json("recall", "kite", "--limit", "1", "--mode", "recent")["hits"]) == 1


def test_a_dash_reads_one_memory_from_stdin_and_lines_reads_many(cli: Cli) -> None:
    whole = cli.ok("remember", "-", stdin="first line\nsecond line\n")
    many = cli.ok("remember", "-", "--lines", stdin="eins\n\nzwei\n")

    contents = [item["content"] for item in cli.json("list")["items"]]

    assert len(whole.splitlines()) == 1
    assert len(many.splitlines()) == 2
    assert sorted(contents) == ["eins", "first line\nsecond line", "zwei"]
    assert cli("recall", "-", stdin="eins").stdout.endswith("eins\n")


def test_a_key_is_stored_once(cli: Cli) -> None:
    first = cli.remember("water the plants", "--key", "plants")
    other = ["remember", "water the plants, again", "--key", "plants"]
    again = in_terminal(other, environment(cli.url), stdout_is_terminal=False)

    assert cli.remember("water the plants", "--key", "plants") == first == again.stdout.strip()
    assert "note: the `--key` `plants` was used before" in again.stderr
    assert cli.json("show", first)["content"] == "water the plants"
    assert cli("remember", "-", "--lines", "--key", "x", stdin="a\nb\n").exit_code == 2


def test_tags_and_a_filter_must_all_hold(cli: Cli) -> None:
    cli.remember("green tea", "--tag", "drink", "--tag", "hot", "--extra", '{"price": 2}')
    cli.remember("iced tea", "--tag", "drink", "--extra", '{"price": 2}')
    cli.remember("old tea", "--tag", "drink", "--tag", "hot", "--extra", '{"price": 90}')

    narrow = ["--tag", "drink", "--tag", "hot", "--where", '{"price": {"$lt": 5}}']
    listed = cli.json("list", *narrow)["items"]
    recalled = cli.json("recall", "tea", *narrow)["hits"]

    assert [item["content"] for item in listed] == ["green tea"]
    assert [hit["item"]["content"] for hit in recalled] == ["green tea"]
    assert len(cli.json("list", "--tag", "drink")["items"]) == 3
    assert cli.json("list", "--tag", "drin")["items"] == []


def test_a_memory_can_be_of_another_day(cli: Cli) -> None:
    cli.remember("the flood", "--at", "2024-06-01T10:00")
    cli.ok("remember", "-", "--lines", "--at", "3d", stdin="one\ntwo\n")

    old = cli.json("list", "--until", "2024-06-01")["items"]

    assert [item["content"] for item in old] == ["the flood"]
    assert len(cli.json("list", "--since", "4d", "--until", "2d")["items"]) == 2
    assert "`--at`" in cli("remember", "x", "--at", "later").stderr


def test_a_program_reads_explanations_without_blanks_at_the_ends(cli: Cli) -> None:
    cli.remember_all("tea", "a much longer text about tea and cake")

    told = cli.ok("recall", "tea", "--explain")

    assert len(told.splitlines()) > 4
    assert [line for line in told.splitlines() if line != line.rstrip()] == []


def test_a_list_goes_on_where_the_page_before_ended(cli: Cli) -> None:
    cli.remember_all("one", "two", "three")

    first = cli.json("list", "-n", "2")
    rest = cli.json("list", "-n", "2", "--cursor", first["next"])

    assert [item["content"] for item in first["items"]] == ["three", "two"]
    assert [item["content"] for item in rest["items"]] == ["one"]
    assert rest["next"] is None


def test_nothing_found_is_no_error_and_says_nothing_to_a_program(cli: Cli) -> None:
    cli.ok("forget", cli.remember("gone"))

    for args in (["list"], ["recall", "gone"], ["chat"]):
        result = cli(*args)

        assert (result.exit_code, result.output) == (0, ""), args


def test_dates_are_iso_or_so_long_ago(cli: Cli) -> None:
    cli.remember("now")
    year = datetime.now(UTC).year

    for told in ("3d", "12h", "90m", "2w", f"{year - 1}-11-01", f"{year - 1}-11-01T10:00"):
        assert len(cli.json("list", "--since", told)["items"]) == 1
        assert cli.json("list", "--until", told)["items"] == []
    for told in ("yesterday", "last week", "two weeks ago", str(year - 1)):
        assert len(cli.json("list", "--since", told)["items"]) == 1
        assert len(cli.json("list", "--until", told)["items"]) == 0
    assert len(cli.json("list", "--since", "today", "--until", "today")["items"]) == 1
    wrong = cli("list", "--since", "yesterday-ish")
    assert wrong.exit_code == 2
    assert "`--since`" in wrong.stderr


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["remember", "x", "--importance", "7"], "importance"),
        (["remember", "  "], "empty"),
        (["remember", "x", "--extra", "{"], "`--extra` is not valid JSON"),
        (["list", "--where", "{a}"], """such as '{"price": {"$lt": 5}}'"""),
        (["list", "--where", '{"a": {"$near": 1}}'], """such as '{"price": {"$lt": 5}}'"""),
        (["remember", "x", "--extra", "[1]"], "JSON object"),
        (["remember", "x", "--lines"], "`-`"),
        (["list", "--where", '{"a": {"$near": 1}}'], "$near"),
        (["recall"], "QUESTION"),
        (["recall", "x", "--mode", "magic"], "--mode': 'magic' is not one of"),
        (["recall", "x", "--nonsense"], "--nonsense"),
        (["remeber", "x"], "Did you mean 'remember'?"),
        (["recall", "x", "--limt", "3"], "Did you mean '--limit'?"),
        (["list", "--model", "gpt"], "'auto', 'none'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_call_that_means_nothing_exits_with_2_and_says_why(
    cli: Cli, args: list[str], told: str
) -> None:
    cli.remember("something")

    result = cli(*args)

    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert told in result.stderr
    assert "Traceback" not in result.stderr


def test_stdin_that_is_no_text_is_refused(cli: Cli) -> None:
    result = cli("remember", "-", stdin=b"\xff\xfe\x00")

    assert result.exit_code == 2
    assert "not UTF-8" in result.stderr


def test_letters_stay_readable_in_json(cli: Cli) -> None:
    item_id = cli.remember("Müller trinkt 茶 😀")

    printed = cli.ok("show", item_id, "--json")

    assert "Müller trinkt 茶 😀" in printed
    assert json.loads(printed)["content"] == "Müller trinkt 茶 😀"


def test_recall_says_what_a_memory_is_replaced_by(cli: Cli) -> None:
    cli.ok("facts", "put", "city", "Oslo", "--valid-from", "2026-01-01")
    cli.ok("facts", "put", "city", "Paris", "--valid-from", "2026-03-01")

    assert "replaced by" in cli.ok("recall", "Which is my city now?", "--explain")


def test_a_filter_may_be_a_field_and_its_value(cli: Cli) -> None:
    cli.remember("Backups run at 3 am", "--extra", '{"topic": "backup", "size": 5, "room": "7"}')
    cli.remember("Ann likes tea", "--extra", '{"topic": "drinks"}')

    for text in ("topic=backup", "size=5", "room=7", 'topic="backup"', "topic = backup"):
        found = cli.json("list", "--where", text)["items"]
        assert [item["content"] for item in found] == ["Backups run at 3 am"], text
    assert cli.json("list", "--where", "topic=other")["items"] == []
    assert cli("list", "--where", "size=[5]").exit_code == 2
