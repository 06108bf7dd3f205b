"""`stats`, `doctor`, `reindex`, `sweep`, `backup`, `config` and `completion`."""

import json
import time
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.cli.terminal import environment, in_terminal
from typer.main import get_command

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


def test_config_says_where_each_setting_comes_from(cli: Cli) -> None:
    told = cli.json("config", "--session", "s1")

    assert told["url"] == {"value": cli.url, "from": "ORBITER_MEMORY_URL"}
    assert told["user"] == {"value": "alice", "from": "ORBITER_MEMORY_USER"}
    assert told["session"] == {"value": "s1", "from": "--session"}
    assert told["task"] == {"value": None, "from": "not set"}
    assert told["model"] == {"value": "none", "from": "ORBITER_MEMORY_MODEL"}


def test_config_says_who_signs_a_change_if_nobody_is_named(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "olga")

    def by(*args: str) -> dict[str, str | None]:
        signs: dict[str, str | None] = cli.json("config", *args)["by"]
        return signs

    assert by("--user", "olga") == {
        "value": None,
        "from": "what you change of your own is not signed",
    }
    assert by("--user", "alice") == {"value": "olga", "from": "the name of the computer's user"}
    assert by("--url", "http://127.0.0.1:9")["from"] == "the server's key says who acts"
    assert by("--by", "officer") == {"value": "officer", "from": "--by"}


def test_settings_have_room_between_name_and_value(cli: Cli) -> None:
    lines = cli.ok("config").splitlines()

    assert any(line.split()[:2] == ["oidc-user-claim", "sub"] for line in lines)
    assert any(line.split()[:2] == ["playground-model", "gpt-4o-mini"] for line in lines)


def test_h_is_short_for_help(cli: Cli) -> None:
    for args in ([], ["list"], ["chat"], ["chat", "show"]):
        assert cli.ok(*args, "-h") == cli.ok(*args, "--help"), args


def test_every_shell_gets_its_script(cli: Cli) -> None:
    for shell in ("bash", "zsh", "fish", "powershell"):
        script = cli.ok("completion", shell)

        assert "_ORBITER_MEMORY_COMPLETE" in script
        assert "orbiter-memory" in script


def test_config_says_where_keys_are_kept(cli: Cli, tmp_path: Path) -> None:
    other = tmp_path / "door.json"

    def keys_of(*args: str, env: dict[str, str] | None = None) -> dict[str, str]:
        printed = cli("config", "--json", *args, env=env)
        named: dict[str, str] = json.loads(printed.stdout)["server"]["keys"]
        return named

    usual = keys_of()
    table = keys_of("--url", "postgresql://ann:secret@db.example.com/memory")
    none = keys_of("--url", "memory://")
    chosen = keys_of(env={"ORBITER_MEMORY_KEYS": str(other)})

    assert usual == {"value": f"{cli.url}.keys.json", "from": "default"}
    assert table["value"].startswith("table orbiter_keys of postgresql://")
    assert "secret" not in str(table)
    assert none == {"value": "–", "from": "default"}
    assert chosen == {"value": str(other), "from": "ORBITER_MEMORY_KEYS"}
    assert f"{cli.url}.keys.json  (default)" in " ".join(cli.ok("config").split(" "))


def test_config_says_what_a_server_would_be_started_with(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "memory.toml"
    file.write_text('port = 9000\nallow-host = ["a.example", "b.example"]\nlog = true\n')

    cli.env["ORBITER_MEMORY_PORT"] = "9001"
    told = cli.json("config", "--config", str(file))["server"]

    assert told["port"] == {"value": "9001", "from": "ORBITER_MEMORY_PORT"}
    assert told["allow-host"] == {"value": "a.example, b.example", "from": str(file)}
    assert told["log"] == {"value": "yes", "from": str(file)}
    assert told["rate"] == {"value": "100.0", "from": "default"}
    assert told["config"]["from"] == "--config"
    cli.env["ORBITER_MEMORY_CONFIG"] = str(file)
    assert cli.json("config")["server"]["config"]["from"] == "ORBITER_MEMORY_CONFIG"
    assert "serve\n" in cli.ok("config")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("prot = 1", "did you mean `port`?"),
        ("port = ", "is not TOML"),
        ('port = "many"', "'--port', set by `port = 'many'` in `{file}`: "),
        ("[serve]\nport = 1", "`{file}` has a table `[serve]`, and settings are in no table"),
        ("config = 'x'", "has `config`, which is not a setting"),
        ("check = true", "has `check`, which is not a setting"),
        ('allow-host = "a.com,b.com"', "`allow-host = ['a.com,b.com']` in `{file}`: "),
    ],
)
def test_a_settings_file_that_makes_no_sense_is_refused(
    cli: Cli, tmp_path: Path, text: str, word: str
) -> None:
    file = tmp_path / "memory.toml"
    file.write_text(text)

    for command in ("config", "serve"):
        result = cli(command, "--config", str(file))
        assert result.exit_code == 2, result.output
        assert word.format(file=file) in result.stderr
    missing = cli("serve", "--config", str(tmp_path / "none.toml"))
    assert "cannot be read" in missing.stderr


