"""A grid of runs: existing results are kept, and the rest is simulated, on all cores if that
pays.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from laggard.experiments.config.config import Config
from laggard.experiments.config.errors import ConfigError, error_line
from laggard.experiments.config.grid import RunSpec, runs
from laggard.experiments.config.rungs import refuse_rungs
from laggard.experiments.config.sources import FOLDERS
from laggard.experiments.results import store
from laggard.experiments.results.index import write_index
from laggard.experiments.results.result import MANIFEST, Result
from laggard.experiments.results.results import Results
from laggard.experiments.running import SNAPSHOT_SECONDS
from laggard.experiments.running.estimate import jobs_for, rough_seconds
from laggard.experiments.running.jobs import JobFunction, JobResult, check, run_jobs
from laggard.experiments.running.run import ProgressDisplay, run_job, run_spec


class SweepError(RuntimeError):
    """Some runs of a sweep failed; a line of text for each.

    Attributes:
        results: of the others.
        failures: a line per run that failed.
    """

    def __init__(self, results: Results, failures: Sequence[str]) -> None:
        super().__init__("\n".join(failures))
        self.results, self.failures = results, list(failures)


class RunEnd(NamedTuple):
    """A run of a sweep that is over.

    Attributes:
        run: which one.
        result: None where it failed.
        seconds: of wall time that it took just now; None where its result existed already, NaN
            where the worker that knew has died.
        failure: what went wrong, in one line; empty where nothing did.
    """

    run: RunSpec
    result: Result | None
    seconds: float | None
    failure: str = ""


Find = Callable[[RunSpec, Path], Result | None]
"""From a run and the folder of results to its finished result, if there is one."""


def sweep(
    config: Config,
    out: str | Path = "results",
    force: bool = False,
    progress: ProgressDisplay | None = None,
    jobs: int | None = None,
    backend: str = "loky",
    tell: Callable[[RunEnd], None] = lambda _: None,
    find: Find = store.find_run,
    snapshots: float = SNAPSHOT_SECONDS,
) -> Results:
    """Simulate every run that a config expands to, and keep them all under `<out>/<name>`.

    Runs that are there and intact are not simulated again, unless `force` asks for it: a sweep that
    was interrupted goes on where it stopped, each run that was killed at its last snapshot. Neither
    a run that fails nor a worker that is killed stops the others.

    Args:
        progress: is shown how far each run is, where they are simulated in this process.
        jobs: how many runs at once, a process each with one thread, or as many as the config says;
            1 simulates in this process. By default all cores, but this process alone for ten
            seconds of work or less, and on a GPU.
        backend: "loky", processes here; "ray" or "dask", an engine that runs already or is started
            here.
        tell: called with each run as soon as it has ended.
        find: how a finished run is found.
        snapshots: seconds of wall time from one snapshot of a run to the next.

    Raises:
        ConfigError: one of the runs cannot be run; nothing has been started then.
        SweepError: runs failed; carries the results of the others.
        OSError: the folder cannot be written.
    """
    check(backend)
    if jobs is not None and jobs < 1:
        raise ConfigError("jobs", f"expected at least 1, got {jobs}")
    refuse_rungs(config)
    planned = runs(config)
    write_index(planned, out)
    found: dict[str, RunEnd] = {}
    for ended in _execute_plan(
        planned, Path(out), None if force else find, progress, jobs, backend, snapshots
    ):
        found[ended.run.id] = ended
        tell(ended)
    every = [found[spec.id] for spec in planned]
    results = Results([each.result for each in every if each.result is not None], len(planned))
    if failed := [each for each in every if each.result is None]:
        raise SweepError(
            results, [f"run {of.run.id} ({of.run.title}): {of.failure}" for of in failed]
        )
    return results


def _execute_plan(
    planned: Sequence[RunSpec],
    out: Path,
    find: Find | None,
    progress: ProgressDisplay | None,
    jobs: int | None,
    backend: str,
    snapshots: float,
) -> Iterator[RunEnd]:
    """Every run of the plan as it ends; those that `find` gives come first, and None simulates
    all.
    """
    missing: list[RunSpec] = []
    force = find is None
    for spec in planned:
        if (result := find(spec, out) if find is not None else None) is None:
            missing.append(spec)
        else:
            yield RunEnd(spec, result, None)
    if not missing:
        return
    at_once = min(jobs or jobs_for(missing, backend), len(missing))
    if backend == "loky" and at_once == 1:
        yield from (_run_here(spec, out, force, progress, snapshots) for spec in missing)
    else:
        work = partial(
            run_job, folders=tuple(FOLDERS), out=out.resolve(), force=force, snapshots=snapshots
        )
        yield from _run_elsewhere(missing, out, force, at_once, backend, work)


def _run_here(
    spec: RunSpec, out: Path, force: bool, progress: ProgressDisplay | None, snapshots: float
) -> RunEnd:
    start = perf_counter()
    try:
        result = run_spec(spec, out, force, progress, snapshots)
    except Exception as error:  # no error may stop the sweep's other runs
        return RunEnd(spec, None, perf_counter() - start, error_line(error))
    return RunEnd(spec, result, perf_counter() - start)


def _run_elsewhere(
    missing: Sequence[RunSpec],
    out: Path,
    force: bool,
    at_once: int,
    backend: str,
    work: JobFunction,
) -> Iterator[RunEnd]:
    """The missing runs, simulated in other processes, the longest first."""
    queue = {spec.id: spec for spec in sorted(missing, key=rough_seconds, reverse=True)}
    before = {run: _manifest_stamp(spec, out) for run, spec in queue.items()}

    def finished(run: str) -> bool:
        renewed = not force or _manifest_stamp(queue[run], out) != before[run]
        return renewed and store.find_run(queue[run], out) is not None

    # with the hashes of sources and files
    documents = {run: spec.config.as_dict() for run, spec in queue.items()}
    try:
        for done in run_jobs(work, documents, at_once, backend, finished):
            yield _read_report(done, queue[done.run], out)
    finally:
        store.remove_stale(out / missing[0].config.name)  # left by workers that were killed


def _read_report(done: JobResult, spec: RunSpec, out: Path) -> RunEnd:
    if done.failure:
        return RunEnd(spec, None, done.seconds, done.failure)
    try:
        result = store.open_run(spec.folder(out))
    except ValueError as error:  # its folder is not visible here, or was removed
        return RunEnd(spec, None, done.seconds, error_line(error))
    return RunEnd(spec, replace(result, given=spec.config, labels=spec.labels), done.seconds)


def _manifest_stamp(spec: RunSpec, out: Path) -> tuple[int, int] | None:
    """A value that changes when a run's manifest is written again."""
    path = spec.folder(out) / MANIFEST
    if not path.is_file():
        return None
    status = path.stat()
    return status.st_ino, status.st_mtime_ns
