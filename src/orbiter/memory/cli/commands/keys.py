"""Who may use the server: `keys`."""

import shlex
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orbiter.memory.cli._command import CommandContext, Target, command, new_app, without_a_name
from orbiter.memory.cli._error_messages import NotThereError, UsageError, say, without_passwords
from orbiter.memory.cli._options import read_end
from orbiter.memory.cli._output import styled
from orbiter.memory.cli._settings_file import setting
from orbiter.memory.cli._text import ago, moment, one_line
from orbiter.memory.cli._views import entry, scope_label

if TYPE_CHECKING:
    from orbiter.memory.auth import Key, KeyFile
__all__ = ["Keys", "app", "keys_of"]

Keys = Annotated[
    Path | None,
    setting("--keys", text="The key file; by default the one beside the store."),
]


def keys_of(target: Target, given: Path | None) -> "KeyFile | None":
    """Return the keys of the store that *target* names; a store in memory has none unless given.

    A *given* file must be there: a name that was mistyped must not serve without keys.
    """
    from orbiter.memory.auth import KeyFile  # noqa: PLC0415 - `--help` needs it not
    from orbiter.memory.backends.registry import default_url  # noqa: PLC0415

    url = target.setting("url")[0] or default_url()
    if given is None and url in ("memory://", ":memory:"):
        return None
    if given is None:
        return key_file(target, given)
    if not given.exists():
        raise UsageError(
            f"there is no file of keys at `{given}`; make it with "
            f"`{keys_command(target, given, 'create', '--user', 'NAME')}`, or leave `--keys` out"
        )
    return KeyFile(given)


def key_file(target: Target, given: Path | None) -> "KeyFile":
    """Return the keys of the store that *target* names, or those in the *given* file."""
    from orbiter.memory.auth import KeyFile, key_file_for  # noqa: PLC0415
    from orbiter.memory.backends.registry import default_url  # noqa: PLC0415

    if given is not None:
        return KeyFile(given)
    return KeyFile(key_file_for(target.setting("url")[0] or default_url()))


def keys_command(target: Target, given: Path | None, *words: str) -> str:
    """Return the command `keys` with *words* that means the same keys, for whoever is to run it."""
    url = target.setting("url")[0]
    named = [] if url is None else ["--url", without_passwords(url)]
    named += [] if given is None else ["--keys", str(given)]
    return shlex.join(["orbiter-memory", "keys", *words, *named])


def missing_store(target: Target) -> str | None:
    """Return the file of the store that *target* names if it is not there: it may be mistyped."""
    from orbiter.memory.backends.registry import default_url  # noqa: PLC0415

    url = target.setting("url")[0] or default_url()
    scheme, mark, rest = url.partition("://")
    if mark and scheme.lower() != "sqlite":
        return None
    path = Path(rest[1:] if mark else url).expanduser()
    return None if path.exists() else str(path)


app = new_app()
keys = new_app()
app.add_typer(
    keys,
    name="keys",
    cls=without_a_name(lambda: "list"),
    help="Create, list and revoke API keys of the server.\n\nWithout a command, it lists them.",
)


