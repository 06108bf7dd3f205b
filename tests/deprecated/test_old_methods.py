"""Methods that got a better name: the old one does the same, and warns."""

import pytest

from orbiter.memory import AgentMemory
from orbiter.memory.deprecation import OrbiterDeprecationWarning
from orbiter.memory.sync import AgentMemory as BlockingMemory
from orbiter.memory.testing import HashEmbeddings


async def test_settle_does_what_flush_does() -> None:
    async with AgentMemory("memory://", embeddings=HashEmbeddings()) as memory:
        alice = memory.scope(user_id="alice")
        await alice.remember("Likes oolong.")

        with pytest.warns(OrbiterDeprecationWarning, match="`settle` is now `flush`") as caught:
            await memory.settle()

        assert caught[0].filename == __file__
        assert (await memory.stats()).unembedded == 0


def test_a_blocking_memory_has_the_old_name_as_well() -> None:
    with BlockingMemory("memory://", embeddings=None) as memory:
        with pytest.warns(OrbiterDeprecationWarning, match="`settle` is now `flush`") as caught:
            memory.settle()

        assert [each.filename for each in caught] == [__file__]
