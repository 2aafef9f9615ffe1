"""One run, from its config to its result."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from experiments import record, store
from experiments.build import arguments
from experiments.config import Config
from experiments.errors import ConfigError
from experiments.grid import runs
from experiments.store import Result
from simulator import Mileage, simulate

if TYPE_CHECKING:
    from simulator.simulation import Simulation


class Observer(Protocol):
    """What looks at a simulation by itself."""

    def observe(self, simulation: "Simulation") -> None:
        """This is what it looks at; it has not begun."""
        ...


Progress = Callable[[Config], AbstractContextManager[Callable[[Mileage], None] | Observer | None]]
"""Opened around a simulation; what it yields is told the mileage after every update if it can be called, and shown the
simulation if it can observe."""


def run(config: Config, out: str | Path = "results", force: bool = False, progress: Progress | None = None) -> Result:
    """Simulate one run, its whole ensemble at once, and keep it under `<out>/<name>/<run id>`.

    A run that is there and intact is not simulated again, unless `force` asks for it.

    Raises:
        ConfigError: the config expands to several runs, or its pieces do not fit together.
        Deadlock: nothing could happen any more in the simulation.
        DataMissingError: the data set is not there.
        OSError: the folder cannot be written.
    """
    planned = runs(config)
    if len(planned) > 1:
        raise ConfigError("sweep", f"expands to {len(planned)} runs: use `laggard sweep`, or fix the swept keys")
    return simulated(planned[0].config, planned[0].labels, out, force, progress)


def simulated(
    config: Config, labels: Mapping[str, Any], out: str | Path, force: bool, progress: Progress | None
) -> Result:
    """The result of a run's config, kept or new, under its `labels`."""
    finished = None if force else store.kept(config, out)
    if finished is not None:
        return replace(finished, labels=labels)
    path, own = store.folder(config, out), record.begin(config, out)
    try:
        start = perf_counter()
        given = arguments(config)
        with progress(config) if progress else nullcontext() as watch:
            told = watch if callable(watch) else None
            outcome = simulate(**given, watch=told, observe=getattr(watch, "observe", None))
        record.finish(config, own, outcome, given["task"], perf_counter() - start)
        finished = None if force else store.kept(config, out)  # another process may have been faster
        if finished is None:
            finished = replace(store.load_result(own), path=path, given=config)
            record.publish(own, path)
    finally:
        rmtree(own, ignore_errors=True)
    return replace(finished, labels=labels)
