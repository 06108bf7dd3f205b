"""Train the encoder and the reader together.

    python train.py --data data.npz --weights weights_0.npz weights_1.npz --hold-every 7
    python train.py … --hold talk everyday --size 128 --layers 1 --epochs 12 --save build/model

Held-out scenes (whole writers with `--hold`, or every n-th scene) are measured after training and
never trained on; a benchmark in the data is only measured. Everything random comes from `--seed`.
Needs PyTorch and numpy, and is meant for one GPU.
"""

import argparse
import os
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

# Batches differ in their sizes; without this, memory is asked for again and again.
os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")

import numpy as np
import torch
from examples import Batch, Batches, Data, pair_groups, split
from judge import judge
from network import (
    ASKER,
    BEFORE,
    DEVICE,
    MOST,
    NOTE,
    OLD,
    POSITIONS,
    QUESTION,
    SPEAKER,
    Bert,
    Model,
    Reader,
    late_all,
    read_weights,
    save_weights,
    update_parts,
)  # fmt: skip
from teacher import Teacher
from torch import Tensor, nn
from torch.nn import functional


def contrast(nearness: Tensor, grades: Tensor) -> Tensor:
    """InfoNCE: what answers against all others of the batch; what is related does not count."""
    scores = (nearness / 0.05).masked_fill(grades == 1, -1e4)
    chance = functional.log_softmax(scores, 1)
    answers = (grades == 2).float()
    return -((chance * answers).sum(1) / answers.sum(1)).mean()


def listwise(logits: Tensor, groups: Tensor, grades: Tensor) -> Tensor:
    """Softmax within each question: what answers against the other notes shown."""
    empty = torch.zeros(int(groups.max()) + 1, device=logits.device)
    highest = (empty - 1e9).scatter_reduce(0, groups, logits.detach(), "amax")
    whole = empty.scatter_add(0, groups, torch.exp(logits - highest[groups])).clamp(min=1e-9)
    chance = logits - (torch.log(whole) + highest)[groups]
    answers = (grades == 2).float()
    count = empty.scatter_add(0, groups, answers)
    found = empty.scatter_add(0, groups, chance * answers)
    return -(found[count > 0] / count[count > 0]).mean()


