"""The page of health: this computer, the store, and how this server is set up.

A key of one user's sees what is theirs; the store and the server are an administrator's. Nothing
secret is shown to anybody.
"""

from datetime import UTC, datetime

from starlette.responses import Response

from orbiter.memory.diagnostics import (
    Check,
    check_contents,
    check_environment,
    check_extras,
    check_index,
    check_loaded_model,
    check_store,
    check_waiting,
)
from orbiter.memory.errors import AccessError, UnsupportedError
from orbiter.memory.model.reports import StoreStats
from orbiter.memory.server.dashboard.facts_page import scope_of
from orbiter.memory.server.dashboard.page import Ask, Data, Pages
from orbiter.memory.server.dashboard.slow_parts import slow_part
from orbiter.memory.server.http.browser_security import is_loopback

__all__ = ["pages"]

pages = Pages()

_LIMITS = (
    "max_body",
    "max_import",
    "max_page",
    "max_page_bytes",
    "max_connections",
    "max_connections_per_key",
    "timeout",
    "rate",
    "burst",
)


@pages.page("/doctor", "doctor.html", title="Doctor")
async def doctor(ask: Ask) -> Data:
    """Show what can be checked without reading everything."""
    own = await ask.handle.stats()
    data: Data = {"own": own, "owner": scope_of(ask.handle.scope), "can": ask.principal.role}
    if not _is_of_everyone(ask):
        checks = check_environment()[:1]
        return {**data, "checks": checks, "stats": None, "server": None, "limits": {}}
    stats = await _stats(ask)
    model = check_loaded_model(getattr(ask.server.memory.store, "embeddings", None))
    checks = [*check_environment(), model, check_extras(), check_store(ask.server.memory.url)]
    checks += [] if stats is None else [_waiting(stats)]
    checks += check_index(stats)
    return {
        **data,
        "checks": checks,
        "stats": stats,
        "server": await _server(ask),
        "limits": {name: getattr(ask.server.settings, name) for name in _LIMITS},
    }


def _is_of_everyone(ask: Ask) -> bool:
    """Tell whether the reader is an administrator of the whole store, not of somebody's part."""
    return ask.principal.may("admin") and not scope_of(ask.principal.scope)


def _check_of_everyone(ask: Ask) -> None:
    if not _is_of_everyone(ask):
        raise AccessError(
            "your key covers only a part of the store; this needs an `admin` key for all of it"
        )


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


async def _server(ask: Ask) -> list[Check]:
    """Return how this server is set up, as checks of how safe that is."""
    settings, keys = ask.server.settings, ask.server.keys
    is_local = is_loopback(settings.host) or settings.host == "localhost"
    where = f"{settings.host}, port {ask.request.app.state.port}"
    checks = [
        Check("address", "ok", f"{where}: this computer alone")
        if is_local
        else Check(
            "address",
            "note",
            f"{where}: reachable from other computers",
            "every request needs a key",
        )
    ]
    if keys is None or not await keys.has_keys():
        cure = ask.server.key_command()
        checks.append(
            Check("keys", "note", "none: everybody who uses this computer has full access", cure)
        )
    else:
        now = datetime.now(UTC)
        known = await keys.list()
        valid = [key for key in known if key.is_open(now)]
        admins = sum(1 for key in valid if key.role == "admin")
        over = len(known) - len(valid)
        message = f"{len(valid)} valid, {admins} of them administrators; {over} revoked or expired"
        cure = "" if valid else ask.server.key_command()
        checks.append(Check("keys", "ok" if valid else "wrong", message, cure))
    checks.append(_transport(ask, is_local=is_local))
    changes = (
        "none: this server is read-only"
        if settings.read_only
        else "keys with the role `write` or `admin`"
    )
    checks.append(Check("write access", "ok", changes))
    names = ", ".join(settings.allowed_hosts) or "its own address only"
    checks.append(Check("allowed hosts", "ok", names))
    doors = [name for name, there in (("MCP", settings.with_mcp), ("dashboard", True)) if there]
    checks.append(Check("endpoints", "ok", f"REST, {', '.join(doors)}"))
    return checks


def _transport(ask: Ask, *, is_local: bool) -> Check:
    if ask.server.settings.tls_cert:
        return Check("transport", "ok", "TLS")
    if is_local:
        return Check("transport", "ok", "plain HTTP, on this computer only")
    cure = "pass `--tls-cert` and `--tls-key`, or use a TLS proxy"
    return Check(
        "transport", "wrong", "plain HTTP: keys and memories can be read on the network", cure
    )


# What takes long


@pages.part("POST", "/ui/doctor/verify", role="admin")
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


@pages.part("POST", "/ui/doctor/settle", role="admin")
async def flush(ask: Ask) -> Response:
    """Do now what would be done in the background."""
    _check_of_everyone(ask)

    async def work() -> Data:
        await ask.server.memory.flush()
        stats = await _stats(ask)
        return {"checks": [Check("waiting", "ok", "done") if stats is None else _waiting(stats)]}

    return await slow_part(ask, "parts/checks.html", work)
