"""`Caller`: a call of a handle as requests, by the table that the server routes by.

What comes back is the value that the same call returns of a local handle, or the same error.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from orbiter.memory.agent.results import ForgetResult, Page
from orbiter.memory.agent.runtime import ids_of
from orbiter.memory.backends.arguments import check_several_ids, is_item_id
from orbiter.memory.client._read_response import UNREADABLE, Answer
from orbiter.memory.client._transport import HTTPTransport, Request
from orbiter.memory.errors import ItemNotFoundError, MemoryConnectionError, QueryError
from orbiter.memory.model.items import RESERVED, MemoryItem
from orbiter.memory.wire import Operation, load_error, write_call
from orbiter.memory.wire.calls import MAX_LIST

__all__ = ["Caller"]


_HERE = frozenset(("progress",))
"""Arguments that are for the caller's own process, and not sent."""

_ONCE = "idempotency_key"
_PAGE = 1_000
"""What a server gives at a time, unless it was set up otherwise."""
_DEFAULT_PAGE = 50


Progress = Callable[[int, int], None]
_ACCEPTED = 202
NOBODYS = RESERVED
"""What is sent in the place of an id that cannot be: it is the id of nothing, too."""

_IDS = ("item_id", "fact_id", "item")
_LONGEST_KEY = 200
_FOR_NOTHING = ("get", "history", "end", "revert")


@dataclass(frozen=True, slots=True)
class Caller:
    """Sends the calls of one handle."""

    link: HTTPTransport
    scope_query: Mapping[str, str]
    """Whose memories a request is about, and who acts."""
    names: Mapping[str, object]
    """What names the handle beside its scope."""

    async def call(self, operation: Operation, arguments: Mapping[str, Any]) -> Any:
        """Make a call with *arguments*; return or raise what the server does."""
        sent = _once(operation, arguments)
        if not isinstance(item := sent.get("item"), str | MemoryItem | None):
            ids = sent["item"] = check_several_ids(ids_of(item))
            if len(ids) > MAX_LIST:
                return await self._forget_parts(operation, ids, arguments)
        if operation.is_job(sent):
            return await self._work(operation, sent, arguments.get("progress"))
        if operation.id in ("scope.list", "past.list"):
            if not sent.get("where"):
                sent.pop("where", None)  # any that is empty filters nothing
            return await self._pages(operation, sent)
        return await self._ask(operation, sent)

    async def _pages(self, operation: Operation, arguments: dict[str, Any]) -> Page:
        """Return a page as long as asked for: a server gives a thousand memories, or some MiB."""
        until = self.link.deadline()
        limit, cursor = arguments.get("limit", _DEFAULT_PAGE), arguments.get("cursor")
        is_whole = isinstance(limit, int) and not isinstance(limit, bool)
        left = limit if is_whole else 0
        items: list[MemoryItem] = []
        ended: dict[str, str] = {}
        while True:
            size = min(left, _PAGE) if is_whole else limit  # what is no number is told there
            page = await self._ask(
                operation, {**arguments, "limit": size, "cursor": cursor}, until=until
            )
            items += page
            ended |= page.ended
            left, cursor = left - len(page), page.next
            if cursor is None or left <= 0:
                return Page(items, next=cursor, ended=ended)

    async def _ask(
        self, operation: Operation, sent: dict[str, Any], *, until: float | None = None
    ) -> Any:
        if is_nobodys_key(operation, sent):
            return [] if operation.name == "history" else None
        nobodys = nobodys_id(operation, sent)
        request = self._request(
            operation, sent if nobodys is None else {**sent, nobodys: NOBODYS}, until
        )
        try:
            answer = await self.link.send(request)
        except ItemNotFoundError:
            if operation.is_absent_404:
                return [] if operation.name == "history" else None
            if nobodys is not None:
                raise ItemNotFoundError(sent[nobodys]) from None
            raise
        return self._loaded(operation, answer.json)

    async def _work(
        self, operation: Operation, sent: dict[str, Any], progress: Progress | None
    ) -> Any:
        """Make a call that may take long; *progress* is told how far it is."""
        report = await report_of(self.link, self._request(operation, sent, None), progress)
        return self._loaded(operation, lambda: report)

    async def _forget_parts(
        self, operation: Operation, ids: Sequence[str], arguments: Mapping[str, Any]
    ) -> ForgetResult:
        """Forget more than one call takes, in several."""
        parts = [ids[start : start + MAX_LIST] for start in range(0, len(ids), MAX_LIST)]
        results = [await self.call(operation, {**arguments, "item": part}) for part in parts]
        erasures = [each.erasure for each in results if each.erasure is not None]
        return ForgetResult(
            tuple(item for each in results for item in each.items),
            results[0].dry_run,
            tuple(item_id for each in results for item_id in each.erased),
            sum(erasures[1:], start=erasures[0]) if erasures else None,
        )

    def _loaded(self, operation: Operation, decode: Callable[[], Any]) -> Any:
        """Return what the server has *decode*, as the call returns it."""
        try:
            return operation.returns.load(decode())
        except UNREADABLE as exc:
            raise MemoryConnectionError(
                f"`{self.link.address.url}` answered with something else than `{operation.id}` "
                f"returns ({type(exc).__name__}); is it of another version?"
            ) from exc

    def _request(self, operation: Operation, sent: dict[str, Any], until: float | None) -> Request:
        try:
            call = write_call(operation, sent, target=self.names)
        except UnicodeEncodeError as exc:
            raise QueryError(
                f"{exc.object!r} contains half of a surrogate pair, which is not allowed in a name"
            ) from None
        body = None if call.body is None else _written(operation, call.body)
        return Request(
            call.verb,
            f"/v1/{call.path}",
            {**self.scope_query, **call.query},
            {**call.headers, **({} if body is None else {"Content-Type": "application/json"})},
            body,
            may_repeat=operation.is_safe_to_repeat or bool((call.body or {}).get(_ONCE)),
            until=until,
        )


