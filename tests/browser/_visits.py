"""A page in the browser, and everything that goes wrong on it."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from playwright.async_api import Browser, ConsoleMessage, Dialog, Page, Request, Response, expect

__all__ = ["Visit", "open_visit"]

_CHECKS = Path(__file__).with_name("checks.js").read_text()
_BUSY = ".htmx-request, .htmx-swapping, .htmx-settling"
_DESK = {"width": 1280, "height": 860}
_PHONE = {"width": 390, "height": 844}


class Visit:
    """A page, which notes what it should not have done."""

    def __init__(self, page: Page, site: str) -> None:
        self.page = page
        self.site = site
        self.troubles: list[str] = []
        self.allowed: set[int] = set()
        """Statuses that a test expects, such as 404 of a page that is not there."""
        self.answer: bool | None = None
        """What to say to a question of the page; one that nobody expects is trouble."""
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self._note(f"a script failed: {error}"))
        page.on("request", self._asked)
        page.on("requestfailed", self._failed)
        page.on("response", self._answered)
        page.on("dialog", self._met)
        page.on("popup", lambda other: self._note(f"opened {other.url}"))
        page.on("download", lambda file: self._note(f"downloaded {file.url}"))

    def _note(self, what: str) -> None:
        self.troubles.append(f"{urlsplit(self.page.url).path}: {what[:400]}")

    def _heard(self, message: ConsoleMessage) -> None:
        of_status = ("Failed to load resource", "Response Status Error Code")
        is_status = any(each in message.text for each in of_status) and bool(self.allowed)
        # Of a search that the next letter has replaced. Any other request without an answer has a
        # line of its own beside the first of these.
        is_replaced = message.text.startswith(("htmx:afterRequest,", "htmx:sendAbort,"))
        if message.type == "error" and not is_status and not is_replaced:
            self._note(f"the console says: {message.text}")

    def _asked(self, request: Request) -> None:
        # A picture in the style sheet or the page itself is no request to anybody.
        if not request.url.startswith((f"{self.site}/", "data:image/svg+xml")):
            self._note(f"asks elsewhere: {request.url}")

    def _failed(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # of a stream, by leaving the page
            self._note(f"no answer from {request.url}: {request.failure}")

    def _answered(self, response: Response) -> None:
        if response.status >= 400 and response.status not in self.allowed:
            self._note(f"{response.status} from {response.request.method} {response.url}")

    async def _met(self, dialog: Dialog) -> None:
        if self.answer is None:
            self._note(f"asks in a window: {dialog.message}")
        if self.answer:
            await dialog.accept()
        else:
            await dialog.dismiss()

    async def go(self, path: str) -> None:
        """Open another page of the site, and wait until it is quiet."""
        await self.page.goto(f"{self.site}{path}")
        await self.settled()

    async def settled(self) -> None:
        """Wait until no part of the page is being asked for."""
        # No function that the page evaluates again and again: its policy forbids that.
        await expect(self.page.locator(_BUSY)).to_have_count(0)

    async def check(self) -> None:
        """Note what is wrong with the page as it is: its frame, names, colours and width."""
        for problem in json.loads(await self.page.evaluate(_CHECKS)):
            self._note(problem)


@asynccontextmanager
async def open_visit(
    browser: Browser,
    url: str,
    *,
    dark: bool = False,
    phone: bool = False,
    key: str | None = None,
    allowed: set[int] | None = None,
) -> AsyncIterator[Visit]:
    """Open a page in a window of its own, with a key if one is given."""
    parts = urlsplit(url)
    site = f"{parts.scheme}://{parts.netloc}"
    context = await browser.new_context(
        color_scheme="dark" if dark else "light",
        viewport=_PHONE if phone else _DESK,  # type: ignore[arg-type]  # as it is written
        has_touch=phone,
        reduced_motion="reduce",
        http_credentials={"username": "me", "password": key, "origin": site} if key else None,
    )
    try:
        context.set_default_timeout(60_000)
        visit = Visit(await context.new_page(), site)
        visit.allowed = allowed or ({401} if key else set())  # how it learns that a key is needed
        await visit.go(url.removeprefix(site) or "/")
        yield visit
    finally:
        await context.close()
