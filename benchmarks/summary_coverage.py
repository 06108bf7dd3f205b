"""Does the extractive summary keep what is asked about later?

Each LoCoMo conversation is cut into chunks of forty turns, and each chunk is summarised. A turn
that holds the evidence of a question is covered if one of its sentences of four words or more
stands in the summary. The baseline takes first and last sentences, as many characters in all.
Questions only ever judge: nothing may be tuned to them.

    python -m benchmarks.summary_coverage --data DIR
"""

import argparse
import asyncio
import gzip
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks._timing import Table, exit_code

from orbiter.memory.model.items import AIMemory, HumanMemory, MemoryItem
from orbiter.memory.summarizers.extractive import ExtractiveSummarizer
from orbiter.memory.summary import conversation_text

FILE = "locomo_dev.json.gz"
CHUNK = 40
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


def sentences(text: str) -> list[str]:
    return [part for part in _SENTENCE_END.split(" ".join(text.split())) if part]


def telling(text: str) -> list[str]:
    """Return the sentences long enough to be recognised."""
    return [sentence for sentence in sentences(text) if len(sentence.split()) >= 4]


def as_items(turns: Sequence[Mapping[str, Any]]) -> list[MemoryItem]:
    """Return the turns as a conversation; whoever speaks first is the human."""
    first = turns[0]["speaker"]
    return [
        (HumanMemory if turn["speaker"] == first else AIMemory)(content=turn["text"])
        for turn in turns
    ]


def first_and_last(turns: Sequence[Mapping[str, Any]], room: int) -> str:
    """Return sentences from both ends in turns, while they fit in *room* characters."""
    left = [sentence for turn in turns for sentence in sentences(turn["text"])]
    head: list[str] = []
    tail: list[str] = []
    while left:
        from_head = len(head) <= len(tail)
        sentence = left.pop(0 if from_head else -1)
        room -= len(sentence) + 1
        if room < 0:
            break
        (head if from_head else tail).append(sentence)
    return "\n".join([*head, *reversed(tail)])


def evidence_ids(conversation: Mapping[str, Any]) -> set[str]:
    return {
        turn
        for question in conversation["questions"]
        if question["category"] != "adversarial"
        for turn in question["evidence"]
    }


def chunks(conversation: Mapping[str, Any]) -> Iterator[list[Mapping[str, Any]]]:
    turns = conversation["items"]
    for start in range(0, len(turns), CHUNK):
        yield turns[start : start + CHUNK]


async def cover(conversation: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return how many evidence turns there are, and how many ours and the baseline cover."""
    wanted = evidence_ids(conversation)
    total = ours = plain = 0
    summarizer = ExtractiveSummarizer()
    for turns in chunks(conversation):
        summary = await summarizer.summarize(conversation_text(as_items(turns)))
        baseline = first_and_last(turns, len(summary))
        for turn in turns:
            told = telling(turn["text"]) if turn["id"] in wanted else []
            total += bool(told)
            ours += any(sentence in summary for sentence in told)
            plain += any(sentence in baseline for sentence in told)
    return total, ours, plain


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help=f"folder with {FILE}")
    folder = parser.parse_args().data
    if folder is None:
        print(f"summary_coverage needs --data DIR, a folder with {FILE} (LoCoMo); skipped")
        return 0
    with gzip.open(folder / FILE, "rt", encoding="utf-8") as file:
        conversations = json.load(file)["conversations"]
    title = f"Evidence turns with a sentence in the summary of their {CHUNK} turns"
    table = Table(title, "conversation", "evidence", "ours", "first and last")
    sums = [0, 0, 0]
    for conversation in conversations:
        found = asyncio.run(cover(conversation))
        sums = [a + b for a, b in zip(sums, found, strict=True)]
        shares = [f"{part / found[0]:.1%}" for part in found[1:]]
        table.add(
            conversation["id"], str(found[0]), *shares, measured=f"{found[1] / found[2]:.2f}x"
        )
    total, ours, plain = sums
    shares = [f"{part / total:.1%}" for part in (ours, plain)]
    ratio = ours / max(1, plain)
    table.add("all", str(total), *shares, measured=f"{ratio:.2f}x", bar="> 1x", ok=ours > plain)
    return exit_code(table)


if __name__ == "__main__":
    sys.exit(main())
