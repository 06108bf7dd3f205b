"""The figures of `benchmarks/structure.py`: what is reached stays reached."""

import pytest
from benchmarks.structure import Figure, circles, figures, floors

ALLOWED = {
    "circles of modules": 3,
    "source files": 415,
    "files under 150 lines beside their only importer": 20,
}
"""Figures that are beyond their bar: they only ever shrink, and a met bar leaves this list."""


@pytest.mark.parametrize("figure", figures(), ids=lambda figure: figure.name)
def test_a_figure_is_within_its_bar(figure: Figure) -> None:
    most = max(figure.bar, ALLOWED.get(figure.name, 0))

    assert figure.value <= most, "\n".join(figure.items)


def test_circles_and_floors_are_counted() -> None:
    graph = {"cli": {"agent"}, "agent": {"client", "model"}, "client": {"agent"}, "model": set()}

    assert circles(graph) == [["agent", "client"]]
    assert floors(graph) == {"agent": 2, "cli": 3, "client": 2, "model": 1}
