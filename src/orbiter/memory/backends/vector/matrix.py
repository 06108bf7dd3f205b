"""`VectorMatrix`: the vectors of one owner, and the search for the nearest of them.

Rows are only ever appended; one that is replaced or removed is marked dead, and when too many are,
the living are copied to a new matrix. So what a reader has seen stays as it was: a lock guards the
bookkeeping, never the product.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from orbiter.memory._lazy import missing_extra

try:
    import numpy as np
    import numpy.typing as npt
except ModuleNotFoundError as exc:
    raise missing_extra("searching by meaning needs numpy", "vector") from exc

from orbiter.memory.backends.vector.normalize import direction, directions
from orbiter.memory.backends.vector.sketches import Sketches
from orbiter.memory.backends.vector.top_k import Rows, SubsetProduct, product, ranked

if TYPE_CHECKING:
    from orbiter.memory.backends.vector.approximate import Candidates

__all__ = ["RowIndex", "Snapshot", "VectorMatrix"]

_MAX_GRAPH_COUNT = 200
"""Who wants more than this many is answered exactly: graphs and sketches are for few."""
_SKETCHED_DIMENSION = 64
"""Fewer numbers have too few signs to tell what is far."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Some rows of a matrix, or all of them, as they were at one moment."""

    dimension: int
    seen: Rows
    places: npt.NDArray[np.int64] | None
    subsets: SubsetProduct
    guess: Callable[[npt.NDArray[np.float32], int], npt.NDArray[np.int64]] | None = None
    """What names keys that are probably the nearest; `None` if all are looked at."""
    again: Callable[[npt.NDArray[np.int64]], "Snapshot"] | None = None
    """What returns the rows of such keys."""
    sketches: Sketches | None = None
    """What passes over rows that are far away; `None` if all are scored."""

    @property
    def numbers(self) -> int:
        """How many numbers a search multiplies."""
        rows = len(self.seen.keys) if self.places is None else len(self.places)
        return rows * self.dimension

    def nearest(self, vector: npt.ArrayLike, count: int) -> list[tuple[int, float]]:
        """Return the *count* nearest keys and their cosines, best first, then by rank."""
        towards = direction(vector, self.dimension)
        if count < 1:
            return []
        if self.guess is not None and self.again is not None and count <= _MAX_GRAPH_COUNT:
            return self.again(self.guess(towards, count)).nearest(vector, count)
        if self.places is not None:
            scores = self.subsets.product(self.seen.vectors, self.places, towards)
        elif self.sketches is not None and count <= _MAX_GRAPH_COUNT:
            return self._nearest_passing(self.sketches, towards, count)
        else:
            scores = product(self.seen.vectors, towards)
            if self.seen.dead is not None:
                np.putmask(scores, self.seen.dead, -np.inf)
        return ranked(self.seen, towards, scores, count, places=self.places)

    def _nearest_passing(
        self, sketches: Sketches, towards: npt.NDArray[np.float32], count: int
    ) -> list[tuple[int, float]]:
        rows = sketches.passing(towards, len(self.seen.keys), self.seen.dead)
        scores = product(self.seen.vectors[rows], towards)
        if self.seen.dead is not None:
            np.putmask(scores, self.seen.dead[rows], -np.inf)
        return ranked(self.seen, towards, scores, count, places=rows)


_Floats = npt.NDArray[np.float32]
_Integers = npt.NDArray[np.int64]

_SPARE = 1.5
"""By how much a full matrix grows: pages that were never written take no memory."""
_DEAD = 0.25
"""Which part of the rows may be dead before the living are copied."""


