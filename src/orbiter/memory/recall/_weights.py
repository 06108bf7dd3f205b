"""How much each kind of evidence counts: fitted on conversations by `benchmarks/recall_fit.py`.

Two kinds of talk differ too much for one set: people who call each other by name and say little
at a time, and a person with an assistant who answers at length. Which one a pool is of shows in
who speaks in it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from orbiter.memory.model.items import AIMemory, MemoryItem
from orbiter.memory.recall._signals import SIGNALS, Signal, SignalError, names

__all__ = ["ASSISTANT", "PEOPLE", "Kind", "check_weights", "kind_of"]

Weights = Mapping[str, float]

_ECHO = -3.0
"""Not fitted: the question that was just stored must not be its own answer."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The weights for one kind of talk, by what is at hand."""

    words: Weights
    """Without a model."""
    meaning: Weights
    """With vectors of whole texts."""
    details: Weights
    """With vectors of words, too, for the best candidates."""


def _weights(**values: float) -> Weights:
    return MappingProxyType({**values, "echo": _ECHO})


PEOPLE = Kind(
    words=_weights(
        words=0.11, prev_turn=0.28, neighbours=0.51, session=0.52,
        speaker=2.53, date=3.92, when=2.09, question=-0.74, length=0.39,
    ),
    meaning=_weights(
        meaning=0.66, neighbour_meaning=0.55, words=0.05, prev_turn=0.23, neighbours=0.36,
        session=0.38, speaker=2.54, date=3.69, when=2.12, question=-0.81, length=0.40,
    ),
    details=_weights(
        meaning=0.39, neighbour_meaning=0.49, words=0.05, prev_turn=0.11, neighbours=0.26,
        session=0.36, detail=0.27, neighbour_detail=0.37, speaker=2.45, date=3.46, when=2.07,
        question=-0.80,
    ),
)  # fmt: skip
# Words and meaning are held at one ratio here: fitted freely, words take all on the one data set
# at hand, and lose to meaning on others.
ASSISTANT = Kind(
    words=_weights(
        words=1.21, session=0.34,
        user=2.58, assistant=2.01, date=2.21, question=-0.66, length=-0.53,
    ),
    meaning=_weights(
        words=0.80, meaning=0.80, session=0.30,
        user=2.80, assistant=2.30, date=2.18, question=-0.67, length=-0.22,
    ),
    details=_weights(
        words=0.56, meaning=0.28, detail=0.84, session=0.10, session_meaning=0.11,
        user=2.12, assistant=1.97, date=2.04, question=-0.51, length=-0.51,
    ),
)  # fmt: skip

_SHARE = 0.1


def check_weights(kinds: Sequence[Kind], *, signals: Sequence[Signal] = SIGNALS) -> None:
    """Raise `SignalError` for a weight without a signal, or a signal without a weight."""
    repeated = [name for name, count in Counter(each.name for each in signals).items() if count > 1]
    if repeated:
        raise SignalError(f"`SIGNALS` has `{'`, `'.join(repeated)}` twice")
    text = names("text", signals=signals)
    with_vectors = text + names("vectors", signals=signals)
    every = with_vectors + names("word_vectors", signals=signals)
    weighed: set[str] = set()
    for kind in kinds:
        for weights, known in (
            (kind.words, text),
            (kind.meaning, with_vectors),
            (kind.details, every),
        ):
            weighed.update(weights)
            if unknown := sorted(set(weights).difference(known)):
                raise SignalError(
                    f"`_weights` weighs `{'`, `'.join(unknown)}`, which `SIGNALS` does not measure "
                    "there"
                )
    if lacking := [name for name in every if name not in weighed]:
        raise SignalError(f"`_weights` has no weight for the signals `{'`, `'.join(lacking)}`")


check_weights((PEOPLE, ASSISTANT))


def kind_of(items: Sequence[MemoryItem]) -> Kind:
    """Return the weights for a pool of *items*."""
    from_assistant = sum(isinstance(item, AIMemory) for item in items)
    return ASSISTANT if from_assistant > _SHARE * len(items) else PEOPLE
