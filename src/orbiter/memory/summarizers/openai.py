"""A summarizer on any OpenAI-compatible chat endpoint, hosted or local.

Every call ends within `deadline` seconds, retries included.
"""

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from orbiter.memory.errors import MemoryConnectionError, MemoryTimeoutError, QueryError
from orbiter.memory.query import check_size

if TYPE_CHECKING:
    import openai

__all__ = ["OpenAISummarizer"]


class OpenAISummarizer:
    """Asks a chat model for the summary.

    Without `api_key` the variable `OPENAI_API_KEY` is read; a server of your own, named by
    `base_url`, needs none. `timeout` bounds one attempt, `deadline` all of them.
    """

    def __init__(
        self,
        *,
        model: str = "gpt-4o-mini",
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: float = 30.0,
        max_retries: int = 2,
        deadline: float = 90.0,
    ) -> None:
        # Not at the top: `from orbiter.memory import *` must work without the extra.
        try:
            import openai  # noqa: PLC0415
        except ModuleNotFoundError as exc:
            raise ModuleNotFoundError(
                "OpenAISummarizer needs openai: pip install 'orbiter-memory[openai]'"
            ) from exc
        for name, value in (("timeout", timeout), ("deadline", deadline)):
            if not value > 0:
                raise QueryError(f"`{name}` must be greater than 0 seconds, not {value}")
        self._openai = openai
        self.model = model
        self.deadline = deadline
        self._api_key = api_key
        self._base_url = base_url
        self._timeout = timeout
        self._max_retries = check_size("max_retries", max_retries)

    async def summarize(self, prompt: str) -> str:
        """Return the model's answer to *prompt*."""
        openai = self._openai
        try:
            async with asyncio.timeout(self.deadline), self._client() as client:
                answer = await client.chat.completions.create(
                    model=self.model, messages=[{"role": "user", "content": prompt}]
                )
        except (TimeoutError, openai.APITimeoutError) as exc:
            raise MemoryTimeoutError(
                f"`{self.model}` at {self._where()} gave no answer in time "
                f"({self._timeout:g} s a try, {self.deadline:g} s in all)"
            ) from exc
        except openai.APIStatusError as exc:
            raise MemoryConnectionError(
                f"`{self.model}` at {self._where()} answered {exc.status_code}"
            ) from exc
        except openai.APIConnectionError as exc:
            raise MemoryConnectionError(f"cannot reach {self._where()}") from exc
        except (openai.OpenAIError, ValueError) as exc:  # no key, or an answer that is not JSON
            raise MemoryConnectionError(f"`{self.model}` at {self._where()}: {exc}") from exc
        # A server that only looks compatible may answer with anything at all.
        choices = getattr(answer, "choices", None)
        text: str | None = choices[0].message.content if choices else None
        if not text:
            raise MemoryConnectionError(f"`{self.model}` at {self._where()} answered nothing")
        return text

    def __repr__(self) -> str:
        return f"OpenAISummarizer(model={self.model!r}, base_url={self._where()!r})"

    def _client(self) -> "openai.AsyncOpenAI":
        # One for each call: a connection kept open would belong to one event loop, and to nobody
        # once that loop is closed. A summary takes seconds; connecting does not matter.
        return self._openai.AsyncOpenAI(
            api_key=self._api_key or ("none" if self._base_url else None),
            base_url=self._base_url,
            timeout=self._timeout,
            max_retries=self._max_retries,
        )

    def _where(self) -> str:
        """Return the endpoint for people to read: a password in it is not shown."""
        if self._base_url is None:
            return "the OpenAI API"
        parts = urlsplit(self._base_url)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
