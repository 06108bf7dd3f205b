import asyncio
import gzip
import json
import os
import re
import signal
import sqlite3
import sys
import zipfile
from contextlib import closing
from pathlib import Path

import pytest
from tests.agent.conftest import Open
from tests.transfer._import import (
    assert_legal,
    document,
    everything,
    lines,
    places,
    said,
    take,
)

from orbiter.memory import AgentMemory
from orbiter.memory.agent.interface import session_of
from orbiter.memory.errors import TransferError
from orbiter.memory.model.items import MemoryItem, MemoryStatus
from orbiter.memory.model.trust import Trust, source_of, trust_of
from orbiter.memory.transfer import FORMATS, Limits, import_file, reader
from orbiter.memory.transfer.formats import registry
from orbiter.memory.transfer.formats.registry import EXPORTS, WRITTEN, format_named, label
from orbiter.memory.transfer.native import export_records


def _talk(path: Path, *texts: str) -> Path:
    roles = ("user", "assistant")
    return lines(path, [said(roles[n % 2], text) for n, text in enumerate(texts)])


@pytest.fixture
def simple(tmp_path: Path, open_memory: Open) -> AgentMemory:
    return open_memory(f"sqlite:///{tmp_path}/m.db")


async def test_one_file_imported_by_several_at_once_is_imported_once(
    any_local_url: str, open_memory: Open, who: str, tmp_path: Path
) -> None:
    memories = [open_memory(any_local_url)]
    memories += [
        memories[0] if any_local_url == "memory://" else open_memory(any_local_url)
        for _ in range(2)
    ]
    handles = [memory.scope(user_id=f"alice-{who}") for memory in memories]
    texts = [f"tea {n}" for n in range(40)]
    for version in (1, 2, 3):
        # The first message names the conversation; the others change.
        texts[1:] = [f"tea {n}, the {version}." for n in range(1, 40)]
        path = _talk(tmp_path / "tea.jsonl", *texts)

        reports = await asyncio.gather(*(import_file(handle, path) for handle in handles))

        items = await handles[0].chat(_session(await everything(handles[0]))).items()
        assert [item.content for item in items] == texts
        assert {item.version for item in items[1:]} == {version}
        stored = 40 if version == 1 else 39
        assert sum(report.stored + report.updated for report in reports) == stored
        assert sum(report.unchanged for report in reports) == 3 * 40 - stored


def _session(items: list[MemoryItem]) -> str:
    (session,) = {item.metadata.session_id for item in items}
    assert session is not None
    return session


async def test_a_file_is_imported_once_however_often(
    memory: AgentMemory, who: str, tmp_path: Path
) -> None:
    alice = memory.scope(user_id=f"alice-{who}")
    path = _talk(tmp_path / "tea.jsonl", "Which tea?", "Oolong.", "Why?")

    first = await take(memory, alice, path)
    again = await take(memory, alice, path)

    assert (first.format, first.found, first.stored, first.unchanged) == ("openai", 3, 3, 0)
    assert (again.found, again.stored, again.unchanged, again.skipped) == (3, 0, 3, 0)
    assert str(again) == "openai: 3 found, 0 stored, 3 unchanged"
    items = await everything(alice)
    assert [item.content for item in items] == ["Which tea?", "Oolong.", "Why?"]
    assert [item.version for item in items] == [1, 1, 1]
    assert {source_of(item) for item in items} == {"import:openai"}
    assert {trust_of(item) for item in items} == {Trust.IMPORT}
    await assert_legal(alice)


