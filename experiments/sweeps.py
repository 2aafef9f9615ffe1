"""A grid of runs, one after the other."""

from collections.abc import Sequence
from pathlib import Path

from experiments import record
from experiments.config import Config
from experiments.grid import Run, runs, said
from experiments.runs import Progress, simulated
from experiments.store import Result, run_id


class SweepError(RuntimeError):
    """Some runs of a sweep failed; a line of text for each.

    Attributes:
        results: of the others.
        failures: a line per run that failed.
        runs: how many there were.
    """

    def __init__(self, results: Sequence[Result], failures: Sequence[str], runs: int) -> None:
        super().__init__("\n".join(failures))
        self.results, self.failures, self.runs = list(results), list(failures), runs


def sweep(
    config: Config, out: str | Path = "results", force: bool = False, progress: Progress | None = None
) -> list[Result]:
    """Simulate every run that a config expands to, and keep them all under `<out>/<name>`.

    Runs that are there and intact are not simulated again, unless `force` asks for it, so that a sweep that was
    interrupted goes on where it stopped. A run that fails does not stop the others.

    Raises:
        ConfigError: one of the runs cannot be run; nothing has been started then.
        SweepError: runs failed; carries the results of the others.
        OSError: the folder cannot be written.
    """
    planned = runs(config)
    record.write_index(planned, out)
    results, failures = [], []
    for each in planned:
        try:
            results.append(simulated(each.config, each.labels, out, force, progress))
        except Exception as error:  # whatever it is, it must not cost the night's other runs
            failures.append(_line(each, error))
    if failures:
        raise SweepError(results, failures, len(planned))
    return results


def _line(run: Run, error: Exception) -> str:
    return f"run {run_id(run.config)} ({said(run)}): {type(error).__name__}: {' '.join(str(error).split())}"
