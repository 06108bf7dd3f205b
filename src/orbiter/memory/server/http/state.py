"""State that all requests of one server share; `app.state.orbiter`."""

import hashlib
import hmac
import shlex
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from starlette.requests import HTTPConnection

from orbiter.memory.agent import AgentMemory
from orbiter.memory.auth import KeyStore, Principal, is_subject
from orbiter.memory.auth.key_file import key_options
from orbiter.memory.server.http.settings import Settings
from orbiter.memory.server.http.worker_link import Alone
from orbiter.memory.tasks.worker_threads import WorkerThread

if TYPE_CHECKING:
    from orbiter.memory.auth import TokenVerifier
    from orbiter.memory.server.api.jobs import Jobs
    from orbiter.memory.server.http.event_feed import EventFeed
    from orbiter.memory.server.http.prometheus import Metrics

__all__ = ["ServerState", "principal_of", "state_of"]


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
        same keys; any other ends with the server.
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

    def key_command(self) -> str:
        """Return the command that makes a key of this server, and of no other; it has no secret."""
        named = key_options(self.memory.url, self.keys)
        return shlex.join(["orbiter-memory", "keys", "create", *named, "--user", "NAME"])

    async def still_holds(self, principal: Principal) -> bool:
        """Tell whether *principal* may still come in, for what goes on for long."""
        if is_subject(principal):
            until = principal.expires_at
            return self.tokens is not None and until is not None and datetime.now(UTC) < until
        if self.keys is None:
            return principal.key_id is None and self.tokens is None
        return await self.keys.still_holds(principal)


def state_of(connection: HTTPConnection) -> ServerState:
    """Return what the server of a request shares."""
    state: ServerState = connection.app.state.orbiter
    return state


def principal_of(connection: HTTPConnection) -> Principal:
    """Return who a request comes from; the guard has found out."""
    principal: Principal = connection.state.principal
    return principal