class VectorMatrix:
    """The vectors of one owner, contiguous, several rows per key; cosine search.

    A key is as near as the nearest of its rows. Any number of threads may read while one writes,
    or several: each call sees the matrix as it is between two writes. What the vectors are refused
    for is a `ValueError`; then nothing has changed.

    With *approximate_from*, a search among all of so many rows or more takes its candidates from a
    graph, which may miss some; the first such search builds it, at about a millisecond a row.
    With *sketched_from*, one among so many passes over rows whose `Sketches` say that they are far
    away. Else it is exact.
    """

    def __init__(
        self,
        dimension: int,
        *,
        approximate_from: int | None = None,
        sketched_from: int | None = None,
    ) -> None:
        if dimension < 1:
            raise ValueError(f"`dimension` must be a whole number above 0, not {dimension!r}")
        if approximate_from is not None:  # told now, not when there is much to lose
            import_module("orbiter.memory.backends.vector.approximate")
        self.dimension = dimension
        self.approximate_from = approximate_from
        is_wide = dimension >= _SKETCHED_DIMENSION and hasattr(np, "bitwise_count")  # numpy 2
        self.sketched_from = sketched_from if is_wide else None
        self._lock = threading.Lock()
        self._clear()

    def _clear(self) -> None:
        self._vectors: _Floats = np.empty((0, self.dimension), np.float32)
        self._keys: _Integers = np.empty(0, np.int64)
        self._ranks: _Integers = np.empty(0, np.int64)
        self._lengths: npt.NDArray[np.int32] = np.empty(0, np.int32)
        self._dead: npt.NDArray[np.bool_] = np.empty(0, np.bool_)
        self._is_seen = False
        self._used = self._dead_count = self._arrivals = 0
        self._has_several = False
        self._places = RowIndex()
        self._subsets = SubsetProduct()
        self._candidates: Candidates | None = None
        self._sketches = Sketches(self.dimension)

    def __len__(self) -> int:
        return len(self._places)

    @property
    def rows(self) -> int:
        """How many vectors there are."""
        return self._used - self._dead_count

    def __contains__(self, key: int) -> bool:
        return key in self._places

    # Writing

    def put(self, key: int, vectors: npt.ArrayLike, *, rank: int | None = None) -> None:
        """Keep the vectors of *key*, one per row, in place of those it had.

        Of keys that are equally near, the one of the lowest *rank* comes first: the one put first,
        unless the caller counts otherwise. A key that is put again keeps its rank.
        """
        rows = directions(vectors, self.dimension)
        if not len(rows):
            raise ValueError(f"key `{key}` needs at least one vector")
        key = int(np.int64(key))  # refused here if it is too large
        with self._lock:
            start = self._append(rows)
            self._reserve(key, start, len(rows), rank)
            self._places.put(key, start)
            self._tidy()

    def put_many(
        self, keys: npt.ArrayLike, vectors: npt.ArrayLike, *, ranks: npt.ArrayLike | None = None
    ) -> None:
        """Keep one vector for each of *keys*; those of one key, adjacent or not, belong to it.

        *ranks*, one for each of *keys*, replace those that these had; of equal ranks, the highest
        key comes first.
        """
        rows = directions(vectors, self.dimension)
        key_array = np.asarray(keys, np.int64)
        if key_array.shape != (len(rows),):
            raise ValueError(f"{len(rows)} vectors need as many keys, not {key_array.shape}")
        order_by = None if ranks is None else np.asarray(ranks, np.int64)
        if order_by is not None and order_by.shape != key_array.shape:
            raise ValueError(f"{len(rows)} vectors need as many ranks, not {order_by.shape}")
        if not len(rows):
            return
        different, first, inverse = np.unique(key_array, return_index=True, return_inverse=True)
        starts = _starts(key_array)
        if len(different) != len(starts):  # some key's rows are apart: bring them together
            order = np.argsort(first[inverse], kind="stable")
            key_array, rows = key_array[order], rows[order]
            order_by = None if order_by is None else order_by[order]
            starts = _starts(key_array)
        lengths = np.diff(starts, append=len(key_array))
        with self._lock:
            offset = self._append(rows)
            first_keys, first_rows = key_array[starts], starts + offset
            if self._candidates is None and not self._places.has_any(different):
                self._reserve_new(key_array, first_rows, lengths, offset)
            else:
                every = (first_keys.tolist(), first_rows.tolist(), lengths.tolist())
                for key, start, length in zip(*every, strict=True):
                    self._reserve(key, start, length)
            if order_by is not None:
                self._ranks[offset : offset + len(rows)] = order_by
            self._places.put_many(first_keys, first_rows)
            self._tidy()

    def remove(self, key: int) -> bool:
        """Forget the vectors of *key*; tell whether it had any."""
        with self._lock:
            if key not in self._places:
                return False
            self._retire(self._places.pop(int(key)))
            self._tidy()
            return True

    def make_room(self, count: int) -> None:
        """Have room for *count* vectors, so that they need not be moved as they become more."""
        with self._lock:
            if count > len(self._vectors):
                self._move(slice(0, self._used), count)

    def _append(self, rows: _Floats) -> int:
        """Put vectors behind the others; return where they begin."""
        start, needed = self._used, self._used + len(rows)
        if needed > len(self._vectors):
            self._move(slice(0, start), max(int(needed * _SPARE), 16))
        self._vectors[start:needed] = rows
        self._dead[start:needed] = False
        self._used = needed
        return start

    def _reserve(self, key: int, start: int, length: int, rank: int | None = None) -> None:
        """Make rows those of *key*, in place of the ones it had."""
        old = self._places.get(key)
        if old is not None:
            rank = int(self._ranks[old])
            self._retire(old)
        elif rank is None:
            self._arrivals += 1
            rank = self._arrivals
        if self._candidates is not None:
            keys = np.full(length, key, np.int64)
            self._candidates.put(keys, self._vectors[start : start + length])
        self._keys[start : start + length] = key
        self._ranks[start : start + length] = rank
        self._lengths[start] = length
        self._has_several = self._has_several or length > 1

    def _reserve_new(
        self, keys: _Integers, starts: _Integers, lengths: _Integers, offset: int
    ) -> None:
        """Make rows those of *keys*, none of which had any; as `_reserve` does for each."""
        used = slice(offset, offset + len(keys))
        self._keys[used] = keys
        arrived = self._arrivals + 1
        self._ranks[used] = np.repeat(np.arange(arrived, arrived + len(starts)), lengths)
        self._arrivals += len(starts)
        self._lengths[starts] = lengths
        self._has_several = self._has_several or len(starts) < len(keys)

    def _retire(self, start: int) -> None:
        length = int(self._lengths[start])
        if self._is_seen:  # a reader may still look at the old marks
            self._dead = self._dead.copy()
            self._is_seen = False
        self._dead[start : start + length] = True
        self._dead_count += length
        if self._candidates is not None:
            self._candidates.remove(int(self._keys[start]))

    def _tidy(self) -> None:
        """Copy the living away from the dead if these are too many."""
        if not len(self._places):
            self._clear()
        elif self._dead_count > max(64, _DEAD * self._used):
            living = np.flatnonzero(~self._dead[: self._used])
            # By rank, so that a key which was replaced is back among its neighbours.
            living = living[np.argsort(self._ranks[living], kind="stable")]
            self._move(living, int(len(living) * _SPARE))
            self._used, self._dead_count = len(living), 0
            starts = _starts(self._keys[: self._used])
            self._places = RowIndex()
            self._places.put_many(self._keys[starts], starts)
            self._subsets = SubsetProduct()

    def _move(self, rows: slice | _Integers, capacity: int) -> None:
        """Copy *rows* to new arrays; who reads the old ones is not disturbed."""
        for name in ("_vectors", "_keys", "_ranks", "_lengths", "_dead"):
            old = getattr(self, name)[rows]
            new = np.empty((capacity, *old.shape[1:]), old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)
        self._is_seen = False
        self._sketches = Sketches(self.dimension)

    # Reading

    def nearest(
        self, vector: npt.ArrayLike, count: int, *, among: npt.ArrayLike | None = None
    ) -> list[tuple[int, float]]:
        """Return the *count* nearest keys and their cosines, best first.

        With *among*, only those keys are looked at; one that is not here is passed over.
        """
        return self.snapshot(among).nearest(vector, count)

    def snapshot(self, among: npt.ArrayLike | None = None) -> Snapshot:
        """Return what there is now, or what there is of *among*, to be searched at leisure."""
        with self._lock:
            rows = None if among is None else self._rows_of(np.asarray(among, np.int64))
            seen = self._seen()
            if rows is not None or self.approximate_from is None:
                sketches = None if rows is not None else self._sketched()
                return Snapshot(self.dimension, seen, rows, self._subsets, sketches=sketches)
            if self.rows >= max(1, self.approximate_from) and self._candidates is None:
                self._candidates = _graph(self.dimension, seen)
            guess = None if self._candidates is None else self._candidates.nearest
            return Snapshot(self.dimension, seen, None, self._subsets, guess, self.snapshot)

    def _sketched(self) -> Sketches | None:
        """Return the sketches of all rows, made for those that are new; `None` for a few rows."""
        if self.sketched_from is None or self.rows < max(1, self.sketched_from):
            return None
        new = self._vectors[len(self._sketches) : self._used]
        self._sketches.extend(new, room=len(self._vectors))
        return self._sketches

    def similarities(self, vector: npt.ArrayLike, keys: Iterable[int]) -> dict[int, float]:
        """Return how near each of *keys* is that is here."""
        key_array = np.fromiter(keys, np.int64)
        return dict(self.nearest(vector, len(key_array), among=key_array))

    def vectors(self, key: int) -> _Floats | None:
        """Return the vectors of *key* as they are kept, of length 1, or `None`."""
        with self._lock:
            start = self._places.get(key)
            if start is None:
                return None
            return self._vectors[start : start + int(self._lengths[start])].copy()

    def _rows_of(self, keys: _Integers) -> _Integers:
        """Return the rows of those of *keys* that are here, ascending."""
        starts = self._places.find(keys)
        if not self._has_several or not len(starts):
            return starts
        lengths = self._lengths[starts]
        ends = np.cumsum(lengths)
        return np.repeat(starts - ends + lengths, lengths) + np.arange(ends[-1])

    def _seen(self) -> Rows:
        self._is_seen = True
        used = slice(0, self._used)
        dead = self._dead[used] if self._dead_count else None
        return Rows(self._vectors[used], self._keys[used], self._ranks[used], dead)


