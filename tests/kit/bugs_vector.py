"""Bugs for a copy of `VectorMemoryStore`."""

from tests.kit.bugs import Bug

_NEAR = "snapshots = self._index.snapshot(query)"
_HERE = "return snapshots.nearest(vector, query.limit)"
_FOUND = "return [copy_item(item) for item, _ in await self._nearest(vector, filters)]"
_ADD = "await self._add([validated_copy(item)], self._called())"
_MANY = "await self._add(taken, call)"
_WAIT = "vectors = await self._vectors(items)"
_CHECKED = "return check()"
_KNOWN = "vectors[text] = known.get(text)"
_HAS = "if not filters.limit or not len(self):"


def _fixed(vector: str) -> str:
    return f"return self._checked([{vector} for one in made], EmbeddingError, self._model_name())"


VECTOR_BUGS = {
    # What is found, and in which order.
    "the worst come first": Bug(
        "the_nearest_come_first", _FOUND, _FOUND.replace("filters)]", "filters)][::-1]")
    ),
    "finds the newest, whatever is asked": Bug(
        "the_nearest_come_first",
        "if not query.strip():",
        "if True:",
    ),
    "embeds what is not indexed": Bug(
        "is_kept_and_never_embedded",
        "return index_texts(item.content, item.metadata.extra.get(INDEXED_BY))",
        "return index_texts(item.content, item.metadata.extra.get(INDEXED_BY)) or [item.content]",
    ),
    "what is not indexed any more keeps its vector": Bug(
        "is_kept_and_never_embedded",
        "self._index.keep(item, made, self._embeddings.dimension)",
        "old = [*self._index.vectors_of(item.id).values()]\n"
        "                self._index.keep(item, made or old, self._embeddings.dimension)",
    ),
    "only the first text is embedded": Bug(
        "as_near_as_the_nearest_of_its_texts", "keep(item, made,", "keep(item, made[:1],"
    ),
    "filters after the cut": Bug(
        "filters_apply_before_the_cut",
        _HERE,
        "return [one for one in snapshots.nearest(vector, query.limit)"
        " if Query('', query.metadata, query.memory_type, query.status).matches(one[0])]",
        more=((_NEAR, "snapshots = self._index.snapshot(Query())"),),
    ),
    "filters by metadata only": Bug(
        "filters_apply_before_the_cut",
        _NEAR,
        "snapshots = self._index.snapshot(Query(metadata=query.metadata))",
    ),
    "filters by user only": Bug(
        "filters_apply_before_the_cut",
        _NEAR,
        "who = query.metadata and MemoryMetadata(user_id=query.metadata.user_id)\n"
        "        snapshots = self._index.snapshot(Query('', who, query.memory_type, query.status))",
    ),
    "of equals, the newest first": Bug(
        "of_equals_the_one_added_first",
        _HERE,
        "near = snapshots.nearest(vector, 2**40)\n"
        "            return sorted(near[::-1], key=lambda one: -one[1])[:query.limit]",
    ),
    "the longest vector is the nearest": Bug(
        "the_length_of_a_vector",
        _HERE,
        "near = snapshots.nearest(vector, 2**40)\n"
        "            size = lambda text: float((text.split() + ['1'])[1])\n"
        "            return sorted(near, key=lambda o: -o[1] * size(o[0].content))[:query.limit]",
    ),
    "no limit gives all": Bug(
        "a_limit_of_nothing_gives_nothing_near",
        _HAS,
        "if not len(self):",
        more=((_HERE, "return snapshots.nearest(vector, query.limit or 10)"),),
    ),
    "an updated text keeps its old vector": Bug(
        "found_by_its_new_meaning",
        _KNOWN,
        "vectors[text] = next(iter(known.values()), None)",
    ),
    # What cannot be embedded.
    "keeps the item of a text that cannot be embedded": Bug(
        "cannot_be_embedded_changes_nothing",
        _ADD,
        "item = validated_copy(item)\n        try:\n"
        "            await self._add([item], self._called())\n"
        "        except OSError:\n            self._index.keep(item, [], 2); raise",
    ),
    "removes the old item first": Bug(
        "cannot_be_embedded_changes_nothing",
        _ADD,
        f"self._index.remove(validated_copy(item).id)\n        {_ADD}",
    ),
    "hides that a text cannot be embedded": Bug(
        "cannot_be_embedded_changes_nothing",
        _ADD,
        f"try:\n            {_ADD}\n        except OSError:\n            pass",
    ),
    "a batch is embedded item by item": Bug(
        "cannot_be_embedded_changes_nothing",
        _MANY,
        "for item in taken:\n            await self._add([item], self._called())",
    ),
    "a query that cannot be embedded finds nothing": Bug(
        "cannot_be_embedded_changes_nothing",
        "(vector,) = await self._embed([query])",
        "try:\n            (vector,) = await self._embed([query])\n"
        "        except OSError:\n            return []",
    ),
    "a cancelled embedding removes the old item": Bug(
        "a_cancelled_embedding_changes_nothing",
        _WAIT,
        "kept = [(i, self._index.get(i), [*self._index.vectors_of(i).values()])"
        " for i in ids if self._index.get(i)]\n"
        "            for each in kept: self._index.remove(each[0])\n"
        "            vectors = await self._vectors(items)\n"
        "            for _, old, its in kept: self._index.keep(old, its, len(its[0]))",
    ),
    "a cancelled embedding is kept without a vector": Bug(
        "a_cancelled_embedding_changes_nothing",
        _WAIT,
        "try:\n                vectors = await self._vectors(items)\n"
        "            except asyncio.CancelledError:\n"
        "                for item in items: self._index.keep(item, [], 2)\n"
        "                raise",
    ),
    "a cancelled embedding is swallowed": Bug(
        "a_cancelled_embedding_changes_nothing",
        _WAIT,
        "try:\n                vectors = await self._vectors(items)\n"
        "            except asyncio.CancelledError:\n                return",
    ),
    # Vectors that are none.
    "cuts and fills up vectors": Bug(
        "a_vector_that_is_none",
        _CHECKED,
        _fixed(
            "(list(one or []) + [0.1] * self._embeddings.dimension)[:self._embeddings.dimension]"
        ),
    ),
    "takes a NaN for nothing": Bug(
        "a_vector_that_is_none",
        _CHECKED,
        _fixed("[0.0 if number != number else number for number in one or []]"),
    ),
    "takes an infinity for a large number": Bug(
        "a_vector_that_is_none",
        _CHECKED,
        _fixed("[max(-1e9, min(1e9, number)) if number == number else number for number in one]"),
    ),
    "takes zeros for a direction": Bug(
        "a_vector_of_zeros",
        _CHECKED,
        _fixed("one if one is None or any(map(float, one)) or not len(one) else [1.0, *one[1:]]"),
    ),
    "reads numbers from text": Bug(
        "a_vector_that_is_none",
        _CHECKED,
        _fixed("[float(number) for number in one or []]"),
    ),
    # Calls that overlap.
    "a late embedding brings its vector only": Bug(
        "leaves_an_item_with_its_own_vector",
        "self._index.count_version(item.id)",
        "late = self._index.get(item.id).model_copy(deep=True)\n"
        "                    self._index.keep(late, [vectors[item.content]], 2)",
    ),
    "a late embedding brings its item only": Bug(
        "leaves_an_item_with_its_own_vector",
        "self._index.count_version(item.id)",
        "its = [*self._index.vectors_of(item.id).values()]\n"
        "                    self._index.keep(item, its, 2)",
    ),
    "a late embedding does not count": Bug(
        "leaves_an_item_with_its_own_vector",
        "self._index.count_version(item.id)",
        "pass",
    ),
}
