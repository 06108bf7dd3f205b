"""Work that several tasks ask for at the same time, done once."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

_T = TypeVar("_T")

Waiting = dict[tuple[asyncio.AbstractEventLoop, str], asyncio.Future[_T]]
"""What is being worked out, by loop, because a future belongs to one; an entry lives as long as
its call."""


async def shared(
    texts: Sequence[str],
    ask: Callable[[list[str]], Awaitable[dict[str, _T]]],
    *,
    under_way: Waiting[_T],
) -> dict[str, _T]:
    """Return what *ask* gives for each of *texts*, all different, by text.

    What another task is asking for already is waited for instead, and its error is ours; if that
    task is cancelled, the rest is asked for here.
    """
    loop = asyncio.get_running_loop()
    known: dict[str, _T] = {}
    missing = list(texts)
    while missing:
        ours = [text for text in missing if (loop, text) not in under_way]
        theirs = {text: under_way[loop, text] for text in missing if (loop, text) in under_way}
        if ours:
            known |= await _lead(ours, ask, under_way)
        for text, future in theirs.items():
            await asyncio.wait([future])
            if not future.cancelled():
                known[text] = future.result()
        # Whose caller was cancelled is left over, and is ours now.
        missing = [text for text in missing if text not in known]
    return known


async def _lead(
    texts: list[str],
    ask: Callable[[list[str]], Awaitable[dict[str, _T]]],
    under_way: Waiting[_T],
) -> dict[str, _T]:
    """Ask, and have whoever asks for *texts* meanwhile wait for the answer."""
    loop = asyncio.get_running_loop()
    futures: dict[str, asyncio.Future[_T]] = {text: loop.create_future() for text in texts}
    under_way |= {(loop, text): future for text, future in futures.items()}
    try:
        found = await ask(texts)
        for text, future in futures.items():
            future.set_result(found[text])
    except Exception as exc:  # whatever it is, those who share the call get it, too
        for future in futures.values():
            future.set_exception(exc)
            future.exception()  # nobody need be waiting
        raise
    finally:
        for text, future in futures.items():
            future.cancel()  # does nothing unless this call was cancelled
            del under_way[loop, text]
    return found
