"""The protocol's SDK, of its first and its second line: what the two name differently.

Frameworks ask for either line, so a program that uses one must be able to keep it. Everything else
of `orbiter.memory.mcp` is written once: over the names of this module, and over the wire form of
messages (`model_validate` with `isError`, `mimeType`), which both lines read.
"""

from importlib.metadata import version as version_of
from inspect import signature
from typing import TYPE_CHECKING, Any, Self

import anyio
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import INVALID_PARAMS, CompleteRequestParams, CompleteResult, Completion

__all__ = ["Context", "Prompt", "SDKServer", "Tool", "ToolError", "mistake", "protocol_error"]

_MAJOR, _MINOR = (int(part) for part in version_of("mcp").split(".")[:2])

PATIENCE = 10.0
"""Seconds that calls under way get when stdin has ended: the SDK would cancel them."""


class _Stream:
    """One direction of a connection, which notes what was asked and not answered."""

    def __init__(self, stream: Any, unanswered: set[Any]) -> None:
        self._stream, self._unanswered = stream, unanswered

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        is_handled: bool | None = await self._stream.__aexit__(*error)
        return is_handled


class _Received(_Stream):
    """Messages of a client; their end waits for the answers."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def receive(self) -> Any:
        try:
            item = await self._stream.receive()
        except anyio.EndOfStream:
            with anyio.move_on_after(PATIENCE):
                while self._unanswered:  # noqa: ASYNC110 - seldom, and soon over
                    await anyio.sleep(0.02)
            raise
        message = _message(item)
        if getattr(message, "method", None) == "notifications/cancelled":
            self._unanswered.discard((message.params or {}).get("requestId"))  # it gets none
        elif hasattr(message, "method") and hasattr(message, "id"):
            self._unanswered.add(message.id)
        return item


class _Sent(_Stream):
    """Messages to a client."""

    async def send(self, item: Any) -> None:
        await self._stream.send(item)
        message = _message(item)
        if not hasattr(message, "method"):
            self._unanswered.discard(getattr(message, "id", None))


def _message(item: Any) -> Any:
    message = getattr(item, "message", None)
    return getattr(message, "root", message)  # the first line wraps it


async def _serve(low: Any, received: Any, sent: Any) -> None:
    """Answer until there is nothing more to read, and what is under way has its answer."""
    unanswered: set[Any] = set()
    streams = _Received(received, unanswered), _Sent(sent, unanswered)
    await low.run(*streams, low.create_initialization_options())


# Types are checked with the newest SDK alone.
if TYPE_CHECKING or _MAJOR >= 2:
    from mcp.server.mcpserver import Context, MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.server.mcpserver.prompts import Prompt
    from mcp.server.mcpserver.tools import Tool
    from mcp.shared.exceptions import MCPError

    class SDKServer(MCPServer[dict[str, Any]]):
        """The SDK's server; it passes the context of a call on to what answers it."""

        def __init__(
            self, name: str, *, version: str, instructions: str, tools: list[Tool]
        ) -> None:
            """Serve *tools*."""
            # Nothing changes that a client could listen for.
            more: dict[str, Any] = {"subscriptions": False} if (_MAJOR, _MINOR) >= (2, 3) else {}
            super().__init__(
                name,
                title="Memory",
                version=version,
                instructions=instructions,
                tools=tools,
                log_level="WARNING",
                **more,
            )
            self._lowlevel_server.add_request_handler(
                "completion/complete", CompleteRequestParams, self._on_complete
            )
            if not more:
                self._lowlevel_server._request_handlers.pop("subscriptions/listen", None)  # noqa: SLF001 - 2.0 to 2.2 have no other way

        async def _on_complete(self, ctx: Any, params: CompleteRequestParams) -> CompleteResult:
            context: Context = Context(request_context=ctx, mcp_server=self)
            return CompleteResult(
                completion=await self.complete(params.ref, params.argument, context)
            )

        async def run_stdio_async(self) -> None:
            """Serve stdin and stdout."""
            async with stdio_server() as (received, sent):
                await _serve(self._lowlevel_server, received, sent)

        async def complete(self, ref: Any, argument: Any, context: Context) -> Completion:
            """Return what an argument of a prompt or a template may be, given how it begins."""
            raise NotImplementedError  # each server says what it completes

        def http_manager(
            self, security: TransportSecuritySettings, *, max_body: int
        ) -> StreamableHTTPSessionManager:
            """Return what answers HTTP requests, each whole in itself."""
            return _http_manager(self._lowlevel_server, security, max_body)

    def protocol_error(code: int, message: str, data: object = None) -> Exception:
        """Return the error that the protocol answers a request with."""
        return MCPError(code=code, message=message, data=data)

