"""How long a run will take and how much memory it needs: roughly from its config, better from its beginning."""

import heapq
import math
import os
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, NoReturn

from torch import Tensor

from experiments.build import arguments, learning_seeds
from experiments.config import Config
from experiments.tasks import sizes_of
from simulator import Evaluate, Mileage, Stop, Task, simulate
from simulator.simulation import Simulation

BRIEF = 10.0
"""Seconds of work, roughly, below which the start of worker processes does not pay."""
QUICK = 0.1
"""Seconds within which a model is evaluated so quickly that all of an ensemble may be."""
START_UP, WRITING = 3.0, 0.15
"""Seconds that a worker process takes to import torch, and that a run's files take."""
ROW = 130
"""Bytes that a gradient takes in memory until its run's tables are written."""
MULTIPLICATIONS, CYCLE, UPDATE = 5e9, 3e-5, 1e-4
"""Of a core, a second; and seconds of a worker's cycle on the clock, and of an update where something is learnt."""


class Forecast(NamedTuple):
    """What a run is expected to take: seconds of wall time, and bytes of the process that simulates it."""

    seconds: float
    memory: float


def rough(config: Config) -> float:
    """Seconds that a run takes, to within a factor of ten or so, from its config alone; nothing is run or read."""
    task, members = config.task, len(learning_seeds(config))
    known = sizes_of(task.dataset) if hasattr(task, "dataset") else None
    batch, epoch = getattr(task, "batch", 32), known.samples if known else getattr(task, "epoch", 60_000)
    limits = {
        "epochs": lambda epochs: epochs * epoch / batch,
        "updates": float,
        "gradients": float,
        "time": lambda seconds: seconds * config.cluster.workers / max(config.cluster.build(batch).compute.mean, 1e-9),
    }
    gradients = min((count(value) for key, count in limits.items() if (value := getattr(config.stop, key))), default=1)
    learnt = task.model != "timing"
    work = 3 * batch * sum(layer.work for layer in task.layers()) if learnt else 0.0
    return float(gradients * (CYCLE + learnt * UPDATE + members * work / MULTIPLICATIONS))


def forecast(config: Config, seconds: float = 0.5) -> Forecast:
    """What a run will take, from running the first of it for so many `seconds` and from one evaluation.

    A run that may stop at an accuracy is taken to go on to its other limits.
    """
    start = perf_counter()
    given = arguments(config)
    task = given["task"]
    models: Tensor = task.start(given["learning_seeds"])
    task.evaluate(models[:1])
    built = perf_counter() - start
    evaluation = _evaluation(task, models)
    probe = Probe(given["stop"], seconds)
    never = Evaluate(every_updates=1e15)
    began = perf_counter()
    try:
        simulate(**{**given, "evaluate": never}, watch=probe, observe=probe.observe)
    except Enough:
        rest = probe.rest()
    else:
        rest = 0.0
    ran = perf_counter() - began
    end = probe.end()
    times = evaluations(given["evaluate"], end) * (config.cluster.workers if config.evaluate.nodes else 1)
    memory = (probe.memory or resident()) + ROW * end.gradients
    return Forecast(built + ran + rest + WRITING + times * evaluation, memory)


def _evaluation(task: Task, models: Tensor) -> float:
    """Seconds that an evaluation takes: of all models where that is quick, or else of one, times their number."""
    start = perf_counter()
    task.evaluate(models[:1])
    one = perf_counter() - start
    if one > QUICK:
        return one * len(models)
    start = perf_counter()
    task.evaluate(models)
    return perf_counter() - start


class Enough(Exception):
    """The probe has seen enough."""


class Probe:
    """Sees the first of a run, and how fast it comes nearer to its end; the first quarter of that is warming up."""

    def __init__(self, stop: Stop, seconds: float) -> None:
        self._stop, self._seconds = stop, seconds
        self._first: tuple[float, float] | None = None
        self._warm: tuple[float, float] | None = None
        self._last: tuple[float, float] = (0.0, 0.0)
        self._mileage = Mileage(0.0, 0.0, 0, 0.0, 0)
        self.memory = 0.0

    def observe(self, simulation: Simulation) -> None:
        """Nothing of it is needed but its mileage."""

    def __call__(self, mileage: Mileage) -> None:
        """Note how far the run is; raises once the time is over."""
        now = perf_counter()
        self._mileage = mileage
        self._last = (now, self._share(mileage))
        self._first = self._first or self._last
        start, share = self._first
        if self._last[1] == share:  # where an update takes longer than all the time there is, the next is waited for
            return
        if self._warm is None and now - start >= self._seconds / 4:
            self._warm = self._last
        if now - start >= self._seconds:
            self._stop_here()

    def rest(self) -> float:
        """Seconds until the end at the speed seen last."""
        (now, share), first = self._last, self._first or (0.0, 0.0)
        then, before = self._warm if self._warm and self._warm[1] < share else first
        return (1 - share) * (now - then) / (share - before) if share > before else math.inf

    def end(self) -> Mileage:
        """The mileage at the end."""
        share = max(self._share(self._mileage), 1e-12)
        time, updates, samples, epochs, gradients = (axis / min(share, 1.0) for axis in self._mileage)
        return Mileage(time, updates, round(samples), epochs, round(gradients))

    def _stop_here(self) -> NoReturn:
        self.memory = resident()
        raise Enough

    def _share(self, mileage: Mileage) -> float:
        limits: dict[str, Any] = {key: getattr(self._stop, key) for key in ("epochs", "updates", "gradients", "time")}
        return max((getattr(mileage, key) / limit for key, limit in limits.items() if limit), default=0.0)


def evaluations(evaluate: Evaluate, end: Mileage) -> float:
    """How many evaluations a run has that ends there."""
    axes = {"every_epochs": end.epochs, "every_updates": end.updates, "every_seconds": end.time}
    return 1 + max(1.0, *(reached / every for axis, reached in axes.items() if (every := getattr(evaluate, axis))))


def makespan(seconds: Sequence[float], jobs: int) -> float:
    """When the last of some runs is over, of which each is begun, the longest first, as soon as one of `jobs` is free.

    Source: Graham (1969), SIAM Journal on Applied Mathematics 17, longest processing time first.

    Example:
        >>> makespan([2.0, 3.0, 4.0, 1.0], jobs=2)
        5.0
    """
    free = [0.0] * jobs
    for each in sorted(seconds, reverse=True):
        heapq.heapreplace(free, free[0] + each)
    return max(free)


def resident() -> float:
    """Bytes of memory that this process has now, or where the system does not say that, has had at most."""
    table = Path("/proc/self/statm")
    if table.is_file():
        return float(table.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * (1 if sys.platform == "darwin" else 1024)
