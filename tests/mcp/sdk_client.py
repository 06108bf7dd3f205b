"""The SDK's client, with the names of its second line also where the first is installed."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from pydantic import AnyUrl, BaseModel
from pydantic.alias_generators import to_camel
from tests.timing import HANG

if TYPE_CHECKING or not version("mcp").startswith("1."):
    import ssl

    import httpx2
    from mcp.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared.exceptions import MCPError

    ERAS = ("legacy", "auto")
    """The handshake of old, and the newer protocol in which every request is whole in itself."""

    _TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    """For all clients, as each would else read every certificate of this computer."""

    @asynccontextmanager
    async def connected(url: str, headers: dict[str, str], mode: str) -> AsyncIterator[Client]:
        """Connect to the address of a server."""
        async with (
            httpx2.AsyncClient(headers=headers, timeout=HANG, verify=_TLS) as http,
            Client(streamable_http_client(url, http_client=http), mode=mode) as client,
        ):
            yield client

else:
    import httpx
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared.exceptions import McpError as MCPError
    from mcp.shared.memory import create_connected_server_and_client_session

    from mcp import ClientSession, StdioServerParameters

    ERAS = ("legacy",)

    class Client:
        """A session with a server of this process, or over the streams of a connection."""

        def __init__(self, target: Any, *, mode: str = "legacy") -> None:
            self._target = target
            self._open = AsyncExitStack()

        async def __aenter__(self) -> "Client":
            await self._open.__aenter__()
            enter = self._open.enter_async_context
            if hasattr(self._target, "list_tools"):
                connection = create_connected_server_and_client_session(self._target)
                self._session = await enter(connection)
            else:
                read, write, *_ = await enter(self._target)
                self._session = await enter(ClientSession(read, write))
            # A session in this process has begun; it may begin again.
            begun = _Named(await self._session.initialize())
            self.server_info, self.instructions = begun.server_info, begun.instructions
            return self

        async def __aexit__(self, *error: Any) -> None:
            await self._open.__aexit__(*error)

        def __getattr__(self, name: str) -> Any:
            method = getattr(self._session, name)

            async def call(*args: Any, **kwargs: Any) -> Any:
                return _Named(await method(*args, **kwargs))

            return call

    @asynccontextmanager
    async def connected(url: str, headers: dict[str, str], mode: str) -> AsyncIterator[Client]:
        """Connect to the address of a server."""
        async with (
            httpx.AsyncClient(headers=headers, timeout=HANG, verify=False) as http,
            Client(streamable_http_client(url, http_client=http), mode=mode) as client,
        ):
            yield client


__all__ = ["ERAS", "Client", "MCPError", "StdioServerParameters", "connected", "stdio_client"]


class _Named:
    """A message of the first line, whose fields have the names of the second."""

    def __init__(self, message: BaseModel) -> None:
        self._message = message

    def __getattr__(self, name: str) -> Any:
        return _named(getattr(self._message, to_camel(name)))


def _named(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return _Named(value)
    if isinstance(value, list):
        return [_named(each) for each in value]
    if isinstance(value, Mapping):
        return dict(value)
    return str(value) if isinstance(value, AnyUrl) else value
