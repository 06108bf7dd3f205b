"""Moving memories in and out, for programs without `async`; the async functions do the work."""

from orbiter.memory import transfer
from orbiter.memory.sync._facade import blocking_function

__all__ = ["export_file", "import_file", "migrate"]

export_file = blocking_function(transfer.export_file)
import_file = blocking_function(transfer.import_file)
migrate = blocking_function(transfer.migrate)