class Trainer:
    """One run."""

    def __init__(self, data: Data, model: Model, given: argparse.Namespace) -> None:
        self.data, self.model, self.given = data, model, given
        self.reference = Bert().to(DEVICE).eval()
        self.reference.load_state_dict(model.m.state_dict())
        self.mean = {k: v.detach().clone() for k, v in model.named_parameters()}
        self.averaged = 0

    def run(self, batches: Batches, say: Callable[[str], None]) -> None:
        """Train for all epochs; at the end the model has the mean of its last weights."""
        given, model = self.given, self.model
        learned = [(name, each) for name, each in model.named_parameters() if each.requires_grad]
        body = [each for name, each in learned if name.startswith(("m.", "both."))]
        head = [each for name, each in learned if not name.startswith(("m.", "both."))]
        rates = given.rate, given.head_rate
        groups = [{"params": part, "lr": 0.0} for part in (body, head)]
        optimizer = torch.optim.AdamW(groups, weight_decay=given.decay)
        steps, begun, done, share = given.epochs * len(batches), time.monotonic(), 0, 0.0
        shares = torch.tensor([0.7, 0.7, 0.2, 1.0, 0.5], device=DEVICE)
        for number in range(given.epochs):
            model.train()
            total, count = torch.zeros(5, device=DEVICE), 0
            for batch in batches.epoch():
                share = max(done / steps, (time.monotonic() - begun) / given.limit)
                if share >= 1:
                    break
                for group, rate in zip(optimizer.param_groups, rates, strict=True):
                    group["lr"] = rate * min(1, (done + 1) / (0.05 * steps)) * (1 - share)
                losses = self.losses(batch)
                optimizer.zero_grad(set_to_none=True)
                (losses * shares).sum().backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                self.average()
                total, count, done = total + losses.detach(), count + 1, done + 1
            shown = " ".join(f"{each:.3f}" for each in (total / max(count, 1)).tolist())
            say(f"epoch {number + 1}: near, late, anchor, reader, updates {shown}")
            if share >= 1:
                break
        self.settle()

    @torch.no_grad()
    def settle(self) -> None:
        """Take the mean of the last weights."""
        for name, parameter in self.model.named_parameters():
            parameter.copy_(self.mean[name])

    @torch.no_grad()
    def average(self) -> None:
        """Move the running mean of the weights a step; it forgets what training began with."""
        self.averaged += 1
        keep = min(self.given.average, self.averaged / (self.averaged + 10))
        means, now = list(self.mean.values()), list(self.model.parameters())
        torch._foreach_lerp_(means, [p.detach() for p in now], 1 - keep)

    def losses(self, batch: Batch) -> Tensor:
        """Return the five losses of a batch."""
        texts, asked, pairs = (
            torch.from_numpy(each) for each in (batch.texts, batch.asked, batch.pairs)
        )
        notes = torch.from_numpy(np.unique(batch.pairs[:, 1]))
        with torch.autocast(DEVICE, torch.bfloat16, enabled=DEVICE == "cuda"):
            bank = self.model.encode(self.data.pieces, texts, MOST[NOTE])
            parts = [
                (pairs[:, i], kind) for i, kind in enumerate((NOTE, BEFORE, SPEAKER, ASKER), 1)
            ]
            logits = self.model.read(bank, (pairs[:, 0], QUESTION), parts, 0)
            late = late_all(bank, asked, notes)
            anchor = self.anchor(bank[0], texts)
        number, grade = (torch.from_numpy(x).to(DEVICE) for x in (batch.number, batch.grades))
        notes, row = notes.to(DEVICE), pairs[:, 1].to(DEVICE)
        wanted = torch.full((len(asked), len(texts)), -1, device=DEVICE)
        wanted[number, row] = grade
        wanted = wanted[:, notes]
        answered = (wanted == 2).any(1)
        near = bank[0][asked.to(DEVICE)].float() @ bank[0][notes].float().T
        binary = functional.binary_cross_entropy_with_logits
        reader = (
            2 * binary(logits[:, 0], (grade == 2).float())
            + 0.7 * binary(logits[:, 1], (grade >= 1).float())
            + 0.5 * listwise(logits[:, 0], number, grade)
        )
        update = self.update(bank, batch) if len(batch.updates) else logits.sum() * 0
        close = contrast(near[answered], wanted[answered])
        closer = contrast(late[answered], wanted[answered])
        return torch.stack([close, closer, anchor, reader, update])

    def update(self, bank: tuple[Tensor, Tensor, Tensor], batch: Batch) -> Tensor:
        """Return the loss of telling which note replaces which."""
        table = torch.from_numpy(batch.updates)
        with torch.autocast(DEVICE, torch.bfloat16, enabled=DEVICE == "cuda"):
            logits = self.model.read(bank, (table[:, 0], OLD), update_parts(table), 1)
        wanted = torch.from_numpy(batch.replaces).float().to(DEVICE)
        return functional.binary_cross_entropy_with_logits(logits[:, 2], wanted)

    def anchor(self, vectors: Tensor, texts: Tensor) -> Tensor:
        """Return how far vectors moved from those of the weights that training began with."""
        some = torch.randperm(len(texts))[:96]
        length = int(self.data.pieces.lengths[texts[some]].max().clamp(max=POSITIONS))
        ids = self.data.pieces.table[texts[some].to(DEVICE), :length].long()
        with torch.no_grad():
            mask = ids > 0
            whole = mask.unsqueeze(-1).float()
            pooled = (self.reference(ids, mask).float() * whole).sum(1) / whole.sum(1)
        before = functional.normalize(pooled, dim=-1)
        return 4 * (1 - (vectors[some.to(DEVICE)].float() * before).sum(-1)).mean()


