"""Imports by a caller bound to a scope: ids and names in the file are not trusted.

What a server makes of that is in `tests/server/test_transfers.py`.
"""

import hashlib
import json
from pathlib import Path

from orbiter.memory import ScopedMemory, export_file
from orbiter.memory.transfer.files import import_sent
from orbiter.memory.transfer.untrusted_native import Sender


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
