"""The server: `serve`."""

import asyncio
import logging
import math
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click import UsageError

from orbiter.memory.backends.registry import is_http_url
from orbiter.memory.cli._command_context import (
    ENV_PREFIX,
    CommandContext,
    is_served,
)
from orbiter.memory.cli._error_messages import ERROR, say, say_in_json, without_passwords
from orbiter.memory.cli._options import command, output_options, setting_option, store_options
from orbiter.memory.cli._output import Output
from orbiter.memory.cli._settings_file import load_settings
from orbiter.memory.cli._text import counted
from orbiter.memory.cli.commands.keys import (
    ROLES,
    count_open_keys,
    keys_of,
    keys_option,
)
from orbiter.memory.diagnostics import check_index
from orbiter.memory.errors import MemoryError
from orbiter.memory.tasks.event_loop import short_pauses

if TYPE_CHECKING:
    from orbiter.memory.agent import AgentMemory
    from orbiter.memory.auth import KeyStore, OIDCSettings
    from orbiter.memory.model.reports import StoreStats
    from orbiter.memory.server import Settings
    from orbiter.memory.server.http.state import ServerState
    from orbiter.memory.server.http.worker_link import WorkerLink

__all__ = ["serve", "until_stopped"]

_LOG = logging.getLogger("orbiter.memory.server.signals")
_PLAYGROUND_KEY = f"{ENV_PREFIX}PLAYGROUND_KEY"
"""A variable and no option: a command line is seen by others on the computer."""
_PORT = click.IntRange(0, 65_535)


def _read_config(ctx: click.Context, _param: click.Parameter, path: Path | None) -> Path | None:
    """Have the options be what the file at *path* says, unless they are given."""
    if path is None or ctx.resilient_parsing:
        return path
    names = {str(each.opts[0]).removeprefix("--"): each for each in ctx.command.params}
    known = names.keys() - {"check", "config", "json"}
    settings: dict[str, Any] = {}
    for name, value in load_settings(path).items():
        if name not in known:
            near = get_close_matches(name, known, n=1)
            way = f"did you mean `{near[0]}`?" if near else "they are named as the options are"
            raise click.BadParameter(f"`{path}` has `{name}`, which is not a setting; {way}")
        is_list = getattr(names[name], "multiple", False) and isinstance(value, str)
        settings[str(names[name].name)] = value.split() if is_list else value
    ctx.default_map = settings
    return path