async def test_what_changed_in_the_file_is_updated_and_what_is_new_is_added(
    memory: AgentMemory, who: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = memory.scope(user_id=f"alice-{who}")
    await take(memory, alice, _talk(tmp_path / "tea.jsonl", "Which tea?", "Oolong."))
    before = await everything(alice)
    changed: list[str] = []

    async def note(_store: object, items: object) -> None:
        changed.extend(item.content for item in items)  # type: ignore[attr-defined]  # a list of items

    monkeypatch.setattr(session_of(alice).chats, "changed", note)
    path = _talk(tmp_path / "tea.jsonl", "Which tea?", "Sencha.", "Thanks.")
    report = await take(memory, alice, path)

    assert (report.stored, report.updated, report.unchanged) == (1, 1, 1)
    assert str(report) == "openai: 3 found, 1 stored, 1 updated, 1 unchanged"
    items = await everything(alice)
    assert [(item.content, item.version) for item in items] == [
        ("Which tea?", 1),
        ("Sencha.", 2),
        ("Thanks.", 1),
    ]
    assert changed == ["Sencha."]
    assert [item.created_at for item in items[:2]] == [item.created_at for item in before]
    assert items[1].updated_at > before[1].updated_at


async def test_what_its_owner_changed_or_forgot_is_left_alone(
    memory: AgentMemory, who: str, tmp_path: Path
) -> None:
    alice = memory.scope(user_id=f"alice-{who}")
    path = _talk(tmp_path / "tea.jsonl", "one", "two", "three")
    await take(memory, alice, path)
    one, two, three = await everything(alice)
    await alice.update(one.id, "one, as I see it")
    await alice.update(two.id, status=MemoryStatus.DISCARD)
    await alice.forget(three.id)

    report = await take(memory, alice, path)

    assert (report.stored, report.unchanged, report.skipped) == (0, 2, 1)
    assert report.forgotten == 1
    assert "1 were forgotten here and stay forgotten" in str(report)
    assert "`restore`" in str(report)
    assert [item.content for item in await everything(alice)] == ["one, as I see it", "two"]
    await take(memory, alice, _talk(path, "one", "2", "three"))
    assert [(item.content, item.status) for item in await everything(alice)] == [
        ("one, as I see it", MemoryStatus.ACCEPTED),
        ("2", MemoryStatus.DISCARD),
    ]


async def test_each_scope_has_its_own(simple: AgentMemory, tmp_path: Path) -> None:
    path = _talk(tmp_path / "tea.jsonl", "hello")
    alice, bob = simple.scope(user_id="alice"), simple.scope(user_id="bob")
    session = simple.scope(user_id="alice", session_id="here", agent_id="guide")

    for handle in (alice, bob, session):
        assert (await take(simple, handle, path)).stored == 1

    (own,) = await everything(session)
    assert (own.metadata.session_id, own.metadata.agent_id) == ("here", "guide")
    assert own.metadata.task_id is not None
    assert (await session.chat(own.metadata.task_id).items())[0].content == "hello"
    assert len(await everything(alice)) == 2
    assert len(await everything(bob)) == 1


async def test_two_files_of_one_name_do_not_overwrite_each_other(
    simple: AgentMemory, tmp_path: Path
) -> None:
    alice = simple.scope(user_id="alice")
    for name, text in (("a", "first"), ("b", "second")):
        (tmp_path / name).mkdir()
        await take(simple, alice, _talk(tmp_path / name / "chat.jsonl", text))

    assert {item.content for item in await everything(alice)} == {"first", "second"}


async def test_a_folder_may_hold_files_of_many_formats(simple: AgentMemory, tmp_path: Path) -> None:
    alice = simple.scope(user_id="alice")
    folder = tmp_path / "all"
    folder.mkdir()
    _talk(folder / "chat.jsonl", "from a chat")
    packed = lines(folder / "more", [{"messages": [said("user", "from a packed file")]}])
    (folder / "more.jsonl.gz").write_bytes(gzip.compress(packed.read_bytes()))
    packed.unlink()
    (folder / "note.md").write_text("# Tea\n\nfrom a note\n")
    for name in ("photo.jpg", "song.mp3"):
        (folder / name).write_bytes(b"\xff\xd8\xff" * 5)
    (folder / "empty.json").write_text(" \n")
    (folder / "broken.gz").write_bytes(b"\x1f\x8b nothing")

    report = await take(simple, alice, folder)

    assert report.format == "openai, markdown"
    assert report.stored == 3
    assert [str(each) for each in report.problems] == [
        "`broken`: not read: `broken.gz` is damaged or cut off: Unknown compression method",
        "`empty.json`: not read: it is empty",
        "`photo.jpg`, `song.mp3`: not read: it is binary, or not UTF-8 text",
    ]
    assert (await take(simple, alice, folder)).stored == 0


async def test_a_zip_may_be_given_with_its_format(simple: AgentMemory, tmp_path: Path) -> None:
    alice = simple.scope(user_id="alice")
    path = tmp_path / "all.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a.jsonl", json.dumps(said("user", "inside")) + "\n{\n")

    report = await take(simple, alice, path, format="openai")

    assert report.stored == 1
    assert places(report) == ["a.jsonl, line 2"]


