"""Ready-made tools for function calling: what a model needs to remember, bound to one handle.

`memory_tools(alice)` has them as plain functions, as the JSON schemas of providers, and as the
tools of frameworks. Whose memories they touch is not the model's to say. What they return of
memories is fenced as data, and an error says what to do instead.
"""

import inspect
import json
import re
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast, get_type_hints

from orbiter.memory._lazy import missing_extra
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.agent.forgetting import forget_item
from orbiter.memory.agent.short_ids import find_item, short_id
from orbiter.memory.context.entries import default_trust, memory_entry, with_id
from orbiter.memory.context.prompt_fence import new_mark, parse, render
from orbiter.memory.errors import FenceError, ItemNotFoundError, MemoryError
from orbiter.memory.integrations._calls import AnyHandle, Calls
from orbiter.memory.model.fences import MARK, fence_spans
from orbiter.memory.text.ranking import asked_for_prompt, for_prompt

if TYPE_CHECKING:
    from agents import FunctionTool
    from langchain_core.tools import StructuredTool
    from pydantic_ai.toolsets import FunctionToolset

    from orbiter.memory.recall import Hit

__all__ = [
    "MemoryTools",
    "fenced_hits",
    "is_seen",
    "memory_tools",
    "recalled_text",
    "with_shown",
]

_Method = Callable[..., Coroutine[Any, Any, str]]

_SOURCE = "agent"
_LONGEST = 2_000
_MAX_HITS = 20
_ARGUMENT = re.compile(r"^ +(\w+): (.+)$", re.MULTILINE)
_TYPES: dict[object, dict[str, object]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    list[str]: {"type": "array", "items": {"type": "string"}},
}


def memory_tools(handle: AnyHandle) -> "MemoryTools":
    """Return `remember`, `recall`, `update`, `forget` and `know` over the memories of *handle*.

    They are coroutine functions, or block if the handle does.
    """
    return MemoryTools(handle)


class MemoryTools:
    """The tools of one handle; iterate over it for the functions."""

    def __init__(self, handle: AnyHandle) -> None:
        self._calls = Calls(handle, "memory_tools")
        tools = _Tools(self._calls)
        methods = (tools.recall, tools.remember, tools.update, tools.forget, tools.know)
        self._functions = {
            method.__name__: _function(self._calls, _answered(method), method) for method in methods
        }

    def __iter__(self) -> Iterator[Callable[..., Any]]:
        return iter(self._functions.values())

    def __len__(self) -> int:
        return len(self._functions)

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return self._functions[name]

    def call(self, name: str, arguments: str | Mapping[str, Any]) -> Any:
        """Carry out the call of a model; return the text for it, or an awaitable of that.

        *arguments* is a mapping, or the JSON that the provider sent. What cannot be called so gets
        an error as the text.
        """
        if name not in self._functions:
            problem = f"Error: there is no tool `{name}`; there are {', '.join(self._functions)}."
        else:
            function = self._functions[name]
            try:
                values = json.loads(arguments or "{}") if isinstance(arguments, str) else arguments
                _check_arguments(function, values)
            except (ValueError, TypeError) as exc:
                problem = _misfit(name, exc)
            else:
                return function(**values)
        return _function(self._calls, _answer)(problem)

    # For providers

    def openai(self, *, responses: bool = False) -> list[dict[str, Any]]:
        """Return the tools for OpenAI's Chat Completions, or with *responses* for Responses."""
        return [
            {"type": "function", **each} if responses else {"type": "function", "function": each}
            for each in self._schemas("parameters")
        ]

    def anthropic(self) -> list[dict[str, Any]]:
        """Return the tools for Anthropic's Messages."""
        return self._schemas("input_schema")

    def gemini(self) -> list[dict[str, Any]]:
        """Return the tools as `function_declarations` for Gemini."""
        return self._schemas("parameters")

    def _schemas(self, key: str) -> list[dict[str, Any]]:
        return [_schema(function, key) for function in self]

    # For frameworks

    def openai_agents(self) -> "list[FunctionTool]":
        """Return the tools for `Agent(tools=…)` of the OpenAI Agents SDK."""
        try:
            from agents import default_tool_error_function, function_tool  # noqa: PLC0415
        except ModuleNotFoundError as exc:
            raise _missing("openai_agents", "openai-agents") from exc

        def failure(context: Any, error: Exception) -> str:
            wrong = _misfit_in_json(self[context.tool_name], context.tool_arguments)
            return wrong or default_tool_error_function(context, error)

        return [function_tool(function, failure_error_function=failure) for function in self]

    def langchain(self) -> "list[StructuredTool]":
        """Return the tools for `create_agent(tools=…)` of LangChain and LangGraph."""
        try:
            from langchain_core.tools import StructuredTool  # noqa: PLC0415
        except ModuleNotFoundError as exc:
            raise _missing("langchain", "langchain") from exc
        is_blocking = self._calls.is_blocking
        return [
            StructuredTool.from_function(
                func=function if is_blocking else None,
                coroutine=None if is_blocking else function,
                parse_docstring=True,
                handle_validation_error=partial(_misfit_for_pydantic, function),
            )
            for function in self
        ]

    def pydantic_ai(self) -> "FunctionToolset[Any]":
        """Return the tools for `Agent(toolsets=[…])` of Pydantic AI."""
        try:
            from pydantic_ai.toolsets import FunctionToolset  # noqa: PLC0415
        except ModuleNotFoundError as exc:
            raise _missing("pydantic_ai", "pydantic-ai") from exc
        return FunctionToolset(list(self), id="orbiter-memory")


