"""Keys and principals of a server: values, without the place where keys are kept.

A key names a scope, and the server holds every request to it. Only the hash of
a key is kept. `KeyStore` is what a server asks; `KeyFile` and `KeyTable` are where keys are.
"""

import base64
import builtins
import hashlib
import hmac
import re
import secrets
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Literal, Protocol, get_args

from orbiter.memory.errors import ItemNotFoundError, QueryError
from orbiter.memory.model.items import RESERVED, MemoryMetadata
from orbiter.memory.model.query import SCOPE_FIELDS, require_text

__all__ = [
    "ALL_USERS",
    "LOCAL",
    "SUBJECT",
    "Key",
    "KeyStore",
    "Principal",
    "Role",
    "check_name",
    "check_role",
    "choose_key",
    "ended_key",
    "id_of_token",
    "is_token_of",
    "make_key",
    "named_scope",
    "open_keys",
    "replace_key",
    "still_holds",
]

Role = Literal["read", "write", "admin"]
"""What a key may do; each may do all that those before it may."""

_RANKS: dict[Role, int] = {"read": 0, "write": 1, "admin": 2}
ALL_USERS = "~all"
"""The user that a key names which is for those of all: nobody is called so."""

SUBJECT = "oidc:"
"""What stands before the digest of a token's subject, where a key has its id."""

