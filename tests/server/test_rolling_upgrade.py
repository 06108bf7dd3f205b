"""Two versions serve one store at once, as during a rolling upgrade: nothing is lost.

What differs between versions for a store is its schema, and all past schemas are in the migrations:
so a version is this code with one migration less, or with one that the next release may bring. The
older one runs while the newer one migrates under it. `ORBITER_TEST_RELEASE_BEFORE` names the Python
of an environment with the wheel of an earlier version: one test more has that as the older one.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from tests.servers.databases import PostgresServer, postgres_server
from tests.timing import HANG, until_blocking

__all__ = ["postgres_server"]

pytestmark = pytest.mark.slow

VERSION = """
import sys
from orbiter.memory.backends.postgres import schema
from orbiter.memory.backends.sqlite import migrations
from orbiter.memory.cli import main

step = int(sys.argv.pop(1))
script = (
    "ALTER TABLE memory_items ADD COLUMN of_the_next_release TEXT;"
    "CREATE TABLE memory_next (id TEXT);"
)
for module, more in ((migrations, script), (schema, lambda *_, **__: script)):
    known = module.MIGRATIONS
    module.MIGRATIONS = known[:step] if step < 0 else (*known, *[more] * step)
main()
"""
UPGRADES: dict[str, tuple[int | None, int]] = {
    "from the schema before": (-1, 0),
    "to the next schema": (0, 1),
}
RELEASE_BEFORE = os.environ.get("ORBITER_TEST_RELEASE_BEFORE")
if RELEASE_BEFORE:
    UPGRADES["from the release before"] = (None, 0)


@pytest.fixture(params=["sqlite", "postgres"])
def url(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_server: PostgresServer
) -> Iterator[str]:
    """Return the address of an empty store."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/a.db"
        return
    dsn = postgres_server.create_database()
    yield dsn
    postgres_server.drop_database(dsn)


def command(step: int | None, url: str) -> list[str]:
    """Return what serves a store by the version *step* migrations ahead, or by the release."""
    options = ["--url", url, "--port", "0", "--rate", "100000", "--no-mcp", "--no-dashboard"]
    version = [str(RELEASE_BEFORE), "-m", "orbiter.memory.cli"]
    if step is not None:
        version = [sys.executable, "-c", VERSION, str(step)]
    return [*version, "serve", "--json", *options]


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "ORBITER_MEMORY_MODEL": "none", "XDG_DATA_HOME": str(folder / "data")}


@contextmanager
def serving(step: int | None, url: str, folder: Path) -> Iterator[httpx.Client]:
    """Serve *url* by the version that is *step* migrations ahead, and end it in order."""
    with (folder / f"{step}.log").open("w") as log:
        process = subprocess.Popen(
            command(step, url),
            env=environment(folder),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, (folder / f"{step}.log").read_text()
        with httpx.Client(
            base_url=httpx.Response(200, text=line).json()["url"], timeout=HANG
        ) as client:
            yield client
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANG) == 0, (folder / f"{step}.log").read_text()
    finally:
        process.kill()
        process.communicate()


def remember(client: httpx.Client, text: str) -> str:
    answer = client.post(
        "/v1/memories",
        params={"user_id": "ann"},
        json={"what": text},
        headers={"Idempotency-Key": text},
    )
    assert answer.status_code in (200, 201), answer.text
    return text


def texts(client: httpx.Client) -> list[str]:
    query: dict[str, str | int] = {"user_id": "ann", "limit": 1000}
    items: list[str] = []
    while True:
        answer = client.get("/v1/memories", params=query)
        assert answer.status_code == 200, answer.text
        items += [item["content"] for item in answer.json()["items"]]
        if answer.json()["next"] is None:
            return items
        query["cursor"] = answer.json()["next"]


def recalled(client: httpx.Client, query: str) -> list[str]:
    answer = client.post("/v1/recall", params={"user_id": "ann"}, json={"query": query})
    assert answer.status_code == 200, answer.text
    return [hit["item"]["content"] for hit in answer.json()["hits"]]


@pytest.mark.parametrize("steps", UPGRADES.values(), ids=UPGRADES)
def test_two_versions_on_one_store_lose_nothing(
    steps: tuple[int | None, int], url: str, tmp_path: Path
) -> None:
    before, after = steps
    acknowledged: list[str] = []
    with ExitStack() as stack:
        new: httpx.Client | None = None
        with serving(before, url, tmp_path) as old, ThreadPoolExecutor(1) as thread:
            acknowledged += [remember(old, f"early bird {n}") for n in range(20)]
            changed = old.get("/v1/memories", params={"user_id": "ann"}).json()["items"][0]
            # The new version migrates while the old one is asked to write.
            starting = thread.submit(stack.enter_context, serving(after, url, tmp_path))
            while not starting.done():
                acknowledged.append(remember(old, f"meanwhile {len(acknowledged)}"))
            new = starting.result()
            for number in range(20):
                acknowledged += [
                    remember(client, f"{name} kingfisher {number}")
                    for client, name in ((old, "old"), (new, "new"))
                ]
            assert sorted(texts(old)) == sorted(texts(new)) == sorted(acknowledged)
            place = f"/v1/memories/{changed['id']}"
            for client, version in ((old, 1), (new, 2)):
                renamed = client.patch(
                    place,
                    params={"user_id": "ann"},
                    json={"content": f"renamed {version}"},
                    headers={"If-Match": f'"{version}"'},
                )
                assert renamed.status_code == 200, renamed.text
            acknowledged[acknowledged.index(changed["content"])] = "renamed 2"
            until_blocking(
                lambda: recalled(old, "new kingfisher"), "the new one's words in the old"
            )
        until_blocking(lambda: len(recalled(new, "old kingfisher")) > 1, "the old one's words")
        acknowledged.append(remember(new, "the old one is gone"))
        assert sorted(texts(new)) == sorted(acknowledged)
        history = new.get(f"{place}/history", params={"user_id": "ann"})
        assert history.status_code == 200, history.text
        verified = new.post("/v1/store/verify")
        assert (verified.status_code, verified.json()["problems"]) == (200, []), verified.text

    refused = subprocess.run(
        command(before, url),
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    assert refused.returncode != 0
    assert "this version of orbiter-memory knows" in refused.stderr
    assert "pip install -U orbiter-memory" in refused.stderr
