"""Build `recall-minilm-int8.onnx` and `details.npy` from the tuned weights.

    pip install numpy onnx
    python build_model.py weights_0.npz weights_1.npz

The weights are not a part of the repository; the README has their SHA-256. Their keys are those of
`BertModel` behind `m.`, and `P` for the projection that becomes `details.npy`. A matrix is kept as
rows of int8 (`name|q`) with a scale for each row (`name|s`). The same weights give the same bytes,
but for the versions of onnx that write them. `--floats --output FILE` writes the model in floating
point, for `python -m benchmarks.embeddings --reference FILE`, which compares the vectors.

The graph is made by hand from the operators of ONNX alone, so that nothing is in it but the model:
24 products of integers, and what stands between them. Integers cost little nearness because of
three things, each measured (cosine to floating point over 514 texts, on average and at worst):

- Each column of a matrix has its own scale, which is the one that the weights come with.
- What enters the first layer of a feed-forward block is divided by how far each of its 384 numbers
  reaches, which its norm tells, and the matrix is multiplied by that (`reach`): 0.9975 and 0.985
  without, 0.9988 and 0.993 with it.
- What enters the second layer is divided by the largest number of its token (`bounded`): a few
  tokens have very large ones, and one scale for all left little of the others. 0.9963 and 0.984
  without; with it, it is as near as if that layer computed in floating point.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

HOME = Path(__file__).parent / "src" / "orbiter_memory_minilm"
MODEL = HOME / "recall-minilm-int8.onnx"
DETAILS = "details.npy"

LAYERS, HEADS, SIZE = 6, 12, 384
POSITIONS = 256
"""How many tokens a text may have; the weights have twice as many, which were never trained."""
LOWEST = 0.17
"""No result of GELU is below minus this."""


class Weights:
    """The tuned weights, by the names of `BertModel`."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._arrays: dict[str, NDArray[Any]] = {}
        for file in files:
            with np.load(file, allow_pickle=False) as arrays:
                self._arrays |= {name.removeprefix("m."): arrays[name] for name in arrays}

    def __getitem__(self, name: str) -> "Floats":
        if name in self._arrays:
            return self._arrays[name].astype(np.float32)
        integers, scales = self.coded(name)
        return integers.astype(np.float32) * scales

    def coded(self, name: str) -> "tuple[NDArray[np.int8], Floats]":
        """Return a matrix as rows of integers, and the scale of each row."""
        return self._arrays[f"{name}|q"], self._arrays[f"{name}|s"]

    def of(self, *names: str) -> "tuple[Floats, Floats]":
        """Return matrix and bias of layers that read the same input, side by side."""
        matrices = [self[f"{name}.weight"].T for name in names]
        return np.hstack(matrices), np.concatenate([self[f"{name}.bias"] for name in names])


class Graph:
    """Nodes and constants, in the order in which they are added."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}

    def add(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Add a node with one output, and return the name of that."""
        [name] = self.add_many(operator, *inputs, outputs=[output], **attributes)
        return name

    def add_many(
        self, operator: str, *inputs: str, outputs: Sequence[str], **attributes: Any
    ) -> list[str]:
        """Add a node with several outputs, and return their names."""
        name = f"{operator}_{len(self.nodes)}"
        names = [output or name for output in outputs]
        self.nodes.append(helper.make_node(operator, inputs, names, name=name, **attributes))
        return names

    def keep(self, name: str, values: Any, kind: Any = np.float32) -> str:
        """Add a constant, unless one of that name is there, and return its name."""
        if name not in self.constants:
            array = np.ascontiguousarray(values, dtype=kind)
            self.constants[name] = numpy_helper.from_array(array.reshape(np.shape(values)), name)
        return name


