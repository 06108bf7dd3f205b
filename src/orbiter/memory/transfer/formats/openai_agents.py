"""Sessions of the OpenAI Agents SDK in SQLite: `agent_messages`, a Responses item to a row."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import NamedTuple

from orbiter.memory.messages import from_messages
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.transfer.formats.foreign_items import Say, dated, read_each
from orbiter.memory.transfer.formats.foreign_values import (
    UNREADABLE,
    Record,
    as_object,
    compact,
    instant,
    later,
    reason,
)
from orbiter.memory.transfer.formats.importer import ReportProblem, SourceFile, SourceMemory
from orbiter.memory.transfer.formats.sqlite_file import has_table, opened, select

__all__ = ["OpenAIAgents"]

_MAX_NAME = 80
_TABLE = "agent_messages"
_COLUMNS = ("session_id", "id", "message_data")


class OpenAIAgents:
    """Each session is a conversation."""

    name = "openai-agents"
    label = "Sessions of the OpenAI Agents SDK, SQLite"
    owners_are_sessions = True

    def recognises(self, source: SourceFile, head: bytes) -> bool:
        """Tell by the table."""
        return has_table(source, head, _TABLE, _COLUMNS)

    def read(self, source: SourceFile, complain: ReportProblem) -> Iterator[SourceMemory]:
        """Yield the messages, session by session."""
        with opened(source) as connection:
            rows = select(
                connection, source, _TABLE, _COLUMNS, ("created_at",), order="session_id, id"
            )
            for session, those in groupby(rows, key=lambda row: str(row[0])):
                turns = _turns(source, session, those, complain)
                yield from read_each(turns, partial(_memories, session, complain), complain)


class _Row(NamedTuple):
    place: str
    number: object
    message: Record
    at: datetime | None


def _turns(
    source: SourceFile, session: str, rows: Iterable[tuple[object, ...]], complain: ReportProblem
) -> Iterator[tuple[str, list[_Row]]]:
    """Yield what belongs together: calls, their results and reasoning stand in several rows."""
    turn: list[_Row] = []
    for _, number, data, created in rows:
        place = f"message {str(number)[:_MAX_NAME]} of session `{session[:_MAX_NAME]}`"
        try:
            message = as_object(source.parsed(data, partial(complain, place)))
        except ValueError as exc:
            complain(place, f"{exc}")
            continue
        if not message:
            complain(place, "it is not a JSON object")
            continue
        if message.get("role") in ("user", "system", "developer") and turn:
            yield turn[0].place, turn
            turn = []
        turn.append(_Row(place, number, message, instant(created)))
    if turn:
        yield turn[0].place, turn


def _memories(
    session: str, complain: ReportProblem, turn: Sequence[_Row], say: Say
) -> Iterator[SourceMemory]:
    try:
        metadata = MemoryMetadata(session_id=session)
        items = from_messages([row.message for row in turn], "openai-responses", metadata=metadata)
    except UNREADABLE as exc:  # a message of no known shape, or one that no store can hold
        if len(turn) == 1:
            say(reason(exc))
        for row in turn if len(turn) > 1 else ():  # only what cannot be read is left out
            yield from _memories(session, complain, [row], partial(complain, row.place))
        return
    number, begin = turn[0].number, turn[0].at
    for part, item in enumerate(items):
        # Rows have whole seconds; their order is kept within them.
        at = begin and later(begin, part + (number if isinstance(number, int) else 0))
        own = number if isinstance(number, int) else str(number)
        yield SourceMemory(dated(item, at), compact([session, own, part]))
