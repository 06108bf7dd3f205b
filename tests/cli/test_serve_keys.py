"""`serve` and `keys`, as a shell and a terminal see them."""

import asyncio
import errno
import gc
import json
import os
import pty
import re
import signal
import socket
import socketserver
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from tests.cli.conftest import Cli
from tests.cli.terminal import COMMAND, environment
from tests.rerankers.tiny_models import by_shared_words, write
from tests.timing import HANG

from orbiter.memory.auth import KeyFile
from orbiter.memory.cli._text import moment
from orbiter.memory.cli.commands.serve import _new_loop
from orbiter.memory.tasks.event_loop import short_pauses


class NoHTTP(socketserver.BaseRequestHandler):
    """Another program at the port."""

    def handle(self) -> None:
        self.request.sendall(b"hello\r\n")


@contextmanager
def serve(
    cli: Cli, *args: str, by: str | None = None
) -> Iterator[tuple[dict[str, object], subprocess.Popen[str]]]:
    """Run a server, with a dashboard for somebody only; give what it tells of itself."""
    command = [*COMMAND, "serve", "--json", "--port", "0", "--no-mcp", *args]
    command += [] if by else ["--no-dashboard"]
    env = environment(cli.url) | ({"ORBITER_MEMORY_BY": by} if by else {})
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
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
        found = httpx.get(f"{url}/v1/memories", params=asked, timeout=HANG).json()["items"]
        one = httpx.get(f"{url}/v1/memories/{made}", params={"user_id": "alice"}, timeout=HANG)
        process.send_signal(signal.SIGINT)
        _, log = process.communicate(timeout=HANG)

    assert [item["content"] for item in found] == ["likes tea"]
    assert one.status_code == 200
    assert process.returncode == 0, log
    assert (told["keys"], told["needs_key"], told["store"]) == (0, False, cli.url)
    assert re.search(r"GET /v1/memories 200 [\d.]+ ms key=- tenant=[0-9a-f]{12} request=\w+\n", log)
    assert "GET /v1/memories/{item_id} 200" in log
    assert not [word for word in (made, "tea", "alice", "Traceback") if word in log]


def test_a_server_has_the_reranker_that_it_is_given(cli: Cli, tmp_path: Path) -> None:
    cli.remember("Eva lives in Oslo")
    folder = write(tmp_path / "reader", by_shared_words())
    with serve(cli, "--reranker", str(folder)) as (told, _):
        asked = {"query": "Where does Eva live?"}
        address = f"{told['url']}/v1/recall?user_id=alice"
        found = httpx.post(address, json=asked, timeout=HANG).json()

    assert found["reranking"]["texts"] == 1
    assert "reranker says 0.73" in found["hits"][0]["told"]


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_who_asks_twice_does_not_wait_for_what_is_under_way(cli: Cli) -> None:
    with serve(cli) as (told, process):
        address = httpx.URL(str(told["url"]))
        with socket.create_connection((address.host, address.port or 0)) as half:
            head = f"POST /v1/import?user_id=a HTTP/1.1\r\nHost: {address.netloc.decode()}\r\n"
            half.sendall(f"{head}Content-Length: 9\r\n\r\nhalf".encode())
            httpx.get(address.join("/healthz"), timeout=HANG)
            process.send_signal(signal.SIGINT)
            with suppress(httpx.TransportError):  # until nobody is let in any more
                while True:
                    httpx.get(address.join("/healthz"), timeout=HANG)
                    time.sleep(0.02)
            process.send_signal(signal.SIGINT)
            process.wait(timeout=HANG)  # while the other side keeps its connection
        _, log = process.communicate(timeout=HANG)

    assert process.returncode == -signal.SIGINT, log
    assert "Traceback" not in log


