"""Whose memories are recalled, and which of them: filters come before the cut."""

import random
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from tests.recall.conftest import MODELS, Opening
from tests.recall.pools import NOW, START

from orbiter.memory import HumanMemory, MemoryItem, MemoryMetadata, MemoryStatus, ToolMemory
from orbiter.memory.model.query import Query
from orbiter.memory.recall import Hit, recall
from orbiter.memory.testing import HashEmbeddings
from orbiter.memory.text.ranking import ANSWERED

ANN, BOB = MemoryMetadata(user_id="ann"), MemoryMetadata(user_id="bob")


def _ids(hits: Iterable[Hit]) -> list[str]:
    return [hit.item.id for hit in hits]


def _many(count: int, content: str, metadata: MemoryMetadata, **fields: Any) -> list[MemoryItem]:
    return [
        HumanMemory(
            content=f"{content} {n}",
            metadata=metadata,
            **{"created_at": START + timedelta(seconds=n), **fields},
        )
        for n in range(count)
    ]


@MODELS
async def test_a_perfect_answer_of_another_user_is_never_recalled(
    opened: Opening, model: HashEmbeddings | None
) -> None:
    async with opened(model) as store:
        await store.add_many(_many(50, "the door code is 4711", BOB))
        await store.add(HumanMemory(id="a", content="a code for tea", metadata=ANN))

        found = await recall(store, "the door code is 4711", scope=ANN, k=20)
        nobody = await recall(store, "door code", scope=MemoryMetadata(user_id="cid"))

        assert _ids(found) == ["a"]
        assert nobody == []


@pytest.mark.slow
@MODELS
async def test_what_is_recalled_is_always_within_the_scope_and_the_filters(
    opened: Opening, model: HashEmbeddings | None
) -> None:
    dice = random.Random(7)
    texts = ("I painted the house?", "Ann paints in May", "red tea 日本語", "it was in 2019", "🎉")
    async with opened(model) as store:
        items = [
            HumanMemory(
                content=f"{dice.choice(texts)} {dice.choice(texts)}",
                metadata=MemoryMetadata(
                    user_id=dice.choice(("ann", "bob", "An%", "ann ", None)),
                    session_id=dice.choice(("s", "t", None)),
                    extra={"n": dice.choice((1, True, "1"))},
                ),
                status=dice.choice(list(MemoryStatus)),
                created_at=START + timedelta(hours=dice.randrange(600)),
            )
            for _ in range(400)
        ]
        await store.add_many(sorted(items, key=lambda item: item.created_at))
        for _ in range(25):
            scope = MemoryMetadata(
                user_id=dice.choice(("ann", "bob", "An%")), session_id=dice.choice((None, "s"))
            )
            filters: dict[str, Any] = {
                "status": dice.choice((None, MemoryStatus.DRAFT, MemoryStatus.ACCEPTED)),
                "where": dice.choice((None, {"n": 1}, {"n": True})),
                "since": dice.choice((None, START + timedelta(hours=200))),
                "until": dice.choice((None, START + timedelta(hours=500))),
            }

            query = dice.choice(texts)
            found = await recall(
                store, query, scope=scope, k=30, now=NOW, min_relevance=0, **filters
            )

            asked = Query(metadata=scope, **filters)
            if query == "🎉":
                assert not any(hit.relevance >= ANSWERED for hit in found)
            else:
                assert found
            assert all(asked.matches(hit.item) for hit in found)
            assert all(asked.matches(item) for hit in found for item in hit.repeats)


