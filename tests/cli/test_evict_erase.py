"""`evict` and `erase`: what they remove, and that nothing is removed by accident."""

import getpass
import json
import shlex
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.cli.terminal import environment, in_terminal

from orbiter.memory.cli._output import Output

posix = pytest.mark.skipif(sys.platform == "win32", reason="terminals of POSIX")


def test_what_is_worth_least_goes_and_can_come_back(cli: Cli) -> None:
    old = cli.remember("old \x1b[2J", "--at", "2020-01-01")
    cli.remember_all("new", "newer")

    would = cli.json("evict", "--max-items", "2", "--dry-run")
    refused = cli("evict", "--max-items", "2")
    gone = cli.ok("evict", "--max-items", "2", "--yes")

    assert [each["id"] for each in would["items"]] == [old]
    assert (would["dry_run"], would["kept"], would["is_met"]) == (True, 2, True)
    assert refused.exit_code == 2
    assert "`--yes`" in refused.stderr
    assert gone.startswith(f"{old}\t0.000\tbudget\told \\x1b[2J")
    assert cli.ok("evict", "--max-items", "2", "--yes") == ""
    cli.ok("restore", old)
    assert cli("evict").exit_code == 2


def test_a_budget_that_is_not_kept_is_an_error(cli: Cli) -> None:
    cli.remember("pinned", "--importance", "1")
    cli.remember_all("tea", "tea")

    same = cli.json("evict", "--duplicates", "--yes")
    none = cli("evict", "--max-items", "0", "--yes")

    assert [each["reason"] for each in same["items"]] == ["duplicate"]
    assert none.exit_code == 1
    assert "still over the budget" in none.stderr
    assert [item["content"] for item in cli.json("list")["items"]] == ["pinned"]


def test_nothing_is_erased_unless_somebody_says_whose_and_means_it(cli: Cli) -> None:
    cli.remember_all("tea", "coffee")

    unnamed = cli("erase", "--yes")
    unasked = cli("erase", "--user", "alice")
    counted = cli.json("erase", "--user", "alice", "--dry-run")

    assert (unnamed.exit_code, unasked.exit_code) == (2, 2)
    assert "this would erase 2 memories of user `alice` for good" in unasked.stderr
    assert (counted["items"], counted["erased"]) == (2, {"user_id": "alice"})
    assert cli("erase", "--all").exit_code == 2
    assert len(cli.json("list")["items"]) == 2


def test_an_erasure_takes_all_of_one_and_says_so(cli: Cli) -> None:
    item_id = cli.remember("xylophone tea")
    cli.ok("edit", item_id, "xylophone coffee")
    cli.ok("forget", cli.remember("xylophone gone"))
    cli.ok("remember", "bob's tea", "--user", "bob")

    for name in (("--session", "s"), ()):
        cli.ok("remember", "mine", "--user", "ann b", *name)
    part = cli("erase", "--no-user", "--session", "s", "--yes")
    spaced = cli("erase", "--user", "ann b", "--yes")
    would = cli.ok("erase", "--user", "alice", "--dry-run")
    done = cli("erase", "--user", "alice", "--yes")
    again = cli.json("erase", "--user", "alice", "--yes")

    assert would == "would erase 1 memory and 1 forgotten of user `alice`\n"
    assert done.stdout.startswith(
        "erased 1 memory and 1 forgotten\n  and with that 2 earlier versions\n"
    )
    assert done.stdout.endswith("✓ nothing is left\n")
    assert "`orbiter-memory list --all --query alice`" in done.stderr
    assert "`orbiter-memory list --all --query 'ann b'`" in spaced.stderr
    assert (part.exit_code, "may still name them" in part.stderr) == (0, False)
    assert "backups and exports were not searched" in done.stderr
    assert (again["items"], again["proven"], again["problems"]) == (0, True, [])
    with open(cli.url, "rb") as file:  # noqa: PTH123 - its bytes
        assert b"xylophone" not in file.read()
    assert cli.ok("list", "--all").endswith("bob's tea\n")


