"""The server: `serve`."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orbiter.memory.backends.registry import is_http_url
from orbiter.memory.cli._command import CommandContext, command, is_served, new_app
from orbiter.memory.cli._error_messages import UsageError, say, without_passwords
from orbiter.memory.cli._output import note_wait
from orbiter.memory.cli._settings_file import (
    WORKER_LOG,
    LogLevel,
    LogLines,
    check_hosts,
    check_number,
    load_reranker,
    pii_label,
    read_settings,
    setting,
    show_ready,
)
from orbiter.memory.cli._text import counted
from orbiter.memory.cli.commands.keys import (
    Keys,
    Role,
    count_open_keys,
    keys_of,
    oidc_settings,
)
from orbiter.memory.diagnostics import check_index
from orbiter.memory.errors import MemoryError
from orbiter.memory.tasks.event_loop import short_pauses

if TYPE_CHECKING:
    from orbiter.memory.agent import AgentMemory
    from orbiter.memory.auth import KeyStore
    from orbiter.memory.model.reports import StoreStats
    from orbiter.memory.server import Settings
    from orbiter.memory.server.http.state import ServerState
    from orbiter.memory.server.http.worker_link import WorkerLink
__all__ = ["app", "until_stopped"]

app = new_app()
_LOG = logging.getLogger("orbiter.memory.server.signals")
_PLAYGROUND_KEY = "ORBITER_MEMORY_PLAYGROUND_KEY"
"""A variable and no option: a command line is seen by others on the computer."""


def _new_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop of `uvloop` if that is installed: a request costs it a tenth less."""
    try:
        uvloop = import_module("uvloop")
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


