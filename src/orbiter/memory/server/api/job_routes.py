"""Jobs over HTTP: how one is answered, and `/v1/jobs`, where it is followed.

A request for long work waits a moment: what is done by then is answered as any other call. What is
not is answered with 202 and goes on. `Prefer` (RFC 7240) says how long to wait: `respond-async` for
not at all, `wait=10` for ten seconds.
"""

import asyncio
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from orbiter.memory.auth.principals import named_scope
from orbiter.memory.errors import QueryError
from orbiter.memory.server.api.job_record import Job
from orbiter.memory.server.api.requests import check_query
from orbiter.memory.server.api.sse import begin_stream, count_stream, until_gone
from orbiter.memory.server.http.error_responses import PROBLEM, HTTPProblem
from orbiter.memory.server.http.json_body import compact_json
from orbiter.memory.server.http.state import principal_of, state_of
from orbiter.memory.wire import Operation
from orbiter.memory.wire.calls import HELD_SCOPE

__all__ = ["answer_job", "routes"]

_JOBS = "/v1/jobs"
_SHARE = 0.8
"""The part of its time that a request waits for a job at most."""

_OFTEN = 0.25
"""Seconds between two events of one job at least."""

_QUIET = 10.0
"""Seconds of silence after which a comment shows that the stream lives."""

_WAIT = re.compile(r"wait\s*=\s*\"?(\d{1,6})\"?")


def routes() -> list[BaseRoute]:
    """Return the routes of this module."""
    return [
        Route(_JOBS, _list, methods=["GET"]),
        Route(f"{_JOBS}/{{job_id}}", _get, methods=["GET"]),
        Route(f"{_JOBS}/{{job_id}}", _drop, methods=["DELETE"]),
        Route(f"{_JOBS}/{{job_id}}/events", _follow, methods=["GET"]),
    ]


async def answer_job(
    request: Request, operation: Operation, target: Any, arguments: Mapping[str, Any]
) -> Response:
    """Have a call made as a job; return its report if that is soon there, else where it will be."""
    server = state_of(request)
    once = request.headers.get("idempotency-key")
    if once is not None and not once.strip():
        raise QueryError("`Idempotency-Key` is empty; use a unique string for each request")
    job = await server.jobs.begin(operation, principal_of(request), target, arguments, once=once)
    wait, applied = _preferred(request, default=server.settings.job_wait)
    await server.jobs.wait(job, wait)
    headers = {"Preference-Applied": applied} if applied else {}
    if not job.is_finished:
        headers |= {"Location": f"{_JOBS}/{job.id}", "Retry-After": "1"}
        return Response(job.to_json(), 202, headers, media_type="application/json")
    if job.problem is not None:
        answer = Response(
            compact_json(job.problem).encode(),
            job.problem["status"],
            headers,
            media_type=PROBLEM,
        )
    elif job.report is None:
        raise HTTPProblem(410, "the job is done, and its report is no longer kept")
    else:
        answer = Response(job.report, 200, headers, media_type="application/json")
    await server.jobs.answered(job)
    return answer


def _preferred(request: Request, *, default: float) -> tuple[float, str]:
    """Return how many seconds to wait, and what was asked of us that we do."""
    header = ",".join(request.headers.getlist("prefer")).lower()
    preferences = [each.partition(";")[0].strip() for each in header.split(",")]
    max_wait = _SHARE * state_of(request).settings.timeout
    waits = [match for each in preferences if (match := _WAIT.fullmatch(each))]
    if waits:
        return min(float(waits[0][1]), max_wait), f"wait={waits[0][1]}"
    if "respond-async" in preferences:
        return 0.0, "respond-async"
    return min(default, max_wait), ""


# Following


async def _list(request: Request) -> Response:
    check_query(request)
    jobs = await state_of(request).jobs.jobs_of(principal_of(request))
    body = compact_json({"jobs": [job.as_json() for job in jobs]})
    # A client asks this first, and so knows whose memories its key is for.
    held = urlencode(named_scope(principal_of(request).scope))
    headers = {HELD_SCOPE: held} if held else {}
    return Response(body.encode(), headers=headers, media_type="application/json")


async def _find(request: Request) -> Job:
    check_query(request)
    return await state_of(request).jobs.find(request.path_params["job_id"], principal_of(request))


async def _get(request: Request) -> Response:
    job = await _find(request)
    wait, applied = _preferred(request, default=0.0)
    await state_of(request).jobs.wait(job, wait)
    headers = {"Preference-Applied": applied} if applied else {}
    if not job.is_finished:
        headers["Retry-After"] = "1"
    return Response(job.to_json(), 200, headers, media_type="application/json")


async def _drop(request: Request) -> Response:
    await state_of(request).jobs.drop(await _find(request))
    return Response(status_code=204)


async def _follow(request: Request) -> "_JobEvents":
    return _JobEvents(request, await _find(request))


class _JobEvents:
    """What becomes of one job, as server-sent events; the last one has its report."""

    def __init__(self, request: Request, job: Job) -> None:
        self._state = state_of(request)
        self._principal = principal_of(request)
        self._job = job
        self._is_head = request.method == "HEAD"

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Send events until the job is over, or the reader leaves."""
        if self._is_head:
            await begin_stream(send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        with count_stream(self._state.link.limits, self._principal):
            gone = asyncio.ensure_future(until_gone(receive))
            try:
                await begin_stream(send)
                await self._send_events(send, gone)
            finally:
                gone.cancel()

    async def _send_events(self, send: Send, gone: "asyncio.Future[None]") -> None:
        async def write(data: bytes, *, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": more})

        job, jobs, number = self._job, self._state.jobs, 0
        while not job.is_finished and await self._state.still_holds(self._principal):
            number += 1
            progress = compact_json(job.as_json()).encode()
            await write(b"id: %d\nevent: progress\ndata: %b\n\n" % (number, progress))
            before = (job.state, job.done, job.total)
            await jobs.wait(job, _QUIET, is_news=True)
            if jobs.is_leaving or gone.done():
                break
            if before == (job.state, job.done, job.total) and not job.is_finished:
                await write(b": still here\n\n")
            await jobs.wait(job, _OFTEN)
        if gone.done():
            return
        if job.is_finished:
            state = job.state.encode()
            await write(b"id: %d\nevent: %b\ndata: %b\n\n" % (number + 1, state, job.to_json()))
        await write(b"", more=False)
