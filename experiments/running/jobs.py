"""Where the runs of a sweep are simulated: worker processes here, or a cluster engine, through
joblib.
"""

import os
import signal
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from importlib.util import find_spec
from multiprocessing import active_children, resource_tracker
from pathlib import Path
from tempfile import gettempdir
from typing import Any, NamedTuple

from laggard.__main__ import start_worker
from laggard.experiments.config.errors import ConfigError, error_line
from laggard.experiments.results.store import alive

Document = Mapping[str, Any]
"""A run's config as plain data, which any process can read."""


class JobResult(NamedTuple):
    """The outcome of a run: its id, its seconds of wall time, and the error, if there was one."""

    run: str
    seconds: float
    failure: str = ""


JobFunction = Callable[[str, Document], JobResult]


KILLED = 0.05  # seconds between two looks for workers to be killed
LIVES = 3
"""The number of workers that a run may kill before it fails: twice beside other runs, the last time
alone.
"""


def check(backend: str) -> None:
    """Check that there is such a backend here.

    Raises:
        ConfigError: there is not; says what to install.
    """
    if backend not in ENGINES:
        raise ConfigError("backend", f"expected one of {', '.join(ENGINES)}, got {backend!r}")
    module = {"dask": "distributed"}.get(backend, backend)
    if backend != "loky" and find_spec(module) is None:
        raise ConfigError("backend", f"{backend} is not installed: pip install laggard[{backend}]")


def run_jobs(
    work: JobFunction,
    documents: Mapping[str, Document],
    at_once: int,
    backend: str,
    finished: Callable[[str], bool],
) -> Iterator[JobResult]:
    """The outcome of each run as it ends; where a worker dies, all workers are replaced and the
    work goes on.

    A run in whose company a worker has died twice is simulated by itself, so that a run which kills
    its worker is told from those that only stood beside it.

    Args:
        work: simulates a run, in another process, and is handed over to it.
        documents: of the runs, by their ids.
        at_once: how many runs at once.
        finished: whether a run whose report was lost with a worker had been done by then.
    """
    left, deaths, interrupts = dict(documents), Counter[str](), list[int]()
    with ExitStack() as stack:
        if backend == "loky":
            stack.enter_context(interrupt_by_killing(interrupts))
        settings = {"return_as": "generator_unordered"} | ENGINES[backend](at_once, stack)
        while left:
            company = [run for run in left if deaths[run] < LIVES - 1]
            together = {run: left[run] for run in company or list(left)[:1]}
            begun: list[str] = []
            with closing(
                _round(work, together, at_once if company else 1, settings, begun)
            ) as reports:
                try:
                    for done in reports:
                        del left[done.run]
                        yield done
                        if interrupts:
                            return
                    continue
                except Exception as error:  # a worker has died, or the engine has lost it
                    broken = error
            if interrupts:
                return
            if not begun:
                raise broken
            for run in [run for run in begun if run in left]:
                if finished(run):
                    del left[run]
                    yield JobResult(run, float("nan"))
                    continue
                deaths[run] += 1
                if deaths[run] >= LIVES:
                    del left[run]
                    failure = f"its worker was killed {LIVES} times: {error_line(broken)[:200]}"
                    yield JobResult(run, float("nan"), failure)


def _round(
    work: JobFunction,
    documents: Mapping[str, Document],
    at_once: int,
    settings: Mapping[str, Any],
    begun: list[str],
) -> Generator[JobResult, None, None]:
    """Yield results until all runs are done or a worker dies; append the ids of started ones to
    `begun`.
    """
    from joblib import Parallel, delayed

    def tasks() -> Iterator[Any]:
        for run, document in documents.items():
            begun.append(run)
            yield delayed(work)(run, document)

    parallel = Parallel(**settings, pre_dispatch=at_once, batch_size=1)
    if parallel.return_generator:
        # its start, which comes before the first worker's, ends the blocking
        resource_tracker.ensure_running()
    # inherited by processes that start now
    with block_interrupt() if parallel.return_generator else nullcontext():
        reports = parallel(tasks())
    try:
        for done in reports:  # noqa: UP028  (`yield from` would close them before the warnings are off)
            yield done
    finally:
        # joblib warns about results that are not read
        with warnings.catch_warnings(), suppress(AttributeError):
            warnings.simplefilter("ignore")
            reports.close()


