"""What crosses the wire between a server and its clients: operations, values and errors.

A method says itself which request it is, and its signature what that takes and returns. The server
routes by it, its OpenAPI document is written from it, and the client sends by it. Nothing here
knows HTTP's machinery.
"""

from typing import TYPE_CHECKING

from orbiter.memory._lazy import lazy_names

if TYPE_CHECKING:
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
    from orbiter.memory.wire.results import EVENT
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

# A client makes a few calls, and need not wait for the classes of all others.
_load_name, __dir__ = lazy_names(
    __name__,
    {
        "EVENT": "results",
        "OPERATIONS": "table",
        "REQUIRED": "operations",
        "REST_ONLY": "table",
        "TARGET_PARAMS": "operations",
        "Call": "calls",
        "Codec": "codecs",
        "Operation": "operations",
        "Param": "operations",
        "Target": "operations",
        "dump_error": "problems",
        "load_error": "problems",
        "operations_of": "operations",
        "parse": "calls",
        "problem": "problems",
        "write_call": "calls",
    },
)
if not TYPE_CHECKING:  # a type checker would take any name for one of these
    __getattr__ = _load_name
