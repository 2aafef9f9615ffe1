"""A grid of runs: finished runs are kept, the others are simulated, on all cores if that pays."""

import warnings
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from laggard.experiments.config.by_value import pack_plugins
from laggard.experiments.config.config import Config
from laggard.experiments.config.errors import ConfigError, error_line
from laggard.experiments.config.grid import RunSpec, runs
from laggard.experiments.config.plugins import FOLDERS, describe_failure_in_plugin
from laggard.experiments.config.rungs import refuse_rungs
from laggard.experiments.config.tuning import refuse_tuning
from laggard.experiments.results import store
from laggard.experiments.results.result import Result, find_run, open_run
from laggard.experiments.results.results import Results
from laggard.experiments.results.store import MANIFEST
from laggard.experiments.running import SNAPSHOT_SECONDS
from laggard.experiments.running.estimate import jobs_for, rough_seconds
from laggard.experiments.running.jobs import JobResult, check, run_jobs
from laggard.experiments.running.run import ProgressDisplay, run_job, run_spec


class SweepError(RuntimeError):
    """Some runs of a sweep failed; a line of text for each.

    Attributes:
        results: the other runs.
        failures: a line per failed run.
    """

    def __init__(self, results: Results, failures: Sequence[str]) -> None:
        super().__init__("\n".join(failures))
        self.results = results
        self.failures = list(failures)


class RunEnd(NamedTuple):
    """A run of a sweep that has ended.

    Attributes:
        run: the run.
        result: None where it failed.
        seconds: wall time of this simulation; None if the result existed already, NaN if the worker
            died before it reported.
        failure: the error in one line; empty where there was none.
    """

    run: RunSpec
    result: Result | None
    seconds: float | None
    failure: str = ""


Find = Callable[[RunSpec, Path], Result | None]
"""A function from a run and the folder of results to the finished result, if there is one."""


def sweep(
    config: Config,
    out: str | Path = "results",
    force: bool = False,
    progress: ProgressDisplay | None = None,
    jobs: int | None = None,
    backend: str = "loky",
    tell: Callable[[RunEnd], None] = lambda _: None,
    find: Find = find_run,
    snapshots: float = SNAPSHOT_SECONDS,
    planned: Sequence[RunSpec] | None = None,
) -> Results:
    """Simulate every run that a config expands to, and store them under `<out>/<name>`.

    Finished, intact runs are not simulated again, unless `force`: an interrupted sweep goes on
    where it stopped, and each killed run resumes from its last snapshot. A failed run or a killed
    worker does not stop the other runs.

    Args:
        progress: a display of each run, where runs are simulated in this process.
        jobs: number of runs at once, each in a process with one thread, or with as many as the
            config asks for; 1 simulates in this process. Default: all cores, but this process alone
            for ten seconds of work or less, and on a GPU.
        backend: "loky", processes of this machine; "ray" or "dask", an engine that runs already or
            is started here.
        tell: called with each run when it has ended.
        find: finds a finished run.
        snapshots: seconds of wall time between two snapshots of a run.
        planned: the runs to simulate; by default all runs of the config.

    Raises:
        ConfigError: one of the runs cannot be run; none has been started.
        SweepError: runs failed; carries the results of the others.
        OSError: the folder cannot be written.
    """
    check(backend)
    if jobs is not None and jobs < 1:
        raise ConfigError("jobs", f"expected at least 1, got {jobs}")
    refuse_rungs(config)
    out = Path(out)
    if planned is None:
        refuse_tuning(config)
        planned = runs(config)
    ends = {}
    missing = []
    for spec in planned:
        result = None
        if not force:
            result = find(spec, out)
        if result is None:
            missing.append(spec)
            continue
        ends[spec.id] = RunEnd(spec, result, None)
        tell(ends[spec.id])
    try:
        store.write_index(planned, out)
    except OSError as error:
        if missing:
            raise
        # a finished sweep in an archive needs no writing
        warnings.warn(f"the index of the sweep is not written: {error}", stacklevel=2)
    for end in _run_missing(missing, out, force, progress, jobs, backend, snapshots):
        ends[end.run.id] = end
        tell(end)
    results = []
    failures = []
    for spec in planned:
        end = ends[spec.id]
        if end.result is None:
            failures.append(f"run {spec.id} ({spec.title}): {end.failure}")
        else:
            results.append(end.result)
    if failures:
        raise SweepError(Results(results, len(planned)), failures)
    return Results(results, len(planned))


