"""Does recall cover a long matter, in order? Six made-up matters in one chat decide.

    python -m benchmarks.recall_spread [--store URL] [--half 1|2] [--words-only]

Asked in which order things came about, or for a summary, the share of a matter's messages among the
first 10 and 20 hits is printed, as it is recognised (`spread=None`), asked for (`spread=True`) and
without (`spread=False`), and how many hits stand in the order of time. `--half 2` are the matters
that were held back while the rules were written.
"""

import argparse
import asyncio
import sys
import warnings
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from benchmarks._matters import SCOPE, Matter, chat, matters
from benchmarks.recall_quality import opened

from orbiter.memory.backends.sql.store import SQLMemoryStore
from orbiter.memory.embeddings.local import LocalEmbeddings
from orbiter.memory.model.protocols import Embeddings
from orbiter.memory.recall import RecallResult, recall


class Covered(NamedTuple):
    """How much of a matter one answer has."""

    share: float
    is_in_order: bool


def covered(found: RecallResult, matter: Matter) -> Covered:
    """Return the share of the matter's messages among the hits, and if they are in order."""
    texts = {hit.item.content for hit in found}
    times = [hit.item.created_at for hit in found]
    return Covered(len(texts.intersection(matter.told)) / len(matter.told), times == sorted(times))


async def fill(store: SQLMemoryStore) -> None:
    if await store.count(metadata=SCOPE) == 0:
        await store.add_many(chat())
    while await store.catch_up(within=5.0):
        pass


async def judge(
    store: SQLMemoryStore, some: Sequence[Matter], *, k: int, spread: bool | None
) -> list[Covered]:
    """Ask both questions about each matter."""
    return [
        covered(await recall(store, question, scope=SCOPE, k=k, spread=spread), matter)
        for matter in some
        for question in (matter.order, matter.summary)
    ]


async def measure(given: argparse.Namespace) -> None:
    models: list[tuple[Embeddings | None, str]] = [(None, "by words")]
    if not given.words_only:
        models.insert(0, (LocalEmbeddings(), "with the model"))
    print(f"{'share of the evidence, %':28}{'k=10':>8}{'k=20':>8}   in order")
    for model, label in models:
        async with opened(given.store if model or given.words_only else None, model) as store:
            await fill(store)
            for spread in (False, True, None):
                tens = await judge(store, matters(given.half), k=10, spread=spread)
                twenties = await judge(store, matters(given.half), k=20, spread=spread)
                shares = [100 * fmean(one.share for one in rows) for rows in (tens, twenties)]
                ordered = sum(one.is_in_order for one in (*tens, *twenties))
                name = f"{label}, spread={spread}"
                print(f"{name:28}{shares[0]:8.1f}{shares[1]:8.1f}   {ordered} of {2 * len(tens)}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", help="postgresql://… or sqlite:///path; else a new SQLite file")
    parser.add_argument("--half", type=int, choices=(0, 1, 2), default=0)
    parser.add_argument("--words-only", action="store_true", help="only without a model")
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # that there is no model is the point of half of it
    asyncio.run(measure(given))
    return 0


if __name__ == "__main__":
    sys.exit(main())
