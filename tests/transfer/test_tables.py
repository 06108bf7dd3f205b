"""Tables of notes: CSV of spreadsheets and JSON objects, a memory to a row."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.rows import each_row
from tests.transfer._import import everything, lines, places, take

from orbiter.memory import AgentMemory
from orbiter.memory.errors import TransferError
from orbiter.memory.model.items import MemoryItem
from orbiter.memory.transfer import export_file, import_file
from orbiter.memory.transfer.formats.importer import Columns
from orbiter.memory.transfer.formats.spreadsheet_times import spreadsheet_time
from orbiter.memory.transfer.io.archives import Limits


@pytest.fixture
async def memory(tmp_path: Path) -> AgentMemory:
    return AgentMemory(tmp_path / "agent.db", embeddings=None)


def _csv(path: Path, text: str, *, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


async def test_a_row_is_a_memory_with_its_time_and_all_other_cells(
    tmp_path: Path, memory: AgentMemory
) -> None:
    path = _csv(
        tmp_path / "notes.csv",
        "Note,when,city,tags,importance,id\n"
        'likes tea,2026-01-31 09:30,Oslo,"food, drink",0.8,7\n'
        "likes cake,,,,,8\n",
    )
    async with memory:
        ann = memory.scope("ann")

        done = await take(memory, ann, path)

        tea, cake = sorted(await everything(ann), key=lambda item: item.content, reverse=True)
    assert (done.format, done.stored, done.problems) == ("csv", 2, ())
    assert (tea.content, tea.created_at) == ("likes tea", datetime(2026, 1, 31, 9, 30, tzinfo=UTC))
    extra = {name: value for name, value in tea.metadata.extra.items() if name != "imported"}
    assert extra.pop("trust") is not None
    assert extra == {
        "city": "Oslo", "tags": ["food", "drink"], "importance": 0.8, "original_id": "7",
        "source": "import:csv",
    }  # fmt: skip
    assert "city" not in cake.metadata.extra


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("\ufefftext;when\nlikes tea;2026-01-31\n", "utf-8"),
        ("text\twhen\r\nlikes tea\t2026-01-31\r\n", "utf-16"),
        ("sep=;\r\ntext;when\r\nlikes tea;31.01.2026\r\n", "utf-8"),
        ('"text", "when"\n"likes tea", "2026-01-31"\n', "utf-8"),
        ("\n\ntext|when\nlikes tea|2026-01-31\n|\n", "utf-8"),
        ("when,text\n31/01/2026,likes tea", "utf-8"),
        ("when;text;a, b, c, d\n2026-01-31;likes tea;\n", "utf-8"),
    ],
)
async def test_every_spreadsheet_is_understood(
    tmp_path: Path, memory: AgentMemory, text: str, encoding: str
) -> None:
    path = _csv(tmp_path / "notes.csv", text, encoding=encoding)
    async with memory:
        ann = memory.scope("ann")

        done = await take(memory, ann, path)

        (item,) = await everything(ann)
    assert done.problems == ()
    assert (item.content, f"{item.created_at:%Y-%m-%d}") == ("likes tea", "2026-01-31")


async def test_quoted_cells_keep_line_ends_quotes_and_separators(
    tmp_path: Path, memory: AgentMemory
) -> None:
    long = "x" * 200_000  # more than the module `csv` takes
    path = _csv(
        tmp_path / "notes.csv",
        f'text,city\n"first line\nsecond ""line"", with comma",Oslo\n5" pipe,Rome\n{long},Bonn\n,',
    )
    async with memory:
        ann = memory.scope("ann")

        done = await take(memory, ann, path)

        said = {item.content: item.metadata.extra["city"] for item in await everything(ann)}
    assert done.problems == ()
    assert said == {
        'first line\nsecond "line", with comma': "Oslo", '5" pipe': "Rome", long: "Bonn",
    }  # fmt: skip


async def test_what_is_no_memory_is_reported_by_its_line_and_the_rest_is_stored(
    tmp_path: Path, memory: AgentMemory
) -> None:
    path = _csv(
        tmp_path / "notes.csv",
        "text,when,importance\n"
        '"two\nlines",,\n'
        ",2026-01-01,\n"
        "I like tea, and cake,,\n"
        "dated,soon,\n"
        "weighed,,high\n",
    )
    async with memory:
        ann = memory.scope("ann")

        done = await take(memory, ann, path)
        again = await take(memory, ann, path)

        items = {item.content: item.metadata.extra for item in await everything(ann)}
    assert [str(each) for each in done.problems] == [
        "line 4: it has no text in `text`, so it is not stored",
        (
            "line 5: it has 4 cells, but the table 3 columns, so it is not stored; put text that "
            "contains the separator in quotes"
        ),
        "line 6: its `when` is not a valid time: 'soon'; it is stored, and dated now",
        "line 7: its `importance` is not a number from 0 to 1; kept as `csv_importance`",
    ]
    assert set(items) == {"two\nlines", "dated", "weighed"}
    assert items["dated"]["csv_when"] == "soon"
    assert (again.stored, again.updated, again.unchanged) == (0, 0, 3)


async def test_the_same_rows_twice_are_stored_once_and_a_changed_row_with_an_id_is_updated(
    tmp_path: Path, memory: AgentMemory
) -> None:
    async with memory:
        ann = memory.scope("ann")
        with_ids = _csv(tmp_path / "ids.csv", "id,text\n1,likes tea\n2,likes cake\n2,likes pie\n")
        await take(memory, ann, with_ids)
        _csv(with_ids, "id,text\n1,likes coffee\n2,likes cake\n2,likes pie\n")

        changed = await take(memory, ann, with_ids)
        elsewhere = await take(memory, ann, with_ids.rename(tmp_path / "other.csv"))

        assert {item.content for item in await everything(ann)} == {
            "likes coffee", "likes cake", "likes pie",
        }  # fmt: skip
    assert (changed.stored, changed.updated, changed.unchanged) == (0, 1, 2)
    assert (elsewhere.stored, elsewhere.updated) == (0, 0)


async def test_no_row_comes_to_another_user_than_it_names(
    tmp_path: Path, memory: AgentMemory
) -> None:
    table = "user_id,text\nann,likes tea\nbob,likes cake\n,of nobody\n"
    rows: list[object] = [
        {"text": "likes tea", "city": "Oslo"},
        {"text": "likes cake", "city": "Rome", "user_id": "bob"},
        {"text": "likes pie", "city": "Bonn", "user_id": "ann"},
    ]
    async with memory:
        ann, bob = memory.scope("ann"), memory.scope("bob")

        by_table = await take(memory, ann, _csv(tmp_path / "notes.csv", table))
        by_lines = await take(memory, ann, lines(tmp_path / "notes.jsonl", rows))

        assert {item.content for item in await everything(ann)} == {"likes tea", "likes pie"}
        assert await everything(bob) == []
        everyone = await take(memory, memory.unscoped(), tmp_path / "notes.csv")
        assert [item.content for item in await everything(bob)] == ["likes cake"]
        assert everyone.stored == 1
    assert (by_table.format, by_lines.format) == ("csv", "json")
    assert places(by_table) == ["line 4", "`bob`"]
    assert places(by_lines) == ["line 1", "`bob`"]
    assert "does not say whose it is in `user_id`" in by_table.problems[0].why


async def test_a_column_of_users_can_be_named_chosen_from_or_left_aside(
    tmp_path: Path, memory: AgentMemory
) -> None:
    path = _csv(tmp_path / "notes.csv", "who,user,text\nA1,x,likes tea\nB2,y,likes cake\n")
    plain = _csv(tmp_path / "plain.csv", "text,city\nlikes tea,Oslo\n")
    async with memory:
        ann, bob = memory.scope("ann"), memory.scope("bob")

        with pytest.raises(TransferError, match="no memories of `ann`, only of `x`, `y`"):
            await import_file(ann, path)
        with pytest.raises(TransferError, match="no column that says whose each row is"):
            await import_file(ann, plain, owner="A1")
        with pytest.raises(TransferError, match=r"does not say whose memories it has"):
            await import_file(memory.unscoped(), plain)
        await import_file(ann, path, user_column="who", owner="A1")
        await import_file(bob, path, user_column="")

        assert [item.content for item in await everything(ann)] == ["likes tea"]
        assert [item.metadata.extra["user"] for item in await everything(bob)] == ["x", "y"]


async def test_columns_are_named_and_a_wrong_name_says_which_there_are(
    tmp_path: Path, memory: AgentMemory
) -> None:
    path = _csv(tmp_path / "notes.csv", "topic;remark;day\ntea;likes it;1/2/2026\n")
    async with memory:
        ann = memory.scope("ann")
        with pytest.raises(TransferError, match=r"columns `topic`, `remark`, `day`.*`text=…`"):
            await import_file(ann, path)
        with pytest.raises(TransferError, match=r"no column `remarks`.*did you mean `remark`\?"):
            await import_file(ann, path, text="remarks")
        with pytest.raises(TransferError, match=r"such as `1/2/2026` in `day`.*`day_first=…`"):
            await import_file(ann, path, text="remark", at="day")
        assert await everything(ann) == []

        await import_file(ann, path, text="remark", at="day", day_first=True)

        (item,) = await everything(ann)
    assert (item.content, f"{item.created_at:%Y-%m-%d}") == ("likes it", "2026-02-01")
    assert item.metadata.extra["topic"] == "tea"


async def test_one_date_of_a_column_tells_how_all_are_written(
    tmp_path: Path, memory: AgentMemory
) -> None:
    path = _csv(tmp_path / "a.csv", "text,date\ntea,1/2/26 3:15 PM\ncake,1/31/26\n")
    mixed = _csv(tmp_path / "b.csv", "text,date\ntea,31/1/2026\ncake,1/31/2026\n")
    async with memory:
        ann = memory.scope("ann")

        await import_file(ann, path)

        times = {item.content: item.created_at for item in await everything(ann)}
        with pytest.raises(TransferError, match="`31/1/2026` and `1/31/2026`"):
            await import_file(ann, mixed)
    assert times["tea"] == datetime(2026, 1, 2, 15, 15, tzinfo=UTC)


@each_row(
    "cell",
    [
        "2026-02-01T00:00:00Z", "2026-02-01", "20260201", "2026/2/1", "1.2.2026", "1.2.26 0:00",
        "1-Feb-26", "1 February 2026", "Feb 1, 2026", "46054", "1769904000", "1769904000000",
        "2026-02-01T01:00:00+01:00", 1769904000, "2/1/2026 12:00 AM", "2026/2/1 0:00:00",
    ],
)  # fmt: skip
def test_a_time_is_read_as_people_and_spreadsheets_write_it(cell: object) -> None:
    assert spreadsheet_time(cell) == datetime(2026, 2, 1, tzinfo=UTC)


def test_a_clock_has_seconds_and_a_year_of_two_digits_is_near_today() -> None:
    assert spreadsheet_time("1.2.26 12:30:45 pm") == datetime(2026, 2, 1, 12, 30, 45, tzinfo=UTC)
    assert spreadsheet_time("1.2.71") == datetime(1971, 2, 1, tzinfo=UTC)


@each_row("cell", ["", "soon", "32.1.2026", "12", "1.2.2026 25:00", True, None])
def test_what_is_no_time_is_none(cell: object) -> None:
    assert spreadsheet_time(cell) is None


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'text,city\nlikes tea,Oslo\n"likes cake,Rome\n', "line 3: a cell begins with a quote"),
        (b"text,city\nlikes tea,K\xf6ln\nlikes cake,Rome\n", "line 2: it is not UTF-8.*CSV UTF-8"),
        (b"text,city,city\nlikes tea,Oslo,Rome\n", "two columns `city`"),
        (b"text,city\rlikes tea,Oslo\r", "old Macs"),
    ],
)
async def test_a_table_that_is_not_whole_is_refused_before_anything_is_stored(
    tmp_path: Path, memory: AgentMemory, content: bytes, why: str
) -> None:
    path = tmp_path / "notes.csv"
    path.write_bytes(content)
    async with memory:
        ann = memory.scope("ann")

        with pytest.raises(TransferError, match=why):
            await import_file(ann, path)

        assert await everything(ann) == []


async def test_objects_are_rows_in_lines_and_in_a_list(tmp_path: Path, memory: AgentMemory) -> None:
    rows: list[object] = [{"note": "likes tea", "stars": 5, "date": "2026-01-31"}, {"note": ""}, 7]
    listed = tmp_path / "notes.json"
    listed.write_text(json.dumps([{"remark": "likes pie", "more": {"a": [1]}}]))
    async with memory:
        ann = memory.scope("ann")

        done = await take(memory, ann, lines(tmp_path / "notes.jsonl", rows))
        more = await take(memory, ann, listed, columns=Columns(text="remark"))

        items = {item.content: item for item in await everything(ann)}
    assert (done.format, done.stored, places(done)) == ("json", 1, ["line 2", "line 3"])
    assert done.problems[1].why == "it is not a JSON object"
    assert items["likes tea"].metadata.extra["stars"] == 5
    assert f"{items['likes tea'].created_at:%Y-%m-%d}" == "2026-01-31"
    assert more.stored == 1
    assert items["likes pie"].metadata.extra["more"] == {"a": [1]}


async def test_a_table_of_ours_says_what_can_be_imported_again(
    tmp_path: Path, memory: AgentMemory
) -> None:
    async with memory:
        ann = memory.scope("ann")
        await ann.remember("=1+1 is two")
        await export_file(ann, tmp_path / "out.csv")

        with pytest.raises(TransferError, match=r'FILE.jsonl.*`text="content"`'):
            await import_file(ann, tmp_path / "out.csv")
        done = await import_file(ann, tmp_path / "out.csv", text="content")

        assert [item.content for item in await everything(ann)] == ["=1+1 is two"] * 2
    assert done.stored == 1


async def test_columns_of_what_has_none_are_refused(tmp_path: Path, memory: AgentMemory) -> None:
    talk = lines(tmp_path / "talk.jsonl", [{"messages": [{"role": "user", "content": "tea"}]}])
    async with memory:
        ann = memory.scope("ann")
        await export_file(ann, tmp_path / "out.jsonl")

        for path, format in ((talk, "openai"), (tmp_path / "out.jsonl", "auto")):
            with pytest.raises(TransferError, match="has no columns"):
                await import_file(ann, path, format=format, text="content")


async def test_tables_in_a_folder_are_read_and_one_that_cannot_be_is_named(
    tmp_path: Path, memory: AgentMemory
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    _csv(folder / "a.csv", "text\nlikes tea\n")
    _csv(folder / "b.csv", "remark\nlikes cake\n")
    (folder / "c.md").write_text("likes pie")
    async with memory:
        ann = memory.scope("ann")

        done = await take(memory, ann, folder)
        by_name = await take(memory, ann, folder, columns=Columns(text="remark"))

        assert {item.content for item in await everything(ann)} == {
            "likes tea", "likes cake", "likes pie",
        }  # fmt: skip
    assert (done.stored, places(done)) == (2, ["b.csv"])
    assert places(by_name) == ["a.csv", "`c.md`"]


@pytest.mark.parametrize(
    ("name", "content", "format"),
    [
        ("notes.tsv", "text\twhen\nlikes tea\t2026-01-31\n", "csv"),
        ("NOTES.TSV", "text\nlikes tea\n", "csv"),
        ("notes.txt", "id,text\n1,likes tea\n", "csv"),
        ("notes.md", "text,city\nlikes tea,Oslo\n", "markdown"),
        ("notes.json", '[{"text": "likes tea", "tags": ["food"]}]', "json"),
    ],
)
async def test_a_table_is_known_by_its_name_or_its_first_line(
    tmp_path: Path, memory: AgentMemory, name: str, content: str, format: str
) -> None:
    path = _csv(tmp_path / name, content)
    async with memory:
        ann = memory.scope("ann")

        done = await take(memory, ann, path)

        assert (done.format, done.stored) == (format, 1)


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("text.txt", b"note\nlikes tea\n", "it is plain text"),
        ("line.txt", b"text, and more of it", "it is plain text"),
        ("photo.csv", b"text,city\0\nlikes tea,Oslo\n", "it is binary"),
        ("state.json", b'[{"text": "tea", "state": {"a": 1}}]', "it is JSON with `text`"),
        ("log.jsonl", b'{"text": "tea", "type": "event"}\n', "it is JSON with `text`"),
        ("parts.json", b'[{"text": ["likes", "tea"]}]', "it is JSON with `text`"),
    ],
)
async def test_what_only_looks_like_a_table_of_notes_is_not_taken_for_one(
    tmp_path: Path, memory: AgentMemory, name: str, content: bytes, what: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    async with memory:
        ann = memory.scope("ann")

        with pytest.raises(TransferError, match=what):
            await import_file(ann, path)

        assert await everything(ann) == []


async def test_names_of_columns_may_be_missing_or_written_otherwise(
    tmp_path: Path, memory: AgentMemory
) -> None:
    unnamed = _csv(tmp_path / "a.csv", "Text,Created At,,\nlikes tea,2026-01-31,Oslo,Rome\n")
    named = _csv(tmp_path / "b.csv", 'Remark;a,b,c,d\nlikes cake;"1,2"\n')
    async with memory:
        ann = memory.scope("ann")

        await import_file(ann, unnamed)
        await import_file(ann, named, text="remark")

        items = {item.content: item for item in await everything(ann)}
    tea = items["likes tea"]
    assert f"{tea.created_at:%Y-%m-%d}" == "2026-01-31"
    assert (tea.metadata.extra["column 3"], tea.metadata.extra["column 4"]) == ("Oslo", "Rome")
    assert items["likes cake"].metadata.extra["a,b,c,d"] == "1,2"


async def test_cells_keep_what_they_mean(tmp_path: Path, memory: AgentMemory) -> None:
    long = "é" * MemoryItem.max_content_bytes
    path = _csv(
        tmp_path / "notes.csv",
        f'text;importance;date;created_at\nlikes tea;"0,8";;soon\n{long};;3/3/2026;\n',
    )
    async with memory:
        ann = memory.scope("ann")

        done = await take(memory, ann, path, columns=Columns(at="date"))

        items = {item.content[:9]: item for item in await everything(ann)}
    tea, cut = items["likes tea"], items["é" * 9]
    assert (tea.metadata.extra["importance"], tea.metadata.extra["csv_created_at"]) == (0.8, "soon")
    assert len(cut.content.encode()) == MemoryItem.max_content_bytes
    assert f"{cut.created_at:%Y-%m-%d}" == "2026-03-03"
    assert places(done) == ["line 3"]


async def test_dates_with_dots_begin_with_the_day_and_do_not_say_how_others_do(
    tmp_path: Path, memory: AgentMemory
) -> None:
    path = _csv(tmp_path / "a.csv", "text,date\ntea,1.2.2026\n")
    mixed = _csv(tmp_path / "b.csv", "text,date\ncake,31.1.2026\npie,1/31/2026\n")
    async with memory:
        ann = memory.scope("ann")

        await import_file(ann, path)
        await import_file(ann, mixed)

        days = {item.content: f"{item.created_at:%Y-%m-%d}" for item in await everything(ann)}
    assert days == {"tea": "2026-02-01", "cake": "2026-01-31", "pie": "2026-01-31"}


async def test_a_user_may_be_a_number_and_is_never_true_or_false(
    tmp_path: Path, memory: AgentMemory
) -> None:
    rows: list[object] = [
        {"text": "likes tea", "user": 7, "city": "Oslo"},
        {"text": "likes cake", "user": True},
    ]
    async with memory:
        seven, true = memory.scope("7"), memory.scope("True")

        done = await take(memory, seven, lines(tmp_path / "notes.jsonl", rows))
        with pytest.raises(TransferError, match="no memories of `True`, only of `7`"):
            await import_file(true, tmp_path / "notes.jsonl")

        assert [item.content for item in await everything(seven)] == ["likes tea"]
    assert places(done) == ["line 2"]


async def test_what_a_table_may_ask_of_a_process_has_bounds(
    tmp_path: Path, memory: AgentMemory
) -> None:
    names = ",".join(f"c{number}" for number in range(1_000))
    wide = _csv(tmp_path / "wide.csv", f"text,{names}\nlikes tea\n")
    fields: list[object] = [{"text": "tea", f"a{row}": 1, f"b{row}": 2} for row in range(500)]
    quote = _csv(tmp_path / "quote.csv", 'text,city\n"likes tea,Oslo\n' + "x,y\n" * 100 + '"\n')
    async with memory:
        ann = memory.scope("ann")

        with pytest.raises(TransferError, match="more than 1,000 columns"):
            await import_file(ann, wide)
        with pytest.raises(TransferError, match="more than 1,000 fields"):
            await import_file(ann, lines(tmp_path / "wide.jsonl", fields))
        with pytest.raises(TransferError, match="line 2: a cell begins with a quote that never"):
            await import_file(ann, quote, limits=Limits(value=100))

        assert await everything(ann) == []


async def test_a_folder_may_be_read_for_its_tables_alone(
    tmp_path: Path, memory: AgentMemory
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    _csv(folder / "a.csv", "text\nlikes tea\n")
    _csv(folder / "b.jsonl", '{"text": "likes cake"}\n')
    (folder / "c.md").write_text("likes pie")
    async with memory:
        ann = memory.scope("ann")

        done = await take(memory, ann, folder, format="csv")

        assert [item.content for item in await everything(ann)] == ["likes tea"]
    assert done.format == "csv"
