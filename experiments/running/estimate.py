"""Wall time and memory of runs: roughly from a config, or from a short trial of each kind."""

import json
import resource
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from timeit import repeat
from typing import NamedTuple

from laggard.experiments.config.config import Config
from laggard.experiments.config.grid import RunSpec, runs
from laggard.experiments.config.task import epoch_samples
from laggard.experiments.results.result import find_run
from laggard.experiments.running.jobs import check
from laggard.simulator import Evaluate, RunProgress, Stop, simulate

SMALL_SWEEP_SECONDS = 10.0
"""Approximate work below which starting worker processes does not pay."""
START_UP_SECONDS = 3.0
"""Time in which a worker process imports torch."""
WRITING_SECONDS = 0.15
"""Time in which a run's files are written."""
BYTES_PER_ROW = 130
"""Memory (bytes) that a gradient's row takes until the tables of its run are written."""
MULTIPLICATIONS_PER_SECOND = 5e9
"""The speed of one core."""
CYCLE_SECONDS, UPDATE_SECONDS = 3e-5, 1e-4
"""A worker's cycle on the clock, and an update where something is learnt."""
TRIAL_SECONDS, ALL_TRIALS_SECONDS = 0.5, 10.0
"""The longest trial of a run, and all trials of a sweep, without evaluations and reading data."""
LIMITS = ("epochs", "updates", "gradients", "time")


class RunCost(NamedTuple):
    """The expected wall time of a run (s), and the memory of its process (bytes)."""

    seconds: float
    memory: float


class SweepPlan(NamedTuple):
    """The runs of a sweep, and the expected cost of the missing runs.

    Attributes:
        runs: each run with its cost, or with None if its result exists already.
        missing: the number of runs without a result.
        jobs: the number of runs simulated at once.
        folder: the folder of their results.
        seconds: the wall time of the sweep.
        memory: the memory of all processes together (bytes).
    """

    runs: list[tuple[RunSpec, RunCost | None]]
    missing: int
    jobs: int
    folder: Path
    seconds: float
    memory: float


def rough_gradients(spec: RunSpec) -> float:
    """The number of gradients per member, to a factor of about ten, from a run's config alone."""
    config = spec.config
    stop, task = config.stop, config.task
    batch = getattr(task, "batch", 32)
    epoch = epoch_samples(task) or 60_000
    counts = [stop.updates, stop.gradients]
    if stop.epochs:
        counts.append(stop.epochs * epoch / batch)
    if stop.time:
        mean = max(config.build_cluster().compute.mean, 1e-9)
        counts.append(stop.time * config.cluster.workers / mean)
    return float(min(filter(None, counts), default=1))


def rough_seconds(spec: RunSpec) -> float:
    """The wall time, to a factor of about ten, from a run's config alone; nothing is run."""
    task = spec.config.task
    seconds = CYCLE_SECONDS
    if task.learns:
        layers = sum(layer.work for layer in task.layers())
        multiplications = 3 * getattr(task, "batch", 32) * layers * len(spec.members)
        seconds += UPDATE_SECONDS + multiplications / MULTIPLICATIONS_PER_SECOND
    return float(rough_gradients(spec) * seconds)


