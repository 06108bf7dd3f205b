"""The servers of the tests of the server: pages are asked for as a browser asks for them."""

from tests.server.conftest import client, keys, memory, served

__all__ = ["client", "keys", "memory", "served"]
