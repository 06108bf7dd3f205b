"""The page of data: import, export, limit, erase, audit log, jobs, health of the store."""

from collections.abc import Mapping

from starlette.responses import Response

from orbiter.memory.errors import AccessError, QueryError, UnsupportedError
from orbiter.memory.model.query import SCOPE_FIELDS
from orbiter.memory.model.reports import Erasure
from orbiter.memory.server.dashboard.page import Ask, Data, Pages, as_number, scope_of
from orbiter.memory.server.dashboard.slow_parts import slow_part
from orbiter.memory.server.dashboard.store_health import checks_of
from orbiter.memory.transfer.formats.registry import EXPORTS, import_formats, label
from orbiter.memory.wire import operations_of

__all__ = ["pages"]

pages = Pages()

_ERASE = operations_of("memory")["erase"]
_ENTRIES = 20
"""Entries of the audit log that are shown at a time, the newest first."""
_JOBS = 5
"""Jobs that the page shows, the newest."""


@pages.page("/data", "data.html", title="Data")
async def data(ask: Ask) -> Data:
    """Show what can be brought in, taken out and erased."""
    stats = await ask.handle.stats()
    owner = scope_of(ask.handle.scope)
    return {
        "owner": owner,
        "stats": stats,
        "read": {name: label(name) for name in import_formats()},
        "written": {name: (each.title, each.label) for name, each in EXPORTS.items()},
        "export_query": {"everyone": "" if owner else "true", **ask.scope},
        "max_import": ask.server.settings.max_import,
        "is_bound": bool(scope_of(ask.principal.scope)),
        "checks": await checks_of(ask),
        **await _jobs(ask),
    }


@pages.part("GET", "/ui/jobs", "parts/jobs.html")
async def jobs(ask: Ask) -> Data:
    """Show the jobs of the reader's key."""
    return await _jobs(ask)


async def _jobs(ask: Ask) -> Data:
    recent = (await ask.server.jobs.jobs_of(ask.principal))[:_JOBS]
    return {
        "jobs": [
            {
                "name": job.operation.name,
                "state": job.state,
                "done": job.done,
                "total": job.total,
                "created_at": job.created_at,
                "is_finished": job.is_finished,
                "problem": "" if job.problem is None else job.problem.get("detail", ""),
            }
            for job in recent
        ],
        "is_under_way": any(not job.is_finished for job in recent),
    }


# Gone for good


async def count_erasure(ask: Ask, scope: Mapping[str, str]) -> Erasure:
    """Return what erasing *scope* would remove."""
    return await ask.server.memory.erase(
        user_id=scope.get("user_id"),
        session_id=scope.get("session_id"),
        task_id=scope.get("task_id"),
        agent_id=scope.get("agent_id"),
        dry_run=True,
    )


@pages.part("GET", "/ui/data/erase", role="admin")
async def would_erase(ask: Ask) -> Response:
    """Count what erasing a scope would remove."""
    scope = _scope_of(ask)

    async def work() -> Data:
        would = await count_erasure(ask, scope)
        return {"would": would, "whose": scope, "name": _name(scope)}

    return await slow_part(ask, "parts/would_erase.html", work)


@pages.part("POST", "/ui/data/erase", role="admin")
async def erase(ask: Ask) -> Response:
    """Erase a scope, whose name was typed."""
    scope = _scope_of(ask)
    typed = (await ask.form()).get("typed", "").strip()
    if typed != _name(scope).strip():
        raise QueryError(f"type `{_name(scope)}` to erase it; nothing was erased")

    async def work() -> Data:
        arguments = {**scope, "by": ask.principal.name or ask.server.settings.dashboard_by}
        jobs = ask.server.jobs  # a job, which goes on if the server is killed
        done = await jobs.result(
            await jobs.begin(_ERASE, ask.principal, ask.server.memory, arguments)
        )
        return {"done": done, "whose": scope, "report": done.to_dict()}

    return await slow_part(ask, "parts/erased.html", work)


def _scope_of(ask: Ask) -> dict[str, str]:
    """Return the scope that the form names, which must be one that the key opens."""
    fields = {name: ask.text(name) for name in SCOPE_FIELDS if ask.text(name)}
    if not fields:
        raise QueryError("name a user, an agent, a session or a task")
    allowed = scope_of(ask.handle.scope)
    for name, value in fields.items():
        if allowed.get(name) != value:
            raise QueryError(f"your key is for `{name}` `{allowed.get(name)}`, not for `{value}`")
    return allowed


def _name(scope: dict[str, str]) -> str:
    return scope.get("user_id") or list(scope.values())[-1]


# What was done


@pages.part("GET", "/ui/data/audit", "parts/audit.html", role="admin")
async def audit(ask: Ask) -> Data:
    """Show the newest entries of the audit log, or those before a number."""
    if scope_of(ask.principal.scope):
        raise AccessError("the audit log is everyone's, and your key is for one user or agent")
    before = as_number("before", ask.text("before"), 0, least=0, most=2**53)
    scope = scope_of(ask.handle.scope)
    try:
        entries = await ask.server.memory.audit.entries(
            user_id=scope.get("user_id"),
            session_id=scope.get("session_id"),
            task_id=scope.get("task_id"),
            agent_id=scope.get("agent_id"),
            by=ask.text("actor").strip() or None,
            before=before or None,
            limit=_ENTRIES + 1,
        )
    except UnsupportedError as error:
        return {"missing": str(error)}
    page = entries[:_ENTRIES]
    return {
        "missing": "",
        "entries": page,
        "actor": ask.text("actor").strip(),
        "is_first": not before,
        "older": page[-1].number if len(entries) > _ENTRIES else None,
    }


# Within a budget


@pages.part("POST", "/ui/data/evict", role="write")
async def evict(ask: Ask) -> Response:
    """Count what is worth least above a budget, or forget it."""
    form = await ask.form()
    max_items = as_number("max_items", form.get("max_items", ""), -1, least=0, most=10**9)
    if max_items < 0:
        raise QueryError("enter how many memories to keep")
    if not scope_of(ask.handle.scope):
        raise QueryError("choose a user first; there is no limit for everyone's memories together")
    is_meant = form.get("sure") == "yes"

    async def work() -> Data:
        evicted = await ask.handle.evict(max_items=max_items, dry_run=not is_meant)
        view: Data = {"evicted": evicted, "done": is_meant, "max_items": max_items}
        return {**view, "shown": evicted.items[:8]}

    return await slow_part(ask, "parts/evicted.html", work)
