"""Message formats: their names, and what a codec is.

A codec is a module of this package with the names of `Codec`. Its name stands in `Format`, its
module in the table of `convert`; whoever lists formats (command line, server, client, dashboard,
tests) takes them from here. Importing this costs nothing: no codec is loaded.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from orbiter.memory.errors import MessageError

if TYPE_CHECKING:
    from orbiter.memory.conversation.windows import Unit
    from orbiter.memory.messages._open_calls import OpenCalls
    from orbiter.memory.model.items import MemoryItem, MemoryMetadata

__all__ = ["FORMATS", "Answer", "Codec", "Format", "Message", "Problem", "check_format"]

Format = Literal["openai", "openai-responses", "anthropic", "gemini"]
"""Whose message shape: OpenAI Chat, OpenAI Responses, Anthropic Messages or Gemini contents."""

FORMATS: tuple[Format, ...] = get_args(Format)
"""The name of every format."""

Message = dict[str, Any]
"""One message, content or input entry, as the provider's own client takes it."""

Answer = Mapping[str, Any] | list[Mapping[str, Any]]
"""What a provider's whole answer holds: a message, or a list of them."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something a provider would refuse: which message (0 is the first), and why."""

    index: int
    reason: str

    def __str__(self) -> str:
        return f"message {self.index}: {self.reason}"


class Codec(Protocol):
    """A message format: how items are written in it and read from it. Modules implement it."""

    LABEL: str
    """Its name for a person: `OpenAI Responses`."""
    SYSTEM_OUTSIDE: bool
    """Whether system text stands outside the messages."""
    HAS_CALL_IDS: bool
    """Whether every tool call has an id on the wire."""
    NEEDS_ROLE: bool
    """Whether every message has a `role`."""

    def encode(self, units: "Iterable[Unit]") -> list[Message]:
        """Return the messages of whole *units*, oldest first."""
        ...

    def arrange(self, messages: Sequence[Message]) -> list[Message]:
        """Return *messages* as every provider and chat template takes them.

        At most one message is the system's, and it is the first; neighbours of one role are one
        message; the user speaks first; results stay directly behind their calls.
        """
        ...

    def decode(
        self,
        messages: Sequence[Mapping[str, Any]],
        metadata: "MemoryMetadata",
        open_calls: "OpenCalls",
    ) -> "Iterator[MemoryItem]":
        """Yield the items of *messages*; `MessageError` names one that cannot be read."""
        ...

    def check(self, messages: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
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


def check_format(format: object) -> Format:
    """Return *format* if there is a format of that name, else raise `MessageError`."""
    known = next((name for name in FORMATS if name == format), None)
    if known is None:
        raise MessageError(f"unknown format `{format}`; use one of {', '.join(FORMATS)}")
    return known
