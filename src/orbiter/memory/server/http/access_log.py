"""The log of a server: a line for each request, as text or as JSON; nothing that anybody said.

A line has the route and not the path, the id of the key and not the key, a digest of the user's id
and not the id. The id of a request is the client's own, if it sent one that can be logged as it is.
"""

import hashlib
import json
import logging
import re
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal
from urllib.parse import parse_qs

from starlette.types import Scope

__all__ = [
    "REFUSED_KEY",
    "LogFormat",
    "formatter",
    "log_begin",
    "log_request",
    "log_to_stderr",
    "logs_begin",
    "request_id",
    "tenant_digest",
]

LogFormat = Literal["text", "json"]

_LOG = logging.getLogger("orbiter.memory.server.access")
_BEGINS = logging.getLogger("orbiter.memory.server.begins")
_HEADER = b"x-request-id"
_PLAIN = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}", re.ASCII)
_FIELDS = "request_fields"
REFUSED_KEY = "refused_key"
"""Where the state of a request has the id of a key that is revoked or expired."""


def request_id(scope: Scope) -> str:
    """Return what the client calls its request, or else a name that no other request has."""
    values = [value for name, value in scope["headers"] if name.lower() == _HEADER]
    own = values[0].decode("latin-1") if len(values) == 1 else ""
    return own if _PLAIN.fullmatch(own) else secrets.token_hex(8)


def tenant_digest(user_id: str) -> str:
    """Return what stands for a user in the log: the first 12 digits of the SHA-256 of the id."""
    return hashlib.sha256(user_id.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def log_request(
    scope: Scope, *, method: str, route: str, status: int, seconds: float, request: str
) -> None:
    """Log a request that was answered with *status*; zero if it never was."""
    state = scope.get("state", {})
    principal = state.get("principal")
    user = principal and principal.scope.user_id
    if principal is not None and user is None:
        user = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("user_id", [None])[0]
    fields = {
        "method": method,
        "route": route,
        "status": status or "cut",
        "ms": round(seconds * 1_000, 1),
        "key": state.get(REFUSED_KEY) if principal is None else principal.key_id,
        "tenant": None if user is None else tenant_digest(user),
        "request": request,
    }
    ids = " ".join(f"{name}={fields[name] or '-'}" for name in ("key", "tenant", "request"))
    text = "%s %s %s %.1f ms %s"
    _LOG.info(text, method, route, fields["status"], seconds * 1_000, ids, extra={_FIELDS: fields})


def log_begin(*, method: str, route: str, request: str) -> None:
    """Log that a request has come, for those who look for one that is never answered."""
    fields = {"event": "begins", "method": method, "route": route, "request": request}
    text = "%s %s begins request=%s"
    _BEGINS.debug(text, method, route, request, extra={_FIELDS: fields})


def logs_begin() -> bool:
    """Tell whether the start of a request is logged, at the level `debug`."""
    return _BEGINS.isEnabledFor(logging.DEBUG)


def formatter(format: LogFormat) -> logging.Formatter:
    """Return what writes the lines of a log."""
    if format == "json":
        return _JSONLines()
    return logging.Formatter("%(asctime)s %(levelname)s %(message)s")


@contextmanager
def log_to_stderr(format: LogFormat, *, level: str) -> Iterator[None]:
    """Log what goes wrong, and requests if they are wanted; nothing of what they hold.

    Every logger of the process writes here, so that a log of JSON has no other lines.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(format))
    root, ours = logging.getLogger(), logging.getLogger("orbiter.memory")
    uvicorn = logging.getLogger("uvicorn")
    signals = logging.getLogger("orbiter.memory.server.signals")
    before = [(each, each.level) for each in (ours, uvicorn, signals, _LOG)]
    root.addHandler(handler)
    ours.setLevel(level.upper())
    _LOG.setLevel(logging.INFO)
    if ours.level <= logging.WARNING:  # a stop is nothing to warn of, and no log should lack it
        signals.setLevel(logging.INFO)
    uvicorn.setLevel(logging.CRITICAL)  # what clients send that is no HTTP is theirs to see
    try:
        yield
    finally:
        root.removeHandler(handler)
        for logger, was in before:
            logger.setLevel(was)


class _JSONLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Return a record as one line of JSON."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, object] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        fields = getattr(record, _FIELDS, None)
        line |= {"message": record.getMessage()} if fields is None else fields
        if (request := getattr(record, "request_id", None)) is not None:
            line["request"] = request
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)
