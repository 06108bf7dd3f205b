"""Which call a path means. A segment is decoded as one, so that ids and keys may hold slashes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import unquote_to_bytes

from orbiter.memory.server.api.openapi import OTHER_PATHS
from orbiter.memory.server.http.error_responses import Refused
from orbiter.memory.wire import OPERATIONS, REST_ONLY, Operation

__all__ = ["BASE", "Matched", "match", "segments_of"]

BASE = "/v1"
_NOTHING = f"there is nothing here; `{BASE}/openapi.json` lists what there is"


@dataclass(frozen=True, slots=True)
class Matched:
    """A call, and what its path names."""

    operation: Operation
    named: dict[str, str]


class _Shelf:
    """The calls of one form of path, by verb."""

    def __init__(self, template: str) -> None:
        self.parts = template.split("/")
        self.by_verb: dict[str, Operation] = {}

    def named(self, segments: Sequence[str]) -> dict[str, str] | None:
        """Return what *segments* name, or `None` if they are another path."""
        found: dict[str, str] = {}
        for part, segment in zip(self.parts, segments, strict=True):
            if part.startswith("{"):
                if not segment:
                    return None
                found[part[1:-1]] = segment
            elif part != segment:
                return None
        return found


def _shelves() -> dict[int, list[_Shelf]]:
    by_path: dict[str, _Shelf] = {}
    for each in (*OPERATIONS, *REST_ONLY):
        by_path.setdefault(each.path, _Shelf(each.path)).by_verb[each.verb] = each
    found: dict[int, list[_Shelf]] = {}
    # What is named goes before what may be anything.
    for path in sorted(by_path, key=lambda path: path.count("{")):
        shelf = by_path[path]
        found.setdefault(len(shelf.parts), []).append(shelf)
    return found


_SHELVES = _shelves()
_DOORS = {
    path.removeprefix(f"{BASE}/"): [verb.upper() for verb in doors]
    for path, doors in OTHER_PATHS.items()
    if path.startswith(f"{BASE}/")
}
"""What is answered elsewhere, and comes here with other methods only."""


def segments_of(scope: Any) -> list[str]:
    """Return the decoded segments of a request's path below `BASE`; `Refused` for bad bytes."""
    raw = scope.get("raw_path") or scope["path"].encode()
    path = raw.partition(b"?")[0]
    if path != BASE.encode() and not path.startswith(f"{BASE}/".encode()):
        raise Refused(404, _NOTHING)  # a slash that is written as `%2F` ends no segment
    parts = path.split(b"/")[len(BASE.split("/")) :]
    try:
        return [unquote_to_bytes(part).decode("utf-8") for part in parts]
    except UnicodeDecodeError:
        raise Refused(400, "the path is not UTF-8; percent-encode each segment") from None


def match(segments: Sequence[str], verb: str) -> Matched | Literal["OPTIONS"]:
    """Return the call of *verb* on a path, or raise `Refused` with 404 or 405.

    `HEAD` is what `GET` is. For `OPTIONS` there is nothing to call.
    """
    asked = "GET" if verb == "HEAD" else verb
    for shelf in _SHELVES.get(len(segments), ()):
        named = shelf.named(segments)
        if named is not None and asked in shelf.by_verb:
            return Matched(shelf.by_verb[asked], named)
    allowed = allow(segments)
    if not allowed:
        raise Refused(404, _NOTHING)
    if verb == "OPTIONS":
        return "OPTIONS"
    if asked in allowed.split(", "):  # it is answered elsewhere, but not for this name
        raise Refused(404, _NOTHING)
    raise Refused(405, f"this takes {allowed}, not {verb}", headers={"Allow": allowed})


def allow(segments: Sequence[str]) -> str:
    """Return the methods that a path takes, as the header `Allow` lists them; none if no path."""
    verbs = dict.fromkeys(
        verb
        for path, several in _DOORS.items()
        if len(path.split("/")) == len(segments) and _Shelf(path).named(segments) is not None
        for verb in several
    )
    for shelf in _SHELVES.get(len(segments), ()):
        if shelf.named(segments) is not None:
            verbs |= dict.fromkeys(shelf.by_verb)
    more = ["HEAD", "OPTIONS"] if "GET" in verbs else ["OPTIONS"]
    return ", ".join([*verbs, *more]) if verbs else ""
