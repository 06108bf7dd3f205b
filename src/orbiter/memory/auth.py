"""Keys of a server: who may do what, kept as hashes in a file beside the store.

A key names a scope, and the server puts that in place of whatever a request says. The file is read
again when it has changed, so that a revoked key opens nothing from the next request on. It is a
file and no table: a copy of the store opens nothing, and who can write memories can make no key.
"""

import base64
import builtins
import hashlib
import hmac
import json
import os
import re
import secrets
import shlex
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, get_args

from orbiter.memory.backends.registry import is_of_package, store_identity
from orbiter.memory.backends.urls import redacted
from orbiter.memory.errors import ItemNotFoundError, QueryError, StorageError
from orbiter.memory.model.items import RESERVED, MemoryMetadata
from orbiter.memory.model.query import SCOPE_FIELDS, require_text

__all__ = ["LOCAL", "Key", "KeyFile", "Principal", "Role", "key_file_for"]

Role = Literal["read", "write", "admin"]
"""What a key may do; each may do all that those before it may."""

_RANKS: dict[Role, int] = {"read": 0, "write": 1, "admin": 2}
_TOKEN = re.compile(r"om_([0-9a-f]{8})_([A-Za-z0-9_-]{43})")
_MAX_BYTES = 16 * 2**20
_NOBODY = hashlib.sha256(b"nobody's key").digest()
"""What a key of an unknown id is compared with, so that it takes as long as a known one."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a request comes from."""

    role: Role
    scope: MemoryMetadata = field(default_factory=MemoryMetadata)
    """Whose memories it may touch; one that names nobody is an administrator's, for everyone's."""
    name: str = ""
    """What it signs with in `history` and the audit log."""
    key_id: str | None = None
    """The key it came with; `None` on a server without keys."""

    @property
    def is_bound(self) -> bool:
        """Whether it is held to somebody's memories; else it is an administrator of everyone's."""
        return bool(_named(self.scope))

    def may(self, role: Role) -> bool:
        """Tell whether it may do what *role* may."""
        return _RANKS[self.role] >= _RANKS[role]


LOCAL = Principal("admin", name="")
"""Whoever asks a server without keys, which answers this computer alone."""