@pytest.mark.slow
@MODELS
@pytest.mark.parametrize(
    ("outside", "wanted"),
    [
        ({"status": MemoryStatus.DRAFT}, {}),
        (
            {"metadata": MemoryMetadata(user_id="ann", extra={"lang": "de"})},
            {"where": {"lang": "en"}},
        ),
        ({"created_at": START}, {"since": START + timedelta(days=1)}),
        ({"created_at": NOW}, {"until": START + timedelta(days=9)}),
        ({"metadata": MemoryMetadata(user_id="ann", session_id="t")}, {"scope": "session"}),
    ],
    ids=["status", "where", "since", "until", "session"],
)
async def test_a_filter_loses_nothing_to_the_many_better_matches_that_it_excludes(
    opened: Opening,
    model: HashEmbeddings | None,
    outside: dict[str, Any],
    wanted: dict[str, Any],
) -> None:
    own = MemoryMetadata(user_id="ann", session_id="s", extra={"lang": "en"})
    count = 2000 if model is None else 300
    async with opened(model) as store:
        await store.add_many(_many(count, "my door code", **{"metadata": ANN, **outside}))
        await store.add(
            HumanMemory(
                id="in",
                content="a note on some door or other of ours",
                metadata=own,
                created_at=START + timedelta(days=5),
            )
        )
        if model is not None:
            await store.catch_up()
        if wanted.get("scope") == "session":
            wanted = {"scope": MemoryMetadata(user_id="ann", session_id="s")}

        found = await recall(store, "my door code", **{"scope": ANN, "now": NOW, **wanted})

        assert _ids(found) == ["in"]


@MODELS
async def test_what_shares_no_word_but_the_time_is_also_looked_for_within_the_filters(
    opened: Opening, model: HashEmbeddings | None
) -> None:
    own = MemoryMetadata(user_id="ann", extra={"lang": "en"})
    async with opened(model) as store:
        await store.add(HumanMemory(id="in", content="tea", metadata=own, created_at=START))
        await store.add_many(_many(60, "coffee", ANN, created_at=NOW))

        found = await recall(
            store,
            "What was on 2 June 2024?",
            scope=ANN,
            where={"lang": "en"},
            now=NOW,
            min_relevance=0,
        )

        assert _ids(found) == ["in"]


async def test_the_type_of_memory_is_a_filter(opened: Opening) -> None:
    async with opened() as store:
        await store.add(HumanMemory(id="h", content="door code", metadata=ANN))
        await store.add(
            ToolMemory(id="t", content="door code", metadata=ANN, tool_call_id="1", tool_name="x")
        )

        assert _ids(await recall(store, "door", scope=ANN, memory_type="tool")) == ["t"]
        assert _ids(await recall(store, "door", scope=ANN, memory_type="human")) == ["h"]
        assert await recall(store, "door", scope=ANN, memory_type="nothing") == []


async def test_only_what_is_accepted_is_recalled_unless_another_status_is_asked_for(
    opened: Opening,
) -> None:
    async with opened() as store:
        for status in MemoryStatus:
            item = HumanMemory(id=status.value, content="code", metadata=ANN, status=status)
            await store.add(item)

        assert _ids(await recall(store, "code", scope=ANN)) == ["accepted"]
        assert _ids(await recall(store, "code", scope=ANN, status=MemoryStatus.DRAFT)) == ["draft"]
        everything = await recall(store, "code", scope=ANN, status=None)
        assert {i.id for hit in everything for i in (hit.item, *hit.repeats)} == set(MemoryStatus)


async def test_without_a_scope_everyone_is_recalled(opened: Opening) -> None:
    async with opened() as store:
        await store.add(HumanMemory(id="a", content="door code one", metadata=ANN))
        await store.add(HumanMemory(id="b", content="door code two", metadata=BOB))
        await store.add(HumanMemory(id="n", content="door code three"))

        assert set(_ids(await recall(store, "door code", scope=None))) == {"a", "b", "n"}


async def test_talk_around_that_does_not_match_the_filters_only_lends_its_words(
    opened: Opening,
) -> None:
    async with opened() as store:
        for n, (text, status) in enumerate(
            (("Where did you paint?", MemoryStatus.DRAFT), ("In Rome", MemoryStatus.ACCEPTED))
        ):
            metadata = MemoryMetadata(user_id="ann", session_id="s")
            at = START + timedelta(minutes=n)
            item = HumanMemory(content=text, metadata=metadata, status=status, created_at=at)
            await store.add(item)

        found = await recall(store, "paint", scope=ANN)

        assert [hit.item.content for hit in found] == ["In Rome"]
