"""Registry of URL schemes: which class a store URL names, ours and those of other packages.

A package adds a scheme by an entry point in the group `orbiter_memory.stores`, a program by
`register_store`. Only the driver of the named store is loaded, and nothing is opened.
"""

import inspect
import os
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orbiter.memory._lazy import lazy_pattern, load_plugin, plugins
from orbiter.memory.backends.urls import identity
from orbiter.memory.errors import QueryError, UnsupportedError
from orbiter.memory.model.agent_store import AgentStore
from orbiter.memory.model.audit import AuditMode
from orbiter.memory.model.protocols import Embeddings

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = [
    "ENTRY_POINTS",
    "URL_VARIABLE",
    "StoreFactory",
    "default_url",
    "is_http_url",
    "is_of_package",
    "known_schemes",
    "load_scheme",
    "make_folder",
    "open_store",
    "register_store",
    "store_identity",
]

ENTRY_POINTS = "orbiter_memory.stores"
"""The group of entry points by which packages add schemes."""

URL_VARIABLE = "ORBITER_MEMORY_URL"
"""The environment variable that says where memories are kept unless a program says it."""

StoreFactory = Callable[..., Any]
"""A class or function that is called with a URL and returns the store, not yet opened.

It is given `embeddings=` and `audit=`, too, if it takes arguments of these names.
"""

_SCHEME = lazy_pattern(r"[a-z][a-z0-9.+-]*")
_HALF_AN_ADDRESS = lazy_pattern(r"(memory|postgres|postgresql|rediss?|sqlite)(\+\w+)?(:|//)")
_HALF_A_SERVER = lazy_pattern(r"(localhost|[\w-]+(\.[\w-]+)+|\[[\da-fA-F:]+\]):\d{1,5}(/.*)?")
_FILE_URI = lazy_pattern(r"(?i)file:(//)?(?P<path>[^?]+)")
_WAYS = "use `sqlite:///file.db`, a path, `memory://`, `postgresql://…` or `redis://…`"
_SERVERS = ("http://", "https://")

_SQLITE = "orbiter.memory.backends.sqlite.store:SQLiteMemoryStore"
_POSTGRES = "orbiter.memory.backends.postgres.store:PostgresMemoryStore"
_REDIS = "orbiter.memory.backends.redis.store:RedisMemoryStore"

_schemes: dict[str, "str | StoreFactory"] = {
    "memory": _SQLITE,
    "postgres": _POSTGRES,
    "postgresql": _POSTGRES,
    "redis": _REDIS,
    "redis+cluster": _REDIS,
    "redis+sentinel": _REDIS,
    "rediss": _REDIS,
    "rediss+cluster": _REDIS,
    "rediss+sentinel": _REDIS,
    "sqlite": _SQLITE,
}
"""Each scheme with what makes its store, or with where that is. `http` and `https` lead to the
client, which stands above this: they are entry points of this package itself."""


def register_store(scheme: str, factory: StoreFactory) -> None:
    """Let *factory* make the stores of URLs that begin with *scheme*, in this process.

    A scheme that is taken is refused. A package does the same for everyone who installs it by an
    entry point of that name in the group `orbiter_memory.stores`.
    """
    if not _SCHEME.fullmatch(str(scheme)):
        raise QueryError(
            f"{scheme!r} is not a valid scheme; use lower-case letters, such as `toy` for `toy://…`"
        )
    if not callable(factory):
        raise QueryError(f"`factory` must be a class or a function, not {factory!r}")
    if _schemes.get(scheme, factory) is not factory or scheme in _installed():
        raise QueryError(f"the scheme `{scheme}` is taken; choose another")
    _schemes[scheme] = factory


def known_schemes() -> list[str]:
    """Return every scheme that a URL may begin with, in order."""
    return sorted({*_schemes, *_installed()})


def load_scheme(scheme: str) -> StoreFactory | None:
    """Return what makes the stores of *scheme*, importing it, or `None` if nothing does."""
    made = _schemes.get(scheme)
    if isinstance(made, str):
        module, _, name = made.partition(":")
        loaded: StoreFactory = getattr(import_module(module), name)
        return loaded
    if made is not None:
        return made
    claims = _installed().get(scheme, [])
    ours = [entry for entry in claims if entry.module.startswith("orbiter.memory.")]
    if ours:
        return ours[0].load()  # type: ignore[no-any-return]  # as `pyproject.toml` says
    return load_plugin("store", claims, error=QueryError) if claims else None


@cache
def _installed() -> "dict[str, list[EntryPoint]]":
    """Return the schemes of installed packages, without those that are ours."""
    return {name: claims for name, claims in plugins(ENTRY_POINTS).items() if name not in _schemes}


def default_url() -> str:
    """Return where memories are kept when nobody says: `ORBITER_MEMORY_URL`, or a user's file.

    The file is `memory.db` in the place where this system keeps the data of applications.
    """
    chosen = os.environ.get(URL_VARIABLE, "")
    if chosen:
        return chosen
    from platformdirs import user_data_path  # noqa: PLC0415 - most programs name a place

    return f"sqlite:///{user_data_path('orbiter-memory', appauthor=False) / 'memory.db'}"


