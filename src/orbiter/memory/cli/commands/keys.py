"""Who may use the server: `keys`.

The keys of a Postgres store are in a table of it, those of any other store in a file.
"""

import re
import shlex
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click
from click import UsageError

from orbiter.memory.cli._command_context import CommandContext, Target
from orbiter.memory.cli._error_messages import NotThereError, say, without_passwords
from orbiter.memory.cli._lookup import SHORTEST_PART, ambiguous
from orbiter.memory.cli._options import (
    Group,
    output_options,
    read_end,
    setting_option,
    store_options,
)
from orbiter.memory.cli._output import styled
from orbiter.memory.cli._text import ago, counted, moment, one_line
from orbiter.memory.cli._views import scope_label

if TYPE_CHECKING:
    from orbiter.memory.auth import Key, KeyStore, KeyTable

__all__ = [
    "ROLES",
    "commands_to_revoke",
    "count_open_keys",
    "create",
    "key_store",
    "keys",
    "keys_command",
    "keys_of",
    "keys_option",
    "list_keys",
    "revoke",
    "rotate",
]

ROLES = click.Choice(["read", "write", "admin"])
keys_option = setting_option(
    "--keys",
    "file",
    type=click.Path(path_type=Path),
    help="The key file; by default the one of the store.",
)


async def keys_of(target: Target, file: Path | None) -> "KeyStore | None":
    """Return the keys of the store that *target* names; in memory, none unless in *file*.

    A *file* must be there: a name that was mistyped must not serve without keys. Keys of a
    Postgres store that are in a file are moved into its table, and that is told.
    """
    from orbiter.memory.backends.registry import default_url  # noqa: PLC0415

    url = target.url or default_url()
    if file is None and url in ("memory://", ":memory:"):
        return None
    if file is not None and not file.exists():  # noqa: ASYNC240 - before anything is served
        raise UsageError(
            f"there is no file of keys at `{file}`; make it with "
            f"`{keys_command(target, file, 'create', '--user', 'NAME')}`, or leave `--keys` out"
        )
    async with key_store(target, file, stays_open=True) as store:
        return store


@asynccontextmanager
async def key_store(
    target: Target, file: Path | None, *, moves: bool = True, stays_open: bool = False
) -> "AsyncIterator[KeyStore]":
    """Give the keys of the store that *target* names, or those in *file*.

    With *moves*, keys of a Postgres store that are still in a file are moved first.
    """
    from orbiter.memory.auth import FileKeys, KeyFile, key_file_for  # noqa: PLC0415
    from orbiter.memory.backends.registry import default_url  # noqa: PLC0415

    url = target.url or default_url()
    if file is not None:
        yield FileKeys(KeyFile(file))
        return
    if url.partition("://")[0].lower() not in ("postgres", "postgresql"):
        yield FileKeys(KeyFile(key_file_for(url)))
        return
    from orbiter.memory.auth import KeyTable  # noqa: PLC0415 - of an extra

    table = KeyTable(url)
    try:
        await _move_keys(table, url, is_asked=moves)
        yield table
    except BaseException:  # cancellation included: nothing is left open
        await table.close()
        raise
    if not stays_open:
        await table.close()


async def _move_keys(table: "KeyTable", url: str, *, is_asked: bool) -> None:
    """Move the keys of the file that was there before the table, or say that they are to be."""
    from orbiter.memory.auth import KeyFile, key_file_for  # noqa: PLC0415
    from orbiter.memory.errors import QueryError  # noqa: PLC0415

    try:
        old = KeyFile(key_file_for(url))
    except QueryError:  # an address that cannot be told from its password has no file
        return
    if not is_asked:
        if old.path.exists():
            say(f"the keys in `{old.path}` are moved into it when a server starts", kind="note")
        return
    count, kept = await table.adopt(old)
    if kept is not None:
        say(
            f"moved {counted(count, 'key', 'keys')} from `{old.path}` into the {table.place}, "
            f"which all servers share; the file is kept as `{kept}`",
            kind="note",
        )


def keys_command(target: Target, file: Path | None, *words: str) -> str:
    """Return the command `keys` with *words* that means the same keys, for whoever is to run it."""
    url = target.url
    named = [] if url is None else ["--url", without_passwords(url)]
    named += [] if file is None else ["--keys", str(file)]
    return shlex.join(["orbiter-memory", "keys", *words, *named])


