"""Sessions of the OpenAI Agents SDK in SQLite: `agent_messages`, a Responses item to a row."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import NamedTuple

from orbiter.memory.errors import TransferError
from orbiter.memory.items import MemoryItem, MemoryMetadata
from orbiter.memory.messages import from_messages
from orbiter.memory.transfer._formats import Complain, Found, SourceFile
from orbiter.memory.transfer._shapes import compact, instant
from orbiter.memory.transfer._tables import SQLITE, columns, opened

__all__ = ["OpenAIAgents"]

_COLUMNS = {"id", "session_id", "message_data"}


class OpenAIAgents:
    """Each session is a conversation."""

    name = "openai-agents"

    def recognises(self, source: SourceFile, head: bytes) -> bool:
        """Tell by the table."""
        if not head.startswith(SQLITE):
            return False
        with opened(source.path) as connection:
            return columns(connection, "agent_messages") >= _COLUMNS

    def read(self, source: SourceFile, complain: Complain) -> Iterator[Found]:
        """Yield the messages, session by session."""
        with opened(source.path) as connection:
            have = columns(connection, "agent_messages")
            if not have >= _COLUMNS:
                raise TransferError(f"`{source.name}` has no table `agent_messages`")
            at = "created_at" if "created_at" in have else "NULL"
            rows = connection.execute(
                f"SELECT session_id, id, message_data, {at} FROM agent_messages"  # noqa: S608 - one of two names
                " ORDER BY session_id, id"
            )
            for session, those in groupby(rows, key=lambda row: str(row[0])):
                for turn in _turns(session, those, complain):
                    yield from _found(session, turn, complain)


class _Row(NamedTuple):
    number: int
    message: Mapping[str, object]
    at: datetime | None


def _turns(
    session: str, rows: Iterable[tuple[str, int, object, object]], complain: Complain
) -> Iterator[list[_Row]]:
    """Yield what belongs together: calls, their results and reasoning stand in several rows."""
    turn: list[_Row] = []
    for _, number, data, created in rows:
        try:
            message = json.loads(data if isinstance(data, str | bytes) else "")
        except (ValueError, RecursionError) as exc:
            complain(f"message {number} of session `{session}`", f"it is no JSON: {exc}")
            continue
        if not isinstance(message, Mapping):
            complain(f"message {number} of session `{session}`", "it is no JSON object")
            continue
        if message.get("role") in ("user", "system", "developer") and turn:
            yield turn
            turn = []
        turn.append(_Row(number, message, instant(created)))
    if turn:
        yield turn


def _found(session: str, turn: Sequence[_Row], complain: Complain) -> Iterator[Found]:
    whose = MemoryMetadata(session_id=session)
    try:
        items = from_messages([row.message for row in turn], "openai-responses", metadata=whose)
    except ValueError as exc:  # a message of no known shape, or one that no store can hold
        if len(turn) > 1:  # only what cannot be read is left out
            for row in turn:
                yield from _found(session, [row], complain)
        else:
            complain(f"message {turn[0].number} of session `{session}`", f"{exc}")
        return
    for place, item in enumerate(items):
        # Rows have whole seconds; their order is kept within them.
        at = turn[0].at and turn[0].at + timedelta(microseconds=turn[0].number + place)
        dated = item if at is None else _dated(item, at)
        yield Found(dated, compact([session, turn[0].number, place]))


def _dated(item: MemoryItem, at: datetime) -> MemoryItem:
    return item.model_copy(update={"created_at": at, "updated_at": at})
