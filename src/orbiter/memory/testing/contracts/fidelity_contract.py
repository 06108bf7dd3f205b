"""What comes back is what went in: every field, type, digit and code point, also after updates."""

import json
from datetime import timedelta
from typing import Any

import pytest

from orbiter.memory.model.items import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
    SystemMemory,
    ToolMemory,
    calls_of,
)
from orbiter.memory.model.protocols import MemoryStore
from orbiter.memory.model.serialization import load_item
from orbiter.memory.testing.contracts.base_contract import (
    START,
    Contract,
    KitNote,
    KitOrder,
    contents,
    of,
    person,
    stored,
    written,
)

__all__ = ["JSON_VALUES", "KINDS", "TEXTS", "FidelityContract"]

TEXTS = (
    "plain",
    " leading and trailing \n",
    "line\r\nends\rof\nall\u2028kinds\u2029",
    "right-to-left \u202e mark, joiner \u200d, byte order mark \ufeff",
    "e\u0301 is not \u00e9",
    "emoji 👩‍👩‍👧 and noncharacter \uffff",
    "quotes ' \" and ; -- DROP TABLE memory_items",
    "{braces} %s %(name)s {0.__class__}",
    "\x1b[31mred\x1b[0m \t\x01",
    "",
)

JSON_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, 1.0, -0.0, 0.1, 1e16, 1e300, 5e-324, 2**53 + 1, 2**63 - 1, -(2**63),
    "", "1", "null", "ß", [], {}, [None], {"": None}, [[], {}, [1, 1.0, "1"]], {"a": {"b": None}},
)  # fmt: skip
"""Values that JSON keeps apart and that databases, parsers and `if value:` run together."""

_CALLS = [
    {"id": "c2", "name": "f", "arguments": {"x": 1.5, "y": [True, "ü"]}},
    {"id": "c1", "type": "function", "function": {"name": "g", "arguments": '{"z": null}'}},
]


def _sample(kind: type[MemoryItem], **more: Any) -> MemoryItem:
    """Return an item with every common field set to something unusual."""
    return kind.model_validate(
        {
            "id": "one",
            "content": "new",
            "status": MemoryStatus.DRAFT,
            "metadata": MemoryMetadata(
                user_id="u", session_id="s", task_id="t", agent_id="a", extra={"deep": [{"k": 0}]}
            ),
            "native": {"anthropic": [{"type": "thinking", "thinking": "hm", "signature": "s"}]},
            "created_at": START,
            "updated_at": START + timedelta(days=2, microseconds=1),
            **more,
        }
    )


# Each kind with every field set, and with none.
KINDS: tuple[tuple[MemoryItem, MemoryItem], ...] = tuple(
    (full, type(full).model_validate({**bare, "id": "one", "content": "", "created_at": START}))
    for full, bare in (
        (_sample(SystemMemory), {}),
        (_sample(HumanMemory), {}),
        (_sample(AIMemory, tool_calls=_CALLS), {}),
        (_sample(ToolMemory, tool_call_id="c", tool_name="f", is_error=True), {}),
        (_sample(MemoryItem, memory_type="note"), {"memory_type": "note"}),
        (
            _sample(
                KitNote, mood="calm", scores=[0.5], due=START, deleted=True, extra_json="x", seq=7
            ),
            {"mood": ""},
        ),
    )
)


