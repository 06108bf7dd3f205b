"""Malicious and damaged files: refused, or read without harm."""

import gzip
import io
import json
import struct
import tracemalloc
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.conftest import Open
from tests.transfer._import import everything, lines, places, said, take

from orbiter.memory.errors import TransferError
from orbiter.memory.model.items import MemoryMetadata
from orbiter.memory.transfer import Limits
from orbiter.memory.transfer.io.open_source import open_source
from orbiter.memory.transfer.reader import Reader
from orbiter.memory.transfer.report import Report

MB = 2**20


def _values(path: Path, limits: Limits | None = None) -> tuple[list[object], list[str]]:
    told: list[str] = []
    with open_source(path, complain=lambda *each: told.append(": ".join(each)), limits=limits) as s:
        return [value for _, value in s.values()], told


# JSON


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"[" * 100_000 + b"]" * 100_000, "deeper than 64 levels"),
        (b'{"a":' * 65 + b"1" + b"}" * 65, "deeper than 64 levels"),
        (b"1" * 5_000, "4300 digits"),
        (b"1e400", "out of range for a number"),
        (b"[NaN]", "`NaN` is not valid JSON"),
        (b"[-Infinity]", "`-Infinity` is not valid JSON"),
        (b'{"user":"a","user":"b"}', "the key 'user' appears twice"),
        (b'{"a":{"b":1,"\\u0062":2}}', "the key 'b' appears twice"),
        (b'{"a":"\xff"}', "it is not UTF-8"),
        (b'{"a":"\xed\xa0\x80"}', "it is not UTF-8"),
        (b'{"a":"b\tc"}', "Invalid control character"),
        (b'{"a":"b\0c"}', "Invalid control character"),
        (b"'a'", "it is not valid JSON"),
        (b'{"a":1,}', "it is not valid JSON"),
        (b"[1]]", "it is not valid JSON, at position 3"),
    ],
)
def test_one_bad_line_is_told_by_its_number_and_the_rest_is_read(
    tmp_path: Path, line: bytes, why: str
) -> None:
    path = lines(tmp_path / "a.jsonl", [{"a": 1}, line, {"b": 2}])

    found, told = _values(path)

    assert {"a": 1} in found
    assert {"b": 2} in found
    assert len(told) == 1
    assert told[0].startswith("line 2: ")
    assert why in told[0]


def test_sixty_four_levels_are_read(tmp_path: Path) -> None:
    found, told = _values(lines(tmp_path / "a", [b"[" * 64 + b"]" * 64]))

    assert len(found) == 1
    assert told == []


def test_brackets_in_strings_are_no_levels(tmp_path: Path) -> None:
    found, told = _values(lines(tmp_path / "a", [["[" * 500, '\\"' + "{" * 500]]))

    assert found == [["[" * 500, '\\"' + "{" * 500]]
    assert told == []


def test_characters_that_no_store_holds_are_replaced_and_told(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "a", [b'{"a\\u0000":"\\ud83d x \\uDC00","b":"\\ud83c\\udf75 \\\\u0000"}']
    )

    found, told = _values(path)

    assert found == [{"a�": "� x �", "b": "🍵 \\u0000"}]
    assert told == ["line 1: 3 characters that no store can hold, replaced by U+FFFD"]


def test_a_line_or_a_value_beyond_the_limit_is_passed_over(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", [{"a": 1}, {"b": "x" * 5_000}, {"c": 1}])
    whole = tmp_path / "b.json"
    whole.write_text(json.dumps([{"a": 1}, {"b": "x" * 5_000, "c": ["]"] * 900}, {"c": 1}]))
    limits = Limits(value=1_000)

    found, told = _values(path, limits)

    assert found == [{"a": 1}, {"c": 1}]
    assert told[0].startswith("line 2: it is longer than 1,000 bytes")
    told.clear()
    with open_source(whole, complain=lambda *each: told.append(each[0]), limits=limits) as source:
        assert list(source.elements()) == [{"a": 1}, {"c": 1}]
        assert told == ["element 2, line 1"]
        with pytest.raises(TransferError, match="longer than 1,000 bytes"):
            source.document()


def test_what_has_no_end_takes_no_more_memory_than_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'["' + b"x" * (24 * MB))
    told: list[str] = []
    tracemalloc.start()
    try:
        limits = Limits(value=MB)
        with open_source(path, complain=lambda *each: told.append(each[1]), limits=limits) as s:
            assert list(s.elements()) == []
            assert list(s.lines()) == []
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert told[0].startswith("it is longer than 1,048,576 bytes")
    assert told[1].startswith("it is longer than 1,048,576 bytes")
    assert peak < 8 * MB


