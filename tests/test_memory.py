"""Memory of large tensors: what an ensemble needs at its peak."""

import platform
import subprocess
import sys

import pytest
import torch

from laggard.experiments.config.config import parse
from laggard.experiments.running import run as run_module
from laggard.experiments.running.sweep import sweep
from laggard.memory import MIN_LARGE, add, multiply

ENSEMBLE = """
import torch
from laggard.models import Logistic, Supervised, synthetic
from laggard.simulator import ALGORITHMS, Cluster, Evaluate, Rule, Stop, simulate
from laggard.simulator.timing.distributions import Gamma

def peak_memory():
    # of this program: what getrusage says may be that of the process which has started it
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return 1024 * int(status["VmHWM"].split()[0])

workers, members = 16, 64
task = Supervised(Logistic().build, synthetic(samples=64, features=1100), batch=1, threads=1)

def run(members, updates):
    rates = torch.linspace(0.001, 0.02, members, dtype=torch.float64).unsqueeze(1)
    simulate(
        cluster=Cluster(workers, Gamma(mean=1.0, cv=0.1)),
        algorithm=ALGORITHMS["async_ps"](Rule(lr=rates)),
        task=task,
        ensemble=members,
        stop=Stop(updates=updates),
        evaluate=Evaluate(every_updates=10 * updates),
    )

run(1, 20)
before = peak_memory()
run(members, 200)
print((peak_memory() - before) / (members * task.params * 4), members * task.params)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
def test_peak_of_ensemble_is_two_models_per_promise() -> None:
    # kernels that are compiled take more memory than the run: the first call stores them
    warm_up = ENSEMBLE.partition("before = ")[0]
    subprocess.run([sys.executable, "-c", warm_up], check=True)
    answer = subprocess.run(
        [sys.executable, "-c", ENSEMBLE], capture_output=True, text=True, check=True
    )
    models, entries = map(float, answer.stdout.split())
    assert entries >= MIN_LARGE
    assert 16 <= models <= 2 * 32  # weights and gradients of sixteen workers are 32


@pytest.mark.parametrize("entries", [MIN_LARGE - 1, MIN_LARGE])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sums_and_products_match_torch(entries: int, dtype: torch.dtype) -> None:
    """Also with another dtype, which a custom optimiser may return."""
    generator = torch.Generator().manual_seed(0)
    one = torch.randn(1, entries, generator=generator)
    other = torch.randn(1, entries, generator=generator).to(dtype)
    for found, expected in ((add(one, other), one + other), (multiply(one, other), one * other)):
        assert found.dtype == expected.dtype
        assert torch.equal(found, expected)
    assert torch.equal(multiply(one, -0.1), one * -0.1)


FREED = """
import gc
import numpy as np
from laggard.memory import MIN_LARGE, release_freed

def resident():
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(status["VmRSS"].split()[0]) / 1024

gc.disable()
blocks = [np.ones(100_000, np.uint8) for _ in range(2_000)]
last = np.ones(100_000, np.uint8)  # in use above all others
blocks.append(blocks)  # a cycle
del blocks
full = resident()
release_freed(MIN_LARGE - 1)
print(full - resident())
release_freed(MIN_LARGE)
print(full - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_memory_below_used_block_is_given_back() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", FREED], capture_output=True, text=True, check=True
    )
    of_small, of_large = map(float, answer.stdout.split())
    assert of_small < 20 < 150 < of_large  # of 200 MB


def test_memory_is_released_by_entries_of_all_members(tmp_path, monkeypatch) -> None:
    released: list[int] = []
    monkeypatch.setattr(run_module, "release_freed", released.append)
    config = {
        "task": {"model": "logistic", "dataset": "digits"},
        "cluster": {"workers": 2},
        "algorithm": {"name": "sync_ps"},
        "stop": {"updates": 1},
        "sweep": {"learning.lr": [0.1, 0.2, 0.3]},
    }
    sweep(parse(config), tmp_path, jobs=1)
    assert released == [3 * 7_850]
