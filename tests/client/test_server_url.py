"""URLs of servers: which are valid, what the server decides, and where a key may be sent."""

import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
from tests.rows import each_row
from tests.timing import HANG

from orbiter.memory import AgentMemory, SummaryConfig, sync
from orbiter.memory.backends.registry import URL_VARIABLE, open_store
from orbiter.memory.client import RemoteMemory
from orbiter.memory.client._remote_memory import RemoteEngine
from orbiter.memory.client._server_url import TOKEN_VARIABLE
from orbiter.memory.errors import QueryError


@each_row(
    ("address", "url"),
    [
        ("http://127.0.0.1:8765", "http://127.0.0.1:8765"),
        ("HTTP://localhost/", "http://localhost"),
        ("https://example.com:8443/memory/", "https://example.com:8443/memory"),
        ("http://[::1]:80", "http://[::1]:80"),
        ("http://127.0.0.1:8765/v1/", "http://127.0.0.1:8765"),
    ],
)
def test_the_address_of_a_server_gives_a_memory_on_it(address: str, url: str) -> None:
    memory = AgentMemory(address, token="om_key")

    assert isinstance(memory._engine, RemoteEngine)
    assert memory.url == url
    assert repr(memory) == f"AgentMemory({url!r})"


def test_the_environment_names_server_and_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URL_VARIABLE, "https://example.com")
    monkeypatch.setenv(TOKEN_VARIABLE, "om_secret")

    memory = AgentMemory()

    assert isinstance(memory._engine, RemoteEngine)
    assert memory._engine._link.address.token == "om_secret"
    assert "om_secret" not in repr(memory._engine._link.address)
    own = AgentMemory("https://example.com", token="om_own")
    assert isinstance(own._engine, RemoteEngine)
    assert own._engine._link.address.token == "om_own"
    assert not isinstance(AgentMemory("memory://", embeddings=None)._engine, RemoteEngine)


@each_row(
    "address",
    [
        "http://ann:s3cret@127.0.0.1:8765",
        "https://s3cret@example.com",
        "http://127.0.0.1:8765?token=s3cret",
        "https://example.com/#s3cret",
        "http://",
        "http://:80",
        "http://[s3cret",
        "http://127.0.0.1:s3cret",
    ],
)
def test_what_is_no_address_of_a_server_is_refused_and_not_shown(address: str) -> None:
    with pytest.raises(QueryError, match="URL of a server|server URL") as caught:
        AgentMemory(address)

    assert "s3cret" not in "".join(traceback.format_exception(caught.value)[-1:])


def test_a_key_is_not_sent_in_the_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    for host in ("example.com", "10.0.0.5", "127.0.0.1.example.com", "0.0.0.0", "localhost.me"):
        with pytest.raises(QueryError, match=r"https://.*insecure=True") as caught:
            AgentMemory(f"http://{host}:8765", token="s3cret")
        assert "s3cret" not in str(caught.value)
        assert AgentMemory(f"http://{host}:8765").url.endswith(":8765"), "without a key it may be"
        AgentMemory(f"http://{host}:8765", token="s3cret", insecure=True)
        RemoteMemory(f"http://{host}:8765", token="s3cret", insecure=True)
        AgentMemory(f"https://{host}:8765", token="s3cret")
    monkeypatch.setenv(TOKEN_VARIABLE, "s3cret")
    with pytest.raises(QueryError, match="https://"):
        AgentMemory("http://example.com")


@pytest.mark.parametrize("kind", [AgentMemory, RemoteMemory])
def test_a_call_takes_a_minute_unless_the_program_says_otherwise(kind: type[AgentMemory]) -> None:
    usual = kind("http://127.0.0.1:1")._engine
    quick = kind("http://127.0.0.1:1", timeout=5.0)._engine

    assert isinstance(usual, RemoteEngine)
    assert isinstance(quick, RemoteEngine)
    assert usual._link.timeout == 60.0
    assert quick._link.timeout == 5.0


def test_blocking_memories_take_the_options_of_a_server_as_well() -> None:
    memory = sync.AgentMemory("http://example.com", token="om_key", timeout=5.0, insecure=True)

    assert memory.url == "http://example.com"


@pytest.mark.parametrize("option", [{"timeout": 5.0}, {"insecure": True}], ids=str)
def test_a_store_of_ones_own_takes_no_option_of_a_server(
    tmp_path: Path, option: dict[str, Any]
) -> None:
    name = next(iter(option))

    with pytest.raises(QueryError, match=rf"`{name}` is for a server, as in .*{name}="):
        AgentMemory(tmp_path / "a.db", **option)


@pytest.mark.parametrize("token", ["s3cret key", "s3cret\n", "s3crét", 7])
def test_what_no_header_can_carry_is_no_key(token: Any) -> None:
    with pytest.raises(QueryError, match="token") as caught:
        AgentMemory("http://127.0.0.1:1", token=token)

    assert "s3c" not in str(caught.value)


@each_row(
    "option",
    [
        {"embeddings": None},
        {"episodic": "sqlite:///a.db"},
        {"persona": "SOUL.md"},
        {"summaries": None},
        {"summaries": SummaryConfig()},
        {"count_tokens": len},
        {"secret": b"x"},
        {"row_security": True},
        {"audit": "writes"},
    ],
    ids=str,
)
def test_what_the_server_decides_is_refused_here(option: dict[str, Any]) -> None:
    with pytest.raises(QueryError, match=f"`{next(iter(option))}` is decided where the store is"):
        AgentMemory("http://127.0.0.1:1", **option)


def test_a_store_of_ones_own_takes_no_key(tmp_path: Path) -> None:
    with pytest.raises(QueryError, match="token"):
        AgentMemory(tmp_path / "a.db", token="om_key")
    with pytest.raises(TypeError, match="colour"):
        AgentMemory("http://127.0.0.1:1", colour="red")  # type: ignore[call-arg]
    with pytest.raises(QueryError, match=r"address of a server.*sqlite:///"):
        open_store("http://127.0.0.1:1")


def test_httpx_is_needed_by_whoever_names_a_server_and_nobody_else() -> None:
    program = """
import sys
from orbiter.memory import AgentMemory
AgentMemory("memory://", embeddings=None)
assert "httpx" not in sys.modules and "orbiter.memory.client" not in sys.modules
sys.modules["httpx"] = None
try:
    AgentMemory("http://127.0.0.1:1")
except ModuleNotFoundError as exc:
    print(exc)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=HANG
    )

    assert "pip install 'orbiter-memory[client]'" in done.stdout
