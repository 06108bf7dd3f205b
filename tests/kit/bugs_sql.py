"""Bugs for copies of what both SQL stores mean: versions, deletions, pages, counts, entries."""

from tests.kit.bugs import Bug

_STORE = "        self._operations = Operations(SQLiteDialect())\n"
_ERASE = "\n    async def erase(self, *, metadata=None, by=None, item_ids=None):\n        "

SQL_BUGS = {
    "whoever knows an id erases it": Bug(
        "erase_of_ids_leaves_those_of_anybody_else",
        _STORE,
        f"{_STORE}{_ERASE}scope = None if item_ids else metadata\n"
        "        return await super().erase(metadata=scope, by=by, item_ids=item_ids)\n",
    ),
    "ids to erase are taken for all": Bug(
        "erase_of_ids_removes_these_items_and_no_others",
        _STORE,
        f"{_STORE}{_ERASE}return await super().erase(metadata=metadata, by=by)\n",
    ),
    "what is deleted is not erased": Bug(
        "erase_of_ids_takes_every_version",
        _STORE,
        f"{_STORE}{_ERASE}here = [each for each in item_ids if await self.get(each)]\n"
        "        return await super().erase(metadata=metadata, by=by, item_ids=here)\n",
    ),
    "erase only hides": Bug(
        "an_erased_id_begins_anew",
        _STORE,
        f"{_STORE}{_ERASE}from orbiter.memory.model.reports import Erasure\n"
        "        return Erasure(items=await self.delete_many(item_ids))\n",
    ),
    "words are looked for in every row": Bug(
        "no_words_find_what_is_not_indexed",
        _STORE,
        f"{_STORE}\n    async def match_words(self, terms, query):\n"
        "        found = await super().match_words(terms, query)\n"
        "        rows = await self.search(query=terms[0], metadata=query.metadata)\n"
        "        return type(found)(rows, found.frequency, found.passages)\n",
    ),
    "only the first text has words": Bug(
        "words_find_an_item_by_each_of_its_texts",
        _STORE,
        f"{_STORE}\n    async def add(self, item, **more):\n"
        "        extra = dict(item.metadata.extra)\n"
        "        extra['indexed_by'] = extra.get('indexed_by', [''])[:1]\n"
        "        item.metadata = type(item.metadata)(user_id='u', extra=extra)\n"
        "        await super().add(item, **more)\n",
    ),
    "where is not asked": Bug(
        "where_joins",
        "            rest.append(dialect.fits(query.condition, args))\n",
        "            pass\n",
    ),
    "what is deleted is deleted again": Bug(
        "delete_many_removes",
        '        where = f"deleted = 0 AND {self._dialect.by_ids(args, item_ids)}"\n',
        "        where = self._dialect.by_ids(args, item_ids)\n",
    ),
    "nobody signs what many lose": Bug(
        "what_delete_many_removed",
        "return (yield from self._mark(1, where, args, by))\n\n    def restore",
        "return (yield from self._mark(1, where, args, None))\n\n    def restore",
    ),
    "a conversation is in the order of time": Bug(
        "is_read_as_it_was_added",
        "order = self._dialect.order(order_by, query,",
        'order = self._dialect.order("time", query,',
    ),
    "pages of a conversation are cut by time": Bug(
        "pages_of_a_conversation",
        '            if order == "insertion":\n                row =',
        "            if False:\n                row =",
    ),
    "insert takes what is used": Bug(
        "insert_stores_nothing_where",
        "        if any(row[0] for row in there):\n            return False\n",
        "",
        (("AND version > 1", "AND version > 9"),),
    ),
    "insert takes what is deleted": Bug(
        "insert_brings_nothing_back",
        'f"SELECT {lives} FROM memory_items WHERE {where}"',
        'f"SELECT {lives} FROM memory_items WHERE {where} AND deleted = 0"',
        (("AND version > 1", "AND version > 9"),),
    ),
    "any version is deleted": Bug(
        "guards_a_deletion",
        '            where += f" AND version = {args.bind(expected_version)}"\n',
        "            pass\n",
    ),
    "any version is the expected one": Bug(
        "an_expected_version_guards", "        if current != expected:\n", "        if False:\n"
    ),
    "a deleted item is expected at its version": Bug(
        "a_deleted_item_is_expected", "current = 0 if deleted else version", "current = version"
    ),
    "deleting again succeeds again": Bug(
        "a_deleted_item_can_be_restored",
        'where += f" AND deleted = 0 AND {self._dialect.not_expired()}"',
        'where += f" AND {self._dialect.not_expired()}"',
    ),
    "restoring restores what is there": Bug(
        "what_is_not_there_is_neither_deleted_nor_restored",
        'where += f" AND deleted = 1 AND {self._dialect.not_expired()}"',
        'args, where = Args(self._dialect), "deleted IN (0, 1)"',
    ),
    "deleting leaves the version as it was": Bug(
        "history_tells_what_changed",
        "SET deleted = {deleted}, version = version + 1",
        "SET deleted = {deleted}, updated_at = updated_at",
        (
            (
                "{self._marking(deleted, where)} RETURNING id",
                "{self._marking(deleted, where)} LIMIT 0",
            ),
        ),
    ),
    "purge takes the living": Bug(
        "purge_removes_the_deleted_for_good",
        "self._matching(metadata, 1, args)",
        "self._matching(metadata, 0, args)",
    ),
    "purge forgets whose": Bug(
        "purge_removes_the_deleted_for_good",
        "self._matching(metadata, 1, args)",
        "self._matching(None, 1, args)",
    ),
    "purge forgets since when": Bug(
        "purge_spares", "        if deleted_before is not None:\n", "        if False:\n"
    ),
    "purge turns time around": Bug(
        "purge_spares", "updated_at) < {moment}", "updated_at) > {moment}"
    ),
    "purge takes a filter that names nobody": Bug(
        "purge_refuses",
        "        if metadata is not None and not wanted:\n",
        "        if metadata is not None and not wanted and not deleted:\n",
    ),
    "nobody signs a write": Bug(
        "history_tells_what_changed",
        "            yield from self._sign(by, [row.id])\n",
        "            yield from ()\n",
    ),
    "nobody signs a batch": Bug(
        "the_first_version_can_be_signed",
        "            yield from self._sign(by, [row.id for row in rows])\n",
        "            yield from ()\n",
    ),
    "the signature is the version's before": Bug(
        "history_tells_what_changed", "SELECT id, version - 1,", "SELECT id, max(version - 2, 0),"
    ),
    "history is out of order": Bug(
        "history_has_every_version", "ORDER BY version", "ORDER BY version DESC"
    ),
    "the cursor is on both pages": Bug(
        "pages_from_the_newest", '("before", before, "<")', '("before", before, "<=")'
    ),
    "the cursor's instant is skipped": Bug(
        "pages_from_the_newest",
        'f"(created_at, {dialect.place}) {sign} ({moment}, {number})"',
        'f"(created_at, 0 * {number}) {sign} ({moment}, 0)"',
    ),
    "the page after is the newest": Bug(
        "pages_from_the_oldest",
        'self._dialect.order(order_by, query, "DESC" if after is None else "ASC")',
        'self._dialect.order(order_by, query, "DESC")',
        (("rows if after is None else rows[::-1]", "rows"),),
    ),
    "the page after is the wrong way round": Bug(
        "pages_from_the_oldest", "rows if after is None else rows[::-1]", "rows"
    ),
    "a text search forgets the cursor": Bug(
        "pages_from_the_newest",
        "            rows = yield from self._search_text(query, compiled, order, tail)\n",
        "            compiled = yield from self.compile(query, None, None)\n"
        "            if before is not None:\n"
        "                return []\n"
        "            rows = yield from self._search_text(query, compiled, order, tail)\n",
    ),
    "an unknown cursor is no cursor": Bug(
        "a_cursor_that_names_nothing",
        "    if cursor.created_at is None:\n        raise QueryError(",
        "    if cursor.created_at is None:\n        return Place('9999', 2**40)\n"
        "        raise QueryError(",
    ),
    "a deleted cursor is no cursor": Bug(
        "a_cursor_may_be_deleted",
        "f\" WHERE {' AND '.join(conditions)}\",",
        "f\" WHERE deleted = 0 AND {' AND '.join(conditions)}\",",
        (("    return cursor\n", "    raise QueryError(cursor.item_id)\n"),),
    ),
    "a walk ends where its last item is gone": Bug(
        "a_walk_goes_on_though_its_last_item_is_gone",
        "    return cursor\n",
        "    raise QueryError(f'`{name}` names `{cursor.item_id}`, which is not stored')\n",
    ),
    "where the cursor is gone, its instant is skipped": Bug(
        "a_walk_goes_on_though_its_last_item_is_gone",
        'f"(created_at, id) {sign} ({moment}, {args.bind(there.item_id)})"',
        'f"created_at {sign} {moment}"',
    ),
    "a cursor stands where its id is now": Bug(
        "a_cursor_whose_id_was_given_out_again",
        'conditions.append(f"created_at = {args.bind(dialect.instant(cursor.created_at))}")',
        "pass",
    ),
    "since leaves its instant out": Bug(
        "since_is_included", '"created_at >= {args', '"created_at > {args'
    ),
    "until takes its instant in": Bug(
        "since_is_included", '"created_at < {args', '"created_at <= {args'
    ),
}

