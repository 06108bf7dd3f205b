"""Somebody at a browser, for tests of pages: what a page's own scripts do is done here."""

import re

import httpx

__all__ = ["Visitor"]


class Visitor:
    """Somebody who looks at pages, and changes things from them as a browser would."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http
        self.token = ""

    async def look(self, path: str, **asked: str) -> str:
        """Return a page that is there."""
        answer = await self.http.get(path, params=asked, headers={"Accept": "text/html"})
        assert answer.status_code == 200, answer.text
        found = re.search(r'name="orbiter-token" content="([^"]+)"', answer.text)
        self.token = found[1] if found else self.token
        return answer.text

    async def twin(self, path: str, **asked: str) -> dict[str, object]:
        """Return the JSON of a page."""
        answer = await self.http.get(f"{path}.json", params=asked)
        assert answer.status_code == 200, answer.text
        found: dict[str, object] = answer.json()
        return found

    async def send(self, path: str, asked: dict[str, str], **form: str) -> httpx.Response:
        """Send a form of the page that was looked at last."""
        if not self.token:
            await self.look("/users")
        headers = {"X-Orbiter-Token": self.token, "HX-Request": "true"}
        return await self.http.post(path, params=asked, data=form, headers=headers)
