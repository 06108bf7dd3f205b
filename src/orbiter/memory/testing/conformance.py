"""`StoreConformance`: every rule of `docs/concepts.md`, as tests a store inherits."""

from typing import Any, ClassVar

import pytest

from orbiter.memory.protocols import MemoryStore
from orbiter.memory.testing._concurrency import ConcurrencyContract
from orbiter.memory.testing._contract import CoreContract
from orbiter.memory.testing._conversations import ConversationContract
from orbiter.memory.testing._durability import DurabilityContract
from orbiter.memory.testing._isolation import IsolationContract
from orbiter.memory.testing._model import ModelContract
from orbiter.memory.testing.capabilities import Capabilities, Recipe

__all__ = ["StoreConformance"]


class StoreConformance(
    CoreContract,
    IsolationContract,
    ConversationContract,
    ConcurrencyContract,
    DurabilityContract,
    ModelContract,
):
    """Inherit it, give it a `store` fixture, and declare `capabilities`.

    The fixture returns a fresh, empty, opened store and closes it afterwards. Contracts cannot be
    overridden: a store that cannot keep one declares so, or is not conformant.
    """

    capabilities: ClassVar[Capabilities] = Capabilities()
    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    def store(self) -> MemoryStore:
        """Return the store under test; the inheriting class overrides this."""
        pytest.fail(f"`{type(self).__name__}` needs a `store` fixture that returns an opened store")

    def recipe(self, store: MemoryStore) -> Recipe:
        """Return how to make another store on the same data; durable stores override this."""
        raise AssertionError(
            f"`{type(store).__name__}` is declared durable or shared: "
            f"`{type(self).__name__}` needs a `recipe`"
        )

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in vars(cls):
            if name.startswith("test_") and hasattr(StoreConformance, name):
                raise TypeError(
                    f"`{cls.__name__}.{name}` overrides a contract; give your own test another "
                    "name, and declare what the store cannot do in `capabilities`"
                )
        for name in dir(StoreConformance):
            wanted = getattr(getattr(StoreConformance, name), "needs", {})
            if any(getattr(cls.capabilities, key) != value for key, value in wanted.items()):
                setattr(cls, name, None)  # not collected: the store does not claim it
