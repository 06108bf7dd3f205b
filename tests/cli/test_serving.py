"""`serve` and `keys`, as a shell and a terminal see them."""

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests.cli.conftest import Cli
from tests.cli.terminal import COMMAND, environment

from orbiter.memory.keys import KeyFile


@contextmanager
def serve(cli: Cli, *args: str) -> Iterator[tuple[dict[str, object], subprocess.Popen[str]]]:
    """Run a server; give what it tells of itself."""
    command = [*COMMAND, "serve", "--json", "--port", "0", "--no-mcp", "--no-dashboard", *args]
    with subprocess.Popen(
        command, env=environment(cli.url), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            assert line, process.communicate()[1]
            yield json.loads(line), process
        finally:
            process.kill()


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_it_serves_until_it_is_told_to_stop_and_logs_no_content(cli: Cli) -> None:
    made = cli.remember("likes tea")
    with serve(cli, "--log") as (told, process):
        url = str(told["url"])
        asked = {"user_id": "alice", "query": "tea"}
        found = httpx.get(f"{url}/v1/memories", params=asked).json()["items"]
        one = httpx.get(f"{url}/v1/memories/{made}", params={"user_id": "alice"})
        process.send_signal(signal.SIGINT)
        _, log = process.communicate(timeout=60)

    assert [item["content"] for item in found] == ["likes tea"]
    assert one.status_code == 200
    assert process.returncode == 0, log
    assert (told["keys"], told["needs_key"], told["store"]) == (0, False, cli.url)
    assert re.search(r"GET /v1/memories 200 [\d.]+ ms\n", log)
    assert "GET /v1/memories/{item_id} 200" in log
    assert not [word for word in (made, "tea", "alice", "Traceback") if word in log]


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_key_that_is_made_or_revoked_counts_while_it_serves(cli: Cli) -> None:
    cli.remember("likes tea")
    with serve(cli, "--read-only") as (told, process):
        url = f"{told['url']}/v1/memories"
        assert httpx.get(url, params={"user_id": "bob"}).status_code == 200
        token = cli.ok("keys", "create", "--user", "alice").strip()
        headers = {"Authorization": f"Bearer {token}"}
        without, with_it = httpx.get(url), httpx.get(url, headers=headers)
        changed = httpx.post(url, headers=headers, json={"what": "x"})
        cli.ok("keys", "revoke", token)
        after = httpx.get(url, headers=headers)
        process.terminate()
        process.communicate(timeout=60)

    assert process.returncode == 0
    assert (without.status_code, with_it.status_code, after.status_code) == (401, 200, 401)
    assert changed.status_code == 403
    assert len(with_it.json()["items"]) == 1


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.7"])
def test_without_keys_it_serves_this_computer_alone_and_says_the_way_out(
    cli: Cli, host: str
) -> None:
    result = cli("serve", "--host", host, "--port", "0", "--no-mcp", "--no-dashboard")

    assert result.exit_code == 2
    assert "orbiter-memory keys create" in result.stderr or "no address" in result.stderr
    assert not Path(cli.url).exists()


def test_a_port_that_is_taken_is_told_with_the_way_out(cli: Cli) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        result = cli("serve", "--port", port, "--no-mcp", "--no-dashboard")

    assert result.exit_code == 1
    assert f"port {port}" in result.stderr
    assert "--port 0" in result.stderr


def test_what_makes_no_sense_is_refused(cli: Cli) -> None:
    for args, word in (
        (("serve", "--tls-cert", "x.pem"), "--tls-key"),
        (("serve", "--port", "0", "--tls-cert", "x.pem", "--tls-key", "y.pem"), "`x.pem`"),
        (("serve", "--url", "http://127.0.0.1:1"), "is a server already"),
        (("keys", "create"), "--user"),
        (("keys", "create", "--role", "read"), "--role admin"),
        (("keys", "create", "--user", "a", "--expires", "yesterday"), "--expires"),
        (("keys", "create", "--user", "a", "--role", "root"), "root"),
        (("keys", "create", "--url", "memory://", "--user", "a"), "name a file"),
    ):
        result = cli(*args)
        assert result.exit_code == 2, (args, result.output)
        assert word in result.stderr, result.stderr


def test_keys_are_made_listed_and_revoked(cli: Cli) -> None:
    one = cli.json("keys", "create", "--user", "ann", "--session", "s", "--name", "laptop",
                   "--expires", "30d")  # fmt: skip
    admin = cli.ok("keys", "create", "--role", "admin").strip()
    listed = cli.json("keys")
    cli.ok("keys", "revoke", one["id"])
    table = cli.ok("keys", "list")
    missing = cli("keys", "revoke", "12345678")

    assert [(key["role"], key["scope"], key["state"]) for key in listed] == [
        ("write", {"user_id": "ann", "session_id": "s"}, "open"),
        ("admin", {}, "open"),
    ]
    assert one["key"] not in json.dumps(listed) + table
    assert table.splitlines()[0].split("\t")[:3] == [one["id"], "revoked", "write"]
    assert missing.exit_code == 3
    assert "keys list" in missing.stderr
    file = KeyFile(f"{cli.url}.keys.json")
    assert file.check(one["key"]) is None
    assert file.check(admin) is not None


def test_keys_may_be_in_another_file(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "door.json"

    token = cli.ok("keys", "create", "--user", "ann", "--keys", str(path)).strip()

    assert KeyFile(path).check(token) is not None
    assert not Path(f"{cli.url}.keys.json").exists()


def test_a_file_of_keys_that_others_can_read_is_refused(cli: Cli) -> None:
    cli.ok("keys", "create", "--user", "ann")
    Path(f"{cli.url}.keys.json").chmod(0o644)

    for args in (("keys", "list"), ("serve", "--port", "0", "--no-mcp", "--no-dashboard")):
        result = cli(*args)
        assert result.exit_code == 1
        assert "chmod 600" in result.stderr


def test_without_the_extra_it_says_what_to_install(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in sys.modules if each.startswith("orbiter.memory.server._")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)

    result = cli("serve", "--port", "0")

    assert result.exit_code == 1
    assert result.stderr == "error: a server needs uvicorn: pip install 'orbiter-memory[server]'\n"
