"""Puts `OrbiterSessionRepository` in the place of the repositories of Strands in its own tests."""

import importlib
import os
from typing import Any

import strands.session.file_session_manager as files
from strands.session.repository_session_manager import RepositorySessionManager

from orbiter.memory import sync
from orbiter.memory.integrations.strands import OrbiterSessionRepository

# Of the sdist, whose folder is the current one.
mocks: Any = importlib.import_module("tests.fixtures.mock_session_repository")
_memories: dict[str, sync.AgentMemory] = {}


def _memory(folder: str) -> sync.AgentMemory:
    if folder not in _memories:
        _memories[folder] = sync.AgentMemory("memory://", embeddings=None)
    return _memories[folder]


class MockedSessionRepository(OrbiterSessionRepository):
    """A repository with a memory of its own."""

    def __init__(self) -> None:
        self.memory = sync.AgentMemory("memory://", embeddings=None)
        super().__init__(self.memory.scope(user_id="alice"))


class FileSessionManager(RepositorySessionManager, OrbiterSessionRepository):  # type: ignore[misc]  # types of theirs are not read
    """A manager that is its own repository; those of one folder share a memory."""

    def __init__(self, session_id: str, storage_dir: str | None = None, **more: Any) -> None:
        memory = _memory(os.fspath(storage_dir or ""))
        OrbiterSessionRepository.__init__(self, memory.scope(user_id="alice"))
        RepositorySessionManager.__init__(self, session_id, session_repository=self)


mocks.MockedSessionRepository = MockedSessionRepository
files.FileSessionManager = FileSessionManager
