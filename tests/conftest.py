"""What tests of several folders share."""

import os
import sys

import pytest

if (worker := os.environ.get("PYTEST_XDIST_WORKER")) and hasattr(os, "sched_setaffinity"):
    # A core a test process, before torch counts them: else each of them has runs in two processes
    # and on two threads.
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})

import torch
from hypothesis.internal.conjecture import providers

from laggard.experiments.config import plugins
from laggard.models import Quadratic, Supervised, synthetic

# Hypothesis would draw numbers that stand in the sources of whatever is loaded: ten seconds to read
# all of laggard, and other cases in each process.
providers.is_local_module_file = lambda path: False


def pytest_collection_modifyitems(items):
    """What takes long comes first: no process is left with it at the end while the others have
    nothing to do.
    """
    items.sort(
        key=lambda item: not (item.path.suffix == ".ipynb" or item.get_closest_marker("long"))
    )


@pytest.fixture(autouse=True)
def python_path():
    """Each config puts its folder on Python's path, and every import looks through all of them."""
    path, folders = list(sys.path), dict(plugins.FOLDERS)
    yield
    sys.path[:] = path
    plugins.FOLDERS.clear()
    plugins.FOLDERS.update(folders)


@pytest.fixture
def quadratic():
    """Five curvatures over two orders of magnitude, noisy, in double precision."""
    return Quadratic(
        curvature=1.0, dim=5, condition=100.0, noise=0.3, epoch=50, dtype=torch.float64
    )


@pytest.fixture(scope="session")
def perceptron():
    """A small network with real back-propagation, in double precision, on one thread."""
    from laggard.models import MLP

    data = synthetic(samples=120, features=6, classes=3)
    return Supervised(MLP(hidden=(5,)).build, data, batch=8, dtype=torch.float64, threads=1)
