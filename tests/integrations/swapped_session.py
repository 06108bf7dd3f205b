"""Puts `OrbiterSession` in the place of the SDK's `SQLiteSession` in the tests of its sdist."""

from pathlib import Path
from typing import Any

import agents
import agents.memory

from orbiter.memory import sync
from orbiter.memory.integrations.openai_agents import OrbiterSession

_memories: dict[str, sync.AgentMemory] = {}


class SQLiteSession(OrbiterSession):
    """Sessions of one path are of one memory; its calls work from any loop, as their tests do."""

    def __init__(
        self, session_id: str, db_path: str | Path = ":memory:", session_settings: Any = None
    ) -> None:
        memory = _memories.get(str(db_path)) or sync.AgentMemory("memory://", embeddings=None)
        if str(db_path) != ":memory:":
            _memories[str(db_path)] = memory
        self.memory = memory
        super().__init__(
            memory.scope(user_id="alice"), session_id, session_settings=session_settings
        )

    def close(self) -> None:
        """Do nothing: the memory is closed at the end."""


agents.SQLiteSession = agents.memory.SQLiteSession = SQLiteSession  # type: ignore[misc, assignment]
