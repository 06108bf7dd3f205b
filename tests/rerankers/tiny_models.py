"""Cross-encoders of a few bytes, written as ONNX by hand: no test needs a download, nor `onnx`.

ONNX is protobuf: a field is its number and its kind in a varint, then a varint (kind 0) or a length
and so many bytes (kind 2). The numbers are those of `onnx.proto`.
"""

import struct
from pathlib import Path

__all__ = ["VOCABULARY", "by_length", "by_shared_words", "by_two_classes", "write"]

VOCABULARY = (
    "[PAD]", "[UNK]", "[CLS]", "[SEP]",
    "where", "does", "eva", "live", "##s", "in", "oslo", "she", "tea", "green", "?", ".", ":",
)  # fmt: skip
_FLOAT, _INT32, _INT64 = 1, 6, 7


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def _field(number: int, value: "int | str | bytes") -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _node(operator: str, inputs: str, output: str, **attributes: int) -> bytes:
    named = b"".join(_field(1, each) for each in inputs.split()) + _field(2, output)
    listed = b"".join(
        _field(5, _field(1, name) + _field(3, value) + _field(20, 2))
        for name, value in attributes.items()
    )
    return _field(1, named + _field(4, operator) + listed)


def _constant(name: str, values: "list[int] | list[float]", *shape: int) -> bytes:
    is_whole = all(isinstance(each, int) for each in values)
    raw = struct.pack(f"<{len(values)}{'q' if is_whole else 'f'}", *values)
    dims = b"".join(_field(1, each) for each in shape)
    kind = _INT64 if is_whole else _FLOAT
    return _field(5, dims + _field(2, kind) + _field(8, name) + _field(9, raw))


def _value(name: str, kind: int, *shape: "int | str") -> bytes:
    dims = b"".join(
        _field(1, _field(1, each) if isinstance(each, int) else _field(2, each)) for each in shape
    )
    return _field(1, name) + _field(2, _field(1, _field(1, kind) + _field(2, dims)))


def _model(nodes: bytes, inputs: "list[str]", *output: "int | str", kind: int = _INT64) -> bytes:
    graph = nodes + _field(2, "tiny")
    graph += b"".join(_field(11, _value(name, kind, "pairs", "pieces")) for name in inputs)
    graph += _field(12, _value("logits", _FLOAT, "pairs", *output))
    return _field(1, 8) + _field(7, graph) + _field(8, _field(1, "") + _field(2, 13))


def by_shared_words() -> bytes:
    """Twice the number of pieces that question and text share, less three.

    It needs all three inputs: which pieces are the text's is told by `token_type_ids`.
    """
    nodes = (
        _constant("second", [2], 1)
        + _constant("first", [1], 1)
        + _constant("both", [1, 2], 2)
        + _constant("last_own", [3])
        + _constant("three", [3.0], 1)
        + _constant("two", [2.0], 1)
        + _node("Cast", "attention_mask", "mask", to=_FLOAT)
        + _node("Cast", "token_type_ids", "of_text", to=_FLOAT)
        + _node("Greater", "input_ids last_own", "is_word")
        + _node("Cast", "is_word", "words", to=_FLOAT)
        + _node("Sub", "mask of_text", "of_question")
        + _node("Mul", "of_question words", "asked")
        + _node("Mul", "of_text words", "said")
        + _node("Unsqueeze", "input_ids second", "rows")
        + _node("Unsqueeze", "input_ids first", "columns")
        + _node("Equal", "rows columns", "is_same")
        + _node("Cast", "is_same", "same", to=_FLOAT)
        + _node("Unsqueeze", "asked second", "asked_rows")
        + _node("Unsqueeze", "said first", "said_columns")
        + _node("Mul", "same asked_rows", "half")
        + _node("Mul", "half said_columns", "shared")
        + _node("ReduceSum", "shared both", "count", keepdims=0)
        + _node("Mul", "count two", "doubled")
        + _node("Sub", "doubled three", "flat")
        + _node("Unsqueeze", "flat first", "logits")
    )
    return _model(nodes, ["input_ids", "attention_mask", "token_type_ids"], 1)


def by_length(kind: int = _INT64) -> bytes:
    """The number of pieces, without `token_type_ids` and without a second axis."""
    nodes = (
        _constant("first", [1], 1)
        + _node("Cast", "attention_mask", "mask", to=_FLOAT)
        + _node("Cast", "input_ids", "unused", to=_FLOAT)
        + _node("ReduceSum", "mask first", "logits", keepdims=0)
    )
    return _model(nodes, ["input_ids", "attention_mask"], kind=kind)


def by_two_classes(columns: int = 2) -> bytes:
    """The number of pieces as the last of several columns, the others 1."""
    nodes = (
        _constant("first", [1], 1)
        + _constant("others", [1.0] * (columns - 1), 1, columns - 1)
        + _node("Cast", "attention_mask", "mask", to=_FLOAT)
        + _node("ReduceSum", "mask first", "length", keepdims=1)
        + _node("Sub", "length length", "zero")
        + _node("Add", "zero others", "no")
        + _node("Concat", "no length", "logits", axis=1)
    )
    return _model(nodes, ["attention_mask"], columns)


def write(folder: Path, model: bytes, vocabulary: "tuple[str, ...]" = VOCABULARY) -> Path:
    """Write a model and its vocabulary into *folder*, which is returned."""
    folder.mkdir(exist_ok=True)
    (folder / "model.onnx").write_bytes(model)
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    return folder
