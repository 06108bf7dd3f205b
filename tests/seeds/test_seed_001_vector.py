"""Seed 001, line by line: `Embeddings`, `OpenAIEmbeddings` and `VectorMemoryStore`."""

import asyncio
import inspect
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest
from tests.seeds._examples import printed_by

import orbiter.memory
from orbiter.memory import (
    AIMemory,
    HumanMemory,
    MemoryItem,
    MemoryMetadata,
    MemoryStatus,
    MemoryStore,
)
from orbiter.memory.backends.vector import Embeddings, OpenAIEmbeddings, VectorMemoryStore
from orbiter.memory.testing import HashEmbeddings

# The seed's example to the letter.
EXAMPLE = """\
import asyncio
from orbiter.memory.backends.vector import VectorMemoryStore, OpenAIEmbeddings
from orbiter.memory import HumanMemory, AIMemory

async def main():
    embeddings = OpenAIEmbeddings(api_key="sk-...")
    store = VectorMemoryStore(embeddings)

    await store.add(HumanMemory(content="I love hiking in the mountains"))
    await store.add(HumanMemory(content="Python is my favorite language"))
    await store.add(AIMemory(content="That's great! The outdoors are wonderful."))

    # Semantic search
    results = await store.search(query="outdoor activities", limit=2)
    for item in results:
        print(f"[{item.memory_type}] {item.content}")
    # Most relevant items about outdoors/hiking appear first

asyncio.run(main())
"""
OUTDOORS = {
    "[human] I love hiking in the mountains",
    "[ai] That's great! The outdoors are wonderful.",
}


class EmbeddingsAPI(BaseHTTPRequestHandler):
    """Stands in for the paid API: two topics, one number of the vector each."""

    requests: ClassVar[list[dict[str, Any]]]

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.requests.append({"path": self.path, "key": self.headers["Authorization"], **asked})
        texts = asked["input"] if isinstance(asked["input"], list) else [asked["input"]]
        found = [
            {"object": "embedding", "index": number, "embedding": self._vector(text)}
            for number, text in enumerate(texts)
        ]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        body = {"object": "list", "model": asked["model"], "data": found, "usage": usage}
        answer = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    @staticmethod
    def _vector(text: str) -> list[float]:
        words = text.casefold()
        outdoors = sum(topic in words for topic in ("hiking", "mountain", "outdoor"))
        return [float(outdoors), float("python" in words), 0.1, *[0.0] * 1533]

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    class Handler(EmbeddingsAPI):
        requests: ClassVar[list[dict[str, Any]]] = []

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.server_port}/v1")
        yield Handler.requests
        server.shutdown()


@pytest.mark.slow
def test_the_example_runs_and_finds_the_outdoors_first(api: list[dict[str, Any]]) -> None:
    printed = printed_by(EXAMPLE)

    assert set(printed) == OUTDOORS
    assert {request["path"] for request in api} == {"/v1/embeddings"}
    assert {request["model"] for request in api} == {"text-embedding-3-small"}
    assert {request["key"] for request in api} == {"Bearer sk-..."}
    assert len(api) == 4


@pytest.mark.slow
def test_the_example_finds_hiking_first_with_the_model_on_this_machine() -> None:
    offline = EXAMPLE.replace('OpenAIEmbeddings(api_key="sk-...")', "LocalEmbeddings()").replace(
        "import VectorMemoryStore, OpenAIEmbeddings",
        "import VectorMemoryStore\nfrom orbiter.memory import LocalEmbeddings",
    )
    assert "LocalEmbeddings()" in offline

    assert printed_by(offline) == [
        "[human] I love hiking in the mountains",
        "[ai] That's great! The outdoors are wonderful.",
    ]


@pytest.mark.slow
def test_the_module_can_be_imported_without_numpy_and_openai() -> None:
    program = """
import sys
sys.modules["numpy"] = sys.modules["openai"] = None
from orbiter.memory.backends.vector import Embeddings, OpenAIEmbeddings, VectorMemoryStore
from orbiter.memory.testing.fakes import HashEmbeddings
for make in (lambda: VectorMemoryStore(HashEmbeddings()), OpenAIEmbeddings):
    try:
        make()
    except ModuleNotFoundError as error:
        print(error)
"""
    assert printed_by(program) == [
        "VectorMemoryStore needs numpy: pip install 'orbiter-memory[vector]'",
        "OpenAIEmbeddings needs openai: pip install 'orbiter-memory[openai]'",
    ]


