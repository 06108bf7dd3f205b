"""Memories in and out over the wire: streamed, held to the key's scope, leaving no file behind."""

import asyncio
import hashlib
import io
import json
import tempfile
import zipfile
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from tests.server.conftest import Client, Served, new_key, until
from tests.timing import HANG

from orbiter.memory import AgentMemory
from orbiter.memory.agent.inputs import derived_id
from orbiter.memory.auth import KeyFile, Role
from orbiter.memory.errors import StorageError
from orbiter.memory.model.derived import SummaryMemory
from orbiter.memory.model.facts import FactMemory
from orbiter.memory.model.items import MemoryItem, MemoryMetadata
from orbiter.memory.model.records import PastVersion, Record
from orbiter.memory.server.api import transfer_routes
from orbiter.memory.transfer import export_file, import_file

BOB = MemoryMetadata(user_id="bob")
BARE = {"with_mcp": False, "with_dashboard": False}


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of this test's temporary files, which is empty in the end."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def lines(answer: httpx.Response) -> list[dict[str, object]]:
    return [json.loads(line) for line in answer.text.splitlines()]


async def test_an_export_through_a_server_has_and_counts_entries(
    served: Served, memory: AgentMemory, tmp_path: Path
) -> None:
    await memory.scope(user_id="ann").kv.append(("threads", "t1"), [b"state"] * 3)
    url = await served(**BARE)

    async with AgentMemory(url) as remote:
        alone = await export_file(remote.scope(user_id="ann"), tmp_path / "alone.jsonl")
        await memory.scope(user_id="ann").remember("likes tea")
        both = await export_file(remote.scope(user_id="ann"), tmp_path / "both.jsonl")

    assert (alone.records, alone.entries) == (0, 3)
    assert (both.records, both.entries) == (1, 3)
    assert (tmp_path / "both.jsonl").read_text().count('"threads"') == 3


async def test_what_is_exported_comes_back_exactly_and_nothing_is_left_behind(
    served: Served, client: Client, memory: AgentMemory, temporary: Path
) -> None:
    http = client(await served(**BARE))
    ann = memory.scope(user_id="ann")
    item = await ann.remember("likes tea", tags=["taste"])
    await ann.update(item.id, "likes green tea")
    await memory.scope(user_id="bob").remember("not hers")

    out = await http.get("/v1/export", params={"user_id": "ann"})
    await ann.forget(everything=True)
    await memory.erase(user_id="ann")
    back = await http.post("/v1/import", params={"user_id": "ann"}, content=out.content)

    assert out.headers["content-disposition"].startswith('attachment; filename="memories-')
    assert "not hers" not in out.text
    assert lines(back)[-1]["report"]["stored"] == 1  # type: ignore[index]
    assert all(set(line) == {"read", "of"} for line in lines(back)[:-1])
    assert [each.content for each in await ann.list()] == ["likes green tea"]
    assert len(await ann.history(item.id)) == 2
    assert list(temporary.iterdir()) == []


async def test_a_key_for_one_user_copies_the_export_of_another(
    served: Served, client: Client, memory: AgentMemory, keys: KeyFile, tmp_path: Path
) -> None:
    ann, bob = memory.scope(user_id="ann"), memory.scope(user_id="bob")
    await memory.scope(user_id="ann", by="ann").remember("likes tea")
    await export_file(ann, tmp_path / "ann.jsonl")
    file = (tmp_path / "ann.jsonl").read_bytes()
    url = await served(keys=keys, **BARE)
    http = client(url, new_key(keys, user="bob"))

    refused = await http.post("/v1/import", content=file)
    copied = await http.post("/v1/import", params={"owner": "ann"}, content=file)
    async with AgentMemory(url, token=new_key(keys, "admin")) as admin:
        again = await import_file(admin.scope("bob"), tmp_path / "ann.jsonl", owner="ann")

    assert refused.status_code == 403
    assert '`owner="ann"` copies them' in refused.json()["detail"]
    assert lines(copied)[-1]["report"]["stored"] == 1  # type: ignore[index]
    assert (again.stored, again.found) == (0, 1)
    [item] = await bob.list()
    assert (item.content, item.metadata.user_id) == ("likes tea", "bob")
    assert (await bob.history(item.id))[0].by != "ann"
    assert len(await ann.list()) == 1


