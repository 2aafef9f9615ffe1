"""Seconds that a grid of 24 runs takes in one process, over those that it takes on all cores.

Start-up of the processes is in it. One grid is of the clock alone, one of LeNet-5 on the digits. That one is held
against one process with as many threads for its gradients as a run usually has, and against one with a single thread.
"""

from collections.abc import Iterator
from functools import partial
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from experiments.bench.alternation import alternate
from experiments.bench.report import Entry, Ratio
from experiments.bench.settings import Settings
from experiments.config import Config
from experiments.grid import filled
from experiments.sweeps import sweep
from models.cores import cores

RUNS = 24


def grids(quick: bool) -> dict[str, Config]:
    """The grids, each of 24 seeds; some two seconds a run, or a tenth of one where it is to be quick."""
    cluster = {"workers": 16, "compute": {"law": "exponential", "mean": 0.01}}
    every: dict[str, Any] = {"cluster": cluster, "algorithm": "async_ps", "sweep": {"seed": list(range(RUNS))}}
    clock = {"task": {"model": "timing"}, "stop": {"updates": 3000 if quick else 150_000}}
    learning = {
        "task": {"model": "lenet5", "dataset": "digits", "batch": 32},
        "stop": {"updates": 40 if quick else 600},
        "device": "cpu",
    }
    return {
        "clock alone": filled({"name": "clock", **every, **clock}),
        "LeNet-5 on digits": filled({"name": "learning", **every, **learning}),
    }


def measure(settings: Settings) -> Iterator[Entry]:
    """An entry for each grid and each way in which one process can carry it out."""
    rounds = 1 if settings.quick else 2
    for name, config in grids(settings.quick).items():
        turns = {"all": partial(sweep_speed, config, cores()), "one process": partial(sweep_speed, config, 1)}
        if config.task.model != "timing":
            turns["one process, one thread"] = partial(sweep_speed, config.model_copy(update={"threads": 1}), 1)
        speeds = alternate(turns, rounds)
        for other in (turn for turn in turns if turn != "all"):
            yield Entry(
                measure="sweep",
                case={"grid": name, "all cores against": other},
                ratio=Ratio.between(speeds["all"], speeds[other]),
                rates={f"{cores()} cores (runs/s)": median(speeds["all"]), f"{other} (runs/s)": median(speeds[other])},
            )


def sweep_speed(config: Config, jobs: int) -> float:
    """Runs per second of a grid in so many processes."""
    with TemporaryDirectory() as out:
        start = perf_counter()
        sweep(config, out, jobs=jobs)
        return RUNS / (perf_counter() - start)
