"""A chat service for many users: `python examples/fastapi_app.py`, then see `/docs`.

    pip install ./models/minilm '.[local]' fastapi uvicorn          # and `openai`, for a real model

One memory for the whole process, one scope per request: what one user says, no other is told.
    curl localhost:8000/chats/1 -H "Authorization: Bearer ann-token" -d '{"text": "I like tea"}' \
        -H "Content-Type: application/json"
It remembers in `examples/fastapi_app.db`, or where `ORBITER_MEMORY_URL` says. With `OPENAI_API_KEY`
it asks a real model, at `OPENAI_BASE_URL` if that is set; without, a script answers.
"""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel

from orbiter.memory import AgentMemory, Chat, ScopedMemory

HAS_MODEL = "OPENAI_API_KEY" in os.environ
try:
    import uvicorn
    from fastapi import Depends, FastAPI, HTTPException
    from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

    if HAS_MODEL:
        from openai import AsyncOpenAI
except ModuleNotFoundError as exc:
    sys.exit(f"`{exc.name}` is missing: pip install fastapi uvicorn{' openai' * HAS_MODEL}")

file = Path(__file__).with_suffix(".db")
memory = AgentMemory(os.environ.get("ORBITER_MEMORY_URL", file))
tokens = {"ann-token": "ann", "bob-token": "bob"}  # your login takes the place of this


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with memory:
        yield


app = FastAPI(lifespan=lifespan)


def current_user(
    login: Annotated[HTTPAuthorizationCredentials, Depends(HTTPBearer())],
) -> str:
    if login.credentials not in tokens:
        raise HTTPException(401, "unknown token")
    return tokens[login.credentials]


User = Annotated[str, Depends(current_user)]


class Said(BaseModel):
    """What a user says."""

    text: str


@app.post("/chats/{chat_id}")
async def say(chat_id: str, said: Said, user: User) -> dict[str, str]:
    handle = memory.scope(user_id=user)
    chat = handle.chat(chat_id)
    await chat.add(said.text)
    reply = await (ask_model(chat) if HAS_MODEL else ask_script(handle, said.text))
    await chat.add({"role": "assistant", "content": reply})
    return {"reply": reply}


@app.get("/memories")
async def recall(query: str, user: User) -> list[str]:
    return [hit.item.content for hit in await memory.scope(user_id=user).recall(query)]


@app.delete("/me", status_code=204)
async def erase(user: User) -> None:
    await memory.erase(user_id=user)


async def ask_model(chat: Chat) -> str:
    create: Any = AsyncOpenAI().chat.completions.create
    messages = list((await chat.context(budget=4000)).messages())
    response = await create(model=os.environ.get("MODEL", "gpt-5-mini"), messages=messages)
    return str(response.choices[0].message.content)


async def ask_script(user: ScopedMemory, text: str) -> str:
    if "?" not in text:
        return "I will remember that."
    for hit in await user.recall(text, memory_type="human", min_relevance=0.05):
        if "?" not in hit.item.content:
            return f"You told me: {hit.item.content}"
    return "You have not told me yet."


if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")))
