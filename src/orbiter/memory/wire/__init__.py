"""What crosses the wire between a server and its clients: operations, values and errors.

One table says which call is which request; the server routes by it, its OpenAPI document is
written from it, and the client has its methods from it. Nothing here knows HTTP's machinery.
"""

from orbiter.memory.wire._answers import EVENT
from orbiter.memory.wire._calls import Call, parse, write_call
from orbiter.memory.wire._codecs import Codec
from orbiter.memory.wire._operations import REQUIRED, Operation, Param, Target
from orbiter.memory.wire._problems import dump_error, load_error, problem
from orbiter.memory.wire._table import OPERATIONS, REST_ONLY, TARGET_PARAMS, operations_of

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
