"""The profile `openai`: `search` and `fetch`, in the shapes that ChatGPT's connectors ask for.

They read the answer from the text, as JSON, so text and structure are the same here.
"""

from typing import TYPE_CHECKING, Annotated

from mcp.types import CallToolResult
from pydantic import BaseModel

from orbiter.memory.errors import ItemNotFoundError
from orbiter.memory.mcp._rendering import cut, to_memory
from orbiter.memory.mcp._resources import item_uri
from orbiter.memory.mcp._sdk import Context
from orbiter.memory.mcp._tools import Definition, answer

if TYPE_CHECKING:
    from orbiter.memory.mcp._caller import HandleOfCall

__all__ = ["OpenAITools"]

_HITS = 10
_TITLE = 80
_LONGEST = 100_000


class Result(BaseModel):
    """One memory that was found."""

    id: str
    title: str
    url: str


class Results(BaseModel):
    """What `search` returns."""

    results: list[Result]


class Document(BaseModel):
    """What `fetch` returns."""

    id: str
    title: str
    text: str
    url: str
    metadata: dict[str, str]


class OpenAITools:
    """The two tools over the handle of each call."""

    def __init__(self, handle_of_call: "HandleOfCall") -> None:
        self._handle_of_call = handle_of_call

    def definitions(self) -> list[Definition]:
        """Return the tools."""
        return [
            Definition(
                self.search,
                "Search memory",
                (
                    "Find memories that answer a query, best first; `fetch` returns the full "
                    "text of one."
                ),
                reads=True,
                is_strict=False,
            ),
            Definition(
                self.fetch,
                "Fetch a memory",
                "Return the full text of one memory, by the id that `search` gave.",
                reads=True,
                is_strict=False,
            ),
        ]

    async def search(self, ctx: Context, query: str) -> Annotated[CallToolResult, Results]:
        """Find memories."""
        hits = await self._handle_of_call(ctx).recall(query, k=_HITS)
        results = Results(
            results=[
                Result(id=each.item.id, title=_title(each.item.content), url=item_uri(each.item.id))
                for each in hits
            ]
        )
        return answer(results, results.model_dump_json())

    async def fetch(self, ctx: Context, id: str) -> Annotated[CallToolResult, Document]:
        """Return one memory."""
        item = await self._handle_of_call(ctx).get(id)
        if item is None:
            raise ItemNotFoundError(id)
        memory = to_memory(item, most=_LONGEST)
        document = Document(
            id=item.id,
            title=_title(item.content),
            text=memory.text,
            url=item_uri(item.id),
            metadata={
                "type": memory.type,
                "created_at": memory.created_at.isoformat(timespec="seconds"),
                "source": memory.source,
                "tags": ", ".join(memory.tags),
            },
        )
        return answer(document, document.model_dump_json())


def _title(text: str) -> str:
    return cut(" ".join(text.split()), _TITLE) or "(empty)"
