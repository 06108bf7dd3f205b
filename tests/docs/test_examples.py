"""The programs of `examples/`: each is started as a user starts it, and remembers."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
TEA = "My favourite drink is green tea"
QUESTION = "What is my favourite drink?"


@pytest.fixture
def model() -> Iterator[HTTPServer]:
    """Be a server with the API of OpenAI, which answers with all that it was sent."""

    class Model(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent = json.loads(self.rfile.read(int(self.headers["content-length"])))
            content = "The model was sent: " + json.dumps(sent["messages"])
            message = {"role": "assistant", "content": content}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            about = {"id": "1", "object": "chat.completion", "created": 1, "model": sent["model"]}
            body = json.dumps({**about, "choices": [choice]}).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Model)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def environment(folder: Path, model: HTTPServer | None = None, **more: str) -> dict[str, str]:
    variables = {"PATH": os.environ["PATH"], "ORBITER_MEMORY_URL": f"{folder}/memory.db", **more}
    if model is not None:
        variables["OPENAI_API_KEY"] = "none"
        variables["OPENAI_BASE_URL"] = f"http://127.0.0.1:{model.server_port}/v1"
    return variables


def run(name: str, *arguments: str, env: dict[str, str], said: str = "") -> str:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    return subprocess.run(
        command, env=env, check=True, capture_output=True, text=True, input=said, timeout=60
    ).stdout


def test_the_chat_bot_remembers_across_runs(tmp_path: Path) -> None:
    env = environment(tmp_path)

    assert "I will remember that." in run("chat_bot.py", env=env, said=f"{TEA}\n\n")
    assert TEA in run("chat_bot.py", env=env, said=f"{QUESTION}\n\n")


def test_the_chat_bot_asks_a_model(tmp_path: Path, model: HTTPServer) -> None:
    env = environment(tmp_path, model)
    run("chat_bot.py", env=env, said=f"{TEA}\n\n")

    assert TEA in run("chat_bot.py", env=env, said=f"{QUESTION}\n\n")


def test_the_research_agent_reads_once(tmp_path: Path) -> None:
    folder = tmp_path / "papers"
    folder.mkdir()
    (folder / "bees.txt").write_text("Bees dance to tell of flowers.\n")
    (folder / "whales.txt").write_text("Whales sleep with half of their brain.\n")
    asked = (str(folder), "How do whales sleep?")
    env = environment(tmp_path)

    first = run("research_agent.py", *asked, env=env)
    second = run("research_agent.py", *asked, env=env)

    assert "- read_file" in first
    assert first.endswith("I found in whales.txt: Whales sleep with half of their brain.\n")
    assert "- read_file" not in second
    assert "Whales sleep with half of their brain." in second


def test_the_research_agent_asks_a_model(tmp_path: Path, model: HTTPServer) -> None:
    env = environment(tmp_path, model)

    answer = run("research_agent.py", str(tmp_path), QUESTION, env=env)

    assert answer.startswith("The model was sent: ")
    assert QUESTION in answer


@contextmanager
def service(folder: Path, model: HTTPServer | None = None) -> Iterator[httpx.Client]:
    """Start the service, and yield a client of it once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(EXAMPLES / "fastapi_app.py")]
    env = environment(folder, model, PORT=str(port))
    with (
        subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL) as process,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=30) as client,
    ):
        try:
            _wait_until_answered(client, process)
            yield client
        finally:
            process.terminate()


def _wait_until_answered(client: httpx.Client, process: "subprocess.Popen[bytes]") -> None:
    while process.poll() is None:
        try:
            client.get("/openapi.json")
        except httpx.ConnectError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"the service ended with {process.returncode}")


def say(client: httpx.Client, who: str, text: str) -> str:
    headers = {"Authorization": f"Bearer {who}-token"}
    answer = client.post("/chats/1", json={"text": text}, headers=headers)
    assert answer.status_code == 200
    return str(answer.json()["reply"])


def memories(client: httpx.Client, who: str) -> Any:
    headers = {"Authorization": f"Bearer {who}-token"}
    return client.get("/memories", params={"query": "drink"}, headers=headers).json()


def test_the_service_keeps_its_users_apart(tmp_path: Path) -> None:
    with service(tmp_path) as client:
        say(client, "ann", TEA)
    with service(tmp_path) as client:  # a restart
        assert TEA in say(client, "ann", QUESTION)
        assert TEA not in say(client, "bob", QUESTION)
        assert TEA in memories(client, "ann")
        assert TEA not in memories(client, "bob")

        erased = client.delete("/me", headers={"Authorization": "Bearer ann-token"})

        assert erased.status_code == 204
        assert memories(client, "ann") == []
        assert client.get("/memories", params={"query": "drink"}).status_code in (401, 403)
        unknown = {"Authorization": "Bearer nobody"}
        assert client.get("/memories?query=drink", headers=unknown).status_code == 401


def test_the_service_asks_a_model(tmp_path: Path, model: HTTPServer) -> None:
    with service(tmp_path, model) as client:
        assert say(client, "ann", TEA).startswith("The model was sent: ")
