"""OpenAI-compatible chat endpoints, hosted or local: the client, and a summarizer that asks one.

Every call ends within `deadline` seconds, retries included.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from orbiter.memory._lazy import missing_extra
from orbiter.memory.errors import MemoryConnectionError, MemoryTimeoutError, QueryError
from orbiter.memory.model.query import check_size
from orbiter.memory.summary import without_thoughts

if TYPE_CHECKING:
    import openai


__all__ = ["ChatModel", "ChatService", "OpenAISummarizer"]


_MAX_REASON = 300
_KEY = re.compile(r"\b(?:sk|pk|key|gsk|xai)-[\w*.-]{4,}|(?<=Bearer )\S+", re.IGNORECASE)
"""What looks like a key, hidden in part or not: services tell which one they refuse."""


class ChatService:
    """What each class that asks a chat model has in common; none of them keeps a connection."""

    def __init__(
        self,
        *,
        model: str,
        api_key: str | None,
        base_url: str | None,
        timeout: float,
        max_retries: int,
        deadline: float,
    ) -> None:
        # Not at the top: `from orbiter.memory import *` must work without the extra.
        try:
            import openai  # noqa: PLC0415
        except ModuleNotFoundError as exc:
            raise missing_extra(f"{type(self).__name__} needs openai", "openai") from exc
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

    def __repr__(self) -> str:
        return f"{type(self).__name__}(model={self.model!r}, base_url={self._where()!r})"

    def _client(self) -> "openai.AsyncOpenAI":
        # One for each call: a connection kept open would belong to one event loop, and to nobody
        # once that loop is closed. An answer takes seconds; connecting does not matter.
        return self._openai.AsyncOpenAI(
            api_key=self._api_key or ("none" if self._base_url else None),
            base_url=self._base_url,
            timeout=self._timeout,
            max_retries=self._max_retries,
        )

    @asynccontextmanager
    async def _conversation(self) -> "AsyncIterator[openai.AsyncOpenAI]":
        """Give a client until the deadline; what goes wrong is one of our errors, without keys."""
        openai = self._openai
        try:
            async with asyncio.timeout(self.deadline), self._client() as client:
                yield client
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

    async def _complete(
        self, client: "openai.AsyncOpenAI", messages: Sequence[Any]
    ) -> tuple[str, bool]:
        """Return the model's answer, and whether it came to its end."""
        answer = await client.chat.completions.create(model=self.model, messages=list(messages))
        # A server that only looks compatible may answer with anything at all.
        choices = getattr(answer, "choices", None)
        text = choices[0].message.content if choices else None
        if not isinstance(text, str):
            raise MemoryConnectionError(f"`{self.model}` at {self._where()} answered nothing")
        reason = choices[0].finish_reason if choices else None
        if reason == "content_filter":
            raise MemoryConnectionError(
                f"`{self.model}` at {self._where()} refused: its filter blocked the answer"
            )
        return without_thoughts(text), reason != "length"

    def _reason(self, error: "openai.APIStatusError") -> str:
        """Return what the service says was wrong, as `: …` in one line; no key stands in it."""
        body: object = error.body
        for name in ("message", "detail", "error"):
            if isinstance(body, dict) and body.get(name):
                body = body[name]
        if not isinstance(body, str) or "<" in body[:80]:  # a page for browsers says nothing
            return ""
        text = " ".join(body.split())
        secrets = (
            self._api_key,
            os.environ.get("OPENAI_API_KEY"),
            urlsplit(self._base_url or "").password,
        )
        for secret in secrets:
            if secret:
                text = text.replace(secret, "[key]")
        text = _KEY.sub("[key]", text)
        return f": {text[:_MAX_REASON]}{'…' if len(text) > _MAX_REASON else ''}" if text else ""

    def _where(self) -> str:
        """Return the endpoint for people to read: a password in it is not shown."""
        if self._base_url is None:
            return "the OpenAI API"
        parts = urlsplit(self._base_url)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


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
        async with self._conversation() as client:
            text, is_whole = await self._complete(client, _as_user(prompt))
            if not is_whole:
                words = max(50, len(text.split()) // 2)
                limit = f"Answer in at most {words} words, in whole sentences."
                text, is_whole = await self._complete(client, _as_user(f"{prompt}\n\n{limit}"))
        if not is_whole:
            raise MemoryConnectionError(
                f"`{self.model}` at {self._where()} was cut off in its answer, twice; let it "
                "answer at greater length, or summarize fewer messages at a time"
            )
        return text


def _as_user(prompt: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": prompt}]


class ChatModel(ChatService):
    """Answers a conversation: any OpenAI-compatible endpoint, asked once and without tools."""

    def __init__(
        self, *, model: str, base_url: str, api_key: str | None = None, deadline: float = 90.0
    ) -> None:
        super().__init__(
            model=model,
            api_key=api_key,
            base_url=base_url,
            timeout=deadline,
            max_retries=1,
            deadline=deadline,
        )

    @property
    def place(self) -> str:
        """The endpoint for people to read."""
        return self._where()

    async def reply(self, messages: Sequence[Any]) -> str:
        """Return the answer to *messages*, which are as OpenAI wants them."""
        async with self._conversation() as client:
            return (await self._complete(client, messages))[0]
