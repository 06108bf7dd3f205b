"""Where a server is, and whether its key may be sent there."""

import os
from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from orbiter.memory.errors import QueryError

__all__ = ["TOKEN_VARIABLE", "Address", "read_address"]

TOKEN_VARIABLE = "ORBITER_MEMORY_TOKEN"  # noqa: S105 - the name of it
"""The environment variable that holds the key for a server unless a program gives it."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is, without a secret; what is shown of it never shows the key."""

    url: str
    """Such as `https://memory.example.com:8443`, without a `/` in the end."""
    is_local: bool
    """Whether it is this computer."""
    token: str | None = field(default=None, repr=False)

    @property
    def is_encrypted(self) -> bool:
        """Whether what is sent there is read by nobody on the way."""
        return self.url.startswith("https://")


def read_address(url: str, *, token: str | None, insecure: bool = False) -> Address:
    """Return the server that *url* names; the key is *token*, or that of the environment.

    Over plain `http` a key goes to this computer only, unless *insecure* says that the way there
    is safe by other means.
    """
    parts = _parts(url)
    if parts.username is not None or parts.password is not None:
        raise QueryError(
            "the URL of a server must not contain a name or password; give its key as `token=` "
            f"or in `{TOKEN_VARIABLE}`"
        )
    if parts.query or parts.fragment:
        raise QueryError(
            "the URL of a server must not contain `?` or `#`: `http://127.0.0.1:8765`; its key "
            f"is `token=` or `{TOKEN_VARIABLE}`"
        )
    key = os.environ.get(TOKEN_VARIABLE) if token is None else token
    address = Address(
        # What curl is given ends in `/v1`, and is pasted here: every call adds that itself.
        f"{parts.scheme.lower()}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/v1')}",
        is_local=_is_local(parts.hostname or ""),
        token=_checked(key) if key else None,
    )
    if address.token and not (address.is_encrypted or address.is_local or insecure):
        raise QueryError(
            f"`{address.url}` is another computer, and over `http` anyone on the network could "
            "read the key; use `https://…`, a tunnel to `http://127.0.0.1:…`, or, in a network "
            "that is safe by other means, `AgentMemory(url, token=…, insecure=True)`"
        )
    return address


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        is_whole = bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_whole = False
    if not is_whole or parts.scheme.lower() not in ("http", "https"):
        # It is not shown: what cannot be read may hold a password anywhere.
        raise QueryError("this is not a valid server URL; write `http://127.0.0.1:8765`")
    return parts


def _checked(token: object) -> str:
    """Return a key that a header can carry; one that is none is not shown either."""
    if not isinstance(token, str) or not token.isascii() or not token.isprintable() or " " in token:
        raise QueryError(
            "`token` is not a valid key: it contains other characters than letters, digits and "
            "signs; `orbiter-memory keys create` makes one"
        )
    return token


def _is_local(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