async def test_every_format_is_written(
    served: Served, client: Client, memory: AgentMemory, temporary: Path
) -> None:
    http = client(await served(**BARE))
    ann = memory.scope(user_id="ann")
    await ann.remember("likes tea")
    await ann.chat("c").add([{"role": "user", "content": "hello"}])

    found = {
        format: await http.get("/v1/export", params={"user_id": "ann", "format": format})
        for format in ("jsonl", "csv", "openai", "mcp", "markdown", "exe")
    }

    assert found.pop("exe").status_code == 422
    assert {each.status_code for each in found.values()} == {200}
    assert "likes tea" in found["csv"].text
    assert found["csv"].headers["x-orbiter-records"] == "2"
    names = zipfile.ZipFile(io.BytesIO(found["markdown"].content)).namelist()
    assert any(name.endswith(".md") for name in names)
    assert found["markdown"].headers["content-disposition"].endswith('.zip"')
    assert list(temporary.iterdir()) == []


async def test_a_file_goes_to_the_scope_of_the_key_whoever_it_names(
    served: Served, client: Client, memory: AgentMemory, keys: KeyFile
) -> None:
    await memory.scope(user_id="ann").remember("hers")
    http = client(await served(keys=keys, **BARE), new_key(keys, user="bob"))
    admin = client(str(http.base_url), new_key(keys, "admin"))
    out = await admin.get("/v1/export", params={"everyone": "true"})
    assert "hers" in out.text
    before = await memory.scope(user_id="ann").list()

    asked = {"user_id": "ann", "everyone": "true"}
    answer = await http.post("/v1/import", params=asked, content=out.content)
    other = await http.post(
        "/v1/import",
        params={**asked, "format": "mem0", "name": "../../ann.json"},
        content=json.dumps([{"id": "1", "memory": "from mem0", "user_id": "ann"}]).encode(),
    )

    assert {answer.status_code, other.status_code} <= {200, 403, 422}
    assert await memory.scope(user_id="ann").list() == before
    mine = {item.content for item in await memory.scope(user_id="bob").list()}
    assert mine <= {"hers", "from mem0"}


# Files of our own format from those who are held to a scope


def written(*records: Record) -> bytes:
    """Return a whole file of records, as anybody can make one."""
    lines = ['{"format":"orbiter-memory records","format_version":1}']
    body = "".join(f"{line}\n" for line in [*lines, *(each.to_line() for each in records)])
    end = {"records": len(records), "sha256": hashlib.sha256(body.encode()).hexdigest()}
    return body.encode() + json.dumps({"end": end}).encode() + b"\n"


def squat(item_id: str, **more: object) -> Record:
    """Return a record of bob's with an id that somebody chose."""
    return Record(MemoryItem(id=item_id, content="mine", metadata=BOB), **more)  # type: ignore[arg-type]


async def test_a_file_can_neither_find_nor_take_the_ids_of_others(
    served: Served, client: Client, memory: AgentMemory, keys: KeyFile
) -> None:
    ann, bob = memory.scope(user_id="ann"), memory.scope(user_id="bob")
    there = await ann.remember("allergic to nuts", idempotency_key="k")
    ordinary = await ann.remember("hers")
    free = derived_id(MemoryMetadata(user_id="ann"), "once", "order-42")
    chosen = [there.id, ordinary.id, free, "an-id-of-mine"]
    http = client(await served(keys=keys, **BARE), new_key(keys, user="bob"))

    answers = [await http.post("/v1/import", content=written(squat(each))) for each in chosen]
    again = await http.post("/v1/import", content=written(*map(squat, chosen[:3])))

    told = [(each.status_code, lines(each)[-1]["report"]["stored"]) for each in answers]  # type: ignore[index]
    assert told == [(200, 1)] * 4
    assert not any(each in answer.text for each in chosen for answer in answers)
    assert lines(again)[-1]["report"]["stored"] == 0  # type: ignore[index]
    mine = {item.id for item in await bob.list()}
    assert len(mine) == 4
    assert mine & set(chosen) == {"an-id-of-mine"}
    assert {item.content for item in await ann.list()} == {"allergic to nuts", "hers"}
    assert (await ann.remember("shipped", idempotency_key="order-42")).id == free

    # What is free by now was another's before: it stays what it became here.
    await memory.erase(user_id="ann")
    once_more = await http.post("/v1/import", content=written(squat(ordinary.id)))
    assert lines(once_more)[-1]["report"]["stored"] == 0  # type: ignore[index]