_CONTAINS = "(replace(key, {text}, '') <> key OR replace(path, {text}, '') <> path)"

COUNT_BUGS = {
    "whoever has entries alone is no user": Bug(
        "whoever_has_entries_is_among_the_users",
        " UNION SELECT name FROM entry_names",
        "",
    ),
    "an entry that is over makes a user": Bug(
        "nobody_is_a_user_by_an_entry_that_is_gone",
        'alive = f"(expires_at IS NULL OR expires_at > {dialect.micros(args)})"',
        'alive = "1 = 1"',
    ),
    "entries do not count for when a user was seen": Bug(
        "whoever_has_entries_is_among_the_users",
        "{dialect.from_micros.format(f'{end}({column})')}",
        "CASE WHEN ({seen} LIMIT 1) IS NULL"
        " THEN {dialect.from_micros.format(f'{end}({column})')} END",
    ),
    "everybody's values are counted": Bug(
        "nobody_is_counted_by_another",
        "conditions = [*compiled.scope, *compiled.rest]",
        "conditions = [*compiled.rest, '1 = 1']",
    ),
    "values are counted without their filters": Bug(
        "what_is_counted_is_narrowed_down",
        "conditions = [*compiled.scope, *compiled.rest]",
        "conditions = [*compiled.scope, 'deleted = 0']",
    ),
    "what is deleted is counted": Bug(
        "what_is_gone_is_not_counted", 'theirs = f"deleted = 0 AND ', 'theirs = f"'
    ),
    "the start of a name has no end": Bug(
        "users_are_found_by_how_their_names_begin",
        "if (end := prefix_end(query.starts_with)) is not None:",
        "if (end := None) is not None:",
    ),
}
ENTRY_BUGS = {
    "what a name contains is a pattern": Bug(
        "found_by_what_their_names_contain",
        _CONTAINS,
        "(key LIKE '%' || {text} || '%' OR path LIKE '%' || {text} || '%')",
    ),
    "only keys contain": Bug(
        "found_by_what_their_names_contain", _CONTAINS, "replace(key, {text}, '') <> key"
    ),
    "a page forgets what names contain": Bug(
        "found_by_what_their_names_contain",
        "        if contains:",
        "        if contains and not after:",
    ),
}
