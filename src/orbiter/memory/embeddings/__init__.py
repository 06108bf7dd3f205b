"""Embedders: `LocalEmbeddings` offline, `OpenAIEmbeddings` by HTTP, `CachedEmbeddings` over any.

Importing them loads no model and no library; each does so when it is first needed.
"""

from orbiter.memory.embeddings.cached import CachedEmbeddings
from orbiter.memory.embeddings.local import LocalEmbeddings
from orbiter.memory.embeddings.openai import OpenAIEmbeddings

__all__ = ["CachedEmbeddings", "LocalEmbeddings", "OpenAIEmbeddings"]