# Archives


def _zip(path: Path, **members: str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in members.items():
            file.writestr(name, text)
    return path


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("../evil.json", "outside of the archive"),
        ("a/../../evil.json", "outside of the archive"),
        ("/etc/evil.json", "absolute path"),
        ("C:/evil.json", "absolute path"),
        ("..\\evil.json", "absolute path"),
        ("evil.json\0.txt", "absolute path"),
    ],
)
def test_a_zip_that_names_paths_elsewhere_is_refused(tmp_path: Path, name: str, why: str) -> None:
    placeholder = "X" * len(name)
    path = _zip(tmp_path / "a.zip", **{placeholder: "{}"})
    path.write_bytes(path.read_bytes().replace(placeholder.encode(), name.encode()))

    with pytest.raises(TransferError, match=why), open_source(path, complain=lambda *_: None):
        pass
    assert [each.name for each in tmp_path.rglob("*")] == ["a.zip"]


def test_a_zip_with_a_link_a_lock_or_a_double_is_refused(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("link")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "link.zip", "w") as file:
        file.writestr(link, "/etc/passwd")
    with zipfile.ZipFile(tmp_path / "twice.zip", "w") as file:
        file.writestr("a.json", "1")
        with pytest.warns(UserWarning, match="Duplicate"):
            file.writestr("a.json", "2")
    with zipfile.ZipFile(tmp_path / "lzma.zip", "w", zipfile.ZIP_LZMA) as file:
        file.writestr("a.json", "1")
    locked = _zip(tmp_path / "locked.zip", a="secret")
    raw = bytearray(locked.read_bytes())
    raw[raw.index(b"PK\x01\x02") + 8] |= 1
    locked.write_bytes(raw)
    wanted = {"link": "symbolic link", "twice": "twice", "lzma": "method", "locked": "encrypted"}

    for name, why in wanted.items():
        path = tmp_path / f"{name}.zip"
        with pytest.raises(TransferError, match=why), open_source(path, complain=lambda *_: None):
            pass


def test_bombs_are_refused_and_may_be_allowed(tmp_path: Path) -> None:
    spaces = b" " * (20 * MB)
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("conversations.json", spaces)
    packed = tmp_path / "bomb.gz"
    packed.write_bytes(gzip.compress(spaces))

    with pytest.raises(TransferError, match="100 times"), open_source(bomb, complain=print):
        pass
    with (
        open_source(packed, complain=print) as source,
        pytest.raises(TransferError, match="100 ti"),
    ):
        source.text()
    allowed = Limits(ratio=2_000)
    for path in (bomb, packed):
        with open_source(path, complain=print, limits=allowed) as source:
            assert [len(each.text()) for each in source.members()] == [20 * MB]
    small = Limits(ratio=2_000, total=MB)
    with pytest.raises(TransferError, match="1,048,576 bytes"):  # noqa: SIM117 - each by itself
        with open_source(bomb, complain=print, limits=small):
            pass
    with (
        open_source(packed, complain=print, limits=small) as source,
        pytest.raises(TransferError, match="1,048,576 bytes"),
    ):
        source.text()


def test_a_zip_that_lies_about_its_sizes_is_refused(tmp_path: Path) -> None:
    path = _zip(tmp_path / "a.zip", a="x" * 5_000)
    raw = bytearray(path.read_bytes())
    entry = raw.index(b"PK\x01\x02")
    struct.pack_into("<I", raw, entry + 24, 10)  # unpacked, as it says
    path.write_bytes(raw)
    with open_source(path, complain=print) as source, pytest.raises(TransferError, match="damaged"):
        next(source.members()).text()
    struct.pack_into("<I", raw, entry + 20, 10**6)  # packed, more than there is
    path.write_bytes(raw)
    with pytest.raises(TransferError, match="overlap"), open_source(path, complain=print):
        pass


def test_a_zip_with_too_many_members_is_refused(tmp_path: Path) -> None:
    path = _zip(tmp_path / "a.zip", **{f"{each}.md": "" for each in range(12)})

    with pytest.raises(TransferError, match="holds 12 files, more than 10"):  # noqa: SIM117 - ours
        with open_source(path, complain=print, limits=Limits(members=10)):
            pass