def is_http_url(url: object) -> bool:
    """Tell whether *url* names a server of memories, which `AgentMemory` talks to."""
    return isinstance(url, str) and url.lower().startswith(_SERVERS)


def open_store(
    url: str | os.PathLike[str],
    *,
    embeddings: Embeddings | None = None,
    audit: AuditMode | None = None,
) -> AgentStore:
    """Return the store that *url* names, not yet opened.

    A path, or `sqlite:///path`, is a SQLite file; `sqlite:////var/a.db` has an absolute one.
    `memory://` is kept in this process alone and gone with it. `postgresql://…` is a database,
    `redis://…`, `rediss://…`, `redis+sentinel://…` and `redis+cluster://…` a Redis, which keeps
    no vectors. Other schemes are those of `register_store` and of installed packages; what such a
    store lacks, `StoreAdapter` does for it. *audit* has writes logged, or with `"all"` reads, too;
    a store without a log refuses it.
    """
    path = _file(url)
    if path is not None:
        return _made("sqlite", path, embeddings, audit)
    address = str(url)
    if is_http_url(address):
        raise QueryError(
            "`http://…` is the address of a server, not of a store; open it with `AgentMemory`; "
            f"for a store, {_WAYS}"
        )
    return _made(address.partition("://")[0], address, embeddings, audit)


def _made(
    scheme: str, address: str, embeddings: Embeddings | None, audit: AuditMode | None
) -> AgentStore:
    factory = load_scheme(scheme)
    if factory is None:
        raise _unknown(scheme)
    taken = inspect.signature(factory).parameters
    if audit is not None and "audit" not in taken:
        name = getattr(factory, "__name__", scheme).removesuffix("MemoryStore")
        raise UnsupportedError(f"{name} keeps no audit log; SQLite and Postgres do")
    options = {"embeddings": embeddings, "audit": audit}
    accepted = {name: value for name, value in options.items() if name in taken}
    store: AgentStore = factory(address, **accepted)
    if isinstance(_schemes.get(scheme), str):  # ours need no adapter, and programs start sooner
        return store
    from orbiter.memory.backends.adapter import as_agent_store  # noqa: PLC0415

    return as_agent_store(store)


def _unknown(scheme: str) -> QueryError:
    # What stands behind the scheme may hold a password, and what is no scheme, too.
    if not _SCHEME.fullmatch(scheme):
        return QueryError(f"this is not a valid store URL; {_WAYS}")
    others = [each for each in _installed().keys() | _schemes.keys() if is_of_package(each)]
    more = "".join(f", `{each}://…`" for each in sorted(others))
    return QueryError(
        f"`{scheme}://…` is not a valid store URL; {_WAYS}{more}; install the package that adds "
        f"`{scheme}` to the entry points `{ENTRY_POINTS}`, or call `register_store`"
    )


def is_of_package(scheme: str) -> bool:
    """Tell whether URLs of *scheme* are none of ours: those of another package, or of a program."""
    return not isinstance(_schemes.get(scheme), str) and f"{scheme}://" not in _SERVERS


def store_identity(url: str) -> str | None:
    """Return one spelling for every URL of the same store, without a secret in it.

    A store of another package says it by its attribute `identity`. `None` if nobody can tell.
    """
    scheme = url.partition("://")[0].lower()
    if not is_of_package(scheme):
        return identity(url)
    store = open_store(url)
    said = getattr(getattr(store, "store", store), "identity", None)
    return f"{scheme}://{said}" if said else None


def _file(url: object) -> str | None:
    """Return the path of a SQLite file, or `None` for what is not one."""
    if isinstance(url, os.PathLike):
        return _at_home(str(os.fspath(url)))
    if not isinstance(url, str) or not url:
        raise QueryError(f"{url!r} is not a valid store URL; {_WAYS}")
    scheme, mark, rest = url.partition("://")
    if (uri := _FILE_URI.match(url)) and "file" not in known_schemes():
        # SQLite knows such addresses; here, it would be a file whose name begins with `file:`.
        raise QueryError(
            f"`{url}` is not a valid store URL; write the path `{uri['path']}`, or "
            f"`sqlite:///{uri['path']}`"
        )
    if not mark:
        if _HALF_AN_ADDRESS.match(url):
            # It would be a file of that odd name, and hardly anybody means that.
            raise QueryError(f"an address has `://` after its scheme; {_WAYS}")
        if _HALF_A_SERVER.fullmatch(url) and not Path(url).exists():
            raise QueryError(f"`{url}` looks like a server; did you mean `http://{url}`?")
        return _at_home(url)
    if scheme == "memory":
        if rest:
            raise QueryError(
                f"`{url}` is not valid; a store in memory has no name: write `memory://`"
            )
        return ":memory:"
    if scheme != "sqlite":
        return None
    if not rest.startswith("/") or len(rest) == 1:
        raise QueryError(f"`{url}` names no file; write three slashes before it: `sqlite:///a.db`")
    return _at_home(rest[1:])


def _at_home(path: str) -> str:
    """Return *path* with the user's home for a `~` at its beginning, as a shell has it."""
    return os.path.expanduser(path)  # noqa: PTH111 - it stays a text


def make_folder(url: str) -> None:
    """Make the folder of the default file, for its user alone, if it is not there."""
    path = _file(url)
    if path is not None:
        Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
