"""Addresses of servers without the passwords in them, however oddly they are written.

What is not understood is not shown: a password with a `/` or `#` in it looks like something else.
"""

import re
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

_POSTGRES = frozenset(("postgres", "postgresql"))
_REDIS = frozenset(
    ("redis", "rediss", "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel")
)
_SCHEMES = _POSTGRES | _REDIS
_HARMLESS = ("host", "port", "user", "dbname", "database", "sslmode", "target_session_attrs", "db")
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:@\[\]]*)(:\d+)?")


def check_address(dsn: object) -> None:
    """Raise a `ValueError` for what is no address at all, such as a variable that is not set."""
    if not isinstance(dsn, str) or not dsn:
        raise ValueError(f"`dsn` must be like `postgresql://user:password@host/name`, not {dsn!r}")


def shown(dsn: str) -> str:
    """Return *dsn* as it may be printed."""
    parts = _parts(dsn)
    if parts is None:
        return _hidden(dsn)
    who, at, where = parts.netloc.rpartition("@")
    user = who.partition(":")[0]
    kept = "&".join(
        pair for pair in parts.query.split("&") if unquote(pair.partition("=")[0]) in _HARMLESS
    )
    netloc = f"{user}{at}{where}" if user else where
    return parts._replace(netloc=netloc, query=kept).geturl()


def scrubbed(text: str, dsn: str) -> str:
    """Return *text* without the secrets of *dsn*."""
    parts = _parts(dsn)
    if parts is None:
        return "the address cannot be read"
    password = parts.netloc.rpartition("@")[0].partition(":")[2]
    secrets = {password, unquote(password)}
    for name, value in parse_qsl(parts.query):
        if name not in _HARMLESS and "password" in name.lower():
            secrets.add(value)
    for secret in secrets - {""}:
        text = text.replace(secret, "***")
    return text


def _hidden(dsn: str) -> str:
    """Return what stands for an address that cannot be told from its secrets."""
    scheme, mark, _ = dsn.partition("://")
    return f"{scheme}://***" if mark and scheme in _SCHEMES else "***"


def _parts(dsn: str) -> SplitResult | None:
    try:
        parts = urlsplit(dsn)
    except ValueError:
        return None
    hosts = parts.netloc.rpartition("@")[2].split(",")
    is_plain = (
        parts.scheme in _SCHEMES
        and "@" not in parts.path + parts.query
        and "#" not in dsn
        and all(map(_HOST.fullmatch, hosts))
    )
    return parts if is_plain else None
