"""`serve --workers` as a command, and requests to one worker of it.

A request goes to whichever worker accepts its connection. So to reach one, the others are stopped
until that has answered a first request on the connection.
"""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.timing import HANG, until_blocking

__all__ = ["Answer", "WorkerServer", "is_there", "serve_workers"]

COMMAND = (sys.executable, "-m", "orbiter.memory.cli", "serve", "--json")


@dataclass(frozen=True)
class Answer:
    """The status and the body of an answer."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def data(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


@dataclass(eq=False)
class WorkerServer:
    """A supervisor with its workers."""

    process: subprocess.Popen[str]
    url: str
    token: str | None
    log: Path

    @property
    def pids(self) -> list[int]:
        """The processes of the workers now."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return [int(each) for each in children.split()]

    def connect(self) -> http.client.HTTPConnection:
        """Return a new connection, which any worker may accept."""
        address = urlsplit(self.url)
        return http.client.HTTPConnection(str(address.hostname), address.port, timeout=HANG)

    @contextmanager
    def on(self, pid: int) -> Iterator[http.client.HTTPConnection]:
        """Give a connection that the worker *pid* has accepted."""
        connection = self.connect()
        others = [each for each in self.pids if each != pid]
        for each in others:
            os.kill(each, signal.SIGSTOP)
        try:
            connection.request("GET", "/healthz")
            connection.getresponse().read()
        finally:
            for each in others:
                os.kill(each, signal.SIGCONT)
        try:
            yield connection
        finally:
            connection.close()

    def ask(
        self, method: str, path: str, body: Any = None, *, pid: int | None = None, **headers: str
    ) -> Answer:
        """Return the answer to a request, of the worker *pid* or of any."""
        if pid is None:
            connection = self.connect()
            try:
                return self.send(connection, method, path, body, **headers)
            finally:
                connection.close()
        with self.on(pid) as connection:
            return self.send(connection, method, path, body, **headers)

    def send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: Any = None,
        **headers: str,
    ) -> Answer:
        """Return the answer to a request on *connection*."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token is not None:
            given.setdefault("Authorization", f"Bearer {self.token}")
        data = None
        if body is not None:
            data, given["Content-Type"] = json.dumps(body).encode(), "application/json"
        connection.request(method, path, data, given)
        answer = connection.getresponse()
        return Answer(answer.status, answer.read(), dict(answer.getheaders()))

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of a metric over all of its labels that are not given."""
        text = self.ask("GET", "/metrics").body.decode()
        lines = [line for line in text.splitlines() if re.match(rf"orbiter_{name}[{{ ]", line)]
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        return sum(
            float(line.rpartition(" ")[2]) for line in lines if all(each in line for each in wanted)
        )

    def until_all_serve(self, count: int) -> list[int]:
        """Wait until *count* workers serve; return their processes."""
        until_blocking(lambda: self.metric("workers") == count, f"{count} workers")
        return self.pids

    def end(self) -> str:
        """End the server as an administrator does; return its log."""
        self.process.terminate()
        self.process.wait(HANG)
        return self.log.read_text()


@contextmanager
def serve_workers(
    url: str, folder: Path, *options: str, workers: int = 2, token: str | None = None
) -> Iterator[WorkerServer]:
    """Serve the store at *url* by several workers, all of which have begun."""
    log = folder / "server.log"
    env = {**os.environ, "ORBITER_MEMORY_URL": url, "XDG_DATA_HOME": str(folder / "data")}
    env.setdefault("ORBITER_MEMORY_MODEL", "none")
    with log.open("w") as errors:
        process = subprocess.Popen(
            [*COMMAND, "--port", "0", "--workers", str(workers), *options],
            env=env,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, log.read_text()
        server = WorkerServer(process, json.loads(line)["url"], token, log)
        server.until_all_serve(workers)
        yield server
    finally:
        pids = [process.pid]
        with suppress(OSError):
            pids += WorkerServer(process, "", None, log).pids
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate()


def is_there(pid: int) -> bool:
    """Tell whether a process runs."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
