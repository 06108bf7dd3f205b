"""`import`, `export` and `migrate`: what is read and written, and what is reported."""

import gzip
import json
import re
import signal
import sqlite3
import subprocess
import sys
import zipfile
from contextlib import closing
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.cli.terminal import COMMAND, environment, in_terminal
from tests.timing import HANG, until_blocking

from orbiter.memory.transfer import FORMATS, WRITTEN

posix = pytest.mark.skipif(sys.platform == "win32", reason="terminals of POSIX")
STYLE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def _talk(path: Path, *lines: str, rounds: int = 2) -> str:
    """Write conversations as OpenAI's messages, and *lines* as they are; return the path."""
    made = []
    for number in range(rounds):
        said = [
            {"role": "user", "content": f"question {number} \x1b[31m"},
            {"role": "assistant", "content": f"answer {number}"},
        ]
        made.append(json.dumps({"messages": said}))
    path.write_text("\n".join([*made, *lines]) + "\n", encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(("command", "formats"), [("import", FORMATS), ("export", WRITTEN)])
def test_the_formats_are_those_that_can_be_read_and_written(
    cli: Cli, command: str, formats: tuple[str, ...]
) -> None:
    unwrapped = re.sub(r"([-|])\n\s+", r"\1", cli.ok(command, "--help"))
    shown = re.findall(r"[a-z0-9]+(?:-[a-z]+)*", unwrapped)

    refused = cli(command, "x", "--format", "novel")

    assert set(formats) <= set(shown)
    assert refused.exit_code == 2
    assert "is not one of" in refused.stderr
    assert all(name in refused.stderr for name in ("auto", *formats))


def test_a_file_is_brought_in_once_and_its_problems_are_told_by_place(
    cli: Cli, tmp_path: Path
) -> None:
    path = _talk(tmp_path / "talk.jsonl", "no json", '{"messages": 5}')

    first = cli("import", path)
    again = cli("import", path, "--json")

    assert (first.exit_code, again.exit_code) == (1, 1)
    assert first.stdout == "4 memories (openai): 4 new, 0 updated, 0 unchanged, 0 skipped\n"
    assert [line.partition(": ")[2][:7] for line in first.stderr.splitlines()] == [
        "line 3:",
        "line 4:",
    ]
    told = json.loads(again.stdout)
    assert (told["found"], told["stored"], told["unchanged"]) == (4, 0, 4)
    assert [each["place"] for each in told["problems"]] == ["line 3", "line 4"]
    assert cli.ok("list").count("\n") == 4
    assert "\x1b" not in cli.ok("list")


def test_more_problems_than_a_screen_are_counted(cli: Cli, tmp_path: Path) -> None:
    path = _talk(tmp_path / "talk.jsonl", *["no json"] * 15)

    result = cli("import", path)

    assert result.stderr.count("problem: ") == 11
    assert "problem: 5 more; `--json` has the first 100" in result.stderr


def test_what_cannot_be_read_makes_no_store(cli: Cli, tmp_path: Path) -> None:
    junk = tmp_path / "junk.bin"
    junk.write_bytes(b"x\0y")

    for args, code, told in (
        (["import", str(tmp_path / "none.json")], 2, "there is no file"),
        (["import", str(junk), "--format", "nothing"], 2, "nothing"),
        (["import", "-", "more.csv"], 2, "`-` reads stdin"),
        (["import", str(junk), "--all", "--user", "bob"], 2, "`--all`"),
        (["export", str(tmp_path / "out.jsonl")], 1, "there is no store"),
        (["migrate", str(tmp_path / "none.db"), cli.url], 1, "none.db"),
    ):
        result = cli(*args)

        assert result.exit_code == code, (args, result.output)
        assert told in result.stderr, args
        assert "format=" not in result.stderr
    assert sorted(each.name for each in tmp_path.iterdir()) == ["junk.bin"]


def test_of_a_file_of_sessions_an_option_says_which_to_take(cli: Cli, tmp_path: Path) -> None:
    path, talk = tmp_path / "two.db", _talk(tmp_path / "talk.jsonl")
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("CREATE TABLE agent_messages (id INTEGER, session_id TEXT, message_data TEXT)")
        for number, session in enumerate(("alice-1", "bob-1")):
            message = json.dumps({"role": "user", "content": f"I am of {session}"})
            made.execute("INSERT INTO agent_messages VALUES (?, ?, ?)", [number, session, message])

    refused = cli("import", str(talk), "--user", "alice", "--owner", "alice-1")
    alone = cli("import", str(path), "--user", "alice", "--owner", "alice-1")
    everything = cli("import", str(path), "--user", "carol")

    assert refused.exit_code == 1
    assert "leave out `--owner`" in refused.stderr
    assert alone.exit_code == everything.exit_code == 0
    found = cli.json("list", "--user", "alice")["items"]
    assert [item["content"] for item in found] == ["I am of alice-1"]
    assert len(cli.json("list", "--user", "carol")["items"]) == 2
    (note,) = [line for line in everything.stderr.splitlines() if line.startswith("note: ")]
    assert "`alice-1`, `bob-1`" in note
    assert "`--owner`" in note
    assert cli.json("import", str(path), "--user", "carol")["files"][0]["notes"]


def test_stdin_is_recognised_as_a_table_as_a_file_is(cli: Cli) -> None:
    table = "note,topic\nBackups run at 3 am,ops\n"
    rows = '[{"text": "Ann likes tea", "topic": "drinks"}]'

    told = [cli.ok("import", "-", stdin=stdin) for stdin in (table, rows)]

    assert [line.partition(":")[0] for line in told] == ["1 memory (csv)", "1 memory (json)"]
    assert {item["content"] for item in cli.json("list")["items"]} == {
        "Backups run at 3 am",
        "Ann likes tea",
    }


def test_several_files_are_brought_in_together_and_told_apart(cli: Cli, tmp_path: Path) -> None:
    first, second = _talk(tmp_path / "a.jsonl"), _talk(tmp_path / "b.jsonl", "no json", rounds=3)

    shown = cli("import", first, second, "--by", "carol")
    told = json.loads(cli("import", first, second, "--json").stdout)
    missing = cli("import", first, str(tmp_path / "none.jsonl"))
    (*_, newest) = cli.json("show", cli.json("list")["items"][0]["id"], "--history")

    assert shown.exit_code == 1
    assert shown.stdout.splitlines()[1].startswith(
        f"{second}: 6 memories (openai): 2 new, 0 updated, 4 unchanged"
    )
    assert f"problem: {second}: line 4: " in shown.stderr
    assert (told["found"], told["unchanged"], told["problem_count"]) == (10, 10, 1)
    assert [each["found"] for each in told["files"]] == [4, 6]
    assert (missing.exit_code, missing.stdout) == (2, "")
    assert newest["by"] == "carol"


def test_the_name_of_an_export_says_what_it_is(cli: Cli, tmp_path: Path) -> None:
    cli.remember("tea")

    table = cli.json("export", str(tmp_path / "a.csv"))
    notes = cli.json("export", f"{tmp_path / 'notes'}/")
    unknown = cli("export", str(tmp_path / "a.docx"))

    assert (table["format"], notes["format"]) == ("csv", "markdown")
    assert (tmp_path / "notes").is_dir()
    assert unknown.exit_code == 1
    assert "`--format`, one of" in unknown.stderr


def test_an_archive_that_is_refused_says_what_a_shell_can_do(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", bytes(9 * 2**20))

    result = cli("import", str(path))

    assert result.exit_code == 1
    assert "unpack or split it, and import the parts" in result.stderr
    assert "Limits" not in result.stderr


def test_an_export_comes_back_exactly_by_a_file_or_a_pipe(cli: Cli, tmp_path: Path) -> None:
    item_id = cli.remember("tea", "--tag", "hot")
    cli.ok("edit", item_id, "green tea")
    other = Cli(str(tmp_path / "other.db"))
    packed = tmp_path / "all.jsonl.gz"

    told = cli.json("export", str(packed))
    lines = cli("export", "-")
    come = other.json("import", str(packed))
    again = other.ok("import", "-", stdin=lines.stdout_bytes)

    assert (told["records"], told["versions"], len(told["sha256"])) == (1, 1, 64)
    assert gzip.decompress(packed.read_bytes()).splitlines()[1] in lines.stdout_bytes
    assert come["stored"] == 1
    assert "0 new, 0 updated, 1 unchanged, 0 skipped" in again
    assert other.json("show", item_id) == cli.json("show", item_id)
    assert len(other.json("show", item_id, "--history")) == 2


def test_nothing_is_written_over_and_only_lines_go_to_stdout(cli: Cli, tmp_path: Path) -> None:
    cli.remember("tea")
    path = tmp_path / "notes.csv"

    assert cli.ok("export", str(path), "--format", "csv") == f"{path}  1 memory\n"
    assert cli("export", str(path)).exit_code == 1
    assert path.read_text(encoding="utf-8").count("tea") == 1
    for args in (["--format", "csv"], ["--json"]):
        result = cli("export", "-", *args)
        assert (result.exit_code, result.stdout) == (2, "")


def test_a_store_is_copied_and_read_back(cli: Cli, tmp_path: Path) -> None:
    cli.remember_all("tea", "coffee")
    target = str(tmp_path / "copy.db")

    first = cli.ok("migrate", cli.url, target)
    second = cli.json("migrate", cli.url, target)
    same = cli("migrate", cli.url, cli.url)

    assert first == "2 copied, 0 there already\n✓ 2 read back, verified\n"
    assert (second["copied"], second["already_there"], second["verified"]) == (0, 2, True)
    assert same.exit_code == 2
    assert Cli(target).json("list") == cli.json("list")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:zq1zq2@localhost:port/none",
        "postgresql://ann:zq1/zq2@localhost/none",
        "postgresql://ann:zq1@zq2:zq3@localhost/none",
        "postgresql://[ann:zq1zq2@localhost/none",
        "redis://:zq1#zq2@localhost/0",
        "mystery://ann:zq1@localhost/none",
        "sqlite://ann:zq1@localhost/none",
    ],
)
def test_no_address_of_a_migration_shows_its_password(cli: Cli, url: str) -> None:
    cli.remember("tea")

    for args, debug in ((["migrate", url, cli.url], "0"), (["migrate", cli.url, url], "1")):
        result = cli(*args, env={"ORBITER_DEBUG": debug})

        assert result.exit_code in (1, 2)
        assert "zq" not in result.output, args


