"""Server processes for tests: a free port, a private folder, a log, and an end that is certain.

A watcher process reads a pipe that only we hold open. When we end, however we end, it stops the
servers that are left and removes their folders. `PR_SET_PDEATHSIG` would not do: it ends the server
with the thread that started it. This file is the watcher's program too, run without the package
around it, so it imports nothing but the standard library.
"""

import atexit
import contextlib
import importlib
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import TypedDict

__all__ = [
    "Account",
    "ServerProcess",
    "answers",
    "everyone_may_enter",
    "free_port",
    "imported",
    "installed",
    "memory_disk",
    "private_folder",
    "remove_folder",
    "run",
    "unprivileged",
    "wait_until",
]

_START_SECONDS = 120.0
_STOP_SECONDS = 120.0
_POLL_SECONDS = 0.005


@dataclass(frozen=True)
class Account:
    """Whom a program runs as."""

    uid: int
    gid: int


def unprivileged() -> Account | None:
    """Return `nobody` for a caller who is root, `None` for anyone else."""
    if os.getuid() != 0:
        return None
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError as exc:
        raise RuntimeError(
            "Postgres refuses to run as root, and there is no user `nobody`"
        ) from exc
    return Account(uid=entry.pw_uid, gid=entry.pw_gid)


def everyone_may_enter(folder: Path) -> bool:
    """Tell whether a user without privileges gets as far as *folder*."""
    folder = folder.resolve()
    return all(step.stat().st_mode & stat.S_IXOTH for step in (folder, *folder.parents))


def private_folder(*, owner: Account | None = None, in_memory: bool = False) -> Path:
    """Make a folder that only *owner* (and root) may enter; it does not outlive this process.

    *in_memory* is a wish: it lies on a disk where there is no memory disk or it is nearly full.
    """
    folder = Path(tempfile.mkdtemp(prefix="orbiter-", dir=_parent(owner, in_memory=in_memory)))
    _watcher.tell("+folder", folder)
    if owner is not None:
        os.chown(folder, owner.uid, owner.gid)
    return folder


def remove_folder(folder: Path) -> None:
    """Remove a folder made by `private_folder`."""
    _remove(folder)
    _watcher.tell("-folder", folder)


def installed(requirement: str, *, for_tests_with: str) -> Path:
    """Return the folder of the package; raise `ModuleNotFoundError` with the line to install it."""
    spec = importlib.util.find_spec(requirement.partition("==")[0].replace("-", "_"))
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(
            f"tests with {for_tests_with} need a server: pip install {requirement}"
        )
    return Path(spec.origin).parent


def imported(package: str, *, for_tests_with: str) -> ModuleType:
    """Import *package*; raise `ModuleNotFoundError` with the line to install it."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as exc:
        cure = f"tests with {for_tests_with} need {package}: pip install {package}"
        raise ModuleNotFoundError(cure) from exc


def answers(port: int, *, question: str, answer: bytes) -> bool:
    """Tell whether *answer* is in what the server says to *question* before it hangs up."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0) as client:
        client.sendall(question.encode())
        said = b""
        while answer not in said and (more := client.recv(1024)):
            said += more
        return answer in said
    return False


def wait_until(happens: Callable[[], bool], *, what: str, seconds: float = _START_SECONDS) -> None:
    """Return as soon as *happens* returns true; raise `RuntimeError` if it takes too long."""
    deadline = time.monotonic() + seconds
    while not happens():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what} did not come about in {seconds:g} s")
        time.sleep(_POLL_SECONDS)


def memory_disk(*, gigabytes: int) -> Path | None:
    """Return where files lie in memory, if that may be written and has room."""
    disk = Path("/dev/shm")
    has_room = os.access(disk, os.W_OK) and shutil.disk_usage(disk).free > gigabytes * 1024**3
    return disk if has_room else None


def _parent(owner: Account | None, *, in_memory: bool) -> Path:
    memory = memory_disk(gigabytes=2) if in_memory else None
    if memory is not None:
        return memory
    usual = Path(tempfile.gettempdir())
    return usual if owner is None or everyone_may_enter(usual) else Path("/tmp")


def run(command: Sequence[str], *, folder: Path, account: Account | None) -> None:
    """Run *command* to its end in *folder*; raise `RuntimeError` with its output if it fails."""
    done = subprocess.run(
        command,
        check=False,
        cwd=folder,
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        **_identity(account),
    )
    if done.returncode:
        output = done.stdout.decode(errors="replace")
        raise RuntimeError(f"`{command[0]}` ended with code {done.returncode}:\n{output}")


