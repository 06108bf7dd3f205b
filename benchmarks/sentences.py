"""Finds long sentences in the documentation: `python -m benchmarks.sentences [--over 25] [PAGE…]`.

Counted are the words of prose, lists and cells of tables. Code, headings, comments and HTML are not
prose; a link counts by its text, and code in a sentence is one word. A row of links (`a · b`) is
no sentence.
"""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["LIMIT", "ROOT", "long_sentences", "pages", "sentences"]

ROOT = Path(__file__).parents[1]
LIMIT = 25
_FENCE = re.compile(r"^( *)(```|~~~).*?^\1\2", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_TAG = re.compile(r"<[^>]+>")
_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_END = re.compile(r"(?<=[.!?])[\"')\]*_]*\s+(?=\S)| · ")
_MARK = re.compile(r"^\s*(?:[-*+]|\d+\.)\s+")
_WORD = re.compile(r"\w[\w'’.,/%-]*")


def _paragraphs(text: str) -> Iterator[str]:
    """Yield what belongs together: a paragraph, an entry of a list, a cell of a table."""
    kept: list[str] = []
    for line in [*text.splitlines(), ""]:
        is_own = line.startswith(("#", "|", ">")) or _MARK.match(line) or not line.strip()
        if is_own and kept:
            yield " ".join(kept)
            kept = []
        if line.startswith("|"):
            yield from line.split("|")
        elif line.strip() and not line.startswith("#"):
            kept.append(_MARK.sub("", line).strip("> "))


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a page in Markdown; code stands in them as one word."""
    prose = _COMMENT.sub("", _FENCE.sub("\n", text))
    prose = _LINK.sub(r"\1", _CODE.sub("code", _TAG.sub("", prose)))
    for paragraph in _paragraphs(prose.replace("\\|", "/")):
        yield from (each.strip() for each in _END.split(paragraph) if each.strip())


def pages() -> list[str]:
    """Return the names of all pages, as paths from the root of the repository."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    return [path.relative_to(ROOT).as_posix() for path in found]


def long_sentences(path: Path, limit: int = LIMIT) -> list[tuple[int, str]]:
    """Return the sentences of a page with more than *limit* words, the longest first."""
    counted = [(len(_WORD.findall(each)), each) for each in sentences(path.read_text("utf-8"))]
    return sorted((one for one in counted if one[0] > limit), reverse=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="*", type=Path)
    parser.add_argument("--over", type=int, default=LIMIT, metavar="WORDS")
    asked = parser.parse_args()
    if asked.pages:
        for path in asked.pages:
            for count, sentence in long_sentences(path, asked.over):
                print(f"{path}: {count} words: {sentence}")
        return
    rows = []
    for page in pages():
        found = long_sentences(ROOT / page, asked.over)
        rows.append((len(found), found[0][0] if found else 0, page))
    for count, longest, page in sorted(rows, reverse=True):
        print(f"{count:5} over {asked.over} words, longest {longest:3}  {page}")


if __name__ == "__main__":
    main()
