"""The graph: names and rare words that memories share, to walk from one to the next."""

import random

import pytest
from tests.dashboard._visitor import Visitor
from tests.rows import each_row
from tests.server.conftest import Client, Served, new_key

from orbiter.memory import AgentMemory, MemoryItem, MemoryMetadata
from orbiter.memory.auth import KeyFile
from orbiter.memory.model.facts import FactMemory
from orbiter.memory.model.items import SCRIPTED
from orbiter.memory.server.dashboard import graph_page
from orbiter.memory.server.dashboard.graph_page import graph_of

TEXTS = (
    "We visit Mia in Lisbon by tram",
    "The tram in Lisbon was full",
    "Yesterday Mia bought a ukulele",
    "A ukulele needs new strings",
    "The weather is fine",
)


@pytest.fixture(autouse=True)
def nothing_kept() -> None:
    graph_page._graphs.clear()


def test_names_and_rare_words_are_what_two_memories_share() -> None:
    graph = graph_of([MemoryItem(content=text) for text in TEXTS])

    assert {term.label for term in graph.terms.values()} == {"Mia", "Lisbon", "tram", "ukulele"}
    assert {term.label for term in graph.terms.values() if term.is_name} == {"Mia", "Lisbon"}
    assert dict(graph.around("mia")) == {"lisbon": 1, "tram": 1, "ukulele": 1}
    assert graph.around("lisbon")[0] == ("tram", 2)


