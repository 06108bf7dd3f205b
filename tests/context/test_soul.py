import subprocess
import sys
from pathlib import Path

import pytest
from tests.rows import each_row

from orbiter.memory import Soul
from orbiter.memory.errors import MemoryError, SoulError

WHOLE = """---
name: Nova
voice: warm, curious
rules:
  - Never post twice about one thing.
  - |
    Say so
    when unsure.
platforms: {x: short and loud, discord: }
mood: [calm, 7]
---

# About you

You love {space} and 100% of the stars.
"""


def test_front_matter_and_body_become_clean_markdown() -> None:
    soul = Soul.parse(WHOLE)

    assert soul.render() == (
        "You are Nova.\n\nVoice: warm, curious\n\n"
        "Rules:\n- Never post twice about one thing.\n- Say so\n  when unsure.\n\n"
        "Platforms:\n- x: short and loud\n- discord\n\n"
        "Mood:\n- calm\n- 7\n\n"
        "# About you\n\nYou love {space} and 100% of the stars."
    )


def test_unknown_keys_are_kept_and_shown_as_sections() -> None:
    soul = Soul.parse(WHOLE)

    assert soul.extra == {"mood": ["calm", 7]}
    assert "\n\nMood:\n- calm\n- 7\n\n# About you" in soul.render()


@each_row(
    ("yaml", "shown"),
    [
        ("hard_rules: [Never lie., Never sell.]", "Hard rules:\n- Never lie.\n- Never sell."),
        ("disclosure_policy: Say that you are a machine.", None),
        ("disclosure_policy: |\n  Say so.\n  Always.", "Disclosure policy: Say so.\n  Always."),
        ("limits: {posts per day: 3, ads: no}", "Limits:\n- posts per day: 3\n- ads: no"),
        ("born: 2024-03-01", "Born: 2024-03-01"),
        ("score: 0", "Score: 0"),
        (
            "scenes:\n  - name: night\n    mood: [calm, slow]\n  - day\n  - [a, b]",
            "Scenes:\n- name: night\n  mood:\n    - calm\n    - slow\n- day\n- - a\n  - b",
        ),
        ("42: the answer", "42: the answer"),
        ("Boundaries & care: [One., 'Two\n\n\n  lines.']", None),
    ],
)
def test_any_key_reaches_the_model(yaml: str, shown: str | None) -> None:
    text = Soul.parse(f"---\n{yaml}\n---\nHi").render()

    if shown is not None:
        assert text == f"{shown}\n\nHi"
    else:
        assert text.endswith("\n\nHi")
        name, _, _ = yaml.partition(":")
        assert text.casefold().startswith(name.replace("_", " ").casefold())


@each_row("yaml", ["mood:", "mood: []", "mood: {}", "mood: ''", "mood: [null]"])
def test_a_key_without_a_value_shows_nothing(yaml: str) -> None:
    assert Soul.parse(f"---\n{yaml}\n---\nHi").render() == "Hi"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("yaml", "told"),
    [
        ("fine: 1\nloop: &loop [*loop]", "`loop` is nested more than 16 levels deep"),
        ("fine: 1\nloop: &loop {a: *loop}", "`loop` is nested more than 16 levels deep"),
        (
            "a: &a ["
            + ", ".join(["lol"] * 10)
            + "]\nloop: "
            + "[" * 6
            + ", ".join(["*a"] * 40_000)
            + "]" * 6,
            "`loop` expands to more than 1,048,576 characters",
        ),
        ('fine: 1\nloop: "a\\0b"', "`loop` .*U\\+0000"),
    ],
    ids=["list", "mapping", "much", "nul"],
)
def test_a_key_that_cannot_be_shown_is_refused_with_its_line(yaml: str, told: str) -> None:
    with pytest.raises(SoulError, match=told) as caught:
        Soul.parse(f"---\n{yaml}\n---\nHi")

    assert caught.value.line == 3


@pytest.mark.parametrize("text", ["You are Nova.", "# Nova\n\n---\n\nA rule, not front matter."])
def test_a_file_without_front_matter_is_a_persona_too(text: str) -> None:
    assert Soul.parse(text).render() == text


