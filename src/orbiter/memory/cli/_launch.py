"""The command that starts `orbiter-memory` elsewhere, on the same store and in the same scope.

Another program has another folder and another environment, so what those say here is written
down. What a project commits is for everybody: it gets no path of this machine, no name of its
user and no secret.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

from click import UsageError

from orbiter.memory._lazy import installed_from
from orbiter.memory.cli._command_context import ENV_PREFIX, PII_VARIABLES, SCOPES, Target
from orbiter.memory.cli._error_messages import without_passwords

__all__ = ["project_name", "settings_of", "shell_line", "start_words"]

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


def start_words(target: Target, *, is_shared: bool) -> list[str]:
    """Return the words that start the program; a command and its options follow them.

    It is this Python. In what is shared, it is the command on the `PATH`, or `uvx` where there is
    none; `uvx` also where this Python is in a cache, and may be gone tomorrow. What was not
    installed from an index, `uvx` finds where it was installed from.
    """
    is_lasting = not any((each / "CACHEDIR.TAG").exists() for each in Path(sys.prefix).parents)
    if is_lasting and not is_shared:
        return [sys.executable, "-m", "orbiter.memory.cli"]
    if is_shared and shutil.which(_NAME):
        return [_NAME]
    requirement = f"{_NAME}[{','.join(_extras(target))}]"
    reference = installed_from()[0]
    if is_shared and reference is not None and _is_private(reference):
        raise UsageError(
            f"`{_NAME}` is not on the PATH, and `uvx` finds only what others can get: this was "
            f"installed from `{without_passwords(reference)}`. Put the command on the PATH first"
        )
    if reference is None:
        return ["uvx", requirement]
    return ["uvx", "--from", f"{requirement} @ {reference}", _NAME]


def _extras(target: Target) -> list[str]:
    from orbiter.memory.diagnostics import is_installed  # noqa: PLC0415 - `--help` needs it not

    scheme = (target.url or "").partition("://")[0]
    extras = {"mcp", *([_DRIVERS[scheme]] if scheme in _DRIVERS else ())}
    if target.model != "none" and is_installed("local"):
        extras.add("local")
    return sorted(extras)


def settings_of(target: Target, *, is_shared: bool = False) -> tuple[list[str], dict[str, str]]:
    """Return the options and the environment that lead to the same store and scope.

    The key of a server goes to the environment, which other users of the computer cannot see; so
    do a URL with a password and the path of a file, if what they are for is shared. That gets
    only what was given as an option, and a `--task` where nothing else says which scope is meant.
    """
    from orbiter.memory.backends.urls import absolute_url  # noqa: PLC0415 - `--help` needs it not

    options: list[str] = []
    env: dict[str, str] = {}
    for name in ("url", "model", "redact", "pii", *SCOPES, "user_name", "by"):
        value = getattr(target, name)
        if not value or (name in ("redact", "pii") and target.is_remote()):
            continue  # a server has its own
        if is_shared and name == "url" and _is_private(value):
            env[f"{ENV_PREFIX}URL"] = value
        elif name == "url":
            options += ["--url", absolute_url(value)]
        elif not is_shared or target.is_given(name):
            options += [f"--{name.replace('_', '-')}", value]
    if target.no_user:
        options.append("--no-user")
    if is_shared and not target.scope_options():
        options += ["--task", project_name(Path.cwd())]
    if target.token and target.is_remote():
        env[f"{ENV_PREFIX}TOKEN"] = target.token
    if "--pii" in options:
        env |= {name: os.environ[name] for name in PII_VARIABLES if name in os.environ}
    return options, env


def _is_private(url: str) -> bool:
    """Return whether a URL holds a password, or is a path of this machine."""
    scheme, mark, _ = url.partition("://")
    return without_passwords(url) != url or not mark or scheme in ("sqlite", "file")


def project_name(folder: Path) -> str:
    """Return the name of the project in *folder*: the same in every clone of a repository.

    It is `owner/name` of the remote repository, or else the folder's own name with a few letters
    that make it unique.
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
