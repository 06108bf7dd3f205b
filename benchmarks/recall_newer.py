"""Does recall know which statement replaces which? Sixty made-up pairs decide.

    python -m benchmarks.recall_newer [--store URL] [--half 1|2] [--words-only] [--misses]

The pairs of `benchmarks._replacements` are stored among other memories, and each person is asked
about now. A pair of which one replaces the other is right if both are among the ten hits, the newer
one first, and the older one says what it is replaced by. A pair that only looks like it is right if
neither is marked. A question about what was before is right if the older one comes first, whatever
is said of it. `--half 2` are the pairs that were held back while the rules were written.
"""

import argparse
import asyncio
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from benchmarks._replacements import ASKED_AT, PEOPLE, Pair, memories, pairs
from benchmarks.recall_quality import opened

from orbiter.memory.backends.sql.store import SQLMemoryStore
from orbiter.memory.embeddings.local import LocalEmbeddings
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.recall import RecallResult, recall


class Judged(NamedTuple):
    """How one question was answered."""

    kind: str
    pair: Pair
    is_right: bool
    strays: int
    """Hits that are marked and should not be."""


def is_right(found: RecallResult, pair: Pair) -> bool:
    """Tell whether the hits of a question about now are in the right order, and marked so."""
    places = {hit.item.content: place for place, hit in enumerate(found)}
    older, newer = places.get(pair.older), places.get(pair.newer)
    if not pair.is_replaced:
        both = [found[place] for place in (older, newer) if place is not None]
        return all(hit.replaced_by is None for hit in both)
    if older is None or newer is None or older < newer:
        return False
    by = found[newer].item.id
    texts = [reason.text for reason in found[older].why]
    return found[older].replaced_by == by and any("replaced by" in text for text in texts)


def is_past_right(found: RecallResult, pair: Pair) -> bool:
    """Tell whether the hits of a question about what was before begin with that."""
    places = {hit.item.content: place for place, hit in enumerate(found)}
    return pair.older in places and places[pair.older] < places.get(pair.newer, len(found))


def strays(found: RecallResult) -> int:
    """Return how many hits are marked that nothing replaces."""
    replaced = {pair.older for _, pair in pairs() if pair.is_replaced}
    return sum(hit.replaced_by is not None and hit.item.content not in replaced for hit in found)


async def fill(store: SQLMemoryStore) -> None:
    for user in PEOPLE:
        if await store.count(metadata=MemoryMetadata(user_id=user)) == 0:
            await store.add_many(memories(user))
    while await store.catch_up(within=5.0):
        pass


async def judge(store: SQLMemoryStore, half: int = 0) -> list[Judged]:
    """Ask a store that holds the memories of all; return how each question was answered."""
    rows: list[Judged] = []
    for user, pair in pairs(half):
        scope = MemoryMetadata(user_id=user)
        found = await recall(store, pair.question, scope=scope, now=ASKED_AT)
        rows.append(Judged(pair.kind, pair, is_right(found, pair), strays(found)))
        if pair.past:
            found = await recall(store, pair.past, scope=scope, now=ASKED_AT)
            rows.append(Judged("past", pair, is_past_right(found, pair), 0))
    return rows


def show(label: str, rows: list[Judged], *, misses: bool) -> None:
    asked = Counter(row.kind for row in rows)
    right = Counter(row.kind for row in rows if row.is_right)
    now = [row for row in rows if row.kind != "past"]
    share = 100 * sum(row.is_right for row in now) / len(now)
    others = sum(row.strays for row in now)
    print(
        f"{label}: {share:.1f} % of {len(now)} pairs are right, {others} others marked by mistake"
    )
    print("  " + ", ".join(f"{kind} {right[kind]}/{asked[kind]}" for kind in sorted(asked)))
    for row in rows if misses else ():
        if not row.is_right or row.strays:
            question = row.pair.past if row.kind == "past" else row.pair.question
            print(f"  {row.kind}: {question} | {row.pair.older} | {row.pair.newer}")


async def measure(given: argparse.Namespace, tell: Callable[[str, list[Judged]], None]) -> None:
    models = ((None, "by words"),) if given.words_only else (
        (LocalEmbeddings(), "with the model"), (None, "by words")
    )  # fmt: skip
    for model, label in models:
        async with opened(given.store if model or given.words_only else None, model) as store:
            await fill(store)
            tell(label, await judge(store, given.half))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", help="postgresql://… or sqlite:///path; else a new SQLite file")
    parser.add_argument("--half", type=int, choices=(0, 1, 2), default=0)
    parser.add_argument("--words-only", action="store_true", help="only without a model")
    parser.add_argument("--misses", action="store_true", help="show what was not right")
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # that there is no model is the point of half of it
    asyncio.run(measure(given, lambda label, rows: show(label, rows, misses=given.misses)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
