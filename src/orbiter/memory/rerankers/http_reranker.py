"""`HttpReranker`: rerank services, hosted or local: Cohere, Jina, vLLM, llama.cpp, TEI.

Every call ends within `deadline` seconds, retries included, and leaves no connection open. Nothing
a service says is believed unchecked.
"""

import asyncio
import random
from collections.abc import Sequence
from types import TracebackType, UnionType
from typing import TYPE_CHECKING, Any, NoReturn, Self
from urllib.parse import urlsplit, urlunsplit
from weakref import WeakKeyDictionary

from orbiter.memory._lazy import missing_extra
from orbiter.memory.embeddings.responses import batches, retry_after, sendable
from orbiter.memory.errors import (
    MemoryConnectionError,
    MemoryTimeoutError,
    QueryError,
    RerankError,
)
from orbiter.memory.model.query import check_size
from orbiter.memory.tasks.event_loop import bounded_gather

if TYPE_CHECKING:
    import httpx

__all__ = ["HttpReranker"]

_BATCH = {True: 100, False: 32}
"""Texts of a request with a model, which a hosted service counts as one; and of TEI's limit."""
_CONCURRENCY = 2
_LARGEST = 1e9


class HttpReranker:
    """Asks a rerank service at *url*, such as `https://api.jina.ai/v1/rerank`.

    With *model*, the request is the one of Cohere, Jina, vLLM and llama.cpp: `{"model", "query",
    "documents", "top_n"}`, answered by `{"results": [{"index", "relevance_score"}]}`. Without, it
    is that of Text Embeddings Inference: `{"query", "texts"}`, answered by `[{"index", "score"}]`.
    Either answer is understood. *api_key* is sent as a bearer token.

    Texts go in requests of at most *batch_size*, by default 100, and 32 for TEI. *timeout* bounds
    one try of a request, *deadline* the whole call. Full, failing and unreachable servers are asked
    again, *max_retries* times, after the wait they ask for.

    `async with` keeps connections open between calls, until its end or `aclose`.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        api_key: str | None = None,
        timeout: float = 5.0,
        max_retries: int = 2,
        deadline: float = 10.0,
        batch_size: int | None = None,
    ) -> None:
        # Not at the top: importing the package must work without the extra.
        try:
            import httpx  # noqa: PLC0415
        except ModuleNotFoundError as exc:
            raise missing_extra("HttpReranker needs httpx", "client") from exc
        if urlsplit(url).scheme not in ("http", "https"):
            raise QueryError(f"`url` must begin with `http://` or `https://`, not {url!r}")
        for name, value in (("timeout", timeout), ("deadline", deadline)):
            if not value > 0:
                raise QueryError(f"`{name}` must be greater than 0 seconds, not {value}")
        if batch_size is not None and check_size("batch_size", batch_size) == 0:
            raise QueryError("`batch_size` must be 1 or more, not 0")
        self._httpx = httpx
        self._url = url
        self.model = model
        self._api_key = api_key
        self._timeout = timeout
        self._max_retries = check_size("max_retries", max_retries)
        self.deadline = deadline
        self._batch_size = batch_size or _BATCH[model is not None]
        # A connection belongs to the event loop it was made on, so each loop has a client.
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = (
            WeakKeyDictionary()
        )

    def __repr__(self) -> str:
        model = "" if self.model is None else f", model={self.model!r}"
        return f"HttpReranker({self._where()!r}{model})"

    async def rerank(self, question: str, texts: Sequence[str]) -> list[float]:
        """Return how well each text answers *question*, in the order given."""
        parts = list(batches([sendable(text) for text in texts], size=self._batch_size))
        try:
            async with asyncio.timeout(self.deadline) as limit:
                scores = await bounded_gather(
                    lambda part: self._ask(sendable(question), part, limit),
                    parts,
                    limit=_CONCURRENCY,
                )
        except MemoryTimeoutError:
            raise
        except TimeoutError as exc:
            raise self._late() from exc
        return [score for part in scores for score in part]

    async def aclose(self) -> None:
        """Close the connections of this event loop; the next call makes others."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    async def __aenter__(self) -> Self:
        await self.aclose()
        self._clients[asyncio.get_running_loop()] = self._connect(keep=True)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def _ask(self, question: str, texts: list[str], limit: asyncio.Timeout) -> list[float]:
        """Return the scores of one batch, trying again as long as that makes sense."""
        tries = 0
        while True:
            try:
                async with asyncio.timeout(self._timeout):
                    response = await self._client().post(
                        self._url, json=self._body(question, texts)
                    )
                response.raise_for_status()
                return self._scores(response, len(texts))
            except (TimeoutError, self._httpx.HTTPError) as exc:
                pause = self._pause(exc, tries)
                if pause is None or tries == self._max_retries or _is_beyond(limit, pause):
                    self._give_up(exc)
            tries += 1
            await asyncio.sleep(pause)

    def _body(self, question: str, texts: list[str]) -> dict[str, Any]:
        if self.model is None:
            return {"query": question, "texts": texts, "truncate": True}
        return {
            "model": self.model,
            "query": question,
            "documents": texts,
            "top_n": len(texts),
        }

    def _scores(self, response: "httpx.Response", count: int) -> list[float]:
        """Return the scores of an answer in the order of the texts."""
        try:
            answer = response.json()
        except ValueError as exc:
            raise RerankError(
                f"{self._named()} answered with something that is not JSON; check `url`"
            ) from exc
        entries = answer.get("results", answer.get("data")) if isinstance(answer, dict) else answer
        scores: dict[int, float] = {}
        for entry in entries if isinstance(entries, list) else ():
            scores.update(_read(entry))
        if set(scores) != set(range(count)):
            raise RerankError(
                f"{self._named()} answered {count} texts with {len(scores)} usable scores; check "
                "`url`, and whether `model` must be given"
            )
        return [scores[at] for at in range(count)]

    def _pause(self, error: Exception, tries: int) -> float | None:
        """Return how long to wait before the next try, or `None` if another would be in vain."""
        wanted = None
        if isinstance(error, self._httpx.HTTPStatusError):
            status = error.response.status_code
            if status not in (408, 409, 429) and status < 500:
                return None
            wanted = retry_after(error.response.headers)
        elif not isinstance(error, (TimeoutError, self._httpx.TransportError)):
            return None
        backoff = min(8.0, 0.5 * 2**tries) * random.uniform(0.75, 1)  # noqa: S311 - no secret
        return backoff if wanted is None else wanted

    def _give_up(self, error: Exception) -> NoReturn:
        """Raise one of our errors for *error*."""
        if isinstance(error, TimeoutError | self._httpx.TimeoutException):
            raise self._late() from error
        if isinstance(error, self._httpx.HTTPStatusError):
            raise self._refusal(error.response) from error
        raise MemoryConnectionError(
            f"cannot reach {self._named()} ({type(error).__name__}); check `url` and the network"
        ) from error

    def _refusal(self, response: "httpx.Response") -> Exception:
        status, named = response.status_code, self._named()
        if status in (401, 403):
            # The server's words may quote the key.
            return MemoryConnectionError(f"{named} refused the key ({status}); check `api_key`")
        if status == 404:
            return MemoryConnectionError(f"{named} was not found (404); check `url` and `model`")
        if status == 429:
            return MemoryConnectionError(f"{named} has too many requests (429); try again later")
        if status < 400:
            return MemoryConnectionError(
                f"{named} answered {status}, which leads elsewhere; give that address as `url`"
            )
        if status < 500:
            return RerankError(
                f"{named} refused the texts ({status}): {response.text[:200]}; check whether "
                "`model` must be given, or lower `batch_size`"
            )
        return MemoryConnectionError(f"{named} answered {status}; try again later")

    def _late(self) -> MemoryTimeoutError:
        return MemoryTimeoutError(
            f"{self._named()} gave no answer in time ({self._timeout:g} s a try, "
            f"{self.deadline:g} s in all); raise `timeout` or `deadline`"
        )

    def _client(self) -> "httpx.AsyncClient":
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client = self._clients[loop] = self._connect(keep=False)
        return client

    def _connect(self, *, keep: bool) -> "httpx.AsyncClient":
        # A client costs 50 ms to make, so it is kept for the loop; its connections are not,
        # unless someone has promised to close them.
        headers = {} if keep else {"Connection": "close"}
        if self._api_key is not None:
            headers["Authorization"] = f"Bearer {self._api_key}"
        return self._httpx.AsyncClient(headers=headers, timeout=self._timeout)

    def _named(self) -> str:
        where = self._where()
        return where if self.model is None else f"`{self.model}` at {where}"

    def _where(self) -> str:
        """Return the address for people to read: neither a password nor a query is shown."""
        parts = urlsplit(self._url)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=""))


def _read(entry: object) -> dict[int, float]:
    """Return the score of an entry by the index of its text; nothing if it has no sound one."""
    if not isinstance(entry, dict):
        return {}
    index: Any = entry.get("index")
    score: Any = entry.get("relevance_score", entry.get("score"))
    if not _is_number(index, int) or not _is_number(score, int | float):
        return {}
    return {index: float(score)} if -_LARGEST < score < _LARGEST else {}  # NaN is not


def _is_number(value: object, kind: type | UnionType) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _is_beyond(limit: asyncio.Timeout, pause: float) -> bool:
    """Tell whether the call would be over before a wait of *pause* seconds."""
    when = limit.when()
    return when is not None and asyncio.get_running_loop().time() + pause >= when
