"""Extraction of facts from conversations, as drafts that a review accepts or discards.

Nothing here is in the way of a write: messages are stored first, and read again when there is time.
"""

from orbiter.memory.extraction._extractor import Extractor, ProposedFact
from orbiter.memory.extraction._openai_extractor import OpenAIExtractor
from orbiter.memory.extraction._orchestrator import LongTermMemory, MemoryOrchestrator
from orbiter.memory.extraction._queue import ExtractionReport, FailedJob
from orbiter.memory.model.derived import ExtractionMemory

__all__ = [
    "ExtractionMemory",
    "ExtractionReport",
    "Extractor",
    "FailedJob",
    "LongTermMemory",
    "MemoryOrchestrator",
    "OpenAIExtractor",
    "ProposedFact",
]
