"""Moving memories in and out, for programs without `async`; the async functions do the work."""

from orbiter.memory import transfer
from orbiter.memory.sync._facade import waiting_form_of

__all__ = ["export_file", "import_file", "migrate"]

export_file = waiting_form_of(transfer.export_file)
import_file = waiting_form_of(transfer.import_file)
migrate = waiting_form_of(transfer.migrate)
