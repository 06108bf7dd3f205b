"""The servers of the tests of the server: pages are asked for as a browser asks for them."""

import pytest
from tests.server.conftest import client, keys, memory, served
from tests.timing import HANG

from orbiter.memory.server.dashboard import slow_parts

__all__ = ["client", "keys", "memory", "served"]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have pages answer when their work is done: on a busy machine all of it takes long."""
    monkeypatch.setattr(slow_parts, "_SOON", HANG)