async def commands_to_revoke(target: Target, scope: Mapping[str, str]) -> dict[str, str]:
    """Return the ids of keys that still open memories of *scope*, each with how it is revoked.

    None where the keys cannot be read.
    """
    from orbiter.memory.auth.principals import open_keys  # noqa: PLC0415
    from orbiter.memory.errors import MemoryError  # noqa: PLC0415

    try:
        async with key_store(target, None, moves=False) as store:
            keys = await open_keys(store, scope)
    except (MemoryError, OSError):  # to erase is what was asked for, and this is beside it
        return {}
    return {key.id: keys_command(target, None, "revoke", key.id) for key in keys}


@click.group("keys", cls=Group)
def keys() -> None:
    """Create, list, rotate and revoke API keys."""


@keys.command("create")
@click.option(
    "--role",
    type=ROLES,
    default="write",
    show_default=True,
    help="`admin`: erase, audit and the store itself, too.",
)
@click.option("--user", "owner", help="User whose memories it opens.")
@click.option("--all-users", is_flag=True, help="All users' of a session, task or agent.")
@click.option("--session", "of_session", help="Only this session's.")
@click.option("--task", "of_task", help="Only this task's.")
@click.option("--agent", "of_agent", help="Only this agent's.")
@click.option("--name", help="Name of its user, for the history and the audit log.")
@click.option("--expires", help="When it expires: `30d`, `12h`, or `2027-01-31`.")
@keys_option
@store_options
@output_options
async def create(  # noqa: PLR0913 - whose it is, and what it may do
    run: CommandContext,
    *,
    role: Literal["read", "write", "admin"],
    owner: str | None,
    all_users: bool,
    of_session: str | None,
    of_task: str | None,
    of_agent: str | None,
    name: str | None,
    expires: str | None,
    file: Path | None,
) -> None:
    """Create a key; it is shown only once."""
    from orbiter.memory.auth.principals import ALL_USERS  # noqa: PLC0415 - `--help` needs it not
    from orbiter.memory.model.items import MemoryMetadata  # noqa: PLC0415 - as above

    scope = {"user": owner, "session": of_session, "task": of_task, "agent": of_agent}
    for each, value in scope.items():
        if value == "":
            raise UsageError(f"`--{each}` is empty; give a name, or leave it out")
    if all_users and owner is not None:
        raise UsageError("`--all-users` and `--user` cannot be combined; leave one out")
    named = {f"{each}_id": value for each, value in scope.items() if value is not None}
    if named and owner is None and not all_users:
        raise UsageError(
            "a key names its user with `--user`; `--all-users` makes one for the memories of all "
            "users in that session, task or agent"
        )
    if all_users and (named or role != "admin"):
        named["user_id"] = ALL_USERS
    if role != "admin" and not named:
        raise UsageError(
            f"a key with the role `{role}` needs a scope: use `--user`, or `--all-users` "
            "with `--session`, `--task` or `--agent`; only `--role admin` covers everyone's "
            "memories"
        )
    async with key_store(run.target, file) as store:
        is_first = not await store.has_keys()
        key, token = await store.create(
            scope=MemoryMetadata(**named),
            role=role,
            name=name,
            expires=read_end("expires", expires),
        )
    if run.out.is_json:
        run.out.data({**_json(key), "key": token, "file": store.place})
        return
    _show_token(run, key, token)
    is_table = store.place.startswith("table ")
    users = "all servers over this database" if is_table else "the server that uses this file"
    say(f"its hash is in `{store.place}`, for {users}", kind="note")
    run.out.note("save it now: only its hash is stored, and it is not shown again")
    if is_first:
        run.out.note("it is the first key: from now on, that server asks everybody for a key")


@keys.command("list")
@keys_option
@store_options
@output_options
async def list_keys(run: CommandContext, *, file: Path | None) -> None:
    """List the keys; the secret parts are not stored."""
    async with key_store(run.target, file, moves=False) as store:
        listed = await store.list()
    if run.out.is_json:
        run.out.data([_json(key) for key in listed])
    else:
        rows = [
            (
                key.id,
                _state(key),
                key.role,
                scope_label(key.scope),
                key.name,
                "" if key.expires_at is None else moment(key.expires_at),
                key.replaced_by or "",
            )
            for key in listed
        ]
        run.out.table(rows, ("id", "state", "role", "scope", "name", "until", "replaced by"))
    if not listed:
        text = (
            f"there are no keys in `{store.place}`; the server accepts requests from this computer "
            "only"
        )
        say(text, kind="note")


