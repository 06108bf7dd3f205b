"""JSON that is checked quickly is accepted, copied and refused as by a thorough look."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbiter.memory.model.validation import MAX_DEPTH, check_json


class Text(str):
    __slots__ = ()


class Object(dict[str, Any]):
    """Looked at thoroughly, as no plain dict is."""


ATOMS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**64), 2**64)
    | st.floats()
    | st.text(st.characters(codec=None), max_size=8)
    | st.builds(Text, st.text(max_size=3))
    | st.just(b"bytes")
    | st.just((1, 2))
)
NAMES = st.text(st.characters(codec=None), max_size=4) | st.integers(0, 3) | st.builds(Text)
VALUES = st.recursive(
    ATOMS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


def outcome(value: object, max_bytes: int) -> str:
    try:
        copied = check_json(value, max_bytes=max_bytes)
    except ValueError as exc:
        return str(exc)
    return repr((copied, kinds(copied)))


def kinds(value: object) -> object:
    if isinstance(value, dict):
        return {(type(name), name): kinds(inner) for name, inner in value.items()}
    return [kinds(inner) for inner in value] if isinstance(value, list) else type(value)


@given(st.dictionaries(NAMES, VALUES, max_size=4), st.integers(0, 200))
def test_a_plain_object_is_judged_as_any_other(value: dict[str, Any], max_bytes: int) -> None:
    assert outcome(value, max_bytes) == outcome(Object(value), max_bytes)


def nested(depth: int) -> dict[str, Any]:
    value: Any = 1
    for level in range(depth):
        value = {"a": value} if level == depth - 1 or level % 2 else [value]
    found: dict[str, Any] = value
    return found


@pytest.mark.parametrize("depth", [MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1, 500])
def test_what_is_nested_too_deep_is_refused_with_its_place(depth: int) -> None:
    assert outcome(nested(depth), 10_000) == outcome(Object(nested(depth)), 10_000)
    assert ("levels" in outcome(nested(depth), 10_000)) is (depth > MAX_DEPTH)


@pytest.mark.parametrize("text", ["plain", "Zoë", "🙂"])
def test_a_size_is_allowed_up_to_its_last_byte(text: str) -> None:
    value = {"key": [text, 1, 1.5, None, True]}
    size = 2 + len("key") + 3 + 2 + len(text.encode()) + 2 + 8 + 8 + 5 + 5
    assert check_json(value, max_bytes=size) == value
    with pytest.raises(ValueError, match="bytes of JSON"):
        check_json(value, max_bytes=size - 1)


def test_a_copy_shares_nothing() -> None:
    value: dict[str, Any] = {"list": [{"a": 1}], "text": "x"}
    copied: Any = check_json(value, max_bytes=1_000)
    value["list"][0]["a"] = 2
    assert copied == {"list": [{"a": 1}], "text": "x"}


def test_an_error_names_the_place() -> None:
    with pytest.raises(ValueError, match=r"at `a\[1\]\.b`: nan is not JSON"):
        check_json({"a": [0, {"b": float("nan")}]}, max_bytes=1_000)
