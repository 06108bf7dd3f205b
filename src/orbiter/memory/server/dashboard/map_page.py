"""The map: memories as points, those that mean the same together, coloured by who, what and when.

The page itself is quick; its points are made when it asks for them, off the event loop, and kept
for whoever asks again while nothing has changed.
"""

import asyncio
from collections import OrderedDict
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from weakref import WeakKeyDictionary

from starlette.responses import JSONResponse, Response

from orbiter.memory.agent import AgentMemory
from orbiter.memory.auth import KeyStore
from orbiter.memory.model.query import Query
from orbiter.memory.server.api.job_files import folder_for
from orbiter.memory.server.dashboard.map_points import MAX_POINTS, Drawn, Places, draw, has_vectors
from orbiter.memory.server.dashboard.page import Ask, Data, Pages

__all__ = ["can_draw", "note_erasure", "pages"]

pages = Pages()

_MAX_KEPT = 8
_KEPT_FOR = 60.0
"""Seconds until a map is drawn again even if it looks unchanged: an edit leaves no other mark."""


@pages.page("/map", "map.html", title="Map")
async def show(ask: Ask) -> Data:
    """Give what the page says before its points are there; the twin has them, too."""
    data: Data = {
        "most": MAX_POINTS,
        "can_draw": can_draw(),
        "by_meaning": await has_vectors(ask.handle),
        "total": (await ask.handle.stats()).items,
    }
    if ask.request.url.path.endswith(".json"):
        data["drawn"] = await _drawn(ask) if can_draw() else None
        return data
    data["listed"] = await _drawn(ask) if can_draw() and ask.text("as") == "list" else None
    return data


@pages.part("GET", "/ui/map/points")
async def points(ask: Ask) -> Response:
    """Give the points as columns, which is half the size of rows and quick to read."""
    drawn = await _drawn(ask) if can_draw() else Drawn()
    groups = [[each.name, each.x, each.y, each.count] for each in drawn.groups]
    header = {"total": drawn.total, "by": drawn.by, "waiting": drawn.waiting, "groups": groups}
    return await asyncio.to_thread(JSONResponse, header | drawn.points)


@pages.part("GET", "/ui/map/groups", "parts/map_groups.html")
async def groups(ask: Ask) -> Data:
    """Give the groups as a list, for whoever reads rather than looks."""
    return {"listed": await _drawn(ask) if can_draw() else Drawn()}


def can_draw() -> bool:
    """Tell whether places can be computed at all."""
    return find_spec("numpy") is not None


_Key = tuple[object, ...]
_Maps = OrderedDict[_Key, tuple[float, "asyncio.Future[Drawn]"]]
_kept: WeakKeyDictionary[AgentMemory, _Maps] = WeakKeyDictionary()
"""The maps of each memory, for several servers may run in one process."""
_places: WeakKeyDictionary[AgentMemory, Places] = WeakKeyDictionary()
"""Where the points of each memory stand, which holds longer than a map."""


async def _drawn(ask: Ask) -> Drawn:
    """Return the map of the page's scope: one that is there, or being made, or a new one."""
    handle = ask.handle
    total = (await handle.stats()).items
    newest = await handle.list(limit=1)
    scope = tuple(Query(metadata=handle.scope).wanted.items())
    key: _Key = (scope, newest[0].id if newest else "", total)
    kept = _kept.setdefault(ask.server.memory, OrderedDict())
    places, now = await _places_of(ask.server.memory), monotonic()
    entry = kept.get(key)
    if entry is None or entry[0] < now:
        drawing = draw(handle, total=total, places=places)
        entry = kept[key] = (now + _KEPT_FOR, asyncio.ensure_future(drawing))
        while len(kept) > _MAX_KEPT:
            kept.popitem(last=False)
    try:
        return await asyncio.shield(entry[1])  # whoever leaves takes it from nobody else
    except BaseException:  # of the drawing, or of whoever left: only the first is forgotten
        if entry[1].done():
            kept.pop(key, None)
        raise


async def note_erasure(memory: AgentMemory, keys: KeyStore | None = None) -> None:
    """Keep no map, and no file of places, from before somebody was erased."""
    _kept.pop(memory, None)
    await asyncio.to_thread((await _places_of(memory)).note_erasure)
    if (old := _map_file(memory, keys)) is not None:  # where the first servers kept it
        await asyncio.to_thread(old.unlink, missing_ok=True)


def _map_file(memory: AgentMemory, keys: KeyStore | None) -> Path | None:
    jobs = folder_for(memory, keys)
    return None if jobs is None else jobs.with_name(f"{jobs.stem}.map.json")


async def _places_of(memory: AgentMemory) -> Places:
    """Return the places of the served memory, with those that a file beside its store keeps."""
    places = _places.get(memory)
    if places is None:
        # Also if the keys are elsewhere: an erasure by another process removes it there.
        loaded = await asyncio.to_thread(Places, _map_file(memory, None))
        places = _places.setdefault(memory, loaded)
    return places