def test_importing_loads_neither_numpy_nor_openai() -> None:
    program = (
        "import sys; from orbiter.memory.backends.vector import *; "
        "print(sorted({'numpy', 'openai', 'usearch'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout == "[]\n", done.stderr


def test_the_package_exports_the_same_classes() -> None:
    assert orbiter.memory.VectorMemoryStore is VectorMemoryStore
    assert orbiter.memory.Embeddings is Embeddings


def test_embeddings_are_abstract_in_three_things() -> None:
    assert Embeddings.__abstractmethods__ == {"embed", "aembed", "dimension"}
    assert inspect.signature(Embeddings.embed).parameters.keys() == {"self", "text"}
    assert inspect.signature(Embeddings.embed).return_annotation == list[float]
    assert inspect.iscoroutinefunction(Embeddings.aembed)
    assert inspect.signature(Embeddings.aembed).return_annotation == list[float]
    assert isinstance(inspect.getattr_static(Embeddings, "dimension"), property)
    with pytest.raises(TypeError):
        Embeddings()  # type: ignore[abstract]  # the mistake under test


@pytest.mark.slow
def test_openai_embeddings_take_what_the_seed_says() -> None:
    parameters = inspect.signature(OpenAIEmbeddings).parameters
    seeds = {
        "model": "text-embedding-3-small",
        "dimension": 1536,
        "api_key": None,
        "base_url": None,
    }

    assert {name: parameters[name].default for name in seeds} == seeds
    assert {each.kind for each in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert issubclass(OpenAIEmbeddings, Embeddings)
    assert OpenAIEmbeddings(api_key="sk-...").dimension == 1536


def test_the_constructor_takes_embeddings() -> None:
    first, *more = inspect.signature(VectorMemoryStore).parameters.values()

    assert (first.name, first.default) == ("embeddings", inspect.Parameter.empty)
    assert first.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert first.annotation is Embeddings
    assert {each.kind for each in more} <= {inspect.Parameter.KEYWORD_ONLY}
    assert all(each.default is not inspect.Parameter.empty for each in more)


@pytest.mark.parametrize(
    ("method", "defaults", "returns"),
    [
        ("add", {"item": inspect.Parameter.empty}, None),
        ("get", {"item_id": inspect.Parameter.empty}, MemoryItem | None),
        (
            "search",
            {"query": "", "metadata": None, "memory_type": None, "status": None, "limit": 10},
            list[MemoryItem],
        ),
        ("clear", {"metadata": None}, int),
    ],
)
def test_the_methods_take_what_the_seed_says(
    method: str, defaults: dict[str, object], returns: object
) -> None:
    signature = inspect.signature(getattr(VectorMemoryStore, method))
    parameters = dict(list(signature.parameters.items())[1:])

    assert inspect.iscoroutinefunction(getattr(VectorMemoryStore, method))
    assert {name: parameters[name].default for name in defaults} == defaults
    assert list(parameters)[: len(defaults)] == list(defaults)
    assert signature.return_annotation == returns
    if method in {"search", "clear"}:
        assert {each.kind for each in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}


async def test_properties_length_and_repr() -> None:
    embeddings = HashEmbeddings(1536)
    store = VectorMemoryStore(embeddings)
    assert isinstance(store, MemoryStore)
    assert store.embeddings is embeddings
    with pytest.raises(AttributeError):
        store.embeddings = HashEmbeddings()  # type: ignore[misc]  # the mistake under test
    assert repr(store) == "VectorMemoryStore(items=0, dimension=1536)"

    await asyncio.gather(*(store.add(HumanMemory(content=f"n{n}")) for n in range(10)))

    assert len(store) == 10
    assert repr(store) == "VectorMemoryStore(items=10, dimension=1536)"


async def test_without_a_query_the_newest_come_first() -> None:
    store = VectorMemoryStore(HashEmbeddings())
    for text in ("one", "two", "three"):
        await store.add(HumanMemory(content=text))

    assert [item.content for item in await store.search(limit=2)] == ["three", "two"]


async def test_filters_are_applied_before_ranking() -> None:
    store = VectorMemoryStore(HashEmbeddings())
    ann = MemoryMetadata(user_id="ann")
    for _ in range(5):
        await store.add(AIMemory(content="apples", metadata=ann))
        await store.add(HumanMemory(content="apples", metadata=ann, status=MemoryStatus.DRAFT))
        await store.add(HumanMemory(content="apples"))
    await store.add(HumanMemory(content="pears and apples", metadata=ann))

    found = await store.search(
        query="apples",
        metadata=ann,
        memory_type="human",
        status=MemoryStatus.ACCEPTED,
        limit=1,
    )

    assert [item.content for item in found] == ["pears and apples"]
