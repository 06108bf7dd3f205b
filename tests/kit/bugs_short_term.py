"""Bugs for a copy of `ShortTermMemory`."""

from tests.kit.bugs import Bug

_ADD = "self._keep(validated_copy(item))"
_GET = "return None if item is None else copy_item(item)"
_SEARCH = "return copy_items(item for _, unit in reversed(list(newest_units)) for item in unit)"
_BATCH = "for item in [validated_copy(item) for item in items]:\n            self._keep(item)"
_FIELD = "if (value := getattr(item.metadata, name)) is not None"
_ORDER = "return self._arrival[item.id]"
_UPDATE = "item.__dict__.update(version=old.version + 1, created_at=old.created_at)"

SHORT_TERM_BUGS = {
    # What comes in.
    "keeps the caller's object": Bug("changing_an_added_item", _ADD, "self._keep(item)"),
    "keeps the caller's objects of a batch": Bug(
        "changing_an_item_of_a_batch",
        _BATCH,
        _BATCH.replace("validated_copy(item) for", "item for"),
    ),
    "shares the caller's metadata of a batch": Bug(
        "changing_an_item_of_a_batch",
        _BATCH,
        _BATCH.replace(
            "self._keep(item)",
            "self._keep(item)\n        for item in items:\n"
            "            self._items[item.id].__dict__['metadata'] = item.metadata",
        ),
    ),
    "writes the version into the caller's item": Bug(
        "add_leaves_the_callers_item",
        _ADD,
        f"{_ADD}\n        item.__dict__['version'] = self._items[item.id].version",
    ),
    "writes the version into the caller's batch": Bug(
        "takes_any_sequence_and_leaves_it",
        _BATCH,
        f"{_BATCH}\n        for item in items:\n"
        "            item.__dict__['version'] = self._items[item.id].version",
    ),
    "takes in what was never checked": Bug(
        "an_item_that_was_never_checked", _ADD, "self._keep(copy_item(item))"
    ),
    "takes in a batch that was never checked": Bug(
        "a_batch_with_one_bad_item", _BATCH, _BATCH.replace("validated_copy(", "copy_item(")
    ),
    "a batch is kept item by item": Bug(
        "add_many_keeps_all_or_none",
        _BATCH,
        "for item in items:\n            self._keep(validated_copy(item))",
    ),
    "text is trimmed": Bug(
        "text_is_kept_code_point",
        _ADD,
        "item = validated_copy(item); item.__dict__['content'] = item.content.strip(); "
        "self._keep(item)",
    ),
    # What goes out.
    "hands out its own object": Bug("changing_a_returned_item", _GET, "return item"),
    "hands out its own objects from search": Bug(
        "changing_a_returned_item", _SEARCH, _SEARCH.replace("copy_items", "list")
    ),
    "shares the tool calls it returns": Bug(
        "changing_a_returned_item",
        _GET,
        "twin = item and copy_item(item)\n"
        "        if hasattr(twin, 'tool_calls'):\n"
        "            twin.__dict__['tool_calls'] = item.tool_calls\n"
        "        return twin",
    ),
    "get strips ids": Bug(
        "get_takes_an_id_to_the_letter",
        "self._items.get(item_id)",
        "self._items.get(item_id.strip())",
    ),
    "get falls back to another case": Bug(
        "get_takes_an_id_to_the_letter",
        "self._items.get(item_id)",
        "self._items.get(item_id) or self._items.get(item_id.lower())",
    ),
    # Updates.
    "an update takes the new time of creation": Bug(
        "updates_all_but_the_time", _UPDATE, "item.__dict__.update(version=old.version + 1)"
    ),
    "an update does not raise the version": Bug(
        "raises_the_version_by_one", "version=old.version + 1", "version=old.version"
    ),
    "an update trusts the caller's version": Bug(
        "the_version_is_the_stores", "version=old.version + 1", "version=item.version + 1"
    ),
    "a first write trusts the caller's version": Bug(
        "the_version_is_the_stores", 'item.__dict__["version"] = 1', "pass"
    ),
    "an update leaves the old item on its shelves": Bug(
        "leaves_its_old_place", "            self._unshelve({item.id: old})\n", ""
    ),
    "an updated item moves behind its ties": Bug(
        "an_updated_item_stays_where_it_is",
        "            self._uncount(item.id)\n",
        "            self._uncount(item.id)\n"
        "            self._arrivals += 1\n"
        "            self._arrival[item.id] = self._arrivals\n",
    ),
    "a cleared item comes back to its old place": Bug(
        "comes_back_is_the_last_of_its_instant",
        "del self._items[item_id], self._arrival[item_id]",
        "del self._items[item_id]",
        (
            (
                "self._arrival[item.id] = self._arrivals",
                "self._arrival.setdefault(item.id, self._arrivals)",
            ),
        ),
    ),
    # Order and limits.
    "order is by time, not by arrival": Bug(
        "in_the_order_in_which_it_was_added",
        _ORDER,
        "return item.created_at, self._arrival[item.id]",
    ),
    "a clock that is set back reorders": Bug(
        "a_clock_that_is_set_back", _ORDER, "return item.created_at, self._arrival[item.id]"
    ),
    "order is backwards": Bug(
        "in_the_order_in_which_it_was_added", _ORDER, "return -self._arrival[item.id]"
    ),
    "order is by the last change": Bug(
        "neither_ids_nor_changes", _ORDER, "return item.updated_at, self._arrival[item.id]"
    ),
    "a limit keeps the oldest": Bug(
        "a_limit_keeps_what_was_added_last",
        "newest = newest_first(shelf.items)",
        "newest = newest_first(shelf.items[:limit])",
    ),
    "a limit of nothing means no limit": Bug(
        "a_limit_of_nothing",
        "newest_units = take_units(self._windowed(newest, systems), limit)",
        "newest_units = take_units(self._windowed(newest, systems), limit or 10**9)",
    ),
    # Filters.
    "the type filter is forgotten": Bug(
        "type_and_status_filter",
        "if filters.matches(one[1][0])), limit)",
        "if filters.has_text(one[1][0])), limit)",
    ),
    "the text filter is forgotten": Bug("a_literal_substring", "            text=query,\n", ""),
    "the status filter is forgotten": Bug(
        "type_and_status_filter", "            status=status,\n", ""
    ),
    "one scope field is forgotten": Bug(
        "every_field_of_the_scope",
        '"task": ("user_id", "session_id", "task_id", "agent_id")',
        '"task": ("user_id", "session_id", "task_id")',
    ),
    "scope ids are compared without case": Bug(
        "no_id_finds_the_items_of_another",
        _FIELD,
        f"{_FIELD} and (value := value.lower()) is not None",
    ),
    "an empty id counts as none": Bug(
        "no_id_finds_the_items_of_another",
        _FIELD,
        "if (value := getattr(item.metadata, name))",
    ),
    "clear removes everyone": Bug("clear_removes_what_matches", "if metadata is None:", "if True:"),
    "clear takes an empty filter for all": Bug(
        "clear_refuses_a_filter",
        "if not filters.wanted:",
        "if not filters.wanted and metadata.extra:",
    ),
    "clear counts wrong": Bug(
        "clear_removes_what_matches", "return len(gone)", "return len(gone) + 1"
    ),
    "clear forgets the index": Bug("clear_removes_what_matches", "self._unshelve(gone)", "pass"),
    # Conversations.
    "dangling calls are returned": Bug(
        "a_call_without_all_its_results",
        "for index, unit in walk_units(newest):",
        "for index, unit in ((i, [item]) for i, item in newest):",
    ),
    "a limit splits groups": Bug(
        "a_limit_never_splits_a_group",
        _SEARCH,
        "every = [copy_item(item) for _, unit in reversed(list(self._windowed(newest_first("
        "shelf.items), []))) for item in unit if filters.matches(item)]\n"
        "        return every[-limit:] if limit else []",
    ),
    # Concurrency.
    "a wait between reading and writing loses updates": Bug(
        "concurrent_updates_each_count",
        _ADD,
        "old = self._items.get(item.id)\n"
        "        await __import__('asyncio').sleep(0)\n"
        "        self._keep(validated_copy(item))\n"
        "        self._items[item.id].__dict__['version'] = old.version + 1 if old else 1",
    ),
    "a cancelled add leaves half an item": Bug(
        "a_cancelled_add_leaves",
        _ADD,
        "item = validated_copy(item)\n"
        "        self._items[item.id] = item\n"
        "        await __import__('asyncio').sleep(0)\n"
        "        del self._items[item.id]\n"
        "        self._keep(item)",
    ),
    # Seen only in a sequence of calls.
    "clearing many forgets all the others on a shelf": Bug(
        "no_sequence_of_calls",
        "if len(items) == len(shelf.items):",
        "if len(items) == len(shelf.items) or len(items) == 2:",
    ),
    "a place is looked up one too far": Bug(
        "no_sequence_of_calls",
        "if not held or self._order(held[-1]) <= order:",
        "if len(held) < 5 or self._order(held[-1]) <= order:",
    ),
}

NARROW_SCOPE_BUGS = {
    "a search for nobody it knows finds everyone": Bug(
        "ignored_fields_alone",
        "if query.names_only_ignored_fields:",
        "if False:",
    ),
}
