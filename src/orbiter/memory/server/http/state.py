"""State that all requests of one server share; `app.state.orbiter`."""

import hashlib
import hmac
import logging
import secrets
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.requests import HTTPConnection

from orbiter.memory.agent import AgentMemory
from orbiter.memory.auth import KeyStore, Principal, still_holds
from orbiter.memory.auth.key_file import key_options
from orbiter.memory.errors import MemoryError
from orbiter.memory.server.http.settings import Settings
from orbiter.memory.server.http.worker_link import Alone
from orbiter.memory.tasks.worker_threads import WorkerThread

if TYPE_CHECKING:
    from orbiter.memory.auth import TokenVerifier
    from orbiter.memory.server.api.jobs import Jobs
    from orbiter.memory.server.http.event_feed import EventFeed
    from orbiter.memory.server.http.prometheus import Metrics

__all__ = ["ServerState", "principal_of", "state_of"]

_LOG = logging.getLogger(__name__)

_PAGES = "page tokens"
_CREATE = """
CREATE TABLE IF NOT EXISTS orbiter_secrets (
    name TEXT COLLATE "C" PRIMARY KEY,
    secret BYTEA NOT NULL CHECK (length(secret) = 32)
);
REVOKE ALL ON orbiter_secrets FROM PUBLIC;
"""
_PUT = """
INSERT INTO orbiter_secrets (name, secret) SELECT $1, $2
WHERE NOT EXISTS (SELECT FROM orbiter_secrets WHERE name = $1) ON CONFLICT DO NOTHING
"""
_GET = "SELECT secret FROM orbiter_secrets WHERE name = $1"


@dataclass(frozen=True, slots=True)
class ServerState:
    """One server's memory and how it is set up; `app.state.orbiter`."""

    memory: AgentMemory
    settings: Settings
    keys: KeyStore | None
    live: "EventFeed"
    metrics: "Metrics"
    jobs: "Jobs"
    tokens: "TokenVerifier | None" = None
    worker: WorkerThread = field(default_factory=WorkerThread)
    link: Alone = field(default_factory=Alone)
    """The other processes of this server, if there are any."""

    def token_for(self, principal: Principal) -> str:
        """Return what a page of this server puts in `X-Orbiter-Token` to change something.

        It is worth nothing without the key. That of a key is the same with every server over the
        same keys, any other with every server over the same Postgres; see `share_secret`.
        """
        key_id, secret = principal.key_id or "local", principal.page_secret or self.link.secret
        return hmac.new(secret, key_id.encode(), hashlib.sha256).hexdigest()

    async def needs_key(self) -> bool:
        """Tell whether anybody must show a key."""
        return self.tokens is not None or (self.keys is not None and await self.keys.has_keys())

    async def close_keys(self) -> None:
        """End the connections by which keys are looked up, and the issuer is asked for its own."""
        if self.tokens is not None:
            await self.tokens.close()
        if self.keys is not None:
            await self.keys.close()

    async def share_secret(self) -> None:
        """Have the pages of every server over one Postgres work with each other, also of a token.

        Servers over other stores keep a secret of their own, and so do those whose role may not.
        """
        pool_of = getattr(self.memory.store, "pool_beside", None)  # of a `PostgresMemoryStore`
        pool = None if self.tokens is None or pool_of is None else pool_of("secrets")
        if pool is None:
            return
        try:
            await pool.make_table("orbiter_secrets", _CREATE)
            await pool.run(_PUT, _PAGES, secrets.token_bytes(32))
            self.link.secret = (await pool.run(_GET, _PAGES))[0][0]
        except MemoryError as exc:
            _LOG.warning("a page of another server cannot be used with this one: %s", exc)
        finally:
            await pool.close()

    def key_command(self) -> str:
        """Return the command that makes a key of this server, and of no other; it has no secret."""
        named = key_options(self.memory.url, self.keys)
        return shlex.join(["orbiter-memory", "keys", "create", *named, "--user", "NAME"])

    async def still_holds(self, principal: Principal) -> bool:
        """Tell whether *principal* may still come in, for what goes on for long.

        Not while the keys cannot be read.
        """
        try:
            return await still_holds(principal, self.keys, takes_tokens=self.tokens is not None)
        except MemoryError:
            return False


def state_of(connection: HTTPConnection) -> ServerState:
    """Return what the server of a request shares."""
    state: ServerState = connection.app.state.orbiter
    return state


def principal_of(connection: HTTPConnection) -> Principal:
    """Return who a request comes from; the guard has found out."""
    principal: Principal = connection.state.principal
    return principal
