"""The dashboard is small: all of it, and what its first page loads."""

import re

import httpx
import pytest
from tests.timing import HANG

from orbiter.memory.server.dashboard.templating import HERE


def test_all_assets_are_small() -> None:
    sizes = {path: path.stat().st_size for path in (HERE / "static").rglob("*") if path.is_file()}

    assert sum(sizes.values()) <= 450 * 1024, sizes


@pytest.mark.asyncio(loop_scope="session")
async def test_the_first_page_is_small(site: str) -> None:
    async with httpx.AsyncClient(base_url=site, timeout=HANG) as client:
        page = (await client.get("/", headers={"Accept": "text/html"})).text
        # What is JSON beside it is another address of the page, and not loaded.
        linked = re.findall(r'<(?:script|link)[^>]* (?:src|href)="(/static/[^"]+)"', page)
        loaded = [await client.get(address) for address in linked]

    assert len(linked) >= 4
    assert all(each.status_code == 200 for each in loaded)
    assert len(page.encode()) + sum(len(each.content) for each in loaded) <= 120 * 1024
