"""The figures of `benchmarks/structure.py`: what is reached stays reached."""

import pytest
from benchmarks.structure import Figure, circles, figures, floors


@pytest.mark.parametrize("figure", figures(), ids=lambda figure: figure.name)
def test_a_figure_is_within_its_bar(figure: Figure) -> None:
    assert figure.is_met, "\n".join(figure.items)


def test_circles_and_floors_are_counted() -> None:
    graph = {"cli": {"agent"}, "agent": {"client", "model"}, "client": {"agent"}, "model": set()}

    assert circles(graph) == [["agent", "client"]]
    assert floors(graph) == {"agent": 2, "cli": 3, "client": 2, "model": 1}
