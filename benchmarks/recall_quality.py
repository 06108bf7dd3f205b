"""Does recall find what answers a question? Evidence turns of real conversations decide.

    python -m benchmarks.recall_quality --data FILE… [--store URL] [--cache FILE] [--json]
    python -m benchmarks.recall_quality --data FILE… --telling all

Each conversation is stored through the public API under a user of its own and each question is
asked through the public API. The files hold, as JSON or gzipped JSON,
`{"name", "conversations": [{"id", "items": [{"id", "text", "caption"?, "speaker", "role",
"session", "date"}], "questions": [{"id", "question", "category", "evidence", "date"?}]}]}`;
evidence never reaches the store. The store is a new SQLite file unless a URL names a database.
`--part 1` and `--part 2` ask about every other conversation, or about every other question where
there is only one: weights are fitted on part 1 (`benchmarks.recall_fit`) and judged on part 2.
`--cache` keeps vectors between runs, `--reranker` names one for recall. `--telling` chooses how the
conversation says who speaks; with `all`, a table compares the five ways. `--pool` prints which
share of the evidence becomes a candidate at all, and among how many. Beside it, in the same run:
the vector store alone, BM25 alone, and both fused by rank.
"""

import argparse
import asyncio
import json
import math
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks._conversations import TELLINGS, Asked, Conversation, read
from benchmarks._recall_scores import APART, interval, judge, mean

from orbiter.memory.backends.postgres.store import PostgresMemoryStore
from orbiter.memory.backends.sql.store import SQLMemoryStore
from orbiter.memory.backends.sqlite.store import SQLiteMemoryStore
from orbiter.memory.backends.vector.store import VectorMemoryStore
from orbiter.memory.embeddings.cached import CachedEmbeddings
from orbiter.memory.embeddings.local import LocalEmbeddings
from orbiter.memory.model.items import MemoryStatus
from orbiter.memory.model.protocols import Embeddings
from orbiter.memory.model.query import Query
from orbiter.memory.recall import recall
from orbiter.memory.recall._candidates import gather
from orbiter.memory.rerankers import open_reranker
from orbiter.memory.text import words
from orbiter.memory.text.ranking import fuse_ranks

MOST = 50
SHOWN = ("R@1", "R@5", "R@10", "R@20", "R@50", "hit@10", "all@10", "MRR", "nDCG@10")
Ask = Callable[[Asked], Awaitable[list[str]]]


@asynccontextmanager
async def opened(url: str | None, embeddings: Embeddings | None) -> AsyncIterator[SQLMemoryStore]:
    """Open the store of a URL, or a SQLite file that is gone afterwards."""
    if url is not None and url.startswith(("postgres://", "postgresql://")):
        async with PostgresMemoryStore(url, embeddings=embeddings) as store:
            yield store
        return
    with tempfile.TemporaryDirectory() as folder:
        path = url.removeprefix("sqlite:///") if url else str(Path(folder, "memory.db"))
        async with SQLiteMemoryStore(path, embeddings=embeddings, durability="normal") as store:
            yield store