_TOKEN = re.compile(r"om_([0-9a-f]{8})_([A-Za-z0-9_-]{43})")
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
    """The key it came with, or what stands for the subject of a token; `None` without keys."""
    expires_at: datetime | None = None
    """When the token that it came with is over; `None` for a key, which is looked up again."""
    is_for_all: bool = False
    """Whether it was made for the memories of all users within its scope, which names none."""
    page_secret: bytes = field(default=b"", repr=False, compare=False)
    """What every server over these keys makes the same page tokens of; empty without a key."""

    @property
    def is_bound(self) -> bool:
        """Whether it is held to somebody's memories; else it is an administrator of everyone's."""
        return bool(named_scope(self.scope))

    @property
    def opens_nothing(self) -> bool:
        """Whether it names no user, and was not made for all of them, as only old keys do."""
        return self.is_bound and self.scope.user_id is None and not self.is_for_all

    @property
    def source(self) -> str | None:
        """The source of all that it writes; `None` for a user, who is what a request says."""
        return f"import:{self.name}" if self.is_for_all else None

    def may(self, role: Role) -> bool:
        """Tell whether it may do what *role* may."""
        return _RANKS[self.role] >= _RANKS[role]

    def covers(self, other: "Principal") -> bool:
        """Tell whether it may do all that *other* may: its role is as high, its scope as wide."""
        scope, others = named_scope(self.scope), named_scope(other.scope)
        is_wide = scope.items() <= others.items() and not self.opens_nothing
        return self.may(other.role) and is_wide


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
    replaced_by: str | None = None
    """The id of the key that takes its place; until it expires, both open."""
    digest: bytes = field(default=b"", repr=False)

    def is_open(self, now: datetime) -> bool:
        """Tell whether it opens anything at *now*."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def principal(self) -> Principal:
        """Return who comes with it."""
        # Of the hash, which all servers over the same keys have, and nobody who knows a page token.
        secret = hmac.digest(self.digest, b"page token", "sha256") if self.digest else b""
        is_for_all = self.scope.user_id == ALL_USERS
        scope = self.scope.model_copy(update={"user_id": None}) if is_for_all else self.scope
        return Principal(
            self.role, scope, self.name, self.id, is_for_all=is_for_all, page_secret=secret
        )


class KeyStore(Protocol):
    """Where the keys of a server are, as the server and the command line use it.

    Whatever cannot be read raises an error: nobody comes in until it can be.
    """

    @property
    def place(self) -> str:
        """Where the keys are, for people; without a password."""

    async def has_keys(self) -> bool:
        """Tell whether a key is needed: one was made, even if it opens nothing any more."""

    async def identify(self, token: str) -> tuple[bool, Principal | None]:
        """Tell whether a key is needed, and return who comes with *token*, if it opens anything."""

    async def current(self, key_id: str) -> Principal | None:
        """Return who comes with the key of that id now; `None` if it opens nothing any more."""

    async def list(self) -> builtins.list[Key]:
        """Return every key, the oldest first, those that are revoked or expired included."""

    async def create(
        self,
        *,
        scope: MemoryMetadata,
        role: Role,
        name: str | None = None,
        expires: datetime | None = None,
    ) -> tuple[Key, str]:
        """Make a key; return it with what opens the door, which is shown this once."""

    async def rotate(
        self, which: str, *, overlap: timedelta, expires: datetime | None = None
    ) -> tuple[Key, str, Key]:
        """Make a key in the place of another; return it, what opens the door, and the old one."""

    async def revoke(self, key_id: str) -> Key:
        """Have a key open nothing from now on; one that is revoked already stays so."""

    async def remove(self, key_id: str) -> Key:
        """Forget a key that opens nothing any more, with whose it was; see `check_removal`."""

    async def close(self) -> None:
        """End what was opened."""


def check_removal(key_id: str, keys: Mapping[str, Key]) -> Key:
    """Return the key that is to be removed, one of *keys*.

    `QueryError` for one that still opens something, and for the last: a server that has never had
    a key answers its own computer without one.
    """
    key = keys.get(key_id)
    if key is None:
        raise ItemNotFoundError(key_id, way="`orbiter-memory keys list` shows the keys")
    if key.is_open(datetime.now(UTC)):
        raise QueryError(f"the key `{key_id}` still opens something; revoke it first")
    if len(keys) == 1:
        raise QueryError(
            f"the key `{key_id}` is the last one, and without any a server would ask for none; "
            "create another first"
        )
    return key


async def open_keys(keys: KeyStore, scope: Mapping[str, str]) -> builtins.list[Key]:
    """Return the keys that open nothing but memories of *scope*, and still do; the oldest first."""
    now = datetime.now(UTC)
    return [
        key
        for key in await keys.list()
        if scope and scope.items() <= named_scope(key.scope).items() and key.is_open(now)
    ]


async def still_holds(principal: Principal, keys: KeyStore | None, *, takes_tokens: bool) -> bool:
    """Tell whether *principal* may still do all that it might, without its key being shown again.

    Its key may have been revoked, expired or narrowed. Of a token only its end is known. What
    cannot be read raises an error, as with `KeyStore`.
    """
    if _is_subject(principal):
        until = principal.expires_at
        return takes_tokens and until is not None and datetime.now(UTC) < until
    if principal.key_id is None:
        return not takes_tokens and (keys is None or not await keys.has_keys())
    now = None if keys is None else await keys.current(principal.key_id)
    return now is not None and now.covers(principal)


async def ended_key(keys: KeyStore, token: str) -> str | None:
    """Return the id of the revoked or expired key that *token* is; `None` for one never made."""
    key_id = id_of_token(token)
    known = [] if key_id is None else await keys.list()
    digest = next((key.digest for key in known if key.id == key_id), None)
    return key_id if is_token_of(token, digest) else None


def id_of_token(token: str) -> str | None:
    """Return the id of the key that *token* may be, or `None` if it is not written as a key is."""
    parts = _TOKEN.fullmatch(token)
    return parts[1] if parts else None


def is_token_of(token: str, digest: bytes | None) -> bool:
    """Tell whether *digest* is that of *token*, in a time that says nothing of either."""
    computed = hashlib.sha256(token.encode("utf-8", "replace")).digest()
    return hmac.compare_digest(computed, _NOBODY if digest is None else digest)


def make_key(
    *,
    scope: MemoryMetadata,
    role: Role,
    name: str | None,
    expires: datetime | None,
    taken: Container[str] = (),
) -> tuple[Key, str]:
    """Return a new key, whose id is not *taken*, and what opens the door.

    A key names a user, or `ALL_USERS` with a session, a task or an agent; one of an administrator
    may name nothing, and is for everyone's memories. *name* is what its owner signs with, by
    default the id of the key.
    """
    check_role(role, scope)
    named = named_scope(scope)
    if named and "user_id" not in named:
        raise QueryError(
            f"a key for {' and '.join(f'{each} `{value}`' for each, value in named.items())} must "
            f"name its user, or `{ALL_USERS}` for those of all; on the command line it is `--user` "
            "or `--all-users`"
        )
    if named == {"user_id": ALL_USERS}:
        if role != "admin":
            raise QueryError(
                "a key for all users needs a session, a task or an agent, too; only the role "
                "`admin` covers everyone's memories"
            )
        named = {}
    now = datetime.now(UTC)
    if expires is not None and (expires.tzinfo is None or expires <= now):
        raise QueryError(f"`expires` must be in the future and have a time zone: {expires}")
    key_id = secrets.token_hex(4)
    while key_id in taken:
        key_id = secrets.token_hex(4)
    secret = base64.urlsafe_b64encode(secrets.token_bytes(32)).rstrip(b"=").decode()
    token = f"om_{key_id}_{secret}"
    key = Key(
        id=key_id,
        role=role,
        scope=MemoryMetadata(**named),
        name=check_name(name or f"key:{key_id}"),
        created_at=now,
        expires_at=expires,
        digest=hashlib.sha256(token.encode()).digest(),
    )
    return key, token


def choose_key(keys: Iterable[Key], which: str, now: datetime) -> Key:
    """Return the key that *which* names, by its id or its name, to be replaced.

    Of several keys of one name, the open one that was not replaced yet.
    """
    known = list(keys)
    same = [key for key in known if key.id == which] or [key for key in known if key.name == which]
    if not same:
        raise ItemNotFoundError(which, way="`orbiter-memory keys list` shows the keys")
    valid = [key for key in same if key.is_open(now) and key.replaced_by is None]
    if len(valid) > 1:
        ids = "`, `".join(key.id for key in valid)
        raise QueryError(f"several keys are named `{which}`; give the id of one: `{ids}`")
    if not valid:
        next_ids = [key.replaced_by for key in same if key.replaced_by is not None]
        way = f"it was replaced by `{next_ids[-1]}`" if next_ids else "create a new one"
        raise QueryError(f"the key `{which}` is revoked, expired or replaced; {way}")
    return valid[0]


def replace_key(
    old: Key,
    *,
    overlap: timedelta,
    expires: datetime | None,
    now: datetime,
    taken: Container[str] = (),
) -> tuple[Key, str, Key]:
    """Return a key in the place of *old*, what opens the door, and *old*, which ends by then.

    The new one has the same role, scope and name. It is valid as long as the old one was when that
    was made, unless *expires* says otherwise.
    """
    if overlap < timedelta():
        raise QueryError(f"`overlap` must be 0 or more: {overlap}")
    if expires is None and old.expires_at is not None:
        expires = now + (old.expires_at - old.created_at)
    key, token = make_key(
        scope=old.scope, role=old.role, name=old.name, expires=expires, taken=taken
    )
    try:
        end = now + overlap
    except OverflowError:
        raise QueryError(f"`overlap` is too long: {overlap}") from None
    end = end if old.expires_at is None else min(end, old.expires_at)
    return key, token, replace(old, expires_at=end, replaced_by=key.id)


def check_role(role: Role, scope: MemoryMetadata) -> None:
    """Raise `QueryError` for a role that is none, or that needs a scope and has none."""
    if role not in get_args(Role):
        raise QueryError(f"there is no role `{role}`; use `read`, `write` or `admin`")
    for name, value in named_scope(scope).items():
        require_text(name, value)
    if role != "admin" and not named_scope(scope):
        raise QueryError(
            f"a key with the role `{role}` needs a scope, one of `{'`, `'.join(SCOPE_FIELDS)}`; "
            "only the role `admin` covers everyone's memories"
        )


def check_name(name: str) -> str:
    """Return *name* if somebody may sign with it, else raise `QueryError`."""
    if require_text("name", name).startswith(RESERVED):
        raise QueryError(f"`name` must not begin with `{RESERVED}`, which is reserved: `{name}`")
    return name


def named_scope(scope: MemoryMetadata) -> dict[str, str]:
    """Return what *scope* names, and nothing else."""
    fields = {name: getattr(scope, name) for name in SCOPE_FIELDS}
    return {name: value for name, value in fields.items() if value is not None}


def _is_subject(principal: Principal) -> bool:
    """Tell whether *principal* came with a token of an issuer, and not with a key."""
    return principal.key_id is not None and principal.key_id.startswith(SUBJECT)
