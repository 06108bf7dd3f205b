"""A memory in a file of its own for every test, and one on a server for those that ask for it."""

from tests.agent.conftest import local_url as url  # beside the store; tests/client has the rest
from tests.agent.conftest import (
    memory,
    open_memory,
    postgres_dsn,
    postgres_server,
    postgres_url,
    redis_server,
    who,
)

__all__ = [
    "memory",
    "open_memory",
    "postgres_dsn",
    "postgres_server",
    "postgres_url",
    "redis_server",
    "url",
    "who",
]
