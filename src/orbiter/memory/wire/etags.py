"""`If-Match`: the versions that it names, and the version that a client expects as one."""

import re
from typing import Annotated, Any

from pydantic import WithJsonSchema

from orbiter.memory.wire.codecs import Codec
from orbiter.memory.wire.plain_values import short_repr

__all__ = ["ETAG", "read_tags"]

_ANY = "*"
_TAG = re.compile(r'\s*(W/)?"([\x21\x23-\x7e\x80-\xff]*)"\s*')
_VERSION = re.compile(r"0|[1-9][0-9]{0,15}")


def read_tags(header: str) -> list[int] | None:
    """Return the versions that `If-Match` names, `None` for `*`; `ValueError` if it names none.

    A tag that is no version of ours matches nothing, and is left out.
    """
    if header.strip() == _ANY:
        return None
    place, versions = 0, []
    while True:
        tag = _TAG.match(header, place)
        if tag is None:
            raise ValueError(
                f'must be the version in quotes, such as `"3"`, not {short_repr(header)}'
            )
        if tag[1]:
            raise ValueError(f'must be a strong tag, such as `"3"`, not {short_repr(header)}')
        if _VERSION.fullmatch(tag[2]):
            versions.append(int(tag[2]))
        place = tag.end()
        if place == len(header):
            return versions
        if header[place] != ",":
            raise ValueError(
                f'must be tags with commas between, such as `"3"`, not {short_repr(header)}'
            )
        place += 1


def _load(value: Any) -> int:
    tags = read_tags(value) if isinstance(value, str) else [value]
    if tags is None or len(tags) != 1:
        raise ValueError(f'must be one version in quotes, such as `"3"`, not {short_repr(value)}')
    return tags[0]


def _dump(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"must be a whole number, not {short_repr(value)}")  # noqa: TRY004 - one family
    if value < 0:
        raise ValueError(f"must be 0 or more, not {value}")
    return f'"{value}"'


ETAG = Codec(
    Annotated[str, WithJsonSchema({"type": "string", "examples": ['"3"']})],
    dump_value=_dump,
    load_value=_load,
)
