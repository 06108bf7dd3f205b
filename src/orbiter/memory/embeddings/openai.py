"""`OpenAIEmbeddings`: any service that speaks OpenAI's embeddings API, hosted or local.

Every call ends within `deadline` seconds, retries included, and leaves no connection open.
"""

import asyncio
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self
from urllib.parse import urlsplit, urlunsplit
from weakref import WeakKeyDictionary

from orbiter.memory._lazy import missing_extra
from orbiter.memory.embeddings.responses import batches, retry_after, sendable, vectors
from orbiter.memory.errors import (
    EmbeddingError,
    MemoryConnectionError,
    MemoryTimeoutError,
    QueryError,
)
from orbiter.memory.model.protocols import Embeddings, check_is_one_text
from orbiter.memory.model.query import check_size
from orbiter.memory.tasks.event_loop import bounded_gather

if TYPE_CHECKING:
    import openai

__all__ = ["OpenAIEmbeddings"]


class OpenAIEmbeddings(Embeddings):
    """Asks an embedding model.

    Without `api_key` the variable `OPENAI_API_KEY` is read; a server of your own, named by
    `base_url`, needs none. `dimension` is asked for where a model has a choice
    (`text-embedding-3-*`), and checked in every answer. The empty text, which the API refuses, is
    sent as one space.

    Many texts go in requests of at most `batch_size` texts, `max_concurrency` at a time.
    `timeout` bounds one try of a request, `deadline` the whole call. Full, failing and unreachable
    servers are asked again, `max_retries` times, after the wait they ask for.

    `async with` keeps connections open between calls, until its end or `aclose`.
    """

    def __init__(  # noqa: PLR0913 - the seed's four, and what bounds a call
        self,
        *,
        model: str = "text-embedding-3-small",
        dimension: int = 1536,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: float = 20.0,
        max_retries: int = 3,
        deadline: float = 60.0,
        batch_size: int = 256,
        max_concurrency: int = 4,
    ) -> None:
        # Not at the top: `from orbiter.memory import *` must work without the extra.
        try:
            import openai  # noqa: PLC0415
        except ModuleNotFoundError as exc:
            raise missing_extra("OpenAIEmbeddings needs openai", "openai") from exc
        for name, value in (("timeout", timeout), ("deadline", deadline)):
            if not value > 0:
                raise QueryError(f"`{name}` must be greater than 0 seconds, not {value}")
        counts = {"dimension": dimension, "batch_size": batch_size}
        for name, count in {**counts, "max_concurrency": max_concurrency}.items():
            if check_size(name, count) == 0:
                raise QueryError(f"`{name}` must be 1 or more, not 0")
        self._openai = openai
        self.model = model
        self.deadline = deadline
        self._dimension = dimension
        self._api_key = api_key
        self._base_url = base_url
        self._timeout = timeout
        self._max_retries = check_size("max_retries", max_retries)
        self._batch_size = batch_size
        self._max_concurrency = max_concurrency
        # A connection belongs to the event loop it was made on, so each loop has a client.
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, openai.AsyncOpenAI] = (
            WeakKeyDictionary()
        )

    @property
    def dimension(self) -> int:
        """How long every vector is."""
        return self._dimension

    @property
    def name(self) -> str:
        """What the model is called."""
        return self.model

    def embed(self, text: str) -> list[float]:
        """Return the vector of *text*; the calling thread waits."""
        check_is_one_text(text)
        return self.embed_many([text])[0]

    async def aembed(self, text: str) -> list[float]:
        """Return the vector of *text*."""
        check_is_one_text(text)
        return (await self.aembed_many([text]))[0]

    def embed_many(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the vector of each text, in the order given; the calling thread waits."""
        # A loop of its own and no blocking client: only a loop can end a try in time when the
        # server answers a byte at a time.
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._run_apart(texts)
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(self._run_apart, texts).result()

    async def aembed_many(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the vector of each text, in the order given."""
        parts = list(batches([sendable(text) for text in texts], size=self._batch_size))
        try:
            async with asyncio.timeout(self.deadline) as limit:
                batch_vectors = await bounded_gather(
                    lambda part: self._ask(part, limit), parts, limit=self._max_concurrency
                )
        except MemoryTimeoutError:
            raise
        except TimeoutError as exc:
            raise self._late() from exc
        return [vector for part in batch_vectors for vector in part]

    async def aclose(self) -> None:
        """Close the connections of this event loop; another call opens new ones."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

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

    def __repr__(self) -> str:
        where = self._where()
        return f"OpenAIEmbeddings(model={self.model!r}, dimension={self._dimension}, at={where!r})"

    def _run_apart(self, texts: Sequence[str]) -> list[list[float]]:
        async def main() -> list[list[float]]:
            try:
                return await self.aembed_many(texts)
            finally:
                await self.aclose()

        # With a factory it leaves the thread's current event loop alone.
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            return runner.run(main())

    async def _ask(self, texts: list[str], limit: asyncio.Timeout) -> list[list[float]]:
        """Return the vectors of one batch, trying again as long as that makes sense."""
        tries = 0
        while True:
            try:
                answer = await self._try(texts)
                break
            except (TimeoutError, self._openai.OpenAIError, ValueError) as exc:
                pause = self._pause(exc, tries)
                if pause is None or tries == self._max_retries or _is_beyond(limit, pause):
                    self._give_up(exc)
            tries += 1
            await asyncio.sleep(pause)
        return vectors(answer, count=len(texts), dimension=self._dimension, model=self.model)

    async def _try(self, texts: list[str]) -> object:
        # Not every model has a choice of dimensions, and who has none refuses the question.
        has_choice = self.model.startswith("text-embedding-3-")
        async with asyncio.timeout(self._timeout):
            return await self._client().embeddings.create(
                model=self.model,
                input=texts,
                encoding_format="base64",  # a third of the bytes; who cannot sends numbers
                extra_body={"dimensions": self._dimension} if has_choice else None,
            )

    def _pause(self, error: Exception, tries: int) -> float | None:
        """Return how long to wait before the next try, or `None` if another would be in vain."""
        openai = self._openai
        wanted = None
        if isinstance(error, openai.APIStatusError):
            # A used-up quota has the status of too many requests, but no wait will help.
            if error.code == "insufficient_quota":
                return None
            if error.status_code not in (408, 409, 429) and error.status_code < 500:
                return None
            wanted = retry_after(error.response.headers)
        elif not isinstance(error, (TimeoutError, openai.APIConnectionError)):
            return None
        backoff = min(8.0, 0.5 * 2**tries) * random.uniform(0.75, 1)  # noqa: S311 - no secret
        return backoff if wanted is None else wanted

    def _give_up(self, error: Exception) -> NoReturn:
        """Raise one of our errors for *error*."""
        openai = self._openai
        model = f"`{self.model}` at {self._where()}"
        if isinstance(error, TimeoutError | openai.APITimeoutError):
            raise self._late() from error
        if isinstance(error, openai.APIStatusError):
            raise _refusal(model, error.status_code, error.code, error.message) from error
        if isinstance(error, openai.APIConnectionError):
            raise MemoryConnectionError(
                f"cannot reach {self._where()} for `{self.model}`; check `base_url` and the network"
            ) from error
        if isinstance(error, openai.OpenAIError):  # there is no key at all
            raise MemoryConnectionError(f"{model}: {error}") from error
        raise EmbeddingError(
            f"{model} answered with something that is not JSON; check `base_url`"
        ) from error

    def _late(self) -> MemoryTimeoutError:
        return MemoryTimeoutError(
            f"`{self.model}` at {self._where()} gave no answer in time ({self._timeout:g} s a try,"
            f" {self.deadline:g} s in all); raise `timeout` or `deadline`"
        )

    def _client(self) -> "openai.AsyncOpenAI":
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client = self._clients[loop] = self._connect(keep=False)
        return client

    def _connect(self, *, keep: bool) -> "openai.AsyncOpenAI":
        # A client costs 50 ms to make, so it is kept for the loop; its connections are not,
        # unless someone has promised to close them.
        return self._openai.AsyncOpenAI(
            api_key=self._api_key or ("none" if self._base_url else None),
            base_url=self._base_url,
            timeout=self._timeout,
            max_retries=0,
            default_headers=None if keep else {"Connection": "close"},
        )

    def _where(self) -> str:
        """Return the endpoint for people to read: a password in it is not shown."""
        if self._base_url is None:
            return "the OpenAI API"
        parts = urlsplit(self._base_url)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _is_beyond(limit: asyncio.Timeout, pause: float) -> bool:
    """Tell whether the call would be over before a wait of *pause* seconds."""
    when = limit.when()
    return when is not None and asyncio.get_running_loop().time() + pause >= when


def _refusal(model: str, status: int, code: str | None, message: str) -> Exception:
    if status in (401, 403):
        # The server's words may quote the key.
        return MemoryConnectionError(
            f"{model} refused the key ({status}); check `api_key` or the variable `OPENAI_API_KEY`"
        )
    if status == 404:
        return MemoryConnectionError(f"{model} was not found (404); check `model` and `base_url`")
    if code == "insufficient_quota":
        return MemoryConnectionError(f"{model} has no quota left ({status}); check the account")
    if status == 429:
        return MemoryConnectionError(
            f"{model} has too many requests (429); lower `max_concurrency` or raise `deadline`"
        )
    if status < 500:
        return EmbeddingError(f"{model} refused a text ({status}): {message[:200]}")
    return MemoryConnectionError(f"{model} answered {status}; try again later")
