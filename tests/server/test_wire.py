"""Every call is a request of its own; every value and error crosses whole."""

import copy
import inspect
import json
import pickle
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import jsonschema_rs
import pytest
from pydantic import ValidationError
from tests.rows import each_row

from orbiter.memory import agent, errors
from orbiter.memory.agent import AgentMemory, Page
from orbiter.memory.errors import QueryError
from orbiter.memory.messages import FORMATS
from orbiter.memory.model.items import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
    ToolMemory,
)
from orbiter.memory.model.serialization import load_item
from orbiter.memory.model.trust import Trust
from orbiter.memory.recall import RecallResult
from orbiter.memory.testing import HashEmbeddings
from orbiter.memory.wire import (
    OPERATIONS,
    REST_ONLY,
    TARGET_PARAMS,
    Operation,
    Target,
    dump_error,
    load_error,
    operations_of,
    write_call,
)
from orbiter.memory.wire.calls import load_param, load_text, parse
from orbiter.memory.wire.operations import HANDLES

NOT_CALLED = {
    "memory": {"init", "close", "backup", "restore"},
    "scope": {"evaluate"},
    "kv": {"put", "get", "delete"},
}
"""What a server does by itself, and what is made of several calls."""


class Recipe(MemoryItem):
    """A kind of item with a field of its own."""

    memory_type: str = "wire-recipe"
    serves: int = 2


# The calls


def test_every_call_of_a_handle_is_a_request(subtests: pytest.Subtests) -> None:
    for target, name in HANDLES.items():
        members = inspect.getmembers(getattr(agent, name), inspect.iscoroutinefunction)
        public = {name for name, _ in members if not name.startswith("_")}
        with subtests.test(target):
            assert operations_of(target).keys() == public - NOT_CALLED.get(target, set())


def test_no_two_calls_are_the_same_request_and_each_path_names_what_it_needs() -> None:
    every = (*OPERATIONS, *REST_ONLY)

    assert len({(each.verb, each.path) for each in every}) == len(every)
    for each in every:
        params = (*TARGET_PARAMS[each.target], *each.params)
        named = [p.wire_name for p in params if p.place == "path"]
        assert named == [part[1:-1] for part in each.path.split("/") if part.startswith("{")]
        assert not (each.verb == "GET" and any(p.place == "body" for p in params))
        assert each.role != "read" or each.verb in ("GET", "POST")
        assert not (each.verb == "GET" and each.role == "write")


# Values


def crossed(operation: Operation, value: Any) -> Any:
    """Return *value* after it went over the wire; what went is what the schema says."""
    sent = operation.returns.dump(value)
    text = json.dumps(sent, allow_nan=False)
    jsonschema_rs.validator_for(operation.returns.schema()).validate(json.loads(text))
    return operation.returns.load(json.loads(text))


