"""Rules by which chat templates of open models refuse a conversation, as checks of our own.

A server of such a model (vLLM, llama.cpp, SGLang, Ollama) puts a request through the template that
the model is published with, and answers 400 where that raises an exception. Checked is who speaks
when, and nothing of what somebody attached: that a template has no form for sound is its own.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

__all__ = ["TEMPLATES", "Template", "refusals"]

_Messages = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Template:
    """A family of chat templates: what they refuse, and what they have no words for at all."""

    name: str
    source: str
    check: Callable[[_Messages], Iterator[str]]
    lacks: Callable[[_Messages], bool] = lambda _: False
    """Tells what no order of messages could make acceptable."""


def refusals(messages: _Messages) -> Iterator[str]:
    """Yield why templates would refuse *messages*, which are in OpenAI's form."""
    for template in TEMPLATES:
        if not template.lacks(messages):
            for reason in template.check(messages):
                yield f"{template.name}: {reason}"


def _qwen(messages: _Messages) -> Iterator[str]:
    if not messages:
        yield "no messages provided"
    if any(_is_system(message) for message in messages[1:]):
        yield "system message must be at the beginning"
    if messages and _is_system(messages[0]):
        content = messages[0]["content"]
        if not isinstance(content, str) and any("image_url" in part for part in content):
            yield "system message cannot contain images"
    if not any(_is_query(message) for message in messages):
        yield "no user query found in messages"


def _is_query(message: Mapping[str, Any]) -> bool:
    text = str(message["content"]).strip()
    is_result = text.startswith("<tool_response>") and text.endswith("</tool_response>")
    return message["role"] == "user" and not is_result


def _alternates(messages: _Messages) -> Iterator[str]:
    for place, message in enumerate(messages):
        if (message["role"] == "user") != (place % 2 == 0):
            yield f"roles must alternate, the user's first; number {place} is `{message['role']}`"
            return


def _gemma(messages: _Messages) -> Iterator[str]:
    yield from _alternates(_talk(messages))


def _gemma_with_tools(messages: _Messages) -> Iterator[str]:
    yield from _alternates([each for each in _talk(messages) if not _is_of_tools(each)])


def _mistral(messages: _Messages) -> Iterator[str]:
    talk = _talk(messages)
    yield from _alternates([each for each in talk if not _is_of_tools(each)])
    for before, message in pairwise(talk):
        if before["role"] == "tool" and message["role"] not in ("assistant", "tool"):
            yield f"`{message['role']}` after a tool"
    yield from (f"unknown role {each['role']!r}" for each in talk if each["role"] not in _ROLES)


def _llama(messages: _Messages) -> Iterator[str]:
    if not _talk(messages):
        yield "no first user message to put the tools into"


def _phi(messages: _Messages) -> Iterator[str]:
    if any(_is_system(message) for message in messages[1:]):
        yield "a system message that is not the first is left out without a word"


_ROLES = ("user", "assistant", "tool")


def _is_system(message: Mapping[str, Any]) -> bool:
    # A developer's message is one to servers whose model knows no developers.
    return message["role"] in ("system", "developer")


def _talk(messages: _Messages) -> list[Mapping[str, Any]]:
    """Return the messages without the system's, if that is the first."""
    return list(messages[1:] if messages and _is_system(messages[0]) else messages)


def _is_of_tools(message: Mapping[str, Any]) -> bool:
    return message["role"] == "tool" or bool(message.get("tool_calls"))


def _has_tools(messages: _Messages) -> bool:
    return any(map(_is_of_tools, messages))


def _has_parallel_calls(messages: _Messages) -> bool:
    return any(len(message.get("tool_calls") or ()) > 1 for message in messages)


TEMPLATES = (
    Template("Qwen 3.5 and later", "huggingface.co/Qwen/Qwen3.5-27B: chat_template.jinja", _qwen),
    # Google's own template has no tools; that of vLLM has.
    Template("Gemma 3", "huggingface.co/google/gemma-3-1b-it: chat_template", _gemma, _has_tools),
    Template(
        "Gemma 3 with tools",
        "github.com/vllm-project/vllm: examples/tool_chat_template_gemma3_pythonic.jinja",
        _gemma_with_tools,
    ),
    # And the order of roles that mistral-common and Mistral's own API ask for.
    Template(
        "Mistral",
        "github.com/ggml-org/llama.cpp: mistralai-Mistral-Small-3.1-24B-Instruct-2503.jinja; "
        "github.com/mistralai/mistral-common: protocol/instruct/validator.py",
        _mistral,
    ),
    # "This model only supports single tool-calls at once!": such a model makes none.
    Template(
        "Llama 3",
        "github.com/vllm-project/vllm: examples/tool_chat_template_llama3.1_json.jinja",
        _llama,
        _has_parallel_calls,
    ),
    Template(
        "Phi 4",
        "github.com/vllm-project/vllm: examples/tool_chat_template_phi4_mini.jinja",
        _phi,
    ),
)