def test_many_memories_make_a_bounded_picture_that_is_always_the_same() -> None:
    words = [f"thing{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(200)]
    items = [
        MemoryItem(content=f"{words[n % 200]} {words[n * 7 % 200]} {words[n * 3 % 200]}")
        for n in range(800)
    ]
    graph = graph_of(items)

    nodes, edges = graph_page._picture(graph, None)

    assert len(nodes) == graph_page.WIDE.terms
    assert (nodes, edges) == graph_page._picture(graph_of(items), None)
    assert all(0 < node.x < 900 and 0 < node.y < 560 for node in nodes)
    assert len({(node.x, node.y) for node in nodes}) == len(nodes)


@each_row("size", [graph_page.WIDE, graph_page.NARROW], ids=["wide", "narrow"])
@each_row("seed", range(12))
def test_no_term_lies_upon_another_or_its_label(size: graph_page.Size, seed: int) -> None:
    dice = random.Random(seed)
    words = ["".join(dice.choices("aeiourstln", k=dice.randint(4, 11))) for _ in range(60)]
    texts = [" ".join(dice.sample(words, 2)) for _ in range(200)]

    nodes, _ = graph_page._picture(
        graph_of([MemoryItem(content=text) for text in texts]), None, size
    )

    boxes = [graph_page._box(node, size) for node in nodes]
    assert len(nodes) == size.terms
    for at, (left, top, right, bottom) in enumerate(boxes):
        assert min(left, top, size.width - right, size.height - bottom) >= 0
        for other in boxes[at + 1 :]:
            is_beside = right <= other[0] + 2 or other[2] <= left + 2
            assert is_beside or bottom <= other[1] + 2 or other[3] <= top + 2


@each_row("word", ["without", "instead", "during", "something", "usually"])
def test_a_word_of_grammar_is_no_thing(word: str) -> None:
    texts = (f"Tea {word} sugar for Mia", f"Mia walks {word} shoes", f"Bread {word} gluten")

    graph = graph_of([MemoryItem(content=text) for text in texts])

    assert [term.label for term in graph.terms.values()] == ["Mia"]


def test_a_common_word_joins_nothing() -> None:
    texts = (
        "Bob's team deploys on Tuesdays, as Bob says",
        "The team of Bob met on Tuesday",
        "Next Tuesday the team plays chess",
        "In March we met Bob for chess",
        "In March the weather was fine",
    )
    facts = [
        FactMemory(key="desk", value=value, content=f"desk: {value}")
        for value in ("standing", "oak")
    ]

    graph = graph_of([*(MemoryItem(content=text) for text in texts), *facts])

    assert {term.label for term in graph.terms.values()} == {"Bob", "chess"}
    assert dict(graph.around("bob")) == {"chess": 1}


@pytest.mark.parametrize("term", [None, "thingba"])
def test_a_narrow_picture_has_its_middle_in_the_middle_and_nothing_beyond_its_edges(
    term: str | None,
) -> None:
    words = [f"thing{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(40)]
    items = [
        MemoryItem(content=f"{words[n % 40]} {words[n * 7 % 40]} {words[n * 3 % 40]}")
        for n in range(200)
    ]
    graph, size = graph_of(items), graph_page.NARROW

    nodes, _ = graph_page._picture(graph, graph.terms[term] if term else None, size)

    xs, ys = [node.x for node in nodes], [node.y for node in nodes]
    assert 4 < len(nodes) <= size.terms
    assert (min(xs) + max(xs)) / 2 == pytest.approx(size.width / 2, abs=40)
    assert (min(ys) + max(ys)) / 2 == pytest.approx(size.height / 2, abs=60)
    assert all(30 < node.x < size.width - 30 and 20 < node.y < size.height - 30 for node in nodes)
    if term:
        assert (nodes[0].key, nodes[0].x, nodes[0].y) == (term, 180, 220)


async def test_one_walks_from_a_name_to_the_next(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    await memory.scope(user_id="ann").remember_many(list(TEXTS))
    visitor = Visitor(client(await served()))

    page = await visitor.look("/graph", term="MIA")

    assert "Mia and what it shares memories with" in page
    assert 'href="/graph?term=ukulele"' in page
    assert "Yesterday Mia bought a ukulele" in page
    assert "The weather is fine" not in page
    assert "No two memories share" in await visitor.look("/graph", term="nobody")


@pytest.mark.parametrize(("is_scripted", "names"), [(False, {"Mia", "ukulele"}), (True, set())])
def test_only_an_answer_of_a_model_shares_words(is_scripted: bool, names: set[str]) -> None:
    extra = {SCRIPTED: True} if is_scripted else {}
    answer = MemoryItem(content="So Mia plays a ukulele", metadata=MemoryMetadata(extra=extra))
    others = [MemoryItem(content=text) for text in ("One cat", "Two dogs", "Three birds")]

    graph = graph_of([answer, MemoryItem(content="Here Mia plays a ukulele"), *others])

    assert {term.label for term in graph.terms.values()} == names


async def test_an_answer_without_a_model_joins_nothing(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    ann = memory.scope(user_id="ann")
    await ann.remember("Mia plays the ukulele")
    visitor = Visitor(client(await served()))

    turn = await visitor.send("/ui/playground", {"user_id": "ann"}, message="What does she play?")

    assert "ukulele" in turn.text
    assert (await visitor.twin("/graph"))["terms"] == 0
    await ann.remember("The ukulele is new")
    assert (await visitor.twin("/graph"))["names"] == ["ukulele"]


async def test_a_word_goes_with_the_memories_that_have_it(
    memory: AgentMemory, served: Served, client: Client
) -> None:
    ann = memory.scope(user_id="ann")
    secret = await ann.remember("We hide the swordfish")
    await ann.remember("Nobody finds a swordfish")
    visitor = Visitor(client(await served()))
    assert "swordfish" in await visitor.look("/graph")

    await ann.forget(secret.id)

    assert "swordfish" not in await visitor.look("/graph")
    await memory.erase(user_id="ann")
    assert (await visitor.twin("/graph"))["terms"] == 0


async def test_a_key_of_a_user_walks_in_that_users_graph(
    memory: AgentMemory, served: Served, client: Client, keys: KeyFile
) -> None:
    await memory.scope(user_id="ann").remember_many(list(TEXTS))
    await memory.scope(user_id="ben").remember_many(["a red kite", "that kite flies"])
    url = await served(keys=keys)
    await Visitor(client(url, new_key(keys, "admin"))).look("/graph")
    ben = Visitor(client(url, new_key(keys, "read", "ben")))

    for asked in ({}, {"user_id": "ben"}, {"term": "mia"}):
        twin = await ben.twin("/graph", **asked)
        assert (twin["names"], twin["term"]) == (["kite"], None)
    assert (await ben.http.get("/graph.json?user_id=ann")).status_code == 403


async def test_hostile_words_are_text(memory: AgentMemory, served: Served, client: Client) -> None:
    bad = "x\u202eevil<script>alert(1)</script>"
    await memory.scope(user_id="ann").remember_many([f"one {bad}", f"two {bad}"])
    visitor = Visitor(client(await served()))

    page = await visitor.look("/graph") + await visitor.look("/graph", term=bad)

    assert "<script>alert" not in page
    assert "\u202e" not in page
