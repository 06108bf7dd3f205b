"""What mkdocs is told beside mkdocs.yml: the navigation, and files that lie outside of `docs`.

The navigation is read from the tables of index.md, so that a page stands in one list only. A page
of a folder stands in the index of that folder.
"""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
ROOT = DOCS.parent
GROUPS = ("Start", "Guides", "Integrations", "Operate", "Reference", "Under the hood")
OUTSIDE = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
}
"""Pages at the root of the repository, and what they are called on the site."""

_GROUP = re.compile(r"^## (.+)$")
_CELL_CODE = re.compile(r"`[^`\n]*\\\|[^`\n]*`")
_HEADING = re.compile(r"^# (.+)$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\(([\w./-]+\.md)\)")


def navigation(docs: Path = DOCS) -> list[dict[str, Any]]:
    """Return groups, and titles with pages in each, as mkdocs wants them."""
    groups: list[dict[str, Any]] = [{"Home": "index.md"}]
    pages: list[dict[str, Any]] | None = None
    for line in (docs / "index.md").read_text(encoding="utf-8").splitlines():
        if found := _GROUP.match(line):
            pages = [] if found[1] in GROUPS else None
            if pages is not None:
                groups.append({found[1]: pages})
        elif pages is not None and line.startswith("| ["):
            title, page = _LINK.findall(line.split("|")[1])[0]
            pages += [{title: page}] if "/" not in page else _folder(docs, page)
    titles = {page: title.partition(".")[0].capitalize() for title, page in OUTSIDE.items()}
    groups[-1][GROUPS[-1]] += [{title: page} for page, title in titles.items()]
    return groups


def _folder(docs: Path, index: str) -> list[dict[str, Any]]:
    """Return the index of a folder and the pages that its tables list, each once."""
    folder = Path(index).parent
    found: dict[str, str] = {}
    for line in (docs / index).read_text(encoding="utf-8").splitlines():
        for title, page in _LINK.findall(line.split("|")[1]) if line.startswith("| [") else ():
            if "/" not in page:
                found.setdefault(f"{folder}/{page}", title)
    return [{"Overview": index}, *({title: page} for page, title in found.items())]


def on_config(config: Any) -> Any:
    """Put the navigation in."""
    config["nav"] = navigation()
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages and programs that lie outside of `docs`."""
    # Only the environment that builds the site has it.
    File = import_module("mkdocs.structure.files").File  # noqa: N806 - a class

    for name, page in OUTSIDE.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text.replace("](docs/", "](")))
    for path in sorted((ROOT / "examples").glob("*.py")):
        files.append(File.generated(config, f"examples/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links that leave `docs` to the copies on the site, and title pages by their heading."""
    heading = _HEADING.search(markdown)  # the navigation has a shorter name
    if heading and not page.is_homepage:
        page.meta.setdefault("title", heading[1])
    # In code in a table, mkdocs wants a bare bar; where Markdown is read as it is, it is `\|`.
    markdown = _CELL_CODE.sub(lambda code: code[0].replace("\\|", "|"), markdown)
    up = "../" * page.file.src_uri.count("/")
    for name, copy in OUTSIDE.items():
        before = name if page.file.src_uri in OUTSIDE.values() else f"{up}../{name}"
        markdown = markdown.replace(f"]({before}", f"]({up}{copy}")
    return markdown.replace(f"]({up}../examples/", f"]({up}examples/")
