"""Models whose vectors a store keeps, and the items that wait for theirs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from orbiter.memory.model.protocols import Embeddings

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["Embedded", "Model", "Source", "Waiting"]


class Model(NamedTuple):
    """Embeddings whose vectors are kept."""

    key: Any
    """What the driver knows it by."""
    name: str
    dimension: int
    is_current: bool
    """Whether it is the one that is searched, and not still on its way to be."""

    def is_of(self, embeddings: Embeddings) -> bool:
        """Tell whether vectors of *embeddings* can be compared with this model's."""
        return (self.name, self.dimension) == (embeddings.name, embeddings.dimension)


class Waiting(NamedTuple):
    """An item without vectors."""

    key: Any
    """What the driver knows it by, and what tells it whether the item has changed."""
    content: str
    is_put_off: bool = False
    """Whether the embeddings have refused it before."""


class Embedded(NamedTuple):
    """What the embeddings made of an item's passages."""

    vectors: "npt.NDArray[np.float32]"
    """A row per passage, of length 1; none for a text that says nothing."""
    details: list[bytes] | None = None
    """The details of each passage, as `Embeddings` makes them; `None` where no passage has any."""


class Source(Protocol):
    """Where items wait; `SQLRecall` says what each method means."""

    _model: Model | None

    async def _take_waiting(self, model: Model, count: int) -> list[Waiting] | None: ...

    async def _keep_vectors(
        self, model: Model, done: Sequence[tuple[Waiting, Embedded | None]]
    ) -> None: ...

    async def _count_waiting(self, model: Model) -> int | None: ...

    async def _renew(self, stale: Model) -> Model: ...

    async def _unembedded(self) -> int: ...
