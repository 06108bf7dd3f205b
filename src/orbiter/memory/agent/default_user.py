"""Default user: whom a command or a server means that names nobody.

It is that of a program that names nobody. A store in which there are memories of the computer's
user keeps to that name: earlier versions of the command line took it for the default.
"""

from orbiter.memory.agent._memory import AgentMemory
from orbiter.memory.errors import MemoryError
from orbiter.memory.model.items import DEFAULT_USER

__all__ = ["DEFAULT_USER", "default_user_of", "os_user"]


def os_user() -> str | None:
    """Return the name of the computer's user, if it has one."""
    import getpass  # noqa: PLC0415 - it loads more than it seems

    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # no such user, as in some containers
        return None


async def default_user_of(memory: AgentMemory) -> str:
    """Return the user that is meant in *memory* where nobody is named."""
    name = os_user()
    if name is None:
        return DEFAULT_USER
    try:
        return name if await memory.scope(name).list(limit=1) else DEFAULT_USER
    except MemoryError:  # the key of a server is for somebody else
        return DEFAULT_USER
