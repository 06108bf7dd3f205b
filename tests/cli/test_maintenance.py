"""`stats`, `doctor`, `reindex`, `sweep`, `backup`, `config` and `completion`."""

import json
import time
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.cli.terminal import environment, in_terminal

from orbiter.memory.cli.commands import serve

ROOT = Path(__file__).parents[2]


def test_stats_count_a_scope_and_the_whole_store(cli: Cli) -> None:
    cli.remember("mine")
    cli.ok("forget", cli.remember("gone"))
    cli.remember("bob's", "--user", "bob")

    counted = cli.json("stats")

    assert (counted["items"], counted["forgotten"]) == (1, 1)
    assert (counted["store"]["items"], counted["store"]["deleted"]) == (2, 1)
    assert "memories of alice" in cli.ok("stats")
    assert "everyone" in cli.ok("stats", "--all")


def test_doctor_finds_a_sound_store_well(cli: Cli) -> None:
    cli.remember("mine")

    told = cli.json("doctor")

    assert told["ok"] is True
    names = {check["name"] for check in told["checks"]}
    assert {"python", "sqlite", "model", "extras", "store", "contents", "waiting"} <= names
    assert "1 row read" in cli.ok("doctor")
    assert cli.ok("doctor", "--repair").count("✓") >= 6


def test_a_store_that_is_not_there_is_not_made_by_looking_for_it(cli: Cli) -> None:
    for args in (["list"], ["recall", "x"], ["stats"], ["reindex"], ["backup", f"{cli.url}.copy"]):
        result = cli(*args)

        assert result.exit_code == 1, args
        assert "there is no store at" in result.stderr
    assert cli("doctor").exit_code == 0
    assert not Path(cli.url).exists()


def test_the_usual_place_is_not_made_by_looking_into_it(cli: Cli, tmp_path: Path) -> None:
    cli.url = ""  # sets nothing
    cli.env = {"XDG_DATA_HOME": str(tmp_path), "HOME": str(tmp_path), "LOCALAPPDATA": str(tmp_path)}

    for args in (["list"], ["recall", "x"], ["stats"], ["show", "x"], ["backup", "copy.db"]):
        result = cli(*args)

        assert result.exit_code == 1, args
        assert "`orbiter-memory remember` or `orbiter-memory import` makes one" in result.stderr
    assert list(tmp_path.iterdir()) == []

    cli.remember("mine")
    assert cli.ok("list").endswith("mine\n")


def test_what_is_found_without_the_index_worries_nobody(cli: Cli) -> None:
    cli.remember("mine")

    assert cli.json("stats")["store"]["unindexed"] == 1
    assert "index" not in cli.ok("stats")  # a search reads it directly, so it is no matter
    assert "✓ waiting   nothing: every memory is embedded" in cli.ok("doctor")


def test_doctor_says_what_is_wrong_and_what_to_do(cli: Cli) -> None:
    Path(cli.url).write_bytes(b"this is no database, and long enough to be looked at" * 20)

    result = cli("doctor")

    assert result.exit_code == 1
    assert "✗ store" in result.stdout
    assert "→" in result.stdout


def test_doctor_repairs_a_damaged_index(cli: Cli) -> None:
    import sqlite3  # noqa: PLC0415 - to do the damage

    cli.remember_all("tea", "coffee")
    cli.ok("doctor", "--repair")
    with sqlite3.connect(cli.url) as connection:
        connection.execute("INSERT INTO memory_words(memory_words) VALUES ('delete-all')")
    connection.close()

    found = cli("doctor", "--json")
    repaired = cli("doctor", "--repair", "--json")

    assert found.exit_code == 1
    wrong = [check for check in json.loads(found.stdout)["checks"] if check["state"] == "wrong"]
    assert wrong[0]["cure"] == "orbiter-memory doctor --repair"
    assert repaired.exit_code == 0, repaired.stdout
    assert cli("doctor").exit_code == 0


def test_a_backup_opens_as_a_store_and_overwrites_nothing(cli: Cli, tmp_path: Path) -> None:
    cli.remember("mine")
    copy = tmp_path / "copy.db"

    cli.ok("backup", str(copy))

    assert cli.json("list", "--url", str(copy))["items"][0]["content"] == "mine"
    again = cli("backup", str(copy))
    assert again.exit_code == 1
    assert again.stderr.startswith("error: ")
    watched = in_terminal(["backup", str(copy)], environment(cli.url))
    assert "exists already" in watched.stdout
    assert "copying" not in watched.stdout