def _graph(dimension: int, seen: Rows) -> "Candidates":
    from orbiter.memory.backends.vector.approximate import Candidates  # noqa: PLC0415

    if seen.dead is None:
        return Candidates(dimension, seen.keys, seen.vectors)
    living = np.flatnonzero(~seen.dead)
    return Candidates(dimension, seen.keys[living], seen.vectors[living])


def _starts(keys: _Integers) -> _Integers:
    """Return where each stretch of equal keys begins."""
    is_start = np.ones(len(keys), np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=is_start[1:])
    return np.flatnonzero(is_start)


_WIDEST = 16
"""How many numbers a table may span for each key: 64 bytes, a few percent of most vectors."""


class RowIndex:
    """Keys and their first rows. Changed, and asked for many, by one thread at a time."""

    def __init__(self) -> None:
        self._places: dict[int, int] = {}
        self._many: _Table | _Sorted | None = _Table()
        """How many are found at once; `None` until it is needed."""

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def get(self, key: int) -> int | None:
        """Return the first row of *key*."""
        return self._places.get(key)

    def put(self, key: int, row: int) -> None:
        """Remember where *key* is now."""
        self._places[key] = row
        if self._many is not None and not self._many.put(key, row):
            self._many = None

    def put_many(self, keys: _Integers, rows: _Integers) -> None:
        """Remember where each of *keys* is now."""
        self._places.update(zip(keys.tolist(), rows.tolist(), strict=True))
        self._many = None

    def pop(self, key: int) -> int:
        """Forget *key*; return where it was."""
        if self._many is not None:
            self._many.put(key, -1)
        return self._places.pop(key)

    def has_any(self, keys: _Integers) -> bool:
        """Tell whether any of *keys* is here."""
        return not self._places.keys().isdisjoint(keys.tolist())

    def find(self, keys: _Integers) -> _Integers:
        """Return the first rows of those of *keys* that are here, ascending, each once."""
        if self._many is None:
            self._many = self._lookup() if self._places else _Table()
        rows = self._many.find(keys)
        if len(rows) and (rows[0] < 0 or not (rows[1:] > rows[:-1]).all()):
            rows = np.unique(rows[rows >= 0])
        return rows

    def _lookup(self) -> "_Table | _Sorted":
        keys = np.fromiter(self._places, np.int64, len(self._places))
        rows = np.fromiter(self._places.values(), np.int64, len(self._places))
        lowest, highest = int(keys.min()), int(keys.max())
        if highest - lowest < _WIDEST * len(keys) + 1024:
            return _Table(keys, rows, lowest, highest)
        return _Sorted(keys, rows)


