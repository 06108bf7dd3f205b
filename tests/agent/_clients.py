"""The official clients of providers on a wire that is none: each answer is one that was recorded.

What a client sends is kept, so that a test sees whether it takes back what it returned.
"""

import json
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import httpx2
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

with warnings.catch_warnings():
    # The first to compile it is warned of an escape in one of its texts.
    warnings.simplefilter("ignore")
    from google import genai
    from google.genai import types

__all__ = [
    "Wire",
    "anthropic",
    "gemini",
    "openai_chat",
    "openai_client",
    "openai_responses",
    "types",
]

Answers = Sequence[dict[str, Any]]


class Wire:
    """Answers requests in turn, and has what was asked."""

    def __init__(self, answers: Answers) -> None:
        self.asked: list[dict[str, Any]] = []
        self._answers = iter(answers)

    def transport(self) -> httpx2.MockTransport:
        def answer(request: httpx2.Request) -> httpx2.Response:
            self.asked.append(json.loads(request.content))
            return httpx2.Response(200, json=next(self._answers))

        return httpx2.MockTransport(answer)


Ask = Callable[[dict[str, Any]], Any]
"""Sends the arguments that a conversation has; returns the object that the client makes."""


def openai_client(wire: Wire) -> AsyncOpenAI:
    transport = httpx2.AsyncClient(transport=wire.transport())
    return AsyncOpenAI(api_key="none", http_client=transport)


def openai_chat(wire: Wire) -> Ask:
    client = openai_client(wire)
    return lambda kwargs: client.chat.completions.create(model="gpt", **kwargs)


def openai_responses(wire: Wire) -> Ask:
    client = openai_client(wire)
    return lambda kwargs: client.responses.create(model="gpt", **kwargs)


def anthropic(wire: Wire) -> Ask:
    client = AsyncAnthropic(
        api_key="none", http_client=httpx2.AsyncClient(transport=wire.transport())
    )
    return lambda kwargs: client.messages.create(model="claude", max_tokens=100, **kwargs)


def gemini(wire: Wire) -> Ask:
    options = types.HttpOptions(async_client_args={"transport": wire.transport()})
    client = genai.Client(api_key="none", http_options=options)
    return lambda kwargs: client.aio.models.generate_content(model="gemini", **kwargs)
