"""Tokens of an OpenID Connect issuer in place of keys: JWTs, checked with its public keys.

Only asymmetric signatures count, each with the algorithm of its own key: a token cannot choose
`none`, nor pass a public key off as a shared secret. The issuer is asked for its keys by one fetch
at a time, within a short limit. A token of a known key never waits for it.
"""

import asyncio
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from orbiter.memory._lazy import missing_extra
from orbiter.memory.auth.principals import SUBJECT, Principal, Role, check_name
from orbiter.memory.errors import AccessError, MemoryConnectionError, QueryError
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.model.validation import check_name as check_user

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["ROLE_PREFIX", "OIDCSettings", "TokenVerifier"]

ROLE_PREFIX = "orbiter-memory:"
"""What the values of the role claim begin with, such as `orbiter-memory:write`."""

_ALGORITHMS = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
_ROLES: tuple[Role, ...] = ("admin", "write", "read")
_LONGEST = 16 * 2**10
"""Characters of a token."""
_MAX_BYTES = 2**20
_MIN_RSA_BITS = 2_048
_LIMIT = 3.0
"""Seconds for all that is fetched from the issuer at a time."""
_FRESH = 600.0
"""Seconds after which the keys of the issuer are fetched again, while requests go on."""
_STALE = 86_400.0
"""Seconds after which keys that could not be fetched again are not trusted any more."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class OIDCSettings:
    """Whose tokens a server takes, and what their claims mean."""

    issuer: str
    audiences: tuple[str, ...]
    """What `aud` must name one of; best the public URL of the server."""
    user_claim: str = "sub"
    role_claim: str = "scope"
    """A claim with `orbiter-memory:read`, `…:write` or `…:admin`; dots lead into objects."""
    default_role: Role | None = None
    """The role of a token without one; by default it is refused."""
    leeway: float = 60.0
    """Seconds that the clocks of the issuer and of this server may differ."""
    pause: float = 5.0
    """Seconds between two fetches for tokens of keys that are not known."""

    def __post_init__(self) -> None:
        _check_url(self.issuer)
        if not self.audiences or not all(self.audiences):
            raise QueryError("tokens need an audience; give the one that is made for this server")
        if self.default_role not in (None, *_ROLES):
            raise QueryError(f"there is no role `{self.default_role}`; use `read` or `write`")


class TokenVerifier:
    """Tells who comes with a token; `close` ends what is under way."""

    def __init__(self, settings: OIDCSettings) -> None:
        self.settings = settings
        self._jwt = _import_jwt()
        self._keys: Mapping[str, Any] = {}
        self._fetched_at: float | None = None
        self._tried_at: float | None = None
        self._error = ""
        self._fetch: asyncio.Task[None] | None = None

    async def check(self, token: str) -> Principal | None:
        """Return who comes with *token*, or `None` if it is not valid, for whatever reason.

        Raise `MemoryConnectionError` if the issuer's keys cannot be had, and `AccessError` for a
        valid token without a role.
        """
        try:
            header = self._jwt.get_unverified_header(token[: _LONGEST + 1])
        except (self._jwt.PyJWTError, ValueError, TypeError, RecursionError):
            return None
        algorithm, key_id = header.get("alg"), header.get("kid")
        if len(token) > _LONGEST or algorithm not in _ALGORITHMS:
            return None
        # An extension that must be understood: none is. Older versions of PyJWT pass it over.
        if not isinstance(key_id, str | None) or "crit" in header:
            return None
        key = await self._key(key_id)
        try:
            return self._read(token, key, algorithm)
        except self._jwt.InvalidSignatureError:
            # An issuer that names no keys, or all alike, has perhaps another one by now.
            newer = await self._newer(key_id)
        try:
            return None if newer is key else self._read(token, newer, algorithm)
        except self._jwt.InvalidSignatureError:
            return None

    def _read(self, token: str, key: Any, algorithm: str) -> Principal | None:
        """Return who comes with *token*, as `check` does; raise if its signature is wrong."""
        if key is None or key.algorithm_name != algorithm:
            return None
        settings = self.settings
        try:
            claims = self._jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=list(settings.audiences),
                issuer=settings.issuer,
                leeway=settings.leeway,
                options={"require": ["exp", "iss", "aud"]},
            )
            return self._principal(claims)
        except (AccessError, self._jwt.InvalidSignatureError):
            raise
        # `OSError` is an end that the system's calendar does not reach.
        except (
            self._jwt.PyJWTError,
            ValueError,
            TypeError,
            OverflowError,
            OSError,
            RecursionError,
        ):
            return None

    async def close(self) -> None:
        """End a fetch that is under way. Idempotent."""
        fetch, self._fetch = self._fetch, None
        if fetch is not None and not fetch.done():
            fetch.cancel()
            await asyncio.wait({fetch})

    def _principal(self, claims: Mapping[str, Any]) -> Principal:
        settings = self.settings
        user = _claim(claims, settings.user_claim)
        if not isinstance(user, str):
            raise TypeError("the claim of the user is missing, or no text")
        check_user(user, max_chars=1_024)
        until = datetime.fromtimestamp(int(claims["exp"]) + settings.leeway, UTC)
        digest = hashlib.sha256(f"{settings.issuer}\0{user}".encode()).hexdigest()[:16]
        role = self._role(claims)
        name = check_name(user)
        scope, key_id = MemoryMetadata(user_id=user), f"{SUBJECT}{digest}"
        return Principal(role, scope, name, key_id, expires_at=until)

    def _role(self, claims: Mapping[str, Any]) -> Role:
        value = _claim(claims, self.settings.role_claim)
        texts = value.split() if isinstance(value, str) else value
        values = texts if isinstance(texts, list) else []
        for role in _ROLES:
            if f"{ROLE_PREFIX}{role}" in values:
                return role
        if self.settings.default_role is None:
            raise AccessError(
                f"the token has no role here: its claim `{self.settings.role_claim}` must have "
                f"`{ROLE_PREFIX}read`, `{ROLE_PREFIX}write` or `{ROLE_PREFIX}admin`"
            )
        return self.settings.default_role

    # The keys of the issuer

    async def _key(self, key_id: str | None) -> Any:
        now = asyncio.get_running_loop().time()
        age = None if self._fetched_at is None else now - self._fetched_at
        key = self._known(key_id) if age is not None and age < _STALE else None
        if key is not None:
            if age is not None and age > _FRESH and self._may_try(now):
                self._begin(now)
            return key
        if self._fetch is None and self._may_try(now):
            self._begin(now)
        if self._fetch is not None:
            await asyncio.shield(self._fetch)
        if self._error:  # what the issuer would say of this key is not known
            raise MemoryConnectionError(
                f"the keys of the issuer `{self.settings.issuer}` cannot be fetched: {self._error}"
            )
        return self._known(key_id)

    async def _newer(self, key_id: str | None) -> Any:
        """Return the key once more, fetched again if that was not done a moment ago."""
        now = asyncio.get_running_loop().time()
        if self._fetch is None and self._may_try(now):
            self._begin(now)
        if self._fetch is not None:
            await asyncio.shield(self._fetch)
        return self._known(key_id)

    def _known(self, key_id: str | None) -> Any:
        if key_id is None:  # a token need not name its key if there is only one
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(key_id)

    def _may_try(self, now: float) -> bool:
        return self._tried_at is None or now - self._tried_at >= self.settings.pause

    def _begin(self, now: float) -> None:
        if self._fetch is None:
            self._tried_at = now
            self._fetch = asyncio.create_task(self._fetch_keys())

    async def _fetch_keys(self) -> None:
        import httpx  # noqa: PLC0415 - of the extra

        try:
            async with asyncio.timeout(_LIMIT), httpx.AsyncClient(timeout=_LIMIT) as client:
                base = self.settings.issuer.rstrip("/")
                found_at = f"{base}/.well-known/openid-configuration"
                document = await _get(client, found_at)
                if document.get("issuer") != self.settings.issuer:
                    raise ValueError("its configuration names another issuer")  # noqa: TRY301
                address = document.get("jwks_uri")
                _check_url(address)
                keys = (await _get(client, str(address))).get("keys")
                self._keys = self._usable(keys)
            self._fetched_at = asyncio.get_running_loop().time()
            self._error = ""
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, TypeError) as exc:
            is_ours = type(exc) is ValueError or isinstance(exc, QueryError)
            self._error = str(exc) if is_ours else type(exc).__name__
        finally:
            self._fetch = None

    def _usable(self, keys: object) -> dict[str, Any]:
        """Return the asymmetric keys for signatures, by their ids."""
        if not isinstance(keys, list):
            raise ValueError("its key set has no list of keys")  # noqa: TRY004 - it is what was sent
        usable: dict[str, Any] = {}
        for number, each in enumerate(keys):
            if not isinstance(each, dict) or each.get("kty") not in ("RSA", "EC", "OKP"):
                continue
            if each.get("use", "sig") != "sig":
                continue
            try:
                key = self._jwt.PyJWK(each)
            except (self._jwt.PyJWTError, ValueError, TypeError):
                continue  # one that is broken leaves the others usable
            is_short = getattr(key.key, "key_size", _MIN_RSA_BITS) < _MIN_RSA_BITS
            if key.algorithm_name in _ALGORITHMS and not (each["kty"] == "RSA" and is_short):
                usable[str(each.get("kid", f"#{number}"))] = key
        return usable


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """Return a claim by its name, or by a path such as `realm_access.roles`."""
    if name in claims:
        return claims[name]
    value: Any = claims
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


async def _get(client: Any, url: str) -> dict[str, Any]:
    async with client.stream("GET", url, headers={"Accept": "application/json"}) as answer:
        if answer.status_code != 200:
            raise ValueError(f"it answers {answer.status_code}")
        content = bytearray()
        async for part in answer.aiter_bytes():
            content += part
            if len(content) > _MAX_BYTES:
                raise ValueError("its answer is too long")
    document = json.loads(content)
    if not isinstance(document, dict):
        raise ValueError("its answer is not an object")  # noqa: TRY004 - it is what was sent
    return document


def _check_url(url: object) -> None:
    """Raise `QueryError` for what is no HTTPS URL; on this computer, HTTP will do."""
    try:
        parts = urlsplit(url) if isinstance(url, str) else urlsplit("")
        is_local = parts.scheme == "http" and parts.hostname in _LOOPBACK
        is_right = bool(parts.hostname) and (parts.scheme == "https" or is_local)
    except ValueError:
        is_right = False
    if not is_right:
        raise QueryError(f"`{url}` is not a valid address of an issuer; use `https://…`")


def _import_jwt() -> "ModuleType":
    try:
        import cryptography  # noqa: F401, PLC0415
        import httpx  # noqa: F401, PLC0415
        import jwt  # noqa: PLC0415
    except ModuleNotFoundError as exc:
        raise missing_extra(f"tokens of an issuer need {exc.name}", "oidc") from exc
    return jwt
