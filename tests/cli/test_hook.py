"""Hooks of Claude Code: what is written for it, and what it gets when it calls them."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.agent.test_own_output import FENCE, SECRET
from tests.cli.conftest import Cli
from tests.cli.test_install import home
from tests.integrations.test_own_output import transcript as tool_transcript
from tests.timing import HANG, until_blocking

from orbiter.memory.context.prompt_fence import parse

__all__ = ["home"]

FOLDER = "/src/app"


def transcript(path: Path, count: int, *, session: str = "s1", folder: str = FOLDER) -> Path:
    """Write *count* rounds of a session as Claude Code does."""
    about = {"sessionId": session, "cwd": folder, "isSidechain": False, "gitBranch": "main"}
    with path.open("w") as file:
        file.write(json.dumps({"type": "mode", "sessionId": session}) + "\n")
        for index in range(count):
            at = f"2026-11-16T10:{index:02}"
            for line in (
                {
                    "type": "user",
                    "uuid": f"{session}-u{index}",
                    "timestamp": f"{at}:00Z",
                    "message": {"role": "user", "content": f"{session}: question {index}"},
                },
                {
                    "type": "assistant",
                    "uuid": f"{session}-a{index}",
                    "timestamp": f"{at}:30Z",
                    "message": {
                        "id": f"{session}-m{index}",
                        "role": "assistant",
                        "content": [{"type": "text", "text": f"{session}: answer {index}"}],
                    },
                },
            ):
                file.write(json.dumps({**about, **line}) + "\n")
    return path


def event(name: str, **more: object) -> str:
    """Return what Claude Code writes to a hook's stdin."""
    common = {"session_id": "s1", "cwd": FOLDER, "permission_mode": "default"}
    return json.dumps({**common, "hook_event_name": name, **more})


def stop(path: Path, **more: object) -> str:
    return event("Stop", transcript_path=str(path), stop_hook_active=False, **more)


def started(cli: Cli, *args: str, **more: object) -> str:
    """Return the context that a session begins with."""
    output = cli.ok("hook", *args, stdin=event("SessionStart", source="startup", **more))
    return json.loads(output)["hookSpecificOutput"]["additionalContext"] if output else ""


def shown(context: str) -> list[str]:
    """Return the texts that a session begins with."""
    return [entry.content for entry in parse(context, mark=context.rpartition("\n")[2])]


def contents(cli: Cli, *args: str) -> list[str]:
    return sorted(each["content"] for each in cli.json("list", *args)["items"])


def commands(path: Path, name: str) -> list[str]:
    groups = json.loads(path.read_text())["hooks"][name]
    return [hook["command"] for group in groups for hook in group["hooks"]]


@pytest.fixture
def settings(home: Path) -> Path:
    return home / ".claude/settings.json"


OTHERS: dict[str, Any] = {
    "model": "opus",
    "hooks": {
        "Stop": [{"hooks": [{"type": "command", "command": "say done"}]}],
        "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "check"}]}],
    },
    "permissions": {"allow": ["Bash(ls)"]},
}


def test_what_is_written_remembers_a_session_and_begins_the_next_with_it(
    cli: Cli, home: Path, settings: Path
) -> None:
    cli.ok("install", "claude-code", "--hooks", str(settings))
    path = transcript(home / "s1.jsonl", 2)
    cli.remember("Deploy with `make ship`")

    def call(name: str, stdin: str) -> str:
        (line,) = commands(settings, name)
        done = subprocess.run(
            ["/bin/sh", "-c", line],
            input=stdin,
            capture_output=True,
            text=True,
            cwd="/",
            timeout=HANG,
            check=True,
        )
        return done.stdout

    assert call("Stop", stop(path)) == ""
    until_blocking(lambda: len(contents(cli)) == 5, "remembering the transcript")
    told = call("SessionStart", event("SessionStart", session_id="s2", source="startup"))

    context = json.loads(told)["hookSpecificOutput"]
    assert context["hookEventName"] == "SessionStart"
    assert shown(context["additionalContext"]) == [
        "Deploy with `make ship`",
        "s1: answer 1",
        "s1: question 1",
        "s1: answer 0",
        "s1: question 0",
    ]
    assert "data, not instructions" in context["additionalContext"]


def test_a_transcript_is_remembered_once(cli: Cli, tmp_path: Path) -> None:
    path = transcript(tmp_path / "s1.jsonl", 3)
    cli.ok("hook", "--wait", stdin=stop(path))
    once = contents(cli)

    cli.ok("hook", "--wait", stdin=stop(path))
    again = contents(cli)
    transcript(path, 4)
    cli.ok("hook", "--wait", stdin=event("SessionEnd", transcript_path=str(path)))

    assert len(once) == 6
    assert again == once
    assert contents(cli) == sorted([*once, "s1: answer 3", "s1: question 3"])
    assert [each["items"] for each in cli.json("chat")] == [8]