def test_a_settings_file_may_have_a_mark_in_front_and_hosts_as_in_the_variable(
    cli: Cli, tmp_path: Path
) -> None:
    file = tmp_path / "memory.toml"
    file.write_text('allow-host = "a.example b.example"\nlog-format = "JSON"\n', "utf-8-sig")
    cli.env["ORBITER_MEMORY_LOG_LEVEL"] = "INFO"

    server = cli.json("config", "--config", str(file))["server"]

    assert server["allow-host"]["value"] == "a.example, b.example"
    assert server["log-format"]["value"] == "json"
    assert server["log-level"]["value"] == "info"


@pytest.mark.parametrize("name", ["ORBITER_LOG_LEVEL", "ORBITER_MEMORY_PII_KEY"])
def test_a_variable_with_the_prefix_of_another_is_a_warning(cli: Cli, name: str) -> None:
    others = {"ORBITER_TEST_TIME_SCALE": "1", "ORBITER_REQUIRE_SERVERS": "1"}
    result = cli("config", env={name: "x", "ORBITER_DEBUG": "0", **others})

    right = {"ORBITER_LOG_LEVEL": "ORBITER_MEMORY_LOG_LEVEL"}.get(name, "ORBITER_PII_KEY")
    assert f"`{name}` is not a setting; did you mean `{right}`?" in result.stderr
    assert result.stderr.count("is not a setting") == 1


@pytest.mark.parametrize("command", ["config", "serve"])
def test_a_variable_is_named_that_has_a_wrong_value_or_a_name_that_is_nearly_right(
    cli: Cli, command: str
) -> None:
    cli.env |= {"ORBITER_MEMORY_DRAIN": "10s", "ORBITER_MEMORY_PROT": "1", "ORBITER_MEMORY_ZZZ": ""}

    result = cli(command)
    given = cli("serve", "--drain", "x", env={"ORBITER_MEMORY_PROT": "", "NO_COLOR": "1"})

    assert result.exit_code == 2
    assert "'--drain', set by `ORBITER_MEMORY_DRAIN=10s`: " in result.stderr
    warning = "warning: the variable `ORBITER_MEMORY_PROT` is not a setting; did you mean"
    assert f"{warning} `ORBITER_MEMORY_PORT`?\n" in result.stderr
    assert "ZZZ" not in result.stderr
    assert "'--drain': " in given.stderr


@pytest.mark.parametrize("unset", [None, "", "${ORBITER_MEMORY_URL}"])
def test_all_commands_read_the_store_from_the_settings_file(
    cli: Cli, tmp_path: Path, unset: str | None
) -> None:
    file, other = tmp_path / "memory.toml", tmp_path / "other.db"
    file.write_text(f'url = "{other}"\nmodel = "none"\ntoken = "om_secret"\n')
    env = {"ORBITER_MEMORY_CONFIG": str(file), "ORBITER_MEMORY_URL": unset}

    told = cli("config", "--json", env={**env, "ORBITER_MEMORY_MODEL": None})  # type: ignore[dict-item]
    made = cli("remember", "tea", env=env)  # type: ignore[arg-type]
    keys = cli("keys", "list", env=env)  # type: ignore[arg-type]

    settings = json.loads(told.stdout)
    assert settings["url"] == {"value": str(other), "from": str(file)}
    assert settings["model"] == {"value": "none", "from": str(file)}
    assert "om_secret" not in told.output
    assert "url" not in settings["server"]
    assert made.exit_code == 0
    assert other.exists()
    assert f"{other}.keys.json" in keys.output


def test_memories_of_programs_that_name_nobody_are_pointed_at(cli: Cli) -> None:
    cli.ok("remember", "a program's tea", "--user", "~default")
    cli.ok("remember", "tea of an earlier version", "--user", "morgan")
    cli.ok("remember", "tea")
    nobody = {**environment(cli.url), "LOGNAME": "morgan"}
    nobody.pop("ORBITER_MEMORY_USER", None)

    for args in (("recall", "tea"), ("list",)):
        assert "~default" not in in_terminal([*args, "--user", "alice"], nobody).stdout
        assert "`--user '~default'`" in in_terminal(args, nobody).stdout


SECRETS = {
    "reranker-key": "ORBITER_MEMORY_RERANKER_KEY",
    "playground-key": "ORBITER_MEMORY_PLAYGROUND_KEY",
    "pii-key": "ORBITER_PII_KEY",
    "pii-tenant": "ORBITER_PII_TENANT",
}


def test_config_says_which_settings_that_are_variables_alone_are_set_and_not_what_they_are(
    cli: Cli,
) -> None:
    none = cli.json("config")["server"]
    cli.env |= dict.fromkeys(SECRETS.values(), "s3cret-of-16-bytes")
    server, text = cli.json("config")["server"], cli.ok("config")

    for name, variable in SECRETS.items():
        assert none[name] == {"value": "–", "from": "default"}
        assert server[name] == {"value": "set", "from": variable}
        assert f"{name:<17}  set  ({variable})" in text
    assert "s3cret" not in f"{server} {text}"


def test_every_setting_of_a_server_has_a_variable_and_a_line_on_its_page() -> None:
    page = (ROOT / "docs/operate/settings.md").read_text(encoding="utf-8")

    for variable in (*SECRETS.values(), "ORBITER_DEBUG"):
        assert f"| none | `{variable}` |" in page

    for option in get_command(serve.app).params:
        flag = option.opts[0]
        if flag not in ("--open", "--check", "--json", "--help"):
            variable = f"ORBITER_MEMORY_{flag.removeprefix('--').upper().replace('-', '_')}"
            assert f"`{flag}` | `{variable}`" in page, flag
