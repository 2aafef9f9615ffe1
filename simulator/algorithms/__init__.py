"""One file per family of methods: the only code that a new method needs."""

from simulator.algorithms.async_ps import AsyncPS
from simulator.algorithms.delayed import Delayed
from simulator.algorithms.sync_ps import SyncPS

ALGORITHMS: dict[str, type] = {"sync_ps": SyncPS, "async_ps": AsyncPS, "delayed": Delayed}

__all__ = ["ALGORITHMS", "AsyncPS", "Delayed", "SyncPS"]
