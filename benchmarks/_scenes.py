"""The scenes that the recall model learns from, as memories; and another model for them."""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orbiter_memory_minilm
from benchmarks._conversations import Asked, Conversation

from orbiter.memory.model.items import AIMemory, HumanMemory, MemoryItem, MemoryMetadata

SCENES = Path(__file__).parents[1] / "models" / "minilm" / "scenes"
UNSEEN = SCENES / "unseen"
"""Scenes that the model was not trained on, to judge it by."""
START = datetime(2026, 5, 1, 9, tzinfo=UTC)
_FILES = {
    "MODEL": "recall-minilm-int8.onnx",
    "DETAILS": "details.npy",
    "READER": "reader.onnx",
}


def scenes(writers: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every scene of these writers, or of all that are unseen, with a name."""
    for writer in writers or sorted(path.stem for path in UNSEEN.glob("*.jsonl")):
        path = UNSEEN / f"{writer}.jsonl"
        path = path if path.exists() else SCENES / path.name
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(filter(str.strip, lines), 1):
            yield f"{writer}/{number}", json.loads(line)


def told(name: str, scene: dict[str, Any]) -> Conversation:
    """Return a scene as its user told it: notes a day apart, or messages an hour apart."""
    items: list[MemoryItem] = []
    for number, note in enumerate(scene["notes"], 1):
        if isinstance(note, str):
            at, whose = START + timedelta(days=number), MemoryMetadata(user_id=name)
            items.append(MemoryItem(content=note, metadata=whose, created_at=at))
            continue
        at, speaker = START + timedelta(hours=number), note["speaker"]
        extra = {} if speaker in ("user", "assistant") else {"speaker": speaker}
        whose = MemoryMetadata(user_id=name, session_id="1", extra=extra)
        said_by = AIMemory if speaker == "assistant" else HumanMemory
        items.append(said_by(content=note["text"], metadata=whose, created_at=at))
    questions = [
        Asked(str(number), asked["q"], asked["kind"], frozenset(map(str, asked["answers"])), None)
        for number, asked in enumerate(scene["questions"])
    ]
    ids = {item.id: str(number) for number, item in enumerate(items)}
    return Conversation(name, items, questions, ids)


def use_model(folder: Path | None) -> None:
    """Have `LocalEmbeddings` and its reader take their files from a folder, if one is given."""
    if folder is None:
        return
    for attribute, file in _FILES.items():
        setattr(orbiter_memory_minilm, attribute, folder / file)
    # Vectors that are kept by the model's name are not to be taken for those of this one.
    orbiter_memory_minilm.NAME = f"{orbiter_memory_minilm.NAME} in {folder}"
