"""`AgentMemory` over the wire: the same object, with a server behind it.

`AgentMemory("http://…", token=…)` makes a `RemoteMemory`; all that it offers is what the local one
offers. Which call is which request stands in one table, which the server reads, too.
"""

try:
    import httpx  # noqa: F401 - everything below needs it
except ModuleNotFoundError as exc:
    raise ModuleNotFoundError(
        "a memory at `http://…` needs httpx: pip install 'orbiter-memory[client]'"
    ) from exc

from orbiter.memory.client._remote_memory import RemoteMemory

__all__ = ["RemoteMemory"]