async def test_what_refers_to_something_of_a_file_goes_on_to_do_so(
    served: Served, client: Client, memory: AgentMemory, keys: KeyFile
) -> None:
    http = client(await served(keys=keys, **BARE), new_key(keys, user="ann"))
    ann = memory.scope(user_id="ann")
    said = await ann.chat("c").add("I moved to Rome", idempotency_key="m")
    await ann.chat("c").fork(said[0], chat_id="d")
    await ann.facts.put("city", "Rome", source=said)
    await ann.facts.put("city", "Roma", source=said)
    await http.post("/v1/memories", json={"what": "tea"}, headers={"Idempotency-Key": "t"})
    out = (await http.get("/v1/export")).content
    same = await http.post("/v1/import", content=out)
    await memory.erase(user_id="ann")

    back = await http.post("/v1/import", content=out)
    later = await http.post("/v1/import", content=out)

    count = len(out.splitlines()) - 2
    assert lines(same)[-1]["report"]["unchanged"] == count  # type: ignore[index]
    assert lines(back)[-1]["report"]["stored"] == count  # type: ignore[index]
    assert lines(later)[-1]["report"]["unchanged"] == count  # type: ignore[index]
    (message,) = await ann.chat("c").items()
    (copy,) = await ann.chat("d").items()
    fact = await ann.facts.get("city")
    assert message.id != said[0].id
    assert copy.metadata.extra["forked_from"] == message.id
    assert isinstance(fact, FactMemory)
    assert fact.source_ids == [message.id]
    assert await ann.get(message.id) is not None


async def test_the_summary_of_a_conversation_stays_its_summary(
    served: Served, client: Client, memory: AgentMemory, keys: KeyFile
) -> None:
    http = client(await served(keys=keys, **BARE), new_key(keys, user="bob"))
    own, hers = (MemoryMetadata(user_id=name, session_id="c") for name in ("bob", "ann"))
    made = [
        Record(SummaryMemory(id=derived_id(whose, "summary"), content="so far", metadata=own))
        for whose in (own, hers)
    ]

    await http.post("/v1/import", content=written(*made))

    found = {item.id for item in await memory.scope(user_id="bob").list(memory_type="summary")}
    assert derived_id(own, "summary") in found
    assert derived_id(hers, "summary") not in found


@pytest.mark.parametrize(
    ("role", "expected"),
    [("write", ["bob's key", "bob's key", "bob's key"]), ("admin", ["ann", "bob's key", "cleo"])],
)
async def test_a_file_signs_for_nobody_else(
    served: Served,
    client: Client,
    memory: AgentMemory,
    keys: KeyFile,
    role: Role,
    expected: list[str],
) -> None:
    _, key = keys.create(scope=BOB, role=role, name="bob's key")
    http = client(await served(keys=keys, **BARE), key)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    item = MemoryItem(id="x", content="third", metadata=BOB, created_at=at, version=3)
    past = [
        PastVersion(item.model_copy(update={"version": 1, "content": "first"}), False, at, "~undo"),
        PastVersion(item.model_copy(update={"version": 2, "content": "2nd"}), False, at, "cleo"),
    ]
    file = written(Record(item, versions=past, recorded_at=at, recorded_by="ann"))

    await http.post("/v1/import", content=file)
    again = await http.post("/v1/import", content=file)
    other = client(str(http.base_url), keys.create(scope=BOB, role=role, name="phone")[1])
    later = await other.post("/v1/import", content=file)
    out = (await other.get("/v1/export")).content
    own = await other.post("/v1/import", content=out)

    history = await memory.scope(user_id="bob").history("x")
    assert [each.by for each in history] == expected
    for answer in (again, later, own):  # what is here stays signed as it is
        assert lines(answer)[-1]["report"]["unchanged"] == 1  # type: ignore[index]


async def test_a_file_without_names_is_signed_and_one_of_an_administrator_comes_back_exactly(
    served: Served, client: Client, memory: AgentMemory, keys: KeyFile
) -> None:
    url = await served(keys=keys, **BARE)
    bob = keys.create(scope=BOB, role="write", name="bob's key")[1]
    everyones = client(url, new_key(keys, "admin"))

    await client(url, bob).post("/v1/import", content=written(squat("x")))
    before = (await everyones.get("/v1/export", params={"everyone": "true"})).text
    strange = squat("~of-nobody", recorded_at=datetime.now(UTC), recorded_by="~undo")
    await everyones.post("/v1/import", params={"user_id": "bob"}, content=written(strange))
    after = (await everyones.get("/v1/export", params={"everyone": "true"})).text

    assert [each.by for each in await memory.scope(user_id="bob").history("x")] == ["bob's key"]
    assert before.splitlines()[1] in after.splitlines()
    assert strange.to_line() in after.splitlines()


@pytest.mark.parametrize(
    ("content", "format"), [(b"", "auto"), (b"{", "jsonl"), (b"\x00\x01", "auto"), (b"{}", "what")]
)
async def test_what_is_no_file_is_refused_with_its_reason(
    served: Served, client: Client, temporary: Path, content: bytes, format: str
) -> None:
    http = client(await served(**BARE))

    asked = {"user_id": "ann", "format": format}
    answer = await http.post("/v1/import", params=asked, content=content)

    report = lines(answer)[-1] if answer.status_code == 200 else None
    assert answer.status_code == 422 or report["report"]["problem_count"]  # type: ignore[index]
    assert str(temporary) not in answer.text
    assert list(temporary.iterdir()) == []