def test_somebody_with_entries_alone_is_counted_before_they_are_erased(cli: Cli) -> None:
    cli.put_entries("ann", 12)
    cli.ok("forget", cli.remember("tea"))
    cli.remember("coffee")
    cli.put_entries("alice", 1)

    would = cli.ok("erase", "--user", "ann", "--dry-run")
    counted = cli.json("erase", "--user", "ann", "--dry-run")
    mixed = cli("erase", "--user", "alice")
    unasked = cli("erase", "--user", "ann")
    done = cli.ok("erase", "--user", "ann", "--yes")

    assert would == "would erase 0 memories and 12 key-value entries of user `ann`\n"
    assert (counted["dry_run"], counted["items"], counted["entries"]) == (True, 0, 12)
    assert "1 memory, 1 forgotten and 1 key-value entry of user `alice`" in mixed.stderr
    assert "this would erase 0 memories and 12 key-value entries of user `ann`" in unasked.stderr
    assert done.startswith("erased 0 memories and 12 key-value entries\n")


def test_a_name_that_nobody_has_is_told_with_the_nearest(cli: Cli, tmp_path: Path) -> None:
    cli.ok("remember", "tea")
    path = tmp_path / "erased-alcie.json"

    preview = cli("erase", "--user", "alcie", "--dry-run")
    wrong = cli("erase", "--user", "alcie", "--yes", "--report", str(path))
    far = cli("erase", "--user", "zoe", "--yes")
    right = cli.json("erase", "--user", "alice", "--yes")

    assert wrong.exit_code == 0
    for each in (preview, wrong):
        assert "nothing is stored here of user `alcie`; did you mean `alice`?" in each.stderr
    assert json.loads(path.read_text())["found"] is False
    assert "nothing is stored here of user `zoe`\n" in far.stderr
    assert "✓" not in far.stdout + wrong.stdout
    assert "were not searched" not in far.stderr
    assert right["found"] is True


def test_copies_that_a_restore_kept_are_told_as_not_searched(cli: Cli, tmp_path: Path) -> None:
    cli.ok("remember", "xylophone tea")
    backup, path = str(tmp_path / "backup.db"), tmp_path / "report.json"
    cli.ok("backup", backup)
    cli.ok("restore", backup, "--yes")

    done = cli("erase", "--user", "alice", "--yes", "--report", str(path))

    copies = [str(each) for each in tmp_path.glob("memory.db.replaced-*")]
    assert copies
    told = json.loads(path.read_text())["not_searched"]
    assert [each.split("`")[1] for each in told] == sorted(copies)
    assert f"not searched: `{copies[0]}`" in done.stderr


def test_the_steps_for_a_person_who_asks_for_their_data_work_as_they_are_written(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "privacy.md").read_text(encoding="utf-8")
    section = page.partition("## When a person asks for their data")[2]
    own, others = (block.partition("```")[0] for block in section.split("```sh\n")[1:3])
    steps = [shlex.split(line, comments=True) for line in own.splitlines()]
    said = cli.remember("Bob owes me a tenner", "--user", "cleo")
    cli.ok("remember", "I like tea", "--user", "cleo")
    monkeypatch.chdir(tmp_path)
    note = cli.remember("Bob lives in Porto", "--user", "bob")
    made = cli.ok("facts", "put", "home_city", "Porto", "--user", "bob").split()[0]

    told = {}
    for program, *words in steps:
        assert program == "orbiter-memory"
        id = note if words[0] == "edit" else made
        arguments = [id if each == "ID" else each for each in words]
        sure = ["--yes"] if "--report" in arguments else []
        told[" ".join(arguments[:2])] = cli.ok(*arguments, *sure)

    assert "bob" in told["users"]
    assert "Bob lives in Porto" in told["list --user"]
    assert "Porto" in told["facts list"]
    wrong, right = told["facts history"].splitlines()
    assert "Porto\tretracted" in wrong  # it was never true, so no time is told
    assert "Lisbon\tsince" in right
    assert "Bob lives in Porto" in (tmp_path / "bob.jsonl").read_text()
    report = json.loads((tmp_path / "erased-bob.json").read_text())
    assert (report["proven"], report["by"]) == (True, "ann")
    assert cli.ok("list", "--user", "bob") == ""
    for line in others.splitlines():
        _, *arguments = shlex.split(line, comments=True)
        sure = ["--yes"] if "--permanently" in arguments else []
        printed = cli.ok(*(said if each == "ID" else each for each in arguments), *sure)
        assert "--query" not in arguments or said in printed
    assert "tenner" not in cli.ok("list", "--all")
    assert "I like tea" in cli.ok("list", "--all")


