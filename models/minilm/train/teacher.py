"""A cross-encoder: the whole model reads question and note together.

Twenty times as dear as the reader, so it is only there to tell how much the reader misses, and to
teach it: what it says of every pair of a scene can be learned instead of the labels alone.
"""

from collections.abc import Sequence

import torch
from network import BEFORE, END, MOST, SIZE, START, Bert, Model, Pieces, Reader
from torch import Tensor, nn


class Teacher(Model):
    """Answers as `Model` does, but reads pairs as one text; its vectors are the base's."""

    def __init__(self, weights: dict[str, Tensor], pieces: Pieces, dropout: float) -> None:
        super().__init__(weights, Reader(size=32, layers=1), dropout)
        self.requires_grad_(requires_grad=False)
        self.both = Bert(dropout)
        self.both.load_state_dict(
            {name[2:]: each for name, each in weights.items() if name.startswith("m.")}
        )
        self.task = nn.Parameter(torch.zeros(2, SIZE))
        self.head = nn.Linear(SIZE, 3)
        self._pieces = pieces

    def encode(self, pieces: Pieces, texts: Tensor, most: int) -> tuple[Tensor, ...]:
        """Return what `Model` does, and which texts these are."""
        with torch.no_grad():
            found = super().encode(pieces, texts, most)
        return (*found, texts.to(found[0].device))

    def read(
        self,
        bank: tuple[Tensor, ...],
        asked: tuple[Tensor, int],
        parts: Sequence[tuple[Tensor, int]],
        task: int,
    ) -> Tensor:
        """Return the logits of pairs, short ones read beside short ones."""
        texts = bank[3]
        first = self._words(texts, *asked)
        rest = {kind: self._words(texts, rows, kind) for rows, kind in parts}
        note = parts[0][1]
        named = [rest[kind] for kind in rest if kind not in (note, BEFORE)]
        beside = [rest[kind] for kind in rest if kind == BEFORE]
        rows = len(first)
        start = torch.full((rows, 1), START, device=first.device)
        end = torch.full((rows, 1), END, device=first.device)
        one = torch.cat([start, first, end], 1)
        other = torch.cat([*named, rest[note], end, *beside, end], 1)
        ids = torch.cat([one, other], 1)
        kinds = torch.zeros_like(ids)
        kinds[:, one.shape[1] :] = 1
        packed = torch.argsort((ids == 0).to(torch.int8), dim=1, stable=True)
        ids, kinds = ids.gather(1, packed), kinds.gather(1, packed)
        order = torch.argsort((ids > 0).sum(1))
        found = [self._read(ids[some], kinds[some], task) for some in order.split(512)]
        return torch.cat(found)[torch.argsort(order)]

    def _read(self, ids: Tensor, kinds: Tensor, task: int) -> Tensor:
        length = int((ids > 0).sum(1).max())
        ids, kinds = ids[:, :length], kinds[:, :length]
        hidden = self.both(ids, ids > 0, kinds)
        return self.head(hidden[:, 0].float() + self.task[task]).float()

    def _words(self, texts: Tensor, rows: Tensor, kind: int) -> Tensor:
        """Return the pieces of a part, without their frame; 0 where there are none."""
        rows = rows.to(texts.device)
        ids = self._pieces.table[texts[rows.clamp(min=0)], 1 : MOST[kind] + 1].long()
        ids = ids.masked_fill((rows < 0)[:, None] | (ids == END), 0)
        return ids[:, : max(1, int((ids > 0).sum(1).max()))]
