"""Where memories stand on a map: what means the same stands together.

Pure numbers, and always the same ones for the same vectors. The main directions of all vectors say
which memories form a group and where the groups stand; each group then gets room of its own, so
that no two lie upon each other, and its members stand around its middle as they differ from it.
"""

from typing import NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from orbiter.memory.text.words import terms

__all__ = ["Layout", "directions_of_words", "lay_out", "place_among"]

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.intp]

_DIRECTIONS = 16
"""Main directions that groups are told apart by."""

_MAX_GROUPS = 14
_NEIGHBOURS = 5
"""Points whose places decide where a new one stands."""
_WORD_SLOTS = 512
_GOLDEN = 2.399963
"""An angle by which turns never meet, as seeds stand in a sunflower."""


class Layout(NamedTuple):
    """Places from -1 to 1, the group of each memory, the largest first, and how odd it is there."""

    places: Floats
    groups: Numbers
    odd: Floats


def lay_out(vectors: Floats) -> Layout:
    """Return where memories of these vectors stand, one row each."""
    count = len(vectors)
    if count < 2:
        nowhere = np.zeros((count, 2), np.float32)
        return Layout(nowhere, np.zeros(count, np.intp), nowhere[:, 0])
    main = _main_directions(vectors)
    groups = _by_size(_groups(main, max(1, min(_MAX_GROUPS, round(count**0.5 / 2)))))
    middles = np.stack([main[groups == each].mean(axis=0) for each in range(groups.max() + 1)])
    places = _places(main, groups, middles)
    places -= (places.max(axis=0) + places.min(axis=0)) / 2
    places /= np.maximum(1e-9, np.abs(places).max(axis=0))
    return Layout(places, groups, np.linalg.norm(main - middles[groups], axis=1))


def place_among(vectors: Floats, known: Floats, groups: Numbers) -> Layout:
    """Return a layout in which what has a place keeps it, and the rest stands among its likes.

    *known* has a row for each vector; the group of one without a place is -1, and there must be
    some with one. Every new point looks at the old ones alone, so their order does not matter.
    """
    old, new = np.flatnonzero(groups >= 0), np.flatnonzero(groups < 0)
    places, groups = known.copy(), groups.copy()
    taken = {(round(x, 3), round(y, 3)) for x, y in places[old].tolist()}
    base = vectors[old]
    for each in new:
        likeness = base @ vectors[each]
        few = min(_NEIGHBOURS, len(old))
        nearest = np.argpartition(-likeness, few - 1)[:few]
        nearest = nearest[np.argsort(-likeness[nearest], kind="stable")]
        weights = np.maximum(likeness[nearest], 1e-3) ** 4
        middle = weights @ places[old[nearest]] / weights.sum()
        groups[each] = groups[old[nearest[0]]]
        # Beside the place and not upon it: further out on a spiral until nothing is there.
        for turn in range(1, len(vectors) + 2):
            angle, far = turn * _GOLDEN, 0.012 * turn**0.5
            x, y = np.clip(middle + far * np.array([np.cos(angle), np.sin(angle)]), -1, 1)
            if (round(float(x), 3), round(float(y), 3)) not in taken:
                break
        taken.add((round(float(x), 3), round(float(y), 3)))
        places[each] = x, y
    odd = np.zeros(len(vectors), np.float32)
    for group in np.unique(groups):
        members = np.flatnonzero(groups == group)
        odd[members] = np.linalg.norm(vectors[members] - vectors[members].mean(axis=0), axis=1)
    return Layout(places, groups, odd)


def directions_of_words(texts: list[str]) -> Floats:
    """Return vectors of the words alone, for memories that have none of their meaning."""
    rows = np.zeros((len(texts), _WORD_SLOTS), np.float32)
    for at, text in enumerate(texts):
        for term in terms(text[:2_000]):
            # Slots of either sign, so that words that share one do not look alike.
            number = crc32(term.encode("utf-8", "replace"))
            rows[at, number % _WORD_SLOTS] += 1 if number & 0x10000 else -1
    seen = np.count_nonzero(rows, axis=0)
    rows *= np.log1p(len(texts) / np.maximum(1, seen)).astype(np.float32)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    np.divide(rows, lengths, out=rows, where=lengths > 0)
    return rows


