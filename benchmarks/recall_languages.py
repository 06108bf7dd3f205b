"""Does recall find a note in the language that it is written in?

    python -m benchmarks.recall_languages [--data FILE] [--words-only] [--store URL] [--misses]

The same 30 notes and 20 questions in each language, three sets of them, from
`tests/recall/languages.json` or a file of the same shape: `{"sets": [{"name", "answers": [number of
the note…], "languages": {"en": {"notes": [text…], "questions": [text…]}}}]}`. Notes are stored
under a user of their own and asked for through the public API, with the model of `LocalEmbeddings`
and by words alone. hit@k is the share of the questions whose note is among the first k. Exit 1 if
hit@5 of a language is below the bar; by words alone English is shown and not judged.
"""

import argparse
import asyncio
import json
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.recall_quality import opened

from orbiter.memory import MemoryItem, MemoryMetadata
from orbiter.memory.backends.sql.store import SQLMemoryStore
from orbiter.memory.embeddings.local import LocalEmbeddings
from orbiter.memory.recall import RecallMode, recall

DATA = Path(__file__).resolve().parent.parent / "tests" / "recall" / "languages.json"
BAR = 85.0
CUTS = (1, 5)
MODES: dict[RecallMode, str] = {"hybrid": "with the model", "words": "by words alone"}

Places = dict[str, list[int | None]]
"""The rank of each question's note by language, from 1; `None` if it was not found."""


def read(path: Path = DATA) -> list[dict[str, Any]]:
    """Return the sets of notes and questions of a file."""
    sets: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["sets"]
    return sets


async def ranks(store: SQLMemoryStore, data: Mapping[str, Any], *, mode: RecallMode) -> Places:
    """Return where the note that answers each question stands among the first ten hits."""
    found: Places = {}
    for language, texts in data["languages"].items():
        scope = MemoryMetadata(user_id=f"{data['name']} {language}")
        notes = [MemoryItem(content=text, metadata=scope) for text in texts["notes"]]
        await store.add_many(notes)
        await store.catch_up()
        found[language] = []
        for question, answer in zip(texts["questions"], data["answers"], strict=True):
            hits = [hit.item.id for hit in await recall(store, question, scope=scope, mode=mode)]
            wanted = notes[answer].id
            found[language].append(hits.index(wanted) + 1 if wanted in hits else None)
    return found


def hit_at(places: list[int | None], cut: int) -> float:
    """Return the share of questions whose note is among the first *cut*, in percent."""
    return 100 * sum(place is not None and place <= cut for place in places) / len(places)


def below(found: Places, mode: RecallMode) -> list[str]:
    """Return the languages of which too little was found."""
    judged = (each for each in found if mode == "hybrid" or each != "en")
    return [each for each in judged if hit_at(found[each], max(CUTS)) < BAR]


async def measure(options: argparse.Namespace) -> bool:
    is_good = True
    for mode, label in MODES.items():
        if mode == "hybrid" and options.words_only:
            continue
        model = LocalEmbeddings() if mode == "hybrid" else None
        async with opened(options.store, model) as store:
            for data in read(options.data):
                places = await ranks(store, data, mode=mode)
                print(f"\n{data['name']}, {label}")
                for language, each in places.items():
                    figures = "".join(f"  hit@{cut} {hit_at(each, cut):5.1f}" for cut in CUTS)
                    print(f"  {language}{figures}")
                    if options.misses:
                        show_misses(data, language, each)
                is_good &= not below(places, mode)
    return is_good


def show_misses(data: Mapping[str, Any], language: str, places: list[int | None]) -> None:
    texts = data["languages"][language]
    for question, answer, place in zip(texts["questions"], data["answers"], places, strict=True):
        if place is None or place > max(CUTS):
            print(f"      {place or '-':>2} {question} | {texts['notes'][answer]}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA, help="JSON")
    parser.add_argument("--store", help="postgresql://…; else a new SQLite file")
    parser.add_argument("--words-only", action="store_true", help="only without a model")
    parser.add_argument("--misses", action="store_true", help="also what is not among the first")
    warnings.simplefilter("ignore")  # that there is no model is the point of half of it
    return 0 if asyncio.run(measure(parser.parse_args())) else 1


if __name__ == "__main__":
    sys.exit(main())
