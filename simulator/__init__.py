"""laggard's engine: virtual time, and arithmetic on tensors `(ensemble, params)`."""

from simulator.algorithm import Algorithm, Role
from simulator.algorithms import ALGORITHMS, AsyncPS, Delayed, KAsync, KBatchSync, SoftSync, SyncPS
from simulator.bounds import Invalid
from simulator.cluster import Cluster
from simulator.gradients import Gradient
from simulator.milestones import Evaluate, Mileage, Stop
from simulator.network import Network
from simulator.node import Node
from simulator.outcome import Outcome
from simulator.rules import Rule
from simulator.simulation import Deadlock, simulate
from simulator.task import Task, Timing
from simulator.topology import SERVER, Star

__all__ = [
    "ALGORITHMS", "SERVER", "Algorithm", "AsyncPS", "Cluster", "Deadlock", "Delayed", "Evaluate", "Gradient",
    "Invalid", "KAsync", "KBatchSync", "Mileage", "Network", "Node", "Outcome", "Role", "Rule", "SoftSync", "Star",
    "Stop", "SyncPS", "Task", "Timing", "simulate",
]  # fmt: skip
