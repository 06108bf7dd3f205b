"""The graph: people, places and things that memories share, to walk from one to the next.

No model is asked: what is written with a capital letter within a sentence is a name, and a word
that few memories have, and few people say every day, is a thing. Only the newest memories of a
scope are read, and only words that two of them share are shown; a word is gone with the last memory
that has it.
"""

import asyncio
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import cos, hypot, log, pi, sin

from orbiter.memory.agent import ScopedMemory
from orbiter.memory.model.facts import FactMemory, show_value
from orbiter.memory.model.items import SCRIPTED, MemoryItem
from orbiter.memory.server.dashboard.map_points import NUMBERS
from orbiter.memory.server.dashboard.page import Ask, Data, Pages
from orbiter.memory.server.dashboard.scope_cache import ScopeCache
from orbiter.memory.text.languages import ENGLISH, language_of, stop_words
from orbiter.memory.text.words import COMMON, stem, tokens

__all__ = ["Graph", "graph_of", "pages"]

pages = Pages()

MAX_READ = 2_000
"""Memories that are read, the newest of the scope."""

_CHUNK = 500
_TEXT = 600
"""Letters of each memory that are read."""
_MAX_WORDS = 60
_LISTED = 12
"""Memories of a term that are listed."""
_LONGEST = 40
_TURNS = 160
_WORD = re.compile(r"[^\W\d_][\w'’-]*")
_START = re.compile(r"(?:^|[.!?:;\n\"“”«»(\[])\s*$")


EVERYDAY = """
    january february march april may june july august september october november december monday
    tuesday wednesday thursday friday saturday sunday weekend today tomorrow yesterday second
    minute hour day week month year morning afternoon evening night noon midnight time date spring
    summer autumn winter season moment past future while early late soon often always never next
    last first new old good bad best better worse big small large little long short high low free
    full empty open closed easy hard fast slow right wrong same different other another many much
    more most less least few some every each main whole half part piece kind type sort way thing
    stuff place area side end start begin point line list number name word question answer problem
    reason idea plan rule note message email call meeting work job task project team group people
    person man woman child friend family boss member user client customer company office home
    house room door street city town country world class course shop store food meal drink money
    price cost budget bill account card trip travel visit holiday vacation booking road page file
    folder test build change move stay go come get give take make keep let put set need want like
    love prefer try use find look see watch show tell say ask speak talk write read hear learn
    teach know think feel hope remember forget help send bring buy sell pay wait run walk eat
    sleep live leave arrive return happen become mean seem turn add remove check choose close stop
    play win lose meet follow share save spend order cook sign fix about above across after again
    against ago almost along already also although among anyone anything around away back because
    before behind below beside besides between beyond both despite during either else enough
    especially even ever everyone everything exactly except far finally hardly however indeed
    inside instead just later maybe mostly near nearly neither nobody nothing now off once only
    onto outside over per perhaps please probably quite rather really recently since someone
    something sometimes somewhere still than then there therefore though through together too
    toward towards twice under unless until up upon usually very via whether within without yet
""".split()  # noqa: SIM905 - read by people
"""Words of everyday English: they join memories that have nothing else in common."""


@cache
def _everyday() -> frozenset[str]:
    return frozenset(stem(word) for word in EVERYDAY)


@dataclass(frozen=True, slots=True)
class Term:
    """A word that memories share."""

    key: str
    label: str
    is_name: bool
    items: tuple[int, ...]
    """Which of the memories have it, the newest first."""


@dataclass(frozen=True)
class Graph:
    """The terms of some memories."""

    items: Sequence[tuple[str, str]] = ()
    """The id and the beginning of each memory."""
    terms: Mapping[str, Term] = field(default_factory=dict)
    by_item: Sequence[Sequence[str]] = ()
    """The keys of the terms of each memory."""
    is_all: bool = True

    def around(self, key: str) -> list[tuple[str, int]]:
        """Return the terms that share memories with one, and how many: the closest first."""
        together = Counter(
            other for at in self.terms[key].items for other in self.by_item[at] if other != key
        )
        total = len(self.items)

        def closeness(other: str) -> float:
            return together[other] * log(1 + total / len(self.terms[other].items))

        ranked = sorted(together, key=lambda other: (-closeness(other), other))
        return [(other, together[other]) for other in ranked]