class Encoder:
    """Writes the model into a graph, from the words of a text to their last hidden states."""

    def __init__(self, weights: Weights, *, in_floats: bool = False) -> None:
        self.graph = Graph()
        self._weights = weights
        self._in_floats = in_floats

    def model(self) -> onnx.ModelProto:
        """Return the whole model."""
        add, keep = self.graph.add, self.graph.keep
        mask = add("Cast", "attention_mask", to=TensorProto.FLOAT)
        hidden = self.embedded()
        absent = add("Mul", add("Sub", mask, keep("one", 1.0)), keep("far", 1e9))
        absent = add("Unsqueeze", absent, keep("heads and rows", [1, 2], np.int64))
        for number in range(LAYERS):
            hidden = self.layer(f"encoder.layer.{number}", hidden, absent)
        add("LpNormalization", hidden, output="tokens", axis=-1, p=2)
        counted = add("Mul", hidden, add("Unsqueeze", mask, keep("last axis", [-1], np.int64)))
        pooled = add("ReduceSum", counted, keep("second", [1], np.int64), keepdims=0)
        add(
            "LpNormalization", pooled, output="v", axis=-1, p=2
        )  # of a mean or a sum, it is the same
        return self._finished()

    def embedded(self) -> str:
        """Return what the first layer reads: the vectors of words and of their places."""
        add, keep = self.graph.add, self.graph.keep
        name = "embeddings.word_embeddings.weight"
        integers, scales = self._weights.coded(name)
        words = add("Gather", keep(f"{name}.integers", integers, np.int8), "input_ids")
        scale = add("Gather", keep(f"{name}.scales", scales), "input_ids")
        places = self._weights["embeddings.position_embeddings.weight"][:POSITIONS]
        places = places + self._weights["embeddings.token_type_embeddings.weight"][0]
        first, second, third = (
            keep(name, [number], np.int64)
            for number, name in enumerate(("first", "second", "third"))
        )
        length = add("Slice", add("Shape", "input_ids"), second, third)
        near = add("Slice", keep("places", places), first, length, first)
        words = add("Mul", add("Cast", words, to=TensorProto.FLOAT), scale)
        return self.normed("embeddings.LayerNorm", add("Add", words, near))

    def layer(self, name: str, hidden: str, absent: str) -> str:
        """Return what a layer makes of the *hidden* states."""
        add = self.graph.add
        found = self.attention(f"{name}.attention.self", hidden, absent)
        found = self.dense(f"{name}.attention.output.dense", found)
        hidden = self.normed(f"{name}.attention.output.LayerNorm", add("Add", found, hidden))
        reach = self.reach(f"{name}.attention.output.LayerNorm")
        even = add("Div", hidden, self.graph.keep(f"{name}.reach", reach))
        found = self.gelu(self.dense(f"{name}.intermediate.dense", even, reach=reach))
        found = self.bounded(f"{name}.output.dense", found)
        return self.normed(f"{name}.output.LayerNorm", add("Add", found, hidden))

    def attention(self, name: str, hidden: str, absent: str) -> str:
        """Return what the heads of a layer attend to, side by side."""
        add, add_many, keep = self.graph.add, self.graph.add_many, self.graph.keep
        parts = ("query", "key", "value")
        matrix, bias = self._weights.of(*(f"{name}.{part}" for part in parts))
        root = np.sqrt(np.float32(SIZE // HEADS))
        matrix[:, :SIZE] /= root
        bias[:SIZE] /= root
        found = self.product(name, hidden, matrix, bias)
        sizes = keep("thirds", [SIZE] * 3, np.int64)
        outputs = [f"{name}.{part}" for part in parts]
        thirds = add_many("Split", found, sizes, outputs=outputs, axis=-1)
        heads = keep("heads", [0, 0, HEADS, SIZE // HEADS], np.int64)
        query, key, value = (
            add("Transpose", add("Reshape", third, heads), perm=order)
            for third, order in zip(thirds, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True)
        )
        share = add("Softmax", add("Add", add("MatMul", query, key), absent), axis=-1)
        found = add("Transpose", add("MatMul", share, value), perm=[0, 2, 1, 3])
        return add("Reshape", found, keep("together", [0, 0, SIZE], np.int64))

    def gelu(self, found: str) -> str:
        """Return GELU of what is found, by the error function."""
        add, keep = self.graph.add, self.graph.keep
        bend = add("Erf", add("Div", found, keep("root of two", np.sqrt(2))))
        return add("Mul", add("Mul", found, add("Add", bend, keep("one", 1.0))), keep("half", 0.5))

    def normed(self, name: str, found: str) -> str:
        """Return what a norm of the model makes of what is found."""
        scale, bias = (self._weights[f"{name}.{part}"] for part in ("weight", "bias"))
        names = self.graph.keep(f"{name}.weight", scale), self.graph.keep(f"{name}.bias", bias)
        return self.graph.add("LayerNormalization", found, *names, axis=-1, epsilon=1e-12)

    def reach(self, name: str) -> "Floats":
        """Return how far each number that a norm gives reaches, nearly always."""
        scale, bias = (np.abs(self._weights[f"{name}.{part}"]) for part in ("weight", "bias"))
        reach: Floats = 4 * scale + bias
        return reach / np.exp(np.log(reach).mean())

    def bounded(self, name: str, found: str) -> str:
        """Return what a layer makes of results of GELU, each token's scaled to 1 at most."""
        add, keep = self.graph.add, self.graph.keep
        largest = add("ReduceMax", found, axes=[-1], keepdims=1)
        largest = add("Max", largest, keep("lowest", LOWEST))
        matrix, bias = self._weights.of(f"{name}")
        product = self.product(name, add("Div", found, largest), matrix)
        return add("Add", add("Mul", product, largest), keep(f"{name}.bias", bias))

    def dense(self, name: str, found: str, *, reach: "Floats | None" = None) -> str:
        """Return what a layer makes of what is found, which was divided by *reach*."""
        matrix, bias = self._weights.of(f"{name}")
        return self.product(name, found, matrix if reach is None else matrix * reach[:, None], bias)

    def product(self, name: str, found: str, matrix: "Floats", bias: "Floats | None" = None) -> str:
        """Return the product with a matrix in integers; what is *found* has one scale for all."""
        add, keep = self.graph.add, self.graph.keep
        if self._in_floats:
            product = add("MatMul", found, keep(f"{name}.floats", matrix))
            return product if bias is None else add("Add", product, keep(f"{name}.bias", bias))
        scales = np.abs(matrix).max(axis=0) / 127
        integers = np.rint(matrix / scales)
        coded = [f"{name}.{part}" for part in ("coded", "scale", "zero")]
        self.graph.add_many("DynamicQuantizeLinear", found, outputs=coded)
        zeros = keep(f"{len(scales)} zeros", np.zeros(len(scales)), np.int8)
        weights = keep(f"{name}.integers", integers, np.int8)
        product = add("MatMulInteger", coded[0], weights, coded[2], zeros)
        scale = add("Mul", coded[1], keep(f"{name}.scales", scales))
        product = add("Mul", add("Cast", product, to=TensorProto.FLOAT), scale)
        return product if bias is None else add("Add", product, keep(f"{name}.bias", bias))

    def _finished(self) -> onnx.ModelProto:
        texts, tokens = ["batch", "sequence"], ["batch", "sequence", SIZE]
        graph = helper.make_graph(
            self.graph.nodes,
            "recall-minilm",
            [
                helper.make_tensor_value_info(name, TensorProto.INT64, texts)
                for name in ("input_ids", "attention_mask")
            ],
            [
                helper.make_tensor_value_info("v", TensorProto.FLOAT, ["batch", SIZE]),
                helper.make_tensor_value_info("tokens", TensorProto.FLOAT, tokens),
            ],
            list(self.graph.constants.values()),
        )
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name=""
        )
        onnx.checker.check_model(model, full_check=True)
        return model


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("weights", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--output", type=Path, default=MODEL)
    parser.add_argument("--floats", action="store_true", help="compute in floating point, 55 MB")
    options = parser.parse_args()
    weights = Weights(options.weights)
    model = Encoder(weights, in_floats=options.floats).model()
    options.output.write_bytes(model.SerializeToString(deterministic=True))
    details = options.output.with_name(DETAILS)
    np.save(details, np.ascontiguousarray(weights["P"]))
    for file in (options.output, details):
        print(f"{file}: {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
