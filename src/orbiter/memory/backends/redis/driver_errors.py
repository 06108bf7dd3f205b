"""What redis-py's errors mean: which pass by themselves, and which of ours they are."""

import re
import ssl
from collections.abc import Iterator

from orbiter.memory.backends.redis.address import RedisAddress, exceptions
from orbiter.memory.backends.urls import scrubbed
from orbiter.memory.errors import AccessError, MemoryConnectionError, StorageError

__all__ = ["forget_context", "may_pass", "translated"]

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
    "see whether it speaks TLS under this name, whom `?ssl_ca_certs=` trusts, and whether it wants "
    "`ssl_certfile=` and `ssl_keyfile=`"
)


def translated(error: Exception, address: RedisAddress) -> Exception:
    """Return *error* as one of ours, without the secrets of *address*."""
    # Sentinels are listed with all there is to know of them, before what they said.
    told = scrubbed(re.sub("<redis.*?> - ", "", str(error)), address.url)
    ours: Exception
    if _is_refusal(error):
        ours = AccessError(f"`{address}` refuses: {told}; see its user, password and rights")
    elif isinstance(error, exceptions.OutOfMemoryError):
        ours = StorageError(f"`{address}` is full, so nothing was written: {told}")
    elif address.kind != "cluster" and _is_redirection(error):
        ours = MemoryConnectionError(f"`{address}` is a node of a cluster; use `redis+cluster://`")
    elif _is_certificate(error):
        ours = MemoryConnectionError(f"`{address}` cannot be reached with TLS: {told}; {_TLS_HINT}")
    elif may_pass(error):
        # To a client that shows no certificate some servers say nothing, and just hang up.
        hint = f"; {_TLS_HINT}" if address.url.startswith("rediss") else ""
        ours = MemoryConnectionError(f"`{address}` cannot be reached: {told}{hint}")
    else:
        ours = StorageError(f"`{address}` refuses: {told}")
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
