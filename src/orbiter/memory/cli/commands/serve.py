"""The server: `serve`."""

from pathlib import Path
from typing import Annotated

import typer

from orbiter.memory.cli._command import Run, command, is_served, new_app
from orbiter.memory.cli._error_messages import UsageError
from orbiter.memory.cli._key_files import Keys, keys_of
from orbiter.memory.cli._run_server import until_stopped

__all__ = ["app"]

app = new_app()


@command(app, "serve", scope=False)
async def serve(  # noqa: PLR0913 - the settings of a server
    run: Run,
    *,
    host: Annotated[str, typer.Option(help="The address to serve.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="The port; 0 takes any that is free.")
    ] = 8765,
    keys: Keys = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host", help="A name it may be called by, such as `memory.example.com`."
        ),
    ] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Let nobody change anything.")
    ] = False,
    rate: Annotated[
        float, typer.Option(min=0.1, help="Requests a second that one key may make.")
    ] = 100.0,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", help="The certificate, to serve HTTPS.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", help="The certificate's private key.")
    ] = None,
    open_page: Annotated[
        bool, typer.Option("--open", help="Open the dashboard in a browser.")
    ] = False,
    no_mcp: Annotated[bool, typer.Option("--no-mcp", help="Leave MCP out.")] = False,
    no_dashboard: Annotated[
        bool, typer.Option("--no-dashboard", help="Leave the dashboard out.")
    ] = False,
    log: Annotated[
        bool, typer.Option("--log", help="Log method, route, status and time of each request.")
    ] = False,
) -> None:
    """Serve REST, MCP and the dashboard, until Ctrl-C."""
    from orbiter.memory.server import Settings  # noqa: PLC0415 - an extra

    if (tls_cert is None) != (tls_key is None):
        raise UsageError("`--tls-cert` and `--tls-key` belong together; give both")
    settings = Settings(
        host=host,
        port=port,
        allowed_hosts=tuple(allow_host or ()),
        read_only=read_only,
        rate=rate,
        burst=max(1, int(2 * rate)),
        with_mcp=not no_mcp,
        with_dashboard=not no_dashboard,
        with_log=log,
        tls_cert=str(tls_cert) if tls_cert else None,
        tls_key=str(tls_key) if tls_key else None,
    )
    memory = run.unopened()
    if is_served(memory):
        raise UsageError(f"`{memory.url}` is a server already; name a store with `--url`")
    held = keys_of(run.place, keys)
    await until_stopped(run, memory, settings=settings, keys=held, open_page=open_page)
