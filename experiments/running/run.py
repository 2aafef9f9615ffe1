"""One run, from its config to its result, and what its ties in time decide before it is run."""

import platform
import warnings
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from pathlib import Path
from shutil import copyfile
from time import perf_counter
from typing import Any

import laggard
from laggard.experiments.config.config import Config, parse
from laggard.experiments.config.errors import ConfigError, error_line
from laggard.experiments.config.grid import RunSpec, runs
from laggard.experiments.config.plugins import look_in
from laggard.experiments.config.rungs import refuse_rungs
from laggard.experiments.results import store
from laggard.experiments.results.result import SNAPSHOT, Result
from laggard.experiments.running import SNAPSHOT_SECONDS
from laggard.experiments.running.jobs import Document, JobResult
from laggard.experiments.running.progress import heartbeat
from laggard.simulator import Outcome, Stop, Task, simulate

LIBRARIES = ("numpy", "pyarrow", "safetensors", "simpy", "torch")
TIED = 1024
"""The largest cluster whose ties are looked at before a run, in some tenths of a second."""
ProgressDisplay = Callable[[RunSpec], AbstractContextManager[Any]]
"""A context around a simulation. What it yields is called with the progress after every update if
it is callable, and its `observe`, if it has one, with the simulation before that begins.
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
    """Simulate one run, its whole ensemble at once, and store it under `<out>/<name>/<run id>`.

    A run that is there and intact is not simulated again, unless `force` asks for it. One that was
    killed goes on from its last snapshot, of which one is taken every `snapshots` seconds of wall
    time.

    Args:
        keep_snapshot: whether the last one stays beside the result, for a run with a longer `stop`.
        continues: whether the run goes on from the one that such a run with a shorter `stop` has
            left.

    Raises:
        ConfigError: the config expands to several runs, its pieces do not fit together, or no run
            is there to continue.
        Deadlock: nothing could happen any more in the simulation.
        DataMissingError: the data set is not there.
        OSError: the folder cannot be written.
    """
    refuse_rungs(config)
    planned = runs(config)
    if len(planned) > 1:
        raise ConfigError(
            "sweep", f"expands to {len(planned)} runs: use `laggard sweep`, or fix the swept keys"
        )
    return run_spec(planned[0], out, force, progress, snapshots, keep_snapshot, continues)


def run_spec(
    spec: RunSpec,
    out: str | Path,
    force: bool = False,
    progress: ProgressDisplay | None = None,
    snapshots: float = SNAPSHOT_SECONDS,
    keep_snapshot: bool = False,
    continues: bool = False,
) -> Result:
    """The result of a run, simulated unless it is there and not `force`; see `run`."""
    if not force and (finished := store.find_run(spec, out)):
        return finished
    # torch too: an interrupt then ends the process
    from laggard.experiments.results.snapshots import find_shorter

    earlier = find_shorter(spec, out) if continues else None
    with store.start_run(spec, out, anew=force) as own:
        start = perf_counter()
        if earlier is not None and not (own / SNAPSHOT).is_file():
            copyfile(earlier, own / SNAPSHOT)
        with progress(spec) if progress else nullcontext() as watch:
            outcome, task, resumed = _simulate(spec, own / SNAPSHOT, snapshots, watch)
        circumstances_now = circumstances(spec, task, perf_counter() - start) | resumed
        store.finish(spec, own, outcome, {**_end_of_run(spec, outcome), **circumstances_now})
        if not keep_snapshot:
            (own / SNAPSHOT).unlink(missing_ok=True)
        # another process may have been faster
        if not force and (finished := store.find_run(spec, out)):
            return finished
        result = store.load_result(own)
        store.publish(own, spec.folder(out))
    return replace(result, path=spec.folder(out), given=spec.config, labels=spec.labels)


def _simulate(
    spec: RunSpec, file: Path, every: float, watch: Any
) -> tuple[Outcome, Task, dict[str, int]]:
    """The outcome of a run, which goes on from the snapshot in `file` if there is one; its task;
    where it went on.
    """
    from laggard.experiments.results.snapshots import read_snapshot, write_snapshot
    from laggard.simulator.engine.snapshots import Snapshot, SnapshotError, Snapshots

    given = spec.arguments()
    made_by = machine_and_versions(given["task"])
    watched: dict[str, Any] = {
        "watch": watch if callable(watch) else None,
        "observe": getattr(watch, "observe", None),
    }

    def save(snapshot: Snapshot) -> None:
        try:
            write_snapshot(file, snapshot, made_by)
        except OSError as error:  # the run itself may end well
            warnings.warn(f"run {spec.id} has no new snapshot: {error}", stacklevel=2)

    if file.is_file():
        try:
            start = read_snapshot(file, made_by)
            outcome = simulate(**given, **watched, snapshots=Snapshots(save, every, start))
        except SnapshotError as error:
            warnings.warn(
                f"run {spec.id} is simulated from its start, not from its snapshot: {error}",
                stacklevel=2,
            )
            given = spec.arguments()
        else:
            return outcome, given["task"], {"resumed": start.updates}
    return simulate(**given, **watched, snapshots=Snapshots(save, every)), given["task"], {}


def run_job(
    run: str,
    document: Document,
    folders: Iterable[Path],
    out: Path,
    force: bool,
    snapshots: float = SNAPSHOT_SECONDS,
) -> JobResult:
    """Simulate a run in this process, by one thread if its config says none; an error is reported,
    not raised.
    """
    start = perf_counter()
    try:
        look_in(*folders)
        run_spec(
            RunSpec(parse(document), threads=1), out, force, partial(heartbeat, out=out), snapshots
        )
    except Exception as error:  # no error may stop the sweep's other runs
        return JobResult(run, perf_counter() - start, error_line(error))
    return JobResult(run, perf_counter() - start)


def _end_of_run(spec: RunSpec, outcome: Outcome) -> dict[str, Any]:
    """The manifest's entries about the end of a run."""
    seed, cluster = spec.config.seed, spec.config.cluster.seed
    return {
        "status": outcome.reached if outcome.reached in ("diverged", "stalled") else "finished",
        "reached": outcome.reached,
        "stalled": outcome.stalled,
        "mileage": outcome.progress._asdict(),
        "gradients": outcome.gradients,
        "evaluated": outcome.evaluated,
        "messages": outcome.messages,
        "diverged": [
            {"member": n, **of._asdict()} for n, of in enumerate(outcome.diverged) if of is not None
        ],
        "seeds": {
            "seed": seed,
            "cluster": seed if cluster is None else cluster,
            "learning": spec.learning_seeds,
        },
    }


