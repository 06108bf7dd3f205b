"""`OnnxReranker`: a cross-encoder on this machine, with no key, no network and no torch.

A cross-encoder reads `[CLS] question [SEP] text [SEP]` at once and gives one number for the pair.
Nothing of it runs on the event loop's thread.
"""

import asyncio
import json
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Literal

from orbiter.memory._lazy import missing_extra
from orbiter.memory.errors import QueryError, RerankError
from orbiter.memory.model.query import check_size
from orbiter.memory.tasks.event_loop import bounded_gather
from orbiter.memory.tasks.worker_threads import Forkable
from orbiter.memory.text.word_piece import WordPiece, read_vocabulary

if TYPE_CHECKING:
    import numpy as np
    import onnxruntime
    from numpy.typing import NDArray

__all__ = ["OnnxReranker"]

_WORKERS = 2
"""Threads that run batches: a session computes on the thread that calls it, and on no other."""
_FRAME = 3
"""Pieces around a pair: `[CLS]`, and `[SEP]` behind either text."""
_LEAST = 8
_MAX_CHARS = 20_000
"""Characters of a text that are split into pieces; no model has room for more."""
_KNOWN = ("input_ids", "attention_mask", "token_type_ids")

if TYPE_CHECKING:
    _Model = tuple[WordPiece, onnxruntime.InferenceSession]

Activation = Literal["sigmoid", "none"]


