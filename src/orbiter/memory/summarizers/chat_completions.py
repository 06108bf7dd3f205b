"""An OpenAI-compatible chat endpoint, hosted or local: its settings, its client, its name."""

import os
import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from orbiter.memory.errors import QueryError
from orbiter.memory.model.query import check_size

if TYPE_CHECKING:
    import openai

__all__ = ["ChatService"]

_MOST_REASON = 300
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
            raise ModuleNotFoundError(
                f"{type(self).__name__} needs openai: pip install 'orbiter-memory[openai]'"
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
        return f": {text[:_MOST_REASON]}{'…' if len(text) > _MOST_REASON else ''}" if text else ""

    def _where(self) -> str:
        """Return the endpoint for people to read: a password in it is not shown."""
        if self._base_url is None:
            return "the OpenAI API"
        parts = urlsplit(self._base_url)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
