"""One run, from its config to its result, and a check for workers that ties would starve."""

import warnings
from collections.abc import Callable, Container, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from shutil import copyfile
from time import perf_counter
from typing import Any, Literal

from laggard.experiments.config.by_value import receive_plugins
from laggard.experiments.config.config import Config, parse
from laggard.experiments.config.errors import ConfigError, error_line
from laggard.experiments.config.grid import RunSpec, runs
from laggard.experiments.config.plugins import describe_failure_in_plugin, look_in
from laggard.experiments.config.rungs import refuse_rungs
from laggard.experiments.results import store
from laggard.experiments.results.origins import machine_and_versions
from laggard.experiments.results.result import Result, find_run, hash_of_data, load_result
from laggard.experiments.results.store import SNAPSHOT
from laggard.experiments.running import SNAPSHOT_SECONDS
from laggard.experiments.running.jobs import Job, JobResult
from laggard.experiments.running.progress import heartbeat
from laggard.limits import CpuBudget
from laggard.memory import release_freed
from laggard.simulator import Deadlock, Outcome, Stop, Task, simulate
from laggard.simulator.learning.task import layers_of

MAX_WORKERS_CHECKED = 1024
"""The largest cluster of which `starved_ranks` simulates the ties, in some tenths of a second."""
ProgressDisplay = Callable[[RunSpec], AbstractContextManager[Any]]
"""A context around a simulation. If what it yields has a method `observe`, that is called with the
simulation at its start.
"""


def run(
    config: Config,
    out: str | Path = "results",
    force: bool = False,
    progress: ProgressDisplay | None = None,
    snapshots: float = SNAPSHOT_SECONDS,
    keep_snapshot: bool = False,
    continues: bool = False,
) -> Result:
    """Simulate one run with its whole ensemble, and store it under `<out>/<name>/<run id>`.

    A finished, intact run is not simulated again, unless `force`. A killed run resumes from its
    last snapshot.

    Args:
        snapshots: seconds of wall time between two snapshots.
        keep_snapshot: whether the last snapshot stays beside the result, for a longer `stop`.
        continues: whether to continue the finished run with a shorter `stop` that kept its
            snapshot.

    Raises:
        ConfigError: the config expands to several runs, its parts do not fit together, or there is
            no run to continue.
        Deadlock: no event was left in the simulation.
        DataMissingError: the data set is missing.
        OSError: the folder cannot be written.
    """
    refuse_rungs(config)
    planned = runs(config)
    if len(planned) > 1:
        problem = f"expands to {len(planned)} runs: use `laggard sweep`, or fix the swept keys"
        raise ConfigError("sweep", problem)
    return run_spec(planned[0], out, force, progress, snapshots, keep_snapshot, continues)


def run_spec(
    spec: RunSpec,
    out: str | Path,
    force: bool = False,
    progress: ProgressDisplay | None = None,
    snapshots: float = SNAPSHOT_SECONDS,
    keep_snapshot: bool = False,
    continues: bool = False,
    scan: bool = True,
) -> Result:
    """The result of a run, simulated unless it exists; see `run`, and `start_run` for `scan`."""
    if not force and (result := find_run(spec, out)):
        return result
    # This imports torch, before the folder is made: an interrupt meanwhile ends the process.
    from laggard.experiments.results.snapshots import find_shorter

    shorter = find_shorter(spec, out) if continues else None
    path = spec.folder(out)
    with store.start_run(spec, out, fresh=force, scan=scan) as private:
        start = perf_counter()
        data = hash_of_data(spec.config)
        snapshot = private / SNAPSHOT
        if shorter is not None and not snapshot.is_file():
            copyfile(shorter, snapshot)
        shown = progress(spec) if progress else nullcontext()
        with shown as display:
            outcome, task, resumed = _simulate(spec, snapshot, snapshots, display)
        facts = _end_of_run(spec, outcome) | {"data": data}
        facts |= circumstances(spec, task, perf_counter() - start) | resumed
        store.finish(spec, private, outcome, facts)
        entries = len(spec.members) * sum(layer.params for layer in layers_of(task))
        del outcome  # and its models, before their memory is given back
        release_freed(entries)
        if not keep_snapshot:
            snapshot.unlink(missing_ok=True)
        # another process may have finished the same run meanwhile
        if not force and (result := find_run(spec, out)):
            return result
        # Every file is checked before anyone else can see the run.
        result = load_result(private)
        store.publish(private, path)
    return replace(result, path=path, given=spec.config, labels=spec.labels)


