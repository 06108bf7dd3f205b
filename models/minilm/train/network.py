"""The model in PyTorch: the encoder, and the reader over the vectors of words.

The encoder is all-MiniLM-L6-v2, by the names of `BertModel`, so that `build_model.py` reads what is
saved. The reader judges a question beside a note from 64 numbers of one byte for each word, which a
store keeps: only the question's words and one summary are its queries, the note's words, which have
their context already, are keys and values alone.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

LAYERS, HEADS, SIZE, WIDE, POSITIONS = 6, 12, 384, 1536, 512
START, END = 101, 102

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MAX_PLACES = 200

QUESTION, NOTE, BEFORE, SPEAKER, ASKER, OLD, NEW = range(7)
"""What a word stands in, for the reader."""
MOST = {QUESTION: 40, NOTE: 96, BEFORE: 32, SPEAKER: 8, ASKER: 8, OLD: 64, NEW: 96}
"""Words of each part that the reader looks at."""


def read_weights(files: Sequence[Path]) -> dict[str, Tensor]:
    """Return weights that were saved as rows of integers with a scale each."""
    found: dict[str, Tensor] = {}
    for file in files:
        with np.load(file, allow_pickle=False) as arrays:
            for name in arrays:
                if name.endswith("|q"):
                    base = name.removesuffix("|q")
                    whole = arrays[name].astype(np.float32) * arrays[f"{base}|s"]
                    found[base] = torch.from_numpy(whole)
                elif not name.endswith("|s"):
                    found[name] = torch.from_numpy(arrays[name].astype(np.float32))
    return found


def save_weights(state: dict[str, Tensor], files: Sequence[Path]) -> None:
    """Save weights as `read_weights` reads them, in two files of about one size."""
    parts: list[dict[str, np.ndarray]] = [{} for _ in files]
    sizes = [0] * len(files)
    for name, tensor in state.items():
        values = tensor.detach().float().cpu().numpy()
        index = sizes.index(min(sizes))
        if values.ndim == 2 and values.size > 100_000:
            scale = np.maximum(np.abs(values).max(1, keepdims=True) / 127, 1e-12)
            parts[index][f"{name}|q"] = np.rint(values / scale).astype(np.int8)
            parts[index][f"{name}|s"] = scale.astype(np.float32)
            sizes[index] += values.size
        else:
            parts[index][name] = values
            sizes[index] += values.size * 4
    for file, part in zip(files, parts, strict=True):
        np.savez_compressed(file, **part)


class _Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.self = nn.ModuleDict(
            {name: nn.Linear(SIZE, SIZE) for name in ("query", "key", "value")}
        )
        self.output = nn.ModuleDict(
            {"dense": nn.Linear(SIZE, SIZE), "LayerNorm": nn.LayerNorm(SIZE, eps=1e-12)}
        )

    def forward(self, hidden: Tensor, mask: Tensor, dropout: float) -> Tensor:
        heads = [
            self.self[name](hidden).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for name in ("query", "key", "value")
        ]
        seen = functional.scaled_dot_product_attention(
            *heads, attn_mask=mask[:, None, None], dropout_p=dropout
        )
        seen = self.output["dense"](seen.transpose(1, 2).flatten(2))
        return self.output["LayerNorm"](hidden + functional.dropout(seen, dropout))


class _Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = _Attention()
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(SIZE, WIDE)})
        self.output = nn.ModuleDict(
            {"dense": nn.Linear(WIDE, SIZE), "LayerNorm": nn.LayerNorm(SIZE, eps=1e-12)}
        )

    def forward(self, hidden: Tensor, mask: Tensor, dropout: float) -> Tensor:
        hidden = self.attention(hidden, mask, dropout)
        wide = functional.gelu(self.intermediate["dense"](hidden))
        narrow = functional.dropout(self.output["dense"](wide), dropout)
        return self.output["LayerNorm"](hidden + narrow)


class Bert(nn.Module):
    """The encoder, without a pooler."""

    def __init__(self, dropout: float = 0.1) -> None:
        super().__init__()
        self.dropout = dropout
        self.embeddings = nn.ModuleDict(
            {
                "word_embeddings": nn.Embedding(30_522, SIZE),
                "position_embeddings": nn.Embedding(POSITIONS, SIZE),
                "token_type_embeddings": nn.Embedding(2, SIZE),
                "LayerNorm": nn.LayerNorm(SIZE, eps=1e-12),
            }
        )
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(_Layer() for _ in range(LAYERS))})

    def forward(self, ids: Tensor, mask: Tensor, kinds: Tensor | None = None) -> Tensor:
        """Return the last hidden states; *kinds* is 1 for what belongs to a second text."""
        parts = self.embeddings
        hidden = parts["word_embeddings"](ids)
        hidden = hidden + parts["position_embeddings"].weight[: ids.shape[1]]
        types = parts["token_type_embeddings"].weight
        hidden = hidden + (types[0] if kinds is None else types[kinds])
        dropout = self.dropout if self.training else 0.0
        hidden = functional.dropout(parts["LayerNorm"](hidden), dropout)
        for layer in self.encoder["layer"]:
            hidden = layer(hidden, mask, dropout)
        return hidden


class _ReaderLayer(nn.Module):
    """Pre-norm: the queries see themselves and, if there is any, what does not change."""

    def __init__(self, size: int, heads: int, wide: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm, self.norm_wide = nn.LayerNorm(size), nn.LayerNorm(size)
        self.query, self.out = nn.Linear(size, size), nn.Linear(size, size)
        self.key_value = nn.Linear(size, 2 * size)
        self.wide, self.narrow = nn.Linear(size, wide * size), nn.Linear(wide * size, size)

    def forward(self, x: Tensor, seen: Tensor | None, mask: Tensor) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        normed = self.norm(x)
        known = normed if seen is None else torch.cat([normed, seen], 1)
        keys, values = self.key_value(known).chunk(2, -1)
        split = [
            each.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for each in (self.query(normed), keys, values)
        ]
        found = functional.scaled_dot_product_attention(
            *split, attn_mask=mask[:, None, None], dropout_p=dropout
        )
        x = x + functional.dropout(self.out(found.transpose(1, 2).flatten(2)), dropout)
        wide = functional.gelu(self.wide(self.norm_wide(x)))
        return x + functional.dropout(self.narrow(wide), dropout)


class Reader(nn.Module):
    """Judges a question beside a note, or an older note beside a newer one."""

    def __init__(
        self,
        size: int = 128,
        layers: int = 2,
        heads: int = 4,
        wide: int = 4,
        dropout: float = 0.1,
        *,
        details: int = 64,
        is_whole: bool = False,
    ) -> None:
        super().__init__()
        self.is_whole = is_whole
        self.up = nn.Linear(details, size)
        self.match = nn.Linear(2, size, bias=False)
        self.segment = nn.Embedding(7, size)
        self.place = nn.Embedding(MAX_PLACES, size)
        self.summary = nn.Parameter(torch.randn(2, size) * 0.02)
        nn.init.normal_(self.segment.weight, std=0.02)
        nn.init.normal_(self.place.weight, std=0.02)
        self.layers = nn.ModuleList(_ReaderLayer(size, heads, wide, dropout) for _ in range(layers))
        self.norm_seen, self.norm = nn.LayerNorm(size), nn.LayerNorm(size)
        self.head = nn.Sequential(nn.Linear(size + 2, 64), nn.GELU(), nn.Linear(64, 3))

    def words(self, vectors: Tensor, segment: int, met: Tensor) -> Tensor:
        """Return what the reader makes of the *vectors* of words, before any attention.

        *met* is how near the nearest word is: of the other text, and of what stands beside that.
        """
        places = self.place.weight[: vectors.shape[1]]
        return self.up(vectors) + self.segment.weight[segment] + places + self.match(met)

    def forward(
        self,
        asked: tuple[Tensor, Tensor, int],
        read: Sequence[tuple[Tensor, Tensor, int]],
        cosine: Tensor,
        task: int,
    ) -> Tensor:
        """Return three logits a pair; *asked* and *read* are vectors, their mask, a segment."""
        vectors, mask, segment = asked
        rows = vectors.shape[0]
        near = [_nearness(asked, each) for each in read]
        best = [
            each.masked_fill(~part[1][:, None], -1).amax(-1)
            for each, part in zip(near, read, strict=True)
        ]
        beside = torch.stack([torch.full_like(best[0], -1), *best[1:]]).amax(0)
        summary = self.summary[task].expand(rows, 1, -1)
        words = self.words(vectors, segment, torch.stack([best[0], beside], -1))
        x = torch.cat([summary.to(words.dtype), words], 1)
        others = []
        for each, (part, _, kind) in zip(near, read, strict=True):
            met = each.masked_fill(~mask[..., None], -1).amax(1)
            others.append(self.words(part, kind, torch.stack([met, torch.zeros_like(met)], -1)))
        seen: Tensor | None = self.norm_seen(torch.cat(others, 1))
        if self.is_whole:
            x, seen = torch.cat([x, seen], 1), None
        ones = torch.ones(rows, 1, dtype=torch.bool, device=mask.device)
        whole = torch.cat([ones, mask, *(each for _, each, _ in read)], 1)
        for layer in self.layers:
            x = layer(x, seen, whole)
        counted = mask.float()
        late = (best[0].float() * counted).sum(-1) / counted.sum(-1).clamp(min=1)
        nearness = torch.stack([cosine, late], 1) * 4
        return self.head(torch.cat([self.norm(x[:, 0]).float(), nearness], 1)).float()


def _nearness(asked: tuple[Tensor, Tensor, int], read: tuple[Tensor, Tensor, int]) -> Tensor:
    return torch.einsum("bqe,bde->bqd", asked[0], read[0])


class Pieces:
    """The pieces of all texts in one table on the device, framed as the encoder reads them."""

    def __init__(self, tokens: np.ndarray, starts: np.ndarray) -> None:
        lengths = np.diff(starts)
        table = np.zeros((len(lengths), lengths.max(initial=1) + 2), dtype=np.int16)
        table[:, 0] = START
        for row, (start, length) in enumerate(zip(starts, lengths, strict=False)):
            table[row, 1 : length + 1] = tokens[start : start + length]
            table[row, length + 1] = END
        self.table = torch.from_numpy(table).to(DEVICE)
        self.lengths = torch.from_numpy(lengths.astype(np.int64) + 2)


class Model(nn.Module):
    """Texts to vectors, and pairs of texts to what the reader says."""

    def __init__(self, weights: dict[str, Tensor], reader: Reader, dropout: float) -> None:
        super().__init__()
        self.m = Bert(dropout)
        self.m.load_state_dict(
            {name[2:]: each for name, each in weights.items() if name.startswith("m.")}
        )
        self.P = nn.Parameter(_widened(weights["P"], reader.up.in_features))
        self.reader = reader

    def encode(self, pieces: Pieces, texts: Tensor, most: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the vector of each text, those of its words, and which words there are."""
        order = torch.argsort(pieces.lengths[texts])
        wide = min(most + 2, int(pieces.lengths[texts].max()))
        vectors, words, masks = [], [], []
        for rows in order.chunk(4) if len(order) > 64 else [order]:
            length = min(wide, int(pieces.lengths[texts[rows]].max()))
            ids = pieces.table[texts[rows].to(DEVICE), :length].long()
            mask = ids > 0
            hidden = self.m(ids, mask)
            whole = mask.unsqueeze(-1).float()
            pooled = (hidden.float() * whole).sum(1) / whole.sum(1)
            vectors.append(functional.normalize(pooled, dim=-1))
            small = functional.normalize(hidden.float(), dim=-1) @ self.P
            small = functional.normalize(small, dim=-1)
            # As it is kept: one byte a number; the gradient passes as if it were not.
            small = small + (torch.round(small * 127) / 127 - small).detach()
            real = mask & (ids != START) & (ids != END)
            words.append(functional.pad(small[:, 1:], (0, 0, 0, wide - length)))
            masks.append(functional.pad(real[:, 1:], (0, wide - length)))
        back = torch.argsort(order).to(DEVICE)
        return (
            torch.cat(vectors).index_select(0, back),
            torch.cat(words).index_select(0, back),
            torch.cat(masks)[back],
        )

    def read(
        self,
        bank: tuple[Tensor, Tensor, Tensor],
        asked: tuple[Tensor, int],
        parts: Sequence[tuple[Tensor, int]],
        task: int,
    ) -> Tensor:
        """Return the logits of pairs; each part is rows of the *bank*, -1 for none, and a kind.

        Short notes are read beside short ones, so that little is read that is not there.
        """
        asked = (asked[0].to(bank[1].device), asked[1])
        parts = [(rows.to(bank[1].device), kind) for rows, kind in parts]
        order = torch.argsort(bank[2].sum(1)[parts[0][0]])
        found = [
            self._read(bank, (asked[0][rows], asked[1]), [(p[rows], k) for p, k in parts], task)
            for rows in order.chunk(max(1, len(order) // 800))
        ]
        return torch.cat(found)[torch.argsort(order)]

    def _read(
        self,
        bank: tuple[Tensor, Tensor, Tensor],
        asked: tuple[Tensor, int],
        parts: Sequence[tuple[Tensor, int]],
        task: int,
    ) -> Tensor:
        vectors, words, masks = bank

        def part(rows: Tensor, kind: int) -> tuple[Tensor, Tensor, int]:
            # What is not there is read from anywhere and masked: from one place it would be slow.
            anywhere = torch.arange(len(rows), device=rows.device) % len(words)
            found = torch.where(rows >= 0, rows, anywhere)
            mask = masks[found, : MOST[kind]] & (rows >= 0)[:, None]
            length = -(-max(1, int(mask.sum(1).max())) // 8) * 8
            return words[:, :length].index_select(0, found), mask[:, :length], kind

        first, second = part(*asked), [part(*each) for each in parts if bool((each[0] >= 0).any())]
        note = parts[0][0]
        cosine = (
            vectors.index_select(0, asked[0]).float() * vectors.index_select(0, note).float()
        ).sum(-1)
        return self.reader(first, second, cosine, task)


def _widened(projection: Tensor, details: int) -> Tensor:
    """Return the projection with more numbers a word, the new ones at random."""
    more = details - projection.shape[1]
    if more <= 0:
        return projection.clone()
    drawn = torch.randn(projection.shape[0], more) * projection.std()
    return torch.cat([projection, drawn], 1)


def update_parts(table: Tensor) -> list[tuple[Tensor, int]]:
    """Return what the reader sees beside the older note."""
    return [(table[:, 1], NEW), (table[:, 3], SPEAKER), (table[:, 2], ASKER)]


def late_all(bank: tuple[Tensor, Tensor, Tensor], asked: Tensor, notes: Tensor) -> Tensor:
    """Return the late interaction of every question with every note of a batch."""
    words, masks = bank[1], bank[2]
    asked, notes = asked.to(words.device), notes.to(words.device)
    mask, there = masks[asked, : MOST[QUESTION]], masks[notes]
    most, longest = (max(1, int(each.sum(1).max())) for each in (mask, there))
    mask, there = mask[:, :most], there[:, :longest]
    near = torch.einsum(
        "qie,nje->qnij",
        words[:, :most].index_select(0, asked),
        words[:, :longest].index_select(0, notes),
    )
    best = near.masked_fill(~there[None, :, None], -1e4).amax(-1).float()
    counted = mask.float()[:, None]
    return (best * counted).sum(-1) / counted.sum(-1).clamp(min=1)
