"""Keys of a server: who may do what; kept as hashes, in a file or in a table of Postgres."""

from typing import TYPE_CHECKING

from orbiter.memory._lazy import lazy_names

if TYPE_CHECKING:
    from orbiter.memory.auth.key_file import FileKeys, KeyFile, key_file_for
    from orbiter.memory.auth.key_table import KeyTable
    from orbiter.memory.auth.oidc import OIDCSettings, TokenVerifier
    from orbiter.memory.auth.principals import (
        LOCAL,
        Key,
        KeyStore,
        Principal,
        Role,
        still_holds,
    )

__all__ = [
    "LOCAL",
    "FileKeys",
    "Key",
    "KeyFile",
    "KeyStore",
    "KeyTable",
    "OIDCSettings",
    "Principal",
    "Role",
    "TokenVerifier",
    "key_file_for",
    "still_holds",
]

_load_name, __dir__ = lazy_names(
    __name__,
    {
        "LOCAL": "principals",
        "FileKeys": "key_file",
        "Key": "principals",
        "KeyFile": "key_file",
        "KeyStore": "principals",
        "KeyTable": "key_table",
        "OIDCSettings": "oidc",
        "Principal": "principals",
        "Role": "principals",
        "TokenVerifier": "oidc",
        "key_file_for": "key_file",
        "still_holds": "principals",
    },
)
if not TYPE_CHECKING:  # a type checker would take any name for one of these
    __getattr__ = _load_name
