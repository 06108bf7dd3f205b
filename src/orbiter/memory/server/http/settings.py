"""How a server is set up."""

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from orbiter.memory.auth import OIDCSettings

__all__ = ["DEFAULT_PORT", "HOST_NAME", "Settings", "max_body_bytes"]

DEFAULT_PORT = 8765
"""Where a server listens unless told otherwise."""

HOST_NAME = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?)(?::([0-9]{1,5}))?")
"""What the header `Host` may be, in small letters: a name or a number, and a port."""

_BODY = 2**20
_MEMORIES = 2**24
"""A memory may hold 1 MiB of text and 8 MiB of what its provider said; in JSON they are longer."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a server is set up; the defaults are for this computer alone."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    """Zero takes any that is free."""
    allowed_hosts: tuple[str, ...] = ()
    """Names under which it may be called beside its own address, as `host` or `host:port`."""
    read_only: bool = False
    max_body: int = _BODY
    """Most bytes of a request, those of an import aside.

    Left as it is, requests that bring memories may have 16 MiB: see `max_body_bytes`.
    """
    max_import: int = 2**30
    max_page: int = 1_000
    max_page_bytes: int = 2**22
    """Most bytes of a page, about; one memory is always there, however long it is."""
    max_answer: int = 2**26
    """Most bytes of an answer that has no pages."""
    max_context: int = 1_000_000
    """Most tokens of a context, and its budget where a request names none.

    Nearly no model takes more, and what is counted, weighed and sent keeps others waiting.
    """
    max_connections: int = 1_000
    max_connections_per_key: int = 400
    """Most connections of one key, and never more than half of all."""
    timeout: float = 30.0
    """Seconds until the answer to a request has begun."""
    job_wait: float = 5.0
    """Seconds that a request for long work waits for it; then it is answered with 202."""
    job_kept: float = 86_400.0
    """Seconds that the report of a job is kept after its end."""
    patience: float = 10.0
    """Seconds to wait for a client that sends nothing, or takes nothing."""
    idle: float = 75.0
    """Seconds that a connection is kept between two requests, unless its place is needed.

    Longer than proxies and clients keep theirs, mostly 60 seconds or less: whoever ends a
    connection first may end it just when the other side sends a request.
    """
    drain: float = 3.0
    """Seconds for requests under way when the server stops."""
    rate: float = 100.0
    """Requests a second that one key may make, on average; each machine counts for itself."""
    burst: int = 200
    with_mcp: bool = True
    with_dashboard: bool = True
    dashboard_by: str = "dashboard"
    """Who signs what is changed on the dashboard by somebody without a key."""
    with_log: bool = False
    """Whether requests are logged: a line each, with nothing of what they hold."""
    log_format: Literal["text", "json"] = "text"
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    playground_url: str | None = None
    """The OpenAI-compatible endpoint that the playground asks; without one, a script answers."""
    playground_model: str = "gpt-4o-mini"
    playground_key: str | None = field(default=None, repr=False)
    """The key of that endpoint, which no page and no answer holds."""
    tls_cert: str | None = None
    tls_key: str | None = None
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None
    """Where `/metrics` is served without a key, beside the one that needs a key."""
    oidc: "OIDCSettings | None" = None
    """Whose tokens are taken beside keys; every request needs one of the two then."""


def max_body_bytes(settings: Settings, verb: str, path: str) -> int:
    """Return how many bytes a request to *path* may have, imports aside.

    What every store takes must be taken here, too; whoever says `max_body` says it for all.
    """
    brings = {
        "POST": path in ("/v1/memories", "/v1/memories/batch", "/v1/fact-drafts")
        or (path.startswith("/v1/chats/") and path.endswith("/messages")),
        "PATCH": path.startswith("/v1/memories/"),
        "PUT": path.startswith("/v1/facts/"),
    }
    is_larger = settings.max_body == _BODY and brings.get(verb, False)
    return _MEMORIES if is_larger else settings.max_body
