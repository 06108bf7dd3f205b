"""The documentation is written in short sentences: none has more than 25 words."""

import pytest
from benchmarks.sentences import LIMIT, ROOT, long_sentences, pages, sentences

ALLOWED = {"docs/benchmarks.md": 5}
"""How many long sentences a page may have: none, but figures come with their conditions."""


@pytest.mark.parametrize("name", sorted(set(pages()) - {"CHANGELOG.md"}))
def test_a_page_has_no_long_sentence(name: str) -> None:
    found = long_sentences(ROOT / name)

    assert len(found) <= ALLOWED.get(name, 0), f"more than {LIMIT} words: {found}"


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
