"""Sessions of the OpenAI Agents SDK in SQLite: `agent_messages`, a Responses item to a row."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import NamedTuple

from orbiter.memory.errors import TransferError
from orbiter.memory.messages import from_messages
from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.transfer.formats.importer import ReportProblem, SourceFile, SourceMemory
from orbiter.memory.transfer.formats.json_helpers import (
    UNREADABLE,
    compact,
    instant,
    later,
    reason,
    safely,
)
from orbiter.memory.transfer.formats.sqlite_file import SQLITE, columns, opened
from orbiter.memory.transfer.io.archives import Limits
from orbiter.memory.transfer.io.json_stream import parsed_text

__all__ = ["OpenAIAgents"]

_MAX_NAME = 80
_COLUMNS = {"id", "session_id", "message_data"}


class OpenAIAgents:
    """Each session is a conversation."""

    name = "openai-agents"
    label = "Sessions of the OpenAI Agents SDK, SQLite"
    owners_are_sessions = True

    def recognises(self, source: SourceFile, head: bytes) -> bool:
        """Tell by the table."""
        if not head.startswith(SQLITE):
            return False
        with opened(source) as connection:
            return columns(connection, "agent_messages") >= _COLUMNS

    def read(self, source: SourceFile, complain: ReportProblem) -> Iterator[SourceMemory]:
        """Yield the messages, session by session."""
        with opened(source) as connection:
            have = columns(connection, "agent_messages")
            if not have >= _COLUMNS:
                raise TransferError(f"`{source.name}` has no table `agent_messages`")
            at = "created_at" if "created_at" in have else "NULL"
            rows = connection.execute(
                f"SELECT session_id, id, message_data, {at} FROM agent_messages"  # noqa: S608 - one of two names
                " ORDER BY session_id, id"
            )
            for session, those in groupby(rows, key=lambda row: str(row[0])):
                make = partial(MemoryMetadata, session_id=session)
                metadata = safely(make, complain, f"session `{session[:_MAX_NAME]}`")
                if metadata is not None:
                    for turn in _turns(session[:_MAX_NAME], those, source.limits, complain):
                        yield from _source_memories(metadata, turn, complain)


class _Row(NamedTuple):
    number: object
    message: Mapping[str, object]
    at: datetime | None


def _turns(
    session: str,
    rows: Iterable[tuple[str, object, object, object]],
    limits: Limits,
    complain: ReportProblem,
) -> Iterator[list[_Row]]:
    """Yield what belongs together: calls, their results and reasoning stand in several rows."""
    turn: list[_Row] = []
    for _, number, data, created in rows:
        place = f"message {str(number)[:_MAX_NAME]} of session `{session}`"
        try:
            message = parsed_text(data, place, limits, complain)
        except ValueError as exc:
            complain(place, f"{exc}")
            continue
        if not isinstance(message, Mapping):
            complain(place, "it is not a JSON object")
            continue
        if message.get("role") in ("user", "system", "developer") and turn:
            yield turn
            turn = []
        turn.append(_Row(number, message, instant(created)))
    if turn:
        yield turn


def _source_memories(
    metadata: MemoryMetadata, turn: Sequence[_Row], complain: ReportProblem
) -> Iterator[SourceMemory]:
    session = str(metadata.session_id)
    try:
        items = from_messages([row.message for row in turn], "openai-responses", metadata=metadata)
    except UNREADABLE as exc:  # a message of no known shape, or one that no store can hold
        if len(turn) > 1:  # only what cannot be read is left out
            for row in turn:
                yield from _source_memories(metadata, [row], complain)
        else:
            place = f"message {str(turn[0].number)[:_MAX_NAME]} of session `{session[:_MAX_NAME]}`"
            complain(place, reason(exc))
        return
    number = turn[0].number
    for part, item in enumerate(items):
        # Rows have whole seconds; their order is kept within them.
        at = turn[0].at and later(turn[0].at, part + (number if isinstance(number, int) else 0))
        dated = item if at is None else _dated(item, at)
        own = number if isinstance(number, int) else str(number)
        yield SourceMemory(dated, compact([session, own, part]))


def _dated(item: MemoryItem, at: datetime) -> MemoryItem:
    return item.model_copy(update={"created_at": at, "updated_at": at})
