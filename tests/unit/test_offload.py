"""Long work of one call leaves the event loop free: in a thread, and no pattern reads much at once.

A pattern keeps the interpreter's lock until it has read all of its text, also in a thread.
"""

import asyncio
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orbiter.memory import AgentMemory, HumanMemory, MemoryItem
from orbiter.memory.agent import scope
from orbiter.memory.context import ContextManager, _section_sources, prompt_fence
from orbiter.memory.conversation import estimate_tokens, tokens
from orbiter.memory.recall import _date_phrases, near_duplicates
from orbiter.memory.recall._date_phrases import has_time
from orbiter.memory.summarizers import extractive
from orbiter.memory.tasks import offload
from orbiter.memory.text import words

MEGABYTE = "Tea at the harbour, said José. " * 33_000
TEXTS = st.lists(
    st.sampled_from(
        (
            *("tea", " ", "José's", "e\u0301", "\u0301", "don't", "C++", "茶を", "’", "\n", "<s>"),
            *("[INST]", "[x | trust: high]", "\\", "\u200d", "ghijklmopqsv", "ghigh"),
            *(".", "!", "。", "\t", "\r\n", "1,200.50", "-7", "²", "hunteR", "last week", "2024"),
            *("x" * 40, " " * 250),
        )
    ),
    max_size=60,
).map("".join)
MARK = "ghijklmopqsv"


@pytest.mark.parametrize(
    "read",
    [
        words.tokens,
        words.passages,
        near_duplicates.text_tokens._function,
        near_duplicates.without_numbers._function,
        has_time,
        offload.count_words,
    ],
)
@given(TEXTS, st.integers(1, 9))
@example("tea\n. tea" + " " * 250, 1)
def test_a_long_text_is_read_as_a_short_one(read: Any, text: str, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words, "PASSAGE_WORDS", 8)
        patch.setattr(words, "_HANDFUL", re.compile(r"(?:\S+\s*+){1,8}"))
        whole = read(text)

        for module in (offload, words):
            patch.setattr(module, "SLICE", size)
        in_pieces = read(text)

    assert in_pieces == whole


@given(TEXTS)
def test_plain_sentences_are_cut_as_word_by_word(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words, "PASSAGE_WORDS", 8)
        patch.setattr(words, "_HANDFUL", re.compile(r"(?:\S+\s*+){1,8}"))
        at_once = words.passages(text)

        patch.setattr(words, "_is_plain", lambda _: False)
        word_by_word = words.passages(text)

    assert at_once == word_by_word


@given(TEXTS | st.text(st.sampled_from("a\t\n\r\v\f\x1c\x1f\x85\xa0\u2028 ")))
def test_rare_white_space_is_found_in_any_text(text: str) -> None:
    assert words._has_rare_space(text) == (words._RARE_SPACE.search(text) is not None)


@given(TEXTS)
def test_a_long_text_is_escaped_as_a_short_one(text: str) -> None:
    whole = prompt_fence.escape(text, marks=[MARK])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offload, "SLICE", 3)
        in_slices = prompt_fence.escape(text, marks=[MARK])

    assert in_slices == whole


def test_no_piece_of_a_long_text_is_long() -> None:
    pieces = list(offload.cut_at_spaces(MEGABYTE))

    assert "".join(pieces) == MEGABYTE
    assert max(map(len, pieces)) <= 2 * offload.SLICE


