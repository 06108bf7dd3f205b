"""The check that refuses new vague names."""

import json
from pathlib import Path

import pytest
from benchmarks.names import count, main, vague_names


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/search.py").write_text("found = rows()\nprint(found)\n")
    (tmp_path / "names.json").write_text(json.dumps({"search.py": 2}))
    return tmp_path / "src"


def _check(source: Path, *arguments: str) -> int:
    return main([*arguments], source=source, listed=source.parent / "names.json")


def test_what_is_listed_passes(source: Path) -> None:
    assert _check(source) == 0


@pytest.mark.parametrize(
    "line",
    [
        "told = 1",
        "def _shown(): ...",
        "class Asked: ...",
        "for given in (): ...",
        "whose = 1",
        "anew = True",
        "_MOST = 3",
        "_MOST_ROWS = 3",
    ],
)
def test_a_planted_name_is_refused(
    source: Path, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with (source / "search.py").open("a") as file:
        file.write(f"{line}\n")

    assert _check(source) == 1
    assert "search.py: 3 vague names" in capsys.readouterr().out
    assert _check(source, "--update") == 1, "the list does not grow"


def test_a_planted_module_in_ing_is_refused(source: Path) -> None:
    (source / "looking.py").write_text("")

    assert _check(source) == 1


def test_the_list_follows_a_file_that_moved(source: Path) -> None:
    (source / "search.py").rename(source / "lookup.py")

    assert _check(source) == 1
    assert _check(source, "--update") == 0
    assert _check(source) == 0
    assert count(source) == {"lookup.py": 2}


@pytest.mark.parametrize(
    "code", ['x = "found"', '"""It was found."""', "# told", "hit.shown", "shown_at = 1", "unasked"]
)
def test_strings_comments_attributes_and_longer_words_are_not_names(code: str) -> None:
    assert vague_names(code) == 0
