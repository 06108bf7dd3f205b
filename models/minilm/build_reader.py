"""Build `reader.onnx` from the trained weights, beside what `build_model.py` builds.

    pip install numpy onnx
    python build_reader.py weights_0.npz weights_1.npz

The reader judges a question beside notes. It is small, computes in floating point, and so says
the same on every processor. One run reads one question beside a batch of notes:

| input | shape | what it is |
|---|---|---|
| `question` | [words, numbers] int8 | the vectors of the question's words |
| `words` | [notes, words, numbers] int8 | those of each note and of what stands beside it |
| `parts`, `places` | [notes, words] int64 | what each word stands in, and where in that |
| `present` | [notes, words] float | 1 for a word, 0 where there is none |
| `cosine` | [notes] float | how near both texts are |
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


class Reader:
    """Writes the reader into a graph."""

    def __init__(self, weights: Weights, heads: int, *, is_whole: bool = False) -> None:
        self.graph = Graph()
        self._weights = weights
        self._heads = heads
        self._is_whole = is_whole
        self._size = len(weights["reader.norm.weight"])
        self._details = weights["reader.up.weight"].shape[1]

    def model(self, layers: int) -> onnx.ModelProto:
        """Return the whole reader."""
        add, keep = self.graph.add, self.graph.keep
        question = add("Unsqueeze", self.floats("question"), keep("0", [0], np.int64))
        words = self.floats("words")
        near = add("MatMul", words, add("Transpose", question, perm=[0, 2, 1]))
        own, beside = self.met(near)
        seen = self.placed(words, "parts", "places", self.match(self.highest(near, 2), None))
        seen = self.normed("norm_seen", seen)
        x = add("Concat", self.summary(), self.asked(question, own, beside), axis=1)
        absent = add("Mul", add("Sub", "present", keep("one", 1.0)), keep("far", 1e9))
        always = add(
            "ReduceSum", add("Mul", x, keep("zero", 0.0)), keep("last", [-1], np.int64), keepdims=0
        )
        absent = add("Concat", always, absent, axis=1)
        absent = add("Unsqueeze", absent, keep("heads and rows", [1, 2], np.int64))
        if self._is_whole:
            x, seen = add("Concat", x, seen, axis=1), ""
        for number in range(layers):
            x = self.layer(f"layers.{number}", x, seen, absent)
        first = add("Gather", x, keep("first", 0, np.int64), axis=1)
        late = add("ReduceMean", own, axes=[1], keepdims=1)
        cosine = add("Unsqueeze", "cosine", keep("1", [1], np.int64))
        both = add("Mul", add("Concat", cosine, late, axis=1), keep("four", 4.0))
        found = add("Concat", self.normed("norm", first), both, axis=1)
        found = self.gelu(self.dense("head.0", found))
        self.dense("head.2", found, output="logits")
        return self._finished()

    def floats(self, words: str) -> str:
        """Return vectors of words as they were before they were rounded to bytes."""
        add, keep = self.graph.add, self.graph.keep
        return add("Mul", add("Cast", words, to=TensorProto.FLOAT), keep("unit", 1 / 127))

    def met(self, near: str) -> tuple[str, str]:
        """Return how near the nearest word is to each word asked: of the note, and beside it."""
        add, keep = self.graph.add, self.graph.keep
        kinds = keep("notes", [float(each in (NOTE, NEW)) for each in range(7)])
        of_note = add("Mul", add("Gather", kinds, "parts"), "present")
        rest = add("Sub", "present", of_note)
        best = []
        for part in (of_note, rest):
            there = add("Unsqueeze", part, keep("last", [-1], np.int64))
            # 0 is what is there and -1 what is not, which nothing is further away than.
            lower = add("Mul", add("Sub", there, keep("one", 1.0)), keep("two", 2.0))
            found = add("Add", add("Mul", near, there), lower)
            best.append(add("Max", self.highest(found, 1), keep("least", -1.0)))
        return best[0], best[1]

    def highest(self, near: str, axis: int) -> str:
        """Return the largest along an axis."""
        return self.graph.add("ReduceMax", near, axes=[axis], keepdims=0)

    def match(self, one: str, other: str | None) -> str:
        """Return what the reader makes of how near the nearest words are."""
        add, keep = self.graph.add, self.graph.keep
        last = keep("last", [-1], np.int64)
        rows = self._weights["reader.match.weight"].T
        found = add("Mul", add("Unsqueeze", one, last), keep("match.0", rows[0]))
        if other is None:
            return found
        return add(
            "Add", found, add("Mul", add("Unsqueeze", other, last), keep("match.1", rows[1]))
        )

    def summary(self) -> str:
        """Return what gathers what the reader says, for each note."""
        add, keep = self.graph.add, self.graph.keep
        tasks = keep("summary", self._weights["reader.summary"])
        found = add("Unsqueeze", add("Gather", tasks, "task"), keep("0", [0], np.int64))
        rows = add(
            "Slice", add("Shape", "words"), keep("0", [0], np.int64), keep("1", [1], np.int64)
        )
        rest = keep("1 1", [1, 1], np.int64)
        return add("Expand", found, add("Concat", rows, rest, axis=0))

    def asked(self, question: str, own: str, beside: str) -> str:
        """Return what the reader makes of the question's words, for each note."""
        add, keep = self.graph.add, self.graph.keep
        kinds = keep("question's parts", [QUESTION, OLD], np.int64)
        count = add(
            "Slice", add("Shape", "question"), keep("0", [0], np.int64), keep("1", [1], np.int64)
        )
        count = add("Squeeze", count, keep("0", [0], np.int64))
        places = add("Range", keep("zeroth", 0, np.int64), count, keep("by one", 1, np.int64))
        part = add("Gather", kinds, "task")
        return self.placed(question, part, places, self.match(own, beside))

    def placed(self, words: str, parts: str, places: str, match: str) -> str:
        """Return vectors of words in the reader's size, with what they stand in and where."""
        add, keep = self.graph.add, self.graph.keep
        segments = keep("segment", self._weights["reader.segment.weight"])
        found = add("Add", self.dense("up", words), add("Gather", segments, parts))
        at = keep("place", self._weights["reader.place.weight"])
        return add("Add", add("Add", found, add("Gather", at, places)), match)

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
        known = add("Concat", normed, seen, axis=1) if seen else normed
        both = self.dense(f"{name}.key_value", known)
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
            ("question", TensorProto.INT8, ["asked", self._details]),
            ("words", TensorProto.INT8, [*words, self._details]),
            ("parts", TensorProto.INT64, list(words)),
            ("places", TensorProto.INT64, list(words)),
            ("present", TensorProto.FLOAT, list(words)),
            ("cosine", TensorProto.FLOAT, ["notes"]),
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


QUESTION, NOTE, OLD, NEW = 0, 1, 5, 6
"""The numbers of these parts, as `train/network.py` has them."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("weights", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--output", type=Path, default=READER)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--whole", action="store_true", help="as it was trained with")
    options = parser.parse_args(arguments)
    reader = Reader(Weights(options.weights), options.heads, is_whole=options.whole)
    model = reader.model(options.layers)
    options.output.write_bytes(model.SerializeToString(deterministic=True))
    print(f"{options.output}: {options.output.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
