"""`--pii`: personal data is replaced by tokens at every door of the terminal and of a server."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cli.conftest import Cli
from tests.cli.terminal import COMMAND, environment
from tests.cli.test_hook import stop, transcript
from tests.cli.test_install import home
from tests.timing import HANG

from orbiter.memory.text.pii import PIIHasher

__all__ = ["home"]

VALUE, CARD = "ann@example.com", "4111 1111 1111 1111"
KEY = "only for these tests, not a key"
TOKENS = {"ORBITER_MEMORY_PII": "tokens", "ORBITER_PII_KEY": KEY}


@pytest.fixture
def private(cli: Cli) -> Cli:
    return Cli(cli.url, dict(TOKENS))


def _files(cli: Cli) -> bytes:
    """Return every byte of the store, with what is not yet written back into it."""
    path = Path(cli.url)
    return b"".join(each.read_bytes() for each in path.parent.glob(f"{path.name}*"))


def _remember(cli: Cli, folder: Path) -> None:
    cli.remember(f"write to {VALUE}", "--tag", VALUE, "--extra", json.dumps({"from": VALUE}))


def _import(cli: Cli, folder: Path) -> None:
    file = folder / "talk.in"
    file.write_text(json.dumps({"messages": [{"role": "user", "content": VALUE}]}))
    cli.ok("import", str(file), "--format", "openai")


def _edit(cli: Cli, folder: Path) -> None:
    cli.ok("edit", cli.remember("nothing yet"), f"write to {VALUE}")


def _put_fact(cli: Cli, folder: Path) -> None:
    cli.ok("facts", "put", "mail", VALUE)


def _hook(cli: Cli, folder: Path) -> None:
    file = transcript(folder / "transcript.in", 3)
    file.write_text(file.read_text().replace("question 1", f"write to {VALUE}"))
    cli.ok("hook", "--wait", stdin=stop(file))


@pytest.mark.parametrize("write", [_remember, _import, _edit, _put_fact, _hook])
def test_no_command_writes_the_value(private: Cli, tmp_path: Path, write: Any) -> None:
    write(private, tmp_path)

    assert b"[email:" in _files(private)
    assert VALUE.encode() not in _files(private)


@pytest.mark.parametrize(
    "ask",
    [
        ("list", "--query", VALUE),
        ("list", "--where", json.dumps({"content": {"$contains": VALUE}})),
        ("list", "--tag", VALUE),
        ("recall", VALUE, "--mode", "words"),
        ("recall", "tea", "--mode", "words", "--tag", VALUE),
        ("forget", "--query", VALUE, "--yes"),
        ("forget", "--tag", VALUE, "--yes"),
    ],
)
def test_a_question_with_tokens_says_how_older_texts_are_found(
    cli: Cli, private: Cli, ask: tuple[str, ...]
) -> None:
    cli.remember(f"write to {VALUE}")

    done = private(*ask, "--all")

    assert "ORBITER_MEMORY_PII replaced personal data in the question" in done.stderr
    assert "found with `--pii none`" in done.stderr
    assert "everyone's" not in done.stderr
    assert VALUE not in done.stdout
    assert "replaced" not in private(*ask, "--all", "--pii", "none").stderr
    assert "replaced" not in private(*(each.replace(VALUE, "x") for each in ask), "--all").stderr


def test_a_question_to_a_server_is_not_said_to_be_replaced_here(private: Cli) -> None:
    refused = private("forget", "--query", VALUE, "--all", "--yes", "--url", "http://127.0.0.1:1")

    assert refused.exit_code == 1
    assert "replaced" not in refused.stderr


def test_what_was_replaced_is_found_by_its_value(private: Cli) -> None:
    private.remember(f"write to {VALUE}")

    assert len(private.json("list", "--query", "Ann@Example.com")["items"]) == 1
    assert private.json("recall", VALUE)["hits"]


def _ask_server(url: str) -> None:
    with httpx.Client(base_url=url, timeout=HANG, params={"user_id": "alice"}) as http:

        def done(answer: httpx.Response) -> None:
            assert answer.is_success, answer.text

        done(http.post("/v1/memories", json={"what": f"memory {VALUE}"}))
        done(http.put("/v1/facts/mail", json={"value": VALUE}))
        said = {"what": {"role": "user", "content": f"chat {VALUE}"}}
        done(http.post("/v1/chats/trip/messages", json=said))
        page = http.get("/", headers={"Accept": "text/html"}).text
        found = re.search(r'name="orbiter-token" content="([^"]+)"', page)
        assert found is not None
        form = {"X-Orbiter-Token": found[1], "HX-Request": "true"}
        done(http.post("/ui/memories", data={"content": f"form {VALUE}"}, headers=form))
        done(http.post("/ui/facts/put", data={"key": "post", "value": VALUE}, headers=form))


@pytest.mark.parametrize("is_option", [True, False])
def test_no_door_of_a_server_writes_the_value(cli: Cli, tmp_path: Path, is_option: bool) -> None:
    file = tmp_path / "server.toml"
    file.write_text('pii = "tokens"\n')
    chosen = ["--pii", "tokens"] if is_option else ["--config", str(file)]
    command = [*COMMAND, "serve", "--json", "--port", "0", "--no-mcp", *chosen]
    with subprocess.Popen(
        command,
        env=environment(cli.url, {"ORBITER_PII_KEY": KEY}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line, process.communicate()[1]
            _ask_server(json.loads(line)["url"])
            held = _files(cli)
        finally:
            process.kill()

    for door in (b"memory", b"chat", b"form"):
        assert door + b" [email:" in held
    assert VALUE.encode() not in held


@pytest.mark.parametrize(
    ("options", "line", "value"),
    [
        (["--pii", "tokens"], "personal data\treplaced by tokens before it is stored", "tokens"),
        (
            ["--pii", "email,phone"],
            "personal data\temail, phone: replaced by tokens",
            "email,phone",
        ),
        ([], None, "none"),
    ],
    ids=["all", "some", "none"],
)
def test_a_server_says_when_it_starts_what_becomes_of_personal_data(
    cli: Cli, options: list[str], line: str | None, value: str
) -> None:
    env = environment(cli.url, {"ORBITER_PII_KEY": KEY} if options else {})
    started = {"keys": "", "{": ""}
    for last, form in (("keys", []), ("{", ["--json"])):
        command = [*COMMAND, "serve", "--port", "0", *options, *form]
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for each in iter(process.stdout.readline, ""):
                started[last] += each
                if each.startswith(last):
                    break
            process.kill()

    assert ("personal data" in started["keys"]) is (line is not None)
    assert (line or "") in started["keys"]
    assert json.loads(started["{"])["pii"] == value


def test_kinds_can_be_chosen(private: Cli) -> None:
    private.env["ORBITER_MEMORY_PII"] = "card, iban"
    private.remember(f"{VALUE} pays with {CARD}")

    (item,) = private.json("list")["items"]
    assert re.fullmatch(rf"{VALUE} pays with \[card:\w+\]", item["content"])


def test_tokens_are_those_of_the_library_for_the_same_key_and_tenant(private: Cli) -> None:
    private.env["ORBITER_PII_TENANT"] = "acme"
    private.remember(VALUE)

    (item,) = private.json("list")["items"]
    assert item["content"] == PIIHasher(KEY, tenant="acme")(VALUE)


@pytest.mark.parametrize(
    ("env", "reason"),
    [
        ({"ORBITER_PII_KEY": ""}, "tokens need a key: set `ORBITER_PII_KEY`"),
        ({"ORBITER_PII_KEY": "short"}, "`ORBITER_PII_KEY` needs at least 16 bytes"),
        ({"ORBITER_MEMORY_PII": "yes"}, "must be `none`, `tokens`, or some of `email,phone"),
    ],
)
def test_what_cannot_be_done_is_refused_and_nothing_is_written(
    private: Cli, env: dict[str, str], reason: str
) -> None:
    refused = private("remember", VALUE, env=env)

    assert refused.exit_code == 2
    assert reason in refused.stderr
    assert "short`" not in refused.stderr
    assert not Path(private.url).exists()


def test_a_key_alone_replaces_nothing_and_says_so(cli: Cli) -> None:
    told = cli("remember", VALUE, env={"ORBITER_PII_KEY": KEY})
    quiet = cli("remember", VALUE, env={"ORBITER_PII_KEY": KEY, "ORBITER_MEMORY_PII": "none"})

    assert told.stderr.count("`ORBITER_MEMORY_PII=tokens` replaces it") == 1
    assert quiet.stderr == ""


def test_a_server_elsewhere_decides_by_itself(cli: Cli) -> None:
    refused = cli("list", "--pii", "tokens", "--url", "http://127.0.0.1:9")

    assert refused.exit_code == 2
    assert "`--pii` is for a store" in refused.stderr


def test_an_agent_that_is_set_up_replaces_it_too(private: Cli, home: Path) -> None:
    printed = private.ok("install", "cursor")

    entry = json.loads(printed.partition("\nset ")[0])["mcpServers"]["orbiter-memory"]
    assert entry["args"][entry["args"].index("--pii") + 1] == "tokens"
    assert entry["env"] == {"ORBITER_PII_KEY": KEY}


def test_an_agent_of_a_server_is_not_told_what_the_server_replaces(
    private: Cli, home: Path
) -> None:
    private.url = "http://127.0.0.1:8765"
    printed = private.ok("install", "cursor")

    entry = json.loads(printed.partition("\nset ")[0])["mcpServers"]["orbiter-memory"]
    assert "--pii" not in entry["args"]
    assert "env" not in entry or KEY not in str(entry["env"])


def test_a_variable_that_a_server_does_not_read_is_noted(private: Cli) -> None:
    private.url = "http://127.0.0.1:9"

    assert "ORBITER_MEMORY_PII is `tokens`, which is not used here" in private("list").stderr