def tell(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


async def fill(store: SQLMemoryStore, conversation: Conversation) -> None:
    """Store a conversation and wait until all of it can be found."""
    if await store.count(metadata=conversation.scope) == 0:
        await store.add_many(conversation.items)
    while left := await store.catch_up(within=5.0):
        tell(f"{conversation.name}: {left:,} items to embed")
    tell("")


def part_of(conversations: Sequence[Conversation], part: int) -> list[Conversation]:
    """Return every other conversation, or of a single one every other question."""
    if not part:
        return list(conversations)
    if len(conversations) > 1:
        return [each for at, each in enumerate(conversations) if at % 2 == part - 1]
    only = conversations[0]
    questions = [each for at, each in enumerate(only.questions) if at % 2 == part - 1]
    return [Conversation(only.name, only.items, questions, only.ids)]


class Baselines:
    """What others do: nearest vectors, BM25 over whole turns, and both fused by rank."""

    def __init__(self, conversation: Conversation, vectors: VectorMemoryStore | None) -> None:
        self._conversation, self._vectors = conversation, vectors
        self._counts = [Counter(words.terms(item.content)) for item in conversation.items]
        self._lengths = [counts.total() for counts in self._counts]
        self._spread = Counter(term for counts in self._counts for term in counts)

    async def bm25(self, asked: Asked) -> list[str]:
        total, typical = len(self._counts), sum(self._lengths) / len(self._lengths)
        rarity = {
            term: math.log(1 + (total - self._spread[term] + 0.5) / (self._spread[term] + 0.5))
            for term in words.terms(asked.text)
        }
        scores = [
            sum(
                weight * counts[term] * 2.2
                / (counts[term] + 1.2 * (0.25 + 0.75 * length / typical))
                for term, weight in rarity.items()
                if term in counts
            )
            for counts, length in zip(self._counts, self._lengths, strict=True)
        ]  # fmt: skip
        best = sorted(range(total), key=lambda at: -scores[at])[:MOST]
        return [self._conversation.items[at].id for at in best if scores[at] > 0]

    async def nearest(self, asked: Asked) -> list[str]:
        assert self._vectors is not None
        scope = self._conversation.scope
        found = await self._vectors.search(query=asked.text, metadata=scope, limit=MOST)
        return [item.id for item in found]

    async def fused(self, asked: Asked) -> list[str]:
        rankings = {"words": await self.bm25(asked), "meaning": await self.nearest(asked)}
        return [item_id for item_id, _ in fuse_ranks(rankings)][:MOST]


async def put_to(
    name: str, conversation: Conversation, ask: Ask, results: dict[str, list[dict[str, Any]]]
) -> None:
    for number, asked in enumerate(conversation.questions, 1):
        began = time.perf_counter()
        ranking = await ask(asked)
        seconds = time.perf_counter() - began
        figures = judge([conversation.ids[item_id] for item_id in ranking], asked.evidence)
        row = {"id": asked.id, "category": asked.category, "seconds": seconds, **figures}
        results.setdefault(name, []).append(row)
        tell(f"{conversation.name}: {name}, question {number} of {len(conversation.questions)}")
    tell("")


async def look_at_pools(store: SQLMemoryStore, conversation: Conversation) -> list[dict[str, Any]]:
    """Return for each question how many candidates there are, and how much evidence is among them.

    Candidates with what was said around them, all of which may be returned.
    """
    rows = []
    for asked in conversation.questions:
        query = Query("", conversation.scope, status=MemoryStatus.ACCEPTED)
        now = asked.at or conversation.end
        _, pool = await gather(store, asked.text, query, now=now)
        found = {conversation.ids[item.id] for item in pool.items}
        row = {"id": asked.id, "category": asked.category, "candidates": len(found)}
        rows.append(row | {"evidence": len(asked.evidence), "found": len(asked.evidence & found)})
    return rows


async def measure(path: Path, given: argparse.Namespace, telling: str) -> dict[str, Any]:
    model: Embeddings = LocalEmbeddings()
    if given.cache:
        model = CachedEmbeddings(model, given.cache, max_entries=1_000_000)
    reader = open_reranker(given.reranker) if given.reranker else None
    name, conversations = read(path, telling=telling)
    chosen = part_of(conversations, given.part)
    results: dict[str, list[dict[str, Any]]] = {}
    pools: dict[str, list[dict[str, Any]]] = {}
    for embeddings, label in ((model, "recall"), (None, "recall without a model")):
        if embeddings is not None and given.words_only:
            continue
        async with opened(given.store if embeddings else None, embeddings) as store:
            for conversation in chosen:
                await fill(store, conversation)

                async def ask(
                    asked: Asked,
                    conversation: Conversation = conversation,
                    store: SQLMemoryStore = store,
                ) -> list[str]:
                    now = asked.at or conversation.end
                    scope = conversation.scope
                    hits = await recall(
                        store, asked.text, scope=scope, k=MOST, now=now, reranker=reader
                    )
                    if hits.reranking is not None and hits.reranking.error is not None:
                        raise SystemExit(str(hits.reranking))
                    if hits.spread:  # in the order of time; here it counts what comes first
                        hits.sort(key=lambda hit: -hit.score)
                    # What says the same stands behind the hit that took its place.
                    items = [item for hit in hits for item in (hit.item, *hit.repeats)]
                    return [item.id for item in items][:MOST]

                if given.pool:
                    rows = await look_at_pools(store, conversation)
                    pools.setdefault(label, []).extend(rows)
                else:
                    await put_to(label, conversation, ask, results)
    for conversation in chosen if given.baselines else ():
        vectors = None if given.words_only else VectorMemoryStore(model)
        if vectors is not None:
            await vectors.add_many(conversation.items)
        others = Baselines(conversation, vectors)
        await put_to("BM25", conversation, others.bm25, results)
        if vectors is not None:
            await put_to("vector store", conversation, others.nearest, results)
            await put_to("rank fusion", conversation, others.fused, results)
    part = given.part or "all"
    return {"data": name, "part": part, "telling": telling, "results": results, "pools": pools}


def show(report: dict[str, Any]) -> None:
    part = f", part {report['part']}" if report["part"] != "all" else ""
    print(f"\n{report['data']}{part}")
    for label, rows in report["pools"].items():
        show_pool(label, [row for row in rows if row["category"] != APART] or rows)
    if not report["results"]:
        return
    head = "".join(f"{figure:>9}" for figure in SHOWN)
    print(f"  {'':34}{'asked':>6}{head}   R@10, 95 %   ms each")
    for label, rows in report["results"].items():
        counted = [row for row in rows if row["category"] != APART]
        line(label, counted or rows)
        if label.startswith("recall"):
            for category in sorted({row["category"] for row in rows}):
                line(f"  {category}", [row for row in rows if row["category"] == category])


def show_tellings(reports: Sequence[dict[str, Any]]) -> None:
    """Print how much recall finds by how one conversation says who speaks."""
    print(f"\n{reports[0]['data']}")
    for label in reports[0]["results"]:
        rows = {
            report["telling"]: [row for row in report["results"][label] if row["category"] != APART]
            for report in reports
        }
        best = max(mean(each, "R@10") for each in rows.values())
        print(f"  {label:34}{'R@5':>9}{'R@10':>9}   below the best")
        for telling, each in rows.items():
            at_ten = mean(each, "R@10")
            print(f"    {telling:32}{mean(each, 'R@5'):9.1f}{at_ten:9.1f}{best - at_ten:17.1f}")


def show_pool(label: str, rows: list[dict[str, Any]]) -> None:
    evidence = sum(row["evidence"] for row in rows)
    share = 100 * sum(row["found"] for row in rows) / evidence
    candidates = sum(row["candidates"] for row in rows) / len(rows)
    print(f"  {label}: {share:.1f} % of {evidence:,} evidence turns are candidates,")
    print(f"  {len(rows):,} questions with {candidates:.0f} candidates each")


def line(label: str, rows: list[dict[str, Any]]) -> None:
    low, high = interval(rows, "R@10")
    figures = "".join(f"{mean(rows, figure):9.1f}" for figure in SHOWN)
    each = 1e3 * sum(row["seconds"] for row in rows) / len(rows)
    print(f"  {label:34}{len(rows):6}{figures}   {low:4.1f}-{high:4.1f} {each:9.1f}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="JSON, or gzipped")
    parser.add_argument("--store", help="postgresql://… or sqlite:///path; else a new SQLite file")
    parser.add_argument("--cache", type=Path, help="a file that keeps vectors between runs")
    parser.add_argument("--part", type=int, choices=(0, 1, 2), default=0)
    parser.add_argument(
        "--telling",
        choices=(*TELLINGS, "all"),
        default="speaker",
        help="how the conversation says who speaks; `all` compares them, without baselines",
    )
    parser.add_argument("--reranker", help="an ONNX cross-encoder, or the URL of a rerank service")
    parser.add_argument("--words-only", action="store_true", help="only without a model")
    parser.add_argument(
        "--pool", action="store_true", help="the share of evidence among the candidates, only"
    )
    parser.add_argument("--no-baselines", dest="baselines", action="store_false")
    parser.add_argument("--json", action="store_true", help="every question's figures on stdout")
    given = parser.parse_args()
    given.baselines = given.baselines and not given.pool and given.telling != "all"
    warnings.simplefilter("ignore")  # that there is no model is the point of half of it
    tellings = TELLINGS if given.telling == "all" else (given.telling,)
    reports = [asyncio.run(measure(path, given, one)) for path in given.data for one in tellings]
    if given.json:
        json.dump(reports, sys.stdout, indent=1)
        print()
    elif given.telling == "all" and not given.pool:
        for at in range(0, len(reports), len(TELLINGS)):
            show_tellings(reports[at : at + len(TELLINGS)])
    else:
        for report in reports:
            show(report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
