"""The pool of threads: how many, and when it is interrupted."""

import os
from concurrent.futures import ThreadPoolExecutor
from time import sleep

import pytest
import torch
from torch.nn.functional import cross_entropy

from laggard.models import MLP, LeNet5
from laggard.models.backends.threads import Threads

JOBS, INTERRUPTED = 2000, 1000


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system knows no affinity")
def test_threads_are_as_many_as_usable_cores(monkeypatch):
    """A scheduler allows this process five cores, and other processes all."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64 if process else 5)))
    assert Threads(MLP(hidden=[3]).build((1, 2, 2), 2), cross_entropy).lanes == 10


def test_interrupted_jobs_are_not_carried_out(monkeypatch):
    """Ctrl-C comes while an evaluation of many members is handed over; two threads may be at a job
    each.
    """
    backend = Threads(MLP(hidden=[3]).build((1, 2, 2), 2), cross_entropy, threads=2)
    done, handed, submit = [], [], ThreadPoolExecutor.submit

    def interrupted(pool, *job):
        handed.append(job)
        if len(handed) == INTERRUPTED:
            raise KeyboardInterrupt
        return submit(pool, *job)

    def job(number):
        sleep(0.002)
        done.append(number)
        return number

    monkeypatch.setattr(ThreadPoolExecutor, "submit", interrupted)
    pool = backend._pool
    with pytest.raises(KeyboardInterrupt):
        backend._each(job, JOBS)
    before = len(done)
    pool.shutdown(wait=True)  # as Python does at its exit
    assert len(done) - before <= 2
    assert backend._each(job, 5) == [0, 1, 2, 3, 4]  # a notebook goes on


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["compiled", "by autograd"])
def test_gradient_of_diverged_model_is_not_computed(dtype, monkeypatch):
    """Two of three models diverge: their gradients are NaN, the third's is the same bit for bit."""
    module = MLP(hidden=[3]).build((1, 2, 2), 2).to(dtype)
    backend = Threads(module, cross_entropy, threads=2)
    weights = torch.randn(3, sum(one.numel() for one in module.parameters()), dtype=dtype)
    x, y, index = (
        torch.randn(9, 1, 2, 2, dtype=dtype),
        torch.randint(2, (9,)),
        torch.randint(9, (3, 4)),
    )
    gradients, losses = backend.gradients(weights, x, y, index)
    jobs, each = [], backend._each
    monkeypatch.setattr(backend, "_each", lambda job, count: jobs.append(count) or each(job, count))
    weights[[0, 2], -1] = float("nan")
    found, lost = backend.gradients(weights, x, y, index)
    assert (found[1] == gradients[1]).all()
    assert lost[1] == losses[1]
    assert found[[0, 2]].isnan().all()
    assert lost[[0, 2]].isnan().all()
    assert jobs == [1]


def test_gradient_of_infinite_loss_ends_in_nan():
    """NaN marks the model as diverged for the next gradient; LeNet-5 is compiled or uses autograd."""
    for dtype in (torch.float32, torch.float64):
        module = LeNet5().build((1, 28, 28), 10).to(dtype)
        backend = Threads(module, cross_entropy, threads=1)
        weights = (
            torch.randn(1, sum(one.numel() for one in module.parameters()), dtype=dtype) * 1e30
        )
        x, y = torch.randn(4, 1, 28, 28, dtype=dtype) * 1e300, torch.randint(10, (4,))
        gradients, losses = backend.gradients(weights, x, y, torch.arange(4)[None])
        assert losses.isnan().all()
        assert gradients[0, -1].isnan()
