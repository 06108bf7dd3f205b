"""`OrbiterSessionStore`: transcripts of the Claude Agent SDK, kept with the memories of a handle.

Every line is kept as it came, under the project and session that the SDK names, and a session is
resumed from it. What was said is also in the chat of the session's id, for recall and the
dashboard.
"""

import json
from collections.abc import Sequence
from typing import Any

from orbiter.memory._lazy import missing_extra
from orbiter.memory.agent.interface import session_of
from orbiter.memory.errors import MemoryError, VersionConflict
from orbiter.memory.integrations._calls import AnyHandle, Calls, list_all
from orbiter.memory.messages import from_messages
from orbiter.memory.model.items import MemoryItem, role_of
from orbiter.memory.model.key_value import Entry, EntryPath, Put, appended_key

try:
    from claude_agent_sdk import SessionKey, fold_session_summary
    from claude_agent_sdk.types import (
        SessionListSubkeysKey,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
    )
except ModuleNotFoundError as exc:
    raise missing_extra(
        "`OrbiterSessionStore` needs the Claude Agent SDK", "claude-agent-sdk"
    ) from exc

__all__ = ["OrbiterSessionStore"]

_ROOT = "claude-agent-sdk"
_BATCH = 1_000
"""Lines that are stored in one step; each takes two changes of at most 10,000."""
_NOTES = ("isMeta", "isCompactSummary", "isVisibleInTranscriptOnly", "isApiErrorMessage")


class OrbiterSessionStore:
    """The transcripts of one handle, for `ClaudeAgentOptions(session_store=…)`.

    With *remember* false, what was said does not go to a chat.
    """

    def __init__(self, handle: AnyHandle, *, remember: bool = True) -> None:
        self._calls = Calls(handle, "OrbiterSessionStore")
        self._remember = remember

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Append lines in order; one with a `uuid` that is there already is left out."""
        for start in range(0, len(entries), _BATCH):
            await self._calls.wait(self._append(key, entries[start : start + _BATCH]))

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return all lines in the order they were appended, or `None` if there are none."""
        lines = [json.loads(entry.value) for entry in await self._all(_place(key, "log"))]
        return lines or None

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Return the sessions of a project, each with when it was appended to last."""
        return [
            {"session_id": entry.key, "mtime": _millis(entry)}
            for entry in await self._all((_ROOT, project_key, "sessions"))
        ]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Return the summary of each session of a project, as the SDK made it."""
        return [
            {**json.loads(entry.value)["summary"], "mtime": _millis(entry)}
            for entry in await self._all((_ROOT, project_key, "sessions"))
        ]

    async def delete(self, key: SessionKey) -> None:
        """Remove a session with its subagents' transcripts for good, or the one of a subpath.

        The chat stays; forget its messages, or erase the session, to remove what was said.
        """
        await self._calls.wait(self._delete(key))

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return the subpaths of a session."""
        path = _place(SessionKey(**key), "subpaths")
        return [entry.key for entry in await self._all(path)]

    async def _all(self, path: EntryPath) -> list[Entry]:
        return await self._calls.wait(list_all(self._calls.handle.kv, path))

    async def _delete(self, key: SessionKey) -> None:
        kv = self._calls.handle.kv
        for kind in ("log", "uuids"):
            await kv.clear(_place(key, kind))
        if "subpath" not in key:
            await kv.clear(_place(key, "subpaths"))
        await kv.delete(*_head(key))

    async def _append(self, key: SessionKey, entries: Sequence[SessionStoreEntry]) -> None:
        new = await self._store(key, entries)
        messages = [item for entry in new for item in _messages(entry)]
        engine = session_of(self._calls.handle).engine
        messages = engine.redacted(messages, are_files=True)
        if self._remember and messages and "subpath" not in key:
            await self._calls.handle.chat(key["session_id"]).add(messages)

    async def _store(
        self, key: SessionKey, entries: Sequence[SessionStoreEntry]
    ) -> list[SessionStoreEntry]:
        """Store the lines that are new in one step, and return them; wait for nobody."""
        kv = self._calls.handle.kv
        log, uuids, head = _place(key, "log"), _place(key, "uuids"), _head(key)
        named = list(dict.fromkeys(entry["uuid"] for entry in entries if entry.get("uuid")))
        while True:
            stored = await kv.get(*head)
            known = {
                entry.key
                for entry in await kv.get_many([(uuids, name) for name in named])
                if entry is not None
            }
            new = []
            for entry in entries:
                if (name := entry.get("uuid")) not in known:
                    new.append(entry)
                    known |= {name} if name else set()
            if not new:
                return []
            state: dict[str, Any] = {"lines": 0, "summary": None}
            if stored is not None:
                state = json.loads(stored.value)
            values = [json.dumps(entry).encode() for entry in new]
            puts = [
                Put(log, appended_key(number), value, expected_version=0)
                for number, value in enumerate(values, start=state["lines"] + 1)
            ]
            puts += [Put(uuids, entry["uuid"], b"") for entry in new if entry.get("uuid")]
            after = {"lines": state["lines"] + len(new), "summary": None}
            if "subpath" not in key:
                after["summary"] = fold_session_summary(state["summary"], key, new)
            version = stored.version if stored else 0
            puts.append(Put(*head, json.dumps(after).encode(), expected_version=version))
            try:
                await kv.write(puts)
            except VersionConflict:
                continue  # somebody else appended meanwhile
            return new


def _place(key: SessionKey, kind: str) -> EntryPath:
    """Return where lines, uuids or subpaths of a session are."""
    path = (_ROOT, key["project_key"], kind, key["session_id"])
    return (*path, key["subpath"]) if "subpath" in key else path


def _head(key: SessionKey) -> tuple[EntryPath, str]:
    """Return where it is kept how many lines there are, and the summary of them."""
    if "subpath" in key:
        return (_ROOT, key["project_key"], "subpaths", key["session_id"]), key["subpath"]
    return (_ROOT, key["project_key"], "sessions"), key["session_id"]


def _millis(entry: Entry) -> int:
    return int(entry.updated_at.timestamp() * 1000)


def _messages(entry: SessionStoreEntry) -> list[MemoryItem]:
    """Return what a person or the model said in a line; tools and notes are left out."""
    line: dict[str, Any] = dict(entry)
    message = line.get("message")
    if line.get("type") not in ("user", "assistant") or any(line.get(note) for note in _NOTES):
        return []
    if not isinstance(message, dict):
        return []
    said = message.get("content")
    if isinstance(said, list):
        said = [block for block in said if isinstance(block, dict) and block.get("type") == "text"]
    try:
        items = from_messages([{"role": line["type"], "content": said}], "anthropic")
    except (MemoryError, ValueError):
        return []
    return [item for item in items if role_of(item) in ("human", "ai") and item.content.strip()]
