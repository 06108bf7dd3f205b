"""The documentation as a site: navigation, generated pages, and a build without warnings."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docs.build_methods import CLASSES, members
from tests.browser import _chromium

from docs import build_methods, build_rest, site_hooks
from orbiter.memory.server.api.openapi import document

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def _pages(entries: list[dict[str, Any]]) -> Iterator[str]:
    for entry in entries:
        for value in entry.values():
            if isinstance(value, str):
                yield value
            else:
                yield from _pages(value)


def test_the_navigation_has_six_groups_and_every_page_once() -> None:
    nav = site_hooks.navigation()

    assert [next(iter(group)) for group in nav] == ["Home", *site_hooks.GROUPS]
    found = sorted(_pages(nav))
    there = {path.relative_to(DOCS).as_posix() for path in DOCS.glob("**/*.md")}
    assert found == sorted({*there, *site_hooks.OUTSIDE.values()})


def test_the_page_of_methods_is_current() -> None:
    assert build_methods.PAGE.read_text() == build_methods.page(), (
        "run: .venv/bin/python docs/build_methods.py"
    )


def test_the_page_of_methods_has_every_method() -> None:
    text = build_methods.PAGE.read_text()

    for cls in CLASSES:
        for name, _ in members(cls):
            assert f"### `{cls.__name__}.{name}`" in text
    assert "| `min_relevance` | `float` | `0.005` |" in text


def test_the_page_of_rest_calls_is_current() -> None:
    assert build_rest.PAGE.read_text() == build_rest.page(), (
        "run: .venv/bin/python docs/build_rest.py"
    )
    for path, verbs in document()["paths"].items():
        for verb in verbs:
            assert f"### `{verb.upper()} {path}`" in build_rest.PAGE.read_text()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site, with the environment that `make docs` makes."""
    done = subprocess.run(["make", "docs"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return ROOT / "build/site"


@pytest.mark.full
def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = sorted(site.glob("**/*.html"))
    assert len(pages) > 60

    for page in pages:
        for tag in re.findall(r"<(?:script|link|img|source|iframe)\b[^>]*>", page.read_text()):
            assert "//" not in re.sub(r'(alt|title)="[^"]*"', "", tag), f"{page.name}: {tag}"
    for sheet in site.glob("**/*.css"):
        assert not re.findall(r"url\(['\"]?(?:https?:)?//", sheet.read_text()), sheet.name


@pytest.mark.full
def test_a_page_is_titled_as_its_heading_says(site: Path) -> None:
    page = (site / "operate/index.html").read_text()

    assert "<title>Deploy and operate - orbiter-memory</title>" in page


@pytest.mark.full
def test_types_in_tables_have_bars_without_backslashes(site: Path) -> None:
    page = (site / "methods.html").read_text()

    assert "<code>MemoryStore | None</code>" in page
    assert "\\|" not in page


@pytest.mark.full
@pytest.mark.browser
def test_a_browser_that_reads_the_site_asks_nobody_else(site: Path) -> None:
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    program = _chromium.program()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page()
        requested: list[str] = []
        page.on("request", lambda request: requested.append(request.url))
        for name in ("index.html", "methods.html", "integrations/langgraph.html"):
            page.goto(f"file://{site}/{name}")
            assert page.locator("h1").count() == 1
        browser.close()

    assert [url for url in requested if not url.startswith(("file:", "data:", "blob:"))] == []