class _Table:
    """A row for every number from the lowest key on; -1 for one that is no key."""

    def __init__(
        self,
        keys: _Integers | None = None,
        rows: _Integers | None = None,
        lowest: int = 0,
        highest: int = -1,
    ) -> None:
        # Twice the room, so that keys which go on counting seldom need another table; and a place
        # at either end for what lies outside.
        self._lowest = lowest - 1
        self._rows = np.full(2 * (highest - lowest + 1) + 2, -1, np.int32)
        if keys is not None and rows is not None:
            self._rows[keys - self._lowest] = rows

    def put(self, key: int, row: int) -> bool:
        """Set the row of *key*; false if the table does not reach so far."""
        place = key - self._lowest
        if not 0 < place < len(self._rows) - 1:
            return False
        self._rows[place] = row
        return True

    def find(self, keys: _Integers) -> _Integers:
        """Return the row of each of *keys*, or -1."""
        # A key so low that the difference overflows is found nowhere near: it is clipped, too.
        return self._rows.take(keys - self._lowest, mode="clip").astype(np.int64)


class _Sorted:
    """Keys too far apart for a table, in order; halving finds them."""

    def __init__(self, keys: _Integers, rows: _Integers) -> None:
        order = np.argsort(keys, kind="stable")
        self._used = len(keys)
        self._keys = np.resize(keys[order], self._used * 3 // 2 + 16)
        self._rows = np.resize(rows[order], len(self._keys))

    def put(self, key: int, row: int) -> bool:
        """Set the row of *key*; false if it is new and not the highest, or there is no room."""
        place = int(np.searchsorted(self._keys[: self._used], key))
        if place == self._used:
            if self._used == len(self._keys):
                return False
            self._used += 1
            self._keys[place] = key
        elif self._keys[place] != key:
            return False
        self._rows[place] = row
        return True

    def find(self, keys: _Integers) -> _Integers:
        """Return the row of each of *keys*, or -1."""
        places = np.searchsorted(self._keys[: self._used], keys)
        places[places == self._used] = 0
        rows: _Integers = np.where(self._keys[places] == keys, self._rows[places], -1)
        return rows
