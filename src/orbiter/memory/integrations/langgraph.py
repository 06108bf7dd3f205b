"""LangGraph: `OrbiterSaver` keeps the checkpoints of graphs, `OrbiterStore` their long-term memory.

Both stand on the handle of a scope, async or of `orbiter.memory.sync`, and serve `invoke` and
`ainvoke` alike.
"""

from itertools import groupby
from typing import Any

from orbiter.memory._lazy import missing_extra

try:
    from langgraph.checkpoint.base import WRITES_IDX_MAP, BaseCheckpointSaver, CheckpointTuple
except ModuleNotFoundError as exc:
    raise missing_extra(
        "the adapters for LangGraph need langgraph-checkpoint", "langgraph"
    ) from exc

from orbiter.memory.integrations._langgraph_saver import OrbiterSaver
from orbiter.memory.integrations._langgraph_store import OrbiterStore

__all__ = ["OrbiterSaver", "OrbiterStore", "acopy_checkpoints", "copy_checkpoints"]


def copy_checkpoints(source: BaseCheckpointSaver[Any], target: BaseCheckpointSaver[Any]) -> int:
    """Copy all checkpoints and writes of a checkpointer to another one; return how many.

    Of any kind to any kind, such as from a `SqliteSaver`. Where it was cut off, calling again
    completes it.
    """
    count = 0
    for checkpoint in source.list(None):
        named = target.put(*_put_arguments(checkpoint))
        for arguments in _writes_of(checkpoint):
            target.put_writes(named, *arguments)
        count += 1
    return count


async def acopy_checkpoints(
    source: BaseCheckpointSaver[Any], target: BaseCheckpointSaver[Any]
) -> int:
    """Copy all checkpoints and writes of a checkpointer to another one; see `copy_checkpoints`."""
    count = 0
    async for checkpoint in source.alist(None):
        named = await target.aput(*_put_arguments(checkpoint))
        for arguments in _writes_of(checkpoint):
            await target.aput_writes(named, *arguments)
        count += 1
    return count


def _put_arguments(checkpoint: CheckpointTuple) -> tuple[Any, ...]:
    chosen = dict(checkpoint.config["configurable"])
    parent = checkpoint.parent_config
    chosen["checkpoint_id"] = parent["configurable"]["checkpoint_id"] if parent else None
    versions = checkpoint.checkpoint["channel_versions"]
    return {"configurable": chosen}, checkpoint.checkpoint, checkpoint.metadata, versions


def _writes_of(checkpoint: CheckpointTuple) -> list[tuple[Any, ...]]:
    """Return the writes of each task in turn, with paths that keep the tasks in this order."""
    arguments = []
    tasks = groupby(checkpoint.pending_writes or [], key=lambda write: write[0])
    for position, (task_id, writes) in enumerate(tasks):
        pairs = [(channel, value) for _, channel, value in writes]
        # Those of errors and interrupts have places of their own, and are not counted.
        for is_special in (True, False):
            part = [pair for pair in pairs if (pair[0] in WRITES_IDX_MAP) is is_special]
            arguments.append((part, task_id, f"~copied:{position:06}"))
    return arguments
