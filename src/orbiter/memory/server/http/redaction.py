"""What a key of somebody's is not told: where the store is, and what else this computer holds.

Whoever runs the server reads it in the log. An administrator of everyone's, who could look at the
store itself, is told all of it.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from orbiter.memory.auth import Principal
from orbiter.memory.model.reports import Erasure
from orbiter.memory.wire import dump_error
from orbiter.memory.wire.traceback_location import place_of

__all__ = ["problem_for", "report_for"]

_LOG = logging.getLogger("orbiter.memory.server")
_FAILED = "the store, or what it needs, failed; try again later, or ask whoever runs the server"
_FILE = "a file of this store"
_LEFT = "not all of it is sure to be gone; whoever runs the server finds in its log what to do"


def problem_for(principal: Principal | None, error: BaseException) -> tuple[int, dict[str, Any]]:
    """Return the status and the problem that tell *principal* of *error*."""
    status, problem = dump_error(error)
    is_fault = status >= HTTPStatus.INTERNAL_SERVER_ERROR and status != HTTPStatus.NOT_IMPLEMENTED
    if not is_fault or not _is_held(principal):
        return status, problem
    _LOG.error("the store failed: %s", place_of(error))
    kept = {name: value for name, value in problem.items() if name != "attributes"}
    return status, {**kept, "detail": _FAILED}


def report_for(principal: Principal | None, done: Erasure) -> Erasure:
    """Return what *principal* is told of an erasure: as much, without the names of files."""
    if not _is_held(principal):
        return done
    _log(done.problems)
    return replace(done, files=(_FILE,) * len(done.files), problems=(_LEFT,) * len(done.problems))


def _is_held(principal: Principal | None) -> bool:
    """Tell whether *principal* may know of some memories only, or has not shown a key yet."""
    return principal is None or principal.is_bound


def _log(problems: Sequence[str]) -> None:
    for each in problems:  # which hold no word of what was erased
        _LOG.error("an erasure left something: %s", each)
