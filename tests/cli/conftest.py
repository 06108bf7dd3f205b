"""The command line in this process, on a real file; `terminal.py` runs it in one of its own."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.servers.databases import postgres_server

from orbiter.memory.agent import AgentMemory
from orbiter.memory.cli._root import NAME, app

__all__ = ["postgres_server"]


@dataclass
class Cli:
    """Calls commands on one store, as alice, by words only unless told otherwise."""

    url: str
    env: dict[str, str] = field(default_factory=dict)

    def __call__(
        self, *args: str, stdin: str | bytes | None = None, env: Mapping[str, str] | None = None
    ) -> Result:
        told = {
            "ORBITER_MEMORY_URL": self.url,
            "ORBITER_MEMORY_USER": "alice",
            "ORBITER_MEMORY_MODEL": "none",
            **self.env,
            **(env or {}),
        }
        return CliRunner(env=told).invoke(app, list(args), input=stdin, prog_name=NAME)

    def ok(self, *args: str, stdin: str | bytes | None = None) -> str:
        """Return what a command prints that must succeed."""
        result = self(*args, stdin=stdin)
        assert result.exit_code == 0, result.output
        return result.stdout

    def json(self, *args: str) -> Any:
        """Return the document a command prints with `--json`."""
        return json.loads(self.ok(*args, "--json"))

    def remember(self, text: str, *args: str) -> str:
        """Store a memory and return its id."""
        return self.ok("remember", text, *args).strip()

    def remember_all(self, *texts: str) -> str:
        """Store several memories; return their ids, a line each."""
        return "".join(self.ok("remember", text) for text in texts)

    def put_entries(self, user_id: str, count: int) -> None:
        """Store key-value entries of a user, which no command does."""

        async def put() -> None:
            async with AgentMemory(self.url, embeddings=None) as memory:
                kv = memory.scope(user_id=user_id).kv
                await kv.append(("threads", "t1"), [b"state"] * count)

        asyncio.run(put())


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(str(tmp_path / "memory.db"))
