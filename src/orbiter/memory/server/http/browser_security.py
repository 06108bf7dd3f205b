"""Host and Origin checks against other sites, and the security headers of every response.

A page of another site can reach a server on this computer: by a request of its own, or by a name
that it lets point here. The first shows in `Origin` and `Sec-Fetch-Site`, the second in `Host`.
"""

import ipaddress
from collections.abc import Mapping, Sequence
from functools import lru_cache

from starlette.types import Message, Scope

from orbiter.memory.server.http.error_responses import HTTPProblem
from orbiter.memory.server.http.settings import HOST_NAME

__all__ = [
    "REFUSAL",
    "check_host",
    "check_origin",
    "harden",
    "headers_of",
    "is_local_name",
    "is_loopback",
]


_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_PORTS = {"http": 80, "https": 443}
_SAFE = ("GET", "HEAD")

Headers = Mapping[str, Sequence[str]]


_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "font-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
_ALWAYS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_RAW = [(name.encode(), value.encode()) for name, value in _ALWAYS.items()]
_NAMES = frozenset(name for name, _ in _RAW)
REFUSAL = {**_ALWAYS, "cache-control": "no-store"}
"""What is on an answer that holds nothing."""


def headers_of(scope: Scope) -> dict[str, list[str]]:
    """Return the headers of a request, each with all its values."""
    headers: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return headers


def is_loopback(address: str) -> bool:
    """Tell whether *address*, a number, is of this computer alone."""
    try:
        ip = ipaddress.ip_address(address.strip("[]").partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(ip, "ipv4_mapped", None)
    return bool((mapped or ip).is_loopback)


def is_local_name(host: str) -> bool:
    """Tell whether *host*, with or without a port, means this computer on every computer.

    Nothing is resolved: a public name may have a local address in the hosts file of its server.
    """
    match = HOST_NAME.fullmatch(host.lower())
    name = match[1] if match else ""
    return name == "localhost" or name.endswith(".localhost") or is_loopback(name)


def check_host(scope: Scope, headers: Headers, *, port: int, allowed: Sequence[str]) -> None:
    """Refuse a request that does not call this server by a name of its own."""
    hosts = headers.get("host", [])
    if len(hosts) != 1 or not _is_ours(scope, hosts[0], scope["scheme"], port, allowed):
        raise HTTPProblem(
            421,
            "this host name is not allowed; start the server with `--allow-host NAME` to allow it",
        )


def check_origin(scope: Scope, headers: Headers, *, port: int, allowed: Sequence[str]) -> None:
    """Refuse what a page of somebody else's sends."""
    if "access-control-request-method" in headers:
        raise HTTPProblem(403, "requests from other sites are not allowed")
    for origin in headers.get("origin", []):
        scheme, mark, host = origin.partition("://")
        is_sound = mark and scheme in _PORTS and len(headers["origin"]) == 1
        if not is_sound or not _is_ours(scope, host, scheme, port, allowed):
            raise HTTPProblem(403, "requests from other sites are not allowed")
    sites = headers.get("sec-fetch-site", [])
    if any(site not in ("same-origin", "none") for site in sites) and not _is_visit(scope, headers):
        raise HTTPProblem(403, "requests from other sites are not allowed")


def _is_visit(scope: Scope, headers: Headers) -> bool:
    """Tell whether somebody followed a link to here."""
    return (
        scope["method"] in _SAFE
        and headers.get("sec-fetch-mode") == ["navigate"]
        and headers.get("sec-fetch-dest") == ["document"]
    )


def _is_ours(scope: Scope, text: str, scheme: str, port: int, allowed: Sequence[str]) -> bool:
    server = scope.get("server")
    here = None if server is None else str(server[0]).lower()
    return _is_name(text, scheme, here, port, tuple(allowed))


@lru_cache(maxsize=256)
def _is_name(text: str, scheme: str, here: str | None, port: int, allowed: tuple[str, ...]) -> bool:
    match = HOST_NAME.fullmatch(text.lower())
    if match is None:
        return False
    name = match[1]
    host_port = int(match[2]) if match[2] else _PORTS[scheme]
    # The very number that the request came to is one that nobody else can claim.
    if host_port == port and (name in _LOOPBACK or name.strip("[]") == here):
        return True
    full = f"{name}:{host_port}"
    return any(each.lower() in (name, full) for each in allowed)


def harden(message: Message, *, may_keep: bool) -> None:
    """Put the headers on the beginning of an answer; *may_keep* lets it say how long it is good."""
    kept, cached = [], None
    for name, value in message.get("headers", ()):
        known = name.lower()
        if known == b"cache-control":
            cached = value if cached is None else cached
        # Whatever is mounted here: nobody else's page reads this server.
        elif known not in _NAMES and not known.startswith(b"access-control-"):
            kept.append((name, value))
    is_private = may_keep and cached is not None and cached.startswith(b"private")
    control = cached if is_private else b"no-store"
    message["headers"] = [*kept, *_RAW, (b"cache-control", control)]
