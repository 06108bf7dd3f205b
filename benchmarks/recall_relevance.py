"""Relevance: how good and how calibrated it is for who was not fitted to; fits its weights.

    python -m benchmarks.recall_relevance [--scenes WRITER…] [--data FILE…] [--model PATH] [--write]

Every question is put to the real pipeline. What it measured for the 50 best candidates of the first
look, and which of them answer, goes into logistic regressions with a light ridge: with what the
reader says ("read"), by cosines ("near"), and without a model ("words"); each for notes, for what
was said in a conversation, and for a few candidates "alone", which are drawn from all that there
are where they are few.

Each writer of scenes and each conversation is judged by a fit on others, in the order that
recall would give: what the reader looks at stands before the rest. The writers are those of
`scenes/unseen`; for others, `--model` is a folder with a model that was not trained on them.
`--write` puts a fit on everything into `recall/_relevance.py`. Needs numpy.
"""

import argparse
import asyncio
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from benchmarks._conversations import Asked, Conversation, read
from benchmarks._recall_scores import APART
from benchmarks._relevance_report import Example, Floats, Judged, report
from benchmarks._scenes import scenes, told, use_model
from benchmarks.recall_quality import fill, opened, tell

from orbiter.memory.backends.sql.store import SQLMemoryStore
from orbiter.memory.embeddings.cached import CachedEmbeddings
from orbiter.memory.embeddings.local import LocalEmbeddings
from orbiter.memory.model.items import MemoryStatus
from orbiter.memory.model.protocols import Embeddings
from orbiter.memory.model.query import Query
from orbiter.memory.recall import _relevance
from orbiter.memory.recall._candidate_pool import is_talk
from orbiter.memory.recall._candidates import embed_question, fill_pool, look
from orbiter.memory.recall._features import has_evidence
from orbiter.memory.recall._reading import MAX_READ
from orbiter.memory.recall._relevance import Weights, of_share, weights_for
from orbiter.memory.recall._rerank import MAX_RERANKED, order, weighed_columns
from orbiter.memory.recall._signals import measure

Tables = dict[str, dict[str, Weights]]
BEST, ENOUGH, BEHIND = _relevance._BEST, _relevance._ENOUGH, _relevance._BEHIND
FURTHEST = _relevance._FURTHEST
RIDGE = 1.0
READ, NEAR, WORDS = ("answers", "related"), ("cosine", "share"), ("share",)
FITTED = {
    "read": {"few": READ, "crowd": ("standing", *READ), "alone": READ},
    "near": {"few": ("standing", "cosine"), "crowd": ("standing", *NEAR), "alone": ("cosine",)},
    "words": {"few": ("standing", *WORDS), "crowd": ("standing", *WORDS), "alone": WORDS},
}
"""What counts, by what is at hand: for one of a few candidates, of many in a conversation, and for
one alone."""
STANDING = 0.35
"""What the standing among a few counts beside the reader. A fit gives 0.74; with that the first hit
of the 1,938 questions answers in 58.7 instead of 59.2 %, and a hit of 0.5 stands where nothing
answers in 20.6 instead of 17.8 %."""
COLUMNS = Weights._fields
TIMES_ALONE = 2
"""How many times a few candidates of each question are drawn."""
LANGUAGES = {
    "English": {"en"},
    "western Europe": {"de", "fr", "es", "it", "pt", "nl"},
    "East Asia": {"zh", "ja", "ko"},
}


PLAIN = {"evenings_notes", "by_name"}
"""The writers whose notes the fit is made on: others are hard on purpose, with a near miss for each
answer, and in a language that the model hardly knows it says less by itself."""


def group_of(language: str) -> str:
    return next((name for name, codes in LANGUAGES.items() if language in codes), "others")


def sources(given: argparse.Namespace) -> Iterator[tuple[str, str, str | None, Conversation]]:
    """Yield the fold, the language, the user's name and the conversation of each source."""
    for name, scene in scenes(given.scenes):
        fold, user = name.partition("/")[0], scene.get("user")
        yield fold, group_of(scene["language"]), user, told(name, scene)
    for path in given.data:
        for conversation in read(path)[1]:
            yield conversation.name, "English", None, conversation


async def examples(given: argparse.Namespace, embeddings: Embeddings | None) -> list[Example]:
    made: list[Example] = []
    async with opened(None, embeddings) as store:
        for fold, group, user, conversation in sources(given):
            tell(f"{conversation.name}: {len(made):,} questions so far")
            await fill(store, conversation)
            for asked in conversation.questions:
                if asked.category == APART:
                    continue
                one = await example(store, conversation, asked, user)
                if one is not None:
                    made.append(Example(fold, asked.category, group, len(asked.evidence), *one))
    tell("")
    return made


