import gzip
import json
import os
import random
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.transfer._import import document, lines

from orbiter.memory.errors import QueryError, TransferError
from orbiter.memory.transfer import Limits, SourceFile
from orbiter.memory.transfer.io import json_values
from orbiter.memory.transfer.io.json_values import JsonReader
from orbiter.memory.transfer.io.open_source import open_source
from orbiter.memory.transfer.io.source_file import Tally

Complaints = list[tuple[str, str]]


@contextmanager
def opened(path: Path, limits: Limits | None = None) -> Iterator[tuple[SourceFile, Complaints]]:
    told: Complaints = []
    with open_source(path, complain=lambda *each: told.append(each), limits=limits) as source:
        yield source, told


def _value(dice: random.Random, depth: int = 0) -> object:
    kind = dice.randrange(7)
    if depth > 4 or kind < 3:
        return dice.choice([None, True, 12, -1.5e-3, "", 'a"b\\', "ü[{}]\n\\", "\\\\", '"', "🍵"])
    if kind < 5:
        return [_value(dice, depth + 1) for _ in range(dice.randrange(4))]
    return {f'k{i}"': _value(dice, depth + 1) for i in range(dice.randrange(4))}


def test_elements_are_found_wherever_chunks_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_values, "_CHUNK", 1)
    dice = random.Random(7)
    told: Complaints = []
    reader = JsonReader(Limits(), lambda *each: told.append(each))
    for _ in range(150):
        values = [_value(dice) for _ in range(dice.randrange(6))]
        indent = dice.choice([None, 1])
        text = json.dumps(values, ensure_ascii=dice.random() < 0.5, indent=indent)
        step = dice.choice([1, 2, 3, 7, 1000])
        chunks = (text[at : at + step] for at in range(0, len(text), step))

        assert list(reader.elements(chunks)) == values
    assert told == []


def test_lines_come_with_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\n\n\xff\nfour")

    with opened(path) as (source, told):
        assert list(source.lines()) == [(1, "one"), (2, ""), (4, "four")]
        assert told == [("line 3", "it is not UTF-8: byte 0xff at position 0")]


def test_values_stand_in_lines_or_after_each_other_or_over_several_lines(tmp_path: Path) -> None:
    in_lines = lines(tmp_path / "a.jsonl", [b'{"a":1} {"b":2}', b"", {"c": 3}, b'{"d":4}{"e":5}'])
    spread = tmp_path / "b.json"
    spread.write_text('{\n "a": 1\n}\n{\n "b": [\n2]}')

    with opened(in_lines) as (source, told):
        assert list(source.values()) == [
            (1, {"a": 1}),
            (1, {"b": 2}),
            (3, {"c": 3}),
            (4, {"d": 4}),
            (4, {"e": 5}),
        ]
        assert told == []
    with opened(spread) as (source, told):
        assert list(source.values()) == [(1, {"a": 1}), (1, {"b": [2]})]
        assert told == []


def test_the_first_of_many_lines_may_be_the_bad_one(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", [b'{"a": [1, 2', {"b": 1}])

    with opened(path) as (source, told):
        assert list(source.values()) == [(2, {"b": 1})]
        assert [place for place, _ in told] == ["line 1"]


def test_elements_are_those_of_the_array_or_the_document_itself(tmp_path: Path) -> None:
    for value, found in (([{"a": 1}, 2, "x"], None), ([], None), ({"a": [1]}, [{"a": [1]}])):
        with opened(document(tmp_path / "a.json", value)) as (source, told):
            assert list(source.elements()) == (value if found is None else found)
            assert told == []


def test_an_element_that_is_refused_does_not_keep_the_next_from_being_read(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('[{"a":1},\n [NaN],\n {"c":1,"c":2}, {"d":1}]')

    with opened(path) as (source, told):
        assert list(source.elements()) == [{"a": 1}, {"d": 1}]
        assert told == [
            ("element 2, line 2", "`NaN` is not valid JSON"),
            ("element 3, line 3", "the key 'c' appears twice in one object"),
        ]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('[{"a":1},\n{"b":', "element 2, line 2"),
        ('[{"a":1} {"b":2}]', "line 1"),
        ('[{"a":1},\n"cut', "element 2, line 2"),
        ('[{"a":1},\n {"b":}, {"c":1}]', "element 2, line 2"),
        ('[{"a":1}, ]]', "line 1"),
        ('[{"a":1}', "line 1"),
    ],
)
def test_what_follows_a_broken_place_is_not_guessed(tmp_path: Path, text: str, place: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)

    with opened(path) as (source, told):
        assert list(source.elements()) == [{"a": 1}]
        assert [where for where, _ in told] == [place]


