"""What crosses the wire between a server and its clients: operations, values and errors.

One table says which call is which request; the server routes by it, its OpenAPI document is
written from it, and the client has its methods from it. Nothing here knows HTTP's machinery.
"""

from orbiter.memory.wire._table import (
    OPERATIONS,
    REQUIRED,
    REST_ONLY,
    TARGET_PARAMS,
    Operation,
    Param,
    Target,
    operations_of,
)
from orbiter.memory.wire.calls import Call, parse, write_call
from orbiter.memory.wire.codecs import Codec
from orbiter.memory.wire.problems import dump_error, load_error, problem
from orbiter.memory.wire.result_codecs import EVENT

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
