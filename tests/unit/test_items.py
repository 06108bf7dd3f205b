import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise, permutations
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.rows import each_row

from orbiter.memory import base
from orbiter.memory.errors import InvalidItemError, ItemTypeError, MemoryError
from orbiter.memory.model.copying import copy_item, item_of_text, scope_of_ids, validated_copy
from orbiter.memory.model.items import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
    SystemMemory,
    ToolMemory,
    new_id,
    role_of,
)
from orbiter.memory.model.serialization import dump_item, load_item
from orbiter.memory.model.tool_calls import ToolCall

DRAFT, ACCEPTED, DISCARD = MemoryStatus.DRAFT, MemoryStatus.ACCEPTED, MemoryStatus.DISCARD


class Remark(MemoryItem):
    memory_type: str = "test-remark"
    mood: str
    seen: datetime | None = None


def test_the_defaults_are_those_of_the_contract() -> None:
    item = HumanMemory(content="hi")

    assert (item.memory_type, item.status, item.version) == ("human", ACCEPTED, 1)
    assert item.metadata == MemoryMetadata()
    assert item.created_at == item.updated_at
    assert item.created_at.tzinfo is UTC
    assert MemoryMetadata().model_dump() == {
        "user_id": None,
        "session_id": None,
        "task_id": None,
        "agent_id": None,
        "extra": {},
    }


def test_each_kind_has_its_type_and_fields() -> None:
    assert [kind(content="").memory_type for kind in (SystemMemory, HumanMemory, AIMemory)] == [
        "system",
        "human",
        "ai",
    ]
    assert AIMemory(content="").tool_calls == []
    tool = ToolMemory(content="")
    assert (tool.memory_type, tool.tool_call_id, tool.tool_name) == ("tool", "", "")
    assert tool.is_error is False


def test_an_id_is_32_hex_digits_in_the_order_made() -> None:
    ids = [new_id() for _ in range(20_000)]

    assert all(len(id) == 32 and int(id, 16) >= 0 for id in ids)
    assert all(left < right for left, right in pairwise(ids))
    assert {id[12] for id in ids} == {"7"}
    assert {id[16] for id in ids} <= set("89ab")


