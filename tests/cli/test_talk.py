"""`chat talk` against a real server on this computer that speaks OpenAI's wire format."""

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from tests.cli.conftest import Cli
from tests.cli.terminal import environment, in_pipe, in_terminal
from tests.timing import HANG


@dataclass
class Model:
    """What the server answers, and what it was asked."""

    url: str = ""
    kind: str = "whole"
    words: tuple[str, ...] = ("Take ", "a ", "hat.")
    odd: bytes = b""
    """All that is sent, if *kind* is odd."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    go_on: threading.Event = field(default_factory=threading.Event)


def _handler(model: Model) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/chat/completions"
            body = self.rfile.read(int(self.headers["Content-Length"]))
            model.requests.append(json.loads(body))
            model.keys.append(self.headers.get("Authorization"))
            if model.kind == "refused":
                self._whole(401, {"error": {"message": "Incorrect API key\nprovided."}})
            elif model.kind == "html":
                self._whole(502, b"<h1>Bad gateway</h1>")
            elif model.kind == "not json":
                self._whole(200, b"<h1>Welcome</h1>", "application/json")
            elif model.kind == "error at once":
                self._whole(200, {"error": {"message": "no such model"}})
            elif model.kind == "at once":
                answer = {"message": {"role": "assistant", "content": "At once."}}
                self._whole(200, {"choices": [answer]})
            else:
                self._stream()

        def _whole(self, status: int, body: object, media: str = "") -> None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            media = media or ("text/html" if data is body else "application/json")
            self.send_header("Content-Type", media)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _stream(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            if model.kind == "odd":
                self.wfile.write(model.odd)
                return
            for word in model.words:
                self._send({"choices": [{"delta": {"content": word}, "finish_reason": None}]})
            if model.kind == "cut off":
                return
            if model.kind == "fails":
                self._send({"error": {"message": "overloaded"}})
                return
            if model.kind == "slow":
                model.go_on.wait(HANG)
                return
            self._send({"choices": [{"delta": {}, "finish_reason": "stop"}]})
            self._send({"choices": [], "usage": {"prompt_tokens": 321, "completion_tokens": 4}})
            self.wfile.write(b"data: [DONE]\n\n")

        def _send(self, event: object) -> None:
            self.wfile.write(b": a comment\n\ndata: " + json.dumps(event).encode() + b"\n\n")
            self.wfile.flush()

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@pytest.fixture
def model() -> Iterator[Model]:
    model = Model()
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(model)) as server:
        model.url = f"http://127.0.0.1:{server.server_port}/v1"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield model
        model.go_on.set()
        server.shutdown()
        thread.join()


def _talk(cli: Cli, model: Model, typed: str, *args: str) -> Any:
    env = {"OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "sk-secret", "OPENAI_MODEL": "small"}
    return (
        cli("chat", "talk", *args, stdin=typed) if not model.url else _with(cli, env, args, typed)
    )


def _with(cli: Cli, env: dict[str, str], args: tuple[str, ...], typed: str) -> Any:
    return cli("chat", "talk", *args, stdin=typed, env=env)


def test_an_answer_is_streamed_and_both_sides_are_kept(cli: Cli, model: Model) -> None:
    cli.remember("Mia burns in the sun within minutes")

    result = _talk(cli, model, "What should Mia wear in the sun?\n", "trip")

    assert result.exit_code == 0, result.output
    assert result.stdout == "model> Take a hat.\n"
    (request,) = model.requests
    assert (request["model"], request["stream"]) == ("small", True)
    assert "Mia burns in the sun" in request["messages"][-1]["content"]
    assert model.keys == ["Bearer sk-secret"]
    talk = [item["content"] for item in cli.json("chat", "show", "trip")]
    assert talk == ["What should Mia wear in the sun?", "Take a hat."]
    assert "sk-secret" not in result.output


def test_the_second_question_is_sent_with_the_first(cli: Cli, model: Model) -> None:
    _talk(cli, model, "I fly on Monday.\nWhen do I fly?\n/quit\nnot read\n")

    sent = json.dumps(model.requests[1]["messages"])
    assert len(model.requests) == 2
    assert "I fly on Monday." in sent
    assert "Take a hat." in sent


def test_why_shows_what_was_recalled_and_context_what_was_sent(cli: Cli, model: Model) -> None:
    cli.remember("Mia burns in the sun within minutes")
    cli.remember("secret of bob", "--user", "bob")

    result = _talk(
        cli, model, "/why\nDoes Mia burn in the sun?\n/why\n/context\n/nonsense\n/help\n"
    )

    assert re.search(r" 1 Mia burns in the sun within minutes  [01]\.\d\d\n", result.stdout)
    assert "   sent\n" in result.stdout
    assert "── user" in result.stdout
    assert re.search(r" \d+ of 4,000 tokens", result.stdout)
    assert "321 tokens sent, 4 answered, by the server's count" in result.stdout
    assert "325 tokens since the start" in result.stdout
    assert "/retry" in result.stdout
    assert "there is no question yet" in result.stderr
    assert "there is no `/nonsense`" in result.stderr
    assert "bob" not in result.stdout


def test_forget_takes_back_a_turn_or_a_row(cli: Cli, model: Model) -> None:
    kept = cli.remember("Mia burns in the sun within minutes")

    result = _talk(cli, model, "Does Mia burn in the sun?\n/forget 1\n/forget 7\n/forget\n")

    assert "1 memory forgotten" in result.stderr
    assert "there is no row `7`" in result.stderr
    assert "2 memories forgotten" in result.stderr
    assert cli("show", kept).exit_code == 3
    assert cli.json("list")["items"] == []


@pytest.mark.parametrize(
    ("kind", "told", "said"),
    [
        ("refused", "answered 401 Unauthorized: Incorrect API key provided.", []),
        ("html", "answered 502 Bad Gateway: <h1>Bad gateway</h1>", []),
        ("not json", "something else than an answer: b'<h1>Welcome</h1>'", []),
        ("error at once", "the server stopped: no such model", []),
        ("cut off", "the answer was cut off: the server hung up", ["Take a hat."]),
        ("fails", "the server stopped: overloaded", ["Take a hat."]),
    ],
)
def test_an_error_of_the_server_is_one_line_and_keeps_what_was_said(
    cli: Cli, model: Model, kind: str, told: str, said: list[str]
) -> None:
    model.kind = kind

    result = _talk(cli, model, "What now?\n", "trip")

    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert told in line
    assert "sk-secret" not in result.output
    items = cli.json("chat", "show", "trip")
    assert [item["content"] for item in items] == ["What now?", *said]


def test_an_answer_that_is_not_streamed_is_taken_whole(cli: Cli, model: Model) -> None:
    model.kind = "at once"

    assert _talk(cli, model, "What now?\n").stdout == "model> At once.\n"


def test_a_question_is_asked_again_without_being_stored_twice(cli: Cli, model: Model) -> None:
    model.kind = "refused"
    first = _talk(cli, model, "What now?\n/retry\n", "trip")
    model.kind = "whole"
    second = _talk(cli, model, "Go on?\n/retry\n", "trip")

    assert first.stderr.count("401") == 2
    assert second.exit_code == 0
    talk = [item["content"] for item in cli.json("chat", "show", "trip")]
    assert talk == ["What now?", "Go on?", "Take a hat."]


def test_a_server_that_is_not_there_or_says_nothing_is_one_line(cli: Cli, model: Model) -> None:
    nobody = _with(cli, {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}, (), "Hello?\n")
    model.kind, model.words = "slow", ()
    silent = _with(cli, {"OPENAI_BASE_URL": model.url, "OPENAI_TIMEOUT": "0.2"}, (), "Hello?\n")

    assert "`127.0.0.1:1` cannot be reached, or hung up: Connection refused" in nobody.stderr
    assert "did not answer within 0.2 seconds" in silent.stderr
    assert nobody.stderr.count("\n") == silent.stderr.count("\n") == 1


def test_ctrl_c_stops_an_answer_and_keeps_what_was_said(cli: Cli, model: Model) -> None:
    model.kind = "slow"
    env = environment(cli.url, {"OPENAI_BASE_URL": model.url})

    ended = in_terminal(
        ["chat", "talk", "trip"], env, typed="What now?\n/quit\n", interrupt_at="hat."
    )

    assert ended.code == 0, ended.stdout
    assert "stopped; what was said is kept" in ended.stdout
    talk = [item["content"] for item in cli.json("chat", "show", "trip")]
    assert talk == ["What now?", "Take a hat."]


def test_ctrl_c_at_the_prompt_ends_it(cli: Cli) -> None:
    ended = in_terminal(
        ["chat", "talk", "--scripted"],
        environment(cli.url),
        interrupt_at="you> ",
        interrupts_again=True,
    )

    assert ended.code == 130
    assert "Traceback" not in ended.stdout


def test_a_script_answers_without_a_model(cli: Cli) -> None:
    cli.remember("Mia burns in the sun within minutes")

    told = cli.ok("chat", "talk", "--scripted", stdin="Does Mia burn in the sun?\nI like tea.\n")

    assert "model> I remember: Mia burns in the sun within minutes" in told
    assert "model> I will remember that." in told
    kept = json.loads(cli.ok("list", "--type", "ai", "--json"))["items"]
    assert [each["metadata"]["extra"]["scripted"] for each in kept] == [True, True]
    assert [each["content"] for each in kept] == [
        "I will remember that.",
        "I remember: Mia burns in the sun within minutes",
    ]


def test_a_script_shows_what_it_recalled_and_what_that_costs(cli: Cli) -> None:
    said = "I am allergic to peanuts.\nWhat am I allergic to?\nWho won the cup?\n"

    here = cli.ok("chat", "talk", "--scripted", stdin=said).splitlines()
    why = cli.ok("chat", "talk", "--scripted", stdin="What am I allergic to?\n/why\n")
    later = cli.ok("chat", "talk", "next", "--scripted", stdin="What am I allergic to?\n/why\n")
    seen = in_terminal(["chat", "talk", "new", "--scripted"], environment(cli.url), typed="/quit\n")

    assert [line.strip() for line in here[::2]] == [
        "model> I will remember that.",
        "model> You told me here: I am allergic to peanuts.",
        "model> I do not know that yet.",
    ]
    assert [line.split(" · ")[0].split(",")[0].strip() for line in here[1::2]] == [
        "recalled 0 memories",
        "recalled 1 memory",
        "recalled 0 memories",
    ]
    assert re.search(r"a model would have read [1-9]\d* tokens, and written [1-9]", here[3])
    assert "in this conversation" in why
    assert "model> I remember: I am allergic to peanuts." in later
    assert "in this conversation" not in later
    assert "then `What am I allergic to?`" in " ".join(seen.stdout.split())


@pytest.mark.parametrize("event", [b"[1]", b"5", b"null", b"{", b"[" * 100_000])
def test_events_that_are_no_answers_are_one_line(cli: Cli, model: Model, event: bytes) -> None:
    model.kind, model.odd = "odd", b"data: " + event + b"\n\n"

    result = _talk(cli, model, "What now?\n/retry\n")

    assert len(result.stderr.splitlines()) == 2  # the talk went on
    assert result.stderr.count("error: the server sent something else than an answer") == 2


@pytest.mark.parametrize("usage", ["[1]", '{"prompt_tokens": "12"}', '"much"'])
def test_a_count_that_is_none_does_not_cost_the_answer(cli: Cli, model: Model, usage: str) -> None:
    choice = '{"delta": {"content": "A hat."}, "finish_reason": "stop"}'
    model.kind = "odd"
    model.odd = f'data: {{"choices": [7, {choice}], "usage": {usage}}}\n\n'.encode()

    assert _talk(cli, model, "What now?\n").exit_code == 0
    assert cli.json("chat", "show", "terminal")[-1]["content"] == "A hat."


def test_an_answer_is_kept_without_what_no_store_keeps(cli: Cli, model: Model) -> None:
    model.words = ("Sun \ud83d", "\ude00 \x00and\ud83d hat.")

    assert _talk(cli, model, "What now?\n").exit_code == 0
    assert cli.json("chat", "show", "terminal")[-1]["content"] == "Sun 😀 and\ufffd hat."


def test_an_answer_that_is_too_long_to_keep_does_not_end_the_talk(cli: Cli, model: Model) -> None:
    model.words = ("x" * 600_000, "y" * 600_000)

    result = _talk(cli, model, "What now?\n/why\n")

    kept, why = result.stderr.splitlines()
    assert kept.startswith("error: the answer was not kept: ")
    assert "nothing was recalled" in why
    assert result.exit_code == 1


def test_a_key_with_odd_letters_is_not_shown(cli: Cli, model: Model) -> None:
    address = {"OPENAI_BASE_URL": model.url}
    broken = _with(cli, {**address, "OPENAI_API_KEY": "sk-se\ncret"}, (), "Hello?\n")
    ended = _with(cli, {**address, "OPENAI_API_KEY": "sk-secret\r\n"}, (), "Hello?\n")

    assert broken.exit_code == 2
    assert "OPENAI_API_KEY has a character that no key has" in broken.stderr
    assert "cret" not in broken.output
    assert ended.exit_code == 0
    assert model.keys == ["Bearer sk-secret"]


def test_what_a_model_says_is_shown_and_never_obeyed(cli: Cli, model: Model) -> None:
    model.words = ("\x1b[2J", "gone")

    assert _talk(cli, model, "What now?\n").stdout == "model> \\x1b[2Jgone\n"


def test_without_a_model_it_says_what_to_set_and_a_key_is_not_sent_in_the_clear(cli: Cli) -> None:
    none = cli("chat", "talk", env={"OPENAI_API_KEY": "", "OPENAI_BASE_URL": ""})
    clear = cli(
        "chat", "talk", "--base-url", "http://example.com/v1", env={"OPENAI_API_KEY": "sk-x"}
    )
    wrong = cli("chat", "talk", "--base-url", "localhost:11434", env={"OPENAI_API_KEY": ""})

    assert (none.exit_code, clear.exit_code, wrong.exit_code) == (2, 2, 2)
    assert "set OPENAI_API_KEY, or OPENAI_BASE_URL" in none.stderr
    assert "unencrypted" in clear.stderr
    assert "is not a valid URL" in wrong.stderr
    assert (
        in_pipe(["chat", "show", "terminal"], environment(cli.url)).code == 1
    )  # no store was made
