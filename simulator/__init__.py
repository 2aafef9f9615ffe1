"""laggard's engine: virtual time, and arithmetic on tensors `(ensemble, params)`.

What a config can name is imported without torch: modules import it where they compute.
"""

from laggard.simulator import algorithms
from laggard.simulator.algorithms import *  # noqa: F403  (every method is named once, in its own package)
from laggard.simulator.algorithms.base import Algorithm, Role
from laggard.simulator.engine import simulate
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.engine.stopping import Evaluate, Stop
from laggard.simulator.errors import Deadlock, InvalidSettingError
from laggard.simulator.learning.compression import Compress
from laggard.simulator.learning.gradients import Gradient
from laggard.simulator.learning.rules import Rule
from laggard.simulator.learning.task import Task, Timing
from laggard.simulator.network.config import Network
from laggard.simulator.network.topology import SERVER, Star
from laggard.simulator.recording.counters import RunProgress
from laggard.simulator.recording.messages import Record
from laggard.simulator.recording.outcome import Outcome

__all__ = [
    "SERVER",
    "Algorithm",
    "Cluster",
    "Compress",
    "Deadlock",
    "Evaluate",
    "Gradient",
    "InvalidSettingError",
    "Network",
    "Node",
    "Outcome",
    "Record",
    "Role",
    "Rule",
    "RunProgress",
    "Star",
    "Stop",
    "Task",
    "Timing",
    "simulate",
]
__all__ += algorithms.__all__
