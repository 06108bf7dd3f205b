"""A conversation that is sent again with every call is stored once."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from google import genai
from tests.integrations.model_provider import Provider, running_provider
from tests.rows import each_row

from orbiter.memory import AIMemory, HumanMemory, MemoryItem, ToolMemory, sync
from orbiter.memory.integrations._resent_history import find_new
from orbiter.memory.messages import Format


@pytest.fixture
def provider() -> Iterator[Provider]:
    with running_provider() as server:
        yield server


@pytest.fixture
def alice() -> Iterator[sync.ScopedMemory]:
    with sync.AgentMemory("memory://", embeddings=None) as memory:
        yield memory.scope(user_id="alice")


def _openai(provider: Provider) -> openai.OpenAI:
    return openai.OpenAI(api_key="k", base_url=provider.url, max_retries=0)


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _ai(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def _result(text: str = "rain") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": "call_1", "content": text}


def _ask(client: openai.OpenAI, said: Sequence[Any]) -> Any:
    answer = client.chat.completions.create(model="m", messages=list(said))
    return answer.choices[0].message


def _contents(alice: sync.ScopedMemory) -> list[str]:
    return [item.content for item in alice.chat("default").items(open_group="keep")]


def test_a_history_that_is_sent_again_is_stored_once(
    provider: Provider, alice: sync.ScopedMemory
) -> None:
    client, said = alice.wrap(_openai(provider)), list[Any]()
    for number in range(40):
        said.append(_user(f"question {number}"))
        said.append(_ask(client, said))

    assert len(_contents(alice)) == 80
    assert _contents(alice)[::2] == [f"question {number}" for number in range(40)]


def test_the_end_of_a_history_is_enough(provider: Provider, alice: sync.ScopedMemory) -> None:
    client, said = alice.wrap(_openai(provider)), list[Any]()
    for text in ("one", "two", "three", "two", "four"):
        said.append(_user(text))
        said.append(_ask(client, said[-3:]))

    assert _contents(alice)[::2] == ["one", "two", "three", "two", "four"]


def test_a_question_asked_again_later_is_a_new_turn(
    provider: Provider, alice: sync.ScopedMemory
) -> None:
    client = alice.wrap(_openai(provider))
    for _ in range(3):  # each call alone, as from a program that sends only what is new
        _ask(client, [_user("What time is it?")])
    said = [_user("What time is it?"), _ai("answer 3"), _user("What time is it?")]
    _ask(client, said)

    assert _contents(alice) == [
        each for number in range(1, 5) for each in ("What time is it?", f"answer {number}")
    ]


def test_a_tool_loop_that_is_sent_again_is_stored_once(
    provider: Provider, alice: sync.ScopedMemory
) -> None:
    client, said = alice.wrap(_openai(provider)), list[Any]([_user("Weather in Oslo?")])
    provider.calls_tool = True
    said.append(_ask(client, said))
    provider.calls_tool = False
    said.append(_result())
    said.append(_ask(client, said))
    said.append(_user("And now?"))
    said.append(_ask(client, said))
    said.append(_user("Thanks"))
    _ask(client, [*said[:2], _result("(removed to save tokens)"), *said[3:]])

    kinds = [item.memory_type for item in alice.chat("default").items()]
    assert kinds == ["human", "ai", "tool", "ai", "human", "ai", "human", "ai"]
    assert _contents(alice)[2] == "rain"


def _claude_loop(provider: Provider, alice: sync.ScopedMemory) -> None:
    client = alice.wrap(anthropic.Anthropic(api_key="k", base_url=provider.url))
    said: list[Any] = [_user("Weather in Oslo?")]
    provider.calls_tool = True
    answer = client.messages.create(model="m", max_tokens=9, messages=said)
    provider.calls_tool = False
    block = {"type": "tool_result", "tool_use_id": "t", "content": "rain"}
    said += [{"role": "assistant", "content": answer.content}, _user("")]
    said[-1]["content"] = [{**block, "cache_control": {"type": "ephemeral"}}]
    answer = client.messages.create(model="m", max_tokens=9, messages=said)
    said[-1]["content"] = [block]  # the mark of the cache moves on
    last = {"type": "text", "text": "And now?", "cache_control": {"type": "ephemeral"}}
    said += [_ai(answer.content[0].text), {"role": "user", "content": [last]}]  # type: ignore[union-attr]
    answer = client.messages.create(model="m", max_tokens=9, messages=said)
    said[-1] = _user("And now?")
    said += [_ai(answer.content[0].text), _user("Thanks")]  # type: ignore[union-attr]
    client.messages.create(model="m", max_tokens=9, messages=said)


def _responses_loop(provider: Provider, alice: sync.ScopedMemory) -> None:
    client = alice.wrap(_openai(provider))
    said: list[Any] = [_user("Weather in Oslo?")]
    provider.calls_tool = True
    said += client.responses.create(model="m", input=said).output
    provider.calls_tool = False
    said.append({"type": "function_call_output", "call_id": "call_1", "output": "rain"})
    said += client.responses.create(model="m", input=said).output
    for text in ("And now?", "Thanks"):
        said.append(_user(text))
        said += client.responses.create(model="m", input=said).output


def _gemini_loop(provider: Provider, alice: sync.ScopedMemory) -> None:
    options: Any = {"base_url": provider.url}
    with genai.Client(api_key="k", http_options=options) as plain:
        chat = alice.wrap(plain).chats.create(model="m")
        provider.calls_tool = True
        chat.send_message("Weather in Oslo?")
        provider.calls_tool = False
        chat.send_message(
            genai.types.Part.from_function_response(name="weather", response={"output": "rain"})
        )
        chat.send_message("And now?")
        chat.send_message("Thanks")


@pytest.mark.parametrize("loop", [_claude_loop, _responses_loop, _gemini_loop])
def test_tool_loops_of_all_clients_are_stored_once(
    provider: Provider,
    alice: sync.ScopedMemory,
    loop: Callable[[Provider, sync.ScopedMemory], None],
) -> None:
    loop(provider, alice)

    items = alice.chat("default").items()
    kinds = [item.memory_type for item in items if item.content or item.calls]  # type: ignore[attr-defined]
    assert kinds == ["human", "ai", "tool", "ai", "human", "ai", "human", "ai"]


def test_an_edited_question_is_a_new_turn_and_the_rest_is_known(
    provider: Provider, alice: sync.ScopedMemory
) -> None:
    client = alice.wrap(_openai(provider))
    first = [_user("one"), _ask(client, [_user("one")])]
    second = [*first, _user("two"), _ask(client, [*first, _user("two")])]
    edited = [*first, _user("two, but shorter")]
    edited.append(_ask(client, edited))
    _ask(client, [*edited, _user("three")])

    assert second[-1].content == "answer 2"
    assert _contents(alice) == [
        "one", "answer 1", "two", "answer 2", "two, but shorter", "answer 3", "three", "answer 4",
    ]  # fmt: skip


def test_an_answer_that_the_program_changed_is_not_stored_beside_the_models(
    provider: Provider, alice: sync.ScopedMemory
) -> None:
    client = alice.wrap(_openai(provider))
    _ask(client, [_user("one")])
    said = [_user("one"), _ai("ANSWER, in other words"), _user("two")]
    _ask(client, said)
    _ask(client, [*said, _ai("  answer 2\n"), _user("three")])

    assert _contents(alice) == ["one", "answer 1", "two", "answer 2", "three", "answer 3"]


def test_an_answer_that_was_not_remembered_is_taken_from_the_history(
    provider: Provider, alice: sync.ScopedMemory
) -> None:
    client, said = alice.wrap(_openai(provider)), [_user("one")]
    stream: Any = client.chat.completions.create(model="m", messages=said, stream=True)  # type: ignore[arg-type]
    partial = next(stream).choices[0].delta.content
    stream.close()
    _ask(client, [*said, _ai(partial), _user("two")])

    assert _contents(alice) == ["one", "ans", "two", "answer 2"]


def test_calls_at_the_same_time_store_their_common_history_once(
    provider: Provider, alice: sync.ScopedMemory
) -> None:
    client, history = alice.wrap(_openai(provider)), [_user("zero"), _ai("null")]
    others = alice.wrap(_openai(provider))

    def ask(number: int) -> None:
        said = [*history, _user(f"question {number}")]
        said.append(_ask(others if number % 2 else client, said))
        _ask(client, [*said, _user(f"more of {number}")])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(ask, range(8)))
    contents = _contents(alice)

    assert contents[:2] == ["zero", "null"]
    assert len(contents) == len(set(contents)) == 2 + 8 * 4


def test_the_same_call_twice_at_once_stores_its_question_once(
    provider: Provider, alice: sync.ScopedMemory
) -> None:
    client, said = alice.wrap(_openai(provider)), [_user("zero"), _ai("null"), _user("one")]
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda _: _ask(client, said), range(2)))

    assert sorted(_contents(alice)) == ["answer 1", "answer 2", "null", "one", "zero"]


def test_a_call_that_is_tried_again_after_an_error_is_stored_once(
    provider: Provider, alice: sync.ScopedMemory
) -> None:
    client, said = alice.wrap(_openai(provider)), [_user("one"), _ai("first"), _user("two")]
    provider.fails = True
    with pytest.raises(openai.BadRequestError):
        _ask(client, said)
    provider.fails = False
    _ask(client, said)

    assert _contents(alice) == ["one", "first", "two", "answer 2"]
    assert str(provider.requests[-1]["messages"]).count("'two'") == 1


def test_a_history_from_before_the_memory_is_brought_along_once(
    provider: Provider, alice: sync.ScopedMemory
) -> None:
    alice.chat("default").add([_user("of another day"), _ai("indeed")])
    client = alice.wrap(_openai(provider))
    said: list[Any] = [
        _user("Weather in Oslo?"),
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "w", "arguments": "{}"}}
        ]},
        _result(), _ai("indeed"), _user("one"),
    ]  # fmt: skip
    said.append(_ask(client, said))
    _ask(client, [*said, _user("two")])

    assert _contents(alice) == [
        "of another day", "indeed", "Weather in Oslo?", "", "rain", "indeed", "one", "answer 1",
        "two", "answer 2",
    ]  # fmt: skip


def test_a_history_is_known_after_a_restart(provider: Provider, tmp_path: Path) -> None:
    said: list[Any] = []
    for number in range(3):
        with sync.AgentMemory(str(tmp_path / "agent.db"), embeddings=None) as memory:
            client = memory.scope(user_id="alice").wrap(_openai(provider))
            said.append(_user(f"question {number}"))
            said.append({"role": "assistant", "content": _ask(client, said).content})
            contents = _contents(memory.scope(user_id="alice"))

    assert contents == [each["content"] for each in said]


def _items(text: str) -> list[MemoryItem]:
    """Return items: `q…` is a person's, `c1` a call, `r1` its result, all else an answer."""
    made: list[MemoryItem] = []
    for word in text.split():
        if word[0] == "q":
            made.append(HumanMemory(content=word))
        elif word[0] == "c":
            made.append(AIMemory(content="", tool_calls=[{"id": word[1:], "name": "t"}]))
        elif word[0] == "r":
            made.append(ToolMemory(content="x", tool_call_id=word[1:], tool_name="t"))
        else:
            made.append(AIMemory(content=word))
    return made


