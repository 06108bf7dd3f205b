"""Versions as HTTP names them: the entity tag of a memory is its version, in quotes."""

import re
from typing import Any

from orbiter.memory.wire.codecs import Codec, told

__all__ = ["ANY", "ETAG", "read_tags"]

ANY = "*"
_TAG = re.compile(r'\s*(W/)?"([\x21\x23-\x7e\x80-\xff]*)"\s*')
_VERSION = re.compile(r"0|[1-9][0-9]{0,15}")


def read_tags(header: str) -> list[int] | None:
    """Return the versions that `If-Match` names, `None` for `*`; `ValueError` if it names none.

    A tag that is no version of ours matches nothing, and is left out.
    """
    if header.strip() == ANY:
        return None
    place, found = 0, []
    while True:
        tag = _TAG.match(header, place)
        if tag is None:
            raise ValueError(f'must be the version in quotes, such as `"3"`, not {told(header)}')
        if tag[1]:
            raise ValueError(f'must be a strong tag, such as `"3"`, not {told(header)}')
        if _VERSION.fullmatch(tag[2]):
            found.append(int(tag[2]))
        place = tag.end()
        if place == len(header):
            return found
        if header[place] != ",":
            raise ValueError(f'must be tags with commas between, such as `"3"`, not {told(header)}')
        place += 1


def _load(value: Any) -> int:
    tags = read_tags(value) if isinstance(value, str) else [value]
    if tags is None or len(tags) != 1:
        raise ValueError(f'must be one version in quotes, such as `"3"`, not {told(value)}')
    return tags[0]


def _dump(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"must be a whole number, not {told(value)}")  # noqa: TRY004 - one family
    if value < 0:
        raise ValueError(f"must be 0 or more, not {value}")
    return f'"{value}"'


ETAG: Codec[int] = Codec(
    _dump, _load, lambda: {"type": "string", "examples": ['"3"']}, is_text=True
)