def try_run(spec: RunSpec, seconds: float = TRIAL_SECONDS) -> RunCost:
    """The expected cost of a run, from a trial of its first `seconds` and of one evaluation.

    A run that may stop at an accuracy is expected to reach its other limits.
    """
    start = perf_counter()
    arguments = spec.arguments()
    task = arguments["task"]
    stop = arguments["stop"]
    evaluate = arguments.pop("evaluate")
    marks: list[tuple[float, float, RunProgress]] = []

    def watch(progress: RunProgress) -> None:
        _, reached, total = nearest_limit(stop, progress)
        share = reached / total
        if not marks or share > marks[-1][1]:
            marks.append((perf_counter(), share, progress))
        if len(marks) > 1 and marks[-1][0] - marks[0][0] >= seconds:
            raise TimeoutError

    remaining = 0.0
    try:
        # Without evaluations but the first and the last: one is timed on its own below.
        end = simulate(**arguments, evaluate=Evaluate(every_updates=1e15), watch=watch).progress
    except TimeoutError:
        # the first quarter of the marks is a warm-up
        began, began_share, _ = marks[len(marks) // 4]
        now, share, progress = marks[-1]
        remaining = (1 - share) * (now - began) / (share - began_share)
        end = RunProgress._make(axis / share for axis in progress)
    spent = perf_counter() - start
    models = task.start(arguments["learning_seeds"])
    # one of the models is timed: an evaluation of all may take longer than the trial
    evaluation = min(repeat(lambda: task.evaluate(models[:1]), number=1, repeat=2)) * len(models)
    number = 1.0 + max(1, evaluate.period(end))  # at the start, and at the end at least
    if evaluate.every_seconds:
        number += end.time / evaluate.every_seconds
    if spec.config.evaluate.nodes:
        number *= spec.config.cluster.workers
    return RunCost(
        spent + remaining + number * evaluation + WRITING_SECONDS,
        max_memory() + BYTES_PER_ROW * end.gradients,
    )


def nearest_limit(stop: Stop, progress: RunProgress) -> tuple[str, float, float]:
    """The limit of `stop` that a run reaches first: its name, what is reached of it, its value.

    An accuracy is never the only limit.
    """
    limits = []
    for axis in LIMITS:
        total = getattr(stop, axis)
        if total:
            limits.append((axis, getattr(progress, axis), total))
    return max(limits, key=lambda limit: limit[1] / limit[2])


def max_memory() -> float:
    """The peak memory of this process so far (bytes)."""
    maximum = float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    if sys.platform == "darwin":
        return maximum
    return 1024 * maximum


def jobs_for(missing: Sequence[RunSpec], backend: str = "loky") -> int:
    """The default number of runs at once: one for a short sweep or a GPU, else one per core."""
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


def plan(
    config: Config,
    out: str | Path = "results",
    force: bool = False,
    jobs: int | None = None,
    backend: str = "loky",
    planned: Sequence[RunSpec] | None = None,
) -> SweepPlan:
    """The plan of `sweep` with the same arguments; one run of each kind is tried.

    Raises:
        ConfigError: one of the runs cannot be run.
        DataMissingError: a data set is missing.
    """
    check(backend)
    if planned is None:
        planned = runs(config)
    missing = [spec for spec in planned if force or find_run(spec, out) is None]
    jobs = jobs or jobs_for(missing, backend)
    jobs = max(1, min(jobs, len(missing)))
    threads = 1 if jobs > 1 else None  # of each worker process
    kinds = {_run_kind(spec): replace(spec, threads=threads) for spec in missing}
    trials = {}
    for kind, spec in kinds.items():
        trials[kind] = try_run(spec, min(TRIAL_SECONDS, ALL_TRIALS_SECONDS / len(kinds)))
    costs = {}
    for spec in missing:
        kind = _run_kind(spec)
        scale = rough_gradients(spec) / rough_gradients(kinds[kind])
        costs[spec.id] = RunCost(scale * trials[kind].seconds, trials[kind].memory)
    durations = [cost.seconds for cost in costs.values()]
    seconds = max(max(durations, default=0.0), sum(durations) / jobs)
    if jobs > 1:
        seconds += START_UP_SECONDS
    largest = sorted((cost.memory for cost in costs.values()), reverse=True)
    pairs = [(spec, costs.get(spec.id)) for spec in planned]
    folder = Path(out) / config.name
    return SweepPlan(pairs, len(missing), jobs, folder, seconds, sum(largest[:jobs]))


def _run_kind(spec: RunSpec) -> str:
    """A key that is equal for runs in which a gradient takes equally long."""
    document = spec.config.as_dict()
    cluster = document["cluster"]
    parts = [document["task"], document["algorithm"], cluster["workers"], cluster["network"]]
    return json.dumps([*parts, document["backend"], len(spec.members)], default=str)
