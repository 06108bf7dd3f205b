"""Samples of erased text, taken before an erasure and searched for afterwards.

They are in memory only, and in the checkpoint of a job until that is done: what a killed process
has removed can be looked for by nothing else.

A few short slices of a few texts, chosen by chance, tell whether a structure was cleaned at all: it
keeps all texts in one way. Names are looked for as a whole.
"""

import heapq
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar

from orbiter.memory.text import words

__all__ = ["NAMES", "SHORTEST", "TEXTS", "WIDTH", "Probe", "Probes", "found_in"]

_T = TypeVar("_T")

TEXTS = 12
"""Texts that traces are taken of."""

NAMES = 8
"""Ids of items that are looked for."""

WIDTH = 24
"""Characters of a slice: short, as a page of a file may end anywhere."""

SHORTEST = 7
"""Bytes below which a trace is found by chance in what has nothing to do with it."""


class Probe(NamedTuple):
    """What is looked for, and whether it is a part of a term, as an index of terms has it."""

    trace: bytes
    is_term: bool = False


class Probes:
    """Traces of what a scope holds, bounded in number."""

    def __init__(self, wanted: Mapping[Any, str] | None = None) -> None:
        self._texts: list[tuple[int, tuple[Probe, ...]]] = []
        self._ids: list[tuple[int, str]] = []
        self._names: dict[Probe, None] = {}
        for name, value in (wanted or {}).items():
            self.add_name(value)
            self._names[Probe(f'"{name}":"{value}"'.encode(errors="replace"))] = None

    @property
    def ids(self) -> list[str]:
        """Some ids of items that go."""
        return [item_id for _, item_id in self._ids]

    def add_id(self, item_id: str) -> None:
        """Look for an item's id, if chance wants it so."""
        _sample(self._ids, _chance(item_id), item_id, NAMES)

    def add_name(self, name: str) -> None:
        """Look for a name, in any case."""
        probe = Probe(name.encode(errors="replace"))
        if len(probe.trace) >= SHORTEST:
            self._names[probe] = None

    def add_term(self, term: str) -> None:
        """Look for a term of an index."""
        if (probe := _term(term)) is not None:
            self._names[probe] = None

    def add_bytes(self, data: bytes) -> None:
        """Look for a part of a vector, if chance wants it so."""
        part = data[:WIDTH]
        if len(set(part)) >= SHORTEST:  # a vector of few words is zeros mostly
            self._keep(data, (Probe(part),))

    def add_text(self, text: str) -> None:
        """Look for slices of a text and its longest term, if chance wants it so."""
        chance = _chance(text)
        if len(self._texts) < TEXTS or chance < -self._texts[0][0]:
            starts = {max(0, len(text) // 2 - WIDTH // 2), max(0, len(text) - WIDTH)}
            probes = [Probe(text[at : at + WIDTH].encode(errors="replace")) for at in starts]
            terms = words.terms(text[:4096])
            probes += [probe for each in terms if (probe := _term(each)) is not None][:2]
            long = tuple(probe for probe in probes if len(probe.trace) >= SHORTEST)
            _sample(self._texts, chance, long, TEXTS)

    def _keep(self, data: bytes, probes: tuple[Probe, ...]) -> None:
        _sample(self._texts, _chance(data), probes, TEXTS)

    def dump(self) -> dict[str, Any]:
        """Return the traces as JSON."""
        return {
            "texts": [[chance, list(map(_dump, probes))] for chance, probes in self._texts],
            "ids": [[chance, item_id] for chance, item_id in self._ids],
            "names": [_dump(probe) for probe in self._names],
        }

    def load(self, saved: Mapping[str, Any]) -> None:
        """Take back traces that were taken before."""
        for chance, probes in saved.get("texts", ()):
            _sample(self._texts, -chance, tuple(map(_load, probes)), TEXTS)
        for chance, item_id in saved.get("ids", ()):
            _sample(self._ids, -chance, item_id, NAMES)
        self._names |= {_load(probe): None for probe in saved.get("names", ())}

    def taken(self) -> list[Probe]:
        """Return what to look for."""
        ids = [Probe(each.encode(errors="replace")) for each in self.ids]
        several = [probe for _, probes in self._texts for probe in probes]
        return list(
            dict.fromkeys(
                probe for probe in [*self._names, *ids, *several] if len(probe.trace) >= SHORTEST
            )
        )


def _dump(probe: Probe) -> list[Any]:
    return [probe.trace.hex(), probe.is_term]


def _load(saved: list[Any]) -> Probe:
    return Probe(bytes.fromhex(saved[0]), is_term=bool(saved[1]))


def found_in(data: bytes, probes: Iterable[Probe]) -> set[Probe]:
    """Return those of *probes* that *data* holds."""
    return {probe for probe in probes if probe.trace in data}


def _term(term: str) -> Probe | None:
    """Return the end of a term: an index leaves out what it has in common with the one before."""
    tail = term[len(term) // 3 :].encode(errors="replace")
    return Probe(tail, is_term=True) if len(tail) >= SHORTEST else None


def _chance(data: str | bytes) -> int:
    raw = data.encode(errors="surrogatepass") if isinstance(data, str) else data
    return int.from_bytes(blake2b(raw, digest_size=6).digest(), "big")


def _sample(heap: list[tuple[int, _T]], chance: int, value: _T, most: int) -> None:
    """Keep the *most* values of the least chances, each once: so all are kept as likely."""
    if any(each[0] == -chance for each in heap):
        return
    heapq.heappush(heap, (-chance, value))
    if len(heap) > most:
        heapq.heappop(heap)
