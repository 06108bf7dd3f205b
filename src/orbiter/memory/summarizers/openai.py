"""A summarizer on any OpenAI-compatible chat endpoint, hosted or local.

Every call ends within `deadline` seconds, retries included.
"""

import asyncio
from typing import TYPE_CHECKING

from orbiter.memory.errors import MemoryConnectionError, MemoryTimeoutError
from orbiter.memory.summarizers.chat_completions import ChatService
from orbiter.memory.summary import without_thoughts

if TYPE_CHECKING:
    import openai

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
        """Return the model's answer to *prompt*, without what it thought aloud.

        An answer that was cut off is asked for once more, shorter; if that is cut off, too, it is
        an error. An empty answer is returned as it is: there may be nothing to say.
        """
        openai = self._openai
        try:
            async with asyncio.timeout(self.deadline), self._client() as client:
                text, is_whole = await self._ask(client, prompt)
                if not is_whole:
                    words = max(50, len(text.split()) // 2)
                    limit = f"Answer in at most {words} words, in whole sentences."
                    text, is_whole = await self._ask(client, f"{prompt}\n\n{limit}")
        except (TimeoutError, openai.APITimeoutError) as exc:
            raise MemoryTimeoutError(
                f"`{self.model}` at {self._where()} gave no answer in time "
                f"({self._timeout:g} s a try, {self.deadline:g} s in all)"
            ) from exc
        except openai.APIStatusError as exc:
            raise MemoryConnectionError(
                f"`{self.model}` at {self._where()} answered {exc.status_code}{self._reason(exc)}"
            ) from exc
        except openai.APIConnectionError as exc:
            raise MemoryConnectionError(f"cannot reach {self._where()}") from exc
        except (openai.OpenAIError, ValueError) as exc:  # no key, or an answer that is not JSON
            raise MemoryConnectionError(f"`{self.model}` at {self._where()}: {exc}") from exc
        if not is_whole:
            raise MemoryConnectionError(
                f"`{self.model}` at {self._where()} was cut off in its answer, twice; let it "
                "answer at greater length, or sum up fewer messages at a time"
            )
        return text

    async def _ask(self, client: "openai.AsyncOpenAI", prompt: str) -> tuple[str, bool]:
        """Return the model's answer, and whether it came to its end."""
        answer = await client.chat.completions.create(
            model=self.model, messages=[{"role": "user", "content": prompt}]
        )
        # A server that only looks compatible may answer with anything at all.
        choices = getattr(answer, "choices", None)
        text = choices[0].message.content if choices else None
        if not isinstance(text, str):
            raise MemoryConnectionError(f"`{self.model}` at {self._where()} answered nothing")
        reason = choices[0].finish_reason if choices else None
        if reason == "content_filter":
            raise MemoryConnectionError(
                f"`{self.model}` at {self._where()} refused: its filter held the answer back"
            )
        return without_thoughts(text), reason != "length"