@posix
def test_a_bar_is_drawn_on_stderr_and_ctrl_c_ends_it(cli: Cli, tmp_path: Path) -> None:
    long = _talk(tmp_path / "long.jsonl", rounds=1_500)
    short = _talk(tmp_path / "short.jsonl")
    env = environment(cli.url)

    stopped = in_terminal(["import", long], env, interrupt_at="importing")
    done = in_terminal(["import", short], env, stdout_is_terminal=False)

    assert stopped.code == 130, stopped.stdout
    assert "Traceback" not in stopped.stdout
    assert done.code == 0
    assert done.stdout.startswith("4 memories (openai): ")
    assert "importing" in done.stderr
    assert "%" in STYLE.sub("", done.stderr)


@posix
def test_an_interrupted_import_says_what_is_stored_and_goes_on(cli: Cli, tmp_path: Path) -> None:
    path = _talk(tmp_path / "long.jsonl", rounds=4_000)
    process = subprocess.Popen(
        [*COMMAND, "import", path], env=environment(cli.url), stderr=subprocess.PIPE, text=True
    )
    until_blocking(lambda: _stored(cli) > 0)

    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=HANG)
    kept = _stored(cli)
    again = cli.json("import", path)

    assert process.returncode == 130
    assert 0 < kept < 8_000
    assert f"stopped; {kept:,} new memories are stored. Run the same command again" in told
    assert (again["unchanged"], again["stored"]) == (kept, 8_000 - kept)
    assert _stored(cli) == 8_000


