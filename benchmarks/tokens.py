"""How far `estimate_tokens` is from real tokenizers, by kind of text, beside characters / 4.

Errors are shares of the true count: -10 % means a tenth too few. Needs `pip install bpe-openai`.

    python -m benchmarks.tokens [--data DIR]

DIR may hold `locomo_dev.json.gz`, for real chat turns.
"""

import argparse
import gzip
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import bpe_openai
from benchmarks._texts import LANGUAGES, docstrings, made_up, sources
from benchmarks._timing import Table, exit_code

from orbiter.memory.conversation.tokens import TokenCounter, estimate_tokens

BAR = -0.10


def texts(data: Path | None) -> dict[str, Sequence[str]]:
    """Return the texts of each kind."""
    found: dict[str, Sequence[str]] = {
        "English prose": list(docstrings()),
        "Python code": list(sources()),
        **made_up(random.Random(5)),
        **{language: [text] for language, text in LANGUAGES.items()},
    }
    if data is not None:
        with gzip.open(data / "locomo_dev.json.gz", "rt", encoding="utf-8") as file:
            conversations = json.load(file)["conversations"]
        found["chat turns"] = [i["text"] for c in conversations for i in c["items"] if i["text"]]
    return found


def real_counter(name: str) -> TokenCounter:
    encoding = bpe_openai.get_encoding(name)
    return lambda text: len(encoding.encode(text, disallowed_special=()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with locomo_dev.json.gz")
    o200k, cl100k = real_counter("o200k_base"), real_counter("cl100k_base")
    title = "Estimated tokens against o200k_base and cl100k_base"
    columns = (
        "kind",
        "tokens",
        "est/o200k",
        "est/cl100k",
        "chars4/o200k",
        "chars4/cl100k",
        "worst",
    )
    table = Table(title, *columns)
    for kind, some in texts(parser.parse_args().data).items():
        new = [o200k(text) for text in some]
        old = [cl100k(text) for text in some]
        ours = [estimate_tokens(text) for text in some]
        quarters = [len(text) // 4 for text in some]
        error = sum(ours) / sum(new) - 1
        table.add(
            kind,
            f"{sum(new):,}",
            f"{error:+.0%}",
            f"{sum(ours) / sum(old) - 1:+.0%}",
            f"{sum(quarters) / sum(new) - 1:+.0%}",
            f"{sum(quarters) / sum(old) - 1:+.0%}",
            f"{min(mine / true for mine, true in zip(ours, new, strict=True)) - 1:+.0%}",
            measured=f"{error:+.1%}",
            # No estimate without a vocabulary can be near in every language; those are shown.
            bar="" if kind in LANGUAGES else f">= {BAR:.0%}",
            ok=None if kind in LANGUAGES else error >= BAR,
        )
    return exit_code(table)


if __name__ == "__main__":
    sys.exit(main())
