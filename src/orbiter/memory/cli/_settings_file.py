"""Settings of `serve` from the environment and from a file, and whether they can work.

The options of a call come first.

The file is TOML, its names are those of the options: `port = 8765`, `allow-host = ["example.com"]`.
"""

import os
from collections.abc import Sequence
from difflib import get_close_matches
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from orbiter.memory.cli._error_messages import ERROR, UsageError, say

if TYPE_CHECKING:
    from orbiter.memory.agent import AgentMemory
    from orbiter.memory.cli._output import Output
    from orbiter.memory.server import Settings
    from orbiter.memory.text.redaction import PIIHook, Redact

__all__ = [
    "PII_VARIABLES",
    "SECRET_VARIABLES",
    "SHARED",
    "WORKER_LOG",
    "LogLevel",
    "LogLines",
    "check_hosts",
    "check_number",
    "drop_placeholders",
    "file_setting",
    "load_reranker",
    "note_idle_key",
    "pii_hook",
    "pii_label",
    "read_settings",
    "redact_words",
    "setting",
    "settings_in_force",
    "show_ready",
    "usage_text",
    "wants_json_log",
]

SHARED = ("url", "token", "model", "redact", "pii")
"""Settings that every command reads from the file, too."""

PII_VARIABLES = _PII_KEY, _ = "ORBITER_PII_KEY", "ORBITER_PII_TENANT"
"""Variables and no options: a command line is seen by others on the computer."""

_PREFIX = "ORBITER_MEMORY_"
_WORKER = f"_{_PREFIX}WORKER"
WORKER_LOG = f"_{_PREFIX}WORKER_LOG"
"""The variable by which a supervisor tells its workers how it logs."""
_OTHERS = ("user", "user-name", "session", "task", "agent", "by", "reranker-key", "playground-key")
"""Variables that are no options of `serve`."""
SECRET_VARIABLES = {
    "reranker-key": f"{_PREFIX}RERANKER_KEY",
    "playground-key": f"{_PREFIX}PLAYGROUND_KEY",
    "pii-key": _PII_KEY,
    "pii-tenant": PII_VARIABLES[1],
}
"""Settings that are variables alone, of which only whether they are set is printed."""
_PLACEHOLDERS = ("${NAME}", "${env:NAME}", "{env:NAME}")
"""How files of other programs stand for a variable."""


class LogLines(StrEnum):
    """How the lines of a log are written."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """How serious something must be to be logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def setting(*names: str, text: str, **more: Any) -> Any:
    """Return an option that can also be set by a variable of its name."""
    variable = variable_of(names[0].removeprefix("--"))
    return typer.Option(
        *names, envvar=variable, show_envvar=False, help=f"{text} [env: {variable}]", **more
    )


def variable_of(name: str) -> str:
    """Return the variable that an option can be set by."""
    return _PREFIX + name.upper().replace("-", "_")


def wants_json_log(words: Sequence[str]) -> bool:
    """Tell whether the log of `serve` with the options *words*, right or wrong, is JSON.

    Where a settings file cannot be read, a worker goes by what its supervisor logs.
    """
    chosen = _value_of("--log-format", words) or os.environ.get(variable_of("log-format"))
    if chosen:
        return chosen.lower() == LogLines.JSON.value
    path = _value_of("--config", words) or os.environ.get(variable_of("config"))
    try:
        chosen = str(_load(Path(path)).get("log-format")) if path else ""
        return chosen.lower() == LogLines.JSON.value
    except UsageError:
        return os.environ.get(WORKER_LOG) == LogLines.JSON.value


def _value_of(option: str, words: Sequence[str]) -> str | None:
    values = [after for word, after in pairwise(words) if word == option]
    values += [word.partition("=")[2] for word in words if word.startswith(f"{option}=")]
    return values[-1] if values else None