def _stored(cli: Cli) -> int:
    """Return how many memories the store has, also while another process writes to it."""
    if not Path(cli.url).exists():
        return 0
    with closing(sqlite3.connect(f"file:{cli.url}?mode=ro", uri=True)) as store:
        try:
            return int(store.execute("SELECT count(*) FROM memory_items").fetchone()[0])
        except sqlite3.OperationalError:  # it is being made
            return 0


@posix
def test_no_terminal_is_given_lines_that_it_would_obey(cli: Cli) -> None:
    cli.remember("\x9b2J")

    ended = in_terminal(["export", "-"], environment(cli.url))

    assert ended.code == 2
    assert "\x9b" not in ended.stdout


@posix
def test_a_reader_who_leaves_ends_an_export_quietly(cli: Cli, tmp_path: Path) -> None:
    cli.ok("import", _talk(tmp_path / "talk.jsonl", rounds=200))

    done = subprocess.run(
        ["/bin/bash", "-c", f"{' '.join(COMMAND)} export - | head -1; echo ${{PIPESTATUS[0]}}"],
        env=environment(cli.url),
        capture_output=True,
        timeout=HANG,
        check=False,
    )

    assert done.stderr == b""
    assert done.stdout.splitlines()[-1] == b"141"


def test_an_import_over_what_was_forgotten_names_the_command_that_restores(
    cli: Cli, tmp_path: Path
) -> None:
    path = str(tmp_path / "all.jsonl")
    item = cli.remember("tea")
    cli.ok("export", path)
    cli.ok("forget", item)
    result = cli("import", path)

    assert item in result.stderr
    assert "`orbiter-memory restore` brings back what was forgotten" in result.stderr
    assert "overwrite" not in result.stderr


