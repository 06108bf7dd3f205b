"""The real servers that tests break."""

from collections.abc import Iterator

import pytest
from tests.servers.databases import PostgresServer, postgres_server, require_or_skip
from tests.stores.conftest import postgres_dsn

__all__ = ["mortal_server", "postgres_dsn", "postgres_server"]


@pytest.fixture(scope="module")
def mortal_server() -> Iterator[PostgresServer]:
    """Start a server for one module, which may stop, freeze and kill it."""
    try:
        server = PostgresServer.start()
    except ModuleNotFoundError as exc:
        require_or_skip(str(exc))
    with server:
        yield server
