"""Long calls: the server makes a job of them, and this waits for its report.

The request has a key of its own, so that one whose answer was lost is sent again and finds the job
that it began. A server that is started again goes on with the job, and so does this.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

from orbiter.memory.client._read_response import UNREADABLE, Answer
from orbiter.memory.client._transport import Link, Request
from orbiter.memory.errors import MemoryConnectionError
from orbiter.memory.wire import load_error

__all__ = ["Progress", "report_of"]

Progress = Callable[[int, int], None]

_ACCEPTED = 202
_OFTEN, _SELDOM = 1, 20
"""Seconds that the server is asked to wait for the end: with a bar to move, and without."""


async def report_of(link: Link, request: Request, progress: Progress | None) -> Any:
    """Return what a long call returned, as JSON; raise what it raised.

    It takes as long as it takes: the time of a call counts for each request of it.
    """
    # Whole seconds, and less than the time in which an answer must be here.
    wait = int(min(_SELDOM if progress is None else _OFTEN, link.timeout / 2))
    prefer = {"Prefer": f"wait={wait}"}
    headers = {**request.headers, **prefer, "Idempotency-Key": uuid4().hex}
    answer = await link.send(replace(request, headers=headers, may_repeat=True))
    if answer.status != _ACCEPTED:
        return answer.json()
    while True:
        job = _read(answer, link)
        if progress is not None:
            progress(job["progress"]["done"], job["progress"]["total"] or 0)
        if job["state"] == "failed":
            raise load_error(job["problem"].get("status", 500), job["problem"])
        if job["state"] == "done":
            return job["report"]
        if not wait:
            await asyncio.sleep(link.timeout / 4)
        answer = await link.send(Request("GET", f"/v1/jobs/{job['id']}", headers=prefer))


def _read(answer: Answer, link: Link) -> dict[str, Any]:
    """Return a job that can be followed; `MemoryConnectionError` for anything else."""
    try:
        job = answer.json()
        is_job = str(job["id"]).isalnum() and job["state"] in (
            "queued",
            "running",
            "done",
            "failed",
        )
        is_told = job["state"] != "failed" or isinstance(job["problem"], dict)
        is_job = is_job and is_told and isinstance(job["progress"]["done"], int)
    except UNREADABLE:
        is_job = False
    if not is_job:
        raise MemoryConnectionError(
            f"`{link.address.url}` answered with something else than a job; is it of another "
            "version?"
        )
    if job["state"] == "done" and job["report"] is None:
        raise MemoryConnectionError(
            f"`{link.address.url}` has done this and was started again since, so that its report "
            "is gone"
        )
    return dict(job)
