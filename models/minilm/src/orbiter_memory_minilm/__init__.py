"""Where the model and what belongs to it are; nothing is read before it is asked for."""

from pathlib import Path

__all__ = ["DETAILS", "MODEL", "NAME", "READER", "REPLACES", "VOCABULARY"]

NAME = "recall-minilm-3/int8"
"""What stores keep beside its vectors: another name for every model that makes other ones."""

REPLACES = ("recall-minilm/int8", "all-MiniLM-L6-v2/int8")
"""The models that this distribution had before."""

MODEL = Path(__file__).with_name("recall-minilm-int8.onnx")
"""The ONNX graph: inputs `input_ids` and `attention_mask`, outputs `v` and `tokens`."""

VOCABULARY = Path(__file__).with_name("vocab.txt")
"""One word piece in each line; its number is the line's, from 0."""

DETAILS = Path(__file__).with_name("details.npy")
"""What takes a token's vector from 384 numbers to 64: a float32 matrix, 384 x 64."""

READER = Path(__file__).with_name("reader.onnx")
"""The ONNX graph that judges a question beside notes, from the vectors of their words."""
