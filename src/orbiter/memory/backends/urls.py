"""Addresses of servers without the passwords in them, however oddly they are written.

What is not understood is not shown: a password with a `/` or `#` in it looks like something else.
"""

from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from orbiter.memory._lazy import lazy_pattern

__all__ = [
    "PERCENT_CODES",
    "absolute_url",
    "check_address",
    "for_several_processes",
    "identity",
    "is_misread",
    "redacted",
    "scrubbed",
    "whole_url",
]

PERCENT_CODES = (
    "in user and password write `%40` for `@`, `%2F` for `/`, `%3A` for `:`, `%23` for `#` and "
    "`%3F` for `?`"
)
"""What to do about a password that ends the address which it is part of."""
_POSTGRES = frozenset(("postgres", "postgresql"))
_REDIS = frozenset(
    ("redis", "rediss", "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel")
)
_SCHEMES = _POSTGRES | _REDIS
_HARMLESS = (
    *("host", "port", "user", "dbname", "database", "sslmode", "target_session_attrs", "db"),
    *("replicas", "replica_wait", "replica_sees", "statement_cache_size", "wait_replicas"),
    *("wait_ms", "partitions"),
)
_HOST = lazy_pattern(r"(\[[0-9a-fA-F:.]+\]|[^:@\[\]]*)(:\d+)?")


def absolute_url(url: str) -> str:
    """Return the address of a file from the root on, and every other as it is."""
    scheme, mark, rest = url.partition(":///")
    if mark and scheme == "sqlite":
        return f"sqlite:///{Path(rest).expanduser().absolute()}" if rest != ":memory:" else url
    if "://" in url or url == ":memory:":
        return url
    return str(Path(url).expanduser().absolute())


def check_address(dsn: object) -> None:
    """Raise a `ValueError` for what is no address at all, such as a variable that is not set."""
    if not isinstance(dsn, str) or not dsn:
        raise ValueError(f"`dsn` must be like `postgresql://user:password@host/name`, not {dsn!r}")


def for_several_processes(dsn: str) -> str:
    """Return *dsn* with the default of processes that are one server: replicas have all writes.

    A client's write and its next read may reach two of them, and each knows only its own writes.
    """
    try:
        parts = urlsplit(dsn)  # as the store reads it: a value may hold what a host may not
    except ValueError:
        return dsn
    names = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
    if parts.scheme not in _POSTGRES or "replicas" not in names or "replica_sees" in names:
        return dsn
    return whole_url(parts._replace(query=f"{parts.query}&replica_sees=all"))


def redacted(dsn: str) -> str:
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
    return whole_url(parts._replace(netloc=netloc, query=kept))


def whole_url(parts: SplitResult) -> str:
    """Return the URL of *parts*: `geturl` loses two of three slashes where no host is named."""
    query = f"?{parts.query}" if parts.query else ""
    fragment = f"#{parts.fragment}" if parts.fragment else ""
    return f"{parts.scheme}://{parts.netloc}{parts.path}{query}{fragment}"


def identity(dsn: str) -> str | None:
    """Return one spelling for every address of the same database, without a secret in it.

    `None` if the address cannot be told from its secrets.
    """
    parts = _parts(dsn)
    if parts is None:
        return None
    scheme = "postgresql" if parts.scheme in _POSTGRES else parts.scheme
    options = dict(parse_qsl(parts.query))
    who, _, hosts = parts.netloc.rpartition("@")
    path = unquote(parts.path.strip("/"))
    if scheme == "postgresql":
        user = unquote(who.partition(":")[0]) or options.get("user", "")
        # Whose it is counts: a user may have tables of their own in one database.
        name = path or options.get("dbname") or options.get("database") or user
        where = _hosts(hosts or options.get("host", ""), options.get("port", "5432"))
        return f"{scheme}://{quote(user, safe='')}@{where}/{quote(name, safe='')}"
    if scheme.endswith("sentinel"):
        service, _, path = path.partition("/")
        return f"{scheme}://{_hosts(hosts, '26379')}/{service}/{options.get('db') or path or 0}"
    return f"{scheme}://{_hosts(hosts or 'localhost', '6379')}/{options.get('db') or path or 0}"


def _hosts(listed: str, port: str) -> str:
    """Return hosts with their ports, in one order: each leads to the same."""
    spelled = set()
    for each in listed.split(","):
        plain = _HOST.fullmatch(each)
        host, own = plain.groups() if plain else (each, None)
        # A name has no case; the folder of a socket does.
        spelled.add((host if host.startswith("/") else host.lower()) + (own or f":{port}"))
    return ",".join(sorted(spelled))


def is_misread(dsn: str) -> bool:
    """Tell whether a password has a character in it that ends the address, or its host.

    Half a password would be taken for a host, to which the rest would be sent.
    """
    try:
        parts = urlsplit(dsn)
    except ValueError:
        return True
    return "#" in dsn or "@" in parts.path or parts.netloc.count("@") > 1


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