@posix
def test_an_erasure_has_the_name_typed(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.remember_all("tea", "coffee")
    monkeypatch.setattr("orbiter.memory.cli.commands.erase.can_ask", lambda _: True)

    for typed in ("y\n", "", "\n", "Alice\n"):
        wrong = cli("erase", "--user", "alice", stdin=typed)
        assert wrong.exit_code == 1, typed
    left = len(cli.json("list")["items"])
    right = in_terminal(["erase", "--user", "alice"], environment(cli.url), typed="alice\n")

    assert left == 2
    assert "This erases 2 memories of user `alice` for good." in right.stdout
    assert "Type `alice` to continue:" in right.stdout
    assert right.code == 0, right.stdout
    assert cli.json("list")["items"] == []


def test_an_eviction_asks_and_takes_no_for_an_answer(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.remember_all("tea", "coffee")
    talk = tmp_path / "talk.jsonl"
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    said = [
        {"role": "user", "content": "And now?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "sun"},
        {"role": "assistant", "content": "It is sunny."},
    ]
    talk.write_text(json.dumps({"messages": said}), encoding="utf-8")
    cli.ok("import", str(talk))
    monkeypatch.setattr(Output, "draw", lambda _, *lines: drawn.extend(map(str, lines)))
    drawn: list[str] = []
    monkeypatch.setattr("orbiter.memory.cli._output.can_ask", lambda _: True)

    no = cli("evict", "--max-items", "1", stdin="n\n")
    many = cli("evict", "--max-items", "0", stdin="n\n")
    ended = cli("evict", "--max-items", "1", stdin="")
    kept = len(cli.json("list")["items"])
    yes = cli("evict", "--max-items", "1", stdin="y\n")

    assert (no.exit_code, ended.exit_code, kept) == (1, 1, 6)
    assert "Forget 5 memories of user `alice`? [y/N]" in no.stderr
    assert "Forget 6 memories of user `alice`? 5 shown. [y/N]" in many.stderr
    assert drawn[0].lstrip().startswith("0.")
    assert yes.exit_code == 0
    assert len(cli.json("list")["items"]) == 1


def test_an_erasure_without_a_scope_names_the_user_to_give(cli: Cli) -> None:
    cli.remember("tea")
    refused = cli("erase", "--yes")

    assert refused.exit_code == 2
    assert "such as `--user alice`" in refused.stderr
    assert cli.json("stats")["items"] == 1


def test_a_report_says_who_erased(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "opal")
    for user in ("ann", "bob", "opal"):
        cli.ok("remember", "tea", "--user", user)

    own = cli.json("erase", "--user", "ann", "--yes")
    named = cli.json("erase", "--user", "bob", "--yes", "--by", "officer")
    herself = cli.json("erase", "--user", "opal", "--yes")

    assert [each["by"] for each in (own, named, herself)] == ["opal", "officer", None]


def test_the_keys_of_somebody_who_is_erased_are_named(cli: Cli) -> None:
    cli.ok("remember", "tea")
    key = cli.json("keys", "create", "--user", "alice")["id"]
    gone = cli.json("keys", "create", "--user", "alice")["id"]
    other = cli.json("keys", "create", "--user", "bob")["id"]
    cli.ok("keys", "revoke", gone)

    would = cli("erase", "--user", "alice", "--dry-run")
    done = cli("erase", "--user", "alice", "--yes")

    for each in (would, done):
        assert (
            f"the API key `{key}` is still for user `alice`: `orbiter-memory keys revoke {key}"
            in (each.stderr)
        )
        assert gone not in each.stderr
        assert other not in each.stderr
    cli.ok("keys", "revoke", key)
    assert "API key" not in cli("erase", "--user", "alice", "--yes").stderr
