"""`VectorMemoryStore` keeps every contract, with vectors of few and of many numbers."""

import pytest

from orbiter.memory.backends.vector.store import VectorMemoryStore
from orbiter.memory.testing import Capabilities, HashEmbeddings, StoreConformance


class TestVectorMemoryStore(StoreConformance):
    capabilities = Capabilities(
        text="meaning", lifecycle=False, durable=False, shared=False, where=True
    )
    dimension = 64

    @pytest.fixture
    def store(self) -> VectorMemoryStore:
        return VectorMemoryStore(HashEmbeddings(self.dimension))


@pytest.mark.full  # the same contract with another setting
class TestOpenAISize(TestVectorMemoryStore):
    dimension = 1536