def _written(operation: Operation, body: Mapping[str, Any]) -> bytes:
    """Return the body as JSON that is not longer than what it says."""
    try:
        text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode()
    except UnicodeEncodeError:  # half a character: the server says where
        return json.dumps(body).encode()
    except (TypeError, ValueError, RecursionError) as exc:
        raise QueryError(f"an argument of `{operation.id}` cannot be sent: {exc}") from None


def _once(operation: Operation, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments to send; what must not be stored twice gets a key.

    An item brings its id along, which a key would change; it is sent once.
    """
    sent = {name: value for name, value in arguments.items() if name not in _HERE}
    takes_key = any(param.name == _ONCE for param in operation.params)
    if takes_key and sent.get(_ONCE) is None and not _has_item(sent):
        sent[_ONCE] = uuid4().hex
    return sent


def _has_item(arguments: Mapping[str, Any]) -> bool:
    what = arguments.get("what", arguments.get("things"))
    things = what if isinstance(what, list | tuple) else [what]
    return any(isinstance(thing, MemoryItem) for thing in things)


_OFTEN, _SELDOM = 1, 20
"""Seconds that the server is asked to wait for the end: with a bar to move, and without."""


async def report_of(link: HTTPTransport, request: Request, progress: Progress | None) -> Any:
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


def _read(answer: Answer, link: HTTPTransport) -> dict[str, Any]:
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
            f"`{link.address.url}` did not answer with a job; is it of another version?"
        )
    if job["state"] == "done" and job["report"] is None:
        raise MemoryConnectionError(
            f"`{link.address.url}` has done this, but was restarted since, so the report is lost"
        )
    return dict(job)


def nobodys_id(operation: Operation, arguments: Mapping[str, Any]) -> str | None:
    """Return the name of the argument that is an id that nothing can have, if one is.

    `QueryError` for what is no id at all.
    """
    if operation.target == "audit":
        return None
    names = ("at",) if operation.id == "chat.fork" else _IDS
    for name in names:
        value = arguments.get(name)
        if not isinstance(value, MemoryItem | list | None) and not is_item_id(value):
            return name
    return None


def is_nobodys_key(operation: Operation, arguments: Mapping[str, Any]) -> bool:
    """Tell whether a call asks for a fact under a key that none can have; none can be put there."""
    key = arguments.get("key")
    if not isinstance(key, str) or len(key) <= _LONGEST_KEY:
        return False
    if operation.name in _FOR_NOTHING:
        return True
    raise QueryError(f"`key`: {len(key):,} characters, at most {_LONGEST_KEY} are allowed")