async def test_nothing_known_is_said_so(simple: AgentMemory, tmp_path: Path) -> None:
    alice = simple.scope(user_id="alice")
    path = document(tmp_path / "a.json", {"what": "ever"})
    (tmp_path / "empty.jsonl").touch()

    (tmp_path / "rows.dat").write_text("id,what\n1,tea\n2,cake\n")
    (tmp_path / "prose.txt").write_text("Tea, as it was.\nAnd cake.\n")
    (tmp_path / "photo.bin").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    (tmp_path / "folder").mkdir()
    with closing(sqlite3.connect(tmp_path / "threads.db")) as made:
        made.execute("CREATE TABLE checkpoints (thread_id)")
    with closing(sqlite3.connect(tmp_path / "saver.db")) as made:
        made.executescript("CREATE TABLE checkpoints (thread_id); CREATE TABLE writes (thread_id)")
    for name, what in {
        "a.json": "it is JSON with `what`",
        "empty.jsonl": "it is empty",
        "rows.dat": "it looks like a table with the columns `id`, `what`; .*`text=…`",
        "prose.txt": "it is plain text",
        "photo.bin": "it is binary",
        "folder": "it contains no files",
        "threads.db": "it is a SQLite file with the tables `checkpoints`",
        "saver.db": "it has checkpoints of LangGraph.*`copy_checkpoints`",
    }.items():
        with pytest.raises(TransferError, match=f"of an unknown format: {what}.*`mem0`"):
            await take(simple, alice, tmp_path / name)
    with pytest.raises(TransferError, match="there is no format `gpt`; use `auto`, or one of"):
        await take(simple, alice, path, format="gpt")
    with pytest.raises(TransferError, match="does not exist"):
        await take(simple, alice, tmp_path / "missing.json")


def test_every_format_goes_by_its_name_and_says_what_it_is() -> None:
    assert FORMATS[0] == "jsonl"
    assert [format_named(name).name for name in FORMATS[1:]] == list(FORMATS[1:])
    assert all(label(name) for name in FORMATS)
    assert all(each.title and each.label for each in EXPORTS.values())


@pytest.mark.parametrize("names", [FORMATS, WRITTEN])
def test_only_the_registry_lists_the_formats(names: tuple[str, ...]) -> None:
    root = Path(registry.__file__).parents[2]
    quoted = {f'"{name}"' for name in names[1:]}
    listing = [
        path.relative_to(root).as_posix()
        for kind in ("py", "html")
        for path in root.rglob(f"*.{kind}")
        if quoted <= set(re.findall(r'"[a-z0-9-]+"', path.read_text(encoding="utf-8")))
    ]

    assert listing == ["transfer/formats/registry.py"]


async def test_our_own_file_is_known(
    simple: AgentMemory, tmp_path: Path, open_memory: Open
) -> None:

    alice = simple.scope(user_id="alice")
    kept = await alice.remember("Alice likes tea")
    await alice.update(kept.id, "Alice likes green tea")
    store = await simple._core.opened(alice.scope)
    for name in ("ours.jsonl", "ours.jsonl.gz"):
        await export_records(store, tmp_path / name, metadata=alice.scope)
        other = open_memory(f"sqlite:///{tmp_path}/{name}.db")

        report = await take(other, other.scope(user_id="alice"), tmp_path / name)

        assert report.stored == 1
        assert len(await other.scope(user_id="alice").history(kept.id)) == 2


async def test_progress_ends_at_the_whole(simple: AgentMemory, tmp_path: Path) -> None:
    alice = simple.scope(user_id="alice")
    path = _talk(tmp_path / "tea.jsonl", *(f"{n}" * 50 for n in range(1_000)))
    told: list[tuple[int, int]] = []

    await take(simple, alice, path, progress=lambda *each: told.append(each))

    size = path.stat().st_size
    assert len(told) == 4
    assert told == sorted(told)
    assert told[-1] == (size, size)


async def test_listeners_hear_of_what_is_stored(simple: AgentMemory, tmp_path: Path) -> None:
    alice = simple.scope(user_id="alice")
    events = alice.events()

    await take(simple, alice, _talk(tmp_path / "tea.jsonl", "hello"))

    assert (await anext(events)).kind == "remembered"


async def test_what_is_stored_stays_when_the_file_turns_out_damaged(
    simple: AgentMemory, tmp_path: Path
) -> None:
    alice = simple.scope(user_id="alice")
    whole = _talk(tmp_path / "tea", *(f"{n} {os.urandom(400).hex()}" for n in range(900)))
    cut = tmp_path / "tea.jsonl.gz"
    cut.write_bytes(gzip.compress(whole.read_bytes())[:-50_000])

    with pytest.raises(TransferError, match="damaged or cut off"):
        await take(simple, alice, cut)

    before = len(await everything(alice))
    assert 0 < before < 900
    cut.write_bytes(gzip.compress(whole.read_bytes()))
    report = await take(simple, alice, cut)
    assert (report.stored, report.unchanged) == (900 - before, before)