async def _answers(memory: AgentMemory) -> dict[str, Any]:
    """Return what every call answers, in a scope where there is something to tell."""
    handle = memory.scope(user_id="ann", by="tester")
    found: dict[str, Any] = {}

    async def call(target: Target, of: Any, name: str, *given: Any, **named: Any) -> Any:
        made = operations_of(target)[name].id
        found[made] = await getattr(of, name)(*given, **named)
        return found[made]

    end = timedelta(days=1)
    first = await call("scope", handle, "remember", "Ann likes tea", tags=["a"], expires=end)
    recipe = Recipe(content="pancakes with tea", serves=4, metadata=MemoryMetadata(extra={"n": 1}))
    await call("scope", handle, "remember_many", ["Ann likes tea", recipe])
    await call("scope", handle, "update", first.id, "Ann likes green tea", importance=0.5)
    await call("scope", handle, "get", recipe.id)
    await call("scope", handle, "list", limit=2)
    await call("scope", handle, "stats")
    await call("scope", handle, "count_by", "tags")
    await call("memory", memory, "users", limit=1)
    await call("scope", handle, "duplicates")
    await call("scope", handle, "evict", max_items=1, dry_run=True)
    chat = handle.chat("c/1")
    await call("chat", chat, "add", ["what tea?", *_tool_group()])
    await call("chat", chat, "items")
    await call("chat", chat, "messages", format="anthropic")
    await call("chat", chat, "fork", found["chat.add"][0], chat_id="c/2")
    await call("chat", chat, "summary")
    await call("chat", chat, "summarize")
    await call("scope", handle, "chats")
    await _ask_facts(call, handle)
    await call(
        "scope", handle, "recall", "which city, Bonn or Rome, and what tea?", k=5, explain=True
    )
    await call("chat", chat, "context", "where does Ann live?", budget=600)
    await call("scope", handle, "forget", query="pancakes")
    await call("scope", handle, "restore", recipe.id)
    await call("scope", handle, "history", recipe.id)
    await handle.remember("bad news", source="web:example.com")
    await call("scope", handle, "quarantine", "web")
    await call("scope", handle, "release", "web")
    await call("scope", handle, "undo", "web", dry_run=True)
    past = handle.as_of(datetime.now(UTC))
    await call("past", past, "list")
    await call("past", past, "get", first.id)
    await call("past", past, "recall", "tea")
    for name in ("all", "keys", "conflicts", "drafts"):
        await call("past_facts", past.facts, name)
    await call("past_facts", past.facts, "get", "city")
    await call("past_facts", past.facts, "history", "city")
    await call("memory", memory, "flush")
    for name in ("stats", "verify", "reindex"):
        await call("memory", memory, name)
    await call("audit", memory.audit, "entries", limit=1_000)
    await call("audit", memory.audit, "verify")
    await call("audit", memory.audit, "head")
    await _ask_entries(call, handle.kv)
    await call("memory", memory, "erase", user_id="ann")
    return found


async def _ask_entries(call: Any, entries: agent.KeyValue) -> None:
    lasting, over = agent.Put(("a", "b"), "k", b"\0\xff"), agent.Put(("a",), "k", b"", 60.0, 0)
    await call("kv", entries, "write", [lasting, over, agent.Delete(("a",), "none")])
    await call("kv", entries, "get_many", [(("a", "b"), "k"), (("a",), "none")])
    await call("kv", entries, "touch", [(("a",), "k")])
    await call("kv", entries, "list", ("a",), contains="k", limit=1)
    await call("kv", entries, "paths")
    await call("kv", entries, "append", ("log",), [b"1", b"2"], ttl=timedelta(hours=1))
    await call("kv", entries, "pop", ("log",))
    await call("kv", entries, "clear", ("log",))


async def _ask_facts(call: Any, handle: Any) -> None:
    facts = handle.facts
    await call("facts", facts, "put", "city", "Rome", valid_from=datetime(2020, 1, 1, tzinfo=UTC))
    await call("facts", facts, "put", "city", {"name": "Bonn"}, source="web:example.com")
    said = await handle.remember("I moved to Kiel")
    for value, name in (("Kiel", "accept"), ("Köln", "discard")):
        draft = await call("facts", facts, "propose", "home", value, source=said)
        await call("facts", facts, name, draft.id)
    await facts.propose("pet", "dog", source=said)
    for name in ("all", "keys", "conflicts", "drafts"):
        await call("facts", facts, name)
    await call("facts", facts, "get", "city")
    await call("facts", facts, "history", "city")
    other = await facts.put("car", "red")
    await call("facts", facts, "retract", other.id)
    await facts.put("car", "blue")
    await call("facts", facts, "end", "car")
    await call("facts", facts, "revert", "car")


def _tool_group() -> list[MemoryItem]:
    call = {"id": "t1", "type": "function", "function": {"name": "shop", "arguments": "{}"}}
    return [
        AIMemory(content="", tool_calls=[call]),
        ToolMemory(content="green", tool_call_id="t1", tool_name="shop"),
    ]


