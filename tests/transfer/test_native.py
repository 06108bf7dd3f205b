"""Our own file holds everything, comes back exactly, and is refused when it is not whole."""

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.transfer._moving import everything, fill, lines

from orbiter.memory import HumanMemory, MemoryMetadata, SQLiteMemoryStore
from orbiter.memory.errors import AccessError, TransferError
from orbiter.memory.testing import HashEmbeddings
from orbiter.memory.transfer.native import export_records, import_records, is_native

ANN, BOB = MemoryMetadata(user_id="ann"), MemoryMetadata(user_id="bob")


async def small(path: Path) -> Path:
    """Return an export of three items."""
    async with SQLiteMemoryStore() as store:
        await store.add_many([HumanMemory(id=f"{n}", content="x", metadata=ANN) for n in range(3)])
        await store.delete("1")
        await export_records(store, path)
    return path


@pytest.mark.parametrize(("name", "count"), [("all.jsonl", 600), ("all.jsonl.gz", 60)])
async def test_what_is_exported_comes_back_exactly(tmp_path: Path, name: str, count: int) -> None:
    told: list[tuple[int, int]] = []
    async with SQLiteMemoryStore() as source, SQLiteMemoryStore() as target:
        await fill(source, count)

        out = await export_records(source, tmp_path / name, progress=lambda *n: told.append(n))
        found = await import_records(target, str(tmp_path / name))
        again = await import_records(target, tmp_path / name)

        assert await lines(target) == await lines(source)
        assert (out.records, out.path) == (count, tmp_path / name)
        assert out.versions == (await source.stats()).versions > 0
        assert (found.found, found.stored, found.unchanged) == (count, count, 0)
        assert (again.found, again.stored, again.unchanged) == (count, 0, count)
        assert told[-1] == (count, count)


async def test_the_first_line_says_what_the_file_is_and_the_last_that_it_is_whole(
    tmp_path: Path,
) -> None:
    async with SQLiteMemoryStore() as store:
        await store.add(HumanMemory(content="x", metadata=ANN))
        await store.add(HumanMemory(content="y", metadata=BOB))
        model, schema = HashEmbeddings(), (await store.stats()).schema
        out = await export_records(store, tmp_path / "a", metadata=ANN, embedding_model=model)

    text = (tmp_path / "a").read_bytes()
    first, *records, last = text.splitlines()
    header = json.loads(first)
    assert header.pop("written_at").endswith("+00:00")
    assert header.pop("written_by").startswith("orbiter-memory ")
    assert header == {
        "format": "orbiter-memory records",
        "format_version": 1,
        "schema_version": schema,
        "embedding_model": {"name": model.name, "dimension": model.dimension},
        "scope": {"user_id": "ann"},
    }
    assert json.loads(last) == {"end": {"records": 1, "sha256": out.digest}}
    assert [json.loads(line)["item"]["content"] for line in records] == ["x"]
    assert is_native(text[:64])
    assert not is_native(b'{"role": "user"}\n')
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


async def test_the_same_records_make_the_same_bytes_but_for_the_date(tmp_path: Path) -> None:
    async with SQLiteMemoryStore() as store:
        await fill(store, 50)
        for name in "ab":
            await export_records(store, tmp_path / name)

    a, b = ((tmp_path / name).read_bytes().splitlines()[1:-1] for name in "ab")
    assert a == b


async def test_nothing_is_overwritten_and_nothing_half_done_is_left(tmp_path: Path) -> None:
    path = await small(tmp_path / "a")
    before = path.read_bytes()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    async with SQLiteMemoryStore() as store:
        for name in ("a", "link"):
            with pytest.raises(TransferError, match="exists already"):
                await export_records(store, tmp_path / name)
    with pytest.raises(TransferError, match="not initialized"):  # the store is closed
        await export_records(store, tmp_path / "b")

    assert path.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "link"]


