"""The table of a cluster's commands, read once.

The driver asks for it with every new client, and takes longer to read it than most tests take.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from redis._parsers import AsyncCommandsParser

_told: dict[str, Any] = {}


@contextmanager
def shared_commands() -> Iterator[None]:
    """Let all clients of clusters, which are of one kind here, share what the first is told."""
    ask = AsyncCommandsParser.initialize

    async def initialize(self: Any, node: Any = None) -> None:
        if _told:
            self.node, self.commands = node, _told
            return
        await ask(self, node)
        _told.update(self.commands)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AsyncCommandsParser, "initialize", initialize)
        yield
