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
from typing import TYPE_CHECKING

import numpy as np
import onnx
from build_model import HOME, Graph, Weights
from onnx import TensorProto, helper

if TYPE_CHECKING:
    from build_model import Floats

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
        absent = add("Unsqueeze", absent, keep("1", [1], np.int64))
        if self._is_whole:
            x, seen = add("Concat", x, seen, axis=1), ""
        for number in range(layers):
            x = self.layer(f"layers.{number}", x, seen, absent, is_last=number == layers - 1)
        first = add("Squeeze", x, keep("1", [1], np.int64))
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
        matrix, bias = self._weights.of("reader.up")
        found = add("Add", add("MatMul", words, keep("up.weight", matrix)), match)
        for name, rows in (("segment", parts), ("place", places)):
            table = keep(name, self._weights[f"reader.{name}.weight"])
            found = add("Add", found, add("Gather", table, rows))
        # Last, or ONNX Runtime makes one step of a sum and its norm, which takes longer than two.
        return add("Add", found, keep("up.bias", bias))

    def layer(self, name: str, x: str, seen: str, absent: str, *, is_last: bool) -> str:
        """Return what a layer makes of *x*, which sees itself and what is *seen*.

        Of the last one nothing but the summary is asked for, so nothing else is worked out.
        """
        add = self.graph.add
        normed = self.normed(f"{name}.norm", x)
        known = add("Concat", normed, seen, axis=1) if seen else normed
        if is_last:
            x, normed = self.summary_of(x), self.summary_of(normed)
        x = add("Add", x, self.attention(name, normed, known, absent))
        wide = self.gelu(self.dense(f"{name}.wide", self.normed(f"{name}.norm_wide", x)))
        return add("Add", x, self.dense(f"{name}.narrow", wide))

    def summary_of(self, x: str) -> str:
        """Return the first row of each note, and no other."""
        first, second = (self.graph.keep(f"{each}", [each], np.int64) for each in (0, 1))
        return self.graph.add("Slice", x, first, second, second)

    def attention(self, name: str, normed: str, known: str, absent: str) -> str:
        """Return what a layer's rows attend to of what is *known*.

        The matrices of keys and values are multiplied with those of queries and results ahead, head
        by head. The same comes out, and the many words of a note need no keys and values: only the
        few rows that ask are multiplied by a matrix.
        """
        add, keep = self.graph.add, self.graph.keep
        asking, found = self.folded(name)
        size = keep("a row of each head", [0, -1, self._size], np.int64)
        query = add("Reshape", self.affine(f"{name}.asking", normed, *asking), size)
        near = add("MatMul", query, add("Transpose", known, perm=[0, 2, 1]))
        share = add("Softmax", add("Add", near, absent), axis=-1)
        together = keep("together", [0, -1, self._heads * self._size], np.int64)
        mean = add("Reshape", add("MatMul", share, known), together)
        return self.affine(f"{name}.found", mean, *found)

    def folded(self, name: str) -> "tuple[tuple[Floats, Floats], tuple[Floats, Floats]]":
        """Return a layer's way from rows to what each head looks for, and back from the mean.

        What a key's bias adds is the same for all words, so it changes no share.
        """
        heads, width = self._heads, self._size // self._heads
        (query, query_bias), (both, both_bias), (out, out_bias) = (
            self._weights.of(f"reader.{name}.{part}") for part in ("query", "key_value", "out")
        )
        key, value = np.split(both, 2, axis=1)
        parts = [slice(head * width, (head + 1) * width) for head in range(heads)]
        asking = np.hstack([query[:, part] @ key[:, part].T for part in parts])
        asking_bias = np.concatenate([query_bias[part] @ key[:, part].T for part in parts])
        found = np.vstack([value[:, part] @ out[part] for part in parts])
        found_bias = np.split(both_bias, 2)[1] @ out + out_bias
        return (asking / np.sqrt(width), asking_bias / np.sqrt(width)), (found, found_bias)

    def dense(self, name: str, found: str, *, output: str = "") -> str:
        """Return what a layer makes of what is found."""
        return self.affine(name, found, *self._weights.of(f"reader.{name}"), output=output)

    def affine(
        self, name: str, found: str, matrix: "Floats", bias: "Floats", *, output: str = ""
    ) -> str:
        """Return the product with a matrix, and the bias added."""
        add, keep = self.graph.add, self.graph.keep
        product = add("MatMul", found, keep(f"{name}.weight", matrix))
        return add("Add", product, keep(f"{name}.bias", bias), output=output)

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
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--whole", action="store_true", help="as it was trained with")
    options = parser.parse_args(arguments)
    reader = Reader(Weights(options.weights), options.heads, is_whole=options.whole)
    model = reader.model(options.layers)
    options.output.write_bytes(model.SerializeToString(deterministic=True))
    print(f"{options.output}: {options.output.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