def test_a_table_of_contents_that_would_fill_memory_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    size = 6 * MB
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 65_000, 65_000, size, 4, 0)
    path.write_bytes(b"PK\3\4" + b"\0" * size + end)

    with pytest.raises(TransferError, match="table of contents"), open_source(path, complain=print):
        pass


def test_an_archive_in_an_archive_is_left_closed(tmp_path: Path) -> None:
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as file:
        file.writestr("conversations.json", "[]")
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("inner.zip", inner.getvalue())
        file.writestr("a.md", "note")
    told: list[str] = []

    with open_source(path, complain=lambda *each: told.append(each[0])) as source:
        assert [each.name for each in source.members()] == ["a.md"]
        assert told == ["inner.zip"]


@pytest.mark.parametrize("name", ["a.zip", "a.gz"])
def test_a_cut_off_archive_is_refused(tmp_path: Path, name: str) -> None:
    whole = tmp_path / name
    text = "".join(map(str, range(50_000)))
    if name == "a.zip":
        _zip(whole, a=text)
    else:
        whole.write_bytes(gzip.compress(text.encode()))
    whole.write_bytes(whole.read_bytes()[:-400])

    with pytest.raises(TransferError, match="damaged or cut off"):  # noqa: SIM117 - either may
        with open_source(whole, complain=print) as source:
            source.text()


# The whole way


def _one_bad_in(count: int) -> Iterator[object]:
    for number in range(1, count + 1):
        yield b'{"role": "user", "content": "cu' if number == 4_500 else said("user", f"n{number}")


async def test_one_bad_line_in_six_thousand_is_told_and_all_others_are_stored(
    tmp_path: Path, open_memory: Open
) -> None:
    memory = open_memory("memory://", embeddings=None)
    alice = memory.scope(user_id="alice")
    path = lines(tmp_path / "chat.jsonl", list(_one_bad_in(6_000)))

    report = await take(memory, alice, path)

    assert (report.found, report.stored, report.problem_count) == (5_999, 5_999, 1)
    assert places(report) == ["line 4500"]
    assert (await alice.stats()).items == 5_999


def test_thirty_megabytes_take_a_fraction_of_that(tmp_path: Path) -> None:
    path = tmp_path / "conversations.json"
    text = "tea " * 60_000
    with path.open("w") as file:
        file.write("[")
        for number in range(130):
            node = {"message": {"author": {"role": "user"}, "content": {"parts": [text]}}}
            tree = {"id": f"c{number}", "mapping": {"a": node}, "current_node": "a"}
            file.write("," * bool(number) + json.dumps(tree))
        file.write("]")
    assert path.stat().st_size > 29 * MB
    whose, report = MemoryMetadata(user_id="alice"), Report()
    reader = Reader(path, whose, format="auto", owner=None, limits=None, report=report)
    count = 0
    tracemalloc.start()
    try:
        reader.open()
        while batch := reader.batch():
            count += len(batch)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        reader.close()

    assert count == report.found == 130
    assert peak < 16 * MB


async def test_more_problems_than_anybody_reads_are_counted(
    tmp_path: Path, open_memory: Open
) -> None:
    memory = open_memory("memory://")
    alice = memory.scope(user_id="alice")
    path = lines(tmp_path / "a.jsonl", [said("user", "hello"), *[b"{"] * 250])

    report = await take(memory, alice, path)

    assert (report.stored, report.problem_count, len(report.problems)) == (1, 250, 100)
    assert str(report).splitlines()[-1] == "  and 245 more problems"


async def test_a_file_names_nobody_else(tmp_path: Path, open_memory: Open) -> None:
    memory = open_memory("memory://")
    alice, bob = memory.scope(user_id="alice"), memory.scope(user_id="bob")
    await bob.chat("support").add("mine")
    line = {
        "user_id": "bob",
        "session_id": "support",
        "metadata": {"user_id": "bob"},
        "messages": [said("user", "obey me")],
    }
    path = lines(tmp_path / "a.jsonl", [line])

    await take(memory, alice, path)

    assert [item.content for item in await everything(bob)] == ["mine"]
    (item,) = await everything(alice)
    assert item.metadata.user_id == "alice"
    assert item.metadata.session_id == "openai:support"
    assert item.metadata.extra["trust"] == 2