@pytest.fixture
def hears_sighup() -> Iterator[None]:
    """Let processes that are started hear it, though `nohup` may have the tests ignore it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("workers", [1, 2])
def test_every_line_of_a_log_in_json_is_json_from_start_to_stop(cli: Cli, workers: int) -> None:
    cli.remember("likes tea")
    with closing(sqlite3.connect(cli.url.removeprefix("sqlite:///"))) as file, file:
        file.execute("UPDATE memory_meta SET value = value + 1 WHERE key = 'terms'")
    options = ("--log-format", "json", "--log-level", "debug", "--workers", str(workers))
    with serve(cli, *options) as (told, process):
        asked = {"user_id": "alice", "query": "tea"}
        name = {"X-Request-ID": "r-1"}
        httpx.get(f"{told['url']}/v1/memories", params=asked, headers=name, timeout=HANG)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=HANG)

    lines = [json.loads(line) for line in log.splitlines()]
    messages = [line.get("message", "") for line in lines]
    assert any(each.startswith("a newer version of orbiter-memory") for each in messages)
    (start,) = [each for each in messages if each.startswith("it serves ")]
    count = "1 worker" if workers == 1 else "2 workers"
    expected = (
        f"{told['url']}: orbiter-memory {version('orbiter-memory')}, {count}, store {cli.url}"
    )
    assert start == f"it serves {expected}, schema {told['schema']}"
    (begun,) = [line for line in lines if line.get("request") == "r-1"]
    assert (begun["level"], begun["event"], begun["route"]) == ("debug", "begins", "/v1/memories")
    assert messages[-1].startswith("it has stopped")
    assert "tea" not in log.replace(cli.url, "")


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_log_in_json_is_all_that_a_container_prints(cli: Cli) -> None:
    """Whoever runs one collects stdout and stderr as one log."""
    cli.remember("likes tea")
    command = [*COMMAND, "serve", "--port", "0", "--no-mcp", "--log-format", "json"]
    with subprocess.Popen(
        command,
        env=environment(cli.url),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=HANG)

    lines = [json.loads(line) for line in [first, *rest.splitlines()]]
    assert lines[0]["message"].startswith("it serves ")
    assert lines[-1]["message"].startswith("it has stopped")


@pytest.mark.usefixtures("hears_sighup")
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_sighup_does_not_end_a_server_without_workers_and_says_what_does_reload(cli: Cli) -> None:
    with serve(cli) as (told, process):
        assert process.stderr is not None
        process.stderr.readline()  # that it serves
        process.send_signal(signal.SIGHUP)
        line = process.stderr.readline()
        status = httpx.get(f"{told['url']}/healthz", timeout=HANG).status_code
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=HANG)

    assert status == 200
    assert "SIGHUP" in line
    assert "`--workers 2` or more" in line
    assert "restart" in line
    assert process.returncode == 0
    begun, over = rest.splitlines()
    assert "INFO it stops: requests under way have 3 s" in begun
    assert "INFO it has stopped" in over


@pytest.mark.usefixtures("hears_sighup")
@pytest.mark.skipif(sys.platform == "win32", reason="terminals of POSIX")
def test_a_server_ends_with_the_terminal_it_was_started_in(cli: Cli) -> None:
    ours, theirs = pty.openpty()
    # A terminal belongs to the first process of a session that opens it.
    opened = ["sh", "-c", 'exec "$@" <"$0" >"$0" 2>&1', os.ttyname(theirs)]
    with subprocess.Popen(
        [*opened, *COMMAND, "serve", "--port", "0", "--no-mcp", "--no-dashboard"],
        env=environment(cli.url),
        start_new_session=True,
    ) as process:
        shown = b""
        while b"Ctrl-C" not in shown:
            shown += os.read(ours, 65_536)
        os.close(ours)
        os.close(theirs)
        try:
            process.wait(HANG)
        finally:
            process.kill()

    assert process.returncode != -signal.SIGHUP


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_key_that_is_made_or_revoked_counts_while_it_serves(cli: Cli) -> None:
    cli.remember("likes tea")
    with serve(cli, "--read-only") as (told, process):
        url = f"{told['url']}/v1/memories"
        assert httpx.get(url, params={"user_id": "bob"}, timeout=HANG).status_code == 200
        token = cli.ok("keys", "create", "--user", "alice").strip()
        headers = {"Authorization": f"Bearer {token}"}
        without, with_it = (
            httpx.get(url, timeout=HANG),
            httpx.get(url, headers=headers, timeout=HANG),
        )
        changed = httpx.post(url, headers=headers, json={"what": "x"}, timeout=HANG)
        remote = ("--url", str(told["url"]), "--token", token)
        checked, counted = cli("doctor", *remote), cli("stats", *remote)
        cli.ok("keys", "revoke", token)
        after = httpx.get(url, headers=headers, timeout=HANG)
        process.terminate()
        process.communicate(timeout=HANG)

    assert process.returncode == 0
    assert (without.status_code, with_it.status_code, after.status_code) == (401, 200, 401)
    assert changed.status_code == 403
    assert (checked.exit_code, counted.exit_code) == (0, 0), checked.output + counted.output
    assert "the key of an administrator" in checked.stdout
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


def test_a_check_asks_the_server_with_these_settings_whether_it_is_ready(cli: Cli) -> None:
    with serve(cli) as (told, process):
        port = str(httpx.URL(str(told["url"])).port)
        ready = cli("serve", "--check", "--host", "0.0.0.0", "--port", port)
        process.kill()
        process.wait(timeout=HANG)
        gone = cli("serve", "--check", "--port", port)
    free = cli("serve", "--check", "--port", "0")
    with socketserver.TCPServer(("127.0.0.1", 0), NoHTTP) as other:
        threading.Thread(target=other.handle_request, daemon=True).start()
        strange = cli("serve", "--check", "--port", str(other.server_address[1]))

    assert (ready.exit_code, ready.stdout) == (0, f"http://127.0.0.1:{port} is ready\n")
    assert gone.exit_code == 1
    assert f"http://127.0.0.1:{port} is not ready: " in gone.stderr
    assert strange.exit_code == 1
    assert "is not ready: " in strange.stderr
    assert free.exit_code == 2
    assert "`--port`" in free.stderr


def test_what_makes_no_sense_is_refused(cli: Cli) -> None:
    for args, word in (
        (("serve", "--tls-cert", "x.pem"), "--tls-key"),
        (("serve", "--port", "0", "--tls-cert", "x.pem", "--tls-key", "y.pem"), "`x.pem`"),
        (("serve", "--url", "http://127.0.0.1:1"), "is a server already"),
        (("serve", "--oidc-issuer", "https://a.example.com"), "--oidc-audience"),
        (("serve", "--oidc-audience", "x"), "--oidc-issuer"),
        (("serve", "--oidc-issuer", "http://a.org", "--oidc-audience", "x"), "use `https://…`"),
        (("serve", "--allow-host", "a.com,b.com"), "repeat `--allow-host`"),
        (("serve", "--allow-host", "https://bad.org/x"), "without a scheme"),
        (("serve", "--allow-host", ""), "is not a host name"),
        (("serve", "--allow-host", "a.com:99999"), "is not a host name"),
        (("serve", "--allow-host", "*.a.com"), "is not a host name"),
        (("serve", "--rate", "inf"), "'--rate': "),
        (("serve", "--rate", "nan"), "'--rate': "),
        (("serve", "--drain", "inf"), "'--drain': "),
        (("serve", "--drain", "nan"), "'--drain': "),
        (("serve", "--drain", "-1"), "'--drain': "),
        (("serve", "--reranker", "/nope"), "there is no file `/nope`; name an ONNX file"),
        (("keys", "create"), "--user"),
        (("keys", "create", "--role", "read"), "--role admin"),
        (("keys", "create", "--user", "a", "--expires", "yesterday"), "--expires"),
        (("keys", "create", "--user", "a", "--role", "root"), "root"),
        (("keys", "create", "--url", "memory://", "--user", "a"), "give a file"),
    ):
        result = cli(*args)
        assert result.exit_code == 2, (args, result.output)
        assert word in result.stderr, result.stderr


def test_keys_are_made_listed_and_revoked(cli: Cli) -> None:
    one = cli.json("keys", "create", "--user", "ann", "--session", "s", "--name", "laptop",
                   "--expires", "30d")  # fmt: skip
    admin = cli.ok("keys", "create", "--role", "admin").strip()
    listed = cli.json("keys", "list")
    cli.ok("keys", "revoke", one["id"])
    table = cli.ok("keys", "list")
    missing = cli("keys", "revoke", "12345678")

    assert [(key["role"], key["scope"], key["state"]) for key in listed] == [
        ("write", {"user_id": "ann", "session_id": "s"}, "open"),
        ("admin", {}, "open"),
    ]
    assert one["key"] not in json.dumps(listed) + table
    assert table.splitlines()[0].split("\t")[:3] == [one["id"], "revoked", "write"]
    ends = [line.split("\t")[5] for line in table.splitlines()]
    assert ends == [moment(datetime.fromisoformat(one["expires_at"])), ""]
    assert missing.exit_code == 3
    assert "keys list" in missing.stderr
    assert f"`{cli.url}.keys.json`" in missing.stderr
    file = KeyFile(f"{cli.url}.keys.json")
    assert file.check(one["key"]) is None
    assert file.check(admin) is not None


def test_a_key_that_a_full_disk_keeps_from_being_revoked_says_what_to_do(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    key_id = cli.json("keys", "create", "--user", "ann")["id"]
    file = Path(f"{cli.url}.keys.json")
    before = file.read_bytes()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    result = cli("keys", "revoke", key_id)

    assert result.exit_code == 1
    assert "the disk is full, so nothing was changed" in result.stderr
    assert "free some space and repeat this, or stop the server" in result.stderr
    assert file.read_bytes() == before
    assert [each.name for each in file.parent.glob("*.new")] == []
    monkeypatch.undo()
    assert cli("keys", "revoke", key_id).exit_code == 0


def test_what_is_kept_of_a_revoked_key_is_removed(cli: Cli) -> None:
    key = cli.json("keys", "create", "--user", "alice", "--name", "Alice's phone")["id"]
    cli.ok("keys", "create", "--user", "bob")
    too_early = cli("keys", "revoke", key, "--remove")
    cli.ok("keys", "revoke", key)

    assert cli.ok("keys", "revoke", key, "--remove").strip() == f"✓ {key} is removed"

    assert too_early.exit_code != 0
    assert "revoke it first" in too_early.output
    listed = cli.ok("keys", "list", "--json")
    assert key not in listed
    assert "alice" not in listed.lower()


def test_a_key_is_revoked_by_a_part_of_its_id_or_its_name(cli: Cli) -> None:
    one, two, three = (
        cli.json("keys", "create", "--user", "ann", "--name", name)
        for name in ("laptop", "phone", "phone")
    )

    named = cli.json("keys", "revoke", "laptop")
    begun = cli.json("keys", "revoke", two["id"][:5])
    short = cli("keys", "revoke", three["id"][:3])
    ended = cli.json("keys", "revoke", three["id"][-5:])

    assert (named["id"], named["state"]) == (one["id"], "revoked")
    assert (begun["id"], ended["id"]) == (two["id"], three["id"])
    assert short.exit_code == 3
    assert "keys list" in short.stderr


def test_what_means_several_keys_lists_them_and_revokes_none(cli: Cli) -> None:
    made = [cli.json("keys", "create", "--user", "ann", "--name", "phone") for _ in range(2)]
    path = Path(f"{cli.url}.keys.json")
    ids = [f"ab12{number}{key['id'][5:]}" for number, key in enumerate(made)]
    text = path.read_text()
    for key, named in zip(made, ids, strict=True):
        text = text.replace(key["id"], named)
    path.write_text(text)

    for which in ("ab12", "phone"):
        refused = cli("keys", "revoke", which)
        assert refused.exit_code == 2
        assert "ambiguous" in refused.stderr
        assert all(each in refused.stderr for each in ids)
    assert [key["state"] for key in cli.json("keys", "list")] == ["open", "open"]
    assert cli.json("keys", "rotate", ids[0][:6])["replaces"]["id"] == ids[0]


def test_the_end_of_a_rotated_key_is_told_to_the_second_with_the_zone(cli: Cli) -> None:
    made = cli.json("keys", "create", "--user", "alice")

    told = cli("keys", "rotate", made["id"], "--overlap", "12h").stderr

    assert re.search(r"works until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+", told), told


def test_a_key_is_rotated_and_both_are_listed(cli: Cli) -> None:
    old = cli.json("keys", "create", "--user", "ann", "--name", "agent")
    new = cli.json("keys", "rotate", "agent", "--overlap", "12h")
    listed = cli.json("keys", "list")
    rows = [line.split("\t") for line in cli.ok("keys", "list").splitlines()]
    plain = cli("keys", "rotate", new["key"], "--overlap", "0h", "--expires", "30d")
    file = KeyFile(f"{cli.url}.keys.json")

    assert (new["name"], new["scope"]) == ("agent", {"user_id": "ann"})
    assert [(row[0], row[-1]) for row in rows] == [(old["id"], new["id"]), (new["id"], "")]
    assert (new["replaces"]["id"], new["replaces"]["replaced_by"]) == (old["id"], new["id"])
    assert [(key["id"], key["state"], key["replaced_by"]) for key in listed] == [
        (old["id"], "open", new["id"]),
        (new["id"], "open", None),
    ]
    assert len(plain.stdout.split()) == 1, "a pipe gets the key alone"
    assert f"`{new['id']}` ends now" in plain.stderr
    opens = [
        file.check(each) is not None for each in (old["key"], new["key"], plain.stdout.strip())
    ]
    assert opens == [True, False, True]
    for args, code, word in (
        (("nobody",), 3, "keys list"),
        (("agent", "--overlap", "soon"), 2, "--overlap"),
        ((old["id"],), 2, f"replaced by `{new['id']}`"),
    ):
        refused = cli("keys", "rotate", *args)
        assert (refused.exit_code, word in refused.stderr) == (code, True), refused.output


def test_keys_may_be_in_another_file(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "door.json"

    token = cli.ok("keys", "create", "--user", "ann", "--keys", str(path)).strip()

    assert KeyFile(path).check(token) is not None
    assert not Path(f"{cli.url}.keys.json").exists()


def test_a_file_of_keys_that_is_named_and_not_there_serves_nothing(
    cli: Cli, tmp_path: Path
) -> None:
    result = cli("serve", "--port", "0", "--keys", str(tmp_path / "typo.json"))

    assert result.exit_code == 2
    assert f"keys create --user NAME --url {cli.url} --keys {tmp_path}/typo.json" in result.stderr
    assert not Path(cli.url).exists()


def test_a_pipe_is_warned_of_what_crosses_the_network_and_of_keys_that_open_nothing(
    cli: Cli,
) -> None:
    key = cli.json("keys", "create", "--user", "ann")
    cli.ok("keys", "revoke", key["id"])
    with serve(cli, "--host", "0.0.0.0") as (told, process):
        process.terminate()
        _, warned = process.communicate(timeout=HANG)

    assert (told["keys"], told["needs_key"]) == (0, True)
    assert "cross the network unencrypted" in warned
    assert f"`orbiter-memory keys create --url {cli.url} --user NAME`" in warned


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
    for name in [each for each in sys.modules if each.startswith("orbiter.memory.server.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)

    result = cli("serve", "--port", "0")

    assert result.exit_code == 1
    error, *notes = result.stderr.splitlines()
    assert error == "error: a server needs uvicorn: pip install 'orbiter-memory[server]'"
    assert [note.startswith("note: ") for note in notes] in ([], [True])  # [] is from an index


def test_a_server_seldom_looks_at_all_objects_and_leaves_things_as_they_were() -> None:
    before = gc.get_threshold(), sys.getswitchinterval()

    with short_pauses():
        full, interval = gc.get_threshold()[2], sys.getswitchinterval()
        frozen = gc.get_freeze_count()

    assert full >= 10 * before[0][2]
    assert interval < before[1]
    assert frozen
    assert not gc.get_freeze_count()
    assert (gc.get_threshold(), sys.getswitchinterval()) == before


@pytest.mark.parametrize("is_installed", [True, False])
def test_it_runs_on_uvloop_where_that_is_installed(
    monkeypatch: pytest.MonkeyPatch, *, is_installed: bool
) -> None:
    fast = asyncio.new_event_loop()
    module = SimpleNamespace(new_event_loop=lambda: fast) if is_installed else None
    monkeypatch.setitem(sys.modules, "uvloop", module)
    loop = _new_loop()
    assert (loop is fast) is is_installed
    assert loop.run_until_complete(asyncio.sleep(0, "runs")) == "runs"
    loop.close()
    fast.close()


def test_a_key_of_one_user_is_not_used_for_another(cli: Cli) -> None:
    cli.remember("Alice likes tea")
    cli.remember("Bob likes coffee", "--user", "bob")
    key = cli.json("keys", "create", "--user", "alice", "--role", "admin")["key"]
    with serve(cli) as (told, _):
        server = Cli(str(told["url"]), {"ORBITER_MEMORY_TOKEN": str(key)})

        own = server("list", "--user", "alice")
        for args in (["list"], ["recall", "likes"], ["stats"], ["erase", "--yes"]):
            other = server(*args, "--user", "bob")
            assert other.exit_code == 2, other.output
            assert "the key is for user `alice`, and --user is `bob`; leave `--user` out" in (
                other.stderr
            )
            assert "likes" not in other.stdout
        noted = server("list", env={"ORBITER_MEMORY_USER": "bob"})
        everyone = server("list", "--all")
        erase = httpx.post(
            f"{told['url']}/v1/erase",
            json={"user_id": "bob"},
            headers={"Authorization": f"Bearer {key}"},
            timeout=HANG,
        )

    assert "Alice likes tea" in own.stdout
    assert own.stderr == ""
    assert "the key is for user `alice`, and ORBITER_MEMORY_USER is `bob`" in noted.stderr
    assert "Alice likes tea" in noted.stdout
    assert "the key is for user `alice`; `--all` is nothing more" in everyone.stderr
    assert erase.status_code == 403
    assert "cannot erase what is of another" in erase.json()["detail"]
    assert len(cli.json("list", "--all")["items"]) == 2