async def test_an_import_may_be_larger_than_a_request_and_not_than_its_limit(
    served: Served, client: Client, memory: AgentMemory, temporary: Path
) -> None:
    http = client(await served(max_body=1_000, max_import=20_000, **BARE))
    ann = memory.scope(user_id="ann")
    await ann.remember("x" * 5_000)
    out = (await http.get("/v1/export", params={"user_id": "ann"})).content
    await memory.erase(user_id="ann")

    async def long() -> AsyncIterator[bytes]:
        for _ in range(10):
            yield out

    fits = await http.post("/v1/import", params={"user_id": "ann"}, content=out)
    cut = await http.post("/v1/import", params={"user_id": "ann"}, content=long())

    assert lines(fits)[-1]["report"]["stored"] == 1  # type: ignore[index]
    assert cut.status_code == 413
    assert list(temporary.iterdir()) == []


async def test_a_sender_or_reader_who_leaves_leaves_no_file(
    served: Served, client: Client, memory: AgentMemory, temporary: Path
) -> None:
    url = await served(**BARE)
    app = served.app  # type: ignore[attr-defined]
    await memory.scope(user_id="ann").remember_many(["x" * 100_000] * 20)
    sent = asyncio.Event()

    async def stuck() -> AsyncIterator[bytes]:
        yield b"x" * 10_000
        sent.set()
        await asyncio.Event().wait()

    async with httpx.AsyncClient(base_url=url, timeout=HANG) as http:
        sending = asyncio.create_task(
            http.post("/v1/import", params={"user_id": "ann"}, content=stuck())
        )
        await sent.wait()
        await until(lambda: list(temporary.iterdir()))
        (folder,) = temporary.iterdir()
        assert folder.stat().st_mode & 0o777 == 0o700
        assert {each.stat().st_mode & 0o777 for each in folder.iterdir()} <= {0o600}
        sending.cancel()
        async with http.stream("GET", "/v1/export", params={"user_id": "ann"}) as answer:
            assert answer.status_code == 200
            await anext(answer.aiter_raw())
    await until(
        lambda: (
            not list(temporary.iterdir()) and not app.state.orbiter.link.limits.counts["transfers"]
        )
    )


async def test_more_transfers_than_the_disk_is_to_hold_are_put_off(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    http = client(await served(**BARE))
    monkeypatch.setattr(transfer_routes, "_AT_ONCE", 0)

    answer = await http.get("/v1/export", params={"user_id": "ann"})

    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "5"


async def test_what_goes_wrong_in_the_middle_is_told_in_the_stream(
    served: Served, client: Client, memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def breaks(*_: object, progress: object, **__: object) -> None:
        progress(1, 2)  # type: ignore[operator]
        await asyncio.sleep(0.05)
        error = StorageError("the disk is full")
        error.add_note("400 from this file were stored")
        raise error

    monkeypatch.setattr(transfer_routes, "import_sent", breaks)
    url = await served(**BARE)
    http = client(url)

    answer = await http.post("/v1/import", params={"user_id": "ann"}, content=b"{}")
    async with AgentMemory(url) as remote:
        with pytest.raises(StorageError) as failed:
            await import_file(remote.scope("ann"), __file__)

    assert lines(answer)[0] == {"read": 1, "of": 2}
    assert lines(answer)[-1]["error"]["detail"] == "the disk is full"  # type: ignore[index]
    assert failed.value.__notes__ == ["400 from this file were stored"]


async def test_a_table_goes_through_a_server_with_its_columns_and_only_to_whom_it_names(
    served: Served, memory: AgentMemory, client: Client, tmp_path: Path
) -> None:
    path = tmp_path / "notes.csv"
    path.write_text("who,remark,day\nann,likes tea,1/2/2026\nbob,likes cake,1/2/2026\n")
    url = await served(**BARE)

    async with AgentMemory(url) as remote:
        done = await import_file(
            remote.scope("ann"), path, text="remark", at="day", user_column="who", day_first=True
        )
        await import_file(
            remote.scope("bob"), path, text="remark", at="day", user_column="who", day_first=False
        )
    wrong = await client(url).post("/v1/import?user_id=ann&day_first=maybe", content=b"text\ntea\n")

    (item,) = await memory.scope("ann").list()
    assert (item.content, f"{item.created_at:%Y-%m-%d}") == ("likes tea", "2026-02-01")
    (other,) = await memory.scope("bob").list()
    assert (other.content, f"{other.created_at:%Y-%m-%d}") == ("likes cake", "2026-01-02")
    assert (done.stored, done.skipped) == (1, 1)
    assert wrong.status_code == 422
