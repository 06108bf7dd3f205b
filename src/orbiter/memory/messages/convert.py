"""Conversion between items and the messages of providers.

Pure functions. What `to_messages` returns is always legal: incomplete tool groups are left out or
completed, results stand behind their calls, ids and names are ones the provider accepts. What a
message holds beyond text and tool calls comes back untouched in the same format. Pictures and files
are sent in every format that has a form for them; what an item's `native` holds that no message of
its kind can is left out.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orbiter.memory.conversation.windows import (
    RESPONSES,
    OpenGroup,
    Unit,
    newest_first,
    speaks,
    walk_units,
)
from orbiter.memory.errors import MessageError
from orbiter.memory.messages import _anthropic, _gemini, _openai_chat, _openai_responses
from orbiter.memory.messages._common import must_be_object
from orbiter.memory.messages._open_calls import OpenCalls
from orbiter.memory.messages._parts import translated
from orbiter.memory.messages.codec import FORMATS, Codec, Format, Message, Problem, check_format
from orbiter.memory.messages.frameworks import to_bedrock, to_langchain, to_pydantic_ai
from orbiter.memory.model.display import Sheet, TableList
from orbiter.memory.model.items import AIMemory, MemoryItem, MemoryMetadata, SystemMemory, role_of

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage
    from pydantic_ai.messages import ModelMessage

__all__ = [
    "ProviderMessages",
    "codec_for",
    "codecs",
    "from_messages",
    "read_on",
    "to_messages",
    "validate",
]

_CODECS: dict[Format, Codec] = {
    "openai": _openai_chat,
    "openai-responses": _openai_responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
}
"""The registry, in the order of `FORMATS`."""


def codecs() -> Mapping[Format, Codec]:
    """Return every codec by its name."""
    return _CODECS


def codec_for(format: Format) -> Codec:
    """Return the codec of that name, or raise `MessageError`."""
    return _CODECS[format if format in FORMATS else check_format(format)]


class ProviderMessages(TableList[Message]):
    """A conversation in one provider's shape: the list of messages that its client takes.

    `system` is the system text where the provider wants it outside the messages, else `""`. It is
    equal to any list of the same messages, whatever its `system`. *source* is what it was written
    from: a framework's messages are made from that, for as long as the list is not changed.
    """

    def __init__(
        self,
        format: Format,
        messages: Iterable[Message] = (),
        system: str = "",
        *,
        source: Sequence[MemoryItem] = (),
    ) -> None:
        super().__init__(messages)
        self.format = format
        self.system = system
        self._source = list(source)

    __str__ = __repr__ = list.__repr__  # it is read as what is sent

    @property
    def messages(self) -> list[Message]:
        """The messages: this list itself."""
        return self

    def as_kwargs(self) -> dict[str, Any]:
        """Return the keyword arguments of the provider's own call, ready for `**`.

        For Gemini: `contents` and `config`, as `client.models.generate_content` takes them.
        """
        return codec_for(self.format).as_kwargs(list(self), self.system)

    def as_bedrock(self) -> dict[str, Any]:
        """Return the arguments of Bedrock's `client.converse`, ready for `**`."""
        return to_bedrock(self._items())

    def as_langchain(self) -> "list[BaseMessage]":
        """Return the messages of LangChain, which must be installed."""
        return to_langchain(self._items())

    def as_pydantic_ai(self) -> "list[ModelMessage]":
        """Return the messages of Pydantic AI, which must be installed."""
        return to_pydantic_ai(self._items())

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the messages as plain dicts."""
        return [dict(message) for message in self]

    def _columns(self) -> list[str]:
        return ["role", "content"]

    def _sheet(self) -> Sheet:
        rows = [("system", self.system)] if self.system else []
        rows += [_as_row(message) for message in self]
        count = "1 message" if len(self) == 1 else f"{len(self)} messages"
        return Sheet(("role", "content"), rows, f"{count}, format {self.format}")

    def _items(self) -> list[MemoryItem]:
        """Return the items that it was written from, unless it was changed since."""
        if self._source and to_messages(self._source, self.format, open_group="keep") == self:
            return self._source
        return from_messages(self, self.format, system=self.system)


def _as_row(message: Message) -> tuple[str, str]:
    """Return who speaks, and what: a text as it is, all else as JSON."""
    role = str(message.get("role") or message.get("type") or "")
    content = message.get("content")
    if isinstance(content, str) and content:
        return role, content
    rest = {name: value for name, value in message.items() if name != "role" and value}
    return role, json.dumps(rest, ensure_ascii=False, default=repr)


def to_messages(
    items: Sequence[MemoryItem], format: Format, *, open_group: OpenGroup = "drop"
) -> ProviderMessages:
    """Return *items* as messages the provider accepts, in order.

    There is at most one system message, at the beginning; neighbours of one role are joined; the
    user speaks first. Items of kinds that take no part in a conversation are left out.
    """
    codec = codec_for(format)
    walk = walk_units(newest_first(items), open_group)
    whole = [unit for _, unit in walk][::-1]
    units = [[translated(item, format) for item in _with_one_head(unit)] for unit in whole]
    units = [unit for unit in units if not _says_nothing(unit[0], format)]
    system = ""
    if codec.SYSTEM_OUTSIDE:
        system = "\n\n".join(i.content for i in items if role_of(i) == "system" and i.content)
    source = [item for unit in whole for item in unit]
    return ProviderMessages(format, codec.arrange(codec.encode(units)), system, source=source)


def _says_nothing(item: MemoryItem, format: Format) -> bool:
    """Tell whether a turn of the model held only what another provider does, such as a search."""
    is_foreign = bool(item.native) and format not in item.native
    return is_foreign and isinstance(item, AIMemory) and not (item.content or item.tool_calls)


def _with_one_head(unit: Unit) -> Unit:
    """Return a unit whose turn of the model is one item, though it came as several."""
    heads = [item for item in unit if isinstance(item, AIMemory)]
    if len(heads) < 2:
        return unit
    entries = [entry for head in heads for entry in head.native[RESPONSES]]
    one = AIMemory.model_construct(
        id=heads[0].id,
        content="\n".join(head.content for head in heads if speaks(head)),
        tool_calls=[call for head in heads for call in head.tool_calls],
        native={RESPONSES: entries},
        metadata=heads[0].metadata,
        created_at=heads[0].created_at,
        updated_at=heads[0].updated_at,
    )
    return [one, *unit[len(heads) :]]


def from_messages(
    messages: Sequence[Mapping[str, Any]],
    format: Format,
    *,
    system: str = "",
    metadata: MemoryMetadata | None = None,
    after: Sequence[MemoryItem] = (),
) -> list[MemoryItem]:
    """Return the items that *messages* hold, in order; `MessageError` names one it cannot read.

    A call without an id gets one; a result without one answers the first open call of its name.
    *after* are the items that come before them, whose open calls they may answer.
    """
    return read_on(messages, format, OpenCalls(after), system=system, metadata=metadata)


def read_on(
    messages: Sequence[Mapping[str, Any]],
    format: Format,
    open_calls: OpenCalls,
    *,
    system: str = "",
    metadata: MemoryMetadata | None = None,
) -> list[MemoryItem]:
    """Do the work of `from_messages` where the open calls are known; they are kept up to date."""
    codec = codec_for(format)
    if isinstance(messages, Mapping | str) or not isinstance(messages, Iterable):
        raise MessageError("one message was given where a list is needed; write [message]")
    objects = [must_be_object(message, index, "it") for index, message in enumerate(messages)]
    scope = metadata or MemoryMetadata()
    first = [SystemMemory(content=system, metadata=scope)] if system else []
    return [*first, *codec.decode(objects, scope, open_calls)]


def validate(messages: Sequence[Mapping[str, Any]], format: Format) -> list[Problem]:
    """Return what the provider would refuse in *messages*; an empty list means legal.

    They are judged as a history that a further user turn may follow, so none at all is legal.
    """
    codec = codec_for(format)
    values = _listed(messages)
    broken = [index for index, message in enumerate(values) if not isinstance(message, Mapping)]
    objects = [message if isinstance(message, Mapping) else {} for message in values]
    problems = [Problem(index, "it is not an object") for index in broken]
    problems += [problem for problem in codec.check(objects) if problem.index not in broken]
    return sorted(problems, key=lambda problem: problem.index)


def _listed(messages: object) -> list[object]:
    return list(messages) if isinstance(messages, Iterable) else [messages]
