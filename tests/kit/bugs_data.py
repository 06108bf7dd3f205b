"""Bugs for a copy of `JournalStore` that lose or spoil what is stored."""

from tests.kit.bugs import Bug

_UPDATE = "item.__dict__.update(version=old.version + 1, created_at=old.created_at)"
_LOAD = "item = load_item(dumped)"
_LOAD_DISCARDED = (
    "was_cleared = dumped['id'] in self.__dict__.get('gone', ())\n"
    "            item = load_item({**dumped, 'status': 'discard'} if was_cleared else dumped)"
)
_APPLY = "        self._apply(record)\n"
_GET = "return None if item is None else copy_item(item)"


def _update_keeps(field: str) -> Bug:
    return Bug(
        "every_field_is_kept_and_changed",
        _UPDATE,
        f"{_UPDATE}\n"
        f"                if {field!r} in item.__dict__ and {field!r} in old.__dict__:\n"
        f"                    item.__dict__[{field!r}] = old.__dict__[{field!r}]",
    )


def _parsed(**how: str) -> str:
    options = "".join(f", {name}={value}" for name, value in how.items())
    return f"        self._apply(json.loads(json.dumps(record){options}))\n"


DATA_BUGS = {
    f"an update keeps the old `{field}`": _update_keeps(field)
    for field in (
        *("content", "status", "metadata", "native", "updated_at", "tool_calls"),
        *("is_error", "tool_name", "tool_call_id", "mood", "due"),
    )
} | {
    "what our own tools answer is a memory": Bug(
        "what_our_own_tools_answer",
        "        for item in map(validated_copy, items):\n",
        "        for item in map(validated_copy, items):\n"
        "            if item.memory_type == 'tool':\n"
        "                item.metadata.extra.clear()\n",
    ),
    "an update keeps the class": Bug(
        "an_update_may_change_the_kind",
        f"            {_LOAD}\n",
        "            old = self._items.get(dumped['id'])\n"
        "            kind = type(old) if old else type(load_item(dumped))\n"
        "            item = kind.model_construct(**dict(load_item(dumped)))\n",
    ),
    "tool calls come back in reverse": Bug(
        "every_field_is_kept_and_changed",
        _GET,
        "twin = item and copy_item(item)\n"
        "        if hasattr(twin, 'tool_calls'):\n"
        "            twin.tool_calls.reverse()\n"
        "        return twin",
    ),
    "content is cut at 64 kB": Bug(
        "the_longest_text_is_kept",
        _LOAD,
        "item = load_item({**dumped, 'content': dumped['content'][:65536]})",
    ),
    "ids are cut at 255 characters": Bug(
        "the_longest_ids_are_told_apart",
        "            self._items[item.id] = item",
        "            self._items[item.id[:255]] = item",
        (("self._items.get(item_id)", "self._items.get(item_id[:255])"),),
    ),
    "nulls in extra are lost": Bug(
        "json_values_keep_their_type",
        f"            {_LOAD}\n",
        f"            {_LOAD}\n"
        "            for key in [k for k, v in item.metadata.extra.items() if v is None]:\n"
        "                del item.metadata.extra[key]\n",
    ),
    "large integers are rounded": Bug(
        "json_values_keep_their_type",
        _APPLY,
        _parsed(parse_int="lambda text: min(int(float(text)), 2**63 - 1)"),
    ),
    "whole floats become integers": Bug(
        "json_values_keep_their_type",
        _APPLY,
        _parsed(parse_float="lambda text: int(float(text)) if text == '1.0' else float(text)"),
    ),
    "zero loses its sign": Bug(
        "json_values_keep_their_type", _APPLY, _parsed(parse_float="lambda text: 0.0 + float(text)")
    ),
    "unheard-of kinds lose their fields": Bug(
        "a_kind_whose_class_is_not_imported",
        f"            {_LOAD}\n",
        f"            {_LOAD}\n"
        "            if item.model_extra:\n"
        "                item = MemoryItem.model_validate(\n"
        "                    {k: v for k, v in dumped.items() if k in MemoryItem.model_fields})\n",
    ),
    "a subclass comes back as a plain item": Bug(
        "a_subclass_comes_back_as_itself",
        _LOAD,
        "item = MemoryItem.model_validate("
        "{k: v for k, v in dumped.items() if k in MemoryItem.model_fields})",
    ),
    "computed fields are written down": Bug(
        "a_subclass_with_computed_fields",
        "[dump_item(item) for item in kept.values()]",
        "[item.model_dump(mode='json') for item in kept.values()]",
    ),
    "times are kept to the millisecond": Bug(
        "a_time_is_kept_to_the_microsecond",
        f"            {_LOAD}\n",
        f"            {_LOAD}\n"
        "            item.__dict__['created_at'] = item.created_at.replace(microsecond=0)\n",
    ),
    "takes in what was never checked": Bug(
        "an_item_that_was_never_checked", "map(validated_copy, items)", "map(copy_item, items)"
    ),
    "breaks after it has refused an item": Bug(
        "an_item_that_was_never_checked",
        "        await self.add_many([item])\n",
        "        try:\n"
        "            await self.add_many([item])\n"
        "        except ValueError:\n"
        "            await self.close()\n"
        "            raise\n",
    ),
    "discarded is for ever": Bug(
        "any_status_may_follow_any",
        _UPDATE,
        f"{_UPDATE}\n"
        "                if old.status == 'discard':\n"
        "                    item.__dict__['status'] = old.status",
    ),
    "a cleared item comes back as discarded": Bug(
        "a_cleared_item_comes_back",
        "self._items.pop(item_id, None)",
        "self._items.pop(item_id, None); self.__dict__.setdefault('gone', set()).add(item_id)",
        ((_LOAD, _LOAD_DISCARDED),),
    ),
    "an updated item moves behind its ties": Bug(
        "an_updated_item_stays_where_it_is",
        "            self._items[item.id] = item",
        "            self._items.pop(item.id, None)\n            self._items[item.id] = item",
    ),
    "get folds ids": Bug(
        "get_takes_an_id_to_the_letter",
        "self._items.get(item_id)",
        "{i.casefold(): item for i, item in self._items.items()}.get(item_id.casefold())",
    ),
}