def _check_hosts(
    _ctx: click.Context, _param: click.Parameter, hosts: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the names of `--allow-host`; refuse one that no request can have as its `Host`."""
    from orbiter.memory.server.http.settings import HOST_NAME  # noqa: PLC0415 - for `serve` only

    for host in hosts:
        match = HOST_NAME.fullmatch(host.lower())
        if match and int(match[2] or 0) < 65_536:
            continue
        raise click.BadParameter(
            f"`{host}` is not a host name; give one such as `memory.example.com`, without a "
            "scheme. For several, repeat `--allow-host`, or put spaces between them in the variable"
        )
    return hosts


def _check_number(_ctx: click.Context, _param: click.Parameter, value: float) -> float:
    """Return *value*; refuse `nan`, which is within every range."""
    if math.isnan(value):
        raise click.BadParameter(f"{value} is not a number")
    return value


@command("serve")
@setting_option("--host", default="127.0.0.1", help="The address to serve.")
@setting_option("--port", type=_PORT, default=8765, help="The port; 0 for any free one.")
@keys_option
@setting_option(
    "--allow-host",
    "allowed_hosts",
    multiple=True,
    callback=_check_hosts,
    help="A name it may be called by, such as `memory.example.com`.",
)
@setting_option("--read-only", is_flag=True, help="Refuse all changes.")
@setting_option(
    "--rate",
    type=click.FloatRange(0.1, 1e6),
    callback=_check_number,
    default=100.0,
    help="Requests per second for each key.",
)
@setting_option("--workers", type=click.IntRange(1, 64), default=1, help="Processes that serve.")
@setting_option(
    "--drain",
    type=click.FloatRange(0, 86_400),
    callback=_check_number,
    default=3.0,
    help="Seconds for requests under way when it stops.",
)
@setting_option("--tls-cert", type=click.Path(), help="The certificate, for HTTPS.")
@setting_option("--tls-key", type=click.Path(), help="Its private key.")
@click.option("--open", "open_page", is_flag=True, help="Open the dashboard in a browser.")
@click.option(
    "--check", is_flag=True, help="Only ask the server with these settings if it is ready."
)
@setting_option("--reranker", help="An ONNX cross-encoder, or the URL of a service.")
@setting_option("--playground-url", help="An OpenAI-compatible endpoint for the playground.")
@setting_option("--playground-model", default="gpt-4o-mini", help="The model of that endpoint.")
@setting_option("--no-mcp", is_flag=True, help="Serve without MCP.")
@setting_option("--no-dashboard", is_flag=True, help="Serve without the dashboard.")
@setting_option("--log", "with_log", is_flag=True, help="Log a line for each request.")
@setting_option(
    "--log-format",
    type=click.Choice(["text", "json"], case_sensitive=False),
    default="text",
    help="How the log is written.",
)
@setting_option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
    default="warning",
    help="What else is logged.",
)
@setting_option("--metrics-port", type=_PORT, help="A port for metrics without a key.")
@setting_option("--metrics-host", default="127.0.0.1", help="The address of that port.")
@setting_option("--oidc-issuer", help="The issuer whose tokens are taken.")
@setting_option("--oidc-audience", multiple=True, help="What tokens must be made for.")
@setting_option("--oidc-user-claim", default="sub", help="The claim that names the user.")
@setting_option("--oidc-role-claim", default="scope", help="The claim that names the role.")
@setting_option("--oidc-default-role", type=ROLES, help="The role of tokens without one.")
@setting_option(
    "--config",
    type=click.Path(path_type=Path),
    is_eager=True,
    expose_value=False,
    callback=_read_config,
    help="A TOML file with these settings.",
)
@store_options
@output_options
def serve(run: CommandContext, **options: Any) -> int | None:
    """Serve REST, MCP and the dashboard, until Ctrl-C."""
    say_in_json(options["log_format"] == "json")
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        return runner.run(_serve(run, options))


def _new_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop of `uvloop` if that is installed: a request costs it a tenth less."""
    try:
        uvloop = import_module("uvloop")
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


async def _serve(run: CommandContext, options: dict[str, Any]) -> int | None:
    from orbiter.memory.server import Settings  # noqa: PLC0415 - an extra
    from orbiter.memory.server.http.worker_link import VARIABLE, join_supervisor  # noqa: PLC0415

    if (options["tls_cert"] is None) != (options["tls_key"] is None):
        raise UsageError("`--tls-cert` and `--tls-key` belong together; give both")
    playground_url = options["playground_url"]
    if playground_url is not None and not is_http_url(playground_url):
        raise UsageError(f"`--playground-url` must begin with http, not `{playground_url}`")
    named = {
        name: value for name, value in options.items() if name in Settings.__dataclass_fields__
    }
    settings = Settings(
        **named,
        burst=max(1, int(2 * options["rate"])),
        with_mcp=not options["no_mcp"],
        with_dashboard=not options["no_dashboard"],
        dashboard_by=os.environ.get("ORBITER_MEMORY_BY") or "dashboard",
        playground_key=os.environ.get(_PLAYGROUND_KEY),
        oidc=_oidc_settings(options),
    )
    if options["check"]:
        return _show_ready(run.out, settings)
    workers, open_page = options["workers"], options["open_page"]
    link = join_supervisor() if VARIABLE in os.environ else None
    if workers > 1 and link is None:
        _check_shared(run)
        return await _supervise(run, settings, workers=workers, open_page=open_page)
    memory = run.unopened(reranker=options["reranker"], is_worker=link is not None)
    if is_served(memory):
        raise UsageError(f"`{memory.url}` is a server already; name a store with `--url`")
    memory.unscoped(by=settings.dashboard_by)  # refuses a name that is none
    await _load_reranker(memory)
    held = await keys_of(run.target, options["file"])
    await until_stopped(run, memory, settings=settings, keys=held, open_page=open_page, link=link)
    return None


def _oidc_settings(options: dict[str, Any]) -> "OIDCSettings | None":
    """Return whose tokens a server takes in addition to keys, as the options say."""
    issuer, audiences = options["oidc_issuer"], options["oidc_audience"]
    if issuer is None and not audiences:
        return None
    if issuer is None or not audiences:
        raise UsageError("`--oidc-issuer` and `--oidc-audience` belong together; give both")
    from orbiter.memory.auth import OIDCSettings  # noqa: PLC0415 - few servers have one

    return OIDCSettings(
        issuer,
        audiences,
        user_claim=options["oidc_user_claim"],
        role_claim=options["oidc_role_claim"],
        default_role=options["oidc_default_role"],
    )


async def _load_reranker(memory: "AgentMemory") -> None:
    """Load a reranker of this computer now: without it, every recall would fail."""
    from orbiter.memory.errors import RerankError  # noqa: PLC0415 - for `serve` only
    from orbiter.memory.rerankers import OnnxReranker  # noqa: PLC0415

    reranker = memory._core.reranker  # noqa: SLF001 - of this library
    try:
        if isinstance(reranker, OnnxReranker):
            await reranker.load()
    except RerankError as exc:
        reason = str(exc).partition("; check ")[0]
        way = "name an ONNX file or its folder, with `vocab.txt`, or the URL of a service"
        raise UsageError(f"the reranker cannot be used: {reason}; {way}") from exc


def _show_ready(out: Output, settings: "Settings") -> int:
    """Say whether a server that was started with *settings* is ready; return the exit code."""
    from orbiter.memory.server.http.listen_socket import ask_ready  # noqa: PLC0415

    if not settings.port:
        raise UsageError("`--check` needs the port of the server; name it with `--port`")
    url, fault = ask_ready(settings)
    if out.is_json:
        out.data({"url": url, "ready": fault is None, "reason": fault})
    elif fault is None:
        out.text(f"{url} is ready")
    else:
        say(f"{url} is not ready: {fault}")
    return 0 if fault is None else ERROR


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
        async with serving(application, settings=settings) as url:
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
    url = run.target.url or ""
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
    url, needs_key, pii = report["url"], report["needs_key"], run.target.pii
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
            ("personal data", label) if (label := _pii_label(pii)) else None,
            ("keys", access),
            ("write access", "refused: read-only") if settings.read_only else None,
            ("workers", str(workers)) if workers > 1 else None,
        ]
        present = [row for row in rows if row is not None]
        run.out.table(present)
        run.out.note("it serves; Ctrl-C stops it")
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


def _pii_label(chosen: str | None) -> str | None:
    """Return what becomes of personal data, in words; `None` if it is stored as it is."""
    if chosen in (None, "none"):
        return None
    kinds = "" if chosen == "tokens" else f"{', '.join(str(chosen).split(','))}: "
    return f"{kinds}replaced by tokens before it is stored"
