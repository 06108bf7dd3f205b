import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each_row
from tests.timing import scaled

from orbiter.memory import AIMemory, HumanMemory, MemoryItem, ToolMemory, count_tokens
from orbiter.memory.conversation import estimate_tokens, tokens
from orbiter.memory.conversation.tokens import CONVERSATION_TOKENS, item_tokens, split_budget
from orbiter.memory.errors import QueryError


@each_row(
    ("text", "least", "most"),
    [
        ("", 0, 0),
        ("hello", 1, 2),
        ("The quick brown fox jumps over the lazy dog.", 9, 12),
        ("我昨天去了北京，见了几位老朋友。", 10, 16),
        ("1234567890", 4, 4),
        ("0" * 64, 40, 60),
        ("🎉🎉🎉", 4, 8),
        ("\n\n\n\n", 1, 2),
    ],
)
def test_an_estimate_is_near_what_tokenizers_say(text: str, least: int, most: int) -> None:
    assert least <= estimate_tokens(text) <= most


@given(st.text(), st.text())
def test_more_text_is_never_much_cheaper(left: str, right: str) -> None:
    both = estimate_tokens(f"{left} {right}")

    assert both >= 0.7 * max(estimate_tokens(left), estimate_tokens(right)) - 2


def test_everything_an_item_sends_is_counted() -> None:
    plain = item_tokens(AIMemory(content="hi"))
    call = {"id": "call_1", "name": "weather", "arguments": {"city": "Paris"}}
    calling = item_tokens(AIMemory(content="hi", tool_calls=[call]))
    longer = item_tokens(
        AIMemory(content="hi", tool_calls=[{**call, "arguments": {"city": "Paris " * 50}}])
    )
    thinking = AIMemory(
        content="hi", native={"anthropic": [{"type": "thinking", "thinking": "hm " * 50}]}
    )

    assert plain < calling < longer
    assert item_tokens(thinking) > plain + 40
    assert item_tokens(ToolMemory(content="", tool_call_id="call_1", tool_name="weather")) > 4


def test_text_a_block_repeats_is_counted_once() -> None:
    blocks = [{"type": "text", "text": "hello there " * 20}]
    item = HumanMemory(content="hello there " * 20)
    with_blocks = item.model_copy(update={"native": {"anthropic": blocks}})

    assert item_tokens(with_blocks) == item_tokens(item)


@each_row(
    "item",
    [
        AIMemory(
            content="",
            tool_calls=[
                {
                    "id": "c",
                    "type": "function",
                    "function": {"name": "f", "arguments": "{}"},
                    "extra_content": {"signature": "some words " * 100},
                }
            ],
        ),
        HumanMemory(
            content="hi",
            native={
                "anthropic": [
                    {"type": "text", "text": "hi", "citations": [{"cited": "some words " * 100}]}
                ]
            },
        ),
        AIMemory(
            content="hi",
            native={"anthropic": [{"type": "thinking", "thinking": "data: " + "word " * 200}]},
        ),
        AIMemory(content="hi", native={"gemini": [{"thought": True, "text": "some words " * 100}]}),
        HumanMemory(
            content="",
            native={
                "anthropic": [
                    {"type": "document", "source": {"type": "text", "data": "a word " * 200}}
                ]
            },
        ),
    ],
)
def test_what_rides_along_is_counted(item: MemoryItem) -> None:
    assert 200 <= item_tokens(item) < 700


def test_a_picture_counts_as_a_picture_not_as_text() -> None:
    block = {"type": "image", "source": {"type": "base64", "data": "A1b2" * 50_000}}

    assert 1_600 <= item_tokens(HumanMemory(content="", native={"anthropic": [block]})) < 1_700


def test_a_conversation_costs_a_little_more_than_its_items() -> None:
    items = [HumanMemory(content="hi"), AIMemory(content="ho")]

    assert count_tokens(items) == CONVERSATION_TOKENS + sum(item_tokens(item) for item in items)
    assert count_tokens([]) == 0
    assert count_tokens(items, counter=lambda _: 10) == CONVERSATION_TOKENS + 2 * 14


@each_row(
    ("budget", "wants", "shares"),
    [
        (100, {"a": 10, "b": 20}, {"a": 10, "b": 20}),
        (100, {"a": 10, "b": 200}, {"a": 10, "b": 90}),
        (100, {"a": 200, "b": 200}, {"a": 50, "b": 50}),
        (0, {"a": 5}, {"a": 0}),
        (10, {}, {}),
    ],
)
def test_a_budget_is_shared_so_that_none_starves(
    budget: int, wants: dict[str, int], shares: dict[str, int]
) -> None:
    assert split_budget(budget, wants) == shares


@given(st.integers(0, 1000), st.dictionaries(st.text(max_size=3), st.integers(0, 1000)))
def test_shares_never_exceed_budget_or_want(budget: int, wants: dict[str, int]) -> None:
    shares = split_budget(budget, wants)

    assert sum(shares.values()) <= budget
    assert all(shares[name] <= wants[name] for name in wants)


def test_a_negative_budget_is_refused() -> None:
    with pytest.raises(QueryError, match="budget"):
        split_budget(-1, {})


@pytest.mark.timeout(scaled(20))
@each_row("piece", ["a", "Ab", "a1", "-", "=", "a ", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa="])
def test_the_estimate_takes_time_in_proportion_to_the_text(piece: str) -> None:
    text = piece * (2**20 // len(piece))

    assert estimate_tokens(text) > 0


@given(st.text(st.characters(max_codepoint=127)))
def test_plain_letters_are_counted_like_all_others(text: str) -> None:
    assert len(tokens._ASCII_PIECE.findall(text)) == len(tokens._PIECE.findall(text))


def test_a_long_text_has_as_many_tokens_as_its_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "Meet at 10 am,  room 12.\n\nBring ß, 東京 and dead0123456789abcdef0123456789abcde " * 40
    at_once = estimate_tokens(text)

    found = {}
    for size in (100, 333, 1_000):  # in each there is a gap between two words
        monkeypatch.setattr(tokens, "_SLICE", size)
        found[size] = len(list(tokens._slices(text))), estimate_tokens(text)
    monkeypatch.setattr(tokens, "_SLICE", 7)

    assert {count for _, count in found.values()} == {at_once}
    assert min(slices for slices, _ in found.values()) > 1
    assert "".join(tokens._slices(text)) == text


LINES = st.lists(
    st.text(st.sampled_from("aB7 é東_.-=\t\r\u2028😀")).map(lambda text: f"[{text}"), min_size=1
)


@given(LINES, st.integers(1, 9))
def test_a_text_has_as_many_tokens_as_its_lines(lines: list[str], size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "_SLICE", size)  # some runs are longer
        whole = estimate_tokens("\n".join(lines))
        apart = sum(map(estimate_tokens, lines))

    assert whole == apart + len(lines) - 1
