"""What was remembered is shown, never obeyed; what is secret is not shown."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.conftest import Cli

from orbiter.memory.cli._text import ago, clean, dumps, one_line, size
from orbiter.memory.recall.time_bounds import parse_time

HOSTILE = (
    "\x1b]0;owned\x07\x1b[2J\x9b31m\rover \u202ereversed\u2066 [red]not red[/red] \x00\x7f\u2028"
)
DANGER = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\u061c\u2028\u2029]"
)


@given(st.text())
def test_nothing_that_moves_a_cursor_or_turns_text_around_is_left(text: str) -> None:
    for made in (clean(text), one_line(text), dumps([text]), dumps({text: text}, indent=None)):
        assert not DANGER.search(made)
        made.encode()


def test_harmless_text_stays_as_it_is() -> None:
    text = "Zażółć gęślą jaźń, 茶 と 👩‍👩‍👧, 100 % [bold]\nnext line"

    assert clean(text) == text
    assert one_line(text) == text.replace("\n", " ")
    assert clean("\x1b[31m\u202e") == "\\x1b[31m\\u{202e}"


def _hostile() -> str:
    return HOSTILE.replace("\x00", "")  # no store takes it


def test_escapes_are_shown_by_every_command_and_markup_is_text(cli: Cli) -> None:
    (item_id,) = cli.ok(
        "remember", _hostile(), "--tag", "a\x1b[31mb", "--source", "\x1b[5m"
    ).split()
    cli.ok("edit", item_id, _hostile() + " and more", "--extra", '{"\\u001b[7m": "\\u009b1m"}')

    for args in (
        ["recall", "over reversed", "--explain"],
        ["recall", "over reversed"],
        ["list"],
        ["show", item_id],
        ["show", item_id, "--history"],
        ["list", "--json"],
        ["show", item_id, "--history", "--json"],
        ["forget", item_id],
    ):
        printed = cli.ok(*args)

        assert not DANGER.search(printed), args
        assert "[red]not red[/red]" in printed, args


def test_errors_show_escapes_too(cli: Cli) -> None:
    cli.remember("something")

    for args in (
        ["show", "\x1b[2J"],
        ["\x1b[2J"],
        ["list", "--\x1b[2J"],
        ["list", "--since", "\x9b"],
    ):
        result = cli(*args)

        assert result.exit_code in (2, 3)
        assert not DANGER.search(result.stderr)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:s3cret@localhost:port/none",
        "postgresql://localhost:port/none?user=ann&password=s3cret",
        "redis://:s3cret@localhost:port/0",
        "mystery://ann:s3cret@localhost/none",
        "sqlite://ann:s3cret@localhost/none",
    ],
)
def test_no_output_holds_a_password(cli: Cli, url: str) -> None:
    for args in (["list"], ["doctor"], ["reindex"]):
        result = cli(*args, "--url", url, env={"ORBITER_DEBUG": "1"})

        assert "s3cret" not in result.output, args


def test_an_error_is_one_line_and_a_traceback_only_when_asked_for(cli: Cli) -> None:
    call = ("remember", "x", "--url", "/nowhere/at/all.db")

    plain = cli(*call)
    asked = cli(*call, env={"ORBITER_DEBUG": "1"})
    flagged = cli("--debug", *call, env={"ORBITER_DEBUG": "0"})

    assert plain.exit_code == asked.exit_code == 1
    assert len(plain.stderr.splitlines()) == 1
    assert plain.stderr.startswith("error: the folder `/nowhere/at`")
    assert "Traceback" in asked.stderr
    assert "Traceback" in flagged.stderr


def test_times_and_sizes_are_told_as_people_read_them() -> None:
    now = datetime(2026, 11, 2, 12, tzinfo=UTC)

    assert ago(now - timedelta(seconds=3), now=now) == "just now"
    assert ago(now - timedelta(hours=5), now=now) == "5 h ago"
    assert ago(now - timedelta(days=3), now=now) == "3 d ago"
    assert ago(now - timedelta(days=300), now=now).startswith("2026-01-0")
    assert ago(now + timedelta(days=1), now=now).startswith("2026-11-0")
    assert [size(n) for n in (12, 1_500, 2_500_000, 3e9)] == ["12 B", "1.5 kB", "2.5 MB", "3.0 GB"]
    today = parse_time("today", now=now, is_local=True)
    assert today.date() == now.astimezone().date()
    assert (today.hour, today.minute) == (0, 0)