async def test_a_cancelled_import_closes_its_file_and_can_go_on(
    simple: AgentMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_MAX_ITEMS", 10)
    alice = simple.scope(user_id="alice")
    path = _talk(tmp_path / "tea.jsonl", *(str(n) for n in range(200)))
    begun = asyncio.Event()
    task = asyncio.create_task(take(simple, alice, path, progress=lambda *_: begun.set()))
    await begun.wait()

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert len(await everything(alice)) < 200
    report = await take(simple, alice, path)
    assert report.stored + report.unchanged == 200
    assert [item.content for item in await everything(alice)] == [str(n) for n in range(200)]


_KILLED = """
import asyncio, os, signal, sys
from orbiter.memory import AgentMemory
from orbiter.memory.transfer import reader as _reading
from orbiter.memory.transfer.files import import_sent

_reading._MAX_ITEMS = 10
left = 3

def stop(done, total):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)

async def main():
    async with AgentMemory(sys.argv[1], embeddings=None, summaries=None) as memory:
        await import_sent(memory.scope(user_id="alice"), sys.argv[2], progress=stop)

asyncio.run(main())
"""


async def test_a_killed_import_goes_on_where_it_was(simple: AgentMemory, tmp_path: Path) -> None:
    path = _talk(tmp_path / "tea.jsonl", *(str(n) for n in range(100)))
    url = f"sqlite:///{tmp_path}/m.db"
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", _KILLED, url, str(path))
    assert await child.wait() == -signal.SIGKILL
    alice = simple.scope(user_id="alice")
    before = len(await everything(alice))
    assert 30 <= before < 100

    report = await take(simple, alice, path)

    assert (report.stored, report.unchanged) == (100 - before, before)
    items = await everything(alice)
    assert [item.content for item in items] == [str(n) for n in range(100)]
    assert {item.version for item in items} == {1}


# Whose memories


def _mem0(path: Path, *owners: str | None) -> Path:
    rows = [
        {"id": f"m{n}", "memory": f"{owner} likes tea", "hash": "x", "user_id": owner}
        for n, owner in enumerate(owners)
    ]
    return document(path, {"results": rows})


async def test_of_a_file_of_several_people_only_ones_own_is_taken(
    simple: AgentMemory, tmp_path: Path
) -> None:
    path = _mem0(tmp_path / "mem0.json", "bob", "alice", None)
    alice, eve = simple.scope(user_id="alice"), simple.scope(user_id="eve")

    report = await take(simple, alice, path)

    assert (report.found, report.stored, report.skipped) == (3, 2, 1)
    assert {i.content for i in await everything(alice)} == {"alice likes tea", "None likes tea"}
    assert str(report.problems[0]) == "`bob`: 1 memories of others than `alice` were not imported"
    assert (await take(simple, eve, path, owner="bob")).stored == 2
    assert {i.content for i in await everything(eve)} == {"bob likes tea", "None likes tea"}


async def test_a_file_of_others_alone_is_refused(simple: AgentMemory, tmp_path: Path) -> None:
    alice = simple.scope(user_id="alice")
    path = _mem0(tmp_path / "mem0.json", "user-17", "user-18")

    for owner in (None, "carol"):
        with pytest.raises(TransferError, match="only of `user-17`, `user-18`; choose whose"):
            await take(simple, alice, path, owner=owner)

    assert await everything(alice) == []


async def test_a_handle_for_nobody_takes_everyones_for_each(
    simple: AgentMemory, tmp_path: Path
) -> None:
    report = await take(simple, simple.unscoped(), _mem0(tmp_path / "mem0.json", "bob", "alice"))

    assert report.stored == 2
    for user in ("alice", "bob"):
        items = await everything(simple.scope(user_id=user))
        assert [item.content for item in items] == [f"{user} likes tea"]


async def test_limits_may_be_raised_and_lowered(simple: AgentMemory, tmp_path: Path) -> None:
    alice = simple.scope(user_id="alice")
    path = _talk(tmp_path / "tea.jsonl", "short", "x" * 500)

    report = await take(simple, alice, path, limits=Limits(value=200))

    assert (report.stored, places(report)) == (1, ["line 2"])
