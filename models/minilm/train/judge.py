"""Measure a model on scenes and on a benchmark that it was not trained on."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from examples import Data, groups_of
from network import (
    ASKER,
    BEFORE,
    DEVICE,
    MOST,
    NOTE,
    OLD,
    QUESTION,
    SPEAKER,
    Model,
    late_all,
    update_parts,
)  # fmt: skip
from torch.nn import functional

Say = Callable[[str], None]


def auc(scores: np.ndarray, wanted: np.ndarray) -> float:
    """Return how often something wanted is scored above something that is not."""
    ranks = np.empty(len(scores))
    ranks[np.argsort(scores, kind="stable")] = np.arange(1, len(scores) + 1)
    good = int(wanted.sum())
    if not 0 < good < len(wanted):
        return float("nan")
    return float((ranks[wanted].sum() - good * (good + 1) / 2) / (good * (len(wanted) - good)))


def judge(data: Data, model: Model, held: Sequence[dict[str, Any]], say: Say) -> None:
    """Print every figure."""
    model.eval()
    with torch.no_grad():
        if held:
            _scenes(data, model, held, say)
            _updates(data, model, held, say)
        for conversation in data.bench:
            conversation["figures"] = _bench(data, model, conversation)
        if data.bench:
            _print_bench(data.bench, say)


def _bank(data: Data, model: Model, texts: Sequence[int]) -> tuple[Any, dict[int, int]]:
    """Return vectors of all *texts*, in rows, and the row of each text."""
    unique = sorted({text for text in texts if text >= 0})
    order = torch.tensor(unique)
    parts: list[list[torch.Tensor]] = []
    most = MOST[NOTE]
    for rows in order.split(1024):
        with torch.autocast(DEVICE, torch.bfloat16, enabled=DEVICE == "cuda"):
            found = model.encode(data.pieces, rows, most)
        parts = parts or [[] for _ in found]
        for at, (part, values) in enumerate(zip(parts, found, strict=True)):
            short = most + 1 - values.shape[1] if at in (1, 2) else 0
            wide = functional.pad(values, (0, 0) * (values.ndim - 2) + (0, short))
            part.append(wide.bfloat16() if DEVICE == "cuda" and wide.is_floating_point() else wide)
    return tuple(torch.cat(part) for part in parts), {text: i for i, text in enumerate(unique)}


def _read(model: Model, bank: Any, asked: Any, parts: Any, task: int) -> np.ndarray:
    found = []
    for start in range(0, len(asked[0]), 1500):
        part = slice(start, start + 1500)
        with torch.autocast(DEVICE, torch.bfloat16, enabled=DEVICE == "cuda"):
            logits = model.read(
                bank, (asked[0][part], asked[1]), [(rows[part], kind) for rows, kind in parts], task
            )
        found.append(torch.sigmoid(logits.float()).cpu().numpy())
    return np.concatenate(found)


def _pairs(model: Model, bank: Any, rows: list[tuple[int, ...]]) -> np.ndarray:
    table = torch.tensor(rows)
    parts = [
        (table[:, 1], NOTE),
        (table[:, 2], BEFORE),
        (table[:, 3], SPEAKER),
        (table[:, 4], ASKER),
    ]
    return _read(model, bank, (table[:, 0], QUESTION), parts, 0)


def _scenes(data: Data, model: Model, held: Sequence[dict[str, Any]], say: Say) -> None:
    groups = [group for scene in held for group in groups_of(scene)]
    texts = [q for g in groups for q in g.questions] + [g.asker for g in groups]
    texts += [each for g in groups for note in g.notes for each in note]
    bank, at = _bank(data, model, texts)
    rows, spans = [], []
    for group in groups:
        start = len(rows)
        for text, speaker, before in group.notes:
            each = (group.questions[0], text, before, speaker, group.asker)
            rows.append(tuple(at.get(t, -1) for t in each))
        spans.append((start, len(rows)))
    said = _pairs(model, bank, rows)
    table = torch.tensor(rows, device=bank[0].device)
    cosine = (bank[0][table[:, 0]].float() * bank[0][table[:, 1]].float()).sum(-1).cpu().numpy()
    grades = np.concatenate([group.grades for group in groups])
    chance = said[:, 0]
    kinds: dict[str, list[bool]] = defaultdict(list)
    false: dict[str, list[bool]] = defaultdict(list)
    near = []
    for group, (start, end) in zip(groups, spans, strict=True):
        grade, own = np.array(group.grades), chance[start:end]
        labels = ("all", group.kind, f"writer {group.writer}")
        labels += ("foreign",) if not group.language.startswith("en") else ()
        if (grade == 2).any():
            near.append(grade[cosine[start:end].argmax()] == 2)
            for label in labels:
                kinds[label].append(grade[own.argmax()] == 2)
        else:
            for label in labels:
                false[label].append(bool(own.max() >= 0.5))
    answers = grades == 2
    bins = []
    for low in (0.5, 0.6, 0.7, 0.8, 0.9):
        inside = (chance >= low) & (chance < low + 0.1)
        bins.append(f"{low:.1f}: {100 * answers[inside].mean() if inside.any() else 0:.0f} %")
    say(
        f"SCENES AUC {auc(chance, answers):.3f} (cosine {auc(cosine, answers):.3f}), "
        f"related {auc(said[:, 1], grades >= 1):.3f}, "
        f"hit@1 {100 * np.mean(kinds['all']):.1f} (cosine {100 * np.mean(near):.1f}), "
        f"no answer but a hit of 0.5: {100 * np.mean(false['all']):.1f} %, "
        f"answers below 0.3: {100 * (chance[answers] < 0.3).mean():.1f} %, "
        f"of hits that answer, {', '.join(bins)}"
    )
    say("hit@1 by kind: " + _by_kind(kinds) + "; false: " + _by_kind(false))


def _by_kind(found: dict[str, list[bool]]) -> str:
    counts = Counter({kind: len(values) for kind, values in found.items() if len(values) > 9})
    return ", ".join(f"{k} {100 * np.mean(found[k]):.0f} ({n})" for k, n in counts.most_common())


def _updates(data: Data, model: Model, held: Sequence[dict[str, Any]], say: Say) -> None:
    pairs = [
        (s["notes"][a], s["notes"][b], s["speakers"][a], s["speakers"][b], how)
        for s in held
        for a, b, how in s["updates"]
    ]
    if not pairs:
        return
    bank, at = _bank(data, model, [text for pair in pairs for text in pair[:4]])
    table = torch.tensor([[*(at.get(t, -1) for t in pair[:4]), pair[4]] for pair in pairs])
    parts = update_parts(table)
    chance = _read(model, bank, (table[:, 0], OLD), parts, 1)[:, 2]
    wanted = table[:, 4].numpy() == 1
    order = np.argsort(-chance)
    precise = np.cumsum(wanted[order]) / np.arange(1, len(order) + 1)
    found = np.cumsum(wanted[order]) / wanted.sum()
    share = {p: 100 * found[precise >= p].max(initial=0) for p in (0.8, 0.9)}
    say(
        f"UPDATES {len(pairs)}, AUC {auc(chance, wanted):.3f}, found at precision 0.8: "
        f"{share[0.8]:.0f} %, at 0.9: {share[0.9]:.0f} %"
    )


def _bench(data: Data, model: Model, talk: dict[str, Any]) -> dict[str, list[float]]:
    """Return shares of the evidence among the best: by vectors, and with the reader."""
    texts = [*talk["notes"], *talk["speakers"], *(q for q, *_ in talk["questions"])]
    bank, at = _bank(data, model, texts)
    notes = torch.tensor([at[t] for t in talk["notes"]], device=bank[0].device)
    sessions = talk["sessions"]
    before = [
        at[talk["notes"][i - 1]] if i and sessions[i] == sessions[i - 1] else -1
        for i in range(len(sessions))
    ]
    found: dict[str, list[float]] = defaultdict(list)
    for question, _, evidence in talk["questions"]:
        row = at[question]
        cosine = (bank[0][notes].float() @ bank[0][row].float()).cpu().numpy()
        late = late_all(bank, torch.tensor([row]), notes)[0].cpu().numpy()
        first = _z(cosine) + _z(late)
        best = np.argsort(-first, kind="stable")[:50]
        speakers = talk["speakers"]
        rows = [(row, at[talk["notes"][i]], before[i], at.get(speakers[i], -1), -1) for i in best]
        said = _pairs(model, bank, rows)
        logit = np.log(said[:, 0] + 1e-6) - np.log1p(1e-6 - said[:, 0])
        orders = {"vectors": best, "reader": best[np.argsort(-logit, kind="stable")]}
        for weight in (0.15, 0.3, 0.6):
            both = _z(first[best]) + weight * logit
            orders[f"+{weight}"] = best[np.argsort(-both, kind="stable")]
        for name, order in orders.items():
            for k in (1, 5, 10):
                right = len(set(order[:k].tolist()) & set(evidence)) / len(set(evidence))
                found[f"{name} R@{k}"].append(right)
    return found


def _z(values: np.ndarray) -> np.ndarray:
    return (values - values.mean()) / (values.std() + 1e-6)


def _print_bench(bench: Sequence[dict[str, Any]], say: Say) -> None:
    names = list(bench[0]["figures"])
    means = {n: np.mean([v for each in bench for v in each["figures"][n]]) for n in names}
    say("BENCH " + ", ".join(f"{name} {100 * value:.1f}" for name, value in means.items()))
