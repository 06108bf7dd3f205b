"""Health of the store and the server: counts for every reader, checks for administrators.

The checks are the section `Health` of the page of data. Nothing secret is shown.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from starlette.responses import Response

from orbiter.memory.agent.interface import session_of
from orbiter.memory.diagnostics import (
    Check,
    check_contents,
    check_index,
    check_loaded_model,
    check_store,
    check_waiting,
)
from orbiter.memory.errors import AccessError, UnsupportedError
from orbiter.memory.model.reports import StoreStats
from orbiter.memory.server.dashboard.page import Ask, Data, Pages, scope_of
from orbiter.memory.server.dashboard.slow_parts import slow_part
from orbiter.memory.server.http.browser_security import is_loopback

__all__ = ["Health", "checks_of", "health_of", "pages"]

pages = Pages()

_BACKENDS = {"postgres": "Postgres", "redis": "Redis", "memory": "In memory"}


@dataclass(frozen=True, slots=True)
class Health:
    """How much there is, where, and whether anything waits."""

    memories: int
    forgotten: int | None
    backend: str
    model: str | None
    bytes: int | None = None
    unembedded: int = 0
    unindexed: int = 0
    embedding_error: str | None = None


async def health_of(ask: Ask) -> Health:
    """Return what a reader may know of the store: all of it only who may see everyone's."""
    core, scheme = session_of(ask.handle).core, ask.server.memory.url.partition(":")[0]
    own = await ask.handle.stats()
    health = Health(
        own.items,
        own.forgotten,
        next((name for start, name in _BACKENDS.items() if scheme.startswith(start)), "SQLite"),
        core.embeddings.name if core.embeddings is not None else None,
    )
    stats = None if scope_of(ask.handle.scope) else await _stats(ask)
    if stats is None:
        return health
    return replace(
        health,
        bytes=stats.bytes,
        unembedded=stats.unembedded,
        unindexed=stats.unindexed,
        embedding_error=stats.embedding_error,
    )


async def checks_of(ask: Ask) -> list[Check] | None:
    """Return what can be checked without reading everything; `None` for other readers."""
    if not _is_of_everyone(ask):
        return None
    memory, stats = ask.server.memory, await _stats(ask)
    checks = [
        check_store(memory.url),
        check_loaded_model(getattr(memory.store, "embeddings", None)),
    ]
    checks += [] if stats is None else [_waiting(stats)]
    return [*checks, *check_index(stats), await _keys(ask), _transport(ask)]


def _is_of_everyone(ask: Ask) -> bool:
    return ask.principal.may("admin") and not scope_of(ask.principal.scope)


async def _stats(ask: Ask) -> StoreStats | None:
    try:
        return await ask.server.memory.stats()
    except UnsupportedError:  # a Redis counts a scope, and no more
        return None


def _waiting(stats: StoreStats) -> Check:
    # The cure is a button of this page, not a command.
    return check_waiting(
        stats, cure="each recall embeds some; “Process now” on this page embeds all"
    )


async def _keys(ask: Ask) -> Check:
    keys, command = ask.server.keys, ask.server.key_command()
    if keys is None or not await keys.has_keys():
        return Check("keys", "note", "none: everybody on this computer has full access", command)
    now, known = datetime.now(UTC), await keys.list()
    valid = [key for key in known if key.is_open(now)]
    admins = sum(key.role == "admin" for key in valid)
    over = len(known) - len(valid)
    found = f"{len(valid)} valid, {admins} of them administrators; {over} revoked or expired"
    return Check("keys", "ok", found) if valid else Check("keys", "wrong", found, command)


def _transport(ask: Ask) -> Check:
    settings = ask.server.settings
    if settings.tls_cert:
        return Check("transport", "ok", "TLS")
    if is_loopback(settings.host) or settings.host == "localhost":
        return Check("transport", "ok", "plain HTTP, on this computer only")
    return Check(
        "transport",
        "wrong",
        "plain HTTP: keys and memories can be read on the network",
        "pass `--tls-cert` and `--tls-key`, or use a TLS proxy",
    )


@pages.part("POST", "/ui/data/verify", role="admin")
async def verify(ask: Ask) -> Response:
    """Read everything, and check the search structures."""
    _check_of_everyone(ask)

    async def work() -> Data:
        try:
            report = await ask.server.memory.verify()
        except UnsupportedError:
            report = None
        cure = "stop the server, then orbiter-memory doctor --repair"
        return {"checks": [check_contents(report, cure=cure)]}

    return await slow_part(ask, "parts/checks.html", work)


@pages.part("POST", "/ui/data/flush", role="admin")
async def flush(ask: Ask) -> Response:
    """Embed and index now what would be done in the background."""
    _check_of_everyone(ask)

    async def work() -> Data:
        await ask.server.memory.flush()
        stats = await _stats(ask)
        return {"checks": [Check("waiting", "ok", "done") if stats is None else _waiting(stats)]}

    return await slow_part(ask, "parts/checks.html", work)


def _check_of_everyone(ask: Ask) -> None:
    if not _is_of_everyone(ask):
        raise AccessError(
            "your key covers only a part of the store; this needs an `admin` key for all of it"
        )
