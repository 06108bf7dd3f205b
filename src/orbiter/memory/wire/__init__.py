"""What crosses the wire between a server and its clients: operations, values and errors.

A method says itself which request it is, and its signature what that takes and returns. The server
routes by it, its OpenAPI document is written from it, and the client sends by it. Nothing here
knows HTTP's machinery.
"""

from typing import TYPE_CHECKING

from orbiter.memory._lazy import lazy_names
from orbiter.memory.wire.calls import Call, parse, write_call
from orbiter.memory.wire.codecs import Codec
from orbiter.memory.wire.operations import (
    REQUIRED,
    TARGET_PARAMS,
    Operation,
    Param,
    Target,
    operations_of,
)
from orbiter.memory.wire.problems import dump_error, load_error, problem
from orbiter.memory.wire.results import named_type

if TYPE_CHECKING:
    from orbiter.memory.wire.table import OPERATIONS, REST_ONLY

__all__ = [
    "EVENT",
    "OPERATIONS",
    "REQUIRED",
    "REST_ONLY",
    "TARGET_PARAMS",
    "Call",
    "Codec",
    "Operation",
    "Param",
    "Target",
    "dump_error",
    "load_error",
    "operations_of",
    "parse",
    "problem",
    "write_call",
]

EVENT = Codec(named_type("MemoryEvent"))
"""What happens in a memory, as a server tells it."""

# All calls are for a server: a client makes a few, and need not wait for the classes of others.
_load_name, __dir__ = lazy_names(__name__, dict.fromkeys(("OPERATIONS", "REST_ONLY"), "table"))
if not TYPE_CHECKING:  # a type checker would take any name for one of these
    __getattr__ = _load_name
