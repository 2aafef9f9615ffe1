"""One file per family of methods: the only code that a new method needs."""

from simulator.algorithms.asynchronous import AsyncPS, KAsync, SoftSync
from simulator.algorithms.delayed import Delayed
from simulator.algorithms.synchronous import KBatchSync, SyncPS

ALGORITHMS: dict[str, type] = {
    "sync_ps": SyncPS,
    "k_batch_sync": KBatchSync,
    "k_async": KAsync,
    "soft_sync": SoftSync,
    "async_ps": AsyncPS,
    "delayed": Delayed,
}

__all__ = ["ALGORITHMS", "AsyncPS", "Delayed", "KAsync", "KBatchSync", "SoftSync", "SyncPS"]