async def test_whatever_a_call_returns_is_the_same_on_the_other_side() -> None:
    async with AgentMemory(
        "memory://", embeddings=HashEmbeddings(), summaries=None, audit="all"
    ) as memory:
        found = await _answers(memory)

    assert found.keys() == {each.id for each in OPERATIONS}, "a call that is not tried here"
    for operation in OPERATIONS:
        value, again = found[operation.id], crossed(operation, found[operation.id])
        if operation.id == "chat.fork":
            assert again == value.id
            continue
        assert again == value, operation.id
        assert type(again) is type(value), operation.id
        assert bool(again) == bool(value), operation.id
        if operation.id != "chat.context":  # whose items were never checked, and so differ there
            assert repr(again) == repr(value), operation.id
        if isinstance(value, RecallResult):
            # It counts everyone's memories, so a server says it to no key that holds one user.
            assert again.unembedded is None
            again.unembedded = value.unembedded
        if isinstance(value, Page | RecallResult):
            assert vars(again) == vars(value), operation.id
    recall = operations_of("scope")["recall"]
    _check_recalled(found["scope.recall"], crossed(recall, found["scope.recall"]))
    context = found["chat.context"]
    again = crossed(operations_of("chat")["context"], context)
    for form in FORMATS:
        assert again.messages(form) == context.messages(form)


def _check_recalled(found: RecallResult, again: RecallResult) -> None:
    assert str(again) == str(found)
    assert again.left_out == found.left_out
    assert [str(hit) for hit in again] == [str(hit) for hit in found]
    assert [f"{hit.why}" for hit in again] == [f"{hit.why}" for hit in found]
    assert [hit.shown for hit in again] == [hit.shown for hit in found]
    assert any(hit.span is not None for hit in found), "no fact was found, so nothing is shown"


def test_what_an_earlier_server_did_not_send_is_as_if_there_were_none() -> None:
    sent = {"score": 1.0, "why": [], "repeats": [], "passage": "", "span": None}
    hit = {"item": {"content": "tea"}, **sent}
    fields = {"mode": "hybrid", "considered": 1, "left_out": [], "question": "tea?"}

    found = operations_of("scope")["recall"].returns.load({"hits": [hit], **fields})
    page = operations_of("scope")["list"].returns.load({"items": [], "next": None})

    assert (found[0].relevance, found[0].replaced_by, found.reranking) == (0.0, None, None)
    assert page.ended == {}


def test_a_kind_that_one_side_does_not_know_keeps_all_its_fields() -> None:
    get, remember = operations_of("scope")["get"], operations_of("scope")["remember"]
    sent = {**get.returns.dump(HumanMemory(content="x")), "memory_type": "nowhere", "own": [1]}

    there = load_param(remember.params[0], sent)
    back = get.returns.load(json.loads(json.dumps(get.returns.dump(there))))

    assert back == there
    assert back.own == [1]


@each_row(
    "given",
    [
        {"memory_type": "human", "content": 5},
        {"memory_type": "human", "content": "x", "own": 1},
        {"memory_type": "human"},
        {"memory_type": "fact", "key": " ", "value": 1},
        {"memory_type": 5, "content": "x"},
    ],
)
def test_an_item_that_its_own_class_refuses_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        load_param(operations_of("scope")["remember"].params[0], given)


# Arguments


def arguments(operation: Operation, **given: Any) -> dict[str, Any]:
    """Return *given* after it went over the wire as the arguments of a call."""
    call = write_call(operation, given)
    body = parse(json.dumps(call.body or {}))
    found = {}
    for param in operation.params:
        if param.place == "body" and param.name in body:
            found[param.name] = load_param(param, body[param.name])
        elif param.place == "query" and param.wire_name in call.query:
            found[param.name] = load_text(param, call.query[param.wire_name])
        elif param.place == "header" and param.wire_name in call.headers:
            found[param.name] = load_text(param, call.headers[param.wire_name])
    return found


