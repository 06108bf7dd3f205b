"""What `import_file` and `export_file` were given, checked before anything is opened."""

import os
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Protocol, runtime_checkable

from orbiter.memory.agent import AgentMemory, ScopedMemory
from orbiter.memory.agent.scope import session_of
from orbiter.memory.errors import QueryError

if TYPE_CHECKING:
    from orbiter.memory.agent.chat_service import ScopeSession
    from orbiter.memory.transfer.native import ExportResult
    from orbiter.memory.transfer.report import ImportResult

__all__ = ["Elsewhere", "check_path", "session_for"]


@runtime_checkable
class Elsewhere(Protocol):
    """A handle whose store is behind a server, which reads and writes files by itself."""

    async def _import_there(
        self,
        path: str | os.PathLike[str],
        *,
        format: str,
        owner: str | None,
        progress: Callable[[int, int], None] | None,
    ) -> "ImportResult":
        """Send the file, and return what became of it."""
        ...

    async def _export_there(
        self,
        target: str | os.PathLike[str] | IO[bytes],
        *,
        format: str,
        progress: Callable[[int, int], None] | None,
    ) -> "ExportResult":
        """Write what the server sends."""
        ...


def session_for(handle: object, *, call: str) -> "ScopeSession":
    """Return what a handle is made of; `QueryError` if it is none. *call* is who asks."""
    if isinstance(handle, ScopedMemory):
        return session_of(handle)
    if isinstance(handle, AgentMemory):
        raise QueryError(
            f"`{call}` needs to know whose memories: give it `memory.scope(user_id=…)`, not the "
            "`AgentMemory`; everyone's are behind `memory.unscoped()`"
        )
    if getattr(handle, "is_blocking", False):
        return session_of(handle)  # type: ignore[arg-type]  # which says who takes a blocking one
    raise QueryError(
        f"`{call}` takes a handle such as `memory.scope(user_id=…)` first, not a "
        f"`{type(handle).__name__}`"
    )


def check_path(path: object) -> None:
    """Raise `QueryError` for what is no name of a file."""
    if isinstance(path, dict | list):
        raise QueryError(
            f"`import_file` reads files, not a `{type(path).__name__}`; write it to one first: "
            '`json.dump(found, open("found.json", "w"), default=str)`'
        )
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise QueryError(f"`import_file` takes the path of a file or a folder, not {path!r}")