def test_forked_processes_make_different_ids() -> None:
    code = (
        "import os; from orbiter.memory.model.items import new_id; new_id(); r, w = os.pipe()\n"
        "if os.fork() == 0: os.write(w, new_id().encode()); os._exit(0)\n"
        "print(new_id() != os.read(r, 32).decode())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "True"


@each_row(("old", "new"), list(permutations(MemoryStatus, 2)))
def test_only_three_status_moves_are_allowed(old: MemoryStatus, new: MemoryStatus) -> None:
    item = HumanMemory(content="hi", status=old)
    before = item.updated_at

    if (old, new) in {(DRAFT, ACCEPTED), (DRAFT, DISCARD), (ACCEPTED, DISCARD)}:
        item.transition(new)
        assert item.status is new
        assert item.updated_at > before
    else:
        with pytest.raises(MemoryError, match=f"`{old}` to `{new}`"):
            item.transition(new)
        assert (item.status, item.updated_at) == (old, before)


@pytest.mark.parametrize("status", MemoryStatus)
def test_moving_to_the_same_status_is_no_move(status: MemoryStatus) -> None:
    with pytest.raises(ValueError, match="allowed"):
        HumanMemory(content="hi", status=status).transition(status)


@each_row(
    ("given", "instant"),
    [
        (datetime(2025, 1, 1, 12), datetime(2025, 1, 1, 12, tzinfo=UTC)),  # noqa: DTZ001 - naive is UTC
        ("2025-01-01T12:00:00", datetime(2025, 1, 1, 12, tzinfo=UTC)),
        ("2025-01-01T12:00:00Z", datetime(2025, 1, 1, 12, tzinfo=UTC)),
        ("2025-01-01T21:00:00+09:00", datetime(2025, 1, 1, 12, tzinfo=UTC)),
        (
            datetime(2025, 1, 1, 7, tzinfo=timezone(timedelta(hours=-5))),
            datetime(2025, 1, 1, 12, tzinfo=UTC),
        ),
        ("0001-01-01", datetime.min.replace(tzinfo=UTC)),
        ("9999-12-31T23:59:59.999999", datetime.max.replace(tzinfo=UTC)),
    ],
)
def test_times_are_kept_in_utc(given: Any, instant: datetime) -> None:
    item = HumanMemory(content="hi", created_at=given)

    assert item.created_at == instant
    assert item.created_at.utcoffset() == timedelta(0)


def test_times_as_text_have_one_width_and_sort_like_times() -> None:
    times = [datetime(2025, 1, 1, tzinfo=UTC) + timedelta(microseconds=m) for m in (0, 1, 10**6)]
    texts = [dump_item(HumanMemory(content="", created_at=t))["created_at"] for t in times]

    assert texts[0] == "2025-01-01T00:00:00.000000+00:00"
    assert texts == sorted(texts)
    assert len({len(text) for text in texts}) == 1


def test_a_time_beyond_the_calendar_is_refused() -> None:
    early = datetime.min.replace(tzinfo=timezone(timedelta(hours=3)))

    with pytest.raises(ValidationError, match="years 1 to 9999"):
        HumanMemory(content="", created_at=early)


@each_row(
    ("fields", "told"),
    [
        ({"content": "ab\0c"}, r"content\n.*U\+0000 at position 2"),
        ({"content": "ab\ud800c"}, r"content\n.*surrogate U\+D800 at position 2"),
        ({"content": "x" * (2**20 + 1)}, r"content\n.*1,048,577 bytes.*at most 1,048,576"),
        ({"content": "ü" * 2**19 + "x"}, r"content\n.*1,048,577 bytes"),
        ({"content": 7}, "content\n"),
        ({"content": b"hi"}, "content\n"),
        ({}, "content\n"),
        ({"content": "", "id": ""}, r"id\n.*empty"),
        ({"content": "", "id": "x" * 257}, r"id\n.*257 characters, at most 256"),
        ({"content": "", "id": "a\0"}, r"id\n.*position 1"),
        ({"content": "", "metadata": {"user_id": "al\0ice"}}, r"user_id\n.*position 2"),
        ({"content": "", "metadata": {"user_id": 7}}, "user_id\n"),
        ({"content": "", "metadata": {"usr_id": "x"}}, "usr_id\n.*not permitted"),
        ({"content": "", "metdata": {}}, "metdata\n.*not permitted"),
        ({"content": "", "metadata": {"extra": {"a": [1, float("nan")]}}}, r"at `a\[1\]`: nan"),
        ({"content": "", "metadata": {"extra": {"a": float("-inf")}}}, "at `a`: -inf"),
        ({"content": "", "metadata": {"extra": {"a": {"b": (1,)}}}}, "at `a.b`: `tuple`"),
        ({"content": "", "metadata": {"extra": {"a": {1, 2}}}}, "at `a`: `set`"),
        ({"content": "", "metadata": {"extra": {"a": b"x"}}}, "at `a`: `bytes`"),
        ({"content": "", "metadata": {"extra": {"a": 2**63}}}, "at `a`: integer beyond 64 bits"),
        ({"content": "", "metadata": {"extra": {"a": {1: 2}}}}, "at `a`: key 1 is not a string"),
        ({"content": "", "metadata": {"extra": {"a": "x\0"}}}, r"at `a`: U\+0000 at position 1"),
        ({"content": "", "metadata": {"extra": {"a": "\udfff"}}}, r"at `a`: lone surrogate"),
        ({"content": "", "metadata": {"extra": {"k\0": 1}}}, r"U\+0000 at position 1"),
        ({"content": "", "metadata": {"extra": {"a": "x" * 2**21}}}, "at `a`: .*bytes"),
        ({"content": "", "metadata": {"extra": {"a": ["x" * 999] * 2000}}}, "bytes of JSON"),
        ({"content": "", "metadata": {"extra": "no"}}, "extra\n"),
    ],
)
def test_what_no_store_can_hold_is_refused_by_field_and_position(
    fields: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValidationError, match=told) as caught:
        HumanMemory(**fields)

    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("depth", [32, 33, 100_000])
def test_json_nests_at_most_32_deep(depth: int) -> None:
    deep: Any = 1
    for _ in range(depth - 1):
        deep = [deep]

    if depth == 32:
        assert MemoryMetadata(extra={"a": deep}).extra == {"a": deep}
    else:
        with pytest.raises(ValidationError, match="deeper than 32"):
            MemoryMetadata(extra={"a": deep})


@pytest.mark.parametrize("calls", [[{"id": "c", "arguments": {"x": float("nan")}}], ["x"], "x"])
def test_tool_calls_are_checked_too(calls: Any) -> None:
    with pytest.raises(ValidationError, match="tool_calls"):
        AIMemory(content="", tool_calls=calls)


def test_setting_a_field_checks_it_and_touches_the_time() -> None:
    item = HumanMemory(content="hi", created_at="2025-01-01")
    before = item.updated_at

    with pytest.raises(ValidationError, match="position 0"):
        item.content = "\0"
    assert (item.content, item.updated_at) == ("hi", before)

    item.content = "ho"
    assert item.updated_at > before
    assert item.created_at == before


def test_metadata_is_frozen_and_keeps_no_tie_to_what_it_was_made_from() -> None:
    extra = {"a": [1]}
    metadata = MemoryMetadata(user_id="u", extra=extra)
    extra["a"].append(2)

    assert metadata.extra == {"a": [1]}
    with pytest.raises(ValidationError, match="frozen"):
        metadata.user_id = "v"  # type: ignore[misc]  # the mistake under test


def test_a_kind_cannot_pass_for_another() -> None:
    with pytest.raises(ValidationError, match="`HumanMemory` is always `human`, not `ai`"):
        HumanMemory(content="", memory_type="ai")


def test_a_subclass_may_allow_longer_content() -> None:
    class Book(MemoryItem):
        memory_type: str = "test-book"
        max_content_bytes: ClassVar[int] = 2**21

    assert len(Book(content="x" * 2**21).content) == 2**21


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_any_text_is_kept_exactly(text: str) -> None:
    item = HumanMemory(content=text, metadata=MemoryMetadata(extra={"k": text}))

    assert load_item(json.loads(json.dumps(dump_item(item)))) == item
    assert item.content == text


def test_a_users_class_comes_back_as_itself() -> None:
    remark = Remark(content="c", mood="calm", seen=datetime(2025, 1, 1, tzinfo=UTC))

    back = load_item(json.loads(json.dumps(dump_item(remark))))

    assert type(back) is Remark
    assert back == remark


def test_an_unknown_class_keeps_all_its_fields() -> None:
    record = {**dump_item(Remark(content="c", mood="calm")), "memory_type": "test-not-imported"}

    item = load_item(record)

    assert isinstance(item, MemoryItem)
    assert item.memory_type == "test-not-imported"
    assert dump_item(item) == record
    assert dump_item(copy_item(item)) == record


def test_a_class_without_a_type_of_its_own_is_refused_with_the_cure() -> None:
    with pytest.raises(ItemTypeError, match='memory_type: str = "shout"'):

        class Shout(HumanMemory):
            volume: int = 11


def test_a_taken_type_is_refused() -> None:
    with pytest.raises(TypeError, match=r"`human`, which is .*HumanMemory"):

        class Impostor(MemoryItem):
            memory_type: str = "human"


def test_a_class_made_anew_replaces_its_former_self() -> None:
    for _ in range(2):

        class Cell(MemoryItem):
            memory_type: str = "test-cell"

    assert type(load_item(dump_item(Cell(content="")))) is Cell


def test_a_base_class_need_not_be_registered() -> None:
    class Base(HumanMemory):
        registered: ClassVar[bool] = False
        tone: str = "flat"

    class Shout(Base):
        memory_type: str = "test-shout"

    assert role_of(Shout(content="")) == "human"


@pytest.mark.parametrize(
    ("item", "role"),
    [
        (HumanMemory(content=""), "human"),
        (MemoryItem(content="", memory_type="human"), "human"),
        (MemoryItem(content="", memory_type="note"), None),
        (Remark(content="", mood=""), None),
    ],
)
def test_an_item_has_a_role_or_none(item: MemoryItem, role: str | None) -> None:
    assert role_of(item) == role


def test_a_copy_shares_nothing_that_can_change() -> None:
    item = AIMemory(
        content="x",
        tool_calls=[{"id": "c", "arguments": {"a": [1]}}],
        metadata=MemoryMetadata(extra={"k": [1]}),
        native={"gemini": [{"text": "x"}]},
    )
    twin = copy_item(item)
    assert twin == item

    assert isinstance(twin, AIMemory)
    twin.tool_calls[0]["arguments"]["a"].append(2)
    twin.metadata.extra["k"].append(2)
    twin.native["gemini"][0]["text"] = "y"
    twin.content = "y"

    assert item.tool_calls == [{"id": "c", "arguments": {"a": [1]}}]
    assert item.metadata.extra == {"k": [1]}
    assert item.native == {"gemini": [{"text": "x"}]}
    assert "content" in twin.model_fields_set


def test_a_users_own_field_is_checked_on_the_way_into_a_store() -> None:
    class Gauge(MemoryItem):
        memory_type: str = "test-gauge"
        value: float

    with pytest.raises(MemoryError, match=r"value"):
        validated_copy(Gauge(content="", value=float("nan")))


@each_row(
    "update",
    [
        {"content": "a\0b"},
        {"content": "\ud800"},
        {"content": 7},
        {"id": ""},
        {"status": "nope"},
        {"created_at": "never"},
        {"version": 0},
        {"metadata": {"user_id": "a\0"}},
        {"metadata": MemoryMetadata().model_copy(update={"user_id": 7})},
        {"native": {"x": object()}},
        {"memory_type": "ai"},
    ],
)
def test_a_store_refuses_what_was_slipped_past_the_checks(update: dict[str, Any]) -> None:
    spoilt = HumanMemory(content="hi").model_copy(update=update)

    with pytest.raises(InvalidItemError, match="cannot be stored"):
        validated_copy(spoilt)


def test_a_store_takes_a_naive_time_as_utc() -> None:
    naive = datetime(2025, 1, 1)  # noqa: DTZ001 - the case under test
    item = HumanMemory(content="hi").model_copy(update={"created_at": naive})

    note = MemoryItem(content="hi").model_copy(update={"created_at": naive})

    assert validated_copy(item).created_at == naive.replace(tzinfo=UTC)
    assert validated_copy(note).created_at == naive.replace(tzinfo=UTC)


def test_a_plain_item_that_names_a_known_kind_becomes_one() -> None:
    taken = validated_copy(MemoryItem(content="hi", memory_type="human"))

    assert type(taken) is HumanMemory
    with pytest.raises(InvalidItemError, match="Remark|test-remark|mood|come back"):
        validated_copy(MemoryItem(content="hi", memory_type="test-remark"))


def test_a_kind_that_would_not_come_back_is_refused() -> None:
    class Loose(MemoryItem):
        memory_type: str = "test-loose"
        value: Any = None

    class Unregistered(HumanMemory):
        registered: ClassVar[bool] = False
        tone: str = "flat"

    assert validated_copy(Loose(content="", value={"a": [1.5, None]})).model_dump()["value"] == {
        "a": [1.5, None]
    }
    for value in (float("nan"), (1, 2), {1: 2}):
        with pytest.raises(InvalidItemError, match="value"):
            validated_copy(Loose(content="", value=value))
    with pytest.raises(InvalidItemError, match="`Unregistered` would come back"):
        validated_copy(Unregistered(content="hi"))


def test_a_record_its_class_no_longer_accepts_stays_readable() -> None:
    record = {**dump_item(Remark(content="c", mood="calm")), "colour": "red"}

    item = load_item(record)

    assert item.content == "c"
    assert dump_item(item) == record


def test_the_size_of_json_is_that_of_its_bytes() -> None:
    with pytest.raises(ValidationError, match="bytes"):
        MemoryMetadata(extra={"a": ["ü" * 1000] * 600})


def test_an_answer_of_openai_without_text_can_be_kept_as_it_is() -> None:
    item = AIMemory(content=None, tool_calls=None)  # as the API sends it

    assert (item.content, item.tool_calls) == ("", [])
    with pytest.raises(ValidationError, match="content"):
        HumanMemory(content=None)  # a person says something


@pytest.mark.parametrize(
    "call",
    [
        {"id": "c", "name": "add", "arguments": {"x": 1}},
        {"id": "c", "name": "add", "arguments": '{"x": 1}'},
        {"id": "c", "name": "add", "args": {"x": 1}},
        {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"x": 1}'}},
    ],
)
def test_calls_are_read_in_any_shape(call: dict[str, Any]) -> None:
    assert AIMemory(content="", tool_calls=[call]).calls == [ToolCall("add", {"x": 1}, "c")]


def test_base_offers_every_word_of_floor_zero() -> None:
    for name in ("MemoryItem", "MemoryMetadata", "MemoryStatus", "MemoryError", "MemoryStore"):
        assert hasattr(base, name)
    assert base.__all__ == sorted(base.__all__)


@pytest.mark.parametrize("kind", [MemoryItem, HumanMemory])
def test_an_item_of_a_text_is_what_its_class_makes_of_it(
    kind: type[MemoryItem] | type[HumanMemory],
) -> None:
    who = MemoryMetadata(user_id="ann")
    quick, made = (
        item_of_text(kind, "Likes oolong.", who),
        kind(content="Likes oolong.", metadata=who),
    )
    own = {"id": "one", "created_at": made.created_at, "updated_at": made.created_at}
    assert quick.created_at == quick.updated_at
    assert quick.model_copy(update=own) == made.model_copy(update=own)
    assert quick.model_fields_set == made.model_fields_set
    assert list(vars(quick)) == list(vars(made))
    quick.content = "Likes sencha."  # which is checked, as of any other
    assert quick.updated_at > quick.created_at


@pytest.mark.parametrize("text", ["\ud800", "a\0b", "x" * (2**20 + 1)])
def test_an_item_of_a_text_that_no_store_keeps_is_refused(text: str) -> None:
    with pytest.raises(InvalidItemError) as quick:
        item_of_text(MemoryItem, text, MemoryMetadata())
    with pytest.raises(ValidationError) as made:
        MemoryItem(content=text)
    assert str(quick.value).partition(": ")[2] in str(made.value)


_IDS = {"user_id": "ann", "session_id": None, "task_id": "", "agent_id": "x" * 1024}


@pytest.mark.parametrize("ids", [{}, {"session_id": "ü"}, _IDS])
def test_a_scope_of_ids_is_made_as_any_other(ids: dict[str, str | None]) -> None:
    quick, made = scope_of_ids(ids), MemoryMetadata.model_validate(ids)

    assert quick == made
    assert quick.model_fields_set == made.model_fields_set
    assert list(vars(quick)) == list(vars(made))
    with pytest.raises(ValidationError):
        quick.user_id = "ben"  # type: ignore[misc]


@pytest.mark.parametrize("value", ["\ud800", "a\0b", "x" * 1025, 7])
def test_a_scope_of_ids_that_no_store_keeps_is_refused(value: Any) -> None:
    with pytest.raises(ValidationError) as quick:
        scope_of_ids({"user_id": value})
    with pytest.raises(ValidationError) as made:
        MemoryMetadata(user_id=value)
    assert str(quick.value) == str(made.value)