@dataclass(frozen=True, slots=True)
class Node:
    """A term in the picture."""

    key: str
    label: str
    is_name: bool
    count: int
    x: int
    y: int
    r: int
    anchor: str
    label_x: int
    label_y: int


@dataclass(frozen=True, slots=True)
class Size:
    """A picture: how large it is, how much fits, and how far its terms stay from the edges."""

    width: int
    height: int
    terms: int
    """Terms of the first picture."""
    around: int
    """Neighbours of one."""
    margin: int
    ring: tuple[int, int]
    stretch: float
    """How much more room a label needs beside a term than below it."""
    letter: float
    """How wide a letter of a label is, in the largest type that the style sheet sets."""
    is_below: bool = False
    """Whether labels stand below their terms, as there is no room beside them."""


WIDE = Size(900, 560, terms=28, around=14, margin=150, ring=(265, 215), stretch=2.4, letter=10.5)
NARROW = Size(
    360, 440, terms=14, around=8, margin=48, ring=(128, 160), stretch=1.6, letter=7.5, is_below=True
)
"""For phones and narrow columns: nothing of it is cut, and its middle is in the middle."""


@dataclass(frozen=True, slots=True)
class Edge:
    """Two terms of the picture that share memories."""

    x1: int
    y1: int
    x2: int
    y2: int
    count: int


_graphs: ScopeCache[Graph] = ScopeCache(seconds=10)


@pages.page("/graph", "graph.html", title="Graph")
async def graph(ask: Ask) -> Data:
    """Show the terms that memories share, or one of them with its neighbours."""
    total = (await ask.handle.stats()).items
    newest = await ask.handle.list(limit=1)
    made = await _graphs.get(
        ask,
        lambda: _read(ask.handle),
        total,
        newest[0].id if newest else "",
        newest[0].version if newest else 0,
    )
    typed = ask.text("term").strip()
    term = made.terms.get(typed.casefold())
    nodes, edges = await asyncio.to_thread(_picture, made, term)
    few_nodes, few_edges = await asyncio.to_thread(_picture, made, term, NARROW)
    around = [] if term is None else made.around(term.key)
    return {
        "asked": typed[:200],
        "term": None
        if term is None
        else {"label": term.label, "is_name": term.is_name, "count": len(term.items)},
        "nodes": nodes,
        "edges": edges,
        "width": WIDE.width,
        "height": WIDE.height,
        "narrow": {
            "nodes": few_nodes,
            "edges": few_edges,
            "width": NARROW.width,
            "height": NARROW.height,
        },
        "neighbours": [
            {"key": key, "label": made.terms[key].label, "count": count}
            for key, count in around[:40]
        ],
        "memories": [] if term is None else [made.items[at] for at in term.items[:_LISTED]],
        "terms": len(made.terms),
        "names": sorted(each.label for each in made.terms.values())[:500],
        "read": len(made.items),
        "is_all": made.is_all,
    }


async def _read(handle: ScopedMemory) -> Graph:
    items: list[MemoryItem] = []
    cursor: str | None = None
    while len(items) < MAX_READ:
        # A summary says again what its messages say.
        page = await handle.list(
            where={"memory_type": {"$ne": "summary"}},
            limit=min(_CHUNK, MAX_READ - len(items)),
            cursor=cursor,
        )
        items += page
        cursor = page.next
        if cursor is None:
            break
    return await asyncio.to_thread(graph_of, items, is_all=cursor is None)