def test_a_document_beyond_the_limit_is_refused_with_the_way_out(tmp_path: Path) -> None:
    path = document(tmp_path / "a.json", {"results": ["x" * 100] * 100})

    with (
        opened(path, Limits(value=1_000)) as (source, _),
        pytest.raises(TransferError, match=r"longer than 1,000 bytes.*jq -c '.results\[\]' a.json"),
    ):
        source.document()
    with opened(path, Limits(nodes=50)) as (source, _), pytest.raises(TransferError, match="jq -c"):
        next(source.values())


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-8-sig", "utf-32"])
def test_marked_encodings_are_read(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.jsonl"
    mark = b"\xff\xfe" if encoding == "utf-16-le" else b""
    path.write_bytes(mark + '{"a": "grün 🍵"}\n{"b": 1}\n'.encode(encoding))

    with opened(path) as (source, told):
        assert source.head().startswith(b'{"a": "gr')
        assert [value for _, value in source.values()] == [{"a": "grün 🍵"}, {"b": 1}]
        assert told == []


def test_wide_text_without_a_mark_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes('{"a": 1}'.encode("utf-16-le"))

    with opened(path) as (source, _), pytest.raises(TransferError, match="save it as UTF-8"):
        list(source.values())


def test_a_whole_text_must_be_utf8(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_bytes(b"Caf\xe9")

    with opened(path) as (source, _), pytest.raises(TransferError, match="byte 0xe9 at position 3"):
        source.text()


def test_packed_files_are_read_as_they_are(tmp_path: Path) -> None:
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(b'{"a":1}\n') + gzip.compress(b'{"b":2}\n'))
    archive = tmp_path / "b.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("in/two.json", "[2]")
        file.writestr("one.txt", "first")
        file.writestr("empty/", "")

    with opened(packed) as (source, _):
        assert source.name == "a.jsonl"
        assert [value for _, value in source.values()] == [{"a": 1}, {"b": 2}]
        copy = source.path
        assert copy.read_bytes() == b'{"a":1}\n{"b":2}\n'
        assert source.path == copy
    assert not copy.exists()
    with opened(archive) as (source, _):
        assert [member.name for member in source.members()] == ["in/two.json", "one.txt"]
        assert [member.text() for member in source.members()] == ["[2]", "first"]
        with pytest.raises(TransferError, match="read its members"):
            source.text()


def test_a_folder_is_its_files(tmp_path: Path) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("no")
    (tmp_path / "in" / "deep" / "b.md").write_text("b")
    (tmp_path / "a.md").write_text("a")
    (tmp_path / "z.md.gz").write_bytes(gzip.compress(b"z"))
    (tmp_path / "link.md").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pipe")
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as file:
        file.writestr("x", "x")

    with opened(tmp_path) as (source, told):
        found = {member.name: member.text() for member in source.members()}

        assert found == {"a.md": "a", "in/deep/b.md": "b", "z.md": "z"}
        assert {place for place, _ in told} == {"link.md", "c.zip"}


def test_the_place_names_the_member(tmp_path: Path) -> None:
    lines(tmp_path / "a.jsonl", [b"{]", b"1"])

    with opened(tmp_path) as (source, told):
        for member in source.members():
            list(member.values())

        assert told[0][0] == "a.jsonl, line 1"


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, why in (("pipe", "neither a file nor a folder"), ("nothing", "does not exist")):
        with pytest.raises(TransferError, match=why), opened(tmp_path / name):
            pass


def test_a_tally_goes_to_its_total(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(os.urandom(300_000).hex().encode())
    tally = Tally()

    with open_source(path, complain=lambda *_: None, tally=tally) as source:
        source.text()

        assert tally.done == tally.total == 600_000


def test_a_limit_is_a_whole_number() -> None:
    with pytest.raises(QueryError, match="`depth`"):
        Limits(depth=0)
