"""OpenAI Responses: calls and results are entries of their own, beside messages.

A call needs its output and an output its call, of the same kind; a reasoning entry stays with
what follows it. Whatever the model's side holds besides (searches, server tools, references) is
one turn with it and goes back as it came.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from orbiter.memory.conversation.windows import Unit
from orbiter.memory.errors import MessageError
from orbiter.memory.messages._common import (
    IMAGE,
    OPENING,
    WireIds,
    block_types,
    build,
    joined_content,
    joined_text,
    joined_turns,
    json_text,
    kept,
    keys_of,
    legal_name,
    list_faults,
    must_be,
    must_be_blocks,
    must_be_objects,
    objects_in,
    printed_text,
    same_calls,
    sound,
    text_block,
    text_or_none,
    type_of,
    with_text,
)
from orbiter.memory.messages._open_calls import OpenCalls
from orbiter.memory.messages.codec import Answer, Message, Problem
from orbiter.memory.model.items import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    SystemMemory,
    ToolMemory,
    calls_of,
    result_id,
    role_of,
)
from orbiter.memory.model.tool_calls import call_id, call_json, call_name

LABEL = "OpenAI Responses"
SYSTEM_OUTSIDE = False
HAS_CALL_IDS = True
NEEDS_ROLE = False

# Calls that we answer. Others, such as a web search, are answered by the server itself.
_CALLS = frozenset(
    ("function_call", "custom_tool_call", "computer_call", "shell_call", "apply_patch_call")
)
# Their arguments and results are text; the others have shapes of their own.
_PLAIN_CALLS = frozenset(("function_call", "custom_tool_call"))
# What a developer can say besides messages.
_SETTINGS = frozenset(("additional_tools", "configuration_update"))
_OTHERS = frozenset(("message", "reasoning", "item_reference", "compaction", "program"))
_WORDS = frozenset(("content", "contents", "text", "data", "blocks"))
_CALL_KEYS = frozenset(("type", "id", "call_id", "status", "name"))
_SPEAKERS = ("system", "developer", "user", "assistant")
_BLOCKS = frozenset(("input_text", "output_text", "input_image", "input_file"))
_ROLES = {"system": "system", "human": "user", "ai": "assistant"}


def encode(units: Iterable[Unit]) -> list[Message]:
    """Return the input entries of whole *units*, oldest first."""
    ids = WireIds(r"[\s\S]", 64)
    entries: list[Message] = []
    for unit in units:
        head = unit[0]
        role = role_of(head)
        if role == "ai":
            wire = ids.name_calls(calls_of(head))
            entries += _group(head, unit[1:], wire)
        elif role is not None:
            entries.append(_message(head, role))
    return entries


def arrange(messages: Sequence[Message]) -> list[Message]:
    """Return *messages* with one system message, first, and with neighbours joined.

    Of the model's entries those are joined that are texts and nothing else: others have ids.
    """
    systems = [entry for entry in messages if _is_of_system(entry)]
    others = [entry for entry in messages if not _is_of_system(entry)]
    turns = joined_turns(others, _joined)
    first = next((place for place, entry in enumerate(turns) if not is_setting(entry)), None)
    if first is not None and _begins_talk(turns[first]):
        turns.insert(first, {"role": "user", "content": OPENING})
    said = [entry for entry in joined_turns(systems, _joined) if entry.get("content")]
    return [*said, *turns]


def _is_of_system(entry: Mapping[str, Any]) -> bool:
    return is_message(entry) and entry.get("role") in ("system", "developer")


def _begins_talk(entry: Mapping[str, Any]) -> bool:
    """Tell whether the model speaks in an entry, and not for a past that the provider has."""
    return is_assistant(entry) and kind_of(entry) not in ("item_reference", "compaction")


def _joined(first: Message, second: Message) -> Message | None:
    """Return two messages as one, if one side says both."""
    if not (is_message(first) and is_message(second)):
        return None
    is_system = _is_of_system(first) and _is_of_system(second)
    if not is_system and first.get("role") != second.get("role"):
        return None
    one, two = first.get("content"), second.get("content")
    if first.get("role") == "assistant" and not (_is_text(first) and _is_text(second)):
        return None
    return {**first, "content": joined_content(one, two, "input_text")}


def _is_text(entry: Mapping[str, Any]) -> bool:
    return entry.keys() == {"role", "content"} and isinstance(entry["content"], str)


def _message(item: MemoryItem, role: str) -> Message:
    entry = _first(item) or {"type": ""}
    if is_setting(entry) and role == "system" and not item.content and not any(faults(entry)):
        return entry
    if not is_message(entry):
        return {"role": _ROLES[role], "content": item.content}
    is_developer = role == "system" and entry.get("role") == "developer"
    entry["role"] = "developer" if is_developer else _ROLES[role]
    return _said(entry, {"type": "input_text", "text": item.content})


def _first(item: MemoryItem) -> Message | None:
    """Return the entry that an item kept which was made from one."""
    return next(iter(objects_in(kept(item, "openai-responses", list)[:1])), None)


def _said(entry: Message, block: Message) -> Message:
    """Return a message entry that says *block*, with its pictures and keys as they were."""
    content, text = entry.get("content"), block["text"]
    if isinstance(content, list):
        return {**entry, "content": with_text(sound(content), text, block) or text}
    return {**entry, "content": text}


def _group(
    head: MemoryItem, results: Sequence[MemoryItem], wire: Mapping[str, str]
) -> list[Message]:
    """Return a turn of the model and what its calls returned."""
    calls = calls_of(head)
    raw = kept(head, "openai-responses", list)
    turn = [entry for entry in objects_in(raw) if is_assistant(entry) and not any(faults(entry))]
    is_whole = len(turn) == len(raw) and same_calls(turn_calls(turn), calls)
    answers = {result_id(item): item for item in results}
    outputs = {result_id(item): _kept_output(item) for item in results}
    if not is_whole or not all(
        _is_answered_in_kind(call, answers.get(call["call_id"]), outputs.get(call["call_id"]))
        for call in filter(is_call, turn)
    ):
        # Entries refer to each other by id; without all of the old ones, none can stay.
        turn = [_plain_call(call) for call in calls]
    entries = _turn(turn, head.content, wire)
    kinds = {entry["call_id"]: entry["type"] for entry in filter(is_call, turn)}
    written = (_output(item, outputs[id], kinds[id], wire[id]) for id, item in answers.items())
    return [*entries, *written]


def _kept_output(item: MemoryItem) -> Message | None:
    entry = _first(item) or {}
    return entry if is_output(entry) and not any(faults(entry)) else None


def _is_answered_in_kind(call: Message, item: MemoryItem | None, output: Message | None) -> bool:
    """Tell whether what the tool said can be sent as an output of the call's own kind."""
    is_plain = call["type"] in _PLAIN_CALLS
    if item is None:
        return True  # an open call, kept open
    if output is None:
        return is_plain
    is_of_kind = output["type"] == f"{call['type']}_output"
    return is_of_kind and (is_plain or _says(output, item.content))


