"""Wall time and memory of runs: roughly from a config, or from a short trial of each kind."""

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
from laggard.experiments.config.grid import RunSpec, runs
from laggard.experiments.config.task import sizes_of
from laggard.experiments.results.result import find_run
from laggard.experiments.running.jobs import check
from laggard.simulator import Evaluate, RunProgress, Stop, Task, simulate

if TYPE_CHECKING:
    from torch import Tensor

SMALL_SWEEP_SECONDS = 10.0
"""Approximate work below which starting worker processes does not pay."""
FAST_EVALUATION_SECONDS = 0.1
"""If one model is evaluated faster than this, all of an ensemble are evaluated to time them."""
START_UP_SECONDS = 3.0
"""Time in which a worker process imports torch."""
WRITING_SECONDS = 0.15
"""Time in which a run's files are written."""
BYTES_PER_ROW = 130
"""Memory of a gradient until its run's tables are written."""
MULTIPLICATIONS_PER_SECOND = 5e9
"""Of a core."""
CYCLE_SECONDS, UPDATE_SECONDS = 3e-5, 1e-4
"""A worker's cycle on the clock, and an update where something is learnt."""
TRIAL_SECONDS, ALL_TRIALS_SECONDS = 0.5, 10.0
"""The longest trial of a run, and all trials of a sweep, without reading data."""
LIMITS = ("epochs", "updates", "gradients", "time")


class Forecast(NamedTuple):
    """The expected wall time of a run (s), and the memory of its process (bytes)."""

    seconds: float
    memory: float


def rough_gradients(spec: RunSpec) -> float:
    """Gradients of each member, to within a factor of ten or so, from a run's config alone."""
    config = spec.config
    stop, task = config.stop, config.task
    batch = getattr(task, "batch", 32)
    epoch = getattr(task, "epoch", 60_000)
    sizes = sizes_of(task.dataset) if hasattr(task, "dataset") else None
    if sizes:
        epoch = sizes.samples
    counts = [stop.updates, stop.gradients]
    if stop.epochs:
        counts.append(stop.epochs * epoch / batch)
    if stop.time:
        mean = max(config.build_cluster().compute.mean, 1e-9)
        counts.append(stop.time * config.cluster.workers / mean)
    return float(min(filter(None, counts), default=1))


def rough_seconds(spec: RunSpec) -> float:
    """Wall time, to within a factor of ten or so, from a run's config alone; nothing is run."""
    task = spec.config.task
    seconds = CYCLE_SECONDS
    if task.learns:
        layers = sum(layer.work for layer in task.layers())
        multiplications = 3 * getattr(task, "batch", 32) * layers * len(spec.members)
        seconds += UPDATE_SECONDS + multiplications / MULTIPLICATIONS_PER_SECOND
    return float(rough_gradients(spec) * seconds)


class Evaluated(NamedTuple):
    """A task whose evaluation has been timed once; from now on it returns the same measures."""

    task: Any
    measures: Mapping[str, Any]
    seconds: float

    def __getattr__(self, name: str) -> Any:
        return getattr(self.task, name)

    def evaluate(self, weights: "Tensor") -> Mapping[str, Any]:
        return {name: value.expand(len(weights)) for name, value in self.measures.items()}


def forecast(
    spec: RunSpec,
    seconds: float = TRIAL_SECONDS,
    evaluated: dict[str, Evaluated] | None = None,
) -> Forecast:
    """The expected cost of a run, from a trial of its first `seconds` and of one evaluation.

    A run that may stop at an accuracy is expected to reach its other limits.

    Args:
        evaluated: tasks that were timed already, by their settings; receives this one.
    """
    start = perf_counter()
    config, arguments = spec.config, spec.arguments()
    evaluated = {} if evaluated is None else evaluated
    models = arguments["task"].start(arguments["learning_seeds"])
    settings = {**config.task.model_dump(), "batch": None}
    key = repr((len(models), settings))
    timed = evaluated.get(key) or _time_evaluation(arguments["task"], models)
    evaluated[key] = Evaluated(arguments["task"], timed.measures, timed.seconds)
    arguments["task"] = evaluated[key]
    evaluate = arguments.pop("evaluate")
    trial = SpeedTrial(arguments["stop"], seconds)
    remaining = 0.0
    try:
        simulate(**arguments, evaluate=Evaluate(every_updates=1e15), watch=trial)
    except TrialEnded:
        remaining = trial.remaining()
    spent = perf_counter() - start
    end = trial.end()
    number = evaluations(evaluate, end)
    if config.evaluate.nodes:
        number *= config.cluster.workers
    memory = trial.memory or resident_bytes()
    return Forecast(
        spent + remaining + number * timed.seconds + WRITING_SECONDS,
        memory + BYTES_PER_ROW * end.gradients,
    )


def _time_evaluation(task: Task, models: "Tensor") -> Evaluated:
    """Time an evaluation of all models, or where that takes long of one, times their number."""
    measures = task.evaluate(models[:1])  # also warms up
    seconds = timeit(lambda: task.evaluate(models[:1]), number=1)
    if seconds > FAST_EVALUATION_SECONDS:
        return Evaluated(task, measures, seconds * len(models))
    return Evaluated(task, measures, timeit(lambda: task.evaluate(models), number=1))


class TrialEnded(Exception):
    """The trial has run for long enough."""


