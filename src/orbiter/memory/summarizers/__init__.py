"""Summarizers: `extractive` needs nothing, `openai` any OpenAI-compatible endpoint."""