def _environment() -> Mapping[str, str]:
    """Return our variables without the ones that steer Postgres, in the language of our tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return {**kept, "LC_ALL": "C"}


class ServerProcess:
    """One server on one loopback port that can be stopped and started again."""

    def __init__(
        self,
        name: str,
        *,
        command: Callable[[int], Sequence[str]],
        is_ready: Callable[[int, int], bool],
        end_signal: int,
        folder: Path,
        account: Account | None = None,
    ) -> None:
        self.name = name
        self.folder = folder
        self.log = folder / "server.log"
        self.port = 0
        self._command = command
        self._is_ready = is_ready
        self._end_signal = end_signal
        self._account = account
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The process id, `None` while it is down."""
        if self._process is None or self._process.poll() is not None:
            return None
        return self._process.pid

    def start(self) -> None:
        """Start on the port of last time, at first on a free one; return when it is ready."""
        if self._closed:
            raise RuntimeError(f"this {self.name} server is closed; start a new one")
        if self.pid is not None:
            return
        self._reap()
        is_first = self.port == 0
        for chances in (4, 3, 2, 1, 0):
            if is_first:
                self.port = free_port()
            try:
                self._launch()
            except RuntimeError as error:
                # Someone may take the port between our look at it and the server's.
                if not (is_first and chances and "ddress already in use" in str(error)):
                    raise
            else:
                return

    def stop(self, signal_number: int) -> None:
        """Send the signal and wait for the end; nothing happens to a server that is down."""
        process = self._process
        if process is None:
            return
        try:
            process.send_signal(signal_number)
            process.send_signal(signal.SIGCONT)  # a test may have frozen it
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired as exc:
            process.kill()
            raise RuntimeError(self._failure(f"did not stop in {_STOP_SECONDS:g} s")) from exc
        finally:
            self._reap()

    def close(self) -> None:
        """Stop for good and remove the folder. Idempotent."""
        if self._closed:
            return
        self._closed = True
        try:
            self.stop(self._end_signal)
        finally:
            remove_folder(self.folder)

    def _launch(self) -> None:
        with self.log.open("ab") as log:
            self._process = process = subprocess.Popen(
                self._command(self.port),
                cwd=self.folder,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the tests; their teardown wants a server
                **_identity(self._account),
            )
        _watcher.add(self)
        _watcher.tell("+process", process.pid)
        try:
            self._await(process)
        except BaseException:  # an interrupted wait leaves no server
            process.kill()
            self._reap()
            raise

    def _await(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not self._is_ready(process.pid, self.port):
            if process.poll() is not None:
                what = f"ended with code {process.returncode} while starting"
                raise RuntimeError(self._failure(what))
            if time.monotonic() > deadline:
                raise RuntimeError(self._failure(f"was not ready in {_START_SECONDS:g} s"))
            time.sleep(_POLL_SECONDS)

    def _reap(self) -> None:
        if self._process is not None:
            self._process.wait()
            _watcher.tell("-process", self._process.pid)
            _watcher.discard(self)
            self._process = None

    def _failure(self, what: str) -> str:
        tail = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-20:]
        return "\n  ".join([f"the {self.name} server {what}; the end of its log:", *tail])


class _Watcher:
    """Our end of the pipe, and the servers to close when we end in good order."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: subprocess.Popen[str] | None = None
        self._running: set[ServerProcess] = set()

    def add(self, server: ServerProcess) -> None:
        self._running.add(server)

    def discard(self, server: ServerProcess) -> None:
        self._running.discard(server)

    def tell(self, verb: str, what: int | Path) -> None:
        with self._lock:
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", __file__],
                    cwd="/",
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    text=True,
                )
                atexit.register(self._finish)
            if self._process.stdin is not None:
                print(verb, what, file=self._process.stdin, flush=True)

    def _finish(self) -> None:
        for server in list(self._running):
            server.close()
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()


_watcher = _Watcher()


class _Identity(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]


def _identity(account: Account | None) -> _Identity:
    if account is None:
        return {}
    return {"user": account.uid, "group": account.gid, "extra_groups": []}


def free_port() -> int:
    """Return a loopback port that nobody listens on at this moment."""
    # Below the range from which the system takes the ports of clients: there, a client that calls
    # a stopped server again and again can end up connected to itself, and holds the port.
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port


def _remove(folder: Path) -> None:
    # The helpers of a killed Postgres write for a moment longer than it lives.
    for _ in range(20):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.05)


def _is_server(pid: int) -> bool:
    with contextlib.suppress(OSError):  # no `/proc`, or no such process
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        if state.rpartition(") ")[2].startswith("Z"):  # some first processes are slow to reap
            return False
    try:
        return os.getsid(pid) == pid  # as every server we started; a reused id hardly is
    except ProcessLookupError:
        return False


def _watch(lines: Iterable[str]) -> None:
    """Keep account of what is alive until the pipe closes, then end it."""
    left: dict[str, set[str]] = {"process": set(), "folder": set()}
    for line in lines:
        verb, what = line.rstrip("\n").split(" ", 1)
        (left[verb[1:]].add if verb[0] == "+" else left[verb[1:]].discard)(what)
    pids = [int(pid) for pid in left["process"]]
    # To Postgres a fast shutdown, so that it frees its shared memory; to Valkey, an orderly end.
    for number, seconds in ((signal.SIGINT, 2.0), (signal.SIGKILL, 1.0)):
        deadline = time.monotonic() + seconds
        for pid in filter(_is_server, pids):
            os.kill(pid, number)
        while any(map(_is_server, pids)) and time.monotonic() < deadline:
            time.sleep(0.02)
    for folder in left["folder"]:
        _remove(Path(folder))


if __name__ == "__main__":
    _watch(sys.stdin)
