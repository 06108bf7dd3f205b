"""Calibration of `hit.relevance`: of hits at 0.8, about 80 % should answer. Fits it, and prints it.

    python -m benchmarks.recall_relevance --data FILE… [--cache FILE] [--words-only] [--write]

Every question is put to the real pipeline, with the model and without; what it measured for each of
the ten hits, and which of them are evidence, goes into a logistic regression with a ridge. Beside
the conversations of the files there are the notes of `benchmarks/_notes.py`, as notes and as what a
user or an assistant says in a chat, and four of them in each message of a user; nothing is fitted
to those that differ in a name alone. Each
conversation is judged by a fit on all others, or each half of the questions by the other half where
there is only one: a table of what relevance says against what is true, R@10 with the default of
prompts, and the questions that nothing answers. `--write` puts a fit on everything into
`recall/_relevance.py`; do so after a change of the ranking. Needs
numpy.
"""

import argparse
import asyncio
import re
import sys
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
from benchmarks._conversations import Asked, Conversation, read
from benchmarks._notes import (
    ALIKE,
    NOTES,
    REPLIES,
    REQUESTS,
    UNNAMED_QUESTIONS,
    UNRELATED_QUESTIONS,
)
from benchmarks._recall_scores import APART
from benchmarks.recall_quality import fill, opened, part_of

from orbiter.memory.backends.sql.store import SQLMemoryStore
from orbiter.memory.embeddings.cached import CachedEmbeddings
from orbiter.memory.embeddings.local import LocalEmbeddings
from orbiter.memory.model.items import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
)
from orbiter.memory.model.protocols import Embeddings
from orbiter.memory.model.query import Query
from orbiter.memory.recall import _relevance
from orbiter.memory.recall._candidates import embed_question, look
from orbiter.memory.recall._mode_search import RecallRequest, by_all, by_meaning
from orbiter.memory.recall._modes import RecallMode
from orbiter.memory.recall._select import choose
from orbiter.memory.text.ranking import ANSWERED, least_relevance

Floats = npt.NDArray[np.float64]
RIDGE = 0.1
K = 10
EDGES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
TEXT = (
    *("own", "prev", "near", "speaker", "people", "assistant", "you", "assistant_you"),
    *("note", "note_near", "chat", "chat_near", "sentence", "brief", "brief_share"),
    *("times", "date", "asks_when", "when", "question", "length"),
)
VECTOR = ("cosine", "note_cosine", "brief_cosine")
CONTEXT = ("prev", "near", "note_near", "chat_near", "sentence")
NAMES = {
    "words": TEXT,
    "meaning": (*TEXT, *VECTOR),
    "details": (*TEXT, *VECTOR, "detail", "detail_near", "chat_detail"),
    "nearest": (*(name for name in TEXT if name not in CONTEXT), *VECTOR),
}
"""What each set of weights weighs."""
OWN = {"notes": (NOTES, UNRELATED_QUESTIONS), "alike": (ALIKE, UNNAMED_QUESTIONS)}
"""Our own notes: pairs, and questions that nothing answers."""
TOLD_BY = {"user": HumanMemory, "assistant": AIMemory}
TOLD_AT_ONCE = 5
"""How many of them make a chat."""
TOGETHER, IN_A_MESSAGE = "together", 4
"""As which they are told in longer messages, and how many notes make one."""
JUDGED = "alike"
"""Nothing is fitted to these: how often notes are alike is different for everybody."""


@dataclass
class Example:
    """One question: what was measured for each hit, and which of them are evidence."""

    fold: str
    hits: list[dict[str, float]]
    is_evidence: list[bool]
    evidence: int
    """How many items are evidence, found or not; 0 for what nothing answers."""