def _turn(raw: Sequence[Message], text: str, wire: Mapping[str, str]) -> list[Message]:
    entries = [_named(entry, wire) if is_call(entry) else entry for entry in raw]
    if turn_text(raw) != text or not entries:
        entries = _with_message(entries, text)
    while entries and kind_of(entries[-1]) == "reasoning":
        entries.pop()  # refused without what it led to
    lost = set(_without_reasoning(entries))
    return [
        {key: value for key, value in entry.items() if place not in lost or key != "id"}
        for place, entry in enumerate(entries)
    ]


def _without_reasoning(entries: Iterable[Mapping[str, Any]]) -> Iterator[int]:
    """Yield the places of calls whose id says that they have a reasoning entry, which is not there.

    OpenAI looks such a call up by its id, and refuses it alone; without the id, it is any call.
    """
    has_reason = False
    for place, entry in enumerate(entries):
        kind, id = kind_of(entry), entry.get("id")
        if not is_assistant(entry):
            has_reason = False
        elif kind in ("reasoning", "item_reference"):
            has_reason = True
        elif kind == "function_call" and not has_reason and str(id).startswith("fc_"):
            yield place


def _named(entry: Message, wire: Mapping[str, str]) -> Message:
    named = {**entry, "call_id": wire[entry["call_id"]]}
    if "name" in entry or entry["type"] in _PLAIN_CALLS:
        named["name"] = legal_name(entry.get("name"))
    return named


