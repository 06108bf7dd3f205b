"""The familiar import path: items, metadata, status, queries, protocols and errors in one place."""

from orbiter.memory.errors import *  # noqa: F403 - this module is its sources' names
from orbiter.memory.errors import __all__ as _errors
from orbiter.memory.model.items import *  # noqa: F403
from orbiter.memory.model.items import __all__ as _items
from orbiter.memory.model.protocols import *  # noqa: F403
from orbiter.memory.model.protocols import __all__ as _protocols
from orbiter.memory.model.query import *  # noqa: F403
from orbiter.memory.model.query import __all__ as _query
from orbiter.memory.model.serialization import *  # noqa: F403
from orbiter.memory.model.serialization import __all__ as _serialization

__all__ = sorted({*_errors, *_items, *_protocols, *_query, *_serialization})  # noqa: PLE0605 - a list of strings
