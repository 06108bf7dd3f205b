"""Our own file for another user, or by a caller bound to a scope, whose ids are not trusted.

What a server makes of that is in `tests/server/test_transfers.py`.
"""

import hashlib
import json
from pathlib import Path

import pytest

from orbiter.memory import AgentMemory, ScopedMemory, export_file, import_file
from orbiter.memory.errors import AccessError, TransferError
from orbiter.memory.transfer.files import import_sent
from orbiter.memory.transfer.native_rewrite import Sender


async def test_the_ids_of_another_scope_become_ones_of_this(
    any_local_alice: ScopedMemory, any_local_bob: ScopedMemory, tmp_path: Path
) -> None:
    alice, bob = any_local_alice, any_local_bob
    hers = [await alice.remember("hers"), await alice.remember("once", idempotency_key="k")]
    await export_file(alice, tmp_path / "hers.jsonl")
    text = (tmp_path / "hers.jsonl").read_text()
    theirs = text.replace(str(alice.scope.user_id), str(bob.scope.user_id))
    *lines, _ = theirs.splitlines(keepends=True)
    (tmp_path / "forged.jsonl").write_text(_ended(lines))
    sender = Sender("bob's key")

    first = await import_sent(bob, tmp_path / "forged.jsonl", sender=sender)
    again = await import_sent(bob, tmp_path / "forged.jsonl", sender=sender)

    assert (first.stored, again.stored, again.unchanged) == (2, 0, 2)
    found = await bob.list()
    assert {item.content for item in found} == {"hers", "once"}
    assert {item.id for item in found}.isdisjoint(item.id for item in hers)
    assert [await alice.get(item.id) for item in hers] == hers


def _ended(lines: list[str]) -> str:
    """Return lines as a whole file, with a digest that is right."""
    body = "".join(lines)
    digest = hashlib.sha256(body.encode()).hexdigest()
    end = {"end": {"records": len(lines) - 1, "sha256": digest}}
    return body + json.dumps(end, separators=(",", ":")) + "\n"


async def test_an_export_of_one_user_is_copied_for_another_only_by_naming_the_first(
    any_local_alice: ScopedMemory, any_local_bob: ScopedMemory, tmp_path: Path
) -> None:
    alice, bob = any_local_alice, any_local_bob
    hers, his = str(alice.scope.user_id), str(bob.scope.user_id)
    note = await alice.remember("tea", tags=["taste"], created_at="2020-01-02T03:04:05Z")
    await alice.update(note, "green tea")
    gone = await alice.remember("gone")
    await alice.forget(gone)
    fact = await alice.facts.put("city", "Oslo", valid_from="2020-01-01")
    await alice.facts.propose("drink", "tea", source=note)
    await alice.chat("work").add([{"role": "user", "content": "hello"}])
    path = tmp_path / "alice.jsonl"
    await export_file(alice, path)
    before = path.read_text().splitlines()[1:-1]

    with pytest.raises(AccessError, match=f'`owner="{hers}"` copies them'):
        await import_file(bob, path)
    assert await bob.list() == []
    done = await import_file(bob, path, owner=hers)
    again = await import_file(bob, path, owner=hers)

    assert (done.stored, again.stored, again.unchanged) == (len(before), 0, len(before))
    [copy] = await bob.list(where={"tags": "taste"})
    assert (copy.content, copy.version, copy.created_at) == ("green tea", 2, note.created_at)
    assert copy.id != note.id
    if '"versions"' in path.read_text():  # Redis keeps none
        assert [each.item.content for each in await bob.history(copy.id)] == ["tea", "green tea"]
        assert [each.content for each in await bob.list(forgotten=True)] == ["gone"]
    kept = await bob.facts.get("city")
    assert kept is not None
    assert (kept.value, kept.valid_from) == ("Oslo", fact.valid_from)
    assert [each.source_ids for each in await bob.facts.drafts()] == [[copy.id]]
    assert [each.content for each in await bob.chat("work").items()] == ["hello"]
    # Nothing of hers has changed, and nothing of his names her.
    await export_file(alice, tmp_path / "after.jsonl")
    await export_file(bob, tmp_path / "bob.jsonl")
    assert (tmp_path / "after.jsonl").read_text().splitlines()[1:-1] == before
    assert hers not in (tmp_path / "bob.jsonl").read_text()
    assert his in (tmp_path / "bob.jsonl").read_text()
    # What he changes stays his.
    await bob.update(copy.id, "no tea")
    assert (await import_file(bob, path, owner=hers)).skipped == 1
    assert [each.content for each in await alice.list(where={"tags": "taste"})] == ["green tea"]


async def test_a_copied_chat_keeps_its_summary_but_none_speaks_for_a_chat_that_was_there(
    tmp_path: Path,
) -> None:
    async with AgentMemory(":memory:", embeddings=None) as memory:
        alice, bob, carol = (memory.scope(name) for name in ("alice", "bob", "carol"))
        for number in range(6):
            await alice.chat("work").add([{"role": "user", "content": f"about ships {number}"}])
        summary = await alice.chat("work").summarize()
        await carol.chat("work").add([{"role": "user", "content": "my own words"}])
        await export_file(alice, tmp_path / "alice.jsonl")

        for handle in (bob, carol):
            await import_file(handle, tmp_path / "alice.jsonl", owner="alice")

        assert summary is not None
        assert await bob.chat("work").summary() == summary
        assert await carol.chat("work").summary() is None
        assert "my own words" in str(await carol.chat("work").messages(format="openai"))


async def test_of_a_file_of_everyone_only_the_named_owners_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl"
    async with AgentMemory(":memory:", embeddings=None) as memory:
        for name in ("alice", "carol"):
            await memory.scope(name).remember(f"{name}'s note")
            await memory.scope(name).kv.put(("theme",), "colour", name.encode())
        await export_file(memory.unscoped(), path)
        bob = memory.scope("bob")

        with pytest.raises(TransferError, match="no memories of `dave`, only of `alice`, `carol`"):
            await import_file(bob, path, owner="dave")
        done = await import_file(bob, path, owner="alice")

        assert (done.found, done.stored, done.skipped) == (4, 2, 2)
        assert [str(each) for each in done.problems] == [
            "`carol`: 2 memories of others than `alice` were not imported"
        ]
        assert [each.content for each in await bob.list()] == ["alice's note"]
        assert [each.value for each in await bob.kv.list()] == [b"alice"]
        assert [each.value for each in await memory.scope("alice").kv.list()] == [b"alice"]
        # Of one's own, ids stay; a scope that is narrower takes no more than its own.
        assert (await import_file(memory.scope("alice"), path, owner="alice")).unchanged == 2
        with pytest.raises(AccessError, match="belongs to no session"):
            await import_file(memory.scope("bob", session_id="s"), path, owner="alice")
