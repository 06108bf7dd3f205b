"""A chat service for many users: `python examples/fastapi_app.py`, then see `/docs`.

One memory for the whole process, one scope per request: what one user says, no other is told.
    curl localhost:8000/chats/1 -H "Authorization: Bearer ann-token" -d '{"text": "I like tea"}' \
        -H "Content-Type: application/json"
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import uvicorn
from fastapi import Depends, FastAPI, HTTPException
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from openai import AsyncOpenAI
from pydantic import BaseModel

from orbiter.memory import AgentMemory

memory = AgentMemory(os.environ.get("ORBITER_MEMORY_URL", "service.db"))
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
    chat = memory.scope(user_id=user).chat(chat_id)
    await chat.add(said.text)
    context = await chat.context(budget=4000)
    reply = await answer(list(context.messages()))
    await chat.add({"role": "assistant", "content": reply})
    return {"reply": reply}


@app.get("/memories")
async def recall(query: str, user: User) -> list[str]:
    return [hit.item.content for hit in await memory.scope(user_id=user).recall(query)]


@app.delete("/me", status_code=204)
async def erase(user: User) -> None:
    await memory.erase(user_id=user)


async def answer(messages: list[dict[str, Any]]) -> str:
    if "OPENAI_API_KEY" in os.environ:  # and OPENAI_BASE_URL, for another server of that API
        create: Any = AsyncOpenAI().chat.completions.create
        response = await create(model=os.environ.get("MODEL", "gpt-5-mini"), messages=messages)
        return str(response.choices[0].message.content)
    return "\n".join(["I was sent:", *(str(each["content"]) for each in messages)])


if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")))
