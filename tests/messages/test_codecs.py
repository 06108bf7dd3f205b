"""The registry of message formats: all who list formats have them from there."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import pytest
from tests.messages import _samples
from tests.messages._conversations import CONVERSATIONS, IDS
from tests.rows import each_row

from orbiter.memory.messages import FORMATS, Format, _parts, codec_for, codecs, format_of
from orbiter.memory.messages.codec import Codec
from orbiter.memory.server.api.openapi import document
from orbiter.memory.testing import histories

ROOT = Path(__file__).parents[2]
SOURCES = [*ROOT.glob("src/orbiter/memory/**/*.py"), *ROOT.glob("src/orbiter/memory/**/*.html")]


def test_every_name_has_a_codec_and_every_codec_a_name() -> None:
    assert tuple(codecs()) == FORMATS == get_args(Format)


@pytest.mark.parametrize("format", FORMATS)
def test_a_codec_has_all_names_of_the_protocol(format: Format) -> None:
    codec = codec_for(format)

    named = {name for name in vars(Codec) if not name.startswith("_")} | set(Codec.__annotations__)
    lacking = [name for name in named if not hasattr(codec, name)]

    assert lacking == []
    assert {"LABEL", "encode"} < named


def test_no_other_file_lists_the_formats() -> None:
    names = re.compile("|".join(f'"{name}"' for name in FORMATS))
    listing = [
        str(path.relative_to(ROOT))
        for path in SOURCES
        if set(names.findall(path.read_text(encoding="utf-8"))) >= {f'"{name}"' for name in FORMATS}
    ]

    assert sorted(listing) == [
        "src/orbiter/memory/integrations/_client_answers.py",  # how each streams an answer
        "src/orbiter/memory/integrations/_client_turn.py",  # how each official client is called
        "src/orbiter/memory/messages/_parts.py",  # how each shows a picture or a file
        "src/orbiter/memory/messages/codec.py",
        "src/orbiter/memory/messages/convert.py",
        "src/orbiter/memory/testing/histories.py",
    ]


def test_histories_of_the_kit_know_every_format() -> None:
    assert tuple(histories._NATIVE) == FORMATS


TABLES: dict[str, Mapping[Format, object]] = {
    "a question": _samples.ASK,
    "a call": _samples.CALLS,
    "a result": _samples.RESULTS,
    "calls without ids": _samples.CALLS_WITHOUT_IDS,
    "a result without an id": _samples.RESULTS_WITHOUT_IDS,
    "messages that cannot be read": _samples.UNREADABLE,
    "a conversation": CONVERSATIONS,
    "how a picture is read": _parts._READERS,
    "how a picture is written": _parts._WRITERS,
}


@each_row("what", TABLES)
def test_a_table_has_every_format(what: str) -> None:
    assert tuple(TABLES[what]) == FORMATS


def test_the_conversations_of_formats_with_ids_say_theirs() -> None:
    assert list(IDS) == [name for name in FORMATS if codec_for(name).HAS_CALL_IDS]


def test_the_description_of_the_server_names_every_format() -> None:
    text = str(document())

    assert str(list(FORMATS)) in text


@pytest.mark.parametrize("page", ["docs/cli.md", "docs/concepts.md", "docs/conversations.md"])
def test_pages_that_list_formats_name_all_of_them(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")

    assert [name for name in FORMATS if not re.search(rf'[`"]{name}[`"]', text)] == []


def test_what_could_be_of_any_format_is_of_the_first() -> None:
    assert format_of({"role": "user", "content": "hello"}) == FORMATS[0]