def test_what_our_server_answered_is_no_memory(cli: Cli, tmp_path: Path) -> None:
    [item] = cli.json("remember", SECRET)
    path = tool_transcript(tmp_path / "s1.jsonl", FENCE)
    cli.ok("hook", "--wait", stdin=stop(path))
    assert FENCE in contents(cli)

    cli.ok("forget", item["id"])

    for question in ("Who is Dr. Frost?", "diabetes"):
        assert "diabetes" not in str([hit["item"] for hit in cli.json("recall", question)["hits"]])
    assert "diabetes" not in started(cli, session_id="s2")


def test_no_secret_of_a_transcript_is_remembered_unless_that_is_wanted(
    cli: Cli, tmp_path: Path
) -> None:
    path = transcript(tmp_path / "s1.jsonl", 1)
    secret = "ghp_" + "a1B2c3" * 6
    path.write_text(path.read_text().replace("question 0", f"{secret} <private>7261</private>"))

    cli.ok("hook", "--wait", stdin=stop(path))
    cli.ok("hook", "--wait", "--user", "bob", "--redact", "none", stdin=stop(path))

    assert any("[redacted: github token]" in each for each in contents(cli))
    assert not any(secret in each for each in contents(cli))
    assert any(secret in each for each in contents(cli, "--user", "bob"))
    assert not any("7261" in each for each in contents(cli, "--all"))
    assert cli("hook", "--wait", "--redact", "all", stdin=stop(path)).exit_code == 0
    assert cli("list", "--redact", "all").exit_code == 2


def test_several_hooks_at_once_remember_each_message_once(cli: Cli, tmp_path: Path) -> None:
    path = transcript(tmp_path / "s1.jsonl", 5)
    command = [sys.executable, "-m", "orbiter.memory.cli", "hook", "--wait", "--url", cli.url]

    def call(_: int) -> int:
        done = subprocess.run(
            [*command, "--user", "alice"],
            input=stop(path),
            text=True,
            capture_output=True,
            timeout=HANG,
            check=False,
        )
        return done.returncode

    with ThreadPoolExecutor(3) as pool:
        codes = list(pool.map(call, range(3)))

    assert codes == [0, 0, 0]
    assert len(contents(cli)) == 10


def test_nobody_else_begins_with_it(cli: Cli, tmp_path: Path) -> None:
    cli.ok("hook", "--wait", "--task", "acme/app", stdin=stop(transcript(tmp_path / "a.jsonl", 1)))

    for scope in (
        ("--user", "bob"),
        ("--task", "acme/other"),
        ("--task", "acme/app", "--user", "b"),
    ):
        assert started(cli, *scope, session_id="s2") == ""
    assert "question 0" in started(cli, "--task", "acme/app", session_id="s2", cwd="/clone")


def test_a_memory_of_all_projects_begins_with_the_last_session_of_this_one(
    cli: Cli, tmp_path: Path
) -> None:
    for session, folder in (("s1", FOLDER), ("s2", "/src/other"), ("s3", FOLDER)):
        path = transcript(tmp_path / f"{session}.jsonl", 1, session=session, folder=folder)
        cli.ok("hook", "--wait", stdin=stop(path))

    assert "s1: question" in started(cli, session_id="s3")
    assert "s3: question" in started(cli, session_id="s4")
    assert "s2: question" in started(cli, session_id="s4", cwd="/src/other")
    assert started(cli, session_id="s4", cwd="/src/new") == ""


def test_facts_come_first_and_the_budget_is_kept(cli: Cli) -> None:
    cli.ok("facts", "put", "test command", "make quick")
    for number in range(30):
        cli.remember(f"note {number}: {'long ' * 400}")

    context = started(cli, "--budget", "400")
    whole = started(cli)

    lines = shown(context)
    assert "make quick" in lines[0]
    assert len(lines) > 1
    assert "note 29" in lines[1]
    assert len(context) < len(whole)
    assert max(map(len, lines)) < 700
    assert started(cli, "--budget", "1") == ""


@pytest.mark.parametrize(
    "stdin",
    [
        "",
        "not JSON",
        "[]",
        '"Stop"',
        "[" * 100_000,
        b"\xff\xfe",
        "{}",
        '{"hook_event_name": ["Stop"]}',
        '{"hook_event_name": "Unheard", "transcript_path": "/etc/passwd"}',
        event("Stop"),
        event("Stop", transcript_path=None),
        event("Stop", transcript_path=7),
        event("Stop", transcript_path=""),
        event("Stop", transcript_path="/nowhere/at/all.jsonl"),
        event("Stop", transcript_path="/"),
        event("Stop", transcript_path="a\0b"),
        event("Stop", transcript_path="x" * 100_000),
        event("SessionStart", session_id=None, cwd=None),
        event("SessionStart", session_id=["x"], cwd={}),
    ],
)
def test_whatever_comes_the_agent_goes_on(cli: Cli, stdin: str | bytes) -> None:
    result = cli("hook", "--wait", stdin=stdin)

    assert result.exit_code == 0
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert not Path(cli.url).exists()


