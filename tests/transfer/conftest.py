"""A memory in a file of its own for every test, and one on a server for those that ask for it."""

from tests.agent.conftest import (
    any_local_url,
    memory,
    open_memory,
    postgres_dsn,
    postgres_server,
    postgres_url,
    redis_server,
    who,
)
from tests.agent.conftest import local_url as url  # beside the store; tests/client has the rest

__all__ = [
    "any_local_url",
    "memory",
    "open_memory",
    "postgres_dsn",
    "postgres_server",
    "postgres_url",
    "redis_server",
    "url",
    "who",
]
