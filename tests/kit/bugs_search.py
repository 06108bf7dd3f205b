"""Bugs for a copy of `JournalStore` that find too much, too little, or in the wrong order."""

from tests.kit.bugs import Bug

_FOUND = "found = [item for item in self._items.values() if asked.matches(item)]"
_ASKED = "asked = Query(query, metadata, memory_type, status, limit, where=where)"
_CUT = "return [copy_item(item) for item in found[::-1][:limit]]"


def _found_in(text: str, query: str = "query.casefold()") -> str:
    return (
        "plain = Query('', metadata, memory_type, status, limit)\n"
        "        found = [item for item in self._items.values() if plain.matches(item)"
        f" and {query} in ({text}).casefold()]"
    )


QUERY_BUGS = {
    "a text that is not indexed is not there": Bug(
        "is_listed_and_found_by_filters",
        _FOUND,
        f"{_FOUND}\n        found = [item for item in found"
        " if not query or item.metadata.extra.get('indexed_by') is not False]",
    ),
    "a query is trimmed": Bug(
        "neither_more_nor_less", _ASKED, _ASKED.replace("(query,", "(query.strip(),")
    ),
    "a query of blanks is no query": Bug(
        "a_literal_substring", _ASKED, _ASKED.replace("(query,", "(query if query.strip() else '',")
    ),
    "a query is cut": Bug(
        "a_query_may_be_long", _ASKED, _ASKED.replace("(query,", "(query[:50_000],")
    ),
    "U+0000 in a query is dropped": Bug(
        "a_question_that_means_nothing",
        _ASKED,
        _ASKED.replace("(query,", "(query and query.replace('\\0', ''),"),
    ),
    "a lone surrogate in a query is dropped": Bug(
        "a_question_that_means_nothing",
        _ASKED,
        _ASKED.replace(
            "(query,",
            "(query.encode(errors='ignore').decode() if isinstance(query, str) else query,",
        ),
    ),
    "folds case for ASCII only": Bug(
        "a_literal_substring",
        _FOUND,
        _found_in("item.content", "query.lower()").replace("casefold", "lower"),
    ),
    "takes the query for a pattern": Bug(
        "neither_more_nor_less",
        _FOUND,
        "plain = Query('', metadata, memory_type, status, limit)\n"
        "        import fnmatch\n"
        "        found = [item for item in self._items.values() if plain.matches(item)"
        " and fnmatch.fnmatch(item.content.casefold(), f'*{query.casefold()}*')]",
    ),
    "looks for each word by itself": Bug(
        "neither_more_nor_less",
        _FOUND,
        "plain = Query('', metadata, memory_type, status, limit)\n"
        "        found = [item for item in self._items.values() if plain.matches(item)"
        " and all(word in item.content.casefold() for word in query.casefold().split())]",
    ),
} | {
    f"a query looks at the {what} too": Bug(
        "a_query_looks_at_the_content_only", _FOUND, _found_in(f"item.content + {text}")
    )
    for what, text in {
        "id": "item.id",
        "type": "item.memory_type",
        "user": "str(item.metadata.user_id)",
        "extra": "str(item.metadata.extra)",
        "native part": "str(item.native)",
        "tool calls": "str(getattr(item, 'tool_calls', ''))",
        "status": "item.status",
    }.items()
}

_OTHER_CASE = """
def _other_case(where):
    if isinstance(where, dict):
        return {
            name: value.swapcase() if name == "$prefix" else _other_case(value)
            for name, value in where.items()
        }
    return [_other_case(each) for each in where] if isinstance(where, list) else where


class JournalStore:
"""

SEARCH_BUGS = {
    "a prefix is compared in any case": Bug(
        "where_finds_exactly",
        _FOUND,
        "other = Query(query, metadata, memory_type, status, limit, where=_other_case(where))\n"
        "        found = [item for item in self._items.values() if asked.matches(item)"
        " or other.matches(item)]",
        (("\nclass JournalStore:\n", _OTHER_CASE),),
    ),
    "a missing key is never unequal": Bug(
        "where_finds_exactly",
        _FOUND,
        "found = [item for item in self._items.values() if asked.matches(item) and all(\n"
        "            name in item.metadata.extra or hasattr(item, name) or '_id' in name\n"
        "            for name, told in (where or {}).items()\n"
        "            if isinstance(told, dict) and '$ne' in told)]",
    ),
    "where is applied after the cut": Bug(
        "where_applies_before",
        _CUT,
        "found = [item for item in self._items.values() if Query(query, metadata, memory_type,"
        " status).matches(item)]\n"
        "        found.sort(key=lambda item: item.created_at)\n"
        "        return [copy_item(item) for item in found[::-1][:limit] if asked.matches(item)]",
    ),
    "scope ids are cut at 255 characters": Bug(
        "the_longest_ids_are_told_apart",
        _FOUND,
        "found = [item for item in self._items.values() if asked.matches(item) or metadata and"
        " metadata.user_id and (item.metadata.user_id or '')[:255] == metadata.user_id[:255]]",
    ),
    "results are capped at 300": Bug(
        "nothing_but_the_limit", _CUT, _CUT.replace("[:limit]", "[:min(limit, 300)]")
    ),
    "results are capped at 1000": Bug(
        "nothing_but_the_limit", _CUT, _CUT.replace("[:limit]", "[:min(limit, 1000)]")
    ),
    "a limit has 63 bits": Bug(
        "a_huge_limit_is_allowed",
        _CUT,
        f"limit.to_bytes(8, 'big', signed=True)\n        {_CUT}",
    ),
    "a limit beyond 32 bits finds nothing": Bug(
        "a_huge_limit_is_allowed", _CUT, _CUT.replace("[:limit]", "[:limit % 2**32]")
    ),
    "a status must be the enum": Bug(
        "a_status_may_be_given_as_text",
        _FOUND,
        "found = [item for item in self._items.values()"
        " if asked.matches(item) and status in (None, *([item.status] if"
        " isinstance(status, MemoryStatus) else []))]",
    ),
    "sorted by the last change": Bug(
        "neither_ids_nor_changes",
        "key=lambda item: item.created_at",
        "key=lambda item: item.updated_at",
    ),
    "ties are sorted by id": Bug(
        "neither_ids_nor_changes",
        "key=lambda item: item.created_at",
        "key=lambda item: (item.created_at, item.id)",
    ),
    "filters after the cut": Bug(
        "a_users_item_is_found_behind_many",
        _CUT,
        "newest = sorted(self._items.values(), key=lambda i: i.created_at)[::-1][:limit]\n"
        "        return [copy_item(item) for item in newest if asked.matches(item)]",
    ),
    "returns the same list again": Bug(
        "a_returned_list_is_the_callers",
        _CUT,
        "cache = self.__dict__.setdefault('cache', {})\n"
        "        key = str(asked), str(self._items)\n"
        "        return cache.setdefault(key, [copy_item(item) for item in found[::-1][:limit]])",
    ),
}