async def example(
    store: SQLMemoryStore, conversation: Conversation, asked: Asked, user: str | None
) -> tuple[Any, ...] | None:
    """Return what recall measures for a question; nothing where it is not asked by weights."""
    filters = Query("", conversation.scope, status=MemoryStatus.ACCEPTED, limit=10)
    now = asked.at or conversation.end
    seen = await look(store, asked.text, filters, now=now, names=(user,) if user else ())
    if seen.question.asks_about_user:
        return None
    vector = await embed_question(store, seen)
    pool = await fill_pool(store, seen, filters, vector)
    table = measure(seen.question, pool, weighed_columns(pool))
    first = (await order(store, pool, table, max_reranked=MAX_RERANKED))[:BEST]
    if not first:
        return None
    cosines = pool.similarity or {}
    rows = np.zeros((len(first), len(COLUMNS)))
    rows[:, COLUMNS.index("always")] = 1
    scores = np.array([one.score for one in first])
    behind = (scores - scores.max()) / (scores.std() or 1.0)
    rows[:, COLUMNS.index("standing")] = behind.clip(FURTHEST)
    unread = np.array(
        [sum(one.points.get(part, 0.0) for part in _relevance._UNREAD) for one in first]
    )
    rows[:, COLUMNS.index("cosine")] = [cosines.get(one.item.id, 0.0) for one in first]
    rows[:, COLUMNS.index("share")] = [
        of_share(seen.question.terms, table.matched[one.place]) for one in first
    ]
    is_echo = np.array([bool(table.columns["echo"][one.place]) for one in first])
    turn = np.where(is_echo, BEST, np.cumsum(~is_echo) - 1)
    if vector is not None and vector.reading is not None:
        before = (table.before[one.place] for one in first)
        said = [None if place is None else table.items[place] for place in before]
        notes = list(zip((one.item for one in first), said, strict=True))
        verdicts = await vector.reading.judge(store, notes, cosines, table.details, pool.names)
        rows[:, COLUMNS.index("answers")] = [each.answers for each in verdicts]
        rows[:, COLUMNS.index("related")] = [each.related for each in verdicts]
        of_each = zip(first, turn, verdicts, strict=True)
        table.verdicts.update({one.place: says for one, at, says in of_each if at < MAX_READ})
    return (
        rows,
        np.array([is_talk(one.item, pool.names) for one in first]),
        np.array([conversation.ids[one.item.id] in asked.evidence for one in first]),
        turn,
        ((unread - unread[0]) / (scores.std() or 1.0)).clip(FURTHEST, -FURTHEST),
        pool.coverage,
        np.array(
            [vector is not None or has_evidence(seen.question, table, one.place) for one in first]
        ),
    )


def fit(
    rows: Floats, answers: npt.NDArray[np.bool_], names: Sequence[str], *, standing: float = 0.0
) -> Weights:
    """Return the weights under which what answers is likeliest, by Newton's method.

    The weight of *standing* is given, unless it is among *names*.
    """
    used = [COLUMNS.index(name) for name in ("always", *names)]
    x, y = rows[:, used], answers.astype(float)
    given = standing * rows[:, COLUMNS.index("standing")]
    ridge = np.diag([1e-6, *(RIDGE * x[:, 1:].var(axis=0))])
    weights = np.zeros(len(used))
    for _ in range(50):
        said = 1 / (1 + np.exp(-x @ weights - given))
        curve = (x * (said * (1 - said))[:, None]).T @ x + ridge
        step = np.linalg.solve(curve, x.T @ (y - said) - ridge @ weights)
        weights += step
        if np.abs(step).max() < 1e-6:
            break
    found = np.round(weights, 2).tolist()
    return Weights(**{"standing": standing, **dict(zip(("always", *names), found, strict=True))})


def fitted(made: Sequence[Example], kind: str) -> dict[str, Weights]:
    """Return the weights for what is alone, among a few, and said in a long conversation."""
    dice = np.random.default_rng(1)
    chosen: dict[str, list[tuple[Floats, npt.NDArray[np.bool_]]]] = {
        name: [] for name in FITTED[kind]
    }
    folds = {one.fold for one in made}
    plain = (PLAIN & folds if kind != "words" else set()) or folds
    for one in made:
        is_read = one.turn < (MAX_READ if kind == "read" else BEST)
        read = one.rows[is_read], one.answers[is_read]
        if len(one.rows) == BEST or (one.is_talk.all() and len(one.rows) >= ENOUGH):
            chosen["crowd"].append(read)
        elif one.fold in plain:
            if len(one.rows) >= ENOUGH:
                chosen["few"].append(read)
            for _ in range(TIMES_ALONE):
                some = dice.permutation(len(one.rows))[: dice.integers(1, 9)]
                rows = one.rows[some]
                rows[:, COLUMNS.index("standing")] -= rows[:, COLUMNS.index("standing")].max()
                chosen["alone"].append((rows, one.answers[some]))

    def of(name: str) -> Weights:
        if not chosen[name]:
            return Weights(0.0)
        rows, answers = (np.concatenate(each) for each in zip(*chosen[name], strict=True))
        standing = STANDING if kind == "read" and name != "crowd" else 0.0
        found = fit(rows, answers, FITTED[kind][name], standing=standing)
        # Both say much the same of a note: neither is to count against what answers.
        kept = [each for each in FITTED[kind][name] if each != "answers" or found.answers > 0]
        return fit(rows, answers, kept, standing=standing)

    return {name: of(name) for name in chosen}


