"""What every answer tells a browser: run nothing of others, show it nowhere else, keep nothing."""

from starlette.datastructures import MutableHeaders
from starlette.types import Message

__all__ = ["REFUSAL", "harden"]

_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "font-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
_ALWAYS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
REFUSAL = {**_ALWAYS, "cache-control": "no-store"}
"""What is on an answer that holds nothing."""


def harden(message: Message, *, may_keep: bool) -> None:
    """Put the headers on the beginning of an answer; *may_keep* lets it say how long it is good."""
    headers = MutableHeaders(scope=message)
    for name, value in _ALWAYS.items():
        headers[name] = value
    if not (may_keep and headers.get("cache-control", "").startswith("private")):
        headers["cache-control"] = "no-store"
    for name in [each for each in headers if each.startswith("access-control-")]:
        del headers[name]  # whatever is mounted here: nobody else's page reads this server