async def test_streams_are_written_and_read_as_they_are() -> None:
    stream = io.BytesIO()
    async with SQLiteMemoryStore() as source, SQLiteMemoryStore() as target:
        await fill(source, 30)
        await export_records(source, stream)
        stream.seek(0)
        await import_records(target, stream)

        assert await lines(target) == await lines(source)


def _without_end(text: bytes) -> bytes:
    return b"".join(text.splitlines(keepends=True)[:-1])


DAMAGE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda _: b"", "empty"),
    "cut in a line": (lambda text: text[:-200], "cut off in line 4"),
    "cut at a line's end": (_without_end, "cut off after line 4"),
    "a line is gone": (lambda t: t.replace(t.splitlines(keepends=True)[2], b""), "line 4: .*chang"),
    "a byte is another": (lambda text: text.replace(b'"x"', b'"y"', 1), "digest differs"),
    "no record": (lambda text: text.replace(b'"item"', b'"itom"', 1), "line 2: "),
    "more behind": (lambda text: text + b"{}\n", "line 6"),
    "another format": (lambda text: text.replace(b"orbiter-memory rec", b"other"), "not an export"),
    "a newer format": (
        lambda text: text.replace(b'"format_version":1', b'"format_version":3'),
        "knows 2; upgrade",
    ),
    "no text": (lambda text: b"\xff\xfe" + text, "not an export"),
    "deep": (lambda text: text.replace(b"{", b"[" * 10**5, 1), "not an export"),
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_file_that_is_not_whole_is_refused_before_anything_is_stored(
    tmp_path: Path, damage: str
) -> None:
    spoil, told = DAMAGE[damage]
    text = (await small(tmp_path / "a")).read_bytes()
    (tmp_path / "b").write_bytes(spoil(text))

    async with SQLiteMemoryStore() as store:
        with pytest.raises(TransferError, match=told):
            await import_records(store, tmp_path / "b")

        assert await store.count(include_deleted=True) == 0


async def test_a_packed_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    text = (await small(tmp_path / "a")).read_bytes()
    (tmp_path / "b.gz").write_bytes(gzip.compress(text)[:-20])

    async with SQLiteMemoryStore() as store:
        with pytest.raises(TransferError, match="cut off"):
            await import_records(store, tmp_path / "b.gz")
        with pytest.raises(TransferError, match="does not exist"):
            await import_records(store, tmp_path / "missing")

        assert await store.count() == 0


async def test_what_a_stream_held_before_the_damage_is_stored_and_may_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbiter.memory.transfer.native.PAGE", 2)
    text = (await small(tmp_path / "a")).read_bytes()
    async with SQLiteMemoryStore() as store:
        with pytest.raises(TransferError, match="line 4"):
            await import_records(store, io.BytesIO(text[:-200]))
        assert await store.count(include_deleted=True) == 2

        found = await import_records(store, io.BytesIO(text))

        assert (found.stored, found.unchanged) == (1, 2)
        assert len(await everything(store)) == 3


async def test_a_scope_takes_nothing_of_others_and_gives_nothing_of_them(tmp_path: Path) -> None:
    async with SQLiteMemoryStore() as source, SQLiteMemoryStore() as target:
        await source.add(HumanMemory(id="a", content="ann's", metadata=ANN))
        await source.add(HumanMemory(id="b", content="bob's", metadata=BOB))
        await export_records(source, tmp_path / "all")
        await export_records(source, tmp_path / "ann", metadata=ANN)

        with pytest.raises(AccessError, match=r"line 3: `b`"):
            await import_records(target, tmp_path / "all", scope=ANN)
        assert await target.count() == 0
        assert (await import_records(target, tmp_path / "ann", scope=ANN)).stored == 1

        await target.add(HumanMemory(id="a", content="bob has this id here", metadata=BOB))
        with pytest.raises(AccessError):
            await import_records(target, tmp_path / "ann", scope=ANN)
        assert [item.metadata.user_id for item in await target.search()] == ["bob"]
