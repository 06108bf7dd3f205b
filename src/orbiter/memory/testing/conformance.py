"""`StoreConformance`: every rule of `docs/concepts.md`, as tests a store inherits."""

import inspect
from typing import Any, ClassVar, Final

import pytest

from orbiter.memory.model.protocols import MemoryStore
from orbiter.memory.testing.capabilities import Capabilities, Recipe
from orbiter.memory.testing.contracts.add_get_contract import CoreContract, RefusalContract
from orbiter.memory.testing.contracts.concurrency_contract import ConcurrencyContract
from orbiter.memory.testing.contracts.conversation_contract import ConversationContract
from orbiter.memory.testing.contracts.erase_contract import EraseContract
from orbiter.memory.testing.contracts.expiry_contract import ExpiryContract
from orbiter.memory.testing.contracts.facet_contract import FacetContract
from orbiter.memory.testing.contracts.fidelity_contract import FidelityContract
from orbiter.memory.testing.contracts.filter_contract import FilterContract, WhereContract
from orbiter.memory.testing.contracts.insert_contract import InsertContract
from orbiter.memory.testing.contracts.isolation_contract import IsolationContract
from orbiter.memory.testing.contracts.key_value_contract import KeyValueContract
from orbiter.memory.testing.contracts.lifecycle_contract import (
    DurabilityContract,
    LifecycleContract,
)
from orbiter.memory.testing.contracts.order_contract import InsertionContract, OrderContract
from orbiter.memory.testing.contracts.paging_contract import PagingContract
from orbiter.memory.testing.contracts.state_machine_contract import ModelContract
from orbiter.memory.testing.contracts.vector_contract import MeaningContract
from orbiter.memory.testing.contracts.version_contract import VersionContract

__all__ = ["StoreConformance"]


class _NotDeclared:
    """Stands where a contract was that the store does not claim; pytest collects functions only."""

    def __repr__(self) -> str:
        return "<not declared>"


_NOT_DECLARED: Final = _NotDeclared()


# pytest runs the last base first: whoever stops at the first failure meets the plainest rule.
class StoreConformance(
    ModelContract,
    DurabilityContract,
    LifecycleContract,
    ConcurrencyContract,
    ConversationContract,
    InsertionContract,
    PagingContract,
    MeaningContract,
    KeyValueContract,
    FacetContract,
    EraseContract,
    InsertContract,
    VersionContract,
    ExpiryContract,
    IsolationContract,
    WhereContract,
    OrderContract,
    FilterContract,
    RefusalContract,
    FidelityContract,
    CoreContract,
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
        for name, contract in _CONTRACTS.items():
            # As it resolves, not as it stands in the class: a mixin may come first.
            current = inspect.getattr_static(cls, name)
            if current is not contract and current is not _NOT_DECLARED:
                raise TypeError(
                    f"`{cls.__name__}.{name}` overrides a contract; give your own test another "
                    "name, and declare what the store cannot do in `capabilities`"
                )
            needed = getattr(contract, "needs", {})
            is_declared = all(getattr(cls.capabilities, key) == needed[key] for key in needed)
            # A parent may have declared less, or more: only this class's own word counts.
            wanted = contract if is_declared else _NOT_DECLARED
            if current is not wanted:
                setattr(cls, name, wanted)


_CONTRACTS: Final = {
    name: inspect.getattr_static(StoreConformance, name)
    for name in dir(StoreConformance)
    if name.startswith("test_")
}
