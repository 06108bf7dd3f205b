"""Puts `OrbiterStorage` in the place of CrewAI's LanceDB in the tests of its sdist."""

from pathlib import Path
from typing import Any

import crewai.memory.storage.lancedb_storage as theirs

from orbiter.memory import sync
from orbiter.memory.integrations.crewai import OrbiterStorage

_memories: dict[str, sync.AgentMemory] = {}


class LanceDBStorage(OrbiterStorage):
    """Storages of one path are of one memory."""

    def __init__(self, path: str | Path | None = None, **_: Any) -> None:
        memory = _memories.get(str(path)) or sync.AgentMemory("memory://", embeddings=None)
        _memories[str(path)] = memory
        super().__init__(memory.scope(user_id="alice"))


theirs.LanceDBStorage = LanceDBStorage
