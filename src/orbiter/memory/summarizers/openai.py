"""A summarizer on any OpenAI-compatible chat endpoint, hosted or local.

Every call ends within `deadline` seconds, retries included.
"""

import asyncio

from orbiter.memory.errors import MemoryConnectionError, MemoryTimeoutError
from orbiter.memory.summarizers._chat_service import ChatService

__all__ = ["OpenAISummarizer"]


class OpenAISummarizer(ChatService):
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
        super().__init__(
            model=model,
            api_key=api_key,
            base_url=base_url,
            timeout=timeout,
            max_retries=max_retries,
            deadline=deadline,
        )

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