class OnnxReranker:
    """Scores pairs by any BERT-like cross-encoder, such as those trained on MS MARCO.

    *model* is an ONNX file, or a folder with a `model.onnx` or an `onnx/model.onnx`; *vocabulary*
    is its `vocab.txt`, by default the one in that folder or beside the file. The model takes
    `input_ids` and `attention_mask`, and `token_type_ids` if it has that input. Its first output
    has one number for each pair, or two, for "no" and "yes".

    A number becomes a score from 0 to 1 by the sigmoid; *activation* `none` is for a file that has
    it inside, or whose numbers are wanted as they are. A pair of more than *max_tokens* word pieces
    is cut, the longer of the two texts first. Pairs are run in batches of *batch_size*, those of
    about one length together. Capitals and accents count if the model is *cased*, which by default
    the `tokenizer_config.json` beside the vocabulary tells; without that file, it is not.

    The model is loaded when it is first needed. Use one object from as many tasks as you like.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        vocabulary: str | os.PathLike[str] | None = None,
        *,
        max_tokens: int = 256,
        batch_size: int = 8,
        activation: Activation = "sigmoid",
        cased: bool | None = None,
    ) -> None:
        for module in ("numpy", "onnxruntime"):
            if find_spec(module) is None:
                raise missing_extra(f"OnnxReranker needs {module}", "local", name=module)
        if check_size("max_tokens", max_tokens) < _LEAST:
            raise QueryError(f"`max_tokens` must be {_LEAST} or more, not {max_tokens}")
        if check_size("batch_size", batch_size) == 0:
            raise QueryError("`batch_size` must be 1 or more, not 0")
        if activation not in ("sigmoid", "none"):
            raise QueryError(f"`activation` must be `sigmoid` or `none`, not {activation!r}")
        self.model = Path(model)
        self._vocabulary = None if vocabulary is None else Path(vocabulary)
        self._room = max_tokens - _FRAME
        self._batch_size = batch_size
        self._activation = activation
        self._cased = cased
        self._engine = _Engine()

    def __repr__(self) -> str:
        return f"OnnxReranker({str(self.model)!r})"

    async def load(self) -> None:
        """Load the model now, not with the first question; `RerankError` if that fails."""
        await asyncio.get_running_loop().run_in_executor(self._engine.pool, self._loaded)

    async def rerank(self, question: str, texts: Sequence[str]) -> list[float]:
        """Return how well each text answers *question*, in the order given."""
        loop = asyncio.get_running_loop()
        pool = self._engine.pool
        pairs = await loop.run_in_executor(pool, self._pairs, question, texts)
        by_length = sorted(range(len(pairs)), key=lambda at: (len(pairs[at][0]), at))
        size = self._batch_size
        batches = [by_length[at : at + size] for at in range(0, len(by_length), size)]

        async def run(batch: list[int]) -> list[float]:
            return await loop.run_in_executor(pool, self._scores, [pairs[at] for at in batch])

        # One more than can run, so that no thread waits for the loop.
        results = await bounded_gather(run, batches, limit=_WORKERS + 1)
        scores = dict(zip(chain(*batches), chain(*results), strict=True))
        return [scores[at] for at in range(len(texts))]

    def _pairs(self, question: str, texts: Sequence[str]) -> list[tuple[list[int], int]]:
        """Return the pieces of each pair, and where the text begins."""
        pieces, _ = self._loaded()
        query = _numbers(pieces, question)
        pairs = []
        for text in texts:
            read = _numbers(pieces, text)
            # Whichever is shorter than half of the room leaves the rest to the other one.
            half = self._room // 2
            first = query[: max(half, self._room - len(read))]
            second = read[: self._room - len(first)]
            pair = [pieces.start, *first, pieces.end, *second, pieces.end]
            pairs.append((pair, len(first) + 2))
        return pairs

    def _scores(self, pairs: Sequence[tuple[list[int], int]]) -> list[float]:
        """Return the score of each pair of one batch."""
        import numpy as np  # noqa: PLC0415 - an extra

        pieces, session = self._loaded()
        longest = max(len(pair) for pair, _ in pairs)
        ids = np.full((len(pairs), longest), pieces.pad, dtype=np.int64)
        mask, kinds = np.zeros_like(ids), np.zeros_like(ids)
        for row, (pair, begin) in enumerate(pairs):
            ids[row, : len(pair)] = pair
            mask[row, : len(pair)] = 1
            kinds[row, begin : len(pair)] = 1
        inputs = dict(zip(_KNOWN, (ids, mask, kinds), strict=True))
        wanted = {
            each.name: inputs[each.name].astype(np.int32 if "int32" in each.type else np.int64)
            for each in session.get_inputs()
        }
        try:
            output = np.asarray(session.run(None, wanted)[0], dtype=np.float64)
        except Exception as exc:  # the runtime has a dozen errors of its own
            raise RerankError(
                f"`{self.model}` cannot read pairs of {longest} word pieces: {exc}; check "
                "`vocabulary`, or lower `max_tokens`"
            ) from exc
        return self._activated(output, len(pairs))

    def _activated(self, output: "NDArray[np.float64]", count: int) -> list[float]:
        rows = output.reshape(count, -1) if output.size % count == 0 else output
        if rows.ndim != 2 or rows.shape[1] not in (1, 2):
            raise RerankError(
                f"`{self.model}` gives {output.shape} for {count} pairs, not one number for each; "
                "it is not a cross-encoder for ranking"
            )
        # Of two, the second speaks for "yes": the sigmoid of their difference is the softmax.
        logits = (rows[:, 0] if rows.shape[1] == 1 else rows[:, 1] - rows[:, 0]).tolist()
        if not all(map(math.isfinite, logits)):
            raise RerankError(f"`{self.model}` gives a score that is not a finite number")
        return logits if self._activation == "none" else [_sigmoid(each) for each in logits]

    def _loaded(self) -> "_Model":
        return self._engine.loaded(self._load)

    def _load(self) -> "_Model":
        from orbiter.memory.embeddings.onnx_runtime import onnx_session  # noqa: PLC0415 - an extra

        file, folder = self.model, self.model.parent
        if self.model.is_dir():
            folder, inner = self.model, self.model / "onnx" / "model.onnx"
            file = inner if inner.is_file() else folder / "model.onnx"
        vocabulary = self._vocabulary or folder / "vocab.txt"
        for path in (file, vocabulary):
            if not path.is_file():
                raise RerankError(f"there is no file `{path}`; check `model` and `vocabulary`")
        try:
            cased = _is_cased(vocabulary) if self._cased is None else self._cased
            pieces = WordPiece(read_vocabulary(vocabulary), cased=cased)
        except (KeyError, ValueError) as exc:
            raise RerankError(
                f"`{vocabulary}` is not a WordPiece vocabulary: {exc}; it has one piece to a line, "
                "`[UNK]`, `[CLS]` and `[SEP]` among them"
            ) from exc
        try:
            session = onnx_session(file)
        except Exception as exc:  # the runtime has a dozen errors of its own
            raise RerankError(f"`{file}` cannot be loaded as an ONNX model: {exc}") from exc
        inputs = [each.name for each in session.get_inputs()]
        if unknown := sorted(set(inputs).difference(_KNOWN)):
            raise RerankError(
                f"`{file}` takes `{'`, `'.join(unknown)}`, which a BERT-like model does not"
            )
        return pieces, session


def _is_cased(vocabulary: Path) -> bool:
    """Tell whether case counts, as the settings beside a vocabulary say."""
    settings = vocabulary.with_name("tokenizer_config.json")
    if not settings.is_file():
        return False
    values = json.loads(settings.read_text(encoding="utf-8"))
    return isinstance(values, dict) and values.get("do_lower_case") is False


def _numbers(pieces: WordPiece, text: str) -> list[int]:
    return list(chain.from_iterable(pieces.words(text[:_MAX_CHARS])))


def _sigmoid(logit: float) -> float:
    # Where `exp` would overflow, the score is 0 in any precision.
    return 1 / (1 + math.exp(-logit)) if logit > -700 else 0.0


class _Engine(Forkable):
    """The model, loaded once, and the threads that run it."""

    pool: ThreadPoolExecutor
    _model: "_Model | None"

    def __init__(self) -> None:
        super().__init__()
        self._begin()

    def loaded(self, load: Callable[[], "_Model"]) -> "_Model":
        """Return the model; the first caller loads it."""
        with self._lock:
            if self._model is None:
                self._model = load()
            return self._model

    def after_in_child(self) -> None:
        """Load the model again; the parent's may be in use, and is never freed."""
        self._parents = (self._model, self.pool)
        self._begin()

    def _begin(self) -> None:
        self._lock = Lock()
        self._model = None
        # Starts its threads when they are needed, and lets the interpreter end.
        self.pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="orbiter-rerank")