@command(app, "serve", scope=False, new_loop=_new_loop)
async def serve(  # noqa: PLR0913 - the settings of a server
    run: CommandContext,
    *,
    host: Annotated[str, setting("--host", text="The address to serve.")] = "127.0.0.1",
    port: Annotated[
        int, setting("--port", text="The port; 0 for any free port.", min=0, max=65_535)
    ] = 8765,
    keys: Keys = None,
    allow_host: Annotated[
        list[str] | None,
        setting(
            "--allow-host",
            text="An allowed host name, such as `memory.example.com`.",
            callback=check_hosts,
        ),
    ] = None,
    read_only: Annotated[bool, setting("--read-only", text="Refuse all changes.")] = False,
    rate: Annotated[
        float,
        setting(
            "--rate",
            text="Requests per second for each key; each machine counts for itself.",
            min=0.1,
            max=1e6,
            callback=check_number,
        ),
    ] = 100.0,
    workers: Annotated[
        int,
        setting("--workers", text="Processes that serve; a supervisor keeps them.", min=1, max=64),
    ] = 1,
    drain: Annotated[
        float,
        setting(
            "--drain",
            text="Seconds for requests under way when it stops.",
            min=0,
            max=86_400,
            callback=check_number,
        ),
    ] = 3.0,
    tls_cert: Annotated[
        Path | None, setting("--tls-cert", text="The certificate, to serve HTTPS.")
    ] = None,
    tls_key: Annotated[
        Path | None, setting("--tls-key", text="The certificate's private key.")
    ] = None,
    open_page: Annotated[
        bool, typer.Option("--open", help="Open the dashboard in a browser.")
    ] = False,
    check: Annotated[
        bool,
        typer.Option("--check", help="Ask the server with these settings whether it is ready."),
    ] = False,
    reranker: Annotated[
        str | None,
        setting(
            "--reranker",
            text="An ONNX cross-encoder, or the URL of a rerank service.",
            show_default=False,
        ),
    ] = None,
    playground_url: Annotated[
        str | None,
        setting(
            "--playground-url",
            text="An OpenAI-compatible endpoint for the playground; its key is in "
            f"{_PLAYGROUND_KEY}.",
            show_default=False,
        ),
    ] = None,
    playground_model: Annotated[
        str, setting("--playground-model", text="The model of that endpoint.")
    ] = "gpt-4o-mini",
    no_mcp: Annotated[bool, setting("--no-mcp", text="Serve without MCP.")] = False,
    no_dashboard: Annotated[
        bool, setting("--no-dashboard", text="Serve without the dashboard.")
    ] = False,
    log: Annotated[bool, setting("--log", text="Log a line for each request.")] = False,
    log_format: Annotated[
        LogLines, setting("--log-format", text="How the log is written.", case_sensitive=False)
    ] = LogLines.TEXT,
    log_level: Annotated[
        LogLevel, setting("--log-level", text="What else is logged.", case_sensitive=False)
    ] = LogLevel.WARNING,
    metrics_port: Annotated[
        int | None,
        setting("--metrics-port", text="A port for metrics without a key.", min=0, max=65_535),
    ] = None,
    metrics_host: Annotated[
        str, setting("--metrics-host", text="The address of the port for metrics.")
    ] = "127.0.0.1",
    oidc_issuer: Annotated[
        str | None, setting("--oidc-issuer", text="The issuer whose tokens are taken.")
    ] = None,
    oidc_audience: Annotated[
        list[str] | None,
        setting("--oidc-audience", text="What tokens must be made for: the server's URL."),
    ] = None,
    oidc_user_claim: Annotated[
        str, setting("--oidc-user-claim", text="The claim that names the user.")
    ] = "sub",
    oidc_role_claim: Annotated[
        str, setting("--oidc-role-claim", text="The claim that names the role.")
    ] = "scope",
    oidc_default_role: Annotated[
        Role | None, setting("--oidc-default-role", text="The role of tokens without one.")
    ] = None,
    config: Annotated[
        Path | None,
        setting(
            "--config",
            text="A TOML file with these settings.",
            is_eager=True,
            callback=read_settings,
        ),
    ] = None,
) -> int | None:
    """Serve REST, MCP and the dashboard, until Ctrl-C."""
    del config  # read before all the others
    from orbiter.memory.server import Settings  # noqa: PLC0415 - an extra
    from orbiter.memory.server.http.worker_link import VARIABLE, join_supervisor  # noqa: PLC0415

    if (tls_cert is None) != (tls_key is None):
        raise UsageError("`--tls-cert` and `--tls-key` belong together; give both")
    if playground_url is not None and not is_http_url(playground_url):
        raise UsageError(f"`--playground-url` must begin with http, not `{playground_url}`")
    oidc = oidc_settings(
        oidc_issuer, oidc_audience, oidc_user_claim, oidc_role_claim, oidc_default_role
    )
    settings = Settings(
        host=host,
        port=port,
        allowed_hosts=tuple(allow_host or ()),
        read_only=read_only,
        rate=rate,
        drain=drain,
        burst=max(1, int(2 * rate)),
        with_mcp=not no_mcp,
        with_dashboard=not no_dashboard,
        dashboard_by=os.environ.get("ORBITER_MEMORY_BY") or "dashboard",
        with_log=log,
        log_format=log_format.value,
        log_level=log_level.value,
        playground_url=playground_url,
        playground_model=playground_model,
        playground_key=os.environ.get(_PLAYGROUND_KEY),
        tls_cert=str(tls_cert) if tls_cert else None,
        tls_key=str(tls_key) if tls_key else None,
        metrics_host=metrics_host,
        metrics_port=metrics_port,
        oidc=oidc,
    )
    if check:
        return show_ready(run.out, settings)
    link = join_supervisor() if VARIABLE in os.environ else None
    if workers > 1 and link is None:
        _check_shared(run)
        return await _supervise(run, settings, workers=workers, open_page=open_page)
    memory = run.unopened(reranker=reranker, is_worker=link is not None)
    if is_served(memory):
        raise UsageError(f"`{memory.url}` is a server already; name a store with `--url`")
    memory.unscoped(by=settings.dashboard_by)  # refuses a name that is none
    await load_reranker(memory)
    held = await keys_of(run.target, keys)
    await until_stopped(run, memory, settings=settings, keys=held, open_page=open_page, link=link)
    return None


_SOON = 2.0
"""Seconds for a store to tell its schema when the server starts."""
_ENDING = (signal.SIGINT, signal.SIGTERM)
_EVERY = ("", "0.0.0.0", "::")  # noqa: S104 - only told
"""What means every address of a computer; the one that is shown is for itself."""