def _with_message(entries: Sequence[Message], text: str) -> list[Message]:
    """Return the turn saying *text*: in its own message entry, or before its first call."""
    places = [place for place, entry in enumerate(entries) if is_message(entry)]
    if places:
        block = {"type": "output_text", "text": text, "annotations": []}
        said = [_said(entries[places[0]], block)]
        return [
            new
            for place, entry in enumerate(entries)
            for new in (said if place == places[0] else [] if place in places else [entry])
        ]
    if not text and entries:
        return list(entries)
    first_call = next((p for p, entry in enumerate(entries) if is_call(entry)), len(entries))
    return [*entries[:first_call], {"role": "assistant", "content": text}, *entries[first_call:]]


def _plain_call(call: Mapping[str, Any]) -> Message:
    return {
        "type": "function_call",
        "call_id": call_id(call),
        "name": call_name(call),
        "arguments": call_json(call),
    }


def _output(item: MemoryItem, raw: Message | None, kind: str, id: str) -> Message:
    if raw is None or raw["type"] != f"{kind}_output":
        return {"type": f"{kind}_output", "call_id": id, "output": item.content}
    entry = {**raw, "call_id": id}
    if _says(entry, item.content):
        return entry
    output: str | list[Message] = item.content
    if isinstance(entry["output"], list):
        text = {"type": "input_text", "text": item.content}
        output = with_text(entry["output"], item.content, text) or item.content
    return {**entry, "output": output}


def decode(
    messages: Sequence[Mapping[str, Any]], metadata: MemoryMetadata, open_calls: OpenCalls
) -> Iterator[MemoryItem]:
    """Yield items; the entries of one turn of the model become one item."""
    turn: list[Message] = []
    start = 0
    for index, entry in enumerate(messages):
        if not kind_of(entry) or is_foreign(entry):
            raise MessageError(f"message {index}: {next(faults(entry))}")
        if is_assistant(entry):
            if turn and _starts_turn(entry, turn):
                yield _read_turn(turn, start, metadata)
                turn = []
            start = start if turn else index
            turn.append(_opened(entry, index, open_calls))
            continue
        if turn:
            yield _read_turn(turn, start, metadata)
            turn = []
        open_calls.speak()
        yield _read_entry(entry, index, open_calls, metadata)
    if turn:
        yield _read_turn(turn, start, metadata)


def _opened(entry: Mapping[str, Any], index: int, open_calls: OpenCalls) -> Message:
    """Return an entry of the model's turn; a call has an id and waits for its output."""
    if kind_of(entry) not in _CALLS:
        return dict(entry)
    id = text_or_none(entry.get("call_id"), index, "`call_id`")
    name = str(entry.get("name", entry["type"]))
    (call,) = open_calls.open([{"id": id, "name": name, "arguments": entry.get("arguments")}])
    return {**entry, "call_id": call["id"]}


def _read_entry(
    entry: Mapping[str, Any], index: int, open_calls: OpenCalls, metadata: MemoryMetadata
) -> MemoryItem:
    fields: dict[str, Any] = {"metadata": metadata}
    if is_output(entry):
        id, name = open_calls.answer(
            entry.get("call_id"), entry.get("name"), index=index, field="`call_id`"
        )
        entry = {**entry, "call_id": id}
        fields |= {"tool_call_id": id, "tool_name": name}
        if isinstance(entry.get("output"), list):
            is_plain = kind_of(entry).removesuffix("_output") in _PLAIN_CALLS
            (must_be_blocks if is_plain else must_be_objects)(entry["output"], index, "`output`")
        text = output_text(entry)
        is_plain = entry == {"type": "function_call_output", "call_id": id, "output": text}
        fields |= {"native": {} if is_plain else {"openai-responses": [dict(entry)]}}
        return build(ToolMemory, index, content=text, **fields)
    role, content = entry.get("role"), entry.get("content")
    if is_setting(entry):
        native = {"openai-responses": [dict(entry)]}
        return build(SystemMemory, index, content="", native=native, **fields)
    if isinstance(content, list):
        text = joined_text(must_be_blocks(content, index, "`content`"))
    else:
        text = must_be(content, str, index, "`content`")
    is_plain = entry == {"role": role, "content": text} and role != "developer"
    fields |= {"native": {} if is_plain else {"openai-responses": [dict(entry)]}}
    if role in ("system", "developer"):
        return build(SystemMemory, index, content=text, **fields)
    if role == "user":
        return build(HumanMemory, index, content=text, **fields)
    raise MessageError(
        f"message {index}: unknown role {role!r}; use `system`, `developer`, `user` or `assistant`"
    )