class Sdk:
    """A message as a provider's client returns it."""

    def model_dump(self, *, exclude_none: bool = False) -> dict[str, Any]:
        """Return its fields."""
        return {"role": "assistant", "content": "hi", "parts": ({"x": 1},)}


def test_arguments_come_as_they_were_given() -> None:
    scope = operations_of("scope")
    noon = datetime(2024, 5, 31, 14, 0, tzinfo=timezone(timedelta(hours=2)))
    asked = {
        "query": "true",
        "where": {"created_at": {"$gte": noon}, "n": {"$in": (1, 2)}},
        "status": MemoryStatus.DRAFT,
        "since": noon,
        "until": datetime(2024, 6, 1),  # noqa: DTZ001 - taken as UTC, as by a call without a server
        "forgotten": True,
        "limit": 7,
        "cursor": "ü/&=",
    }

    listed = arguments(scope["list"], **asked)

    assert listed == {
        **asked,
        "where": {"created_at": {"$gte": "2024-05-31T12:00:00.000000+00:00"}, "n": {"$in": [1, 2]}},
        "until": datetime(2024, 6, 1, tzinfo=UTC),
    }
    item = Recipe(content="x", serves=9)
    for what in ("text", item, {"role": "user", "content": "x"}):
        assert arguments(scope["remember"], what=what)["what"] == what
    assert arguments(scope["remember"], what=Sdk())["what"]["parts"] == [{"x": 1}]
    for expires in (timedelta(hours=1.5), noon, "never"):
        assert arguments(scope["update"], item_id="i", expires=expires)["expires"] == expires
    assert arguments(scope["update"], item_id="i", expected_version=3)["expected_version"] == 3
    assert arguments(scope["recall"], min_trust=Trust.TOOL)["min_trust"] is Trust.TOOL
    assert arguments(operations_of("facts")["put"], key="k", value=None) == {"value": None}
    assert arguments(operations_of("facts")["put"], key="k", value=1, source=[item])["source"] == [
        item
    ]


def test_a_path_holds_any_id_as_one_segment() -> None:
    for item_id, segment in (("a/b", "a%2Fb"), ("..", "%2E%2E"), ("ü?#", "%C3%BC%3F%23")):
        call = write_call(operations_of("scope")["get"], {"item_id": item_id})
        assert call.path == f"memories/{segment}"
    with pytest.raises(QueryError, match="item_id"):
        write_call(operations_of("scope")["get"], {"item_id": ""})


@each_row(
    ("call", "given", "words"),
    [
        ("remember", {"what": object()}, "cannot be stored"),
        ("remember", {"what": {"role": "user", "content": float("nan")}}, "`what` cannot be sent"),
        ("remember_many", {"things": "x"}, "takes a list"),
        ("update", {"item_id": "i", "expected_version": "3"}, "expected_version|If-Match"),
    ],
)
def test_what_cannot_be_sent_is_refused_by_name(
    call: str, given: dict[str, Any], words: str
) -> None:
    with pytest.raises(QueryError, match=words):
        write_call(operations_of("scope")[call], given)


@each_row(
    ("name", "sent"),
    [
        ("created_at", "31 May 2024"),
        ("created_at", "2024-5"),
        ("created_at", 5),
        ("created_at", "9999-12-31T23:59:59-14:00"),
        ("importance", "1"),
        ("importance", True),
        ("tags", "a"),
        ("tags", [1]),
        ("source", "\ud800"),
        ("expires", []),
        ("expires", 1e300),
        ("extra", 5),
        ("what", 5),
    ],
)
def test_what_is_not_what_it_must_be_is_refused_by_name(name: str, sent: object) -> None:
    remember = operations_of("scope")["remember"]
    param = next(each for each in remember.params if each.name == name)

    with pytest.raises(QueryError, match=f"`{name}`"):
        load_param(param, sent)


