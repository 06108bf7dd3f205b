"""One attempt at calls: what its errors mean, and writes that replicas confirm.

`WAIT` speaks only of what its own connection wrote last. So a write and its `WAIT` must never be
sent apart, not after a redirection of the cluster either; and a repeated write that changes
nothing any more needs another one beside it, or there would be nothing to wait for.
"""

import asyncio
import re
import ssl
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from orbiter.memory.backends.redis.address import (
    Client,
    RedisAddress,
    RedisCluster,
    exceptions,
)
from orbiter.memory.backends.redis.commands import Word
from orbiter.memory.backends.urls import scrubbed
from orbiter.memory.errors import (
    AccessError,
    MemoryConnectionError,
    MemoryTimeoutError,
    StorageError,
)

__all__ = ["forget_context", "may_pass", "send_confirmed", "translated"]

_REFUSALS = (
    exceptions.AuthenticationError,
    exceptions.AuthorizationError,
    exceptions.NoPermissionError,
)
# Of those that come without a class: from inside a script, and by way of Sentinel.
_REFUSAL_TEXT = re.compile("^ACL failure|^NOAUTH|^NOPERM|^No master found.*AuthenticationError")
# The trouble of a moment: the network, a restart, a failover, a slot on its way.
_PASSING = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.ReadOnlyError,
    exceptions.ClusterError,
    exceptions.TryAgainError,
    exceptions.RedisClusterException,
    OSError,
)
# The same, of those that redis-py has no class for: a script in a slot that is halfway, a blocked
# call at a server that has become a replica, a long script of someone else's, a lack of replicas,
# and a connection lost under the hands of asyncio (Python 3.13) or of redis-py 5 (in a cluster).
_PASSING_TEXT = re.compile(
    "non local key|^UNBLOCKED|^BUSY |^NOREPLICAS|^'NoneType' object has no attribute"
)
# What no patience cures: TLS of another kind, a certificate that is refused, or a file of ours.
_TLS_REFUSALS = re.compile(
    "CERTIFICATE|UNKNOWN_CA|HANDSHAKE_FAILURE|WRONG_VERSION|PROTOCOL_VERSION|UNSUPPORTED|PEM"
)

_TLS_HINT = (
    "check that it speaks TLS under this name, which authorities `?ssl_ca_certs=` trusts, and "
    "whether it needs `ssl_certfile=` and `ssl_keyfile=`"
)


class _Unconfirmed(Exception):  # noqa: N818 - it becomes one of ours
    """Fewer replicas than the address asks for have a write; the primary has it."""

    def __init__(self, replicas: int) -> None:
        super().__init__(replicas)
        self.replicas = replicas


def translated(error: Exception, address: RedisAddress) -> Exception:
    """Return *error* as one of ours, without the secrets of *address*."""
    if isinstance(error, _Unconfirmed):
        return MemoryTimeoutError(
            f"the primary of `{address}` has what this call wrote, but {error.replicas} of "
            f"{address.wait_replicas} replicas confirmed it within {address.wait_ms} ms: it is "
            "lost if the primary fails before they have it. Check the replicas, or ask for less "
            "with `wait_replicas` and `wait_ms` in the URL"
        )
    # Sentinels are listed with all there is to know of them, before what they said.
    reason = scrubbed(re.sub("<redis.*?> - ", "", str(error)), address.url)
    ours: Exception
    if _is_refusal(error):
        ours = AccessError(
            f"`{address}` refuses: {reason}; check its user, password and permissions"
        )
    elif isinstance(error, exceptions.OutOfMemoryError):
        ours = StorageError(f"`{address}` is full, so nothing was written: {reason}")
    elif address.kind != "cluster" and _is_redirection(error):
        ours = MemoryConnectionError(f"`{address}` is a node of a cluster; use `redis+cluster://`")
    elif _is_certificate(error):
        ours = MemoryConnectionError(
            f"`{address}` cannot be reached with TLS: {reason}; {_TLS_HINT}"
        )
    elif may_pass(error):
        # To a client that shows no certificate some servers say nothing, and just hang up.
        hint = f"; {_TLS_HINT}" if address.url.startswith("rediss") else ""
        ours = MemoryConnectionError(f"`{address}` cannot be reached: {reason}{hint}")
    else:
        ours = StorageError(f"`{address}` refuses: {reason}")
    ours.__cause__ = error
    return ours


