"""Experiments: configs, runs, sweeps and results; the face of laggard for people and notebooks."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.errors import ConfigError
    from experiments.loading import load
    from experiments.results import Results, load_results
    from experiments.runs import run
    from experiments.store import Result, load_result
    from experiments.sweeps import sweep
    from experiments.tables import summary

__all__ = ["ConfigError", "Result", "Results", "load", "load_result", "load_results", "run", "summary", "sweep"]

HOMES = {
    "ConfigError": "errors",
    "Result": "store",
    "Results": "results",
    "load": "loading",
    "load_result": "store",
    "load_results": "results",
    "run": "runs",
    "summary": "tables",
    "sweep": "sweeps",
}


def __getattr__(name: str) -> Any:
    """Import torch and the rest only when they are needed: `laggard --help` answers at once."""
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{HOMES[name]}"), name)
