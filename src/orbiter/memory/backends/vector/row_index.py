"""Where each key's first row is; looked up one by one, or many at once without a Python loop."""

import numpy as np
import numpy.typing as npt

__all__ = ["Places"]

_Integers = npt.NDArray[np.int64]

_WIDEST = 16
"""How many numbers a table may span for each key: 64 bytes, a few percent of most vectors."""


class Places:
    """Keys and their first rows. Changed, and asked for many, by one thread at a time."""

    def __init__(self) -> None:
        self._places: dict[int, int] = {}
        self._many: _Table | _Sorted = _Table()

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
        if not self._many.put(key, row):
            self._many = self._lookup()

    def put_many(self, keys: _Integers, rows: _Integers) -> None:
        """Remember where each of *keys* is now."""
        self._places.update(zip(keys.tolist(), rows.tolist(), strict=True))
        self._many = self._lookup()

    def pop(self, key: int) -> int:
        """Forget *key*; return where it was."""
        self._many.put(key, -1)
        return self._places.pop(key)

    def find(self, keys: _Integers) -> _Integers:
        """Return the first rows of those of *keys* that are here, ascending, each once."""
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
        found: _Integers = np.where(self._keys[places] == keys, self._rows[places], -1)
        return found