def test_the_summary_of_a_table_counts_rows_that_were_not_stored_or_not_dated(
    cli: Cli, tmp_path: Path
) -> None:
    path = tmp_path / "notes.csv"
    path.write_text("note,when\ntea,2020-01-01\n,2020-01-02\ncake,2020-01-03,x\ncoffee,soon\n")

    done = cli("import", str(path), "--text", "note", "--at", "when")

    assert "2 new, 0 updated, 0 unchanged, 0 skipped" in done.stdout
    assert "not a valid time: 'soon'; it is stored, and dated now" in done.stderr


def test_a_file_of_another_user_names_its_owner(cli: Cli, tmp_path: Path) -> None:
    cli.remember("likes tea")
    path = str(tmp_path / "notes.jsonl")
    cli.ok("export", path)

    refused = cli("import", path, "--user", "bob")

    assert refused.exit_code == 1
    assert "belongs to user `alice`, not to this scope" in refused.stderr
    assert "they stay their owner's: give `--all`, or `--user alice`" in refused.stderr
    assert "`--owner alice` copies them for this user" in refused.stderr
    assert "1 unchanged" in cli.ok("import", path, "--user", "alice")
    assert "1 unchanged" in cli.ok("import", path, "--all")
    assert "1 new" in cli.ok("import", path, "--user", "bob", "--owner", "alice")
    assert "likes tea" in cli.ok("list", "--user", "bob")
    new = ("--url", f"sqlite:///{tmp_path / 'new.db'}")
    assert cli("import", path, "--user", "bob", "--owner", "dave", *new).exit_code == 1
    assert "1 new" in cli.ok("import", path, "--user", "bob", "--owner", "alice", *new)


def test_a_table_is_imported_once_and_a_row_without_text_is_named_by_its_line(
    cli: Cli, tmp_path: Path
) -> None:
    path = tmp_path / "notes.csv"
    path.write_text("remark;day;city\nlikes tea;1/2/2026;Oslo\n;;Rome\n", encoding="utf-8-sig")
    named = ("--user", "ann", "--text", "remark", "--at", "day")

    unclear = cli("import", str(path), *named)
    first = cli("import", str(path), *named, "--day-first")
    again = cli("import", str(path), *named, "--day-first", "--json")
    piped = cli("import", "-", *named, "--day-first", "--json", stdin=path.read_bytes())

    assert "say which with `--day-first` or `--month-first`" in unclear.stderr
    assert "1 new" in first.stdout
    assert "problem: line 3: it has no text in `remark`" in first.stderr
    assert [json.loads(each.stdout)["stored"] for each in (again, piped)] == [0, 0]
    (item,) = cli.json("list", "--user", "ann")["items"]
    assert (item["content"], item["created_at"][:10]) == ("likes tea", "2026-02-01")
    assert cli.json("list", "--user", "bob")["items"] == []


def test_a_table_of_ours_says_what_import_reads(cli: Cli, tmp_path: Path) -> None:
    cli.ok("remember", "likes tea")
    cli.ok("export", str(tmp_path / "out.csv"))

    cli.ok("export", str(tmp_path / "out.jsonl"))
    refused = cli("import", str(tmp_path / "out.csv"))
    new = cli("import", str(tmp_path / "out.jsonl"), "--text", "content", "--url", f"{cli.url}.new")

    assert refused.exit_code == new.exit_code == 1
    assert "has no columns, so `--text` and its like would count for nothing" in new.stderr
    assert "`orbiter-memory export FILE.jsonl`" in refused.stderr
    assert "`--text content`" in refused.stderr


def test_an_export_to_a_file_that_is_there_is_refused_before_it_begins(
    cli: Cli, tmp_path: Path
) -> None:
    cli.remember("likes tea")
    (tmp_path / "notes.jsonl").write_text("mine")
    (tmp_path / "notes").mkdir()

    for name in ("notes.jsonl", "notes/"):
        refused = in_terminal(["export", str(tmp_path / name)], environment(cli.url))
        assert refused.code != 0
        assert "exists already; choose another name" in refused.stdout.replace("\n", " ")
        assert "exporting" not in refused.stdout
    assert (tmp_path / "notes.jsonl").read_text() == "mine"