class SpeedTrial:
    """Measures the speed of a run's first seconds, after a warm-up of a quarter of them."""

    def __init__(self, stop: Stop, seconds: float) -> None:
        self._stop = stop
        self._seconds = seconds
        # moments, and the share (0 to 1) of the run that had been simulated by then
        self._seen: list[tuple[float, float]] = []
        self._progress = RunProgress(0.0, 0.0, 0, 0.0, 0)
        self.memory = 0.0

    def __call__(self, progress: RunProgress) -> None:
        """Record the progress; raises `TrialEnded` once the time is over and an update is done."""
        self._progress = progress
        self._seen.append((perf_counter(), self._share(progress)))
        start, first_share = self._seen[0]
        now, share = self._seen[-1]
        if now - start >= self._seconds and share > first_share:
            self.memory = resident_bytes()
            raise TrialEnded

    def remaining(self) -> float:
        """Seconds until the end at the last measured speed."""
        start, first_share = self._seen[0]
        now, share = self._seen[-1]
        began, began_share = start, first_share
        for moment, reached in self._seen:
            if moment - start >= self._seconds / 4 and first_share < reached < share:
                began, began_share = moment, reached
                break
        if share <= began_share:
            return math.inf
        return (1 - share) * (now - began) / (share - began_share)

    def end(self) -> RunProgress:
        """The expected progress at the end of the run."""
        share = min(max(self._share(self._progress), 1e-12), 1.0)
        time, updates, samples, epochs, gradients = (axis / share for axis in self._progress)
        return RunProgress(time, updates, round(samples), epochs, round(gradients))

    def _share(self, progress: RunProgress) -> float:
        shares = [0.0]
        for axis in LIMITS:
            limit = getattr(self._stop, axis)
            if limit:
                shares.append(getattr(progress, axis) / limit)
        return float(max(shares))


def evaluations(evaluate: Evaluate, end: RunProgress) -> float:
    """The number of evaluations of a run that ends there: at its start and on one axis."""
    number = 1.0
    axes = {"every_epochs": end.epochs, "every_updates": end.updates, "every_seconds": end.time}
    for axis, total in axes.items():
        period = getattr(evaluate, axis)
        if period:
            number = max(number, total / period)
    return 1 + number


def makespan(seconds: Sequence[float], jobs: int) -> float:
    """The end of the last run, if each starts, the longest first, when one of `jobs` is free.

    Source: Graham (1969), SIAM Journal on Applied Mathematics 17, longest processing time first.

    Example:
        >>> makespan([2.0, 3.0, 4.0, 1.0], jobs=2)
        5.0
    """
    free = [0.0] * jobs
    for duration in sorted(seconds, reverse=True):
        heapq.heapreplace(free, free[0] + duration)
    return max(free)


def resident_bytes() -> float:
    """Memory of this process now, or its maximum where the system reports only that."""
    table = Path("/proc/self/statm")
    if table.is_file():
        pages = float(table.read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    maximum = float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return maximum if sys.platform == "darwin" else 1024 * maximum


def jobs_for(missing: Sequence[RunSpec], backend: str = "loky") -> int:
    """The default number of runs at once."""
    if not missing:
        return 1
    import torch

    from laggard.models.backends.threads import cores

    config = missing[0].config
    if backend == "loky":
        learns_images = config.device != "cpu" and hasattr(config.task, "dataset")
        if len(missing) < 2 or (learns_images and torch.cuda.is_available()):
            return 1
        if sum(map(rough_seconds, missing)) < SMALL_SWEEP_SECONDS:
            return 1
    return min(max(1, cores() // (config.threads or 1)), len(missing))


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
        return [run for _, run in self.runs if run is not None]

    @property
    def seconds(self) -> float:
        """Wall time of the sweep."""
        seconds = makespan([run.seconds for run in self.missing], self.jobs)
        if self.jobs > 1:
            return seconds + START_UP_SECONDS
        return seconds

    @property
    def memory(self) -> float:
        """The most memory that the processes take together (bytes)."""
        largest = sorted((run.memory for run in self.missing), reverse=True)
        return sum(largest[: self.jobs])


def plan(
    config: Config,
    out: str | Path = "results",
    force: bool = False,
    jobs: int | None = None,
    backend: str = "loky",
) -> SweepPlan:
    """The plan of `sweep` with the same arguments; of runs that differ in seeds one is tried.

    Raises:
        ConfigError: one of the runs cannot be run.
        DataMissingError: a data set is missing.
    """
    check(backend)
    planned = runs(config)
    missing = {}
    kinds = {}
    for spec in planned:
        if force or find_run(spec, out) is None:
            missing[spec.id] = spec
            kinds[_run_kind(spec.config)] = spec
    jobs = jobs or jobs_for(list(missing.values()), backend)
    jobs = max(1, min(jobs, len(missing)))
    seconds = min(TRIAL_SECONDS, ALL_TRIALS_SECONDS / max(1, len(kinds)))
    evaluated: dict[str, Evaluated] = {}
    forecasts = {}
    for kind, spec in kinds.items():
        tried = RunSpec(spec.config)
        if jobs > 1:  # each worker has one thread
            threads = spec.config.threads or 1
            tried = RunSpec(spec.config.model_copy(update={"threads": threads}))
        forecasts[kind] = forecast(tried, seconds, evaluated)
    pairs = []
    for spec in planned:
        expected = forecasts[_run_kind(spec.config)] if spec.id in missing else None
        pairs.append((spec, expected))
    return SweepPlan(pairs, jobs, Path(out) / config.name)


def _run_kind(config: Config) -> str:
    """A key that is equal for runs that take equally long."""
    document = config.as_dict()
    for part in (document, document["cluster"], document["learning"]):
        part["seed"] = None
    return json.dumps(document, sort_keys=True, default=str)
