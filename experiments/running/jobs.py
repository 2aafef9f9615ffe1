"""Backends that simulate a sweep's runs: worker processes, or a cluster engine, by joblib."""

import logging
import os
import signal
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from multiprocessing import active_children, resource_tracker
from pathlib import Path
from socket import create_connection
from tempfile import gettempdir
from time import perf_counter, sleep
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from laggard.__main__ import start_worker
from laggard.experiments.config.errors import ConfigError, error_line
from laggard.experiments.results.store import alive

Document = Mapping[str, Any]
"""A run's config as plain data, which any process can read."""


class Job(NamedTuple):
    """A run for a worker.

    Attributes:
        run: its id.
        document: its config.
        lost: whether a worker has died while it simulated this run.
    """

    run: str
    document: Document
    lost: bool


class JobResult(NamedTuple):
    """The end of a run: its id, its seconds of wall time, and the error, if there was one."""

    run: str
    seconds: float
    failure: str = ""


JobFunction = Callable[[Job], JobResult]


RunRound = Callable[[JobFunction, Sequence[Job], int, list[str]], Generator[JobResult, None, None]]
"""Runs the jobs, the given number in parallel, and yields their results as they end; the
list receives the runs that started.
"""
CONNECT_SECONDS = 10.0
"""The time for which a cluster's address is tried (s)."""
KILL_INTERVAL = 0.05
"""Seconds between two checks for workers that are to be killed after an interrupt."""
MAX_WORKER_DEATHS = 3
"""Deaths of workers after which a run fails: two while other runs go on, the last one alone."""


def check(backend: str) -> None:
    """Check that a backend exists and is installed.

    Raises:
        ConfigError: it is unknown or not installed; says what to install.
    """
    if backend not in ENGINES:
        raise ConfigError("backend", f"expected one of {', '.join(ENGINES)}, got {backend!r}")
    if backend == "loky":
        return
    module = "distributed" if backend == "dask" else backend
    if find_spec(module) is None:
        raise ConfigError("backend", f"{backend} is not installed: pip install laggard[{backend}]")


def run_jobs(
    work: JobFunction,
    documents: Mapping[str, Document],
    parallel: int,
    backend: str,
    finished: Callable[[str], bool],
) -> Iterator[JobResult]:
    """Yield the end of each run; if a worker dies, all workers are replaced and work goes on.

    Args:
        work: simulates a run in another process.
        documents: the configs of the runs, by their ids.
        parallel: number of runs at once.
        finished: whether a run was completed though its report was lost with a worker.
    """
    left = dict(documents)
    deaths = Counter[str]()
    interrupts: list[int] = []
    with ExitStack() as stack:
        if backend == "loky":
            stack.enter_context(interrupt_by_killing(interrupts))
        run_round = _start(backend, parallel, stack)
        while left:
            # A run in whose rounds workers died twice is run alone: if one dies again, this run is
            # the cause, not one beside it.
            batch = [run for run in left if deaths[run] < MAX_WORKER_DEATHS - 1]
            at_once = parallel
            if not batch:
                batch = list(left)[:1]
                at_once = 1
            started: list[str] = []
            jobs = [Job(run, left[run], deaths[run] > 0) for run in batch]
            with closing(run_round(work, jobs, at_once, started)) as reports:
                try:
                    for job in reports:
                        del left[job.run]
                        yield job
                        if interrupts:
                            return
                    continue
                except Exception as error:  # a worker has died, or the engine has lost it
                    cause = error
            if interrupts:
                return
            # No run had begun, so that no death would be counted, and rounds would fail for ever.
            if not started:
                raise cause
            for run in started:
                if run not in left:
                    continue
                end = _end_of_lost_run(run, deaths, finished, cause)
                if end is not None:
                    del left[run]
                    yield end


def _end_of_lost_run(
    run: str, deaths: Counter[str], finished: Callable[[str], bool], cause: Exception
) -> JobResult | None:
    """The end of a run that had started when a worker died; None to run it again."""
    if finished(run):
        return JobResult(run, float("nan"))
    deaths[run] += 1
    if deaths[run] < MAX_WORKER_DEATHS:
        return None
    problem = error_line(cause)[:200]
    failure = f"its worker was killed {MAX_WORKER_DEATHS} times: {problem}"
    return JobResult(run, float("nan"), failure)


