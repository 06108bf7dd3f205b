"""The place an address names."""

from orbiter.memory.backends import urls
from orbiter.memory.episodic.protocol import Episodes
from orbiter.memory.errors import QueryError
from orbiter.memory.model.protocols import Clock

__all__ = ["place", "shown"]


def place(url: str, agent_id: str, *, deadline: float, clock: Clock, owner: object) -> Episodes:
    """Return where *url* says that the episodes of *agent_id* are; only its driver is loaded."""
    scheme, mark, rest = str(url).partition("://")
    if scheme == "memory" and mark:
        from orbiter.memory.episodic.in_memory import MemoryEpisodes  # noqa: PLC0415

        return MemoryEpisodes(rest, agent_id, clock=clock)
    if scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        from orbiter.memory.backends.sqlite.connection_manager import SQLiteFile  # noqa: PLC0415
        from orbiter.memory.episodic.sqlite import SQLiteEpisodes  # noqa: PLC0415

        file = SQLiteFile(rest[1:], owner=repr(owner), busy_timeout=deadline, readers=1)
        return SQLiteEpisodes(file, agent_id, clock=clock)
    if mark and scheme.partition("+")[0] in ("redis", "rediss"):
        from orbiter.memory.backends.redis.connection import link_to  # noqa: PLC0415
        from orbiter.memory.episodic.redis import RedisEpisodes  # noqa: PLC0415

        return RedisEpisodes(link_to(url, deadline=deadline), agent_id)
    told = f"{scheme}://…" if mark else "…" if "@" in scheme else url
    hint = "; a file has three slashes before its name" if scheme == "sqlite" else ""
    raise QueryError(
        f"`{told}` is no address; use `redis://…`, `sqlite:///file.db` or `memory://`{hint}"
    )


def shown(url: str) -> str:
    """Return *url* as it may be printed."""
    return url if url.startswith(("memory://", "sqlite://")) else urls.shown(url)
