"""Which store an address names: the one place where a URL becomes a class.

Only the driver of the named store is loaded, and nothing is opened.
"""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from orbiter.memory.errors import QueryError, UnsupportedError
from orbiter.memory.model.audit import AuditMode
from orbiter.memory.model.protocols import Embeddings

if TYPE_CHECKING:
    from orbiter.memory.backends.postgres.store import PostgresMemoryStore
    from orbiter.memory.backends.redis.store import RedisMemoryStore
    from orbiter.memory.backends.sqlite.store import SQLiteMemoryStore

__all__ = ["URL_VARIABLE", "default_url", "is_of_server", "store_at"]

URL_VARIABLE = "ORBITER_MEMORY_URL"
"""The environment variable that says where memories are kept unless a program says it."""

_HALF_AN_ADDRESS = re.compile(r"(memory|postgres|postgresql|rediss?|sqlite)(\+\w+)?(:|//)")
_HALF_A_SERVER = re.compile(r"(localhost|[\w-]+(\.[\w-]+)+|\[[\da-fA-F:]+\]):\d{1,5}(/.*)?")
_WAYS = "use `sqlite:///file.db`, a path, `memory://`, `postgresql://…` or `redis://…`"
_SERVERS = ("http://", "https://")


def default_url() -> str:
    """Return where memories are kept when nobody says: `ORBITER_MEMORY_URL`, or a user's file.

    The file is `memory.db` in the place where this system keeps the data of applications.
    """
    chosen = os.environ.get(URL_VARIABLE, "")
    if chosen:
        return chosen
    from platformdirs import user_data_path  # noqa: PLC0415 - most programs name a place

    return f"sqlite:///{user_data_path('orbiter-memory', appauthor=False) / 'memory.db'}"


def is_of_server(url: object) -> bool:
    """Tell whether *url* names a server of memories, which `AgentMemory` talks to."""
    return isinstance(url, str) and url.lower().startswith(_SERVERS)


def store_at(
    url: str | os.PathLike[str],
    *,
    embeddings: Embeddings | None = None,
    audit: AuditMode | None = None,
) -> "SQLiteMemoryStore | PostgresMemoryStore | RedisMemoryStore":
    """Return the store that *url* names, not yet opened.

    A path, or `sqlite:///path`, is a SQLite file; `sqlite:////var/a.db` has an absolute one.
    `memory://` is kept in this process alone and gone with it. `postgresql://…` is a database,
    `redis://…`, `rediss://…`, `redis+sentinel://…` and `redis+cluster://…` a Redis, which keeps
    no vectors. *audit* has writes logged, or with `"all"` reads, too; Redis keeps no log.
    """
    path = _file(url)
    if path is not None:
        from orbiter.memory.backends.sqlite.store import SQLiteMemoryStore  # noqa: PLC0415

        return SQLiteMemoryStore(path, embeddings=embeddings, audit=audit)
    address = str(url)
    if is_of_server(address):
        raise QueryError(
            "`http://…` is a server of memories, not a store; `AgentMemory` itself talks to one, "
            f"and nothing that is made of it; for a store, {_WAYS}"
        )
    scheme = address.partition("://")[0]
    if scheme in ("postgresql", "postgres"):
        from orbiter.memory.backends.postgres.store import PostgresMemoryStore  # noqa: PLC0415

        return PostgresMemoryStore(address, embeddings=embeddings, audit=audit)
    if scheme.partition("+")[0] in ("redis", "rediss"):
        from orbiter.memory.backends.redis.store import RedisMemoryStore  # noqa: PLC0415

        if audit is not None:
            raise UnsupportedError("Redis keeps no audit log; SQLite and Postgres do")
        return RedisMemoryStore(address)
    # What stands behind the scheme may hold a password, and what is no scheme, too.
    shown = f"`{scheme}://…`" if scheme.replace("+", "").isalnum() else "this"
    raise QueryError(f"{shown} is no address of a store; {_WAYS}")


def _file(url: object) -> str | None:
    """Return the path of a SQLite file, or `None` for what is no file."""
    if isinstance(url, os.PathLike):
        return str(os.fspath(url))
    if not isinstance(url, str) or not url:
        raise QueryError(f"{url!r} is no address of a store; {_WAYS}")
    scheme, mark, rest = url.partition("://")
    if not mark:
        if _HALF_AN_ADDRESS.match(url):
            # It would be a file of that odd name, and hardly anybody means that.
            raise QueryError(f"an address has `://` behind its first word; {_WAYS}")
        if _HALF_A_SERVER.fullmatch(url) and not Path(url).exists():
            raise QueryError(f"`{url}` looks like a server; did you mean `http://{url}`?")
        return url
    if scheme == "memory":
        if rest:
            raise QueryError(f"`{url}` names something in memory; `memory://` is all there is")
        return ":memory:"
    if scheme != "sqlite":
        return None
    if not rest.startswith("/") or len(rest) == 1:
        raise QueryError(f"`{url}` names no file; three slashes come before it: `sqlite:///a.db`")
    return rest[1:]


def make_folder(url: str) -> None:
    """Make the folder of the default file, for its user alone, if it is not there."""
    path = _file(url)
    if path is not None:
        Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
