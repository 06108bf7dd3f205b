"""How a server is set up."""

from dataclasses import dataclass

__all__ = ["DEFAULT_PORT", "Settings"]

DEFAULT_PORT = 8765
"""Where a server listens unless told otherwise."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a server is set up; the defaults are for this computer alone."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    """Zero takes any that is free."""
    allowed_hosts: tuple[str, ...] = ()
    """Names under which it may be called beside its own address, as `host` or `host:port`."""
    read_only: bool = False
    max_body: int = 2**20
    """Most bytes of a request, those of an import aside."""
    max_import: int = 2**30
    max_page: int = 1_000
    max_connections: int = 1_000
    timeout: float = 30.0
    """Seconds until the answer to a request has begun."""
    patience: float = 10.0
    """Seconds to wait for a client that sends nothing, or takes nothing."""
    rate: float = 100.0
    """Requests a second that one key may make, on average."""
    burst: int = 200
    with_mcp: bool = True
    with_dashboard: bool = True
    with_log: bool = False
    """Whether requests are logged: method, route, status and time, and nothing else of them."""
    tls_cert: str | None = None
    tls_key: str | None = None