def test_a_backup_is_restored_and_what_was_there_is_kept(cli: Cli, tmp_path: Path) -> None:
    cli.remember("mine")
    copy = tmp_path / "copy.db"
    cli.ok("backup", str(copy))
    cli.remember("later")

    asked = cli("restore", str(copy))
    done = cli.json("restore", str(copy), "--yes")
    fresh = cli.ok("restore", str(copy), "--url", str(tmp_path / "fresh.db"))

    assert asked.exit_code == 2
    assert "--yes" in asked.stderr
    assert (done["path"], done["items"]) == (cli.url, 1)
    assert [item["content"] for item in cli.json("list")["items"]] == ["mine"]
    kept = cli.json("list", "--url", done["replaced"])
    assert {item["content"] for item in kept["items"]} == {"mine", "later"}
    assert "fresh.db" in fresh


@pytest.mark.parametrize("has_log", [True, False], ids=["log", "no log"])
def test_a_restore_says_who_was_erased_since_the_backup(
    cli: Cli, tmp_path: Path, has_log: bool
) -> None:
    copy = tmp_path / "copy.db"
    for user in ("ann", "bob", "cleo d", "dora"):
        cli.remember("mine", "--user", user)
    if has_log:
        cli.ok("audit", "begin")
    cli.ok("erase", "--user", "ann", "--yes")
    cli.ok("backup", str(copy))
    cli.ok("erase", "--user", "bob", "--yes")
    cli.ok("erase", "--user", "cleo d", "--session", "s", "--yes")
    cli.ok("erase", "--user", "cleo d", "--yes")
    cli.ok("erase", "--user", "nobody", "--yes")

    done = cli("restore", str(copy), "--yes", "--json", "--url", cli.url)

    assert "who was erased since this backup is in it again: erase them again" in done.stderr
    assert (f"`orbiter-memory erase --user bob --url {cli.url}`" in done.stderr) is has_log
    assert ("erase --user 'cleo d'" in done.stderr) is has_log
    names = [each["user_id"] for each in json.loads(done.stdout)["erased_since"]]
    assert names == (["bob", "cleo d"] if has_log else [])


@pytest.mark.parametrize(
    "whose",
    [
        ["--user", "bob"],
        ["--no-user"],
        ["--session", "s"],
        ["--task", "t"],
        ["--agent", "a"],
        ["--all"],
    ],
    ids=lambda whose: whose[0],
)
def test_a_backup_is_not_restored_for_one_user_alone(
    cli: Cli, tmp_path: Path, whose: list[str]
) -> None:
    """It would replace everyone's memories; what the environment names was not meant for it."""
    cli.remember("mine")
    copy = tmp_path / "copy.db"
    cli.ok("backup", str(copy))
    cli.remember("later")

    refused = cli("restore", str(copy), *whose, "--yes")

    assert refused.exit_code == 2
    assert f"`{whose[0]}`" in refused.stderr
    assert "whole store" in refused.stderr
    assert len(cli.json("list")["items"]) == 2
    assert not list(tmp_path.glob("*.replaced-*"))


def test_a_restore_says_where_the_old_store_is_without_a_terminal(cli: Cli, tmp_path: Path) -> None:
    cli.remember("mine")
    copy = tmp_path / "copy.db"
    cli.ok("backup", str(copy))

    done = cli("restore", str(copy), "--yes")
    (kept,) = tmp_path.glob("*.replaced-*")

    assert done.exit_code == 0
    assert str(kept) in done.stderr
    assert done.stdout.splitlines() == [f"{cli.url}  1 memory"]


def test_what_is_no_backup_is_told_from_a_memorys_id(cli: Cli, tmp_path: Path) -> None:
    item_id = cli.remember("mine")
    (tmp_path / "notes.db").write_text("hello")

    for args, code, told in (
        (["restore", str(tmp_path / "nowhere.db")], 1, "there is no file"),
        (["restore", str(tmp_path / "notes.db"), "--yes"], 1, "not a SQLite database"),
        (["restore", str(tmp_path / "notes.db"), "--version", "2"], 2, "--version"),
        (["restore", str(tmp_path), "--yes"], 1, "is a folder"),
        (["restore", "nobody"], 3, "nobody"),
    ):
        result = cli(*args)
        assert (result.exit_code, told in result.stderr) == (code, True), result.stderr
    cli.ok("forget", item_id)
    assert "mine" in cli.ok("restore", item_id)


def test_reindex_builds_the_index_anew(cli: Cli) -> None:
    cli.remember_all("tea", "coffee")

    done = cli.json("reindex")

    assert done["checked"] == 2
    assert len(cli.json("recall", "tea")["hits"]) == 1


