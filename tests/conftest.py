"""What tests of several folders share.

The process that hands out the tests loads this module too, and does nothing else: torch and laggard
are imported where they are used, since the others begin only after it.
"""

import gc
import os
import sys

import pytest
from _pytest.doctest import DoctestModule

if (worker := os.environ.get("PYTEST_XDIST_WORKER")) and hasattr(os, "sched_setaffinity"):
    # A core a test process, before torch counts them: else each of them has runs in two processes
    # and on two threads.
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Import and collect without looking for garbage: there is none, and looking through all that
    was imported takes a quarter of the time.
    """
    gc.disable()
    collected = yield
    gc.enable()
    return collected


@pytest.hookimpl(wrapper=True)
def pytest_collect_file():
    """Look for examples in docstrings of the packages only; tests have none."""
    found = yield
    return [collector for collector in found if not isinstance(collector, DoctestModule)]


def pytest_collection_modifyitems(items):
    """What takes long comes first: no process is left with it at the end while the others have
    nothing to do.
    """
    from hypothesis.internal.conjecture import providers

    # Hypothesis would draw numbers that stand in the sources of whatever is loaded: ten seconds to
    # read all of laggard, and other cases in each process.
    providers.is_local_module_file = lambda path: False
    items.sort(
        key=lambda item: not (item.path.suffix == ".ipynb" or item.get_closest_marker("long"))
    )
    gc.freeze()  # what was imported and collected is no garbage during the tests either


@pytest.fixture(autouse=True)
def python_path():
    """Each config puts its folder on Python's path, and every import looks through all of them."""
    from laggard.experiments.config import plugins

    path, folders = list(sys.path), dict(plugins.FOLDERS)
    yield
    sys.path[:] = path
    plugins.FOLDERS.clear()
    plugins.FOLDERS.update(folders)


@pytest.fixture
def quadratic():
    """Five curvatures over two orders of magnitude, noisy, in double precision."""
    import torch

    from laggard.models import Quadratic

    return Quadratic(
        curvature=1.0, dim=5, condition=100.0, noise=0.3, epoch=50, dtype=torch.float64
    )


@pytest.fixture(scope="session")
def perceptron():
    """A small network with real back-propagation, in double precision, on one thread."""
    import torch

    from laggard.models import MLP, Supervised, synthetic

    data = synthetic(samples=120, features=6, classes=3)
    return Supervised(MLP(hidden=(5,)).build, data, batch=8, dtype=torch.float64, threads=1)