@dataclass(frozen=True, slots=True)
class Key:
    """What is known of a key; what opens the door is not, only its hash."""

    id: str
    role: Role
    scope: MemoryMetadata
    name: str
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    digest: bytes = field(default=b"", repr=False)

    def is_open(self, now: datetime) -> bool:
        """Tell whether it opens anything at *now*."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def principal(self) -> Principal:
        """Return who comes with it."""
        return Principal(self.role, self.scope, self.name, self.id)


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
        parts = _TOKEN.fullmatch(token)
        key = self._keys.get(parts[1]) if parts else None
        given = hashlib.sha256(token.encode("utf-8", "replace")).digest()
        is_right = hmac.compare_digest(given, key.digest if key else _NOBODY)
        if key is None or not is_right or not key.is_open(datetime.now(UTC)):
            return None
        return key.principal()

    def still_holds(self, principal: Principal) -> bool:
        """Tell whether *principal* may still come in, without its key being shown again."""
        if principal.key_id is None:
            return not self.has_keys
        self._refresh()
        key = self._keys.get(principal.key_id)
        return key is not None and key.is_open(datetime.now(UTC))

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
        _check_role(role, scope)
        now = datetime.now(UTC)
        if expires is not None and (expires.tzinfo is None or expires <= now):
            raise QueryError(f"`expires` must be in the future and have a time zone: {expires}")
        with self._alone() as (place, keys):
            key_id = secrets.token_hex(4)
            while key_id in keys:
                key_id = secrets.token_hex(4)
            secret = base64.urlsafe_b64encode(secrets.token_bytes(32)).rstrip(b"=").decode()
            token = f"om_{key_id}_{secret}"
            key = Key(
                id=key_id,
                role=role,
                scope=MemoryMetadata(**_named(scope)),
                name=_check_name(name or f"key:{key_id}"),
                created_at=now,
                expires_at=expires,
                digest=hashlib.sha256(token.encode()).digest(),
            )
            keys[key_id] = key
            self._write(place, keys)
        return key, token

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

    # The file

    def _refresh(self) -> None:
        """Read the file again if it is not the one that was read."""
        try:
            found = os.stat(self._name)  # noqa: PTH116 - asked for every request, a third faster
        except FileNotFoundError:
            self._keys, self._seen = {}, None
            return
        except OSError as exc:
            raise StorageError(f"the keys in `{self._path}` cannot be read: {exc}") from exc
        mark = (found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode)
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
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
        try:
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(f"{place}.lock", flags, 0o600)
        except OSError as exc:
            raise StorageError(f"the keys in `{self._path}` cannot be changed: {exc}") from exc
        try:
            _lock(lock)
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
                file.write(content.encode())
                file.flush()
                os.fsync(handle)
            fresh.replace(place)
        except OSError as exc:
            raise StorageError(f"the keys in `{self._path}` cannot be written: {exc}") from exc
        finally:
            with suppress(OSError):
                fresh.unlink()
        self._seen = None


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


def _lock(handle: int) -> None:
    """Wait until nobody else holds the lock, and take it."""
    if sys.platform == "win32":
        import msvcrt  # noqa: PLC0415

        msvcrt.locking(handle, msvcrt.LK_LOCK, 1)
    else:
        import fcntl  # noqa: PLC0415

        fcntl.flock(handle, fcntl.LOCK_EX)


def _check_mode(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise StorageError(f"`{path}` is not a file; keys are kept in a file")
    if sys.platform == "win32":
        return
    if found.st_uid not in (os.geteuid(), 0):
        raise StorageError(
            f"`{path}` is another user's, who could make keys in it; make it yours with "
            f"`chown {os.geteuid()} {shlex.quote(str(path))}`"
        )
    if found.st_mode & 0o077:
        raise StorageError(
            f"others on this computer can open `{path}`, which holds keys; "
            f"close it with `chmod 600 {shlex.quote(str(path))}`"
        )


def _check_role(role: Role, scope: MemoryMetadata) -> None:
    if role not in get_args(Role):
        raise QueryError(f"there is no role `{role}`; use `read`, `write` or `admin`")
    for name, value in _named(scope).items():
        require_text(name, value)
    if role != "admin" and not _named(scope):
        raise QueryError(
            f"a key with the role `{role}` needs a scope, one of `{'`, `'.join(SCOPE_FIELDS)}`; "
            "only the role `admin` covers everyone's memories"
        )


def _check_name(name: str) -> str:
    if require_text("name", name).startswith(RESERVED):
        raise QueryError(f"`name` must not begin with `{RESERVED}`, which is reserved: `{name}`")
    return name


def _named(scope: MemoryMetadata) -> dict[str, str]:
    found = {name: getattr(scope, name) for name in SCOPE_FIELDS}
    return {name: value for name, value in found.items() if value is not None}


def _dump(key: Key) -> dict[str, object]:
    return {
        "id": key.id,
        "role": key.role,
        "scope": _named(key.scope),
        "name": key.name,
        "created_at": key.created_at.isoformat(),
        "expires_at": key.expires_at.isoformat() if key.expires_at else None,
        "revoked_at": key.revoked_at.isoformat() if key.revoked_at else None,
        "sha256": key.digest.hex(),
    }


def _entries(content: bytes) -> list[dict[str, str]]:
    loaded = json.loads(content)
    if loaded["format"] != 1:
        raise ValueError("it was written by a newer release")
    entries: list[dict[str, str]] = loaded["keys"]
    return entries


def _load(found: Mapping[str, str]) -> Key:
    scope: Mapping[str, str] = found["scope"]  # type: ignore[assignment]  # checked by its model
    key = Key(
        id=found["id"],
        role=found["role"],  # type: ignore[arg-type]  # checked below
        scope=MemoryMetadata(**{name: scope[name] for name in SCOPE_FIELDS if name in scope}),
        name=found["name"],
        created_at=_instant(found["created_at"]),
        expires_at=_instant(found["expires_at"]) if found["expires_at"] else None,
        revoked_at=_instant(found["revoked_at"]) if found["revoked_at"] else None,
        digest=bytes.fromhex(found["sha256"]),
    )
    _check_role(key.role, key.scope)
    if not re.fullmatch(r"[0-9a-f]{8}", key.id) or len(key.digest) != hashlib.sha256().digest_size:
        raise ValueError("an id or a hash is not valid")
    return key


def _instant(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError("a time has no time zone")
    return found