def test_sweep_removes_what_has_expired_and_what_was_forgotten_before_a_time(cli: Cli) -> None:
    kept = cli.remember("kept")
    cli.ok("remember", "short", "--expires", "1s")
    gone = cli.remember("gone")
    cli.ok("forget", gone)
    time.sleep(1.1)

    asked = cli.json("sweep", "--forgotten", "now", "--dry-run")
    assert (asked["forgotten"], asked["dry_run"]) == (1, True)
    would = cli.ok("sweep", "--forgotten=0d", "--dry-run")
    assert f"1 forgotten memory would be removed from {cli.url}\n" in would
    assert cli.json("sweep", "--forgotten", "1d", "--yes")["forgotten"] == 0
    assert [row["id"] for row in cli.json("list")["items"]] == [kept]
    assert cli("restore", gone).exit_code == 0
    cli.ok("forget", gone)
    done = cli.json("sweep", "--forgotten", "now", "--yes")
    assert done == {"expired": 0, "forgotten": 1, "dry_run": False, "store": cli.url}
    assert cli("restore", gone).exit_code == 3
    for args, word in (
        (("--forgotten", "30d"), "remove 0 forgotten memories of all users for good; give `--yes`"),
        (("--forgotten", "soon"), "`soon` is not a valid time"),
        (("--url", "http://127.0.0.1:1"), "where the store is"),
    ):
        refused = cli("sweep", *args)
        assert refused.exit_code == 2, refused.output
        assert word in refused.stderr


def test_sweep_asks_in_a_terminal_before_it_removes_what_was_forgotten(cli: Cli) -> None:
    cli.ok("forget", cli.remember("gone"))
    env, args = environment(cli.url), ["sweep", "--forgotten", "0d"]

    refused = in_terminal(args, env, typed="n\n")
    kept = cli.json("sweep", "--forgotten", "0d", "--dry-run")["forgotten"]
    agreed = in_terminal(args, env, typed="y\n")
    nothing = in_terminal(args, env)

    assert "Remove 1 forgotten memory of all users for good? [y/N]" in refused.stdout
    assert (refused.code, kept) == (1, 1)
    assert (agreed.code, "1 forgotten memory removed" in agreed.stdout) == (0, True)
    assert (nothing.code, "[y/N]" in nothing.stdout) == (0, False)


def test_h_is_short_for_help(cli: Cli) -> None:
    for args in ([], ["list"], ["chat"], ["chat"]):
        assert cli.ok(*args, "-h") == cli.ok(*args, "--help"), args


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("prot = 1", "did you mean `port`?"),
        ("port = ", "is not TOML"),
        ('port = "many"', "'many' is not a valid integer range. the settings file sets it."),
        ("[serve]\nport = 1", "`{file}` has a table `[serve]`, and settings are in no table"),
        ("check = true", "has `check`, which is not a setting"),
        ('allow-host = "a.com,b.com"', "`a.com,b.com` is not a host name"),
    ],
)
def test_a_settings_file_that_makes_no_sense_is_refused(
    cli: Cli, tmp_path: Path, text: str, word: str
) -> None:
    file = tmp_path / "memory.toml"
    file.write_text(text)

    result = cli("serve", "--config", str(file))
    missing = cli("serve", "--config", str(tmp_path / "none.toml"))

    assert result.exit_code == 2, result.output
    assert word.format(file=file) in result.stderr
    assert "cannot be read" in missing.stderr


@pytest.mark.parametrize("unset", [None, "", "${ORBITER_MEMORY_URL}"])
def test_all_commands_read_the_store_from_the_settings_file(
    cli: Cli, tmp_path: Path, unset: str | None
) -> None:
    file, other = tmp_path / "memory.toml", tmp_path / "other.db"
    file.write_text(f'\ufeffurl = "{other}"\nmodel = "none"\ntoken = "om_secret"\n', "utf-8")
    env = {"ORBITER_MEMORY_CONFIG": str(file), "ORBITER_MEMORY_URL": unset}

    made = cli("remember", "tea", env=env)  # type: ignore[arg-type]
    keys = cli("keys", "list", env=env)  # type: ignore[arg-type]
    told = cli("doctor", env={**env, "ORBITER_MEMORY_MODEL": None})  # type: ignore[dict-item]

    assert f"url {other} (the settings file), model none (the settings file)" in told.stdout
    assert "om_secret" not in told.output
    assert made.exit_code == 0
    assert other.exists()
    assert f"{other}.keys.json" in keys.output


SECRETS = (
    "ORBITER_MEMORY_RERANKER_KEY",
    "ORBITER_MEMORY_PLAYGROUND_KEY",
    "ORBITER_PII_KEY",
    "ORBITER_PII_TENANT",
)


def test_every_setting_of_a_server_has_a_variable_and_a_line_on_its_page() -> None:
    page = (ROOT / "docs/operate/settings.md").read_text(encoding="utf-8")

    for variable in (*SECRETS, "ORBITER_DEBUG"):
        assert f"| none | `{variable}` |" in page

    for option in serve.serve.params:
        flag = option.opts[0]
        if flag not in ("--open", "--check", "--json", "--help"):
            assert option.envvar == f"ORBITER_MEMORY_{flag[2:].upper().replace('-', '_')}"
            assert f"`{flag}` | `{option.envvar}`" in page, flag