@pytest.mark.parametrize("name", ["created_at", "expires"])
@each_row(
    ("sent", "hour"),
    [("2024-05-31", 0), ("2024-05-31T12:00", 12), ("2024-05-31T14:00:00+02:00", 12)],
)
def test_a_time_is_read_as_in_python(name: str, sent: str, hour: int) -> None:
    remember = operations_of("scope")["remember"]
    param = next(each for each in remember.params if each.name == name)

    assert load_param(param, sent) == datetime(2024, 5, 31, hour, tzinfo=UTC)


@each_row("sent", ["other", None, 3, []])
def test_a_format_that_is_none_is_refused_as_in_a_call(sent: object) -> None:
    param = operations_of("chat")["messages"].params[0]

    for way in (param.codec.load, param.codec.dump):
        with pytest.raises(errors.MessageError, match="unknown format"):
            way(sent)


@each_row("value", [{1: 2}, {"a": {1}}, {"a": b"x"}, {"a": float("nan")}, object()])
def test_a_value_that_no_fact_can_have_is_refused(value: object) -> None:
    with pytest.raises(QueryError, match="`value`"):
        write_call(operations_of("facts")["put"], {"key": "k", "value": value})


def test_errors_are_the_same_after_a_process_and_after_the_wire() -> None:
    for error in (
        errors.VersionConflict("i", expected=2, found=3),
        errors.ItemNotFoundError("i"),
        errors.StatusError("draft", "gone"),
        errors.EmbeddingsMismatchError("s", stored=("m", 3), given=("n", 4)),
        errors.StorageError("broken"),
        errors.QueryError("odd"),
    ):
        for one in (error, load_error(*dump_error(error))):
            again = pickle.loads(pickle.dumps(one))
            assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(one))
            assert str(copy.copy(one)) == str(error)


# Errors


def _raised() -> list[Exception]:
    special = {
        "ScopeError": errors.ScopeError("x"),
        "StatusError": errors.StatusError("draft", "new"),
        "EmptyFilterError": errors.EmptyFilterError(),
        "EmbeddingsMismatchError": errors.EmbeddingsMismatchError(
            "s", stored=("a", 3), given=("b", 4)
        ),
        "SoulError": errors.SoulError("SOUL.md", 3, "no"),
        "ItemNotFoundError": errors.ItemNotFoundError("i"),
        "SummaryError": errors.SummaryError("t", ValueError("v")),
        "NotInitializedError": errors.NotInitializedError("s"),
        "VersionConflict": errors.VersionConflict("i", expected=1, found=2),
    }
    return [special.get(name) or getattr(errors, name)("words ü") for name in errors.__all__]


@each_row("error", _raised(), ids=lambda error: type(error).__name__)
def test_an_error_is_raised_again_as_it_was(error: Exception) -> None:
    status, problem = dump_error(error)

    again = load_error(status, json.loads(json.dumps(problem)))

    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
    assert problem["status"] == status >= 400
    assert problem["type"].endswith(type(error).__name__)


@each_row("given", [{"content": 5}, {"content": "\0"}, {}, {"content": "x", "no": 1}])
def test_a_refused_item_is_told_field_by_field(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        HumanMemory(**given)
    status, problem = dump_error(caught.value)

    again = load_error(status, json.loads(json.dumps(problem)))

    assert isinstance(again, ValidationError)
    assert str(again) == str(caught.value)
    assert status == 422


def test_an_error_of_anybody_else_tells_nothing() -> None:
    status, problem = dump_error(KeyError("secret"))

    assert status == 500
    assert "secret" not in json.dumps(problem)
    assert isinstance(load_error(status, problem), errors.MemoryConnectionError)


@each_row(
    ("status", "kind"),
    [
        (401, errors.AccessError),
        (413, errors.QueryError),
        (429, errors.MemoryConnectionError),
        (504, errors.MemoryTimeoutError),
        (502, errors.MemoryConnectionError),
    ],
)
def test_a_problem_of_no_class_of_ours_is_told_by_its_status(status: int, kind: type) -> None:
    assert type(load_error(status, {"type": "about:blank", "detail": "no"})) is kind
    assert load_item({"content": "x"}).content == "x"
