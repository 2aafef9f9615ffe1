"""Memory of large tensors: what an ensemble needs at its peak."""

import subprocess
import sys

import pytest

from laggard.memory import MIN_LARGE

ENSEMBLE = """
import torch
from laggard.models import Logistic, Supervised, synthetic
from laggard.simulator import ALGORITHMS, Cluster, Evaluate, Rule, Stop, simulate
from laggard.simulator.timing.distributions import Gamma
from tests.benchmarks.alternation import peak_memory

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


@pytest.mark.skipif(sys.platform == "win32", reason="no peak of memory there")
def test_peak_of_ensemble_is_two_models_for_each_promise() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", ENSEMBLE], capture_output=True, text=True, check=True
    )
    models, entries = map(float, answer.stdout.split())
    assert entries >= MIN_LARGE
    assert 16 <= models <= 2 * 32  # weights and gradients of sixteen workers are 32