else:
    import os

    from mcp.server.fastmcp import Context, FastMCP
    from mcp.server.fastmcp.exceptions import ToolError
    from mcp.server.fastmcp.prompts import Prompt
    from mcp.server.fastmcp.server import Settings
    from mcp.server.fastmcp.tools import Tool
    from mcp.shared.exceptions import McpError
    from mcp.types import ErrorData

    # It names a class that was not there yet; newer releases of pydantic-settings warn of that.
    Settings.model_rebuild()

    class SDKServer(FastMCP):
        """The SDK's server; it passes the context of a call on to what answers it."""

        def __init__(
            self, name: str, *, version: str, instructions: str, tools: list[Tool]
        ) -> None:
            """Serve *tools*; this line of the SDK sends no title."""
            super().__init__(name, instructions=instructions, tools=tools, log_level="WARNING")
            low = self._mcp_server
            low.version = version
            low.call_tool(validate_input=False)(self._on_call_tool)
            low.read_resource()(self._on_read_resource)
            low.get_prompt()(self._on_get_prompt)
            low.completion()(self._on_complete)

        async def _on_call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
            return await self.call_tool(name, arguments, self.get_context())

        async def _on_read_resource(self, uri: object) -> Any:
            return await self.read_resource(uri, self.get_context())

        async def _on_get_prompt(self, name: str, arguments: dict[str, Any] | None) -> Any:
            return await self.get_prompt(name, arguments, self.get_context())

        async def _on_complete(self, ref: Any, argument: Any, _: object) -> Any:
            return await self.complete(ref, argument, self.get_context())

        async def run_stdio_async(self) -> None:
            """Serve stdin and stdout, and leave them open: the SDK's own closes them for all."""
            with (
                os.fdopen(os.dup(0), encoding="utf-8", errors="replace") as stdin,
                os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n") as stdout,
            ):
                files = anyio.wrap_file(stdin), anyio.wrap_file(stdout)
                async with stdio_server(*files) as (received, sent):
                    await _serve(self._mcp_server, received, sent)

        def http_manager(
            self, security: TransportSecuritySettings, *, max_body: int
        ) -> StreamableHTTPSessionManager:
            """Return what answers HTTP requests, each whole in itself."""
            return _http_manager(self._mcp_server, security, max_body)

    def protocol_error(code: int, message: str, data: object = None) -> Exception:
        """Return the error that the protocol answers a request with."""
        return McpError(ErrorData(code=code, message=message, data=data))


def mistake(message: str) -> Exception:
    """Return the error for a request that its sender can mend."""
    return protocol_error(INVALID_PARAMS, message)


def _http_manager(
    server: Any, security: TransportSecuritySettings, max_body: int
) -> StreamableHTTPSessionManager:
    limit: dict[str, Any] = {"max_request_body_size": max_body}
    # Where the SDK has no limit of its own, the server's alone holds.
    has_limit = limit.keys() <= signature(StreamableHTTPSessionManager).parameters.keys()
    return StreamableHTTPSessionManager(
        app=server,
        json_response=True,
        stateless=True,
        security_settings=security,
        **(limit if has_limit else {}),
    )