def profile(trainer: Trainer, batches: Batches, say: Callable[[str], None]) -> None:
    """Say what a step costs: making its batch, the step, and what PyTorch does in it."""
    begun = time.monotonic()
    made = list(islice(batches.epoch(), 18))
    say(f"a batch is made in {1000 * (time.monotonic() - begun) / len(made):.0f} ms")

    def steps(some: list[Batch]) -> float:
        begun = time.monotonic()
        for batch in some:
            trainer.losses(batch).sum().backward()
            trainer.model.zero_grad()
        torch.cuda.synchronize() if DEVICE == "cuda" else None
        return 1000 * (time.monotonic() - begun) / len(some)

    trainer.model.train()
    steps(made[:5])
    say(f"a step takes {steps(made[5:15]):.0f} ms")
    with torch.profiler.profile() as profiler:
        steps(made[15:])
    for order in ("self_cuda_time_total", "self_cpu_time_total"):
        print(profiler.key_averages().table(order, row_limit=14, max_name_column_width=60))


def arguments() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--weights", type=Path, nargs="+", required=True)
    parser.add_argument("--name", default="run", help="what its lines begin with")
    parser.add_argument("--hold", nargs="*", default=[], help="writers to measure on")
    parser.add_argument("--hold-every", type=int, default=0, help="measure on every n-th scene")
    parser.add_argument("--share", type=float, default=1.0, help="share of the scenes to train on")
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--teacher", action="store_true", help="train a cross-encoder instead")
    parser.add_argument("--details", type=int, default=64, help="numbers of a word's vector")
    parser.add_argument("--whole", action="store_true", help="have all words see each other")
    parser.add_argument("--wide", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--scenes", type=int, default=6, help="scenes in a batch")
    parser.add_argument("--pairs", type=int, default=20, help="pairs of other sources in a batch")
    parser.add_argument("--notes", type=int, default=9, help="passages shown that do not answer")
    parser.add_argument("--across", type=int, default=0, help="notes of other scenes beside each")
    parser.add_argument("--hide", type=float, default=0.15, help="questions without any speaker")
    parser.add_argument("--rate", type=float, default=3e-5)
    parser.add_argument("--head-rate", type=float, default=6e-4)
    parser.add_argument("--decay", type=float, default=0.02)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--limit", type=float, default=1e9, help="seconds to train at most")
    parser.add_argument("--average", type=float, default=0.99, help="decay of the mean of weights")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--profile", action="store_true", help="only say what a step costs")
    parser.add_argument("--save", type=Path, help="folder for the weights")
    return parser.parse_args()


def main() -> None:
    """Train, measure, save."""
    given, begun = arguments(), time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - begun:4.0f} s] {given.name}: {text}", flush=True)

    torch.manual_seed(given.seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    # It makes a plan for each new shape, which takes longer than the step.
    torch.backends.cuda.enable_cudnn_sdp(False)  # noqa: FBT003 - its only argument
    data = Data(given.data)
    kept, held = split(data, given)
    batches = Batches(kept, list(pair_groups(data)), given)
    questions = sum(len(scene["questions"]) for scene in kept)
    say(
        f"{len(kept)} scenes, {questions:,} questions, {len(batches)} steps an epoch; {vars(given)}"
    )
    reader = Reader(
        given.size,
        given.layers,
        given.heads,
        given.wide,
        given.dropout,
        details=given.details,
        is_whole=given.whole,
    )
    weights = read_weights(given.weights)
    model = (
        Teacher(weights, data.pieces, given.dropout)
        if given.teacher
        else Model(weights, reader, given.dropout)
    ).to(DEVICE)
    trainer = Trainer(data, model, given)
    if given.profile:
        profile(trainer, batches, say)
        return
    trainer.run(batches, say)
    if given.save:
        given.save.mkdir(parents=True, exist_ok=True)
        save_weights(model.state_dict(), [given.save / f"weights_{i}.npz" for i in (0, 1)])
    judge(data, model, held, say)


if __name__ == "__main__":
    main()
