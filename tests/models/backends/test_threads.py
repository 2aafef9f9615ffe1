"""The pool of threads: how many, and when it is interrupted."""

import os
from concurrent.futures import ThreadPoolExecutor
from time import sleep

import pytest
from torch.nn.functional import cross_entropy

from laggard.models import MLP
from laggard.models.backends.threads import Threads

JOBS, INTERRUPTED = 2000, 1000


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system knows no affinity")
def test_as_many_threads_as_this_process_may_use_cores(monkeypatch):
    """A scheduler gives five of a machine's cores, however many that has."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(5)))
    assert Threads(MLP(hidden=[3]).build((1, 2, 2), 2), cross_entropy).lanes == 10


def test_jobs_that_were_handed_over_before_ctrl_c_are_not_carried_out(monkeypatch):
    """Ctrl-C comes while an evaluation of many members is handed over; two threads may be at a job each."""
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
