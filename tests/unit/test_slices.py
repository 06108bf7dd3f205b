"""Long work of one call leaves the event loop free: in a thread, and no pattern reads much at once.

A pattern keeps the interpreter's lock until it has read all of its text, also in a thread.
"""

import re
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbiter.memory import AgentMemory, MemoryItem, estimate_tokens
from orbiter.memory.agent import scope
from orbiter.memory.context import ContextManager, prompt_fence
from orbiter.memory.tasks import offload
from orbiter.memory.text import words

MEGABYTE = "Tea at the harbour, said José. " * 33_000
TEXTS = st.lists(
    st.sampled_from(
        (
            *("tea", " ", "José's", "e\u0301", "\u0301", "don't", "C++", "茶を", "’", "\n", "<s>"),
            *("[INST]", "[x | trust: high]", "\\", "\u200d", "ghijklmopqsv", "ghigh"),
        )
    ),
    max_size=60,
).map("".join)
MARK = "ghijklmopqsv"


@given(TEXTS)
def test_a_long_text_has_the_words_of_its_pieces(text: str) -> None:
    whole = words.tokens(text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offload, "SLICE", 3)
        patch.setattr(words, "SLICE", 3)
        in_pieces = words.tokens(text)

    assert in_pieces == whole


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


def test_words_of_a_long_text_are_read_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    read = words._tokens

    def noted(text: str) -> list[str]:
        sizes.append(len(text))
        return read(text)

    monkeypatch.setattr(words, "_tokens", noted)

    words.terms(MEGABYTE)

    assert sum(sizes) == len(MEGABYTE)
    assert max(sizes) <= 2 * offload.SLICE


def test_a_replacement_reads_a_slice_at_a_time() -> None:
    class Recording:
        """A pattern that notes how much of a text it may read at once."""

        sizes: list[int] = []  # noqa: RUF012 - of this test alone
        pattern = re.compile("é")

        def finditer(self, text: str, start: int, end: int) -> Any:
            self.sizes.append(min(end, len(text)) - start)
            return self.pattern.finditer(text, start, end)

    found = offload.replace_all(Recording(), lambda _: "e", MEGABYTE, reach=10)  # type: ignore[arg-type]

    assert found == MEGABYTE.replace("é", "e")
    assert max(Recording.sizes) <= offload.SLICE + 10


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


@pytest.mark.parametrize("call", ["remember", "remember_many"])
async def test_a_memory_with_many_labels_is_read_in_a_thread(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    def noting(read: Any) -> Any:
        def noted(*args: Any, **kwargs: Any) -> Any:
            threads.append(threading.get_ident())
            return read(*args, **kwargs)

        return noted

    for name in ("read", "read_messages"):
        monkeypatch.setattr(scope, name, noting(getattr(scope, name)))
    extra = {f"label {number}": number for number in range(1_000)}

    async with AgentMemory(embeddings=None) as memory:
        handle = memory.scope(user_id="ann")
        if call == "remember":
            await handle.remember("tea", extra=extra)
        else:
            await handle.remember_many(["tea"], extra=extra)

    assert threads
    assert threading.get_ident() not in threads