def said_of(one: Example, tables: Tables, kind: str) -> Floats:
    """Return the relevance of the candidates, as `_relevance.weighed` works it out."""

    def log_odds(name: str) -> Floats:
        note, talk = (
            weights_for(tables[name], len(one.rows), is_talk=each) for each in (False, True)
        )
        weights = np.where(one.is_talk[:, None], talk, note)
        found = (one.rows * weights).sum(axis=1)
        if name == "read":  # what it does not see counts as where nothing is read
            near = [
                weights_for(tables["near"], len(one.rows), is_talk=each) for each in (False, True)
            ]
            without = np.where(one.is_talk, near[1].standing, near[0].standing)
            without = (without - weights[:, COLUMNS.index("standing")]).clip(0)
            behind = one.rows[:, COLUMNS.index("standing")]
            found += without * (one.coverage * one.unread + (1 - one.coverage) * behind)
        return np.asarray(found)

    if kind != "read":
        found = log_odds(kind)
    else:
        is_read = one.turn < MAX_READ
        found = np.where(is_read, log_odds("read"), log_odds("near"))
        if is_read.any() and not is_read.all():  # what was not read stands behind what was
            ahead = found[~is_read].max() - found[is_read].min()
            found[~is_read] -= max(0.0, ahead + BEHIND)
    said: Floats = one.is_hit / (1 + np.exp(-found))
    return said


def judged(made: list[Example], kinds: Sequence[str]) -> Judged:
    """Return every question with its relevances, by a fit without its fold."""
    found: Judged = []
    for fold in dict.fromkeys(one.fold for one in made):
        others = [one for one in made if one.fold != fold]
        tables = {kind: fitted(others or made, kind) for kind in kinds}
        own = (one for one in made if one.fold == fold)
        found += [(one, said_of(one, tables, kinds[0])) for one in own]
    return found


def written(tables: Tables) -> str:
    """Return the weights as they stand in the source."""
    lines = ["WEIGHTS: Mapping[str, Mapping[str, Weights]] = MappingProxyType({"]
    for kind, weights in tables.items():
        lines.append(f'    "{kind}": {{')
        for name, each in weights.items():
            parts = [f"{each.always:.2f}"]
            fields = list(each._asdict().items())[1:]
            parts += [f"{field}={value:.2f}" for field, value in fields if value]
            lines.append(f'        "{name}": Weights({", ".join(parts)}),')
        lines.append("    },")
    return "\n".join([*lines, "})  # fmt: skip"])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenes", nargs="+", default=[], metavar="WRITER")
    parser.add_argument("--data", type=Path, nargs="+", default=[], help="JSON, or gzipped")
    parser.add_argument("--model", type=Path, help="a folder with the files of another model")
    parser.add_argument("--cache", type=Path, help="a file that keeps vectors between runs")
    parser.add_argument("--write", action="store_true", help="put the weights into the source")
    given = parser.parse_args()
    if given.write and not given.data:
        parser.error("`--write` needs `--data` with long conversations, for what is said in them")
    use_model(given.model)
    warnings.simplefilter("ignore")  # that there is no model is the point of a third of it
    model: Embeddings = LocalEmbeddings()
    if given.cache:
        model = CachedEmbeddings(model, given.cache, max_entries=1_000_000)
    with_model = asyncio.run(examples(given, model))
    without = asyncio.run(examples(given, None))
    report("read", judged(with_model, ("read", "near")))
    report("near", judged(with_model, ("near",)))
    report("words", judged(without, ("words",)))
    tables = {kind: fitted(without if kind == "words" else with_model, kind) for kind in FITTED}
    print(f"\n{written(tables)}")
    if given.write:
        path = Path(_relevance.__file__)
        source = path.read_text(encoding="utf-8")
        path.write_text(
            re.sub(r"(?ms)^WEIGHTS:.*?^\}\)  # fmt: skip", written(tables), source),
            encoding="utf-8",
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
