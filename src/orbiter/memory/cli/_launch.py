"""The command that starts `orbiter-memory` elsewhere, on the same store and in the same scope.

Another program has another folder and another environment, so what those say here is written
down. A file that is committed is for everybody: it gets no path of this machine, no name of its
user and no secret.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

from orbiter.memory._lazy import installed_from
from orbiter.memory.cli._command import SCOPES, Target
from orbiter.memory.cli._error_messages import UsageError, without_passwords
from orbiter.memory.cli._settings_file import PII_VARIABLES

__all__ = ["Via", "launcher", "project_name", "settings_of", "shell_line"]

_NAME = "orbiter-memory"
_DRIVERS = {
    "postgres": "postgres",
    "postgresql": "postgres",
    "redis": "redis",
    "rediss": "redis",
    "unix": "redis",
}
"""The extras that stores need, by the scheme of their URL."""
_WITHIN = 5.0
"""Seconds after which git is not waited for."""


class Via(StrEnum):
    """What starts it."""

    PYTHON = "python"
    COMMAND = "command"
    UVX = "uvx"


def launcher(via: Via | None, target: Target, *, is_shared: bool) -> tuple[Via, list[str]]:
    """Return what starts it, and the words of that; a command and its options follow them.

    Without *via*, it is this Python; in a file that is shared, the command on the `PATH`, or
    `uvx` where there is none. What was not installed from an index, `uvx` finds where it was
    installed from. `UsageError` for a file that is shared if nobody else can get it from there.
    """
    is_chosen = via is not None
    via = via or _usual(is_shared=is_shared)
    if via is Via.PYTHON:
        if is_shared:
            raise UsageError(
                "`--via python` is a path of this machine, and the file of a project is for "
                "everybody; use `--via command` or `--via uvx`"
            )
        return via, [sys.executable, "-m", "orbiter.memory.cli"]
    if via is Via.COMMAND:
        return via, [_NAME]
    requirement = f"{_NAME}[{','.join(_extras(target))}]"
    reference = installed_from()[0]
    if is_shared:
        _check_uvx_can_start(reference, is_chosen=is_chosen)
    if reference is None:
        return via, ["uvx", requirement]
    return via, ["uvx", "--from", f"{requirement} @ {reference}", _NAME]


def _check_uvx_can_start(reference: str | None, *, is_chosen: bool) -> None:
    """Refuse `uvx` in the file of a project where it would find no package, or is not there."""
    if reference is not None and _is_private(reference):
        origin = without_passwords(reference)
        why = f"`uvx` finds only what others can get, and this was installed from `{origin}`"
    elif not is_chosen and shutil.which("uvx") is None:
        why = "there is no `uvx`"
    else:
        return
    if shutil.which(_NAME):
        raise UsageError(f"nothing was written: {why}; use `--via command`")
    script = Path(sys.executable).with_name(_NAME)
    folder = script.parent if script.exists() else "FOLDER"
    raise UsageError(
        f"nothing was written: the file of a project holds no path of this machine, `{_NAME}` is "
        f"not on the PATH, and {why}. Put the command there, then run this again: "
        f'`export PATH="{folder}:$PATH"`'
    )


def _usual(*, is_shared: bool) -> Via:
    # An environment within a cache, as `uvx` makes them, may be gone tomorrow.
    is_lasting = not any((each / "CACHEDIR.TAG").exists() for each in Path(sys.prefix).parents)
    if not is_lasting:
        return Via.UVX
    if not is_shared:
        return Via.PYTHON
    return Via.COMMAND if shutil.which(_NAME) else Via.UVX


def _extras(target: Target) -> list[str]:
    from orbiter.memory.diagnostics import is_installed  # noqa: PLC0415 - `--help` needs it not

    scheme = (target.setting("url")[0] or "").partition("://")[0]
    extras = {"mcp", *([_DRIVERS[scheme]] if scheme in _DRIVERS else ())}
    if target.has_model() and is_installed("local"):
        extras.add("local")
    return sorted(extras)


def settings_of(target: Target, *, is_shared: bool = False) -> tuple[list[str], dict[str, str]]:
    """Return the options and the environment that lead to the same store and scope.

    The key of a server goes to the environment, which other users of the computer cannot see; so
    do a URL with a password and the path of a file, if the file that they are for is shared. Such
    a file holds only options that were given as such, and names a project where nothing else says
    which scope is meant.
    """
    from orbiter.memory.backends.registry import is_http_url  # noqa: PLC0415 - `--help` needs it not
    from orbiter.memory.backends.urls import absolute_url  # noqa: PLC0415

    options: list[str] = []
    env: dict[str, str] = {}
    is_server = is_http_url(target.setting("url")[0])
    for name in ("url", "model", "redact", "pii", *SCOPES, "user_name", "by"):
        value, origin = target.setting(name)
        if name in ("redact", "pii") and is_server:
            continue  # which refuses it, as it has its own
        if name in ("user", "by") and not origin.startswith(("--", "ORBITER")):
            continue  # the default, which will be the same there
        if is_shared and name == "url":
            if value is not None and _is_private(value):
                env["ORBITER_MEMORY_URL"] = value
                continue
        elif is_shared and not origin.startswith("--"):
            continue
        if value is not None:
            option = f"--{name.replace('_', '-')}"
            options += [option, absolute_url(value) if name == "url" else value]
        elif origin == "--no-user":
            options.append(origin)
    if is_shared and not target.scope_options():
        options += ["--task", project_name(Path.cwd())]
    token = target.setting("token")[0]
    if token is not None and is_server:
        env["ORBITER_MEMORY_TOKEN"] = token
    if "--pii" in options:
        env |= {name: os.environ[name] for name in PII_VARIABLES if name in os.environ}
    return options, env


def _is_private(url: str) -> bool:
    """Tell whether a URL holds a password, or is a path of this machine."""
    scheme, mark, _ = url.partition("://")
    return without_passwords(url) != url or not mark or scheme in ("sqlite", "file")


def project_name(folder: Path) -> str:
    """Return the name of the project in *folder*: the same in every clone of a repository.

    It is `owner/name` of the remote repository, or else the folder's own name with a few signs
    that tell it from others of that name.
    """
    parts = [re.sub(r"[^\w.-]", "-", each) for each in _remote_path(folder).split("/") if each]
    if parts:
        return "/".join(parts[-2:])[-200:]
    path = folder.resolve()
    name = re.sub(r"[^\w.-]", "-", path.name)[:190] or "project"
    digest = hashlib.sha256(str(path).encode("utf-8", "surrogateescape")).hexdigest()
    return f"{name}-{digest[:6]}"


def _remote_path(folder: Path) -> str:
    """Return the path of the remote repository on its host, empty if there is none.

    What stands before it may be a password; a remote that is on this machine does not count.
    """
    command = ["git", "-C", str(folder), "config", "--get", "remote.origin.url"]
    try:
        done = subprocess.run(  # noqa: S603 - no word of it is from outside
            command, capture_output=True, text=True, timeout=_WITHIN, check=False
        )
        remote = done.stdout.strip()
        scheme, mark, _ = remote.partition("://")
        path = urlsplit(remote).path if mark else remote.partition(":")[2]  # as in `git@host:a/b`
    except (OSError, ValueError, subprocess.SubprocessError):  # there is no git, or it hangs
        return ""
    is_here = scheme == "file" or remote.startswith(("/", ".", "~")) or remote[1:3] == ":\\"
    return "" if is_here else path.rstrip("/").removesuffix(".git")


def shell_line(words: list[str]) -> str:
    """Return *words* as a line of a shell that never fails.

    An exit code of 2 would stop the program that waits for a hook, and it is what `uvx` exits with
    when there is no network.
    """
    return f"{shlex.join(words)} || exit 0"
