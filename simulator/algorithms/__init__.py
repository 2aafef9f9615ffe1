"""One file per family of methods: the only code that a new method needs."""

from simulator.algorithms.asynchronous import AsyncPS
from simulator.algorithms.delayed import Delayed
from simulator.algorithms.k_async import KAsync, SoftSync
from simulator.algorithms.ringmaster import Ringmaster
from simulator.algorithms.stale_synchronous import SSP
from simulator.algorithms.synchronous import KBatchSync, SyncPS

ALGORITHMS: dict[str, type] = {
    "sync_ps": SyncPS,
    "k_batch_sync": KBatchSync,
    "k_async": KAsync,
    "soft_sync": SoftSync,
    "async_ps": AsyncPS,
    "delayed": Delayed,
    "ssp": SSP,
    "ringmaster": Ringmaster,
}

__all__ = ["ALGORITHMS", "SSP", "AsyncPS", "Delayed", "KAsync", "KBatchSync", "Ringmaster", "SoftSync", "SyncPS"]
