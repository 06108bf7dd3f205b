"""LangGraph: `OrbiterSaver` keeps the checkpoints of graphs, `OrbiterStore` their long-term memory.

Both stand on the handle of a scope, async or of `orbiter.memory.sync`, and serve `invoke` and
`ainvoke` alike.
"""

try:
    import langgraph.checkpoint.base
    import langgraph.store.base  # noqa: F401 - both are of one distribution
except ModuleNotFoundError as exc:
    raise ModuleNotFoundError(
        "the adapters for LangGraph need langgraph-checkpoint: "
        "pip install 'orbiter-memory[langgraph]'"
    ) from exc

from orbiter.memory.integrations._langgraph_saver import OrbiterSaver
from orbiter.memory.integrations._langgraph_store import OrbiterStore

__all__ = ["OrbiterSaver", "OrbiterStore"]
