"""Where the runs of a sweep are simulated: in worker processes of this machine, or on a cluster engine, by joblib."""

import os
import signal
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from importlib.util import find_spec
from typing import Any

from experiments.errors import ConfigError
from experiments.worker import Done, Errand, begin, carry_out

BACKENDS = ("loky", "ray", "dask")
"""Processes of this machine; Ray; Dask."""
LIVES = 3
"""How many workers may die of a run before it is given up: twice in company, the last time by itself."""


def check(backend: str) -> None:
    """Check that there is such a backend here.

    Raises:
        ConfigError: there is not; says what to install.
    """
    if backend not in BACKENDS:
        raise ConfigError("backend", f"expected one of {', '.join(BACKENDS)}, got {backend!r}")
    module = {"dask": "distributed"}.get(backend, backend)
    if backend != "loky" and find_spec(module) is None:
        raise ConfigError("backend", f"{backend} is not installed: pip install laggard[{backend}]")


def carried_out(
    errands: Iterable[Errand], jobs: int, backend: str, finished: Callable[[Errand], bool]
) -> Iterator[Done]:
    """How each errand went, as they come in; where a worker dies, the others are replaced and the work goes on.

    A run in whose company a worker has died twice is simulated by itself, so that a run which kills its worker is
    told from those that only stood beside it.

    Args:
        jobs: how many at once.
        finished: whether an errand whose report was lost with a worker had been carried out by then.
    """
    left, deaths = {errand.number: errand for errand in errands}, Counter[int]()
    with _engine(backend, jobs) as settings:
        while left:
            company = [errand for errand in left.values() if deaths[errand.number] < LIVES - 1]
            together = company or list(left.values())[:1]
            handed: list[int] = []
            with closing(_round(together, jobs if company else 1, settings, handed)) as round_:
                try:
                    for done in round_:
                        del left[done.number]
                        yield done
                    continue
                except Exception as error:  # a worker has died, or the engine has lost it
                    broken = error
            if not handed:
                raise broken
            for number in [number for number in handed if number in left]:
                if finished(left[number]):
                    del left[number]
                    yield Done(number, float("nan"))
                    continue
                deaths[number] += 1
                if deaths[number] >= LIVES:
                    del left[number]
                    yield Done(number, float("nan"), f"its worker was killed {LIVES} times: {_short(broken)}")


def _round(errands: Sequence[Errand], jobs: int, settings: Mapping[str, Any], handed: list[int]) -> Iterator[Done]:
    """Reports until all errands are done or a worker dies; notes in `handed` which were begun."""
    from joblib import Parallel, delayed

    def tasks() -> Iterator[Any]:
        for errand in errands:
            handed.append(errand.number)
            yield delayed(carry_out)(errand)

    parallel = Parallel(**settings, pre_dispatch=jobs, batch_size=1)
    if parallel.return_generator:
        with _ctrl_c_held_back():  # processes that are started now inherit that: Ctrl-C is for this one alone
            reports = parallel(tasks())
    else:
        reports = parallel(tasks())
    try:
        yield from reports
    finally:
        with warnings.catch_warnings(), suppress(AttributeError):  # joblib tells how many results nobody will read
            warnings.simplefilter("ignore")
            reports.close()


@contextmanager
def _engine(backend: str, jobs: int) -> Iterator[dict[str, Any]]:
    """What `joblib.Parallel` is called with; the workers are there until the end, and no longer."""
    with ExitStack() as stack:
        engine = {"loky": _loky, "dask": _dask, "ray": _ray}[backend]
        yield {"return_as": "generator_unordered"} | engine(jobs, stack)


def _loky(jobs: int, stack: ExitStack) -> dict[str, Any]:
    from joblib import parallel_config
    from joblib.externals.loky import get_reusable_executor

    # A worker that has grown by 300 MB, as a data set makes it do, is replaced between runs; loky suspects a leak.
    warnings.filterwarnings("ignore", message="A worker stopped while some jobs", category=UserWarning)
    # two at least: joblib simulates in this process what has one
    stack.callback(lambda: get_reusable_executor(max_workers=max(2, jobs), reuse=True).shutdown(kill_workers=True))
    watched = {"initializer": begin, "initargs": (os.getpid(),)}
    stack.enter_context(parallel_config("loky", inner_max_num_threads=1, **watched))
    return {"n_jobs": max(2, jobs)}


def _dask(jobs: int, stack: ExitStack) -> dict[str, Any]:
    """The cluster of the current client, or of DASK_SCHEDULER_ADDRESS, or else processes of this machine."""
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
    """The cluster that this process has joined, or that of RAY_ADDRESS, or else processes of this machine."""
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
    return {"n_jobs": jobs, "return_as": "list"}  # joblib hands on what Ray has done when all of it is


@contextmanager
def _ctrl_c_held_back() -> Iterator[None]:
    """Ctrl-C waits until the end of this, where the system can do that."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _short(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:200]