class _Tools:
    """What the tools do. Their names, types and documentation are what a model reads."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    @property
    def _handle(self) -> ScopedMemory:
        return self._calls.handle

    async def recall(self, query: str, k: int = 5) -> str:
        """Find what is remembered about a question, best first.

        Use it before you answer from memory, and to get the id of a memory.

        Args:
            query: What to look for, as a question or in key words.
            k: How many to return at most.
        """
        hits = await self._handle.recall(query, k=min(max(int(k), 1), _MAX_HITS))
        return fenced_hits(hits) if len(hits) else "Nothing is remembered about this."

    async def remember(self, text: str, tags: list[str] = []) -> str:  # noqa: B006 - never changed
        """Store something that will matter later: a preference, a decision, a lesson.

        Args:
            text: One statement that is clear by itself, with names instead of "he" or "it".
            tags: A few words to file it under.
        """
        same = await self._handle.list(query=text, limit=_MAX_HITS) if text.strip() else ()
        for item in same:
            if item.content == text:
                return f"This is remembered already, as {short_id(item.id)}."
        item = await self._handle.remember(text, tags=list(tags) or None, source=_SOURCE)
        return f"Remembered as {short_id(item.id)}."

    async def update(self, id: str, text: str) -> str:
        """Correct what a memory says. The earlier version is kept.

        Args:
            id: The id of the memory, as `recall` gave it.
            text: All that it should say from now on.
        """
        before = await find_item(self._handle, id)
        if before.memory_type == "fact":
            return "Error: this is a fact; use `know` with its key to record another value."
        item = await self._handle.update(before.id, text, source=_SOURCE)
        return f"Changed; {short_id(item.id)} has version {item.version} now."

    async def forget(self, id: str) -> str:
        """Remove a memory that is wrong or that the user wants removed; a fact with all its values.

        Args:
            id: The id of the memory, as `recall` gave it.
        """
        item = await find_item(self._handle, id)
        gone = await forget_item(self._handle, item)
        told = "Forgotten"
        if gone.key is not None:
            told = f"Ended and forgotten: the fact {gone.key} with all its values"
        if not gone.is_kept:
            return f"{told}. This store keeps nothing that could be brought back."
        return f"{told}. The user can undo it: `restore` brings back {item.id}."

    async def know(self, key: str, value: str = "") -> str:
        """Record a fact that has one value at a time, such as where the user lives.

        Another value is true from now on; the earlier ones stay known with their time.

        Args:
            key: What the fact is about, in lower case, such as `home.city`.
            value: What is true now, such as `Oslo`; nothing if nothing is true any more.
        """
        before = await self._handle.facts.get(key)
        if not value:
            await self._handle.facts.end(key, source=_SOURCE)
            told = "" if before is None else f" from now on; before, it was {before.value}"
            return f"Known: {key} has no value{told}."
        # What is private or a secret in it was not stored, and is not repeated.
        known = (await self._handle.facts.put(key, value, source=_SOURCE)).value
        if before is None or before.value == known:
            return f"Known: {key} is {known}."
        return f"Known: {key} is {known} from now on; before, it was {before.value}."


def fenced_hits(hits: "Iterable[Hit]") -> str:
    """Return what was recalled as lines that a model takes for data, each with its id."""
    entries = []
    for hit in hits:
        entry = memory_entry(hit.shown, default_trust)
        is_long = len(hit.item.content) > _LONGEST
        text = (hit.passage or entry.content)[:_LONGEST] if is_long else entry.content
        entries.append(replace(with_id(entry, short_id(hit.item.id)), content=text))
    return render(entries, mark=new_mark())


async def recalled_text(
    handle: ScopedMemory,
    question: str,
    *,
    k: int,
    min_relevance: float | None = None,
    known: Collection[str] = (),
) -> str:
    """Return at most *k* memories that answer *question*, fenced as data; `""` if none does.

    *known* are texts that the model sees anyway. With *min_relevance*, whatever reaches it counts
    as an answer.
    """
    if not k or not question.strip():
        return ""
    seen = with_shown(known)
    # More than wanted, as some may be known.
    least = asked_for_prompt(min_relevance)
    hits = await handle.recall(question, k=k + len(seen), min_relevance=least)
    answers = [hit for hit in for_prompt(hits, min_relevance) if not is_seen(hit, seen)]
    if not answers:
        return ""
    return fenced_hits(answers[:k])


def with_shown(texts: Iterable[str]) -> set[str]:
    """Return *texts*, and the memories that they show behind fences, as tools of ours answer."""
    seen = set(texts)
    for text in tuple(seen):
        for start, end in fence_spans(text):
            mark = MARK.search(text, start)
            with suppress(FenceError):  # somebody has changed it
                seen.update(
                    each.content for each in parse(text[start:end], mark=mark[0] if mark else "")
                )
    return seen


def is_seen(hit: "Hit", seen: Collection[str]) -> bool:
    """Tell whether what a hit says is among the texts that a model has *seen*."""
    return hit.item.content in seen or memory_entry(hit.shown, default_trust).content in seen


def _check_arguments(function: Callable[..., Any], values: object) -> None:
    """Raise `TypeError` or `ValueError` for what *function* cannot be called with."""
    signature = inspect.signature(function)
    if not isinstance(values, Mapping):
        first = next(iter(signature.parameters))
        raise ValueError(f'they must be an object such as {{"{first}": …}}, not {values!r}')  # noqa: TRY004 - one family
    signature.bind(**values)
    for name, value in values.items():
        _check_type(function, name, value)


def _check_type(function: Callable[..., Any], name: str, value: object) -> None:
    wanted = inspect.signature(function).parameters[name].annotation
    if wanted is int and isinstance(value, float) and value.is_integer():
        return  # JSON has one kind of number, and some models send 5.0
    if not isinstance(value, list if wanted == list[str] else wanted):
        raise ValueError(f"`{name}` must be {_TYPES[wanted]['type']}, not {value!r}")  # noqa: TRY004 - one family


def _misfit(name: str, problem: object) -> str:
    return f"Error: the arguments of `{name}` do not fit: {problem}."


def _misfit_in_json(function: Callable[..., Any], arguments: str) -> str | None:
    """Return what is wrong with the JSON that a model sent for *function*, or `None`."""
    try:
        _check_arguments(function, json.loads(arguments or "{}"))
    except (ValueError, TypeError) as exc:
        return _misfit(function.__name__, exc)
    return None


def _misfit_for_pydantic(function: Callable[..., Any], error: Any) -> str:
    """Return what is wrong with arguments for *function* that Pydantic refused with *error*."""
    first = error.errors()[0]
    name, *inside = first["loc"]
    problem: object = f"`{name}`: {first['msg']}"
    try:
        if first["type"] == "missing":
            _check_arguments(function, first["input"])
        elif not inside:
            _check_type(function, name, first["input"])
    except (ValueError, TypeError) as exc:
        problem = exc
    return _misfit(function.__name__, problem)


async def _answer(text: str) -> str:
    return text


def _answered(method: _Method) -> _Method:
    """Return *method*, but where the memory refuses, with what the model can do about it."""

    async def answer(*args: Any, **kwargs: Any) -> str:
        try:
            return await method(*args, **kwargs)
        except ItemNotFoundError as exc:
            return f"Error: no memory has the id `{exc.item_id}`; use `recall` to find it."
        except (MemoryError, ValueError) as exc:
            return f"Error: {exc}."

    return answer


def _function(calls: Calls, work: _Method, method: _Method | None = None) -> Callable[..., Any]:
    """Return a function that does *work*, and blocks if the handle does.

    It has the name, types and documentation of *method*.
    """

    def blocking(*args: Any, **kwargs: Any) -> str:
        return calls.run(work(*args, **kwargs))

    async def awaitable(*args: Any, **kwargs: Any) -> str:
        return await calls.wait(work(*args, **kwargs))

    function: Any = blocking if calls.is_blocking else awaitable
    if method is not None:
        function.__name__ = function.__qualname__ = method.__name__
        function.__doc__ = inspect.getdoc(method)
        function.__annotations__ = get_type_hints(method)
        function.__signature__ = inspect.signature(method, eval_str=True)
    return cast("Callable[..., Any]", function)


def _schema(function: Callable[..., Any], key: str) -> dict[str, Any]:
    """Return a tool as providers describe it; *key* is what they call the schema."""
    said, _, arguments = str(function.__doc__).partition("\n\nArgs:\n")
    about = dict(_ARGUMENT.findall(arguments))
    parameters = inspect.signature(function).parameters
    schema = {
        "type": "object",
        "properties": {
            name: {**_TYPES[each.annotation], "description": about[name]}
            for name, each in parameters.items()
        },
        "required": [name for name, each in parameters.items() if each.default is each.empty],
    }
    return {"name": function.__name__, "description": " ".join(said.split()), key: schema}


def _missing(method: str, extra: str) -> ModuleNotFoundError:
    return missing_extra(f"`MemoryTools.{method}` needs its framework", extra)