def _run_missing(
    missing: Sequence[RunSpec],
    out: Path,
    force: bool,
    progress: ProgressDisplay | None,
    jobs: int | None,
    backend: str,
    snapshots: float,
) -> Iterator[RunEnd]:
    """Simulate runs in this process or in others; yield each as it ends."""
    if not missing:
        return
    parallel = min(jobs or jobs_for(missing, backend), len(missing))
    folder = out / missing[0].config.name
    resumable = store.remove_stale(folder)
    try:
        if parallel > 1 or backend != "loky":
            yield from _run_elsewhere(missing, out, force, parallel, backend, snapshots, resumable)
            return
        for spec in missing:
            scan = spec.id in resumable
            yield _run_here(spec, out, force, progress, snapshots, scan)
    finally:
        store.remove_stale(folder)  # left by workers that were killed


def _run_here(
    spec: RunSpec,
    out: Path,
    force: bool,
    progress: ProgressDisplay | None,
    snapshots: float,
    scan: bool,
) -> RunEnd:
    start = perf_counter()
    try:
        result = run_spec(spec, out, force, progress, snapshots, scan=scan)
    # no error may stop the other runs of the sweep, nor a plugin's SystemExit
    except (Exception, SystemExit) as error:
        failure = describe_failure_in_plugin(error) or error_line(error)
        return RunEnd(spec, None, perf_counter() - start, failure)
    return RunEnd(spec, result, perf_counter() - start)


def _run_elsewhere(
    missing: Sequence[RunSpec],
    out: Path,
    force: bool,
    parallel: int,
    backend: str,
    snapshots: float,
    resumable: Container[str],
) -> Iterator[RunEnd]:
    """Simulate runs in other processes, the longest first."""
    queue = {spec.id: spec for spec in sorted(missing, key=rough_seconds, reverse=True)}
    # documents hold the hashes of sources and files, which the workers compare
    documents = {run: spec.config.as_dict() for run, spec in queue.items()}
    stamps = {run: _manifest_stamp(spec, out) for run, spec in queue.items()}

    def finished(run: str) -> bool:
        # with `force` an old result is in the same place: only a new manifest counts
        if force and _manifest_stamp(queue[run], out) == stamps[run]:
            return False
        return find_run(queue[run], out) is not None

    folders = tuple(FOLDERS)
    plugins = pack_plugins(spec.config for spec in missing)
    work = partial(
        run_job,
        folders=folders,
        plugins=plugins,
        out=out.resolve(),
        force=force,
        resumable=resumable,
        snapshots=snapshots,
    )
    for job in run_jobs(work, documents, parallel, backend, finished):
        yield _read_result(job, queue[job.run], out)


def _read_result(job: JobResult, spec: RunSpec, out: Path) -> RunEnd:
    if job.failure:
        return RunEnd(spec, None, job.seconds, job.failure)
    try:
        result = open_run(spec.folder(out))
    except ValueError as error:  # the folder was removed, or cannot be seen from here
        return RunEnd(spec, None, job.seconds, error_line(error))
    return RunEnd(spec, replace(result, given=spec.config, labels=spec.labels), job.seconds)


def _manifest_stamp(spec: RunSpec, out: Path) -> tuple[int, int] | None:
    """A value that changes when a run's manifest is written again."""
    path = spec.folder(out) / MANIFEST
    if not path.is_file():
        return None
    status = path.stat()
    return status.st_ino, status.st_mtime_ns
