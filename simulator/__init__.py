"""laggard's engine: virtual time, and arithmetic on tensors `(ensemble, params)`.

Whatever a config names is imported without torch: modules import it where they compute.
"""

from laggard.simulator.algorithms import (
    ADPSGD,
    ALGORITHMS,
    DPSGD,
    EASGD,
    P3,
    SGP,
    SSP,
    AllReduce,
    AsyncPipelines,
    AsyncPS,
    Delayed,
    DiLoCo,
    Downpour,
    GPipe,
    KAsync,
    KBatchSync,
    KSync,
    LocalSGD,
    Naive,
    OneForwardOneBackward,
    OverlapADPSGD,
    OverlapSGP,
    PipeDream,
    PipeDream2BW,
    PriorityAllReduce,
    Ringmaster,
    SoftSync,
    SyncPS,
    SyncReplicas,
)
from laggard.simulator.algorithms.base import Algorithm, Role
from laggard.simulator.engine import simulate
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.engine.stopping import Evaluate, Stop
from laggard.simulator.errors import Deadlock, InvalidSettingError
from laggard.simulator.learning.gradients import Gradient
from laggard.simulator.learning.rules import Rule
from laggard.simulator.learning.task import Task, Timing
from laggard.simulator.network.config import Network
from laggard.simulator.network.topology import SERVER, Star
from laggard.simulator.recording.counters import RunProgress
from laggard.simulator.recording.messages import Record
from laggard.simulator.recording.outcome import Outcome

__all__ = [
    "ADPSGD",
    "ALGORITHMS",
    "DPSGD",
    "EASGD",
    "P3",
    "SERVER",
    "SGP",
    "SSP",
    "Algorithm",
    "AllReduce",
    "AsyncPS",
    "AsyncPipelines",
    "Cluster",
    "Deadlock",
    "Delayed",
    "DiLoCo",
    "Downpour",
    "Evaluate",
    "GPipe",
    "Gradient",
    "InvalidSettingError",
    "KAsync",
    "KBatchSync",
    "KSync",
    "LocalSGD",
    "Naive",
    "Network",
    "Node",
    "OneForwardOneBackward",
    "Outcome",
    "OverlapADPSGD",
    "OverlapSGP",
    "PipeDream",
    "PipeDream2BW",
    "PriorityAllReduce",
    "Record",
    "Ringmaster",
    "Role",
    "Rule",
    "RunProgress",
    "SoftSync",
    "Star",
    "Stop",
    "SyncPS",
    "SyncReplicas",
    "Task",
    "Timing",
    "simulate",
]  # fmt: skip