def drop_placeholders() -> None:
    """Unset variables whose value is their own placeholder, such as `${ORBITER_MEMORY_URL}`.

    A file that `install --project` wrote has those. Claude Code passes them on as they are where
    the variable is not set; as a URL, it would be a file of that name in the project.
    """
    for name in [each for each in os.environ if each.startswith(_PREFIX)]:
        if os.environ[name] in [each.replace("NAME", name) for each in _PLACEHOLDERS]:
            del os.environ[name]


def flag_of(option: Any) -> str:
    """Return what an option is called, without its dashes."""
    return str(option.opts[0]).removeprefix("--")


def read_settings(context: typer.Context, path: Path | None) -> Path | None:
    """Have the options of a command be what the file at *path* says, unless they are given."""
    if context.resilient_parsing:
        return path
    if _WORKER not in os.environ:  # its supervisor has said it
        _warn_of_misspelled(context.command.params)
    if path is None:
        return path
    try:
        settings = _load(path)
    except UsageError as exc:
        raise typer.BadParameter(str(exc)) from None
    names = {flag_of(each): str(each.name) for each in context.command.params}
    known = names.keys() - {"check", "config", "help", "json"}
    for name in settings:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            way = f"did you mean `{near[0]}`?" if near else "they are named as the options are"
            raise typer.BadParameter(f"`{path}` has `{name}`, which is not a setting; {way}")
    # Click asks the environment before this; shared options such as `--url` do so later.
    own = {name: value for name, value in settings.items() if variable_of(name) not in os.environ}
    lists = {flag_of(each) for each in context.command.params if getattr(each, "multiple", False)}
    context.default_map = {
        names[name]: value.split() if name in lists and isinstance(value, str) else value
        for name, value in own.items()
    }
    return path


def check_hosts(hosts: list[str] | None) -> list[str] | None:
    """Return the names of `--allow-host`; refuse one that no request can have as its `Host`."""
    from orbiter.memory.server.http.settings import HOST_NAME  # noqa: PLC0415 - for `serve` only

    for host in hosts or ():
        match = HOST_NAME.fullmatch(host.lower())
        if match and int(match[2] or 0) < 65_536:
            continue
        scheme, mark, rest = host.rpartition("://")
        way = "give one such as `memory.example.com` or `memory.example.com:8443`"
        if "," in host:
            way = "for several, repeat `--allow-host`, or put spaces between them in the variable"
        elif mark:
            way = f"give its name alone, such as `{rest.partition('/')[0]}`, without `{scheme}://`"
        raise typer.BadParameter(f"`{host}` is not a host name; {way}")
    return hosts


def check_number(value: float) -> float:
    """Return *value*; refuse `nan`, which is within every range."""
    if value != value:  # noqa: PLR0124 - only `nan` is not itself
        raise typer.BadParameter(f"{value} is not a number")
    return value


async def load_reranker(memory: "AgentMemory") -> None:
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


def show_ready(out: "Output", settings: "Settings") -> int:
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


def _warn_of_misspelled(options: list[Any]) -> None:
    """Warn of each variable that is no setting, and is spelled nearly as one."""
    known = [variable_of(name) for name in (*map(flag_of, options), *SHARED, *_OTHERS)]
    names = {_bare(each): each for each in (*known, *PII_VARIABLES, "ORBITER_DEBUG")}
    for variable in sorted(os.environ):
        if variable.startswith("ORBITER_") and variable not in names.values():
            near = get_close_matches(_bare(variable), names, n=1)
            if near:
                meant = f"did you mean `{names[near[0]]}`?"
                say(f"the variable `{variable}` is not a setting; {meant}", kind="warning")


def _bare(variable: str) -> str:
    return variable.removeprefix("ORBITER_").removeprefix("MEMORY_")


