"""The Redis permissions that the documentation lists are enough."""

from contextlib import aclosing
from pathlib import Path

import pytest
from redis import Redis
from tests.episodic.conftest import CLUSTER_RIGHTS, RIGHTS
from tests.servers.databases import RedisServer
from tests.servers.redis_topologies import RedisCluster

from orbiter.memory import HumanMemory, MemoryMetadata, RedisMemoryStore, ShortTermMemoryManager
from orbiter.memory.errors import AccessError

ANN = MemoryMetadata(user_id="ann")


async def test_items_and_episodes_need_no_more_than_the_documented_rights(
    secured_url: str,
) -> None:
    await _do_everything(secured_url)


async def test_the_rights_may_stand_in_an_acl_file(tmp_path: Path) -> None:
    acl = tmp_path / "users.acl"
    acl.write_text(
        f"user default on nopass ~* &* +@all\nuser orbiter on >password {' '.join(RIGHTS)}\n"
    )
    with RedisServer.start(settings={"aclfile": str(acl), "requirepass": ""}) as server:
        await _do_everything(f"redis://orbiter:password@127.0.0.1:{server.port}/0")

        with pytest.raises(AccessError) as refused:
            await ShortTermMemoryManager(
                f"redis://orbiter:wrong-one@127.0.0.1:{server.port}/0"
            ).connect()
    assert "wrong-one" not in str(refused.value)


async def test_in_a_cluster_they_need_a_few_more(redis_cluster: RedisCluster) -> None:
    for node in redis_cluster.nodes:
        with Redis.from_url(node.url()) as admin:
            rights = ("reset", "on", ">password", *RIGHTS, *CLUSTER_RIGHTS)
            admin.execute_command("ACL", "SETUSER", "orbiter", *rights)
    hosts = redis_cluster.url().rpartition("@")[2]

    await _do_everything(f"redis+cluster://orbiter:password@{hosts}")


async def _do_everything(url: str) -> None:
    async with ShortTermMemoryManager(url, "rights") as memory:
        added = await memory.add_interaction("note", "x")
        assert await memory.get_recent() == [added]
        assert await memory.search("x") == [added]
        async with aclosing(memory.stream(since=added.timestamp)) as stream:
            assert await anext(stream) == added
            last = await memory.add_interaction("note", "y")
            assert await anext(stream) == last
        assert await memory.forget(everything=True) == 2
    for ttl_hours in (None, 1):
        async with RedisMemoryStore(url, name="rights", ttl_hours=ttl_hours) as store:
            items = [HumanMemory(content=f"said {n}", metadata=ANN) for n in range(3)]
            await store.add_many(items)
            await store.add(items[0])
            assert await store.get(items[0].id) is not None
            page = await store.search(query="SAID", metadata=ANN, limit=2)
            assert len(page) == 2
            assert len(await store.search(before=page[-1])) == 1
            assert len(await store.search(after=page[-1])) == 1
            assert await store.count(metadata=ANN) == 3
            assert await store.delete(items[0].id)
            assert await store.clear(metadata=ANN) == 2
