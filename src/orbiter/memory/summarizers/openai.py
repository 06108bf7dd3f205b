"""A summarizer on any OpenAI-compatible chat endpoint, hosted or local.

Every call ends within `deadline` seconds, retries included.
"""

import asyncio
from typing import TYPE_CHECKING

from orbiter.memory.errors import MemoryConnectionError, MemoryTimeoutError

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
        self._openai = openai
        self.model = model
        self.deadline = deadline
        self._api_key = api_key
        self._base_url = base_url
        self._timeout = timeout
        self._max_retries = max_retries
        self._client: openai.AsyncOpenAI | None = None

    async def summarize(self, prompt: str) -> str:
        """Return the model's answer to *prompt*."""
        openai = self._openai
        try:
            async with asyncio.timeout(self.deadline):
                answer = await self._connected().chat.completions.create(
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

    async def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def __repr__(self) -> str:
        return f"OpenAISummarizer(model={self.model!r}, base_url={self._base_url!r})"

    def _connected(self) -> "openai.AsyncOpenAI":
        if self._client is None:
            key = self._api_key or ("none" if self._base_url else None)
            self._client = self._openai.AsyncOpenAI(
                api_key=key,
                base_url=self._base_url,
                timeout=self._timeout,
                max_retries=self._max_retries,
            )
        return self._client

    def _where(self) -> str:
        return self._base_url or "the OpenAI API"
