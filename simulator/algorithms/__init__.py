"""One file per family of methods: the only code that a new method needs."""

from simulator.algorithms.all_reduce import AllReduce
from simulator.algorithms.asynchronous import AsyncPS
from simulator.algorithms.delayed import Delayed
from simulator.algorithms.easgd import EASGD
from simulator.algorithms.gossip import DPSGD
from simulator.algorithms.k_async import KAsync, SoftSync
from simulator.algorithms.k_batch_sync import KBatchSync
from simulator.algorithms.local_sgd import DiLoCo, LocalSGD
from simulator.algorithms.pairwise import ADPSGD
from simulator.algorithms.pipedream import PipeDream, PipeDream2BW
from simulator.algorithms.pipeline import GPipe, Naive, OneForwardOneBackward
from simulator.algorithms.push_sum import SGP
from simulator.algorithms.ringmaster import Ringmaster
from simulator.algorithms.stale_synchronous import SSP
from simulator.algorithms.sync_replicas import SyncReplicas
from simulator.algorithms.synchronous import SyncPS

ALGORITHMS: dict[str, type] = {
    # a parameter server that takes gradients of its present weights
    "sync_ps": SyncPS,
    "k_batch_sync": KBatchSync,
    "sync_replicas": SyncReplicas,
    # one that takes gradients of any age
    "async_ps": AsyncPS,
    "k_async": KAsync,
    "soft_sync": SoftSync,
    "ssp": SSP,
    "ringmaster": Ringmaster,
    "delayed": Delayed,
    # local steps between averages
    "local_sgd": LocalSGD,
    "diloco": DiLoCo,
    "easgd": EASGD,
    # no server
    "all_reduce": AllReduce,
    "dpsgd": DPSGD,
    "adpsgd": ADPSGD,
    "sgp": SGP,
    # a model cut into stages
    "naive": Naive,
    "gpipe": GPipe,
    "1f1b": OneForwardOneBackward,
    "pipedream": PipeDream,
    "pipedream_2bw": PipeDream2BW,
}

__all__ = [
    "ADPSGD", "ALGORITHMS", "DPSGD", "EASGD", "SGP", "SSP", "AllReduce", "AsyncPS", "Delayed", "DiLoCo", "GPipe",
    "KAsync", "KBatchSync", "LocalSGD", "Naive", "OneForwardOneBackward", "PipeDream", "PipeDream2BW", "Ringmaster",
    "SoftSync", "SyncPS", "SyncReplicas",
]  # fmt: skip
