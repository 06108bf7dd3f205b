"""Build `reader.onnx` from the trained weights, beside what `build_model.py` builds.

    pip install numpy onnx
    python build_reader.py weights_0.npz weights_1.npz

The reader judges a question beside notes. It is small, computes in floating point, and so says
the same on every processor. One run reads one question beside a batch of notes:

| input | shape | what it is |
|---|---|---|
| `question` | [words, 64] int8 | the vectors of the question's words |
| `words` | [notes, words, 64] int8 | those of each note and of what stands beside it |
| `parts`, `places` | [notes, words] int64 | what each word stands in, and where in that |
| `present` | [notes, words] float | 1 for a word, 0 where there is none |
| `nearness` | [notes, 2] float | cosine of the texts, and late interaction of their words |
| `task` | [1] int64 | 0 for a question and notes, 1 for an older note and newer ones |

The output `logits`, [notes, 3]: the note answers, is related, replaces the older one.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from build_model import HOME, Graph, Weights
from onnx import TensorProto, helper

READER = HOME / "reader.onnx"
DETAILS = 64


class Reader:
    """Writes the reader into a graph."""

    def __init__(self, weights: Weights, heads: int) -> None:
        self.graph = Graph()
        self._weights = weights
        self._heads = heads
        self._size = len(weights["reader.norm.weight"])

    def model(self, layers: int) -> onnx.ModelProto:
        """Return the whole reader."""
        add, keep = self.graph.add, self.graph.keep
        seen = self.normed("norm_seen", self.words("words", "parts", "places"))
        x = add("Concat", self.summary(), self.asked(), axis=1)
        rows = add(
            "Slice", add("Shape", "words"), keep("0", [0], np.int64), keep("1", [1], np.int64)
        )
        rest = keep("1 1", [1, 1], np.int64)
        x = add("Expand", x, add("Concat", rows, rest, axis=0))
        absent = add("Mul", add("Sub", "present", keep("one", 1.0)), keep("far", 1e9))
        own = add(
            "ReduceSum", add("Mul", x, keep("zero", 0.0)), keep("last", [-1], np.int64), keepdims=0
        )
        absent = add("Concat", own, absent, axis=1)
        absent = add("Unsqueeze", absent, keep("heads and rows", [1, 2], np.int64))
        for number in range(layers):
            x = self.layer(f"layers.{number}", x, seen, absent)
        first = add("Gather", x, keep("first", 0, np.int64), axis=1)
        near = add("Mul", "nearness", keep("four", 4.0))
        found = add("Concat", self.normed("norm", first), near, axis=1)
        found = self.gelu(self.dense("head.0", found))
        self.dense("head.2", found, output="logits")
        return self._finished()

    def summary(self) -> str:
        """Return what stands before the question's words and gathers what the reader says."""
        add, keep = self.graph.add, self.graph.keep
        tasks = keep("summary", self._weights["reader.summary"])
        return add("Unsqueeze", add("Gather", tasks, "task"), keep("0", [0], np.int64))

    def asked(self) -> str:
        """Return what the reader makes of the question's words."""
        add, keep = self.graph.add, self.graph.keep
        question = add("Unsqueeze", "question", keep("0", [0], np.int64))
        kinds = keep("question's parts", [QUESTION, OLD], np.int64)
        count = add(
            "Slice", add("Shape", "question"), keep("0", [0], np.int64), keep("1", [1], np.int64)
        )
        count = add("Squeeze", count, keep("0", [0], np.int64))
        places = add("Range", keep("zeroth", 0, np.int64), count, keep("by one", 1, np.int64))
        return self.words_at(question, add("Gather", kinds, "task"), places)

    def words(self, words: str, parts: str, places: str) -> str:
        """Return what the reader makes of words, before any attention."""
        return self.words_at(words, parts, places)

    def words_at(self, words: str, parts: str, places: str) -> str:
        """Return vectors of words in the reader's size, with what they stand in and where."""
        add, keep = self.graph.add, self.graph.keep
        floats = add("Mul", add("Cast", words, to=TensorProto.FLOAT), keep("unit", 1 / 127))
        found = self.dense("up", floats)
        segments = keep("segment", self._weights["reader.segment.weight"])
        found = add("Add", found, add("Gather", segments, parts))
        at = keep("place", self._weights["reader.place.weight"])
        return add("Add", found, add("Gather", at, places))

    def layer(self, name: str, x: str, seen: str, absent: str) -> str:
        """Return what a layer makes of *x*, which sees itself and what is *seen*."""
        add = self.graph.add
        found = self.attention(name, self.normed(f"{name}.norm", x), seen, absent)
        x = add("Add", x, self.dense(f"{name}.out", found))
        wide = self.gelu(self.dense(f"{name}.wide", self.normed(f"{name}.norm_wide", x)))
        return add("Add", x, self.dense(f"{name}.narrow", wide))

    def attention(self, name: str, normed: str, seen: str, absent: str) -> str:
        """Return what the heads of a layer attend to, side by side."""
        add, keep = self.graph.add, self.graph.keep
        width = self._size // self._heads
        heads = keep("heads", [0, 0, self._heads, width], np.int64)
        query = self.dense(f"{name}.query", normed, scale=width**-0.5)
        both = self.dense(f"{name}.key_value", add("Concat", normed, seen, axis=1))
        halves = keep("halves", [self._size] * 2, np.int64)
        outputs = [f"{name}.key", f"{name}.value"]
        key, value = self.graph.add_many("Split", both, halves, outputs=outputs, axis=-1)
        query, key, value = (
            add("Transpose", add("Reshape", each, heads), perm=order)
            for each, order in ((query, [0, 2, 1, 3]), (key, [0, 2, 3, 1]), (value, [0, 2, 1, 3]))
        )
        share = add("Softmax", add("Add", add("MatMul", query, key), absent), axis=-1)
        found = add("Transpose", add("MatMul", share, value), perm=[0, 2, 1, 3])
        return add("Reshape", found, keep("together", [0, 0, self._size], np.int64))

    def dense(self, name: str, found: str, *, scale: float = 1.0, output: str = "") -> str:
        """Return what a layer makes of what is found, times *scale*."""
        add, keep = self.graph.add, self.graph.keep
        matrix, bias = self._weights.of(f"reader.{name}")
        product = add("MatMul", found, keep(f"{name}.weight", matrix * scale))
        return add("Add", product, keep(f"{name}.bias", bias * scale), output=output)

    def gelu(self, found: str) -> str:
        """Return GELU of what is found, by the error function."""
        add, keep = self.graph.add, self.graph.keep
        bend = add("Erf", add("Div", found, keep("root of two", np.sqrt(2))))
        return add("Mul", add("Mul", found, add("Add", bend, keep("one", 1.0))), keep("half", 0.5))

    def normed(self, name: str, found: str) -> str:
        """Return what a norm makes of what is found."""
        names = [
            self.graph.keep(f"{name}.{part}", self._weights[f"reader.{name}.{part}"])
            for part in ("weight", "bias")
        ]
        return self.graph.add("LayerNormalization", found, *names, axis=-1, epsilon=1e-5)

    def _finished(self) -> onnx.ModelProto:
        words = ["notes", "words"]
        inputs: list[tuple[str, int, list[str | int]]] = [
            ("question", TensorProto.INT8, ["asked", DETAILS]),
            ("words", TensorProto.INT8, [*words, DETAILS]),
            ("parts", TensorProto.INT64, list(words)),
            ("places", TensorProto.INT64, list(words)),
            ("present", TensorProto.FLOAT, list(words)),
            ("nearness", TensorProto.FLOAT, ["notes", 2]),
            ("task", TensorProto.INT64, [1]),
        ]
        graph = helper.make_graph(
            self.graph.nodes,
            "recall-reader",
            [helper.make_tensor_value_info(*each) for each in inputs],
            [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["notes", 3])],
            list(self.graph.constants.values()),
        )
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name=""
        )
        onnx.checker.check_model(model, full_check=True)
        return model


QUESTION, OLD = 0, 5
"""The numbers of these parts, as `train/network.py` has them."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("weights", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--output", type=Path, default=READER)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=2)
    options = parser.parse_args(arguments)
    model = Reader(Weights(options.weights), options.heads).model(options.layers)
    options.output.write_bytes(model.SerializeToString(deterministic=True))
    print(f"{options.output}: {options.output.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
