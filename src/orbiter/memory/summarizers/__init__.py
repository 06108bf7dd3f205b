"""Summarizers: `ExtractiveSummarizer` needs nothing, `OpenAISummarizer` a chat endpoint."""

from typing import TYPE_CHECKING

from orbiter.memory._lazy import lazy_names

if TYPE_CHECKING:
    from orbiter.memory.summarizers.extractive import ExtractiveSummarizer
    from orbiter.memory.summarizers.openai_summarizer import OpenAISummarizer

__all__ = ["ExtractiveSummarizer", "OpenAISummarizer"]

_load_name, __dir__ = lazy_names(
    __name__, {"ExtractiveSummarizer": "extractive", "OpenAISummarizer": "openai_summarizer"}
)
if not TYPE_CHECKING:  # a type checker would take any name for one of these
    __getattr__ = _load_name
