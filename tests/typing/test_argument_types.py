"""What calls take as people write it has a type: mypy reads these calls, and the tests run them."""

from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from orbiter.memory import AgentMemory, sync


async def test_times_and_ids_have_types(tmp_path: Path) -> None:
    async with AgentMemory(tmp_path / "a.db", embeddings=None, audit="writes") as memory:
        alice = memory.scope(UUID(int=7), session_id=42)
        item = await alice.remember("green tea", extra={"a": 1}, created_at="2020-05-01")
        await alice.remember_many(["black tea"], extra={"a": 2}, expires="2999-01-01")

        (hit,) = await alice.recall("green", k=1, until="2021-01-01T09:30+01:00")
        assert hit.item == item
        assert len(await alice.recall("tea", k=1, since="2020-01-01")) == 1
        assert await memory.default_user.recall("tea", k=0) == []
        assert len(await alice.list(limit=1, since=datetime(2020, 1, 1, tzinfo=UTC))) == 1
        assert len(await alice.count_by("a", limit=1, until="2999-01-01")) == 1
        assert await alice.chats(limit=1) == []
        assert len(await memory.users(limit=1)) == 1
        assert await alice.get(hit) == await alice.get(item)
        assert (await alice.update(hit, "white tea", extra={"a": 3})).content == "white tea"
        assert len(await alice.history(hit)) == 2
        assert len(await alice.forget(hit)) == 1
        assert (await alice.restore(item)).id == item.id
        assert await alice.as_of("2020-01-01").recall("tea", k=1) == []
        fact = await alice.facts.put("city", "Oslo", valid_from="2020-01-01")
        assert await alice.facts.get("city", as_of="2020-06-01") == fact
        assert (await alice.facts.retract(fact)).id == fact.id
        assert await memory.audit.entries(user_id=UUID(int=7), item_id=hit, limit=1)
        assert not await memory.audit.entries(user_id=8, since="2020-01-01")


def test_the_blocking_form_takes_the_same(tmp_path: Path) -> None:
    with sync.AgentMemory(tmp_path / "a.db", embeddings=None) as memory:
        alice = memory.scope(42)
        item = alice.remember("green tea", extra={"a": 1}, created_at="2020-05-01")

        (hit,) = alice.recall("tea", k=1, until="2021-01-01")
        assert hit.item == item
        assert alice.recall("tea", k=0) == []
        assert [each.id for each in alice.list(limit=1, since="2020-01-01")] == [item.id]
        assert alice.get(hit) == item
        assert len(alice.forget(hit)) == 1
        memory.default_user.remember("black tea", extra={"a": 1})
        assert len(memory.default_user.recall("tea", k=1)) == 1


async def test_what_is_no_such_value_is_refused_by_both(tmp_path: Path) -> None:
    async with AgentMemory(tmp_path / "a.db", embeddings=None) as memory:
        alice = memory.scope("alice")

        with pytest.raises(TypeError, match="unexpected keyword argument `max`"):
            await alice.recall("tea", max=1)  # type: ignore[call-arg]  # as it should be
        with pytest.raises(TypeError, match="unexpected keyword argument `extra`"):
            await alice.recall("tea", extra={})  # type: ignore[call-arg]  # as it should be
        with pytest.raises(ValueError, match="`k` must be a whole number"):
            await alice.recall("tea", k="1")  # type: ignore[arg-type]  # as it should be
        with pytest.raises(ValueError, match="`user_id` must be a string"):
            memory.scope(1.5)  # type: ignore[arg-type]  # as it should be
