"""Every place that keeps episodes, under one name: what is asked of one is asked of all."""

import itertools
import re
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from tests._redis_commands import shared_commands
from tests.servers.databases import RedisServer, redis_server
from tests.servers.redis_topologies import (
    TLSFront,
    redis_cluster,
    redis_sentinel,
)

from orbiter.memory.episodic.manager import ShortTermMemoryManager

__all__ = ["redis_cluster", "redis_sentinel", "redis_server"]

# The rights that the documentation says are enough.
_PAGE = (Path(__file__).parents[2] / "docs/episodic.md").read_text()
RIGHTS = re.findall(r"user orbiter on >password (.+?)```", _PAGE, re.DOTALL)[0].split()
CLUSTER_RIGHTS = re.findall(r"In a cluster add `(.+?)`", _PAGE)[0].split()

PLACES = ("memory", "sqlite", "redis", "redis with TLS and ACL", "redis cluster", "redis sentinel")

Make = Callable[..., ShortTermMemoryManager]

_numbers = itertools.count()


@pytest.fixture(scope="session", autouse=True)
def _commands_are_read_once() -> Iterator[None]:
    with shared_commands():
        yield


@pytest.fixture(params=PLACES)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return an address that every manager of the test may use."""
    place = request.param
    if place == "memory":
        return f"memory://{tmp_path.name}"
    if place == "sqlite":
        return f"sqlite:///{tmp_path / 'episodes.db'}"
    if place == "redis with TLS and ACL":
        url: str = request.getfixturevalue("secured_url")
        return url
    server: Any = request.getfixturevalue(
        {
            "redis": "redis_server",
            "redis cluster": "redis_cluster",
            "redis sentinel": "redis_sentinel",
        }[place]
    )
    return str(server.url())


@pytest.fixture(scope="session")
def secured_url() -> Iterator[str]:
    """Return the address of a Redis behind TLS, for a user who may do what we need and no more."""
    with (
        RedisServer.start(users={"orbiter": ["on", ">s3cret/@:#", *RIGHTS]}) as server,
        TLSFront.start(server, wants_certificate=True) as front,
    ):
        login = urlsplit(server.url(user="orbiter")).netloc.rpartition("@")[0]
        ca, own = quote(str(front.ca_file)), quote(str(front.client_file))
        yield (
            f"rediss://{login}@localhost:{front.port}/0"
            f"?ssl_ca_certs={ca}&ssl_certfile={own}&ssl_keyfile={own}"
        )


@pytest.fixture
def agent_id() -> str:
    """Return the name of an agent that no other test has."""
    return f"agent-{next(_numbers)}"


@pytest.fixture
async def make(address: str, agent_id: str) -> AsyncIterator[Make]:
    """Return a function that makes managers, all of one agent unless told otherwise."""
    made: list[ShortTermMemoryManager] = []

    def build(agent_id: str = agent_id, **options: Any) -> ShortTermMemoryManager:
        made.append(ShortTermMemoryManager(address, agent_id, **options))
        return made[-1]

    yield build
    for manager in made:
        await manager.disconnect()


@pytest.fixture
def memory(make: Make) -> ShortTermMemoryManager:
    """Return a manager that has not connected yet."""
    return make()
