"""How long runs will take and how much memory they need: from a config alone, from a run's
beginning, of a sweep.
"""

import heapq
import json
import math
import os
import resource
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from timeit import timeit
from typing import TYPE_CHECKING, Any, NamedTuple

from laggard.experiments.config.config import Config
from laggard.experiments.config.datasets import sizes_of
from laggard.experiments.config.grid import RunSpec, runs
from laggard.experiments.results.result import find_run
from laggard.experiments.running.jobs import check
from laggard.simulator import Evaluate, RunProgress, Stop, Task, simulate

if TYPE_CHECKING:
    from torch import Tensor

BRIEF = 10.0
"""Approximate seconds of work below which starting worker processes does not pay."""
QUICK = 0.1
"""Seconds within which a model is evaluated so quickly that all of an ensemble may be."""
START_UP, WRITING = 3.0, 0.15
"""Seconds that a worker process takes to import torch, and that a run's files take."""
ROW = 130
"""Bytes that a gradient takes in memory until its run's tables are written."""
MULTIPLICATIONS, CYCLE, UPDATE = 5e9, 3e-5, 1e-4
"""Of a core, a second; and seconds of a worker's cycle on the clock, and of an update where
something is learnt.
"""


class Forecast(NamedTuple):
    """What a run is expected to take: seconds of wall time, and bytes of the process that simulates
    it.
    """

    seconds: float
    memory: float


def rough_gradients(spec: RunSpec) -> float:
    """Gradients of each member, to within a factor of ten or so, from a run's config alone."""
    stop, task = spec.config.stop, spec.config.task
    known = sizes_of(task.dataset) if hasattr(task, "dataset") else None
    batch, epoch = (
        getattr(task, "batch", 32),
        known.samples if known else getattr(task, "epoch", 60_000),
    )
    counts = [(stop.epochs or 0) * epoch / batch, stop.updates, stop.gradients]
    if stop.time:
        counts.append(
            stop.time
            * spec.config.cluster.workers
            / max(spec.config.build_cluster().compute.mean, 1e-9)
        )
    return float(min(filter(None, counts), default=1))


def rough_seconds(spec: RunSpec) -> float:
    """Seconds that a run takes, to within a factor of ten or so, from its config alone; nothing is
    run or read.
    """
    task, members = spec.config.task, len(spec.members)
    work = (
        3 * getattr(task, "batch", 32) * sum(layer.work for layer in task.layers())
        if task.learns
        else 0.0
    )
    return float(
        rough_gradients(spec) * (CYCLE + task.learns * UPDATE + members * work / MULTIPLICATIONS)
    )


class Evaluated(NamedTuple):
    """A task whose evaluations, of so many seconds each, have been measured once: they cost nothing
    from now on.
    """

    task: Any
    measures: Mapping[str, Any]
    seconds: float

    def __getattr__(self, name: str) -> Any:
        return getattr(self.task, name)

    def evaluate(self, weights: "Tensor") -> Mapping[str, Any]:
        return {name: value.expand(len(weights)) for name, value in self.measures.items()}


def forecast(
    spec: RunSpec, seconds: float = 0.5, known: dict[str, Evaluated] | None = None
) -> Forecast:
    """What a run will take, from running the first of it for so many `seconds` and from one
    evaluation.

    A run that may stop at an accuracy is taken to go on to its other limits. Evaluations in `known`
    are not measured.
    """
    start, known = perf_counter(), {} if known is None else known
    config, given = spec.config, spec.arguments()
    task = given["task"]
    models: Tensor = task.start(given["learning_seeds"])
    key = repr((len(models), {**config.task.model_dump(), "batch": None}))
    measures = known[key].measures if key in known else task.evaluate(models[:1])
    built = perf_counter() - start
    evaluation = known[key].seconds if key in known else _evaluation(task, models)
    given["task"] = known[key] = Evaluated(task, measures, evaluation)
    probe, began, rest = StopAfter(given["stop"], seconds), perf_counter(), 0.0
    try:
        simulate(**{**given, "evaluate": Evaluate(every_updates=1e15)}, watch=probe)
    except ProbeFinished:
        rest = probe.remaining()
    ran = perf_counter() - began
    end = probe.end()
    times = evaluations(given["evaluate"], end) * (
        config.cluster.workers if config.evaluate.nodes else 1
    )
    seconds = built + ran + rest + WRITING + times * evaluation
    return Forecast(seconds, (probe.memory or resident_bytes()) + ROW * end.gradients)


def _evaluation(task: Task, models: "Tensor") -> float:
    """Seconds that an evaluation takes: of all models where that is quick, or else of one, times
    their number.
    """
    one = timeit(lambda: task.evaluate(models[:1]), number=1)
    return one * len(models) if one > QUICK else timeit(lambda: task.evaluate(models), number=1)


class ProbeFinished(Exception):
    """The probe has run for long enough."""


