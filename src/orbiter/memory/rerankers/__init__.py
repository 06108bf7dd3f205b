"""Rerankers: they read question and text together; `OnnxReranker` offline, `HttpReranker` by HTTP.

Importing them loads no model and no library; each does so when it is first needed.
"""

from orbiter.memory.model.protocols import Reranker
from orbiter.memory.rerankers.http_reranker import HttpReranker
from orbiter.memory.rerankers.onnx_reranker import OnnxReranker

__all__ = ["HttpReranker", "OnnxReranker", "Reranker", "open_reranker"]


def open_reranker(place: str, *, api_key: str | None = None) -> Reranker:
    """Return the reranker at *place*: the URL of a service, or the path of an ONNX file or folder.

    `?model=` at the end of a URL names a model; only a service takes *api_key*.
    """
    if not place.startswith(("http://", "https://")):
        return OnnxReranker(place)
    url, _, model = place.partition("?model=")
    return HttpReranker(url, model=model or None, api_key=api_key)
