"""What an embedder written for the three abstract methods gets for nothing."""

import pytest

from orbiter.memory import Embeddings
from orbiter.memory.testing import HashEmbeddings


class Letters(Embeddings):
    """As people write them who have read only the abstract class."""

    def embed(self, text: str) -> list[float]:
        return [float(len(text))]

    async def aembed(self, text: str) -> list[float]:
        return self.embed(text)

    @property
    def dimension(self) -> int:
        return 1


async def test_many_texts_are_embedded_one_by_one() -> None:
    assert Letters().embed_many(["a", "bb"]) == [[1.0], [2.0]]
    assert await Letters().aembed_many(("a", "bb")) == [[1.0], [2.0]]
    assert Letters().embed_many([]) == []


def test_a_model_without_a_name_has_its_classs() -> None:
    assert Letters().name == f"{__name__}.Letters"
    assert "HashEmbeddings" in HashEmbeddings().name


def test_the_abstract_methods_are_three() -> None:
    assert Embeddings.__abstractmethods__ == {"embed", "aembed", "dimension"}
    with pytest.raises(TypeError, match="abstract"):
        Embeddings()  # type: ignore[abstract]
