"""The programs of `examples/`: each is started as a user starts it, and remembers."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.docs.model_server import model_server

EXAMPLES = Path(__file__).parents[2] / "examples"
TEA = "My favourite drink is green tea"
QUESTION = "What is my favourite drink?"


@pytest.fixture
def model() -> Iterator[HTTPServer]:
    """Be a server with the API of OpenAI, which answers with all that it was sent."""

    with model_server(lambda sent: "The model was sent: " + json.dumps(sent)) as server:
        yield server


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


def without(folder: Path, *modules: str) -> dict[str, str]:
    """Return variables with which these modules cannot be imported, as if not installed."""
    hidden = folder / "hidden"
    hidden.mkdir()
    for name in modules:
        missing = f"raise ModuleNotFoundError(\"No module named '{name}'\", name='{name}')\n"
        (hidden / f"{name}.py").write_text(missing)
    return {"PYTHONPATH": str(hidden)}


def refusal(name: str, *arguments: str, env: dict[str, str]) -> str:
    """Return the one line on stderr with which an example ends."""
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(
        command, env=env, check=False, capture_output=True, text=True, input="", timeout=60
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    return line


def test_a_script_answers_without_a_package_for_models(tmp_path: Path) -> None:
    env = environment(tmp_path, None, **without(tmp_path, "openai"))

    assert "I will remember that." in run("chat_bot.py", env=env, said=f"{TEA}\n\n")
    assert "- list_files" in run("research_agent.py", str(EXAMPLES), "What is tea?", env=env)


@pytest.mark.parametrize("name", ["chat_bot.py", "research_agent.py", "fastapi_app.py"])
def test_a_missing_package_is_named_in_one_line(tmp_path: Path, name: str) -> None:
    env = environment(tmp_path, None, **without(tmp_path, "openai"), OPENAI_API_KEY="none")

    line = refusal(name, env=env)

    assert "pip install " in line
    assert line.endswith("openai")


@pytest.mark.parametrize(
    ("name", "module", "packages"),
    [
        ("fastapi_app.py", "fastapi", "fastapi uvicorn"),
        ("fastapi_app.py", "uvicorn", "fastapi uvicorn"),
        ("langgraph_agent.py", "langchain", "langchain"),
    ],
)
def test_a_missing_framework_is_named_in_one_line(
    tmp_path: Path, name: str, module: str, packages: str
) -> None:
    env = environment(tmp_path, None, **without(tmp_path, module))

    assert refusal(name, env=env) == f"`{module}` is missing: pip install {packages}"


@pytest.mark.parametrize("arguments", [(), (str(EXAMPLES),), ("nowhere", QUESTION)])
def test_the_research_agent_says_how_it_is_called(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    line = refusal("research_agent.py", *arguments, env=environment(tmp_path))

    assert line == 'usage: python examples/research_agent.py FOLDER "a question"'


def test_the_chat_bot_remembers_across_runs(tmp_path: Path) -> None:
    env = environment(tmp_path)

    assert "I will remember that." in run("chat_bot.py", env=env, said=f"{TEA}\n\n")
    answered = run("chat_bot.py", env=env, said=f"Where do I work?\n{QUESTION}\n\n")
    again = run("chat_bot.py", env=env, said=f"{QUESTION}\n\n")  # its own answer is known now, too

    assert answered == f"> You have not told me yet.\n> You told me: {TEA}\n> "
    assert again == f"> You told me: {TEA}\n> "


def test_the_chat_bot_ends_where_its_input_does(tmp_path: Path) -> None:
    assert (
        run("chat_bot.py", env=environment(tmp_path), said=TEA) == "> I will remember that.\n> \n"
    )


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
    assert second.endswith(
        "I remember: Whales sleep with half of their brain. (found in whales.txt)\n"
    )
    other = run("research_agent.py", str(folder), "Of what do bees tell?", env=env)
    assert other.endswith("I found in bees.txt: Bees dance to tell of flowers.\n")


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
        assert say(client, "ann", QUESTION) == f"You told me: {TEA}"
        assert say(client, "bob", QUESTION) == "You have not told me yet."
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