def may_pass(error: Exception) -> bool:
    """Tell whether *error* is the trouble of a moment: the network, a restart, a failover."""
    if _is_refusal(error) or _is_certificate(error):
        return False
    return isinstance(error, _PASSING) or bool(_PASSING_TEXT.search(str(error)))


def _is_certificate(error: Exception) -> bool:
    for cause in _causes(error):
        if isinstance(cause, (ssl.SSLCertVerificationError, FileNotFoundError)):
            return True
        if isinstance(cause, ssl.SSLError) and _TLS_REFUSALS.search(cause.reason or str(cause)):
            return True
    return False


def forget_context(error: BaseException, handled: BaseException | None) -> None:
    """Part *error* from what the caller was handling, which is no reason for it."""
    for cause in _causes(error):
        if cause.__context__ is handled:
            cause.__context__ = None


def _is_redirection(error: Exception) -> bool:
    # redis-py 5 has no class for it outside a cluster.
    kinds = (exceptions.MovedError, exceptions.ClusterCrossSlotError)
    return isinstance(error, kinds) or str(error).startswith(("MOVED ", "CROSSSLOT "))


def _is_refusal(error: Exception) -> bool:
    # A cluster client wraps what its nodes said.
    return bool(_REFUSAL_TEXT.search(str(error))) or any(
        isinstance(cause, _REFUSALS) for cause in _causes(error)
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


_MARK_MS = 1000
"""How long the key is there that is written before each `WAIT`."""


async def send_confirmed(
    client: Client, address: RedisAddress, writes: Sequence[tuple[tuple[Word, ...], str]]
) -> list[Any]:
    """Send *writes*, each with a key of it, once; return their answers, errors among them.

    A write that was answered but not confirmed has an `_Unconfirmed` for its answer.
    """
    if not isinstance(client, RedisCluster):
        return await _send_to(client, None, address, writes)
    groups: dict[Any, list[int]] = {}
    await client.initialize()
    for place, (_, key) in enumerate(writes):
        groups.setdefault(client.get_node_from_key(key), []).append(place)
    answers: list[Any] = [None] * len(writes)

    async def send(node: Any, places: list[int]) -> None:
        several = [writes[place] for place in places]
        try:
            got = await _send_to(client, node, address, several)
        except (exceptions.RedisError, OSError) as exc:
            got = [exc] * len(places)
        for place, answer in zip(places, got, strict=True):
            answers[place] = answer

    await asyncio.gather(*(send(node, places) for node, places in groups.items()))
    for place, answer in enumerate(answers):
        if isinstance(answer, exceptions.MovedError | exceptions.ConnectionError):
            # Sent by the client itself, a command teaches it where the slot is by now.
            with suppress(exceptions.RedisError, OSError):
                await client.execute_command("EXISTS", writes[place][1])
    return [_passing(answer) for answer in answers]


def _passing(answer: Any) -> Any:
    """Return a redirection as trouble that passes: a later attempt goes the right way.

    To follow one would leave our mark at a node that is yet to get its own, and stop the move.
    """
    is_redirection = isinstance(answer, exceptions.AskError)
    return exceptions.ClusterError(str(answer)) if is_redirection else answer


async def _send_to(
    client: Client,
    node: Any,
    address: RedisAddress,
    writes: Sequence[tuple[tuple[Word, ...], str]],
) -> list[Any]:
    """Send *writes* to one server."""
    sent = [command for command, _ in writes]
    sent.append(("SET", f"{writes[0][1]}:wait", "", "PX", _MARK_MS))
    sent.append(("WAIT", address.wait_replicas, address.wait_ms))
    pipeline: Any = client.pipeline(transaction=False)
    async with pipeline:
        for command in sent:
            if node is None:
                pipeline.execute_command(*command)
            else:
                pipeline.execute_command(*command, target_nodes=node)
        # A redirection would take the write to another connection, and not its `WAIT`.
        options = {} if node is None else {"allow_redirections": False}
        got: list[Any] = await pipeline.execute(raise_on_error=False, **options)
    *answers, mark, count = got
    trouble = next((each for each in (mark, count) if isinstance(each, Exception)), None)
    if isinstance(trouble, exceptions.OutOfMemoryError):
        trouble = _Unconfirmed(0)  # a full server still removes
    elif trouble is None and count < address.wait_replicas:
        trouble = _Unconfirmed(count)
    return [each if trouble is None or isinstance(each, Exception) else trouble for each in answers]
