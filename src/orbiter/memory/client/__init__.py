"""`AgentMemory` over the wire: the same object, with a server behind it.

`AgentMemory("http://…", token=…)` sends its calls to that server, as does a `RemoteMemory`, which
refuses any other address. Both offer all that a local memory offers. Which call is which request
stands in one table, which the server reads, too.
"""

from orbiter.memory._lazy import missing_extra

try:
    import httpx  # noqa: F401 - everything below needs it
except ModuleNotFoundError as exc:
    raise missing_extra("a memory at `http://…` needs httpx", "client") from exc

from orbiter.memory.client._remote_memory import RemoteMemory

__all__ = ["RemoteMemory"]
