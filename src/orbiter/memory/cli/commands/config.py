"""Settings and the shell: `config`, `completion`."""

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from orbiter.memory.cli._command import SCOPES, CommandContext, command, new_app
from orbiter.memory.cli._error_messages import is_debugging, without_passwords
from orbiter.memory.cli._output import styled
from orbiter.memory.cli._settings_file import (
    SECRET_VARIABLES,
    file_setting,
    setting,
    settings_in_force,
)
from orbiter.memory.cli._text import one_line

__all__ = ["app"]

app = new_app()


class Shell(StrEnum):
    """Shells that can complete."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    POWERSHELL = "powershell"


@command(app, "config", everyone=False, shows_scope=True)
def config(
    run: CommandContext,
    *,
    config: Annotated[
        Path | None, setting("--config", text="The settings file of `serve`.")
    ] = None,
) -> None:
    """Show the settings, those of a server too, and where each comes from."""
    from typer.main import get_command  # noqa: PLC0415

    from orbiter.memory.backends.registry import default_url  # noqa: PLC0415
    from orbiter.memory.backends.urls import redacted  # noqa: PLC0415 - `--help` needs it not
    from orbiter.memory.cli.commands import serve  # noqa: PLC0415 - `--help` needs it not

    def setting_of(name: str) -> tuple[str | None, str]:
        value, origin = run.target.setting(name)
        from_file, place = file_setting(name, config)
        return (from_file, place) if value is None and from_file is not None else (value, origin)

    url, origin = setting_of("url")
    if url is None:
        url, origin = default_url(), "the user's data directory"
    is_server = url.startswith(("postgres", "redis"))
    rows: list[tuple[str, str | None, str]] = [
        ("url", redacted(url) if is_server else without_passwords(url), origin)
    ]
    key, source = setting_of("token")
    if key is not None:
        rows.append(("token", "given, and not shown", source))
    rows += [(name, *run.target.setting(name)) for name in (*SCOPES, "by")]
    rows.append(("model", *_model(*setting_of("model"))))
    redact, source = setting_of("redact")
    usual = ("redact", "secrets in imports and hooks", "default")
    rows.append(usual if redact is None else ("redact", redact, source))
    pii, source = setting_of("pii")
    rows.append(("pii", "none", "default") if pii is None else ("pii", pii, source))
    place = os.environ.get("ORBITER_MEMORY_RERANKER")
    if place:
        rows.append(("reranker", without_passwords(place), "ORBITER_MEMORY_RERANKER"))
    rows.append(("color", *_color()))
    rows.append(
        (
            "debug",
            "yes" if is_debugging() else "no",
            "ORBITER_DEBUG" if is_debugging() else "default",
        )
    )
    server = [
        (name, _usual_keys(url) if (name, source) == ("keys", "default") else value, source)
        for name, value, source in settings_in_force(get_command(serve.app), config)
    ]
    server += [
        (name, "set", variable) if os.environ.get(variable) else (name, "–", "default")
        for name, variable in SECRET_VARIABLES.items()
    ]
    if run.out.is_json:
        data = {name: {"value": value, "from": source} for name, value, source in rows}
        named = {name: {"value": value, "from": source} for name, value, source in server}
        run.out.data({**data, "server": named})
        return
    for name, value, source in rows:
        value_text = "–" if value is None else one_line(value)
        run.out.show(styled((f"{name:<9}", "bold"), (value_text, "cyan"), (f"  ({source})", "dim")))
    run.out.show(styled(("\nserve", "bold")))
    width = max(len(name) for name, _, _ in server)
    for name, value, source in server:
        text = without_passwords(one_line(value))
        head = f"  {name:<{width}}  "
        run.out.show(styled((head, "bold"), (text, "cyan"), (f"  ({source})", "dim")))


def _usual_keys(url: str) -> str:
    """Return where the keys of the store at *url* are, unless `--keys` names a file."""
    from orbiter.memory.auth import key_file_for  # noqa: PLC0415 - `--help` needs it not
    from orbiter.memory.backends.urls import redacted  # noqa: PLC0415
    from orbiter.memory.errors import QueryError  # noqa: PLC0415

    scheme = url.partition("://")[0].lower()
    if scheme in ("postgres", "postgresql"):
        return f"table orbiter_keys of {redacted(url)}"
    if scheme == "sqlite" and url != without_passwords(url):  # it names no file
        return "–"
    try:
        return str(key_file_for(url))
    except QueryError:  # a store in memory, or a server
        return "–"


def _color() -> tuple[str, str]:
    for variable, mode in (("NO_COLOR", "no"), ("FORCE_COLOR", "always")):
        if os.environ.get(variable):
            return mode, variable
    return "on a terminal", "default"


def _model(chosen: str | None, origin: str) -> tuple[str, str]:
    from orbiter.memory.diagnostics import is_installed  # noqa: PLC0415

    if chosen == "none":
        return "none", origin
    if is_installed("local"):
        import orbiter_memory_minilm  # noqa: PLC0415 - an extra

        return orbiter_memory_minilm.NAME, "the extra [local]"
    return "none", "the extra [local] is not installed"


@command(app, "completion", url=False)
def completion(
    run: CommandContext,
    shell: Annotated[Shell, typer.Argument(help="For which shell.", show_default=False)],
) -> None:
    """Print the shell completion script."""
    from typer import completion as completions  # noqa: PLC0415

    script = completions.get_completion_script(  # type: ignore[attr-defined]  # it is there since 0.4
        prog_name="orbiter-memory",
        complete_var="_ORBITER_MEMORY_COMPLETE",
        shell=shell.value,
    )
    if run.out.is_json:
        run.out.data({"shell": shell.value, "script": script})
    else:
        sys.stdout.write(f"{script}\n")
