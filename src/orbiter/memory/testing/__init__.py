"""The public test kit: what every store must do, and fakes for clocks, models and summarizers.

```python
import pytest
from orbiter.memory._lazy import missing_extra
from orbiter.memory import ShortTermMemory
from orbiter.memory.testing import Capabilities, StoreConformance

class TestMyStore(StoreConformance):
    capabilities = Capabilities(
        order="oldest", conversation=True, lifecycle=False, durable=False, shared=False
    )

    @pytest.fixture
    def store(self):
        return ShortTermMemory()  # yours
```

Needs `pip install 'orbiter-memory[testing]'`. Nothing in the library imports it.
"""

from orbiter.memory._lazy import missing_extra

try:
    import pytest
except ModuleNotFoundError as exc:
    raise missing_extra("the test kit needs pytest", "testing") from exc

# Before the modules are imported, so that a failing contract shows both sides of its assertion.
pytest.register_assert_rewrite(f"{__name__}.contracts")

from orbiter.memory.testing.capabilities import Capabilities, Recipe  # noqa: E402
from orbiter.memory.testing.conformance import StoreConformance  # noqa: E402
from orbiter.memory.testing.contracts.isolation_contract import hostile_pairs_leak_nothing  # noqa: E402
from orbiter.memory.testing.fakes import (  # noqa: E402
    HashEmbeddings,
    ManualClock,
    ScriptedSummarizer,
)
from orbiter.memory.testing.histories import random_history  # noqa: E402

__all__ = [
    "Capabilities",
    "HashEmbeddings",
    "ManualClock",
    "Recipe",
    "ScriptedSummarizer",
    "StoreConformance",
    "hostile_pairs_leak_nothing",
    "random_history",
]
