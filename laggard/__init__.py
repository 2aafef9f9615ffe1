"""laggard: a discrete-event simulator of distributed SGD; the names of daily use, imported when
first needed.

Example:
    >>> from laggard import AsyncPS, Cluster, Rule, Stop, simulate
    >>> outcome = simulate(Cluster(workers=4), AsyncPS(Rule()), stop=Stop(updates=100))
    >>> outcome.updates["staleness"][-10:].mean()
    np.float64(3.0)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from laggard.experiments.config.errors import ConfigError
    from laggard.experiments.config.load import load
    from laggard.experiments.results.measures import summary
    from laggard.experiments.results.result import Result
    from laggard.experiments.results.results import Results, load_results
    from laggard.experiments.results.store import load_result
    from laggard.experiments.running.run import run
    from laggard.experiments.running.sweep import sweep
    from laggard.models import LeNet5, Quadratic, Supervised
    from laggard.simulator import (
        SERVER,
        SGP,
        Algorithm,
        AllReduce,
        AsyncPS,
        Cluster,
        Deadlock,
        Delayed,
        Evaluate,
        Gradient,
        InvalidSettingError,
        Network,
        Node,
        Outcome,
        Record,
        Rule,
        RunProgress,
        Star,
        Stop,
        SyncPS,
        Task,
        Timing,
        simulate,
    )

__version__ = "0.2.0"

MODULES = {
    ".experiments.config.errors": ("ConfigError",),
    ".experiments.config.load": ("load",),
    ".experiments.results.measures": ("summary",),
    ".experiments.results.result": ("Result",),
    ".experiments.results.results": ("Results", "load_results"),
    ".experiments.results.store": ("load_result",),
    ".experiments.running.run": ("run",),
    ".experiments.running.sweep": ("sweep",),
    ".models": ("LeNet5", "Quadratic", "Supervised"),
    ".simulator": (
        "SERVER", "SGP", "Algorithm", "AllReduce", "AsyncPS", "Cluster", "Deadlock", "Delayed", "Evaluate", "Gradient",
        "InvalidSettingError", "Network", "Node", "Outcome", "Record", "Rule", "RunProgress", "Star", "Stop", "SyncPS",
        "Task", "Timing", "simulate",
    ),
}  # fmt: skip
"""Which module defines each name: `import laggard` alone imports neither torch nor pandas."""

__all__ = [
    "SERVER", "SGP", "Algorithm", "AllReduce", "AsyncPS", "Cluster", "ConfigError", "Deadlock", "Delayed",
    "Evaluate", "Gradient", "InvalidSettingError", "LeNet5", "Network", "Node", "Outcome", "Quadratic", "Record",
    "Result", "Results", "Rule", "RunProgress", "Star", "Stop", "Supervised", "SyncPS", "Task", "Timing", "load",
    "load_result", "load_results", "run", "simulate", "summary", "sweep",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    for module, names in MODULES.items():
        if name in names:
            return getattr(import_module(module, "laggard"), name)
    raise AttributeError(f"module 'laggard' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
