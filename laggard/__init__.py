"""laggard: a discrete-event simulator of distributed SGD.

The names of daily use and all methods are here; each is imported when it is first needed.

Example:
    >>> from laggard import AsyncPS, Cluster, Rule, Stop, simulate
    >>> outcome = simulate(Cluster(workers=4), AsyncPS(Rule()), stop=Stop(updates=100))
    >>> outcome.updates["staleness"][-10:].mean()
    np.float64(3.0)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # `name as name` exports a name to type checkers
    from laggard.experiments.config.errors import ConfigError as ConfigError
    from laggard.experiments.config.load import load as load
    from laggard.experiments.playground import explore as explore
    from laggard.experiments.results.measures import summary as summary
    from laggard.experiments.results.result import Result as Result
    from laggard.experiments.results.result import load_result as load_result
    from laggard.experiments.results.results import Results as Results
    from laggard.experiments.results.results import load_results as load_results
    from laggard.experiments.running.run import run as run
    from laggard.experiments.running.sweep import sweep as sweep
    from laggard.models import Dataset as Dataset
    from laggard.models import LeNet5 as LeNet5
    from laggard.models import Quadratic as Quadratic
    from laggard.models import Supervised as Supervised
    from laggard.simulator import *  # noqa: F403

__version__ = "0.2.0"

MODULES = {
    ".experiments.config.errors": ("ConfigError",),
    ".experiments.config.load": ("load",),
    ".experiments.playground": ("explore",),
    ".experiments.results.measures": ("summary",),
    ".experiments.results.result": ("Result", "load_result"),
    ".experiments.results.results": ("Results", "load_results"),
    ".experiments.running.run": ("run",),
    ".experiments.running.sweep": ("sweep",),
    ".models": ("Dataset", "LeNet5", "Quadratic", "Supervised"),
}
"""The names of each module but `laggard.simulator`; `import laggard` imports none of them."""


def __getattr__(name: str) -> Any:
    for module, names in MODULES.items():
        if name in names:
            return getattr(import_module(module, "laggard"), name)
    if not name.startswith("_") and name in _simulator_names():
        return getattr(import_module(".simulator", "laggard"), name)
    raise AttributeError(f"module 'laggard' has no attribute {name!r}")


def __dir__() -> list[str]:
    names = {name for names in MODULES.values() for name in names}
    return sorted({*globals(), *names, *_simulator_names()})


def _simulator_names() -> list[str]:
    """The public names of `laggard.simulator`, with every method."""
    names: list[str] = import_module(".simulator", "laggard").__all__
    return names