class FidelityContract(Contract):
    """Nothing is lost, cut, rounded or tidied up."""

    @pytest.mark.parametrize(("full", "bare"), KINDS, ids=lambda item: type(item).__name__)
    async def test_every_field_is_kept_and_changed_by_an_update(
        self, store: MemoryStore, full: MemoryItem, bare: MemoryItem
    ) -> None:
        for version, item in enumerate((full, bare, full, bare), start=1):
            kept = await stored(store, item)

            assert written(kept) == written(item.model_copy(update={"version": version}))
            if not isinstance(item, ToolMemory) and not calls_of(item):  # half a tool group
                assert await store.search(memory_type=item.memory_type) == [kept]

    async def test_an_update_may_change_the_kind(self, store: MemoryStore) -> None:
        for version, (item, _) in enumerate((*KINDS, *reversed(KINDS)), start=1):
            kept = await stored(store, item)

            assert written(kept) == written(item.model_copy(update={"version": version}))
        for item, _ in KINDS:
            found_by_type = await store.search(memory_type=item.memory_type)
            assert len(found_by_type) == (item.memory_type == KINDS[0][0].memory_type)

    @pytest.mark.parametrize("text", TEXTS, ids=ascii)
    async def test_text_is_kept_code_point_for_code_point(
        self, store: MemoryStore, text: str
    ) -> None:
        item = person(text, metadata=MemoryMetadata(user_id=f"u{text}", extra={"k": text}))

        assert written(await stored(store, item)) == written(item)
        assert contents(await store.search(metadata=of(f"u{text}"))) == [text]

    async def test_json_values_keep_their_type_and_every_digit(self, store: MemoryStore) -> None:
        values = {f"k{place}": value for place, value in enumerate(JSON_VALUES)}
        item = AIMemory(
            content="",
            metadata=MemoryMetadata(extra={**values, "list": list(JSON_VALUES)}),
            native={"openai": [values]},
            tool_calls=[{"id": "c", "name": "f", "arguments": values}],
        )

        kept = await stored(store, item)

        assert isinstance(kept, AIMemory)
        for was, now in (
            (item.metadata.extra, kept.metadata.extra),
            (item.native, kept.native),
            (item.tool_calls, kept.tool_calls),
        ):
            assert json.dumps(now, sort_keys=True) == json.dumps(was, sort_keys=True)

    async def test_the_longest_text_is_kept_whole(self, store: MemoryStore) -> None:
        end = " 👋 the very end"
        room = MemoryItem.max_content_bytes - len(end.encode())
        text = "0123456789abcdef" * (room // 16) + "x" * (room % 16) + end

        kept = await stored(store, person(text))

        assert len(kept.content) == len(text)
        assert kept.content == text
        if self.capabilities.text == "substring":
            assert [len(item.content) for item in await store.search(query="VERY END")] == [
                len(text)
            ]

    async def test_the_longest_ids_are_told_apart_to_the_last_character(
        self, store: MemoryStore
    ) -> None:
        # Letters that do not repeat: an index that compresses its keys must hold them too.
        long = "".join(chr(0x1F300 + place) for place in range(255))
        names = dict.fromkeys(self.capabilities.scope, long)
        for end in "ab":
            mine = MemoryMetadata.model_validate(dict.fromkeys(names, long + end))
            item = MemoryItem(
                id=long + end, memory_type=long + end, content=f"of {end}", metadata=mine
            )
            await store.add(item)

            assert written(await store.get(item.id)) == written(item)

        for end in "ab":
            assert contents(await store.search(memory_type=long + end)) == [f"of {end}"]
            for name in names:
                assert contents(await store.search(metadata=of(long + end, name))) == [f"of {end}"]
        assert await store.get(long) is None

    async def test_a_time_is_kept_to_the_microsecond(self, store: MemoryStore) -> None:
        for place, year in enumerate((1, 1969, 2025, 9999)):
            instant = START.replace(year=year, microsecond=999_999)
            item = HumanMemory(id=f"i{place}", content="", created_at=instant, updated_at=instant)

            assert written(await stored(store, item)) == written(item)

    async def test_a_subclass_comes_back_as_itself_from_search_too(
        self, store: MemoryStore
    ) -> None:
        note = KitNote(content="buy milk", mood="calm", scores=[1.0, 1e-9], due=START)

        assert type(await stored(store, note)) is KitNote
        (kept,) = await store.search(memory_type=note.memory_type)
        assert written(kept) == written(note)

    async def test_a_subclass_with_computed_fields_comes_back_as_itself(
        self, store: MemoryStore
    ) -> None:
        order = KitOrder(content="books", prices=[1.5, 2.0])
        read = KitOrder(content="pens", prices=[4.0])
        assert (order.total, read.label) == (3.5, "pens: 4.0")

        for item in (order, read):
            kept = await stored(store, item)
            assert type(kept) is KitOrder
            assert written(kept) == written(item)
            kept.prices = [9.0]
            await store.add(kept)
            again = await store.get(item.id)
            assert isinstance(again, KitOrder)
            assert (again.total, again.label) == (9.0, f"{item.content}: 9.0")

    async def test_a_kind_whose_class_is_not_imported_keeps_its_fields(
        self, store: MemoryStore
    ) -> None:
        record = {"memory_type": "orbiter.kit-unheard-of", "id": "one", "content": "soup"}
        first = load_item({**record, "recipe": {"salt": [1.0, None]}, "stars": 5})
        second = load_item({**record, "recipe": {"salt": []}, "cook": "ann"})

        assert written(await stored(store, first)) == written(first)
        kept = await stored(store, second)
        assert kept.model_extra == {"recipe": {"salt": []}, "cook": "ann"}
        assert await store.search(memory_type=first.memory_type) == [kept]

        assert kept.model_extra is not None
        kept.model_extra["recipe"]["salt"].append("changed")
        assert second.model_extra == (await stored(store, second)).model_extra