async def until_stopped(
    run: CommandContext,
    memory: "AgentMemory",
    *,
    settings: "Settings",
    keys: "KeyStore | None",
    open_page: bool,
    link: "WorkerLink | None" = None,
) -> None:
    """Serve *memory* until somebody ends this process; with *open_page*, show it in a browser.

    With a *link* it is one of several workers, and its supervisor tells people what there is.
    """
    from orbiter.memory.server import create_app, serving  # noqa: PLC0415 - an extra
    from orbiter.memory.server.http.access_log import log_to_stderr  # noqa: PLC0415

    application = create_app(memory, settings=settings, keys=keys, link=link)
    log = log_to_stderr(settings.log_format, level=settings.log_level)
    with log, ExitStack() as stack:
        if link is not None:
            await link.connect()
        note = note_wait(memory.url)
        async with serving(application, settings=settings) as url:
            note.cancel()
            stop = stack.enter_context(_on_signals(is_worker=link is not None))
            stack.enter_context(short_pauses())
            report = await _start_report(url, application.state.orbiter)
            if link is not None:
                link.ready(report)
                await stop.wait()
            else:
                await _show_start(run, settings, report, open_page=open_page)
                await stop.wait()
                _log_stop(run, settings)
        if link is None:
            _show_stop(run)


def _check_shared(run: CommandContext) -> None:
    """Refuse several workers over a store in memory: each would have one of its own."""
    url = run.target.setting("url")[0] or ""
    if url.lower().removeprefix("sqlite:///") in ("memory://", ":memory:"):
        reason = "is in the memory of one process; name another `--url`, or leave `--workers` out"
        raise UsageError(f"`{url}` {reason}")


async def _supervise(
    run: CommandContext, settings: "Settings", *, workers: int, open_page: bool
) -> int:
    """Keep *workers* processes of this command, until somebody ends this one."""
    from orbiter.memory.server.http.access_log import log_to_stderr  # noqa: PLC0415 - an extra
    from orbiter.memory.server.supervisor import Supervisor, WorkerFailedError  # noqa: PLC0415

    command = [sys.executable, "-m", "orbiter.memory.cli", *sys.argv[1:]]
    os.environ[WORKER_LOG] = settings.log_format
    supervisor = Supervisor(settings, workers=workers, command=command)
    log = log_to_stderr(settings.log_format, level=settings.log_level)
    with log, _on_signals(supervisor.reload) as stop:
        try:
            starting: asyncio.Future[Any] = asyncio.ensure_future(supervisor.start())
            stopping: asyncio.Future[Any] = asyncio.ensure_future(stop.wait())
            failed: asyncio.Future[Any] = supervisor.failed
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                starting.cancel()
                return 0
            report = starting.result()
            await _show_start(run, settings, report, open_page=open_page, workers=workers)
            await asyncio.wait({stopping, failed}, return_when=asyncio.FIRST_COMPLETED)
            if supervisor.failed.done():
                raise supervisor.failed.result()
            _log_stop(run, settings)
        except WorkerFailedError as exc:
            say(str(exc), kind="error")
            return exc.code if exc.code > 0 else 1
        finally:
            stopping.cancel()
            await supervisor.stop()
        _show_stop(run)
    return 0


def _log_start(run: CommandContext, report: dict[str, Any], workers: int) -> None:
    if not run.out.is_watched:
        schema = "" if report["schema"] is None else f", schema {report['schema']}"
        _LOG.info(
            "it serves %s: orbiter-memory %s, %s, store %s%s",
            report["url"],
            report["version"],
            counted(workers, "worker", "workers"),
            report["store"],
            schema,
        )


def _log_stop(run: CommandContext, settings: "Settings") -> None:
    if not run.out.is_watched:
        _LOG.info("it stops: requests under way have %g s to be answered", settings.drain)


def _show_stop(run: CommandContext) -> None:
    if run.out.is_watched:
        sys.stderr.write("\n")  # behind the `^C` that a terminal shows
        run.out.note("stopped")
    else:
        _LOG.info("it has stopped: what it answered is stored")


@contextmanager
def _on_signals(
    reload: Callable[[], None] | None = None, *, is_worker: bool = False
) -> Iterator[asyncio.Event]:
    """Give what is set by Ctrl-C, or by whoever ends this process.

    A second time ends the process as it stands: nothing is lost by it, as every answer is given
    when what it says is durable. A worker leaves Ctrl-C to its supervisor, which tells it.

    SIGHUP calls *reload*, and sets it in a worker, which is replaced then, and in a process whose
    terminal was closed. Any other process goes on, and its log says why.
    """
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    handled: dict[signal.Signals, Any] = {}
    terminals = [number for number in range(3) if os.isatty(number)]

    def end() -> None:
        stop.set()
        for which in _ENDING:
            loop.remove_signal_handler(which)
            signal.signal(which, signal.SIG_IGN if is_worker else signal.SIG_DFL)

    def hang_up() -> None:
        if is_worker or (terminals and not any(map(os.isatty, terminals))):
            stop.set()
        elif reload is not None:
            _LOG.warning("SIGHUP: the workers are replaced, one after the other")
            reload()
        else:
            _LOG.warning(
                "SIGHUP replaces workers, and this server has none: it goes on as it is; serve "
                "with `--workers 2` or more to reload, or restart it to load new code or settings"
            )

    actions = {signal.SIGINT: (lambda: None) if is_worker else end, signal.SIGTERM: end}
    if sys.platform != "win32":
        is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # by `nohup`
        if reload is not None or not is_ignored:
            actions[signal.SIGHUP] = hang_up
    for which, action in actions.items():
        before = signal.getsignal(which)
        with suppress(NotImplementedError, RuntimeError):  # Windows: Ctrl-C cancels this task
            loop.add_signal_handler(which, action)
            handled[which] = before
    try:
        yield stop
    finally:
        for which, before in handled.items():
            loop.remove_signal_handler(which)
            signal.signal(which, before)