def _main_directions(vectors: Floats) -> Floats:
    """Return the vectors by their few main directions, by iterating on a small subspace.

    All of them would take a matrix of the square of the dimension, which is large for some models.
    """
    centred = vectors - vectors.mean(axis=0)
    size = min(_DIRECTIONS, *centred.shape)
    base = np.random.default_rng(7).standard_normal((centred.shape[1], size)).astype(np.float32)
    for _ in range(6):
        base, _ = np.linalg.qr(centred.T @ (centred @ base))
    seen = centred @ base
    _, turns = np.linalg.eigh(seen.T @ seen)
    turns = turns[:, ::-1]
    loads = base @ turns
    # A direction and its opposite are one; the strongest number decides which of them it is.
    strongest = loads[np.abs(loads).argmax(axis=0), np.arange(size)]
    projected: Floats = (seen @ turns) * np.where(strongest < 0, -1, 1).astype(np.float32)
    return projected


def _groups(points: Floats, count: int) -> Numbers:
    """Return the group of each point: those whose middle is nearest, from middles far apart."""
    middles = points[_far_apart(points, count)]
    groups = np.zeros(len(points), np.intp)
    for _ in range(12):
        groups = _distances(points, middles).argmin(axis=1)
        for each in range(len(middles)):
            members = points[groups == each]
            if len(members):
                middles[each] = members.mean(axis=0)
    return groups


def _far_apart(points: Floats, count: int) -> list[int]:
    """Return points to begin with: each drawn by how far it is from all before, always alike."""
    dice = np.random.default_rng(7)
    chosen = [int(np.linalg.norm(points, axis=1).argmin())]
    far = _distances(points, points[chosen])[:, 0]
    while len(chosen) < count and far.sum() > 0:
        chosen.append(int(dice.choice(len(points), p=far / far.sum())))
        far = np.minimum(far, _distances(points, points[chosen[-1:]])[:, 0])
    return chosen


def _distances(points: Floats, middles: Floats) -> npt.NDArray[np.float64]:
    """Return the squared distance of every point to every middle."""
    squares = (points**2).sum(axis=1)[:, None] + (middles**2).sum(axis=1) - 2 * points @ middles.T
    distances: npt.NDArray[np.float64] = np.maximum(squares, 0).astype(np.float64)
    return distances


def _by_size(groups: Numbers) -> Numbers:
    _, names, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    rank = np.empty(len(sizes), np.intp)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    return rank[names]


def _places(main: Floats, groups: Numbers, middles: Floats) -> Floats:
    sizes = np.bincount(groups)
    middles = middles[:, :2]
    if middles.shape[1] < 2:
        middles = np.pad(middles, ((0, 0), (0, 1)))
    radii = np.sqrt(sizes / sizes.sum())
    middles = _push_apart(middles.astype(np.float64), radii)
    places = np.empty((len(main), 2), np.float32)
    for each, radius in enumerate(radii):
        members = np.flatnonzero(groups == each)
        places[members] = middles[each] + radius * _around(main[members])
    return places


def _push_apart(middles: npt.NDArray[np.float64], radii: npt.NDArray[np.float64]) -> Floats:
    """Return the middles of groups so that none of them reaches into another."""
    spread = float(np.abs(middles).max()) or 1.0
    middles = middles / spread * float(radii.sum()) * 0.6
    for _ in range(200):
        away = middles[:, None] - middles[None]
        far = np.linalg.norm(away, axis=2)
        overlap = np.maximum(0, (radii[:, None] + radii[None]) * 1.12 - far)
        np.fill_diagonal(overlap, 0)
        moved = (away / np.maximum(far, 1e-6)[..., None] * overlap[..., None]).sum(axis=1) / 2
        middles = middles * 0.985 + moved  # and gently to the middle of the map
    return middles.astype(np.float32)


def _around(members: Floats) -> Floats:
    """Return places within a circle of radius 1 for the members of one group."""
    count = len(members)
    own = members - members.mean(axis=0)
    _, turns = np.linalg.eigh(own.T @ own)
    flat = own @ turns[:, ::-1][:, :2]
    if flat.shape[1] < 2:
        flat = np.pad(flat, ((0, 0), (0, 1)))
    strongest = flat[np.abs(flat).argmax(axis=0), np.arange(2)]
    flat *= np.where(strongest < 0, -1, 1)
    # Equal memories must not hide each other: each is moved a little, in a way of its own.
    angles = np.arange(count) * _GOLDEN
    scale = float(np.abs(flat).max()) or 1.0
    flat = flat / scale + 0.02 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    far = np.linalg.norm(flat, axis=1)
    rank = np.empty(count)
    rank[np.argsort(far, kind="stable")] = np.arange(1, count + 1)
    # Half by how far off it is, half by rank: dense middles get room, and what is odd stays odd.
    wanted = 0.45 * far / far.max() + 0.55 * np.sqrt(rank / count)
    places: Floats = (flat * (wanted / np.maximum(far, 1e-9))[:, None]).astype(np.float32)
    return places
