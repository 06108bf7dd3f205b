"""Keys in a file beside the store, as hashes.

The file is read again when it has changed, so that a revoked key opens nothing from the next
request on. A copy of the store opens nothing, and who can write memories can make no key.
"""

import builtins
import errno
import hashlib
import json
import os
import re
import secrets
import shlex
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from orbiter.memory.auth.principals import (
    Key,
    KeyStore,
    Principal,
    Role,
    check_removal,
    check_role,
    choose_key,
    id_of_token,
    is_token_of,
    make_key,
    named_scope,
    replace_key,
)
from orbiter.memory.backends.registry import is_of_package, store_identity
from orbiter.memory.backends.urls import redacted
from orbiter.memory.errors import ItemNotFoundError, QueryError, StorageError
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.model.query import SCOPE_FIELDS

__all__ = ["FileKeys", "KeyFile", "key_file_for", "key_options"]

_MAX_BYTES = 16 * 2**20


class KeyFile:
    """The keys of one server, in the file at *path*, which many processes may use at once.

    Revoked keys stay in it. So a file whose last key was revoked opens nothing to anybody, while
    one that was never written means a server without keys.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._name = str(self._path)
        self._keys: dict[str, Key] = {}
        self._seen: tuple[int, ...] | None = None
        self._was_there = False

    def __repr__(self) -> str:
        return f"KeyFile({str(self._path)!r})"

    @property
    def path(self) -> Path:
        """Where the keys are."""
        return self._path

    @property
    def has_keys(self) -> bool:
        """Whether a key is needed: one was made, even if it opens nothing any more.

        Once true, it stays so for this object: nobody opens a server by removing its keys.
        """
        self._refresh()
        return self._was_there

    def list(self) -> builtins.list[Key]:
        """Return every key, the oldest first, those that are revoked or over included."""
        self._refresh()
        return sorted(self._keys.values(), key=lambda key: (key.created_at, key.id))

    def check(self, token: str, *, refresh: bool = True) -> Principal | None:
        """Return who comes with *token*, or `None` if it opens nothing.

        Without *refresh*, by the keys that `has_keys` has read just before.
        """
        if refresh:
            self._refresh()
        key = self._keys.get(id_of_token(token) or "")
        is_right = is_token_of(token, key.digest if key else None)
        if key is None or not is_right or not key.is_open(datetime.now(UTC)):
            return None
        return key.principal()

    def current(self, key_id: str) -> Principal | None:
        """Return who comes with the key of that id now; `None` if it opens nothing any more."""
        self._refresh()
        key = self._keys.get(key_id)
        return key.principal() if key is not None and key.is_open(datetime.now(UTC)) else None

    def create(
        self,
        *,
        scope: MemoryMetadata,
        role: Role,
        name: str | None = None,
        expires: datetime | None = None,
    ) -> tuple[Key, str]:
        """Make a key; return it with what opens the door, which is shown this once.

        A key to read or write names somebody; one of an administrator may name nobody, and is for
        everyone's memories. *name* is what its owner signs with, by default the id of the key.
        """
        with self._alone() as (place, keys):
            key, token = make_key(scope=scope, role=role, name=name, expires=expires, taken=keys)
            keys[key.id] = key
            self._write(place, keys)
        return key, token

    def rotate(
        self, which: str, *, overlap: timedelta, expires: datetime | None = None
    ) -> tuple[Key, str, Key]:
        """Make a key in the place of *which*, an id or a name; the old one works for *overlap*.

        Return the new key, what opens the door, and the old key. The new one has the same role,
        scope and name, and is valid as long as the old one was, unless *expires* says otherwise.
        """
        with self._alone() as (place, keys):
            now = datetime.now(UTC)
            chosen = choose_key(keys.values(), which, now)
            key, token, old = replace_key(
                chosen, overlap=overlap, expires=expires, now=now, taken=keys
            )
            keys |= {old.id: old, key.id: key}
            self._write(place, keys)
        return key, token, old

    def revoke(self, key_id: str) -> Key:
        """Have a key open nothing from now on; one that is revoked already stays so."""
        with self._alone() as (place, keys):
            key = keys.get(key_id)
            if key is None:
                raise ItemNotFoundError(key_id, way="`orbiter-memory keys list` shows the keys")
            if key.revoked_at is None:
                key = keys[key_id] = replace(key, revoked_at=datetime.now(UTC))
                self._write(place, keys)
        return key

    def remove(self, key_id: str) -> Key:
        """Forget a key that opens nothing any more."""
        with self._alone() as (place, keys):
            key = check_removal(key_id, keys)
            self._write(place, {each: kept for each, kept in keys.items() if each != key_id})
        return key

    def set_aside(self, moved: builtins.list[Key]) -> Path | None:
        """Rename the file, whose keys were *moved* elsewhere; return its new name.

        `None` if it holds other keys by now, or is gone: another process may have renamed it.
        """
        if not self._path.exists():
            return None
        with self._alone() as (place, keys):
            if not place.exists() or {key.id: key for key in moved} != keys:
                return None
            kept = Path(f"{place}.moved")
            while kept.exists():
                kept = Path(f"{place}.{secrets.token_hex(2)}.moved")
            try:
                place.rename(kept)
            except OSError as exc:
                raise StorageError(f"the file `{place}` cannot be renamed: {exc}") from exc
        return kept

    # The file

    def _refresh(self) -> None:
        """Read the file again if it is not the one that was read."""
        try:
            info = os.stat(self._name)  # noqa: PTH116 - asked for every request, a third faster
        except FileNotFoundError:
            self._keys, self._seen = {}, None
            return
        except OSError as exc:
            raise StorageError(f"the keys in `{self._path}` cannot be read: {exc}") from exc
        mark = (info.st_ino, info.st_mtime_ns, info.st_size, info.st_mode)
        if mark == self._seen:
            return
        self._keys, self._seen = self._read(), mark
        self._was_there = self._was_there or bool(self._keys)

    def _read(self) -> dict[str, Key]:
        try:
            handle = os.open(self._path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
            with open(handle, "rb") as file:  # noqa: PTH123 - of a file that is open
                _check_mode(self._path, os.fstat(handle))
                content = file.read(_MAX_BYTES + 1)
        except FileNotFoundError:
            return {}
        except OSError as exc:
            raise StorageError(f"the keys in `{self._path}` cannot be read: {exc}") from exc
        try:
            return {key.id: key for key in map(_load, _entries(content))}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as exc:
            raise StorageError(
                f"`{self._path}` is not a key file, or is damaged ({type(exc).__name__}); "
                "put a copy back, or remove it and make new keys"
            ) from exc

    @contextmanager
    def _alone(self) -> Iterator[tuple[Path, dict[str, Key]]]:
        """Yield where the keys are and what they are now, while nobody else changes them.

        A link is followed: put in the place of the link, a file without a revoked key would leave
        the key in the one that a server reads.
        """
        place = Path(os.path.realpath(self._path))
        try:
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = _take_lock(Path(f"{place}.lock"))
        except OSError as exc:
            raise StorageError(
                f"the keys in `{self._path}` cannot be changed: {_fault(exc)}"
            ) from exc
        try:
            yield place, self._read()
        finally:
            os.close(lock)  # which unlocks it

    def _write(self, place: Path, keys: Mapping[str, Key]) -> None:
        """Put *keys* in the place of what is there, all or nothing."""
        content = json.dumps({"format": 1, "keys": [_dump(key) for key in keys.values()]}, indent=1)
        fresh = Path(f"{place}.{secrets.token_hex(8)}.new")
        try:
            handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(handle, "wb") as file:  # noqa: PTH123 - of a file that is open
                _give_away(handle, place.parent)
                file.write(content.encode())
                file.flush()
                os.fsync(handle)
            fresh.replace(place)
        except OSError as exc:
            raise StorageError(
                f"the keys in `{self._path}` cannot be written: {_fault(exc)}"
            ) from exc
        finally:
            with suppress(OSError):
                fresh.unlink()
        self._seen = None


def _fault(error: OSError) -> str:
    if error.errno not in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)):
        return str(error)
    way = "free some space and repeat this, or stop the server: until then the keys are as before"
    return f"the disk is full, so nothing was changed; {way}"


class FileKeys:
    """A `KeyFile` as a `KeyStore`."""

    def __init__(self, file: KeyFile) -> None:
        self.file = file

    @property
    def place(self) -> str:
        """Where the keys are."""
        return str(self.file.path)

    async def has_keys(self) -> bool:
        """Tell whether a key is needed."""
        return self.file.has_keys

    async def identify(self, token: str) -> tuple[bool, Principal | None]:
        """Tell whether a key is needed, and return who comes with *token*."""
        if not self.file.has_keys:
            return False, None
        return True, self.file.check(token, refresh=False)  # `has_keys` has just done so

    async def current(self, key_id: str) -> Principal | None:
        """Return who comes with the key of that id now."""
        return self.file.current(key_id)

    async def list(self) -> builtins.list[Key]:
        """Return every key, the oldest first."""
        return self.file.list()

    async def create(
        self,
        *,
        scope: MemoryMetadata,
        role: Role,
        name: str | None = None,
        expires: datetime | None = None,
    ) -> tuple[Key, str]:
        """Make a key."""
        return self.file.create(scope=scope, role=role, name=name, expires=expires)

    async def rotate(
        self, which: str, *, overlap: timedelta, expires: datetime | None = None
    ) -> tuple[Key, str, Key]:
        """Make a key in the place of another."""
        return self.file.rotate(which, overlap=overlap, expires=expires)

    async def revoke(self, key_id: str) -> Key:
        """Have a key open nothing from now on."""
        return self.file.revoke(key_id)

    async def remove(self, key_id: str) -> Key:
        """Forget a key that opens nothing any more."""
        return self.file.remove(key_id)

    async def close(self) -> None:
        """Nothing: the file is open only while it is read."""


def key_file_for(url: str) -> Path:
    """Return where the keys of the server over the store at *url* are.

    Beside a SQLite file, where the file really is; for a database on a server, in the user's data
    folder. However the address of a store is written, its keys are in one file: else a server
    could be started without those that were made.
    """
    if url.startswith("<"):  # as `store_label` writes a store that was passed as an object
        raise QueryError(f"the store `{url}` has no URL; name a file for its keys")
    scheme, mark, rest = url.partition("://")
    scheme = scheme.lower()
    path = rest[1:] if scheme == "sqlite" else url
    if scheme in ("http", "https"):
        raise QueryError(f"`{url}` is a server; its keys are made where it runs")
    if scheme == "memory" or path == ":memory:":
        raise QueryError("a store in memory ends with its server; give a file for its keys")
    if not mark or scheme == "sqlite":
        return Path(f"{os.path.realpath(path)}.keys.json")
    from platformdirs import user_data_path  # noqa: PLC0415 - most stores are files

    which = store_identity(url)
    if which is None and is_of_package(scheme):
        raise QueryError(
            f"a store at `{scheme}://…` does not say which one it is; name a file for its keys, or "
            "give its class an `identity`, a text that is the same for every URL of one store"
        )
    if which is None:
        raise QueryError(
            f"the address `{redacted(url)}` cannot be read; write `%2F` for `/`, `%40` for `@` "
            "and `%23` for `#` in its password, or give a file for its keys"
        )
    digest = hashlib.sha256(which.encode()).hexdigest()[:16]
    kind = which.partition("://")[0]
    return user_data_path("orbiter-memory", appauthor=False) / f"{kind}-{digest}.keys.json"


def key_options(url: str, keys: KeyStore | None) -> list[str]:
    """Return the options by which the command `keys` finds the keys of the store at *url*."""
    options = [] if url.startswith("<") else ["--url", url]  # an object has none
    try:
        usual = key_file_for(url)
    except QueryError:  # a store in memory, whose keys are where somebody said
        usual = None
    if isinstance(keys, FileKeys) and (keys.file.path != usual or url.startswith("postgres")):
        options += ["--keys", keys.place]
    return options


def _take_lock(path: Path) -> int:
    """Return a handle of the file at *path*, which nobody else has locked until it is closed."""
    while True:
        handle = _open_lock(path)
        try:
            _lock(handle)
            if os.fstat(handle).st_ino == path.stat().st_ino:
                return handle
        except FileNotFoundError:  # removed by whoever could not give it away
            pass
        except BaseException:  # Ctrl-C, too: no handle stays open
            os.close(handle)
            raise
        os.close(handle)


def _open_lock(path: Path) -> int:
    flags = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        handle = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return os.open(path, flags | os.O_CREAT, 0o600)
    try:
        _give_away(handle, path.parent)
    except BaseException:  # Ctrl-C, too: nothing is left behind
        os.close(handle)
        path.unlink(missing_ok=True)  # root's: the service could never open it
        raise
    return handle


def _lock(handle: int) -> None:
    """Wait until nobody else holds the lock, and take it."""
    if sys.platform == "win32":
        import msvcrt  # noqa: PLC0415

        msvcrt.locking(handle, msvcrt.LK_LOCK, 1)
    else:
        import fcntl  # noqa: PLC0415

        fcntl.flock(handle, fcntl.LOCK_EX)


def _give_away(handle: int, folder: Path) -> None:
    """Let a file that root has just made belong to whom the folder belongs: a service, perhaps.

    By its handle: whoever owns the folder may put another file in its place at any moment.
    """
    if sys.platform != "win32" and os.geteuid() == 0:
        owner = folder.stat()
        os.fchown(handle, owner.st_uid, owner.st_gid)


def _check_mode(path: Path, info: os.stat_result) -> None:
    if not stat.S_ISREG(info.st_mode):
        raise StorageError(f"`{path}` is not a file; keys are kept in a file")
    if sys.platform == "win32":
        return
    trusted = {os.geteuid(), 0}
    if os.geteuid() == 0:  # which looks after the keys of a service
        trusted.add(path.resolve().parent.stat().st_uid)
    if info.st_uid not in trusted:
        raise StorageError(
            f"`{path}` is another user's, who could make keys in it; make it yours with "
            f"`chown {os.geteuid()} {shlex.quote(str(path))}`"
        )
    if info.st_mode & 0o077:
        raise StorageError(
            f"others on this computer can open `{path}`, which holds keys; "
            f"close it with `chmod 600 {shlex.quote(str(path))}`"
        )


def _dump(key: Key) -> dict[str, object]:
    return {
        "id": key.id,
        "role": key.role,
        "scope": named_scope(key.scope),
        "name": key.name,
        "created_at": key.created_at.isoformat(),
        "expires_at": key.expires_at.isoformat() if key.expires_at else None,
        "revoked_at": key.revoked_at.isoformat() if key.revoked_at else None,
        "replaced_by": key.replaced_by,
        "sha256": key.digest.hex(),
    }


def _entries(content: bytes) -> list[dict[str, str]]:
    loaded = json.loads(content)
    if loaded["format"] != 1:
        raise ValueError("it was written by a newer release")
    entries: list[dict[str, str]] = loaded["keys"]
    return entries


def _load(entry: Mapping[str, str]) -> Key:
    scope: Mapping[str, str] = entry["scope"]  # type: ignore[assignment]  # checked by its model
    key = Key(
        id=entry["id"],
        role=entry["role"],  # type: ignore[arg-type]  # checked below
        scope=MemoryMetadata(**{name: scope[name] for name in SCOPE_FIELDS if name in scope}),
        name=entry["name"],
        created_at=_instant(entry["created_at"]),
        expires_at=_instant(entry["expires_at"]) if entry["expires_at"] else None,
        revoked_at=_instant(entry["revoked_at"]) if entry["revoked_at"] else None,
        replaced_by=entry.get("replaced_by"),
        digest=bytes.fromhex(entry["sha256"]),
    )
    check_role(key.role, key.scope)
    if not re.fullmatch(r"[0-9a-f]{8}", key.id) or len(key.digest) != hashlib.sha256().digest_size:
        raise ValueError("an id or a hash is not valid")
    return key


def _instant(text: str) -> datetime:
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError("a time has no time zone")
    return instant
