"""LangChain: `OrbiterMiddleware` gives an agent a memory, `OrbiterRetriever` finds documents in it.

The middleware recalls before each call of the model and remembers after each run. Both stand on the
handle of a scope, async or of `orbiter.memory.sync`, and serve `invoke` and `ainvoke` alike.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from orbiter.memory._lazy import missing_extra

try:
    from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
    from langchain_core.callbacks import (
        AsyncCallbackManagerForRetrieverRun,
        CallbackManagerForRetrieverRun,
    )
    from langchain_core.documents import Document
    from langchain_core.messages import (
        AIMessage,
        AnyMessage,
        BaseMessage,
        HumanMessage,
        SystemMessage,
        ToolMessage,
    )
    from langchain_core.retrievers import BaseRetriever
    from langgraph.runtime import Runtime
except ModuleNotFoundError as exc:
    raise missing_extra("the adapters for LangChain need langchain", "langchain") from exc

from pydantic import PrivateAttr

from orbiter.memory.agent import ScopedMemory
from orbiter.memory.context import default_trust
from orbiter.memory.context.entries import memory_entry
from orbiter.memory.context.prompt_fence import new_mark, render
from orbiter.memory.conversation.tokens import estimate_tokens
from orbiter.memory.errors import MessageError
from orbiter.memory.integrations._calls import AnyHandle, Calls
from orbiter.memory.integrations.tools import is_seen, with_shown
from orbiter.memory.recall import Hit, RecallMode
from orbiter.memory.text.ranking import MIN_RELEVANCE, asked_for_prompt, for_prompt

__all__ = ["OrbiterMiddleware", "OrbiterRetriever"]

_State = AgentState[Any]
_Request = ModelRequest[Any]
_Response = ModelResponse[Any]


class OrbiterMiddleware(AgentMiddleware[_State, Any, Any]):
    """Memory of an agent: `create_agent(model, tools, middleware=[OrbiterMiddleware(ann)])`.

    Before the model is called, at most *k* memories that answer the newest question are added to
    the system message, fenced as data; those below *min_relevance* are not, nor by default what
    answers nothing. After a run its messages are appended to the chat of its
    thread, or to the one of *chat_id*. With *max_tokens* the model is sent the newest rounds that
    fit, in which every tool call has its result; the state of the agent is not cut.
    """

    def __init__(
        self,
        handle: AnyHandle,
        *,
        k: int = 5,
        mode: RecallMode = "hybrid",
        min_relevance: float | None = None,
        max_tokens: int | None = None,
        remember: bool = True,
        chat_id: str | None = None,
    ) -> None:
        super().__init__()
        self._calls = Calls(handle, type(self).__name__)
        self._k = k
        self._mode: RecallMode = mode
        self._min_relevance = min_relevance
        self._max_tokens = max_tokens
        self._remember = remember
        self._chat_id = chat_id

    def wrap_model_call(
        self, request: _Request, handler: Callable[[_Request], _Response]
    ) -> _Response:
        """Call the model with what is remembered."""
        return handler(self._calls.run(self._complete(request)))

    async def awrap_model_call(
        self, request: _Request, handler: Callable[[_Request], Awaitable[_Response]]
    ) -> _Response:
        """Call the model with what is remembered."""
        return await handler(await self._calls.wait(self._complete(request)))

    def after_agent(self, state: _State, runtime: Runtime[Any]) -> None:
        """Remember what was said in this run."""
        self._calls.run(self._append(state, runtime))

    async def aafter_agent(self, state: _State, runtime: Runtime[Any]) -> None:
        """Remember what was said in this run."""
        await self._calls.wait(self._append(state, runtime))

    async def _complete(self, request: _Request) -> _Request:
        messages = request.messages
        questions = [message.text for message in messages if isinstance(message, HumanMessage)]
        system = request.system_message
        if self._k and questions and questions[-1].strip():
            seen = with_shown(message.text for message in messages)
            # More than wanted, as some may be what the model sees anyway.
            hits = await self._calls.handle.recall(
                questions[-1],
                k=self._k + len(messages),
                mode=self._mode,
                min_relevance=asked_for_prompt(self._min_relevance),
            )
            answers = for_prompt(hits, self._min_relevance)
            if new := [hit for hit in answers if not is_seen(hit, seen)][: self._k]:
                system = _with_memories(system, new)
        if self._max_tokens is not None:
            messages = _newest_rounds(messages, self._max_tokens)
        return request.override(messages=messages, system_message=system)

    async def _append(self, state: _State, runtime: Runtime[Any]) -> None:
        messages = state["messages"]
        starts = [at for at, each in enumerate(messages) if isinstance(each, HumanMessage)]
        if not self._remember or not starts:
            return
        info = getattr(runtime, "execution_info", None)  # which older releases do not have
        thread_id = info.thread_id if info is not None else None
        chat = self._calls.handle.chat(self._chat_id or thread_id or "langchain")
        for message in messages[starts[-1] :]:
            # Each once: a run may be tried again, or go on without another question.
            try:
                await chat.add([message], idempotency_key=message.id)
            except MessageError as exc:  # it is this message that no store can keep
                _warn(exc)
            except Exception as exc:  # noqa: BLE001 - the model has answered, whatever is wrong here
                _warn(exc)
                return


def _warn(exc: Exception) -> None:
    log = logging.getLogger("orbiter.memory")
    log.warning("a message of a run was not remembered: %s: %s", type(exc).__name__, exc)


class OrbiterRetriever(BaseRetriever):
    """A retriever over the memories of a scope: `OrbiterRetriever(handle=ann, k=5)`.

    A document has the text of a memory, and in its metadata the id, the relevance from 0 to 1, the
    score, why it was found, when it was said, and what the memory has in `metadata.extra`. *where*
    filters as for `recall`.
    """

    handle: Any
    k: int = 10
    mode: RecallMode = "hybrid"
    min_relevance: float = MIN_RELEVANCE
    where: dict[str, Any] | None = None
    _calls: Calls = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        """Check the handle."""
        super().model_post_init(context)
        self._calls = Calls(self.handle, type(self).__name__)

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,  # noqa: ARG002 - LangChain hands it over
        k: int | None = None,
    ) -> list[Document]:
        return self._calls.run(self._documents(query, k))

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,  # noqa: ARG002
        k: int | None = None,
    ) -> list[Document]:
        return await self._calls.wait(self._documents(query, k))

    async def _documents(self, query: str, k: int | None) -> list[Document]:
        handle: ScopedMemory = self._calls.handle
        hits = await handle.recall(
            query,
            k=self.k if k is None else k,
            mode=self.mode,
            min_relevance=self.min_relevance,
            where=self.where,
        )
        return [_document(hit) for hit in hits]


def _document(hit: Hit) -> Document:
    item = hit.shown
    metadata = {
        **item.metadata.extra,
        "id": item.id,
        "relevance": hit.relevance,
        "score": hit.score,
        "why": str(hit.why),
        "created_at": item.created_at.isoformat(),
    }
    return Document(id=item.id, page_content=item.content, metadata=metadata)


def _with_memories(system: SystemMessage | None, hits: Iterable[Hit]) -> SystemMessage:
    entries = [memory_entry(hit.shown, default_trust) for hit in hits]
    block = render(entries, mark=new_mark())
    if system is None:
        return SystemMessage(block)
    if isinstance(system.content, str):
        return system.model_copy(update={"content": f"{system.content}\n\n{block}"})
    return system.model_copy(update={"content": [*system.content, {"type": "text", "text": block}]})


def _newest_rounds(messages: Sequence[AnyMessage], max_tokens: int) -> list[AnyMessage]:
    """Return the newest rounds that fit; of one that does not, the question and what fits.

    A round begins with a person's message. An answer with tool calls stays with its results, and
    the system messages before the first round stay in any case.
    """
    units: list[list[AnyMessage]] = []
    for message in messages:
        if isinstance(message, ToolMessage) and units and not _begins(units[-1]):
            units[-1].append(message)
        else:
            units.append([message])
    if _cost(units) <= max_tokens:
        return list(messages)
    starts = [at for at, unit in enumerate(units) if _begins(unit)] or [0]
    systems = [unit for unit in units[: starts[0]] if isinstance(unit[0], SystemMessage)]
    for start in starts:
        kept = [*systems, *units[start:]]
        if _cost(kept) <= max_tokens:
            return [message for unit in kept for message in unit]
    first, steps = [*systems, units[starts[-1]]], units[starts[-1] + 1 :]
    while len(steps) > 1 and _cost([*first, *steps]) > max_tokens:
        del steps[0]
    return [message for unit in (*first, *steps) for message in unit]


def _begins(unit: Sequence[BaseMessage]) -> bool:
    return isinstance(unit[0], HumanMessage)


def _cost(units: Iterable[Iterable[BaseMessage]]) -> int:
    cost = 0
    for unit in units:
        for message in unit:
            calls = message.tool_calls if isinstance(message, AIMessage) else []
            cost += 4 + estimate_tokens(message.text)
            cost += estimate_tokens(json.dumps(calls, default=str)) if calls else 0
    return cost