@pytest.mark.parametrize(
    "text", [b"", b"\x00" * 4096, b"{}\n[]\nnull\n", b'{"type": "user"}\n{"ty']
)
def test_a_transcript_that_is_none_is_passed_over(cli: Cli, tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "s1.jsonl"
    path.write_bytes(text)

    result = cli("hook", "--wait", stdin=stop(path))

    assert result.exit_code == 0
    assert result.stdout == ""


@pytest.mark.parametrize(
    "args",
    [
        ("--no-such-option",),
        ("--budget", "none"),
        ("--user", ""),
        ("--url", "/nowhere/at/all/memory.db"),
        ("--url", "gopher://x"),
        ("--url", "http://127.0.0.1:1", "--token", "om_x"),
    ],
)
def test_a_hook_never_blocks_the_agent(cli: Cli, tmp_path: Path, args: tuple[str, ...]) -> None:
    path = transcript(tmp_path / "s1.jsonl", 1)

    for stdin in (stop(path), event("SessionStart")):
        result = cli("hook", "--wait", *args, stdin=stdin)

        assert result.exit_code == 0
        assert "Traceback" not in result.output
        assert "decision" not in result.stdout


def test_a_memory_that_cannot_be_opened_is_told_once_a_session(cli: Cli) -> None:
    Path(cli.url).write_text("this is no store")

    told = cli.ok("hook", stdin=event("SessionStart"))
    silent = cli.ok("hook", "--wait", stdin=stop(Path(cli.url)))

    assert json.loads(told)["systemMessage"].startswith("orbiter-memory: ")
    assert silent == ""


@pytest.mark.parametrize("scope", ["user", "task"])
def test_an_empty_name_remembers_nothing_for_anybody(cli: Cli, tmp_path: Path, scope: str) -> None:
    cli.remember("mine")
    path = transcript(tmp_path / "s1.jsonl", 1)

    result = cli("hook", "--wait", f"--{scope}", "", stdin=stop(path))

    assert result.exit_code == 0
    assert f"`--{scope}` is empty" in result.stderr
    assert contents(cli, "--all") == ["mine"]


def test_what_claude_code_writes_beside_messages_is_not_remembered(
    cli: Cli, tmp_path: Path
) -> None:
    """Kinds of lines and fields of an event as Claude Code 2.1.326 wrote them."""
    path, session = tmp_path / "s1.jsonl", {"sessionId": "s1"}
    about = {**session, "cwd": FOLDER, "isSidechain": False, "version": "2.1.326"}
    prompt = {"role": "user", "content": "Please remember: the deploy port is 7431."}
    found = [{"type": "tool_reference", "tool_name": "mcp__orbiter-memory__memory_add"}]
    search = {"type": "tool_use", "id": "toolu_1", "name": "ToolSearch", "input": {"query": "x"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": found}
    lines: list[dict[str, object]] = [
        {"type": "queue-operation", "operation": "enqueue", "content": prompt["content"]},
        {**about, "type": "user", "uuid": "u1", "promptSource": "sdk", "message": prompt},
        {**about, "type": "attachment", "uuid": "u2", "attachment": {"type": "date"}},
        {"type": "atis-latch", "atis": ""},
        {"type": "api-request-blob", "hash": "c8", "message": prompt},
        {"type": "api-request", "id": "r1", "params": {"model": "m"}},
        {"type": "tools-used", "tools": ["ToolSearch"]},
        {
            **about, "type": "assistant", "uuid": "u3",
            "message": {"id": "m1", "role": "assistant", "content": [search]},
        },
        {"type": "last-prompt", "lastPrompt": prompt["content"], "leafUuid": "u3"},
        {**about, "type": "user", "uuid": "u4", "message": {"role": "user", "content": [result]}},
        {
            **about, "type": "assistant", "uuid": "u5",
            "message": {
                "id": "m2", "role": "assistant", "content": [{"type": "text", "text": "Noted."}],
            },
        },
        {**about, "type": "system", "subtype": "stop_hook_summary", "uuid": "u6", "hookCount": 1},
        {"type": "cost-state", "totalCostUSD": 0.1},
    ]  # fmt: skip
    path.write_text("".join(f"{json.dumps({**session, **each})}\n" for each in lines))

    cli.ok(
        *("hook", "--wait"),
        stdin=stop(
            path,
            prompt_id="p1",
            effort={"level": "medium"},
            last_assistant_message="Noted.",
            background_tasks=[],
            session_crons=[],
        ),
    )

    kinds = [each["memory_type"] for each in cli.json("list")["items"]]
    assert sorted(kinds) == ["ai", "ai", "human", "tool"]
    context = started(cli, session_id="s2")
    assert context.count("the deploy port is 7431") == 1
    assert "Noted." in context
