"""What each kind of key may do: `docs/security.md` has it as a table, and each row is tried."""

import asyncio
import json
import re
import shlex
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cli.conftest import Cli
from tests.server.conftest import Client, Served

from orbiter.memory import AgentMemory
from orbiter.memory.auth import KeyFile
from orbiter.memory.model.items import MemoryMetadata

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
SCOPES: tuple[dict[str, str], ...] = ({}, {"session_id": "s"}, {"agent_id": "a"})
READABLE = {
    "all": {0, 1, 2},
    "session `s`": {1},
    "agent `a`": {2},
    "nothing": set(),
    "refused": set(),
}


def _rows() -> list[list[str]]:
    section = PAGE.read_text().split("## What each kind of key may do")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


ROWS = _rows()


async def _read(http: httpx.AsyncClient, user: str) -> set[int]:
    """Return which memories of a user a key reads, whether it names the user or asks for all.

    What it lists it recalls, and has put into a context.
    """
    found: dict[str, set[int]] = {"list": set(), "recall": set(), "context": set()}
    for params in ({"user_id": user}, {"everyone": "true"}, {}):
        answers = {
            "list": await http.get("/v1/memories", params={**params, "limit": 100}),
            "recall": await http.post("/v1/recall", json={"query": user, "k": 99}, params=params),
            "context": await http.post("/v1/context", json={"task": user}, params=params),
        }
        for name, answer in answers.items():
            assert answer.status_code in (200, 403, 422), answer.text
            found[name] |= {int(each) for each in re.findall(rf"\b{user} (\d)\b", answer.text)}
            assert "extra" not in answer.text or answer.status_code == 200, answer.text
    assert found["recall"] == found["list"]
    assert found["context"] <= found["list"]
    return found["list"]


def _create(keys: KeyFile, folder: Path, options: str) -> str:
    """Make a key as the command does; one that names no user, as an earlier version did."""
    if options == "--session s":
        key, token = keys.create(scope=MemoryMetadata(user_id="x", session_id="s"), role="write")
        content = json.loads(keys.path.read_text())
        next(each for each in content["keys"] if each["id"] == key.id)["scope"].pop("user_id")
        keys.path.write_text(json.dumps(content))
        return token
    named = ["--name", "NAME", "--keys", str(keys.path)]
    cli = Cli(f"sqlite:///{folder}/agent.db")
    return str(cli.json("keys", "create", *shlex.split(options), *named)["key"])


@pytest.mark.parametrize("row", ROWS, ids=[row[0].strip("`") for row in ROWS])
async def test_a_key_may_do_what_the_table_says(
    row: list[str],
    memory: AgentMemory,
    served: Served,
    client: Client,
    keys: KeyFile,
    tmp_path: Path,
) -> None:
    options, of_alice, of_bob, writes, source, erases, is_admin = row
    for user in ("alice", "bob"):
        for number, scope in enumerate(SCOPES):
            await memory.scope(user, **scope).remember(f"{user} {number}")
    url = await served(keys=keys, with_dashboard=False, with_mcp=False)
    http = client(url, await asyncio.to_thread(_create, keys, tmp_path, options.strip("`")))
    status = {"yes": 201, "no": 403, "refused": 403}[writes]

    assert await _read(http, "alice") == READABLE[of_alice]
    assert await _read(http, "bob") == READABLE[of_bob]
    for user, reads in (("alice", of_alice), ("bob", of_bob)):
        may = status if reads not in ("nothing", "refused") else 403
        await _check_writes(http, memory, user, may, source.strip("`"))
    erased = await http.post("/v1/erase", json={"user_id": "alice", "dry_run": True})
    assert erased.status_code == (200 if erases == "yes" else 403), erased.text
    for path in ("/metrics", "/v1/users", "/v1/store/stats"):
        assert (await http.get(path)).status_code == (200 if is_admin == "yes" else 403)


async def _check_writes(
    http: httpx.AsyncClient, memory: AgentMemory, user: str, status: int, source: str
) -> None:
    """Try all that puts words into the memories of a user; see whose they are said to be."""
    claims = {"source": "user"}
    item = {"memory_type": "human", "content": "x", "metadata": {"extra": {**claims, "trust": 5}}}
    before = {each.id for each in await memory.scope(user).list(limit=500)}
    calls: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("POST", "memories", {"what": "one"}),
        ("POST", "memories", {"what": "two", **claims}),
        ("POST", "memories", {"what": item}),
        ("POST", "memories/batch", {"things": ["three", item], **claims}),
        ("POST", "chats/c/messages", {"what": {"role": "user", "content": "four"}}),
        ("PUT", "facts/home", {"value": "five", **claims}),
    )
    for verb, path, body in calls:
        answer = await http.request(verb, f"/v1/{path}", json=body, params={"user_id": user})
        assert answer.status_code in ({201, 200} if status == 201 else {403}), (path, answer.text)
    made = [each for each in await memory.scope(user).list(limit=500) if each.id not in before]
    assert bool(made) == (status == 201)
    told = {str(each.metadata.extra.get("source", "user")) for each in made}
    assert told == ({source} if made else set())
    if not made or source == "user":
        return
    theirs = next(each for each in await memory.scope(user).list(limit=500) if each.id in before)
    mine = await http.patch(
        f"/v1/memories/{made[0].id}",
        json={"content": "six", "source": "user"},
        params={"user_id": user},
    )
    assert mine.status_code == 200 or "fact" in mine.text
    rewritten = await http.patch(
        f"/v1/memories/{theirs.id}", json={"content": "seven"}, params={"user_id": user}
    )
    if rewritten.status_code == 200:  # what is in its scope
        assert rewritten.json()["metadata"]["extra"]["source"] == source
    tagged = await http.patch(
        f"/v1/memories/{made[0].id}", json={"source": "user"}, params={"user_id": user}
    )
    assert tagged.status_code != 200 or tagged.json()["metadata"]["extra"]["source"] == source
    imported = await http.post("/v1/import", content=b"{}", params={"user_id": user})
    assert imported.status_code == 403


def test_the_command_makes_no_key_that_names_no_user(tmp_path: Path) -> None:
    cli, at = Cli(f"sqlite:///{tmp_path}/agent.db"), ("--keys", str(tmp_path / "k.json"))

    for options in ("--session s", "--agent a --role admin", "--all-users", "--all-users --user u"):
        made = cli("keys", "create", *shlex.split(options), *at)
        assert made.exit_code == 2, made.output
    cli.ok("keys", "create", "--all-users", "--role", "admin", *at)

    assert [each.scope for each in KeyFile(tmp_path / "k.json").list()] == [MemoryMetadata()]
