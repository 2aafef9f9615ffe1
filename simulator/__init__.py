"""laggard's engine: virtual time, and arithmetic on tensors `(ensemble, params)`."""

from simulator.algorithm import Algorithm, Role
from simulator.algorithms import (
    ADPSGD,
    ALGORITHMS,
    DPSGD,
    EASGD,
    SGP,
    SSP,
    AllReduce,
    AsyncPS,
    Delayed,
    DiLoCo,
    GPipe,
    KAsync,
    KBatchSync,
    LocalSGD,
    Naive,
    OneForwardOneBackward,
    PipeDream,
    PipeDream2BW,
    Ringmaster,
    SoftSync,
    SyncPS,
    SyncReplicas,
)
from simulator.bounds import Invalid
from simulator.cluster import Cluster
from simulator.deadlock import Deadlock
from simulator.gradients import Gradient
from simulator.messages import Record
from simulator.milestones import Evaluate, Mileage, Stop
from simulator.network import Network
from simulator.node import Node
from simulator.outcome import Outcome
from simulator.rules import Rule
from simulator.simulation import simulate
from simulator.task import Task, Timing
from simulator.topology import SERVER, Star

__all__ = [
    "ADPSGD", "ALGORITHMS", "DPSGD", "EASGD", "SERVER", "SGP", "SSP", "Algorithm", "AllReduce", "AsyncPS", "Cluster",
    "Deadlock", "Delayed", "DiLoCo", "Evaluate", "GPipe", "Gradient", "Invalid", "KAsync", "KBatchSync", "LocalSGD",
    "Mileage", "Naive", "Network", "Node", "OneForwardOneBackward", "Outcome", "PipeDream", "PipeDream2BW",
    "Record", "Ringmaster", "Role", "Rule", "SoftSync", "Star", "Stop", "SyncPS", "SyncReplicas", "Task", "Timing",
    "simulate",
]  # fmt: skip
