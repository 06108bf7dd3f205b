"""Pages that are written in short sentences stay so: none has more than 25 words."""

from pathlib import Path

import pytest
from benchmarks.sentences import LIMIT, long_sentences, sentences

ROOT = Path(__file__).parents[2]
PLAIN = (
    "README.md",
    "docs/index.md",
    "docs/cookbook.md",
    "docs/glossary.md",
    "docs/quickstart.md",
    "docs/recall-stores.md",
    "docs/recall.md",
    "docs/rerankers.md",
    "docs/troubleshooting.md",
)
"""Add a page once it has no long sentence; `python -m benchmarks.sentences` lists the others."""


@pytest.mark.parametrize("name", PLAIN)
def test_a_page_has_no_long_sentence(name: str) -> None:
    assert long_sentences(ROOT / name) == [], f"more than {LIMIT} words"


def test_sentences_are_told_apart_in_prose_lists_and_tables() -> None:
    page = """\
# A heading is no sentence. Nor is code

One sentence `with code. Inside` it. Another one,
over two lines!

```python
print("No. Sentence.")
```

- An entry without an end
- [A link. With a dot](page.md) counts

| cell | Two. Sentences. |
|---|---|
"""

    assert list(sentences(page)) == [
        "One sentence code it.",
        "Another one, over two lines!",
        "An entry without an end",
        "A link.",
        "With a dot counts",
        "cell",
        "Two.",
        "Sentences.",
        "---",
        "---",
    ]
