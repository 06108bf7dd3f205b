"""Message formats: what a codec is, and the one registry of them.

A codec is a module of this package with the names of `Codec`. Its name stands in `Format`, its
module in `codecs`; whoever lists formats (command line, server, client, dashboard, tests) takes
them from here. Importing this costs nothing: codecs are loaded when one is asked for.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from orbiter.memory.errors import MessageError

if TYPE_CHECKING:
    from orbiter.memory.conversation.windows import Unit
    from orbiter.memory.messages._common import Problem
    from orbiter.memory.messages._open_calls import OpenCalls
    from orbiter.memory.model.items import MemoryItem, MemoryMetadata

__all__ = ["FORMATS", "Answer", "Codec", "Format", "Message", "check_format", "codec_for", "codecs"]

Format = Literal["openai", "openai-responses", "anthropic", "gemini"]
"""Whose message shape: OpenAI Chat, OpenAI Responses, Anthropic Messages or Gemini contents."""

FORMATS: tuple[Format, ...] = get_args(Format)
"""The name of every format."""

Message = dict[str, Any]
"""One message, content or input entry, as the provider's own client takes it."""

Answer = Mapping[str, Any] | list[Mapping[str, Any]]
"""What a provider's whole answer holds: a message, or a list of them."""


class Codec(Protocol):
    """A message format: how items are written in it and read from it. Modules implement it."""

    LABEL: str
    """Its name for a person: `OpenAI Responses`."""
    SYSTEM_OUTSIDE: bool
    """Whether system text stands outside the messages."""
    JOINS_TURNS: bool
    """Whether turns of one role are joined to one message."""
    HAS_CALL_IDS: bool
    """Whether every tool call has an id on the wire."""
    NEEDS_ROLE: bool
    """Whether every message has a `role`."""

    def encode(self, units: "Iterable[Unit]") -> list[Message]:
        """Return the messages of whole *units*, oldest first."""
        ...

    def decode(
        self,
        messages: Sequence[Mapping[str, Any]],
        metadata: "MemoryMetadata",
        open_calls: "OpenCalls",
    ) -> "Iterator[MemoryItem]":
        """Yield the items of *messages*; `MessageError` names one that cannot be read."""
        ...

    def check(self, messages: Sequence[Mapping[str, Any]]) -> "Iterator[Problem]":
        """Yield what the provider would refuse."""
        ...

    def claims(self, message: Mapping[str, object]) -> bool:
        """Tell whether *message* has what only messages of this format have.

        The codecs are asked from the last to the first of the registry. One of the right outline
        that holds what the provider does not know is a `MessageError`.
        """
        ...

    def unwrap(self, answer: Mapping[str, Any]) -> Answer | None:
        """Return the message that a whole *answer* of the provider holds; `None` if it is none."""
        ...

    def as_kwargs(self, messages: list[Message], system: str) -> dict[str, Any]:
        """Return the keyword arguments of the provider's own call."""
        ...


@cache
def codecs() -> Mapping[Format, Codec]:
    """Return every codec by its name, in the order of `FORMATS`."""
    from orbiter.memory.messages import (  # noqa: PLC0415 - the names are needed without them
        _anthropic,
        _gemini,
        _openai_chat,
        _openai_responses,
    )

    table: dict[Format, Codec] = {
        "openai": _openai_chat,
        "openai-responses": _openai_responses,
        "anthropic": _anthropic,
        "gemini": _gemini,
    }
    return table


def check_format(format: object) -> Format:
    """Return *format* if there is a format of that name, else raise `MessageError`."""
    found = next((name for name in FORMATS if name == format), None)
    if found is None:
        raise MessageError(f"unknown format `{format}`; use one of {', '.join(FORMATS)}")
    return found


def codec_for(format: Format) -> Codec:
    """Return the codec of that name, or raise `MessageError`."""
    return codecs()[check_format(format)]
