"""The table of signals: none of them can be there by half."""

import importlib.util
from pathlib import Path
from types import MappingProxyType

import pytest
from tests.recall.pools import ask, pool, talk
from tests.rows import each_row

from orbiter.memory.model.reading import Verdict
from orbiter.memory.recall import _mode_search, _rerank, _signals
from orbiter.memory.recall._rerank import ASSISTANT, PEOPLE, check_weights
from orbiter.memory.recall._signals import (
    SIGNALS,
    Evidence,
    Signal,
    SignalError,
    check_columns,
    measure,
    names,
)

ODD = Signal("odd", "other", lambda _: ("is odd", "is even"), lambda m: [1.0] * len(m.items))


def _import_changed(module: object, old: str, new: str) -> None:
    """Run the file of a module as if *new* stood in it in place of *old*."""
    path = Path(str(vars(module)["__file__"]))
    source = path.read_text(encoding="utf-8")
    assert source.count(old) >= 1
    spec = importlib.util.spec_from_file_location("changed", path)
    assert spec is not None
    changed = importlib.util.module_from_spec(spec)
    exec(compile(source.replace(old, new, 1), path, "exec"), changed.__dict__)


def test_a_signal_without_a_weight_is_an_error() -> None:
    with pytest.raises(SignalError, match="no weight for the signals `odd`"):
        check_weights((PEOPLE, ASSISTANT), signals=(*SIGNALS, ODD))


def test_a_weight_without_a_signal_is_an_error() -> None:
    planted = PEOPLE._replace(words=MappingProxyType({**PEOPLE.words, "odd": 1.0}))

    with pytest.raises(SignalError, match="weighs `odd`"):
        check_weights((planted, ASSISTANT))


def test_a_weight_of_what_is_not_measured_there_is_an_error() -> None:
    planted = PEOPLE._replace(words=PEOPLE.details)

    with pytest.raises(SignalError, match="weighs `meaning`, `neighbour_detail`, "):
        check_weights((planted, ASSISTANT))


@pytest.mark.parametrize("source", ["word_vectors", "caller"])
def test_a_column_that_another_module_measures_must_be_of_a_signal(source: str) -> None:
    measured = names(source)  # type: ignore[arg-type]  # one of them

    check_columns(source, measured)  # type: ignore[arg-type]
    with pytest.raises(SignalError, match="`odd`"):
        check_columns(source, [*measured, "odd"])  # type: ignore[arg-type]
    with pytest.raises(SignalError, match=f"`{measured[-1]}`"):
        check_columns(source, measured[:-1])  # type: ignore[arg-type]


def test_a_signal_must_be_measured_by_itself_or_by_another_module() -> None:
    with pytest.raises(SignalError, match="`odd`"):
        Signal("odd", "other", ODD.words)
    with pytest.raises(SignalError, match="`odd`"):
        Signal("odd", "other", ODD.words, ODD.column, "caller")
    with pytest.raises(TypeError, match="words"):
        Signal("odd", "other")  # type: ignore[call-arg]  # no words


def test_two_signals_of_one_name_are_an_error() -> None:
    with pytest.raises(SignalError, match="`words` twice"):
        check_weights((PEOPLE, ASSISTANT), signals=(*SIGNALS, SIGNALS[0]))


@each_row(
    ("module", "old", "new"),
    [
        (_rerank, "words=0.16", "wrods=0.16"),
        (_rerank, " detail=1.00,", ""),
        (_rerank, '"neighbour_detail"', '"neighbor_detail"'),
        (_mode_search, '("recency", "importance")', '("recency",)'),
        (_signals, "lambda m: standardise(m.bm25())", "None"),
    ],
    ids=["unknown weight", "no weight", "unknown column", "no column", "no measure"],
)
def test_the_package_does_not_import_with_half_a_signal(module: object, old: str, new: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        _import_changed(module, old, new)

    assert type(caught.value).__name__ == "SignalError"  # `_signals` run again has its own


def test_every_signal_is_measured_and_has_words() -> None:
    question, candidates = ask("Where is the red house?"), pool(talk("a house"), similarity={})

    table = measure(question, candidates)

    assert list(table.columns) == names("text", "vectors")
    table.verdicts[0] = Verdict(1.0, 1.0, 0.0)
    evidence = Evidence(question, candidates, table, table.items[0], 0)
    for signal in SIGNALS:
        assert all(signal.words(evidence))