def _start(backend: str, parallel: int, stack: ExitStack) -> RunRound:
    """Start an engine, for as long as `stack` lives.

    Raises:
        ConfigError: it does not start, or no cluster listens at the address that is set.
    """
    start, remedy = ENGINES[backend], REMEDIES.get(backend, "")
    try:
        return start(parallel, stack)
    except Exception as error:  # whatever the engine raises
        problem = f"{backend} does not start: {error_line(error)[:200]}"
        raise ConfigError("backend", f"{problem}{remedy}") from None


def _check_listening(address: str) -> None:
    """Check that a process listens at `host:port`, before an engine tries for minutes.

    Raises:
        ConnectionError: nobody listens within some seconds.
    """
    if "://" not in address:
        address = f"tcp://{address}"
    parts = urlsplit(address)
    if parts.scheme not in ("tcp", "tls", "ray") or not parts.port:
        return
    deadline = perf_counter() + CONNECT_SECONDS
    while True:
        try:
            create_connection((parts.hostname or "", parts.port), timeout=1).close()
            return
        except OSError as error:
            if perf_counter() > deadline:
                raise ConnectionError(f"nobody listens at {address} ({error})") from None
        sleep(0.5)


# ------------------------------------------------------------------------------------------------
# rounds: each yields results until all runs have ended or a worker dies; `started` receives the
# runs that have started


def _joblib_round(
    arguments: Mapping[str, Any],
    work: JobFunction,
    jobs: Sequence[Job],
    parallel: int,
    started: list[str],
) -> Generator[JobResult, None, None]:
    """A round of `joblib.Parallel` with these arguments."""
    from joblib import Parallel, delayed

    def tasks() -> Iterator[Any]:
        for job in jobs:
            started.append(job.run)
            yield delayed(work)(job)

    # None is dispatched to wait: a death counts against every run that has started.
    pool = Parallel(
        **arguments, return_as="generator_unordered", pre_dispatch=parallel, batch_size=1
    )
    # The tracker's start unblocks Ctrl-C, so it comes first. Workers inherit the mask.
    resource_tracker.ensure_running()
    with block_interrupt():
        reports = pool(tasks())
    try:
        for job in reports:  # noqa: UP028  (`yield from` would close them before warnings are off)
            yield job
    finally:
        # joblib warns about results that are not read
        with warnings.catch_warnings(), suppress(AttributeError):
            warnings.simplefilter("ignore")
            reports.close()


def _ray_round(
    options: Mapping[str, Any],
    work: JobFunction,
    jobs: Sequence[Job],
    parallel: int,
    started: list[str],
) -> Generator[JobResult, None, None]:
    """A round of Ray's tasks with these options; joblib's results of Ray come all at the end."""
    import ray

    def simulate(job: Job) -> JobResult:  # Ray takes no `partial`
        return work(job)

    task = ray.remote(**options)(simulate)
    waiting = list(jobs)
    running: list[Any] = []
    try:
        while waiting or running:
            while waiting and len(running) < parallel:
                job = waiting.pop(0)
                started.append(job.run)
                running.append(task.remote(job))
            (ended, *_), running = ray.wait(running)
            yield ray.get(ended)
    finally:
        for task_running in running:
            ray.cancel(task_running, force=True)


@contextmanager
def block_interrupt() -> Iterator[None]:
    """Block Ctrl-C in this context, and in processes started in it, which inherit the mask."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def interrupt_by_killing(interrupts: list[int]) -> Iterator[None]:
    """Kill loky's workers on Ctrl-C, and on SIGTERM where it is handled; raise at the end.

    An exception in the middle of loky would leave its locks taken, and the process would hang at
    its exit. The death of workers is an event that loky expects at any moment. Workers that it
    starts meanwhile are killed too.

    Args:
        interrupts: receives the numbers of the signals.

    Raises:
        KeyboardInterrupt: at the end of the context, after a signal.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are handled by the main thread only
        return
    over = threading.Event()
    thread = threading.Thread(target=_kill_workers, args=(interrupts, over), daemon=True)
    thread.start()
    handlers = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        handler = signal.getsignal(number)
        if callable(handler):
            handlers[number] = handler
            signal.signal(number, lambda received, _: interrupts.append(received))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        over.set()
        thread.join()
        if interrupts:
            raise KeyboardInterrupt(interrupts[0])