def circumstances(spec: RunSpec, task: Task, seconds: float) -> dict[str, Any]:
    """The duration, machine and versions of a run that ends now: what may differ between runs of
    one config.
    """
    from laggard.models.backends.threads import cores

    return {
        "wall_seconds": round(seconds, 3),
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        "backend": getattr(task, "backend", None),
        "threads": spec.config.threads or spec.threads or cores(),
        **machine_and_versions(task),
    }


def machine_and_versions(task: Task) -> dict[str, Any]:
    """On what the last bits of a result may depend."""
    import torch

    from laggard.models.backends.batched import describe

    return {
        "device": describe(getattr(task, "device", torch.device("cpu"))),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "versions": {"python": platform.python_version(), **versions()},
    }


def versions() -> dict[str, str]:
    """The versions of laggard and of its dependencies, by name."""
    return {"laggard": laggard.__version__} | {
        library: metadata.version(library) for library in LIBRARIES
    }


def starved_ranks(spec: RunSpec) -> list[int]:
    """The workers whose shards are never learnt because others win every tie in time, and would be
    if ties were random.

    None where compute times are random, workers are more than `TIED`, or all learn the same: all
    permute the whole
    training set (`partition: iid`), or have the same quadratic. The clock of the run's own cluster
    and method tells it, over 50 updates and without learning.
    """
    config = spec.config
    cluster = config.cluster
    tied = cluster.ties == "rank" and cluster.compute.law == "constant" and cluster.workers <= TIED
    if not tied or not config.task.workers_differ:
        return []
    params = sum(layer.params for layer in config.task.layers())
    found = []
    for ties in ("rank", "random"):
        built = replace(config.build_cluster(), ties=ties)
        if built.network.message_bytes is None:
            built = replace(built, network=replace(built.network, message_bytes=4.0 * params))
        stop = Stop(updates=50, gradients=100 * cluster.workers)
        updates = simulate(
            built, config.algorithm.build(cluster.workers), stop=stop, seed=config.seed
        ).updates
        applied = updates["worker"][updates["status"] == "applied"]
        found.append(set(range(cluster.workers)).difference(applied.tolist()))
    by_rank, at_random = found
    return sorted(by_rank - at_random)
