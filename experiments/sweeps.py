"""A grid of runs: what is there already is kept, and the rest is simulated, on all cores if that pays."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from experiments import plugins, processes, record
from experiments.config import Config
from experiments.errors import ConfigError
from experiments.forecasts import BRIEF, rough
from experiments.grid import Run, runs, said
from experiments.results import Results
from experiments.runs import Progress, simulated
from experiments.store import MANIFEST, Result, folder, kept, opened, run_id
from experiments.worker import Done, Errand, line
from models.cores import cores


class SweepError(RuntimeError):
    """Some runs of a sweep failed; a line of text for each.

    Attributes:
        results: of the others.
        failures: a line per run that failed.
        runs: how many there were.
    """

    def __init__(self, results: Results, failures: Sequence[str], runs: int) -> None:
        super().__init__("\n".join(failures))
        self.results, self.failures, self.runs = results, list(failures), runs


class Ended(NamedTuple):
    """A run of a sweep that is over.

    Attributes:
        run: which one.
        result: None where it failed.
        seconds: of wall time that it took just now; None where its result was there already, NaN where the worker
            that knew has died.
        failure: what went wrong, in one line; empty where nothing did.
    """

    run: Run
    result: Result | None
    seconds: float | None
    failure: str = ""


def sweep(
    config: Config,
    out: str | Path = "results",
    force: bool = False,
    progress: Progress | None = None,
    jobs: int | None = None,
    backend: str = "loky",
    tell: Callable[[Ended], None] = lambda _: None,
) -> Results:
    """Simulate every run that a config expands to, and keep them all under `<out>/<name>`.

    Runs that are there and intact are not simulated again, unless `force` asks for it, so that a sweep that was
    interrupted goes on where it stopped. A run that fails does not stop the others, and neither does a worker process
    that is killed. The longest runs are begun first; how many are simulated at once changes no result.

    Args:
        progress: is shown how far each run is, where they are simulated in this process.
        jobs: how many runs at once, a process and a thread for gradients each, or as many threads as the config says;
            1 simulates in this process. By default all cores are used, but this process alone for a single run, for
            less than about ten seconds of work, and on a GPU.
        backend: "loky", processes of this machine; "ray" or "dask", an engine that runs already or else one that is
            started here, whose machines all have to see `out`.
        tell: is told of each run as soon as it is over.

    Raises:
        ConfigError: one of the runs cannot be run; nothing has been started then.
        SweepError: runs failed; carries the results of the others.
        OSError: the folder cannot be written.
    """
    processes.check(backend)
    if jobs is not None and jobs < 1:
        raise ConfigError("jobs", f"expected at least 1, got {jobs}")
    planned = runs(config)
    record.write_index(planned, out)
    found: dict[int, Result] = {}
    failures: dict[int, str] = {}
    for number, ended in _ended(planned, Path(out), force, progress, jobs, backend):
        if ended.result is None:
            failures[number] = f"run {run_id(ended.run.config)} ({said(ended.run)}): {ended.failure}"
        else:
            found[number] = ended.result
        tell(ended)
    results = Results([found[number] for number in sorted(found)], len(planned))
    if failures:
        raise SweepError(results, [failures[number] for number in sorted(failures)], len(planned))
    return results


def jobs_for(config: Config, missing: Sequence[Config], backend: str = "loky") -> int:
    """How many runs at once, where nobody says."""
    if backend == "loky" and (len(missing) < 2 or _on_gpu(config) or sum(map(rough, missing)) < BRIEF):
        return 1
    return min(max(1, cores() // (config.threads or 1)), max(1, len(missing)))


def _ended(
    planned: Sequence[Run], out: Path, force: bool, progress: Progress | None, jobs: int | None, backend: str
) -> Iterator[tuple[int, Ended]]:
    """Every run of the plan as it comes to an end, with its number; those that are there already come first."""
    missing: dict[int, Run] = {}
    for number, run in enumerate(planned):
        if (result := None if force else kept(run.config, out)) is None:
            missing[number] = run
        else:
            yield number, Ended(run, _labelled(result, run), None)
    if not missing:
        return
    jobs = jobs or jobs_for(planned[0].config, [run.config for run in missing.values()], backend)
    if backend == "loky" and min(jobs, len(missing)) == 1:
        for number, run in missing.items():
            yield number, _here(run, out, force, progress)
    else:
        yield from _elsewhere(missing, out, force, min(jobs, len(missing)), backend)


def _here(run: Run, out: Path, force: bool, progress: Progress | None) -> Ended:
    start = perf_counter()
    try:
        result = simulated(run.config, run.labels, out, force, progress)
    except Exception as error:  # whatever it is, it must not cost the night's other runs
        return Ended(run, None, perf_counter() - start, line(error))
    return Ended(run, result, perf_counter() - start)


def _elsewhere(
    missing: Mapping[int, Run], out: Path, force: bool, jobs: int, backend: str
) -> Iterator[tuple[int, Ended]]:
    """The missing runs, simulated in other processes, the longest first."""
    before = {number: _stamp(run.config, out) for number, run in missing.items()}

    def finished(errand: Errand) -> bool:
        config = missing[errand.number].config
        renewed = not force or _stamp(config, out) != before[errand.number]
        return renewed and kept(config, out) is not None

    order = sorted(missing, key=lambda number: rough(missing[number].config), reverse=True)
    errands = [_errand(number, missing[number].config, out, force) for number in order]
    try:
        for done in processes.carried_out(errands, jobs, backend, finished):
            yield done.number, _reported(done, missing[done.number], out)
    finally:
        record.clear(out / next(iter(missing.values())).config.name)  # what workers that were killed have left


def _errand(number: int, config: Config, out: Path, force: bool) -> Errand:
    document = {**config.given(), "sweep": config.sweep, "threads": config.threads or 1}
    folders = tuple(map(str, plugins.FOLDERS))
    return Errand(number, document, folders, str(out.resolve()), force)


def _reported(done: Done, run: Run, out: Path) -> Ended:
    if done.failure:
        return Ended(run, None, done.seconds, done.failure)
    try:
        return Ended(run, _labelled(opened(folder(run.config, out)), run), done.seconds)
    except ValueError as error:  # its folder is not seen here, or somebody has removed it
        return Ended(run, None, done.seconds, line(error))


def _labelled(result: Result, run: Run) -> Result:
    return replace(result, given=run.config, labels=run.labels)


def _stamp(config: Config, out: Path) -> tuple[int, int] | None:
    """What tells a run's manifest from a later one."""
    path = folder(config, out) / MANIFEST
    if not path.is_file():
        return None
    status = path.stat()
    return status.st_ino, status.st_mtime_ns


def _on_gpu(config: Config) -> bool:
    import torch

    return config.device != "cpu" and hasattr(config.task, "dataset") and torch.cuda.is_available()