def _open(url: str) -> None:
    import webbrowser  # noqa: PLC0415 - seldom asked for

    if not webbrowser.open(url):
        say(f"there is no browser to open here; the dashboard is at {url}/", kind="note")


async def _start_report(url: str, server: "ServerState") -> dict[str, Any]:
    """Return what a server is, as `--json` prints it, and what to warn of."""
    memory, settings, keys = server.memory, server.settings, server.keys
    open_keys, needs_key = await count_open_keys(keys), await server.needs_key()
    stats = await _stats(memory)
    warnings = [f"{each.found}; {each.cure}" for each in check_index(stats)]
    if needs_key and not _is_private(settings):
        warnings.append(
            "keys and memories cross the network unencrypted; `--tls-cert` and `--tls-key`, "
            "or a proxy that has them, prevent it"
        )
    if keys is not None and needs_key and not open_keys and settings.oidc is None:
        warnings.append(
            f"every key in `{keys.place}` is revoked or expired: nobody has access; make one with "
            f"`{server.key_command()}`"
        )
    return {
        "version": import_module("orbiter.memory").__version__,
        "schema": None if stats is None else stats.schema,
        "url": url,
        "mcp": f"{url}/mcp" if settings.with_mcp else None,
        "store": without_passwords(memory.url),
        "keys": open_keys,
        "needs_key": needs_key,
        "read_only": settings.read_only,
        "warnings": warnings,
    }


async def _stats(memory: "AgentMemory") -> "StoreStats | None":
    with suppress(MemoryError, OSError, TimeoutError):  # a store that has none, or is slow to tell
        return await asyncio.wait_for(memory.stats(), _SOON)
    return None


async def _show_start(
    run: CommandContext,
    settings: "Settings",
    report: dict[str, Any],
    *,
    open_page: bool,
    workers: int = 1,
) -> None:
    url, needs_key, pii = report["url"], report["needs_key"], run.target.setting("pii")[0]
    for warning in report.pop("warnings"):  # in a pipe and in a log, too
        say(warning, kind="warning")
    _log_start(run, report, workers)
    if run.out.is_json:
        run.out.line({**report, "pii": pii or "none", "workers": workers})
    elif run.out.is_watched or settings.log_format != "json":  # else the log is all there is
        access = counted(report["keys"], "key", "keys") if needs_key else "none: this computer only"
        access += f", and tokens of {settings.oidc.issuer}" if settings.oidc else ""
        rows = [
            ("dashboard", f"{url}/") if settings.with_dashboard else None,
            ("REST", f"{url}/v1"),
            ("MCP", f"{url}/mcp") if settings.with_mcp else None,
            ("listening on", _reached(settings)) if settings.host in _EVERY else None,
            ("store", report["store"]),
            ("personal data", label) if (label := pii_label(pii)) else None,
            ("keys", access),
            ("write access", "refused: read-only") if settings.read_only else None,
            ("workers", str(workers)) if workers > 1 else None,
        ]
        present = [row for row in rows if row is not None]
        run.out.panel(present, title="serving", subtitle="Ctrl-C stops it")
        run.out.flush()
    if open_page and settings.with_dashboard:
        await asyncio.to_thread(_open, url)


def _reached(settings: "Settings") -> str:
    names = "".join(f", and as {name}" for name in settings.allowed_hosts)
    return f"every address of this computer{names}"


def _is_private(settings: "Settings") -> bool:
    from orbiter.memory.server.http.browser_security import is_loopback  # noqa: PLC0415

    is_here = settings.host == "localhost" or is_loopback(settings.host)
    return is_here or settings.tls_cert is not None