def _simulate(
    spec: RunSpec, file: Path, interval: float, display: Any
) -> tuple[Outcome, Task, dict[str, int]]:
    """Simulate a run, from the snapshot in `file` if there is one.

    Returns:
        The outcome, the task, and `resumed` with the updates before the snapshot.
    """
    from laggard.experiments.results.snapshots import read_snapshot, write_snapshot
    from laggard.simulator.engine.snapshots import Snapshot, SnapshotError, Snapshots

    arguments = spec.arguments()
    made_by = machine_and_versions(arguments["task"])
    observe = getattr(display, "observe", None)

    def save(snapshot: Snapshot) -> None:
        try:
            write_snapshot(file, snapshot, made_by)
        except OSError as error:  # the run itself may still succeed
            warnings.warn(f"run {spec.id} has no new snapshot: {error}", stacklevel=2)

    if file.is_file():
        try:
            start = read_snapshot(file, made_by)
            snapshots = Snapshots(save, interval, start)
            outcome = simulate(**arguments, observe=observe, snapshots=snapshots)
            return outcome, arguments["task"], {"resumed": start.updates}
        except SnapshotError as error:
            problem = "simulated from its start, not from its snapshot"
            warnings.warn(f"run {spec.id} is {problem}: {error}", stacklevel=2)
            arguments = spec.arguments()  # the attempt has used the first ones
    outcome = simulate(**arguments, observe=observe, snapshots=Snapshots(save, interval))
    return outcome, arguments["task"], {}


def run_job(
    job: Job,
    folders: Iterable[Path],
    plugins: bytes,
    out: Path,
    force: bool,
    resumable: Container[str] = (),
    snapshots: float = SNAPSHOT_SECONDS,
) -> JobResult:
    """Simulate a run in this process, with one thread by default; an error is returned as text.

    Args:
        resumable: the ids of runs whose killed processes left snapshots.
        folders: the folders to search for plugins.
        plugins: the plugins of `__main__`, as `pack_plugins` makes them.
    """
    start = perf_counter()
    failure = ""
    try:
        look_in(*folders)
        receive_plugins(plugins)
        spec = RunSpec(parse(job.document), threads=1)
        scan = job.lost or job.run in resumable
        run_spec(spec, out, force, partial(heartbeat, out=out), snapshots, scan=scan)
    # no error may stop the other runs of the sweep, nor a plugin's SystemExit the worker
    except (Exception, SystemExit) as error:
        failure = describe_failure_in_plugin(error) or error_line(error)
    return JobResult(job.run, perf_counter() - start, failure)


def _end_of_run(spec: RunSpec, outcome: Outcome) -> dict[str, Any]:
    """The manifest's entries about the end of a run."""
    config = spec.config
    cluster_seed = config.cluster.seed
    if cluster_seed is None:
        cluster_seed = config.seed
    status = "finished"
    if outcome.reached == "stalled":
        status = "stalled"
    elif None not in outcome.diverged:  # perhaps seen only after the run had reached its limit
        status = "diverged"
    diverged = []
    for member, divergence in enumerate(outcome.diverged):
        if divergence is not None:
            diverged.append({"member": member, **divergence._asdict()})
    seeds = {"seed": config.seed, "cluster": cluster_seed, "learning": spec.learning_seeds}
    return {
        "status": status,
        "reached": outcome.reached,
        "stalled": outcome.stalled,
        "mileage": outcome.progress._asdict(),
        "gradients": outcome.gradients,
        "evaluated": outcome.evaluated,
        "messages": outcome.messages,
        "unanswered": outcome.unanswered,
        "diverged": diverged,
        "seeds": seeds,
    }


def circumstances(spec: RunSpec, task: Task, seconds: float) -> dict[str, Any]:
    """Duration, machine and versions of a run that ends now: these differ between equal runs."""
    from laggard.models.backends.threads import cores

    return {
        "wall_seconds": round(seconds, 3),
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        "backend": getattr(task, "backend", None),
        "threads": spec.config.threads or spec.threads or cores(),
        **machine_and_versions(task),
    }


def starved_ranks(spec: RunSpec, budget: CpuBudget) -> list[int]:
    """Workers whose gradients are never applied with `ties: rank`, but are with `ties: random`.

    Their shards are then never learnt. The clock alone is simulated, over 50 updates. Empty where
    compute times are random, where there are more than `MAX_WORKERS_CHECKED` workers, where all
    workers learn the same (`partition: iid`, or equal quadratics), or where it would take more than
    the budget.
    """
    config = spec.config
    cluster = config.cluster
    constant_ties = cluster.ties == "rank" and cluster.compute.law == "constant"
    if not constant_ties or cluster.workers > MAX_WORKERS_CHECKED:
        return []
    if not config.task.workers_differ:
        return []
    # here, since it imports torch, which would take the whole budget
    import_module("laggard.simulator.engine.simulation")
    try:
        with budget.limited():
            return sorted(_unused_ranks(config, "rank") - _unused_ranks(config, "random"))
    # The clock alone has layers of other names than the task, and may stop where a run would not.
    # `load` has checked the config itself: a warning that cannot be computed is not an error.
    except (TimeoutError, MemoryError, ValueError, Deadlock):
        return []


def _unused_ranks(config: Config, ties: Literal["rank", "random"]) -> set[int]:
    """The workers without an applied gradient in the first 50 updates."""
    workers = config.cluster.workers
    cluster = replace(config.build_cluster(), ties=ties)
    if cluster.network.message_bytes is None:
        params = sum(layer.params for layer in config.task.layers())
        network = replace(cluster.network, message_bytes=4.0 * params)
        cluster = replace(cluster, network=network)
    algorithm = config.algorithm.build(workers)
    stop = Stop(updates=50, gradients=100 * workers)
    updates = simulate(cluster, algorithm, stop=stop, seed=config.seed).updates
    applied = updates["worker"][updates["status"] == "applied"]
    return set(range(workers)).difference(applied.tolist())
