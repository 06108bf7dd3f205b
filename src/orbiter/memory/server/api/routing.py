"""Routing: which call a method and a path mean.

A segment is decoded as one, so that ids and keys may hold slashes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import unquote_to_bytes

from orbiter.memory.server.api.openapi import OTHER_PATHS
from orbiter.memory.server.http.error_responses import HTTPProblem
from orbiter.memory.wire import OPERATIONS, REST_ONLY, Operation

__all__ = ["BASE", "TEMPLATE", "ResolvedRoute", "is_call", "resolve", "segments_of"]

BASE = "/v1"
TEMPLATE = "orbiter.template"
"""Where the scope of a request holds the form of its path, once that is known."""
_NOTHING = f"not found; `{BASE}/openapi.json` lists all paths"


@dataclass(frozen=True, slots=True)
class ResolvedRoute:
    """A call, and what its path names."""

    operation: Operation
    named: dict[str, str]

    @property
    def template(self) -> str:
        """Its path with the names of its parts, and not what they are."""
        return f"{BASE}/{self.operation.path}"


class Route:
    """The calls of one form of path, by verb."""

    def __init__(self, template: str) -> None:
        self.parts = template.split("/")
        self.by_verb: dict[str, Operation] = {}

    def named(self, segments: Sequence[str]) -> dict[str, str] | None:
        """Return what *segments* name, or `None` if they are another path."""
        values: dict[str, str] = {}
        for part, segment in zip(self.parts, segments, strict=True):
            if part.startswith("{"):
                if not segment:
                    return None
                values[part[1:-1]] = segment
            elif part != segment:
                return None
        return values


def _routes_by_start() -> dict[tuple[int, str], list[Route]]:
    """Return all routes by their length and first segment, which is a word in every path."""
    by_path: dict[str, Route] = {}
    for each in (*OPERATIONS, *REST_ONLY):
        by_path.setdefault(each.path, Route(each.path)).by_verb[each.verb] = each
    routes: dict[tuple[int, str], list[Route]] = {}
    # What is named goes before what may be anything.
    for path in sorted(by_path, key=lambda path: path.count("{")):
        route = by_path[path]
        routes.setdefault((len(route.parts), route.parts[0]), []).append(route)
    return routes


_ROUTES = _routes_by_start()
_OTHER_ROUTES = {
    path.removeprefix(f"{BASE}/"): [verb.upper() for verb in doors]
    for path, doors in OTHER_PATHS.items()
    if path.startswith(f"{BASE}/")
}
"""What is answered elsewhere, and comes here with other methods only."""


_OWN_STARTS = frozenset(start for _, start in _ROUTES) - {
    path.partition("/")[0] for path in _OTHER_ROUTES
}


def is_call(path: str) -> bool:
    """Tell whether all paths that begin as *path* does are calls."""
    first, base, start, *_ = (*path.split("/", 3), "", "", "")
    return not first and f"/{base}" == BASE and start in _OWN_STARTS


def segments_of(scope: Any) -> list[str]:
    """Return the decoded segments of a request's path below `BASE`; `HTTPProblem` for bad bytes."""
    raw = scope.get("raw_path") or scope["path"].encode()
    path = raw.partition(b"?")[0]
    if path != BASE.encode() and not path.startswith(f"{BASE}/".encode()):
        raise HTTPProblem(404, _NOTHING)  # a slash that is written as `%2F` ends no segment
    parts = path.split(b"/")[len(BASE.split("/")) :]
    try:
        return [unquote_to_bytes(part).decode("utf-8") for part in parts]
    except UnicodeDecodeError:
        raise HTTPProblem(400, "the path is not UTF-8; percent-encode each segment") from None


def resolve(segments: Sequence[str], verb: str) -> ResolvedRoute | Literal["OPTIONS"]:
    """Return the call of *verb* on a path, or raise `HTTPProblem` with 404 or 405.

    `HEAD` is what `GET` is. For `OPTIONS` there is nothing to call.
    """
    method = "GET" if verb == "HEAD" else verb
    for route in _routes_for(segments):
        named = route.named(segments)
        if named is not None and method in route.by_verb:
            return ResolvedRoute(route.by_verb[method], named)
    allowed = allow(segments)
    if not allowed:
        raise HTTPProblem(404, _NOTHING)
    if verb == "OPTIONS":
        return "OPTIONS"
    if method in allowed.split(", "):  # it is answered elsewhere, but not for this name
        raise HTTPProblem(404, _NOTHING)
    raise HTTPProblem(405, f"this path allows {allowed}, not {verb}", headers={"Allow": allowed})


def _routes_for(segments: Sequence[str]) -> Sequence[Route]:
    return _ROUTES.get((len(segments), segments[0]), ()) if segments else ()


def allow(segments: Sequence[str]) -> str:
    """Return the methods that a path takes, as the header `Allow` lists them; none if no path."""
    verbs = dict.fromkeys(
        verb
        for path, several in _OTHER_ROUTES.items()
        if len(path.split("/")) == len(segments) and Route(path).named(segments) is not None
        for verb in several
    )
    for route in _routes_for(segments):
        if route.named(segments) is not None:
            verbs |= dict.fromkeys(route.by_verb)
    more = ["HEAD", "OPTIONS"] if "GET" in verbs else ["OPTIONS"]
    return ", ".join([*verbs, *more]) if verbs else ""
