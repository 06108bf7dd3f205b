"""Addresses, and a program that ends without a word about them."""

import subprocess
import sys
from typing import Any

import pytest
from tests.rows import each_row
from tests.servers.databases import RedisServer

from orbiter.memory import RedisMemoryStore, ShortTermMemoryManager

FORGETFUL = """
import asyncio, sys
from orbiter.memory import HumanMemory, RedisMemoryStore, get_short_term_memory

async def main():
    memory = get_short_term_memory(sys.argv[1], "forgetful")
    await memory.add_interaction("note", "x")
    await asyncio.gather(*(memory.get_recent() for _ in range(50)))
    store = RedisMemoryStore(sys.argv[1], name="forgetful")
    await store.init()
    await store.add(HumanMemory(content="x"))

asyncio.run(main())
asyncio.run(main())
"""


def test_a_program_that_never_disconnects_ends_in_silence(redis_server: RedisServer) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORGETFUL, redis_server.url()],
        capture_output=True,
        text=True,
        check=True,
    )

    assert (done.stdout, done.stderr) == ("", "")


@each_row(
    ("address", "told"),
    [
        ("memory", "`memory` is not a valid address"),
        ("redis", "`redis` is not a valid address"),
        ("localhost:6379", "`localhost:6379` is not a valid address"),
        ("sqlite://agent.db", "three slashes"),
        ("sqlite:///", "three slashes"),
        ("http://x", "`http://…` is not a valid address"),
        ("redis://localhost/x", "a database is a number"),
        ("redis+sentinel://localhost", "names no master"),
        (None, "None"),
        (b"redis://localhost", "not a valid address"),
    ],
)
def test_what_is_no_address_is_named(address: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        ShortTermMemoryManager(address)


@each_row("address", ["memory://", "localhost:6379", "http://x", "", None])
def test_a_store_on_redis_says_which_addresses_it_takes(address: Any) -> None:
    with pytest.raises(ValueError, match="redis://") as caught:
        RedisMemoryStore(address)

    assert "postgresql" not in str(caught.value)


def test_a_hook_must_be_one() -> None:
    with pytest.raises(ValueError, match="`pii`"):
        ShortTermMemoryManager("memory://", pii="sha256")  # type: ignore[arg-type]  # a mistake
