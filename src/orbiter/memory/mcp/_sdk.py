"""The protocol's SDK, of its first and its second line: what the two name differently.

Frameworks ask for either line, so a program that uses one must be able to keep it. Everything else
of `orbiter.memory.mcp` is written once: over the names of this module, and over the wire form of
messages (`model_validate` with `isError`, `mimeType`), which both lines read.
"""

from importlib.metadata import version as version_of
from inspect import signature
from typing import TYPE_CHECKING, Any

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import INVALID_PARAMS, CompleteRequestParams, CompleteResult, Completion

__all__ = ["Context", "Prompt", "SDKServer", "Tool", "ToolError", "mistake", "protocol_error"]

_MAJOR, _MINOR = (int(part) for part in version_of("mcp").split(".")[:2])

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

    import anyio
    from mcp.server.fastmcp import Context, FastMCP
    from mcp.server.fastmcp.exceptions import ToolError
    from mcp.server.fastmcp.prompts import Prompt
    from mcp.server.fastmcp.server import Settings
    from mcp.server.fastmcp.tools import Tool
    from mcp.server.stdio import stdio_server
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
            low = self._mcp_server
            with (
                os.fdopen(os.dup(0), encoding="utf-8", errors="replace") as stdin,
                os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n") as stdout,
            ):
                files = anyio.wrap_file(stdin), anyio.wrap_file(stdout)
                async with stdio_server(*files) as (received, sent):
                    await low.run(received, sent, low.create_initialization_options())

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
