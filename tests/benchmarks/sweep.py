"""A grid of 24 runs on all cores, over one process; start-up of the processes is in it."""

from collections.abc import Iterator
from functools import partial
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import torch

from laggard.experiments.config.config import Config
from laggard.experiments.config.grid import fill_swept_keys
from laggard.experiments.running.sweep import sweep as run_all
from laggard.models.backends.threads import cores
from tests.benchmarks.alternation import Row, alternate

RUNS = 24


def grids(quick: bool) -> dict[str, Config]:
    """The grids, each of 24 seeds; some two seconds a run, or a tenth of one where it is to be
    quick.
    """
    cluster = {"workers": 16, "compute": {"law": "exponential", "mean": 0.01}}
    every: dict[str, Any] = {
        "cluster": cluster,
        "algorithm": "async_ps",
        "sweep": {"seed": list(range(RUNS))},
    }
    clock = {"task": {"model": "timing"}, "stop": {"updates": 3000 if quick else 150_000}}
    learning = {
        "task": {"model": "lenet5", "dataset": "digits", "batch": 32},
        "stop": {"updates": 40 if quick else 600},
        "device": "cpu",
    }
    return {
        "clock alone": fill_swept_keys({"name": "clock", **every, **clock}),
        "LeNet-5 on digits": fill_swept_keys({"name": "learning", **every, **learning}),
    }


def sweep(quick: bool, device: torch.device) -> Iterator[Row]:
    """A row for each grid and each way in which one process can carry it out: with several threads,
    and with one.
    """
    for name, config in grids(quick).items():
        turns = {"all": partial(speed, config, cores()), "one process": partial(speed, config, 1)}
        if config.task.model != "timing":
            turns["one process, one thread"] = partial(
                speed, config.model_copy(update={"threads": 1}), 1
            )
        speeds = alternate(turns, 1 if quick else 2)
        for other in (turn for turn in turns if turn != "all"):
            yield Row.between(
                f"sweep on {cores()} cores / {other}", name, speeds["all"], speeds[other], "runs/s"
            )


def speed(config: Config, jobs: int) -> float:
    """Runs per second of a grid in so many processes."""
    with TemporaryDirectory() as out:
        start = perf_counter()
        run_all(config, out, jobs=jobs)
        return RUNS / (perf_counter() - start)