def graph_of(items: Sequence[MemoryItem], *, is_all: bool = True) -> Graph:
    """Return the graph of *items*: the names and rare words that two or more of them have."""
    written: dict[str, Counter[str]] = defaultdict(Counter)
    inner: Counter[str] = Counter()
    where: dict[str, list[int]] = defaultdict(list)
    for at, item in enumerate(items):
        for key, word, is_inner in _words(_text(item)):
            written[key][word] += 1
            inner[key] += is_inner
            if not where[key] or where[key][-1] != at:
                where[key].append(at)
    terms = {}
    for key, places in where.items():
        small = sum(count for word, count in written[key].items() if not word[0].isupper())
        # Who is only named first in sentences is a name, too, if that is so again and again.
        is_name = inner[key] > small or (not small and len(places) > 2)
        most = max(3, len(items) // (3 if is_name else 10))
        is_long = len(key) > (1 if is_name or not key.isascii() else 3)
        is_telling = is_long and not _is_everyday(key, is_name=is_name)
        if 2 <= len(places) <= most and is_telling:
            label = written[key].most_common(1)[0][0]
            terms[key] = Term(key, label, is_name, tuple(places))
    by_item: list[list[str]] = [[] for _ in items]
    for key, term in terms.items():
        for at in term.items:
            by_item[at].append(key)
    begins = [(item.id, item.content[:200]) for item in items]
    return Graph(begins, terms, by_item, is_all)


def _text(item: MemoryItem) -> str:
    """Return what is read of a memory; of a fact only its value, as many facts share a key.

    An answer without a model says again what memories say.
    """
    if item.metadata.extra.get(SCRIPTED):
        return ""
    if isinstance(item, FactMemory):
        return "" if item.is_end else show_value(item.value)[:_TEXT]
    return item.content[:_TEXT]


def _is_everyday(key: str, *, is_name: bool) -> bool:
    """Tell whether a word joins nothing: a day or a month, or a common word that is no name."""
    root = stem(key)
    return root in (_dates() if is_name else _everyday())


@cache
def _dates() -> frozenset[str]:
    """Return what is written as a name in English, and is none."""
    return frozenset(stem(word) for word in EVERYDAY[:19])


def _words(text: str) -> Iterable[tuple[str, str, bool]]:
    """Yield the words of a text that may tell something: key, as written, and if capital within."""
    language = language_of(tokens(text), text)
    empty = COMMON if language == ENGLISH else COMMON | stop_words(language)
    for number, match in enumerate(_WORD.finditer(text)):
        if number >= _MAX_WORDS:
            return
        word = match[0].removesuffix("'s").removesuffix("’s").rstrip("'’-")[:_LONGEST]
        key = word.casefold()
        if not key or key in empty or key in NUMBERS:
            continue
        is_inner = word[0].isupper() and not _START.search(text[: match.start()])
        yield key, word, is_inner


def _picture(made: Graph, term: Term | None, size: Size = WIDE) -> tuple[list[Node], list[Edge]]:
    """Return what is drawn: the terms around *term*, or those that most memories share."""
    if term is not None:
        chosen = [term, *(made.terms[key] for key, _ in made.around(term.key)[: size.around])]
        places = _ring(len(chosen), size)
    else:
        ranked = sorted(
            made.terms.values(),
            key=lambda each: (-len(each.items) * (2 if each.is_name else 1), each.key),
        )
        chosen = ranked[: size.terms]
        places = []
    shared = _shared(chosen)
    places = places or _spread(len(chosen), shared, size)
    nodes = _apart(chosen, places, size, has_middle=term is not None)
    edges = [
        Edge(nodes[a].x, nodes[a].y, nodes[b].x, nodes[b].y, count)
        for (a, b), count in sorted(shared.items())
    ]
    return nodes, edges


def _apart(
    terms: Sequence[Term], places: Sequence[tuple[float, float]], size: Size, *, has_middle: bool
) -> list[Node]:
    """Return the terms at their *places*, moved until none lies upon another or its label."""
    largest = max((len(each.items) for each in terms), default=1)
    at = [list(place) for place in places]
    middle = size.width / 2 - 1
    lefts = [x < middle and not (has_middle and n == 0) for n, (x, _) in enumerate(places)]

    def nodes() -> list[Node]:
        return [
            _node(each, x, y, largest, size, is_left=lefts[n], is_middle=has_middle and n == 0)
            for n, (each, (x, y)) in enumerate(zip(terms, at, strict=True))
        ]

    for _ in range(_TURNS):
        boxes = [_box(node, size) for node in nodes()]
        pushes = [
            [
                max(-left, 0.0) - max(right - size.width, 0.0),
                max(-top, 0.0) - max(bottom - size.height, 0.0),
            ]
            for left, top, right, bottom in boxes
        ]
        for a, one in enumerate(boxes):
            for b in range(a + 1, len(boxes)):
                other = boxes[b]
                wide = min(one[2], other[2]) - max(one[0], other[0])
                high = min(one[3], other[3]) - max(one[1], other[1])
                if wide <= 0 or high <= 0:
                    continue
                axis, far = (0, wide) if wide < high else (1, high)
                is_after = (one[axis] + one[axis + 2], a) > (other[axis] + other[axis + 2], b)
                step = (far / 2 + 1) * (1 if is_after else -1)
                pushes[a][axis] += step
                pushes[b][axis] -= step
        if not any(any(push) for push in pushes):
            break
        for n, push in enumerate(pushes):
            if not (has_middle and n == 0):
                at[n] = [at[n][0] + push[0], at[n][1] + push[1]]
    return nodes()


def _node(
    term: Term, x: float, y: float, largest: int, size: Size, *, is_left: bool, is_middle: bool
) -> Node:
    radius = 6 + round(12 * (len(term.items) / largest) ** 0.5) + (4 if is_middle else 0)
    most = 12 if size.is_below else 20
    label = term.label if len(term.label) <= most else f"{term.label[: most - 1]}…"
    if size.is_below:
        anchor, at, below = "middle", round(x), round(y) + radius + 15
    else:
        anchor = "end" if is_left else "start"
        at = round(x) - radius - 5 if is_left else round(x) + radius + 5
        below = round(y) + 5
    count = len(term.items)
    return Node(term.key, label, term.is_name, count, round(x), round(y), radius, anchor, at, below)


def _box(node: Node, size: Size) -> tuple[float, float, float, float]:
    """Return what a term and its label cover: left, top, right and bottom."""
    wide = len(node.label) * size.letter
    left = {"middle": node.label_x - wide / 2, "end": node.label_x - wide}.get(
        node.anchor, node.label_x
    )
    return (
        min(node.x - node.r, left) - 2,
        min(node.y - node.r, node.label_y - 17) - 1,
        max(node.x + node.r, left + wide) + 2,
        max(node.y + node.r, node.label_y + 6) + 1,
    )


def _shared(terms: Sequence[Term]) -> dict[tuple[int, int], int]:
    sets = [frozenset(each.items) for each in terms]
    counts = {}
    for a, one in enumerate(sets):
        for b in range(a + 1, len(sets)):
            if count := len(one & sets[b]):
                counts[a, b] = count
    return counts


def _ring(count: int, size: Size) -> list[tuple[float, float]]:
    """Return the middle, and places around it."""
    around = [2 * pi * (at + 0.5) / max(1, count - 1) - pi / 2 for at in range(count - 1)]
    x, y = size.width / 2, size.height / 2
    wide, high = size.ring
    return [(x, y), *((x + wide * cos(angle), y + high * sin(angle)) for angle in around)]


def _spread(
    count: int, shared: Mapping[tuple[int, int], int], size: Size
) -> list[tuple[float, float]]:
    """Return places in which what shares memories is close, and nothing lies upon another.

    Always the same for the same terms: they begin on a spiral, and push and pull from there.
    """
    at = [
        (26 * (n + 1) ** 0.5 * cos(n * 2.399963), 18 * (n + 1) ** 0.5 * sin(n * 2.399963))
        for n in range(count)
    ]
    degrees = Counter(each for pair in shared for each in pair)
    for turn in range(_TURNS):
        step = 14 * (1 - turn / _TURNS) + 0.5
        moved = [(-0.02 * x, -0.03 * y) for x, y in at]
        for a in range(count):
            for b in range(a + 1, count):
                # Labels are wide: what stands beside needs more room than what stands below.
                dx, dy = (at[a][0] - at[b][0]) / size.stretch, at[a][1] - at[b][1]
                far = max(hypot(dx, dy), 1.0)
                push = 2_400 / far**2
                if (a, b) in shared:
                    push -= 0.12 * far / max(degrees[a], degrees[b])
                right, down = dx / far * push * size.stretch, dy / far * push
                moved[a] = (moved[a][0] + right, moved[a][1] + down)
                moved[b] = (moved[b][0] - right, moved[b][1] - down)
        at = [
            (x + max(-step, min(step, mx)), y + max(-step, min(step, my)))
            for (x, y), (mx, my) in zip(at, moved, strict=True)
        ]
    wide = max((abs(x) for x, _ in at), default=1) or 1
    high = max((abs(y) for _, y in at), default=1) or 1
    middle = (size.width / 2, size.height / 2)
    room = (middle[0] - size.margin, middle[1] - 40)
    return [(middle[0] + x / wide * room[0], middle[1] + y / high * room[1]) for x, y in at]
