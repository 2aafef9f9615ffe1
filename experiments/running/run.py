"""One run, from its config to its result."""

import platform
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from pathlib import Path
from time import perf_counter
from typing import Any

import laggard
from laggard.experiments.config.config import Config, parse
from laggard.experiments.config.errors import ConfigError
from laggard.experiments.config.grid import RunSpec, runs
from laggard.experiments.config.plugins import look_in
from laggard.experiments.config.rungs import refuse_rungs
from laggard.experiments.results import store
from laggard.experiments.results.result import Result
from laggard.experiments.running.jobs import Document, JobResult, error_line
from laggard.experiments.running.progress import heartbeat
from laggard.simulator import Outcome, Task, simulate

LIBRARIES = ("numpy", "pyarrow", "safetensors", "simpy", "torch")
ProgressDisplay = Callable[[RunSpec], AbstractContextManager[Any]]
"""A context around a simulation. What it yields is called with the progress after every update if it is callable, and
its `observe`, if it has one, with the simulation before that begins."""


def run(
    config: Config, out: str | Path = "results", force: bool = False, progress: ProgressDisplay | None = None
) -> Result:
    """Simulate one run, its whole ensemble at once, and store it under `<out>/<name>/<run id>`.

    A run that is there and intact is not simulated again, unless `force` asks for it.

    Raises:
        ConfigError: the config expands to several runs, or its pieces do not fit together.
        Deadlock: nothing could happen any more in the simulation.
        DataMissingError: the data set is not there.
        OSError: the folder cannot be written.
    """
    refuse_rungs(config)
    planned = runs(config)
    if len(planned) > 1:
        raise ConfigError("sweep", f"expands to {len(planned)} runs: use `laggard sweep`, or fix the swept keys")
    return run_spec(planned[0], out, force, progress)


def run_spec(spec: RunSpec, out: str | Path, force: bool = False, progress: ProgressDisplay | None = None) -> Result:
    """The result of a run, simulated unless it is there and not `force`."""
    if not force and (finished := store.find_run(spec, out)):
        return finished
    import torch  # noqa: F401  # before there is a folder: an interrupt during this import ends the process

    with store.start_run(spec, out) as own:
        start = perf_counter()
        given = spec.arguments()
        with progress(spec) if progress else nullcontext() as watch:
            called = watch if callable(watch) else None
            outcome = simulate(**given, watch=called, observe=getattr(watch, "observe", None))
        circumstances_now = circumstances(spec, given["task"], perf_counter() - start)
        store.finish(spec, own, outcome, {**_end_of_run(spec, outcome), **circumstances_now})
        if not force and (finished := store.find_run(spec, out)):  # another process may have been faster
            return finished
        result = store.load_result(own)
        store.publish(own, spec.folder(out))
    return replace(result, path=spec.folder(out), given=spec.config, labels=spec.labels)


def run_job(run: str, document: Document, folders: Iterable[Path], out: Path, force: bool) -> JobResult:
    """Simulate a run in this process, by one thread if its config says none; an error is reported, not raised."""
    start = perf_counter()
    try:
        look_in(*folders)
        run_spec(RunSpec(parse(document), threads=1), out, force, partial(heartbeat, out=out))
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
        "diverged": [{"member": n, **of._asdict()} for n, of in enumerate(outcome.diverged) if of is not None],
        "seeds": {"seed": seed, "cluster": seed if cluster is None else cluster, "learning": spec.learning_seeds},
    }


def circumstances(spec: RunSpec, task: Task, seconds: float) -> dict[str, Any]:
    """The duration, machine and versions of a run that ends now: what may differ between runs of one config."""
    import torch

    from laggard.models.backends.batched import describe
    from laggard.models.backends.threads import cores

    return {
        "wall_seconds": round(seconds, 3),
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": describe(getattr(task, "device", torch.device("cpu"))),
        "backend": getattr(task, "backend", None),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": spec.config.threads or spec.threads or cores(),
        "versions": {"python": platform.python_version(), **versions()},
    }


def versions() -> dict[str, str]:
    """The versions of laggard and of its dependencies, by name."""
    return {"laggard": laggard.__version__} | {library: metadata.version(library) for library in LIBRARIES}