@each_row(
    ("stored", "given", "new"),
    [
        ("", "q1 a1 q2", "q1 a1 q2"),
        ("q1 a1", "q1 a1 q2", "q2"),
        ("q1 a1", "q1", "q1"),  # asked again
        ("q1", "q1", ""),  # tried again
        ("q1 q2", "q1", ""),  # tried again beside another call
        ("q1 a1 q2 a2", "q1 a1 q2", ""),  # another answer is wanted
        ("q1 a1 q2 a2 q3 a3", "q2 a2 q3 a3 q1", "q1"),
        ("q1 a1 q2 q3 a3 a2", "q1 a1 q2 a2 q4", "q4"),  # two calls at the same time
        ("q1 q2 c1 c2", "q1 c1 r1", "r1"),
        ("q1 q2 c1 c2 r2 c3", "q1 c1 r1", "r1"),
        ("q1 c1", "r1", "r1"),
        ("q1 c1 c2 r2", "q1 c1 c2 r1 r2", "r1"),
        ("q1 c1 r1 a1", "q1 c1 r1 a1 q2", "q2"),
        ("q1 a1 q2 a2", "q9 a1 q2 a2 q3", "q9 a1 q3"),  # the first question was edited
        ("q1 a1", "q1 b1 q2", "q2"),  # the answer was
        ("q1", "q1 b1 q2", "b1 q2"),  # there was none
        ("q1 ok q2 ok", "q7 ok q3", "q7 ok q3"),  # another conversation with such an answer
        ("q1 a1 q2 a2", "q1 a1 q2 a2 q2 a2 q2", "q2 a2 q2"),
    ],
)
def test_what_is_new_follows_the_rule(stored: str, given: str, new: str) -> None:
    formats: list[Format] = ["openai", "gemini"] if "r" not in given else ["openai"]
    for format in formats:
        marks = find_new([[item] for item in _items(given)], _items(stored), format)
        words = [word for word, is_new in zip(given.split(), marks, strict=True) if is_new]
        assert " ".join(words) == new


def test_pictures_tell_questions_of_one_text_apart() -> None:
    def look(url: str) -> MemoryItem:
        image = {"type": "image_url", "image_url": {"url": url}}
        text = {"type": "text", "text": "What is this?"}
        return HumanMemory(content="What is this?", native={"openai": [text, image]})

    assert find_new([[look("cat")]], [look("dog")], "openai") == [True]
    assert find_new([[look("cat")]], [look("cat")], "openai") == [False]