def _kill_workers(interrupts: list[int], over: threading.Event) -> None:
    """Kill loky's workers, from the first interrupt until `over`."""
    from joblib.externals.loky.backend.process import LokyProcess

    while not over.wait(KILL_INTERVAL):
        if not interrupts:
            continue
        for child in active_children():
            if isinstance(child, LokyProcess):
                with suppress(ProcessLookupError):
                    os.kill(child.pid, signal.SIGKILL)


# ------------------------------------------------------------------------------------------------
# engines: each returns its rounds, for workers that live as long as `stack`


def _loky(jobs: int, stack: ExitStack) -> RunRound:
    """Start loky's worker processes on this machine."""
    from joblib import parallel_config
    from joblib.externals.loky import get_reusable_executor

    # loky suspects a leak in a worker that has grown by 300 MB, as by a data set, and replaces it
    warnings.filterwarnings(
        "ignore", message="A worker stopped while some jobs", category=UserWarning
    )
    workers = max(2, jobs)  # joblib runs jobs of a single worker in this process

    def shut_down() -> None:
        executor = get_reusable_executor(max_workers=workers, reuse=True)
        executor.shutdown(kill_workers=True)

    stack.callback(shut_down)
    watch_parent = {"initializer": start_worker, "initargs": (os.getpid(),)}
    stack.enter_context(parallel_config("loky", inner_max_num_threads=1, **watch_parent))
    _remove_semaphores()
    # without a folder joblib makes one in /dev/shm
    arguments = {"n_jobs": workers, "max_nbytes": None, "temp_folder": gettempdir()}
    return partial(_joblib_round, arguments)


def _remove_semaphores() -> None:
    """Remove from Linux's shared memory what loky left there for processes that were killed."""
    for semaphore in Path("/dev/shm").glob("sem.loky-*"):
        owner = semaphore.name.split("-")[1]
        if owner.isdecimal() and not alive(int(owner)):
            with suppress(OSError):  # another user's file, or another process removed it first
                semaphore.unlink()


def _dask(jobs: int, stack: ExitStack) -> RunRound:
    """Use the cluster of the current client or of DASK_SCHEDULER_ADDRESS, else local processes."""
    import dask
    from distributed import Client, default_client
    from joblib import parallel_config

    # workers with torch take longer to end than Dask's nanny waits: it would print a warning
    logging.getLogger("distributed.nanny").setLevel(logging.ERROR)
    try:
        default_client()
    except ValueError:
        address = dask.config.get("scheduler-address", None)
        options: dict[str, Any] = {"n_workers": jobs, "threads_per_worker": 1}
        options |= {"dashboard_address": None, "silence_logs": logging.ERROR}
        if address:
            _check_listening(address)
            options = {}
        stack.enter_context(Client(**options))
    stack.enter_context(parallel_config("dask"))
    return partial(_joblib_round, {"n_jobs": -1})


def _ray(jobs: int, stack: ExitStack) -> RunRound:
    """Use the cluster that this process has joined or that of RAY_ADDRESS, else local processes."""
    import ray

    if not ray.is_initialized():
        options: dict[str, Any] = {"num_cpus": jobs, "include_dashboard": False}
        address = os.environ.get("RAY_ADDRESS")
        if address:
            _check_listening(address)
            options = {}
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
        stack.callback(ray.shutdown)
    # a run whose worker dies is counted here, and run again
    tasks: dict[str, Any] = {"num_cpus": 1, "max_retries": 0}
    if ray.cluster_resources().get("GPU"):
        tasks["num_gpus"] = 1
    return partial(_ray_round, tasks)


ENGINES = {"loky": _loky, "ray": _ray, "dask": _dask}
REMEDIES = {
    "ray": ": check RAY_ADDRESS, or unset it to start Ray on this machine",
    "dask": ": check DASK_SCHEDULER_ADDRESS, or unset it to start processes on this machine",
}