class StopAfter:
    """Measures the speed of a run's first seconds; the first quarter of them is warm-up."""

    def __init__(self, stop: Stop, seconds: float) -> None:
        self._stop, self._seconds = stop, seconds
        # moments, and the share of the run that was behind it
        self._seen: list[tuple[float, float]] = []
        self._progress = RunProgress(0.0, 0.0, 0, 0.0, 0)
        self.memory = 0.0

    def __call__(self, progress: RunProgress) -> None:
        """Record the progress of the run; raises `ProbeFinished` once the time is over."""
        self._progress = progress
        self._seen.append((perf_counter(), self._share(progress)))
        (start, first), (now, share) = self._seen[0], self._seen[-1]
        # where an update takes longer, the next is waited for
        if now - start >= self._seconds and share > first:
            self.memory = resident_bytes()
            raise ProbeFinished

    def remaining(self) -> float:
        """Seconds until the end at the last measured speed."""
        (start, first), (now, share) = self._seen[0], self._seen[-1]
        warm = (
            at for at in self._seen if at[0] - start >= self._seconds / 4 and first < at[1] < share
        )
        then, before = next(warm, self._seen[0])
        return (1 - share) * (now - then) / (share - before) if share > before else math.inf

    def end(self) -> RunProgress:
        """The expected progress at the end of the run."""
        share = max(self._share(self._progress), 1e-12)
        time, updates, samples, epochs, gradients = (
            axis / min(share, 1.0) for axis in self._progress
        )
        return RunProgress(time, updates, round(samples), epochs, round(gradients))

    def _share(self, progress: RunProgress) -> float:
        limits: dict[str, Any] = {
            key: getattr(self._stop, key) for key in ("epochs", "updates", "gradients", "time")
        }
        return float(
            max(
                (getattr(progress, key) / limit for key, limit in limits.items() if limit),
                default=0.0,
            )
        )


def evaluations(evaluate: Evaluate, end: RunProgress) -> float:
    """The number of evaluations of a run that ends there."""
    axes = {"every_epochs": end.epochs, "every_updates": end.updates, "every_seconds": end.time}
    return 1 + max(
        1.0, *(at / float(getattr(evaluate, axis) or math.inf) for axis, at in axes.items())
    )


def makespan(seconds: Sequence[float], jobs: int) -> float:
    """The time at which the last run ends, if each starts, the longest first, as soon as one of
    `jobs` is free.

    Source: Graham (1969), SIAM Journal on Applied Mathematics 17, longest processing time first.

    Example:
        >>> makespan([2.0, 3.0, 4.0, 1.0], jobs=2)
        5.0
    """
    free = [0.0] * jobs
    for each in sorted(seconds, reverse=True):
        heapq.heapreplace(free, free[0] + each)
    return max(free)


def resident_bytes() -> float:
    """Bytes of memory that this process has now, or its maximum where the system reports only
    that.
    """
    table = Path("/proc/self/statm")
    if table.is_file():
        return float(table.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * (
        1 if sys.platform == "darwin" else 1024
    )


def jobs_for(missing: Sequence[RunSpec], backend: str = "loky") -> int:
    """The default number of runs at once."""
    if not missing:
        return 1
    import torch

    from laggard.models.backends.threads import cores

    first = missing[0].config
    on_gpu = first.device != "cpu" and hasattr(first.task, "dataset") and torch.cuda.is_available()
    if backend == "loky" and (
        len(missing) < 2 or on_gpu or sum(map(rough_seconds, missing)) < BRIEF
    ):
        return 1
    return min(max(1, cores() // (first.threads or 1)), len(missing))


PROBING = 10.0
"""Seconds that all forecasts of a plan may take, without reading data."""


class SweepPlan(NamedTuple):
    """The runs of a sweep, the number simulated at once, and the folder of their results.

    Attributes:
        runs: each with its forecast, or with None where its result exists already.
    """

    runs: list[tuple[RunSpec, Forecast | None]]
    jobs: int
    folder: Path

    @property
    def missing(self) -> list[Forecast]:
        """The forecasts of the runs without a result."""
        return [each for _, each in self.runs if each is not None]

    @property
    def seconds(self) -> float:
        """Wall time of the sweep."""
        return makespan([each.seconds for each in self.missing], self.jobs) + START_UP * (
            self.jobs > 1
        )

    @property
    def memory(self) -> float:
        """Bytes that the processes take together at most."""
        return sum(sorted((each.memory for each in self.missing), reverse=True)[: self.jobs])


def plan(
    config: Config,
    out: str | Path = "results",
    force: bool = False,
    jobs: int | None = None,
    backend: str = "loky",
) -> SweepPlan:
    """What `sweep` would do with the same arguments; runs that differ in seeds only are taken to be
    alike.

    Raises:
        ConfigError: one of the runs cannot be run.
        DataMissingError: a data set is not there.
    """
    check(backend)
    planned = runs(config)
    missing = {spec.id: spec for spec in planned if force or find_run(spec, out) is None}
    jobs = max(1, min(jobs or jobs_for(list(missing.values()), backend), len(missing)))
    kinds = {_run_kind(spec.config): spec for spec in missing.values()}
    seconds = min(0.5, PROBING / max(1, len(kinds)))
    alone = {} if jobs == 1 else {"threads": config.threads or 1}
    evaluated: dict[str, Evaluated] = {}
    alike = {kind: RunSpec(spec.config.model_copy(update=alone)) for kind, spec in kinds.items()}
    known = {kind: forecast(spec, seconds, evaluated) for kind, spec in alike.items()}
    each = [
        (spec, known[_run_kind(spec.config)] if spec.id in missing else None) for spec in planned
    ]
    return SweepPlan(each, jobs, Path(out) / config.name)


def _run_kind(config: Config) -> str:
    """A key that is equal for runs that take equally long."""
    document: dict[str, Any] = config.as_dict()
    document["seed"] = document["cluster"]["seed"] = document["learning"]["seed"] = None
    return json.dumps(document, sort_keys=True, default=str)