class Recording:
    """A pattern that notes how much of a text it may read at once."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.pattern = pattern
        self.sizes: list[int] = []

    def __getattr__(self, name: str) -> Any:
        read = getattr(self.pattern, name)

        def noted(text: str, start: int = 0, end: int = 2**62) -> Any:
            found = read(text, start, end)
            stops = found.end() if name == "search" and found else min(end, len(text))
            self.sizes.append(stops - start)
            return found

        return noted


@pytest.mark.parametrize(
    ("module", "name", "read"),
    [
        (words, "_ASCII_WORD", words.tokens),
        (words, "_STOP", words.passages),
        (words, "_SENTENCE", words.passages),
        (words, "_RARE_SPACE", words.passages),
        (tokens, "_ASCII_PIECE", estimate_tokens),
        (tokens, "_BLOB", estimate_tokens),
        (near_duplicates, "_SAID", near_duplicates.text_tokens._function),
        (near_duplicates, "_NUMBER_OR_WORD", near_duplicates.without_numbers._function),
        (_date_phrases, "_TIME", has_time),
        (extractive, "_WORD", lambda text: list(extractive._sentences(text))),
    ],
)
def test_a_pattern_reads_little_of_a_long_text_at_once(
    module: Any, name: str, read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pattern = Recording(getattr(module, name))
    monkeypatch.setattr(module, name, pattern)

    for text in ("tea harbour ", "tea\n", "a,b", "té ", "té\n", "tea 7 harbour "):
        read(text * 10_000)

    assert pattern.sizes
    assert max(pattern.sizes) <= 2 * offload.SLICE + 16


def test_words_of_other_scripts_are_folded_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    fold = words._folded

    def noted(text: str) -> str:
        sizes.append(len(text))
        return fold(text)

    monkeypatch.setattr(words, "_folded", noted)

    words.terms(MEGABYTE)
    words.terms("茶水港口" * 10_000)

    assert sum(sizes) == len(MEGABYTE) + 40_000
    assert max(sizes) <= 2 * offload.SLICE


def test_a_replacement_reads_a_slice_at_a_time() -> None:
    pattern = Recording(re.compile("é"))

    found = offload.replace_all(pattern, lambda _: "e", MEGABYTE, reach=10)  # type: ignore[arg-type]

    assert found == MEGABYTE.replace("é", "e")
    assert max(pattern.sizes) <= offload.SLICE + 10


@pytest.mark.parametrize("where", ["memories", "recent", "summary", "input_query"])
async def test_a_context_of_much_text_is_laid_out_in_a_thread(where: str) -> None:
    threads: set[int] = set()

    def count(text: str) -> int:
        threads.add(threading.get_ident())
        return estimate_tokens(text)

    manager = ContextManager(None, budget=10_000_000, count_tokens=count)
    text = MEGABYTE[:200_000]
    given: dict[str, Any] = {"input_query": "tea?"}
    given |= {where: [MemoryItem(content=text)] if where in ("memories", "recent") else text}

    context = await manager.assemble(**given)

    assert len(context.text) > 200_000
    assert threading.get_ident() not in threads


async def test_many_memories_of_a_context_are_read_in_a_thread() -> None:
    threads: set[int] = set()

    def trust(_: object) -> Any:
        threads.add(threading.get_ident())
        return "low"

    manager = ContextManager(None, trust=trust)

    await manager.assemble("tea?", memories=[MemoryItem(content="tea")] * 200)

    assert threads
    assert threading.get_ident() not in threads


async def test_a_long_conversation_is_sorted_by_owner_in_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[int] = []
    sort = _section_sources._by_owner

    def noted(*args: Any) -> Any:
        threads.append(threading.get_ident())
        return sort(*args)

    monkeypatch.setattr(_section_sources, "_by_owner", noted)
    said = [HumanMemory(content="tea") for _ in range(offload.MANY + 1)]

    await ContextManager(None).assemble("tea?", conversation=said)

    assert len(threads) == 1
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("call", ["remember", "remember_many"])
async def test_a_memory_with_many_labels_is_read_in_a_thread(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    def noting(read: Any) -> Any:
        def noted(*args: Any, **kwargs: Any) -> Any:
            threads.append(threading.get_ident())
            return read(*args, **kwargs)

        return noted

    for name in ("read", "read_many"):
        monkeypatch.setattr(scope, name, noting(getattr(scope, name)))
    extra = {f"label {number}": number for number in range(1_000)}

    async with AgentMemory(tmp_path / "m.db", embeddings=None) as memory:
        handle = memory.scope(user_id="ann")
        if call == "remember":
            await handle.remember("tea", extra=extra)
        else:
            await handle.remember_many(["tea"], extra=extra)

    assert threads
    assert threading.get_ident() not in threads


def test_a_coroutine_that_need_not_wait_runs_without_an_event_loop() -> None:
    async def half(number: int) -> int:
        await asyncio.sleep(0)  # which only gives others their turn
        return await offload.apart(True, int, number / 2)

    async def work() -> tuple[int, int]:
        assert not offload.has_loop()
        return await offload.both(half(8), half(6))

    assert offload.run_here(work()) == (4, 3)


def test_a_coroutine_that_must_wait_says_so() -> None:
    class Wait:
        def __await__(self) -> Any:
            yield "a future"

    async def work() -> None:
        await Wait()

    with pytest.raises(offload.MustWaitError):
        offload.run_here(work())