def _read_turn(turn: list[Message], index: int, metadata: MemoryMetadata) -> AIMemory:
    for place, entry in enumerate(turn):
        if is_message(entry) and not isinstance(entry.get("content"), str):
            must_be_blocks(entry.get("content"), index + place, "`content`")
    calls = turn_calls(turn)
    fields: dict[str, Any] = {
        "content": turn_text(turn),
        "tool_calls": calls,
        "metadata": metadata,
    }
    item = build(AIMemory, index, **fields)
    plain = _turn(
        [_plain_call(call) for call in calls], item.content, {call_id(c): call_id(c) for c in calls}
    )
    if plain == turn and not calls:
        return item
    # Calls keep their entries, also plain ones: so it shows which came in one turn, one by one.
    return build(AIMemory, index, native={"openai-responses": turn}, **fields)


def _starts_turn(entry: Mapping[str, Any], turn: Sequence[Mapping[str, Any]]) -> bool:
    # Within one turn the model thinks, speaks at most once, then calls; a call keeps it open.
    if any(map(is_call, turn)):
        return False
    return any(map(is_message, turn)) and not is_call(entry)


def check(messages: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    """Yield what OpenAI would refuse."""
    open_calls: dict[str, tuple[int, str]] = {}
    seen: set[str] = set()
    for index, entry in enumerate(messages):
        if index and kind_of(messages[index - 1]) == "reasoning" and not is_assistant(entry):
            yield Problem(index - 1, "reasoning without the entry it led to")
        for reason in faults(entry):
            yield Problem(index, reason)
        kind, id = kind_of(entry), str(entry.get("call_id"))
        if is_call(entry):
            yield from _check_call(index, entry, seen)
            seen.add(id)
            open_calls[id] = index, f"{kind}_output"
        elif is_output(entry):
            _, wanted = open_calls.pop(id, (0, None))
            if wanted != kind:
                yield Problem(index, f"`{kind}` of `{id}` has no call of its kind before it")
    for id, (index, _) in open_calls.items():
        yield Problem(index, f"no output for call `{id}`")
    for index in _without_reasoning(messages):
        id = messages[index]["id"]
        yield Problem(index, f"call `{id}` without its reasoning entry before it; leave out its id")
    if messages and kind_of(messages[-1]) == "reasoning":
        yield Problem(len(messages) - 1, "reasoning without the entry it led to")


def _check_call(index: int, entry: Mapping[str, Any], seen: set[str]) -> Iterator[Problem]:
    id, name = entry["call_id"], entry.get("name")
    if not 0 < len(id) <= 64:
        yield Problem(index, f"call id {id!r} must have 1 to 64 characters")
    if id in seen:
        yield Problem(index, f"call id `{id}` is used twice")
    if entry["type"] in _PLAIN_CALLS and name != legal_name(name):
        yield Problem(index, f"tool name {name!r} must match [A-Za-z0-9_-]{{1,64}}")


def kind_of(entry: Mapping[str, Any]) -> str:
    """Return the entry's type; a message needs to name none, and `""` is none at all."""
    return "message" if entry.get("type") is None else type_of(entry)


def is_known(entry: Mapping[str, Any]) -> bool:
    """Tell whether the entry is of a kind that OpenAI has, or names like one of its tools."""
    kind = kind_of(entry)
    is_named = kind.endswith(("_call", "_output")) or kind.startswith("mcp_")
    return is_named or kind in _OTHERS or kind in _SETTINGS


def is_foreign(entry: Mapping[str, Any]) -> bool:
    """Tell whether the entry is somebody's words in a shape that is not OpenAI's.

    An unknown kind that is not may be new: it goes back with the model's turn as it came.
    """
    return not is_known(entry) and bool(entry.keys() & _WORDS)


def is_call(entry: Mapping[str, Any]) -> bool:
    """Tell whether we must answer the entry, and can."""
    return kind_of(entry) in _CALLS and isinstance(entry.get("call_id"), str)


def is_output(entry: Mapping[str, Any]) -> bool:
    """Tell whether the entry answers one of the calls that are ours to answer."""
    kind = kind_of(entry)
    return kind.endswith("_output") and kind.removesuffix("_output") in _CALLS


def is_message(entry: Mapping[str, Any]) -> bool:
    """Tell whether somebody speaks in the entry."""
    return kind_of(entry) == "message"


def is_setting(entry: Mapping[str, Any]) -> bool:
    """Tell whether the entry is a developer's, and no message."""
    return kind_of(entry) in _SETTINGS


def is_assistant(entry: Mapping[str, Any]) -> bool:
    """Tell whether the entry is part of the model's turn."""
    if is_message(entry):
        return entry.get("role") == "assistant"
    return not is_output(entry) and not is_setting(entry)


def turn_text(turn: Iterable[Mapping[str, Any]]) -> str:
    """Return what the model says in a turn, one line per text."""
    texts = (entry.get("content") for entry in turn if is_message(entry))
    return "\n".join(t if isinstance(t, str) else joined_text(t or ()) for t in texts)


def turn_calls(turn: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the calls of a turn that are ours to answer, in our own shape."""
    calls = []
    for entry in filter(is_call, turn):
        said = {key: value for key, value in entry.items() if key not in _CALL_KEYS}
        if entry["type"] in _PLAIN_CALLS:
            said = entry.get("arguments", entry.get("input", {}))
        name = entry.get("name", entry["type"])
        calls.append({"id": entry["call_id"], "name": name, "arguments": said})
    return calls


def output_text(entry: Mapping[str, Any]) -> str:
    """Return the result that an output entry holds, as text."""
    output = entry.get("output")
    if output is None or isinstance(output, str):
        return output or ""
    if isinstance(output, Mapping) and type_of(output) == "computer_screenshot":
        return IMAGE
    read = printed_text if kind_of(entry) == "shell_call_output" else text_block
    return joined_text(output, read) if isinstance(output, list) else json_text(output)


def _says(entry: Mapping[str, Any], text: str) -> bool:
    """Tell whether an output says *text*, or did when screenshots were stored as text."""
    return text in (output_text(entry), json_text(entry.get("output")))


def faults(entry: Mapping[str, Any]) -> Iterator[str]:
    """Yield why OpenAI would refuse the entry, whatever stands around it.

    Ids and names are not judged: they are replaced on the way out where need be.
    """
    kind, id = kind_of(entry), entry.get("call_id")
    if not kind:
        yield f"unknown type {entry.get('type')!r}"
    elif is_foreign(entry):
        yield f"unknown type `{kind}`"
    role = entry.get("role")
    others = (None, "developer" if is_setting(entry) else "assistant")
    if role not in (_SPEAKERS if kind == "message" else others):
        yield f"unknown role {role!r}"
    if kind == "message" and not isinstance(content := entry.get("content"), str):
        yield from list_faults(content, "content")
    if (kind in _CALLS or is_output(entry)) and not isinstance(id, str):
        yield f"`{kind}` needs a call id, not {id!r}"
    if kind in _PLAIN_CALLS:
        key = "arguments" if kind == "function_call" else "input"
        if not isinstance(entry.get(key), str):
            yield f"`{key}` of call `{id}` must be a string"
    if is_output(entry):
        yield from _output_faults(kind.removesuffix("_output"), entry.get("output"))


def _output_faults(call: str, output: object) -> Iterator[str]:
    if call in _PLAIN_CALLS and not isinstance(output, str):
        yield from list_faults(output, "output")
    if call == "shell_call":
        yield from list_faults(output, "output", lambda _: None)
    if call == "computer_call" and not isinstance(output, Mapping):
        yield "the output of a computer call must be an object"
    if call == "apply_patch_call" and not isinstance(output, str | None):
        yield "the output of a patch must be a string"


def claims(message: Mapping[str, object]) -> bool:
    """Tell whether *message* has a type, or blocks, as entries have; unknown ones are refused."""
    if not block_types(message) & _BLOCKS and not isinstance(message.get("type"), str):
        return False
    if not is_known(message):
        raise MessageError(
            f"message 0: a message of type `{message['type']}`, with the keys "
            f"{keys_of(message)}, does not belong to a known provider; give it as "
            "{'role': …, 'content': …}, or set `format=`"
        )
    return True


def unwrap(answer: Mapping[str, Any]) -> Answer | None:
    """Return the entries of a response."""
    output = answer.get("output")
    return [*objects_in(output)] if isinstance(output, list) else None


def as_kwargs(messages: list[Message], system: str) -> dict[str, Any]:  # noqa: ARG001
    """Return the arguments of `client.responses.create`."""
    return {"input": messages}