def usage_text(error: Any) -> str:
    """Return what is wrong with an argument, and which variable or file has set it, if one did."""
    text = str(error.format_message())
    context, option = getattr(error, "ctx", None), getattr(error, "param", None)
    head, mark, rest = text.partition(": ")
    if context is None or option is None or not head.startswith("Invalid value for"):
        return text
    source = context.get_parameter_source(option.name)
    kind = getattr(source, "name", "")
    if kind == "ENVIRONMENT":
        place = f"`{option.envvar}={os.environ.get(str(option.envvar))}`"
    elif kind == "DEFAULT_MAP":
        value = (context.default_map or {}).get(option.name)
        place = f"`{flag_of(option)} = {value!r}` in `{context.params.get('config')}`"
    else:
        return text
    return f"{head}, set by {place}{mark}{rest}"


def file_setting(name: str, path: Path | None = None) -> tuple[str | None, str]:
    """Return what the file at *path*, or else that of the environment, sets *name* to."""
    place = path or os.environ.get(variable_of("config"))
    if not place or name not in SHARED:
        return None, ""
    value = _load(Path(place)).get(name)
    return (None if value is None else str(value)), str(place)


def pii_hook(chosen: str | None, origin: str) -> "PIIHook | None":
    """Return what replaces personal data before it is written, if the setting `pii` says so."""
    if chosen in (None, "none"):
        return None
    from orbiter.memory.errors import QueryError  # noqa: PLC0415 - few need it
    from orbiter.memory.text.pii import hasher_of  # noqa: PLC0415

    try:
        return hasher_of(str(chosen), origin=origin, off="`--pii none`")
    except QueryError as exc:
        raise UsageError(str(exc)) from None


def redact_words(chosen: str | None, origin: str) -> "Redact | None":
    """Return in which texts secrets are redacted, if the setting `redact` says so."""
    match chosen:
        case None | "none" | "secrets":
            return chosen
    raise UsageError(f"{origin} must be `secrets` or `none`, not `{chosen}`")


def pii_label(chosen: str | None) -> str | None:
    """Return what becomes of personal data, in words; `None` if it is stored as it is."""
    if chosen in (None, "none"):
        return None
    kinds = "" if chosen == "tokens" else f"{', '.join(str(chosen).split(','))}: "
    return f"{kinds}replaced by tokens before it is stored"


def note_idle_key(chosen: str | None) -> None:
    """Say so if there is a key for tokens, and nothing says whether personal data is replaced."""
    if chosen is None and os.environ.get(_PII_KEY):
        say(
            f"`{_PII_KEY}` is set, but personal data is stored as it is; "
            f"`{_PREFIX}PII=tokens` replaces it, `{_PREFIX}PII=none` ends this note",
            kind="note",
        )


def _load(path: Path) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415 - few have such a file

    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8-sig"))  # Windows writes a mark
    except OSError as exc:
        raise UsageError(f"`{path}` cannot be read: {exc.strerror}") from None
    except ValueError as exc:
        raise UsageError(f"`{path}` is not TOML: {exc}") from None
    tables = [name for name, value in settings.items() if isinstance(value, dict)]
    if tables:
        raise UsageError(
            f"`{path}` has a table `[{tables[0]}]`, and settings are in no table; remove that line"
        )
    return settings


def settings_in_force(command: Any, path: Path | None) -> list[tuple[str, str, str]]:
    """Return the name and the value of each option of a command, and where it comes from.

    Those that all commands share are left out.
    """
    arguments = [] if path is None else ["--config", str(path)]
    try:
        context = command.make_context(command.name, arguments)
    except typer.BadParameter as exc:
        raise UsageError(usage_text(exc)) from None
    rows = []
    for option in command.params:
        source = context.get_parameter_source(option.name).name
        origin = {"ENVIRONMENT": str(option.envvar), "DEFAULT_MAP": str(path)}.get(
            source, "default"
        )
        value = context.params.get(option.name)
        if option.name == "config":
            origin = "default"
            if path:
                is_variable = str(path) == os.environ.get(variable_of("config"))
                origin = variable_of("config") if is_variable else "--config"
        if flag_of(option) not in (*SHARED, "check", "json", "help"):
            rows.append((flag_of(option), _as_text(value), origin))
    return rows


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "–"
    return "–" if value is None else str(getattr(value, "value", value))