@contextmanager
def block_interrupt() -> Iterator[None]:
    """Block Ctrl-C in this context, and so in the processes that are started in it, which inherit
    the mask.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def interrupt_by_killing(interrupts: list[int]) -> Iterator[None]:
    """Have Ctrl-C, and SIGTERM where it is handled, kill loky's workers; KeyboardInterrupt is
    raised at the end.

    An exception in the middle of loky leaves its locks taken, so that the process hangs at its
    exit. Workers that die are an event that loky expects at any moment. Those that it is starting
    meanwhile are killed too.

    Args:
        interrupts: the numbers of the signals are appended.
    """
    from joblib.externals.loky.backend.process import LokyProcess

    def kill_workers() -> None:
        while not over.wait(KILLED):
            for child in active_children() if interrupts else ():
                if isinstance(child, LokyProcess):
                    with suppress(ProcessLookupError):
                        os.kill(child.pid, signal.SIGKILL)

    if threading.current_thread() is not threading.main_thread():
        yield  # no signal is handled here
        return
    over, thread = threading.Event(), threading.Thread(target=kill_workers, daemon=True)
    thread.start()
    handlers = {of: signal.getsignal(of) for of in (signal.SIGINT, signal.SIGTERM)}
    handlers = {of: handler for of, handler in handlers.items() if callable(handler)}
    for of in handlers:
        signal.signal(of, lambda number, _: interrupts.append(number))
    try:
        yield
    finally:
        for of, handler in handlers.items():
            signal.signal(of, handler)
        over.set()
        thread.join()
        if interrupts:
            raise KeyboardInterrupt(interrupts[0])


def _loky(jobs: int, stack: ExitStack) -> dict[str, Any]:
    from joblib import parallel_config
    from joblib.externals.loky import get_reusable_executor

    # A worker that has grown by 300 MB, as a data set makes it do, is replaced between runs; loky
    # suspects a leak.
    warnings.filterwarnings(
        "ignore", message="A worker stopped while some jobs", category=UserWarning
    )
    # two at least: joblib simulates in this process what has one
    stack.callback(
        lambda: get_reusable_executor(max_workers=max(2, jobs), reuse=True).shutdown(
            kill_workers=True
        )
    )
    watched = {"initializer": start_worker, "initargs": (os.getpid(),)}
    stack.enter_context(parallel_config("loky", inner_max_num_threads=1, **watched))
    _remove_semaphores()
    # else it makes one in /dev/shm
    return {"n_jobs": max(2, jobs), "max_nbytes": None, "temp_folder": gettempdir()}


def _remove_semaphores() -> None:
    """Remove from Linux's shared memory what loky left there for processes that were killed."""
    for left in Path("/dev/shm").glob("sem.loky-*"):
        owner = left.name.split("-")[1]
        if owner.isdecimal() and not alive(int(owner)):
            with suppress(OSError):  # of another user, or another process removed it first
                left.unlink()


def _dask(jobs: int, stack: ExitStack) -> dict[str, Any]:
    """The cluster of the current client, or of DASK_SCHEDULER_ADDRESS, or else processes of this
    machine.
    """
    import dask
    from distributed import Client, default_client
    from joblib import parallel_config

    try:
        default_client()
    except ValueError:
        local = {"n_workers": jobs, "threads_per_worker": 1, "dashboard_address": None}
        known = dask.config.get("scheduler-address", None)
        stack.enter_context(Client(**({} if known else local)))
    stack.enter_context(parallel_config("dask"))
    return {"n_jobs": -1}


def _ray(jobs: int, stack: ExitStack) -> dict[str, Any]:
    """The cluster that this process has joined, or that of RAY_ADDRESS, or else processes of this
    machine.
    """
    import ray
    from joblib import parallel_config
    from ray.util.joblib import register_ray

    if not ray.is_initialized():
        local = {"num_cpus": jobs, "include_dashboard": False}
        ray.init(log_to_driver=False, **({} if os.environ.get("RAY_ADDRESS") else local))
        stack.callback(ray.shutdown)
    register_ray()
    needed = {"num_gpus": 1} if ray.cluster_resources().get("GPU") else {}
    stack.enter_context(parallel_config("ray", ray_remote_args=needed))
    return {"n_jobs": jobs, "return_as": "list"}  # joblib returns Ray's results when all are done


ENGINES = {"loky": _loky, "ray": _ray, "dask": _dask}
"""Processes of this machine, Ray, Dask: each gives arguments of `joblib.Parallel`, for workers that
last as `stack`.
"""
