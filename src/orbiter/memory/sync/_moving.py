"""Moving memories in and out, for programs without `async`; the async functions do the work."""

from orbiter.memory import transfer
from orbiter.memory.sync import _forms  # noqa: F401 - a form must be known before it is taken
from orbiter.memory.sync._proxies import waiting_form_of

__all__ = ["export_file", "import_file", "migrate"]

export_file = waiting_form_of(transfer.export_file)
import_file = waiting_form_of(transfer.import_file)
migrate = waiting_form_of(transfer.migrate)