class Role(StrEnum):
    """What a key may do."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


@command(keys, "create", scope=False)
def create(  # noqa: PLR0913 - whose it is, and what it may do
    run: CommandContext,
    *,
    role: Annotated[
        Role,
        typer.Option(help="`read`, `write`, or `admin`: erase, audit and the store itself, too."),
    ] = Role.WRITE,
    user: Annotated[str | None, typer.Option(help="User whose memories it opens.")] = None,
    session: Annotated[str | None, typer.Option(help="Only this session's.")] = None,
    task: Annotated[str | None, typer.Option(help="Only this task's.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only this agent's.")] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of its user, for `history` and the audit log.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="When it expires: `30d`, `12h`, or `2027-01-31`.")
    ] = None,
    keys: Keys = None,
) -> None:
    """Create a key; it is shown only once."""
    from orbiter.memory.model.items import MemoryMetadata  # noqa: PLC0415 - `--help` needs it not

    given = {"user": user, "session": session, "task": task, "agent": agent}
    for each, value in given.items():
        if value == "":
            raise UsageError(f"`--{each}` is empty; give a name, or leave it out")
    named = {f"{each}_id": value for each, value in given.items() if value is not None}
    if role is not Role.ADMIN and not named:
        raise UsageError(
            f"a key with the role `{role.value}` needs a scope: use `--user`, `--session`, "
            "`--task` or `--agent`; only `--role admin` covers everyone's memories"
        )
    file = key_file(run.target, keys)
    is_first = not file.has_keys
    key, token = file.create(
        scope=MemoryMetadata(**named),
        role=role.value,
        name=name,
        expires=read_end("expires", expires),
    )
    # Told in a pipe, too: a key of another store than the one that is served opens nothing.
    missing = None if keys else missing_store(run.target)
    if missing:
        say(f"there is no store at `{missing}` yet; is `--url` the one of `serve`?", kind="note")
    if run.out.is_json:
        run.out.data({**_json(key), "key": token, "file": str(file.path)})
        return
    if run.out.is_plain():
        run.out.text(token)
    else:
        # Not folded: whoever copies it must get it in one piece.
        run.out.console.print(styled((token, "bold green")), soft_wrap=True)
        run.out.show(styled((_describe_key(key), "dim")))
    say(f"its hash is in `{file.path}`, for the server that uses this file", kind="note")
    run.out.note("save it now: only its hash is stored, and it is not shown again")
    if is_first:
        run.out.note("it is the first key: from now on, that server asks everybody for a key")


@command(keys, "list", scope=False)
def list_keys(run: CommandContext, *, keys: Keys = None) -> None:
    """List the keys; the secret parts are not stored."""
    file = key_file(run.target, keys)
    found = file.list()
    if run.out.is_json:
        run.out.data([_json(key) for key in found])
    elif run.out.is_plain():
        run.out.rows(
            (key.id, _state(key), key.role, scope_label(key.scope), key.name) for key in found
        )
    else:
        for key in found:
            is_open = key.is_open(datetime.now(UTC))
            mark = styled(("●", "green" if is_open else "dim"))
            head = styled((key.id, "bold" if is_open else "dim"), f"  {one_line(key.name)}")
            run.out.show(entry(mark, [head, styled((_describe_key(key), "dim"))]))
    if not found:
        told = (
            f"there are no keys in `{file.path}`; the server accepts requests from this computer "
            "only"
        )
        say(told, kind="note")


@command(keys, "revoke", scope=False)
def revoke(
    run: CommandContext,
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The key's id, as `list` shows it.")],
    *,
    keys: Keys = None,
) -> None:
    """Revoke a key."""
    from orbiter.memory.errors import ItemNotFoundError  # noqa: PLC0415

    # A whole key is taken, too: whoever has leaked one has that at hand.
    wanted = key_id.split("_")[1] if key_id.startswith("om_") and "_" in key_id[3:] else key_id
    try:
        file = key_file(run.target, keys)
        key = file.revoke(wanted)
    except ItemNotFoundError:
        raise NotThereError(
            f"there is no key `{wanted}` in `{file.path}`; "
            f"`{keys_command(run.target, keys, 'list')}` lists the keys"
        ) from None
    if run.out.is_json:
        run.out.data(_json(key))
    else:
        run.out.show(styled(("✓ ", "green"), f"{key.id} is revoked"))


def _state(key: "Key") -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "open" if key.is_open(datetime.now(UTC)) else "expired"


def _describe_key(key: "Key") -> str:
    parts = [key.role, scope_label(key.scope) or "everyone", f"made {ago(key.created_at)}"]
    if key.revoked_at is not None:
        parts.append(f"revoked {ago(key.revoked_at)}")
    elif key.expires_at is not None:
        parts.append(f"until {moment(key.expires_at)}")
    return " · ".join(map(one_line, parts))


def _json(key: "Key") -> dict[str, object]:
    scope = {
        name: value for name, value in key.scope.model_dump().items() if value and name != "extra"
    }
    return {
        "id": key.id,
        "state": _state(key),
        "role": key.role,
        "scope": scope,
        "name": key.name,
        "created_at": key.created_at.isoformat(),
        "expires_at": key.expires_at.isoformat() if key.expires_at else None,
        "revoked_at": key.revoked_at.isoformat() if key.revoked_at else None,
    }
