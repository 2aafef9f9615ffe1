"""Seconds that a grid of 24 runs takes in one process, over those that it takes on all cores.

Start-up of the processes is in it. One grid is of the clock alone, one of LeNet-5 on the digits; runs in one process
have as many threads for their gradients as a run usually has.
"""

from collections.abc import Iterator
from functools import partial
from inspect import signature
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from experiments.bench.alternation import alternate
from experiments.bench.plain import cores
from experiments.bench.report import Entry, Ratio
from experiments.bench.settings import Settings
from experiments.config import Config
from experiments.grid import filled
from experiments.sweeps import sweep

RUNS = 24


class Unavailable(RuntimeError):
    """What was to be measured does not exist yet."""


def grids(quick: bool) -> dict[str, Config]:
    """The grids, each of 24 seeds; a second a run, or a tenth of one where it is to be quick."""
    cluster = {"workers": 16, "compute": {"law": "exponential", "mean": 0.01}}
    every: dict[str, Any] = {"cluster": cluster, "algorithm": "async_ps", "sweep": {"seed": list(range(RUNS))}}
    clock = {"task": {"model": "timing"}, "stop": {"updates": 3000 if quick else 30_000}}
    learning = {
        "task": {"model": "lenet5", "dataset": "digits", "batch": 32},
        "stop": {"updates": 40 if quick else 300},
        "device": "cpu",
    }
    return {
        "clock alone": filled({"name": "clock", **every, **clock}),
        "LeNet-5 on digits": filled({"name": "learning", **every, **learning}),
    }


def measure(settings: Settings) -> Iterator[Entry]:
    """An entry a grid."""
    rounds = 1 if settings.quick else 2
    for name, config in grids(settings.quick).items():
        case: dict[str, str | int] = {"grid": name, "cores": cores()}
        try:
            turns = {"all": partial(sweep_speed, config, cores()), "one": partial(sweep_speed, config, 1)}
            speeds = alternate(turns, rounds)
        except Unavailable as error:
            yield Entry(measure="sweep", case=case, note=str(error))
            continue
        yield Entry(
            measure="sweep",
            case=case,
            ratio=Ratio.between(speeds["all"], speeds["one"]),
            rates={"all cores (runs/s)": median(speeds["all"]), "one process (runs/s)": median(speeds["one"])},
        )


def sweep_speed(config: Config, jobs: int) -> float:
    """Runs per second of a grid in so many processes."""
    return RUNS / sweep_seconds(config, jobs)


def sweep_seconds(config: Config, jobs: int) -> float:
    """Seconds of wall time that a sweep takes in so many processes.

    Raises:
        Unavailable: this laggard's sweeps run in one process only.
    """
    if "jobs" not in signature(sweep).parameters:
        raise Unavailable("not available: sweeps run in one process in this version")
    with TemporaryDirectory() as out:
        start = perf_counter()
        sweep(config, out, jobs=jobs)  # type: ignore[call-arg, unused-ignore]
        return perf_counter() - start
