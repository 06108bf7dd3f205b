"""Puts our memory tools in the place of the file tools in the tests of Anthropic's sdist.

Their tests look at the folder behind the tool; here they look at the memory.
"""

from pathlib import Path
from typing import Any

import pytest
from anthropic.lib.tools import _beta_builtin_memory_tool as theirs
from anthropic.types.beta import BetaMemoryTool20250818CreateCommand

from orbiter.memory import sync
from orbiter.memory.integrations.anthropic_memory import AsyncOrbiterMemoryTool, OrbiterMemoryTool

_handles: dict[str, sync.ScopedMemory] = {}
"""By what was given as `base_path`."""


class _Place:
    """Stands for the path of a file."""

    def __init__(self, handle: sync.ScopedMemory, path: str = "/memories") -> None:
        self.handle = handle
        self.path = path

    def __truediv__(self, name: str) -> "_Place":
        return _Place(self.handle, f"{self.path}/{name}")

    def __str__(self) -> str:
        return self.path

    def write_bytes(self, content: bytes) -> None:
        command = BetaMemoryTool20250818CreateCommand(
            command="create", path=self.path, file_text=content.decode()
        )
        OrbiterMemoryTool(self.handle).create(command)

    def read_bytes(self) -> bytes:
        return _files(self.handle)[self.path.removeprefix("/")].encode()

    def is_dir(self) -> bool:
        return True

    def mkdir(self, **_: object) -> None:
        pass


class _AsyncPlace(_Place):
    async def is_dir(self) -> bool:  # type: ignore[override]  # as theirs
        return True


def _files(handle: sync.ScopedMemory) -> dict[str, str]:
    files = handle.list(memory_type="file", limit=100)
    return {file.metadata.extra["path"].removeprefix("/"): file.content for file in files}


def _in_place_of_files(tool: Any, place: type[_Place]) -> type:
    class Tool(tool):  # type: ignore[misc]
        def __init__(self, base_path: str) -> None:
            memory = sync.AgentMemory("memory://", embeddings=None)
            handle = memory.scope(user_id="alice")
            super().__init__(handle)
            self.memory = memory
            self.base_path = base_path
            self.memory_root = place(handle)
            _handles[base_path] = handle

    return Tool


def _path(text: str) -> "_Place | Path":
    if text.startswith("/memories"):
        return _Place(next(reversed(_handles.values())), text)
    return Path(text)


theirs.BetaLocalFilesystemMemoryTool = _in_place_of_files(OrbiterMemoryTool, _Place)  # type: ignore[misc, assignment]
theirs.BetaAsyncLocalFilesystemMemoryTool = _in_place_of_files(AsyncOrbiterMemoryTool, _AsyncPlace)  # type: ignore[misc, assignment]


def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    for item in items:
        module: Any = item.module
        module.get_directory_snapshot = lambda base_path: _files(_handles[base_path])
        module.Path = _path
