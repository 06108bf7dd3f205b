"""Summarizers: `ExtractiveSummarizer` needs nothing, `OpenAISummarizer` a chat endpoint."""

from typing import TYPE_CHECKING

from orbiter.memory._lazy import lazy_names

if TYPE_CHECKING:
    from orbiter.memory.summarizers.extractive import ExtractiveSummarizer
    from orbiter.memory.summarizers.openai_summarizer import OpenAISummarizer

__all__ = ["ExtractiveSummarizer", "OpenAISummarizer"]

__getattr__, __dir__ = lazy_names(
    __name__, {"ExtractiveSummarizer": "extractive", "OpenAISummarizer": "openai_summarizer"}
)