def notes(name: str) -> Conversation:
    """Return notes and their questions: by themselves, or as "notes, user" in chats of a user."""
    kind, _, teller = name.partition(", ")
    pairs, at = OWN[kind][0], datetime(2026, 5, 8, tzinfo=UTC)
    if teller == TOGETHER:
        return together(name, pairs, at)
    stated, others = [], []
    for number, (text, _) in enumerate(pairs):
        chat = str(number // TOLD_AT_ONCE) if teller else None
        owner = MemoryMetadata(user_id=name, session_id=chat)
        if not teller:
            stated.append(MemoryItem(content=text, metadata=owner, created_at=at))
            continue
        said_at = at + timedelta(minutes=number)
        stated.append(TOLD_BY[teller](content=text, metadata=owner, created_at=said_at))
        others.append(beside(teller, number, owner, said_at))
    ids = {item.id: str(number) for number, item in enumerate([*stated, *others])}
    questions = [
        Asked(str(number), text, name, frozenset((str(number),)), at if not teller else None)
        for number, (_, text) in enumerate(pairs)
    ]
    items = sorted([*stated, *others], key=lambda item: item.created_at)
    return Conversation(name, items, questions, ids)


def together(name: str, pairs: Sequence[tuple[str, str]], at: datetime) -> Conversation:
    """Return notes as a user tells them in a chat, several in each message."""
    count = len(pairs) // IN_A_MESSAGE
    owner = MemoryMetadata(user_id=name, session_id="1")
    items: list[MemoryItem] = []
    for number in range(count):
        told_at = at + timedelta(minutes=number)
        text = " ".join(f"{note}." for note, _ in pairs[number::count])
        items.append(HumanMemory(content=text, metadata=owner, created_at=told_at))
        items.append(beside("user", number, owner, told_at))
    ids = {item.id: str(number) for number, item in enumerate(items)}
    questions = [
        Asked(str(number), text, name, frozenset((str(2 * (number % count)),)), None)
        for number, (_, text) in enumerate(pairs)
    ]
    return Conversation(name, items, questions, ids)


def beside(teller: str, number: int, owner: MemoryMetadata, at: datetime) -> MemoryItem:
    """Return what the other one says: what an assistant replies, or what a user asks before."""
    if teller == "user":
        reply, later = REPLIES[number % len(REPLIES)], at + timedelta(seconds=10)
        return AIMemory(content=reply, metadata=owner, created_at=later)
    request, before = REQUESTS[number % len(REQUESTS)], at - timedelta(seconds=10)
    return HumanMemory(content=request, metadata=owner, created_at=before)


def halves(conversations: Sequence[Conversation]) -> list[tuple[str, Conversation]]:
    """Return the conversations by fold, or the halves of the questions of a single one."""
    if len(conversations) > 1:
        return [(each.name, each) for each in conversations]
    name = conversations[0].name.partition(", ")[0]  # the same notes, whoever tells them
    return [(f"{name}, {part}", part_of(conversations, part)[0]) for part in (1, 2)]


async def examples(
    data: Path | str, embeddings: Embeddings | None, modes: Sequence[RecallMode]
) -> dict[RecallMode, list[Example]]:
    """Return the questions of a file, or of our notes, and those that nothing answers, by mode."""
    if isinstance(data, str):
        conversations, (_, unanswered) = [notes(data)], OWN[data.split(", ", maxsplit=1)[0]]
    else:
        conversations, unanswered = read(data)[1], UNRELATED_QUESTIONS
    folds = halves(conversations)
    made: dict[RecallMode, list[Example]] = {mode: [] for mode in modes}
    async with opened(None, embeddings) as store:
        for fold, conversation in folds:
            await fill(store, conversation)
            for asked in conversation.questions:
                if asked.category != APART:
                    for mode in modes:
                        made[mode].append(await example(store, conversation, asked, fold, mode))
        for number, text in enumerate(unanswered):
            fold, conversation = folds[number % len(folds)]
            asked = Asked("", text, "unrelated", frozenset(), None)
            for mode in modes:
                made[mode].append(await example(store, conversation, asked, fold, mode))
    return made


async def example(
    store: SQLMemoryStore, conversation: Conversation, asked: Asked, fold: str, mode: RecallMode
) -> Example:
    now = asked.at or conversation.end
    filters = Query("", conversation.scope, status=MemoryStatus.ACCEPTED, limit=K)
    request = RecallRequest(asked.text, filters, now, 0.0, 1.0, 0.0, explain=False)
    by_words = mode != "meaning"
    seen = await look(store, asked.text, filters, now=now, by_words=by_words)
    vector = await embed_question(store, seen.question, is_all=not by_words)
    search = by_all if by_words else by_meaning
    candidates = await search(store, request, seen, vector)
    assert candidates.measures is not None
    scored = {one.item.id: one for one in candidates.scored}
    hits = choose(candidates, k=K, mode=mode, explain=False)
    return Example(
        fold,
        [dict(candidates.measures(scored[hit.item.id])) for hit in hits],
        [conversation.ids[hit.item.id] in asked.evidence for hit in hits],
        len(asked.evidence),
    )


def matrix(hits: Sequence[dict[str, float]], kind: str) -> Floats:
    return np.array([[1.0, *(hit[name] for name in NAMES[kind])] for hit in hits])


def fit(made: Iterable[Example], kind: str) -> Floats:
    """Return the weights under which what is evidence is likeliest, by Newton's method."""
    pairs = [
        (hit, truth)
        for one in made
        if one.evidence and not one.fold.startswith(JUDGED)
        for hit, truth in zip(one.hits, one.is_evidence, strict=True)
        if set(NAMES[kind]) <= hit.keys()
    ]
    rows = matrix([hit for hit, _ in pairs], kind)
    truth = np.array([float(each) for _, each in pairs])
    ridge = RIDGE * np.eye(rows.shape[1])
    ridge[0, 0] = 1e-6  # how often anything answers is not drawn to a half
    weights = np.zeros(rows.shape[1])
    for _ in range(50):
        said = 1 / (1 + np.exp(-rows @ weights))
        slope = rows.T @ (truth - said) - ridge @ weights
        curve = (rows * (said * (1 - said))[:, None]).T @ rows + ridge
        step = np.linalg.solve(curve, slope)
        weights += step
        if np.abs(step).max() < 1e-6:
            break
    return weights


def judged(made: list[Example], kinds: Sequence[str]) -> list[tuple[Example, list[float]]]:
    """Return every question with the relevance of its hits, by a fit without its fold."""
    found = []
    for fold in dict.fromkeys(one.fold for one in made):
        others = [one for one in made if one.fold != fold]
        tables = {kind: table(fit(others, kind), kind) for kind in kinds}
        own = [one for one in made if one.fold == fold]
        found += [(one, [said_by(tables, hit) for hit in one.hits]) for one in own]
    return found


def table(weights: Floats, kind: str) -> dict[str, float]:
    rounded = [round(float(weight), 2) for weight in weights]
    return dict(zip(("always", *NAMES[kind]), rounded, strict=True))


def said_by(tables: dict[str, dict[str, float]], hit: dict[str, float]) -> float:
    return _relevance.relevance(hit, weights=tables)


def show(label: str, found: Sequence[tuple[Example, list[float]]]) -> None:
    """Print how well relevance is calibrated, and what the defaults of prompts do."""
    answered = [each for each in found if each[0].evidence]
    said = np.array([value for _, values in answered for value in values])
    truth = np.array([each for one, _ in answered for each in one.is_evidence], dtype=float)
    print(
        f"\n{label}: {len(answered)} questions, {len(said)} hits, {100 * truth.mean():.1f} % answer"
    )
    print(f"  {'relevance':>11}{'hits':>8}{'mean':>8}{'answer':>9}")
    for low, high in pairwise(EDGES):
        within = (said >= low) & ((said < high) | (high == 1.0))
        if within.any():
            mean, true = 100 * said[within].mean(), 100 * truth[within].mean()
            print(f"  {low:5.2f}-{high:5.2f}{within.sum():8}{mean:7.1f}%{true:8.1f}%")
    every = np.mean([sum(one.is_evidence) / one.evidence for one, _ in answered])
    kept = np.mean([sum(kept_of(one, values)) / one.evidence for one, values in answered])
    print(f"  R@{K} {100 * every:.1f}, with the default of prompts {100 * kept:.1f}")
    unrelated = [(one, values) for one, values in found if not one.evidence]
    best = [max(values, default=0.0) for _, values in unrelated]
    empty = np.mean([not is_answered(values) for _, values in unrelated])
    print(
        f"  {len(best)} questions that nothing answers: best hit at most "
        f"{np.percentile(best, 95):.2f} for 95 %, {100 * np.mean(np.array(best) < 0.5):.0f} % have "
        f"none from 0.5, a prompt gets nothing for {100 * empty:.0f} %"
    )


def is_answered(values: Sequence[float]) -> bool:
    return max(values, default=0.0) >= ANSWERED


def kept_of(one: Example, values: list[float]) -> list[bool]:
    """Return which hits are evidence and stay in a prompt."""
    if not is_answered(values):
        return []
    least = least_relevance(max(values))
    return [each and value >= least for each, value in zip(one.is_evidence, values, strict=True)]


def written(tables: dict[str, dict[str, float]]) -> str:
    """Return the weights as they stand in the source."""
    lines = ["WEIGHTS: Mapping[str, Measures] = MappingProxyType({"]
    for kind, weights in tables.items():
        lines.append(f'    "{kind}": _weights(')
        line = "       "
        for name, weight in weights.items():
            part = f" {name}={weight},"
            if len(line) + len(part) > 100:
                lines.append(line)
                line = "       "
            line += part
        lines += [line, "    ),"]
    return "\n".join([*lines, "})  # fmt: skip"])


def report(
    label: str,
    by_data: dict[str, dict[RecallMode, list[Example]]],
    mode: RecallMode,
    kinds: tuple[str, ...],
    tables: dict[str, dict[str, float]],
) -> None:
    """Print the calibration of one mode, and add the weights of a fit on everything to *tables*."""
    made = [one for each in by_data.values() for one in each[mode]]
    found = {id(one): (one, values) for one, values in judged(made, kinds)}
    for name, each in by_data.items():
        show(f"{name}, {label}", [found[id(one)] for one in each[mode]])
    show(f"all, {label}", list(found.values()))
    for kind in kinds:
        tables.setdefault(kind, table(fit(made, kind), kind))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, nargs="*", default=[], help="JSON, or gzipped")
    parser.add_argument("--cache", type=Path, help="a file that keeps vectors between runs")
    parser.add_argument("--words-only", action="store_true", help="only without a model")
    parser.add_argument("--write", action="store_true", help="put the weights into the source")
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # that there is no model is the point of a part of it
    model: Embeddings | None = None
    if not given.words_only:
        model = LocalEmbeddings()
        if given.cache:
            model = CachedEmbeddings(model, given.cache, max_entries=1_000_000)
    tables: dict[str, dict[str, float]] = {}
    sets: dict[str, Path | str] = {path.name.partition(".")[0]: path for path in given.data}
    ways = (*TOLD_BY, TOGETHER)
    sets |= {name: name for kind in OWN for name in (kind, *(f"{kind}, {one}" for one in ways))}
    by_words = {name: asyncio.run(examples(data, None, ["hybrid"])) for name, data in sets.items()}
    report("without a model", by_words, "hybrid", ("words",), tables)
    if model is not None:
        by_all = {
            name: asyncio.run(examples(data, model, ["hybrid", "meaning"]))
            for name, data in sets.items()
        }
        report("with the model", by_all, "hybrid", ("words", "meaning", "details"), tables)
        report("mode meaning", by_all, "meaning", ("words", "nearest"), tables)
    print(f"\n{written(tables)}")
    if given.write:
        source = Path(_relevance.__file__)
        old = source.read_text("utf-8")
        new = re.sub(r"(?sm)^WEIGHTS: .*?^\}\).*?$", lambda _: written(tables), old)
        source.write_text(new, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
