"""The documentation is written in short sentences, of at most 25 words."""

import pytest
from benchmarks.sentences import LIMIT, ROOT, long_sentences, pages, sentences

FIRST = (
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
"""What newcomers read first."""


@pytest.mark.parametrize("name", FIRST)
def test_a_page_for_newcomers_has_no_long_sentence(name: str) -> None:
    assert long_sentences(ROOT / name) == [], f"more than {LIMIT} words"


def test_no_sentence_of_the_documentation_is_long() -> None:
    found = [
        (name, words, sentence)
        for name in sorted(pages())
        for words, sentence in long_sentences(ROOT / name)
    ]

    assert found == [], f"more than {LIMIT} words"


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
