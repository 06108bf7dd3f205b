"""`Endpoint`: how a server offers a call, written at its method.

What the call takes and returns, a server and a client read from the method's own signature.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orbiter.memory.auth import Role

__all__ = ["Endpoint"]


@dataclass(frozen=True)
class Endpoint:
    """The request of a call, and what a server must know of it."""

    name: str
    request: str = ""
    """Verb and path, such as `GET memories/{item_id}`; empty for what no server does.

    The path is below `/v1`, with `{name}` for each argument in it.
    """
    _: KW_ONLY
    role: "Role" = "read"
    status: int = 200
    answer: str = ""
    """The field of the answer that has the result; empty if the result is the whole answer."""
    is_safe_to_repeat: bool = True
    """Whether a client may send it again when no answer came, whatever it says.

    One that is not may be sent again if it has an `idempotency_key`.
    """
    is_absent_404: bool = False
    """Whether nothing, `None` or `[]`, is a 404 of the type `ItemNotFoundError`."""
    is_heavy: bool = False
    """Whether it reads everything there is: a key has one such call at a time."""
    is_long: bool = False
    """Whether it may take longer than a request may: then it is a job, and answered with 202."""
    short_with: str = ""
    """The argument that makes it a call about one thing, and so no job; none if empty."""
    erases_with: str = ""
    """The flag that has it erase for good: then it is a job, and for an admin; none if empty."""
    has_safe_report: bool = False
    """Whether its answer holds nothing that a memory says, so that it may be kept in a file."""
    also: str = ""
    """Another request that makes the same call, such as `GET memories`; none if empty."""

    @property
    def verb(self) -> str:
        """The method of the request."""
        return self.request.partition(" ")[0]

    @property
    def path(self) -> str:
        """The path of the request, below `/v1`; a segment is percent-encoded as one."""
        return self.request.partition(" ")[2]

    def is_job(self, arguments: Mapping[str, Any]) -> bool:
        """Tell whether the call with *arguments* is made as a job."""
        is_short = arguments.get(self.short_with) is not None and not self.erases(arguments)
        return self.is_long and not is_short

    def erases(self, arguments: Mapping[str, Any]) -> bool:
        """Tell whether the call with *arguments* erases for good."""
        return arguments.get(self.erases_with) is True
