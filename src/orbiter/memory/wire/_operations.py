"""What a call over the wire is: which method of which object, as which request."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from orbiter.memory.auth import Role
from orbiter.memory.wire.codecs import Codec

__all__ = ["REQUIRED", "Operation", "Param", "Target"]

Target = Literal["memory", "scope", "chat", "facts", "past", "past_facts", "audit"]
"""The class a call belongs to: `AgentMemory`, `ScopedMemory`, `Chat`, `Facts`, …"""

REQUIRED: Any = object()
"""The default of a parameter that has none."""


@dataclass(frozen=True, slots=True)
class Param:
    """One argument of a call, and where a request carries it."""

    name: str
    codec: Codec[Any]
    place: Literal["path", "query", "body", "header"]
    default: Any = REQUIRED
    header: str = ""
    wire: str = ""
    """What it is called in a path or a query, if not as in the call."""

    @property
    def wire_name(self) -> str:
        """What it is called on the wire."""
        return self.header or self.wire or self.name


@dataclass(frozen=True, slots=True)
class Operation:
    """One call: the method *name* of the *target*, as a request."""

    name: str
    target: Target
    verb: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    """Below `/v1`, with `{name}` for each parameter in it; a segment is percent-encoded as one."""
    role: Role
    params: tuple[Param, ...]
    """The arguments of the method; those of its object are in `TARGET_PARAMS`."""
    returns: Codec[Any]
    status: int = 200
    is_safe_to_repeat: bool = True
    """Whether a client may send it again when no answer came, whatever it says.

    One that is not may be sent again if it has an `idempotency_key`.
    """
    is_absent_404: bool = False
    """Whether nothing, `None` or `[]`, is told by a 404 whose type is `ItemNotFoundError`."""
    is_heavy: bool = False
    """Whether it reads everything there is: a key has one such call at a time."""
    is_long: bool = False
    """Whether it may take longer than a request may: then it is a job, and answered with 202."""
    short_with: str = ""
    """The argument that makes it a call about one thing, and so no job; none if empty."""
    has_safe_report: bool = False
    """Whether its answer holds nothing that a memory says, so that it may be kept in a file."""

    @property
    def is_change(self) -> bool:
        """Whether it may write anything but the log of reads."""
        return self.role != "read" and not (self.verb == "GET" or self.target == "audit")

    def is_job(self, given: Mapping[str, Any]) -> bool:
        """Tell whether the call with the arguments *given* is made as a job."""
        return self.is_long and given.get(self.short_with) is None

    @property
    def id(self) -> str:
        """A name that no other call has: `chat.add`."""
        return f"{self.target}.{self.name}"