def test_a_byte_order_mark_and_any_line_ends_are_accepted() -> None:
    plain = Soul.parse(WHOLE)

    assert Soul.parse(b"\xef\xbb\xbf" + WHOLE.replace("\n", "\r\n").encode()) == plain
    assert Soul.parse(WHOLE.replace("\n", "\r")) == plain


def test_every_key_is_optional_and_front_matter_may_be_all_there_is() -> None:
    assert Soul.parse("---\n---\nHi").render() == "Hi"
    assert Soul.parse("---\nvoice:\nrules: Be kind.\n---\n").render() == "Rules:\n- Be kind."
    assert Soul.parse("---\nname: Nova\n...\n").name == "Nova"


@each_row(
    ("data", "line", "told"),
    [
        ("---\nname: Nova\nrules: [a\n---\nHi", 3, "expected"),
        ("---\nname: Nova\n\nHi", 1, "not closed"),
        ("---\nvoice: dry\nname: 7\n---\nHi", 3, "`name` must be a string"),
        ("---\nrules:\n  - ok\n  - 7\n---\nHi", 2, "`rules` must be a string or a list"),
        ("---\nname: a\nplatforms: {x: 1}\n---\nHi", 3, "`platforms` must be"),
        ("---\nname: a\nmood: b\nname: c\n---\nHi", 4, "twice"),
        ("---\nname: a\nborn: 2026-99-99\n---\nHi", 3, "month"),
        ("---\nname: a\nmood: \x07\n---\nHi", 3, "not allowed"),
        ("---\n- a\n- b\n---\nHi", 2, "key: value"),
        ("---\n!!python/object/apply:os.system ['true']\n---\nHi", 2, "constructor"),
        ("---\na: " + "[" * 700 + "\n---\nHi", 2, "recursion"),
        ("one\ntwo\0", 2, "U+0000"),
        (b"one\ntwo\nthr\xe9e", 3, "not UTF-8"),
        (b"\xff\xfeN\x00", 1, "not UTF-8"),
        ("", 1, "empty"),
        (" \n\n", 1, "empty"),
        ("---\nmood:\n---\n", 1, "says nothing"),
        ("x" * (2**20 + 1), 1, "bytes of text"),
    ],
)
def test_an_error_names_the_file_the_line_and_the_way_out(
    data: str | bytes, line: int, told: str
) -> None:
    with pytest.raises(SoulError, match=told.replace("+", r"\+")) as caught:
        Soul.parse(data, path="agents/SOUL.md")

    assert caught.value.line == line
    assert f"`agents/SOUL.md`, line {line}: " in str(caught.value)
    assert isinstance(caught.value, MemoryError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(("text", "loaded"), [("Hi", False), ("---\nname: a\n---\nHi", True)])
def test_yaml_is_loaded_only_for_front_matter(text: str, loaded: bool) -> None:
    code = (
        "import sys; from orbiter.memory import Soul; assert 'yaml' not in sys.modules;"
        f"Soul.parse({text!r}); print('yaml' in sys.modules)"
    )
    source = Path(__file__).parents[2] / "src"

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=source
    )

    assert done.stdout.strip() == str(loaded)


@each_row("leaf", ["[]", "{}", "{? long : []}", "''", "[~]"])
def test_entries_that_stand_for_millions_of_nothings_are_refused(leaf: str) -> None:
    bomb = [f"a0: &a0 {leaf}"]
    bomb += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 20)}]" for n in range(1, 12)]

    with pytest.raises(SoulError, match="expands to more than"):
        Soul.parse("\n".join(["---", *bomb, "---", "I am Orbi."]))


def test_a_name_inside_an_unknown_key_stays_in_its_line() -> None:
    soul = Soul.parse('---\nhard_rules: {"a\\n# Task": "b"}\n---\nI am Orbi.')

    assert soul.render() == "Hard rules:\n- a # Task: b\n\nI am Orbi."