@keys.command("rotate")
@click.argument("key")
@click.option(
    "--overlap", default="24h", show_default=True, help="How long the old key still works: `0h`."
)
@click.option("--expires", help="When the new key expires; by default valid as long as the old.")
@keys_option
@store_options
@output_options
async def rotate(
    run: CommandContext, key: str, *, overlap: str, expires: str | None, file: Path | None
) -> None:
    """Replace a key by a new one; both work for a while."""
    lasts = _read_overlap(overlap)
    async with key_store(run.target, file) as store:
        wanted = await _find_key(run, file, store, key, keeps_name=True)
        made, token, old = await store.rotate(
            wanted, overlap=lasts, expires=read_end("expires", expires)
        )
    if run.out.is_json:
        run.out.data({**_json(made), "key": token, "replaces": _json(old)})
        return
    _show_token(run, made, token)
    # To the second and with the zone: others plan by it, elsewhere.
    end = "" if old.expires_at is None else f"{old.expires_at.astimezone():%Y-%m-%d %H:%M:%S %Z}"
    until = f" until {end}" if end else ""
    say(f"the old key `{old.id}` works{until}" if lasts else f"`{old.id}` ends now", kind="note")
    run.out.note("save it now: only its hash is stored, and it is not shown again")


@keys.command("revoke")
@click.argument("key")
@click.option("--remove", is_flag=True, help="Remove what is kept of a key that has ended.")
@keys_option
@store_options
@output_options
async def revoke(run: CommandContext, key: str, *, remove: bool, file: Path | None) -> None:
    """Revoke a key, or remove what is kept of one that has ended.

    KEY is the key's id, a part of it, its name, or the key itself.
    """
    async with key_store(run.target, file) as store:
        key_id = await _find_key(run, file, store, key)
        done = await (store.remove(key_id) if remove else store.revoke(key_id))
    if run.out.is_json:
        run.out.data(_json(done))
    else:
        run.out.show(styled(("✓ ", "green"), f"{done.id} is {'removed' if remove else 'revoked'}"))


def _show_token(run: CommandContext, key: "Key", token: str) -> None:
    if run.out.is_plain():
        run.out.text(token)
        return
    # Not folded: whoever copies it must get it in one piece.
    run.out.console.print(styled((token, "bold green")), soft_wrap=True)
    run.out.show(styled((_describe_key(key), "dim")))


async def _find_key(
    run: CommandContext,
    file: Path | None,
    store: "KeyStore",
    which: str,
    *,
    keeps_name: bool = False,
) -> str:
    """Return the id of the key that *which* means: an id, a part of one, or a name.

    A whole key means itself, and no part of another: whoever has leaked one has that at hand. With
    *keeps_name*, the name of any key is returned as it is. `UsageError` if several keys are meant,
    `NotThereError` if there is none.
    """
    is_whole = which.startswith("om_") and "_" in which[3:]
    text = which.split("_")[1] if is_whole else which
    listed = await store.list()
    if any(key.id == which or (keeps_name and key.name == which) for key in listed):
        return which
    # A name may be that of keys which ended long ago; of them, whoever means one names its id.
    matches = [key for key in listed if key.name == which and key.is_open(datetime.now(UTC))]
    if not matches and is_whole:
        matches = [key for key in listed if key.id == text]
    elif not matches and len(text) >= SHORTEST_PART:
        matches = [key for key in listed if key.id.startswith(text) or key.id.endswith(text)]
    if len(matches) == 1:
        return matches[0].id
    if matches:
        raise ambiguous(text, [(key.id, _describe_key(key)) for key in matches])
    raise NotThereError(
        f"there is no key `{text}` in `{store.place}`; "
        f"`{keys_command(run.target, file, 'list')}` lists the keys"
    )


def _read_overlap(text: str) -> timedelta:
    if re.fullmatch(r"0+[smhdw]?", text.strip().lower()):
        return timedelta()
    end = read_end("overlap", text)
    return timedelta() if end is None else end - datetime.now(UTC)


def _state(key: "Key") -> str:
    if key.revoked_at is not None:
        return "revoked"
    if key.principal().opens_nothing:
        return "names no user, so it opens nothing"
    return "open" if key.is_open(datetime.now(UTC)) else "expired"


def _describe_key(key: "Key") -> str:
    principal = key.principal()
    named = scope_label(principal.scope)
    whose = f"all users {named}" if principal.is_for_all else named or "everyone"
    parts = [key.role, whose, f"made {ago(key.created_at)}"]
    if key.revoked_at is not None:
        parts.append(f"revoked {ago(key.revoked_at)}")
    elif key.expires_at is not None:
        parts.append(f"until {moment(key.expires_at)}")
    if key.replaced_by is not None:
        parts.append(f"replaced by {key.replaced_by}")
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
        "replaced_by": key.replaced_by,
    }


async def count_open_keys(keys: "KeyStore | None") -> int:
    """Return how many keys of a server open something now."""
    now = datetime.now(UTC)
    return sum(key.is_open(now) for key in await keys.list()) if keys is not None else 0
