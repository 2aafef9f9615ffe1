"""Gradients in the background change nothing but the time that a run takes, and end with it."""

import threading
from contextlib import nullcontext
from time import sleep

import pytest
import torch

from laggard.models import MLP, Supervised, synthetic
from laggard.models.backends.background import BackgroundGradients
from laggard.simulator import (
    SGP,
    AsyncPS,
    Cluster,
    Delayed,
    Evaluate,
    KSync,
    Rule,
    Stop,
    SyncPS,
    Timing,
    simulate,
)
from laggard.simulator.learning.rules import SGD, Adam
from laggard.simulator.learning.task import submit
from laggard.simulator.timing.distributions import Exponential
from laggard.simulator.timing.slowdowns import Crash
from tests.simulator.engine.books import differences


class Watched(Supervised):
    """Notes for how many gradients each call is, and how many calls are in the background."""

    def __init__(self, threads, **given):
        data = synthetic(samples=60, features=6, classes=3)
        super().__init__(MLP(hidden=(5,)).build, data, 8, device="cpu", threads=threads, **given)
        self.lanes, self.calls, self.waited = 4, [], 0

    def gradients(self, weights, batches):
        self.calls.append(len(batches))
        self.waited += 1
        return super().gradients(weights, batches)

    def submit(self, weights, batches):
        call = super().submit(weights, batches)
        if call is not None:
            self.calls.append(len(batches))
        return call


def eight(**given):
    return Cluster(8, Exponential(1.0), **given)


RATES = torch.tensor([[0.1], [1e30]], dtype=torch.float64)
CASES = {
    "async": (eight(), AsyncPS(Rule(SGD(momentum=0.9))), {}),
    "an ensemble": (eight(), AsyncPS(Rule(Adam())), {"learning_seeds": [3, 4]}),
    "a member that diverges": (eight(), AsyncPS(Rule(lr=RATES)), {"ensemble": 2}),
    "without a server": (eight(), SGP(Rule()), {}),
    "a fixed delay": (Cluster(1), Delayed(Rule(), delay=9), {}),
    "crashes": (
        eight(slowdowns=[Crash(1, at=1.0, back=3.0), Crash(2, at=4.0)]),
        AsyncPS(Rule()),
        {},
    ),
    "latecomers": (eight(), KSync(Rule(), wait_for=2), {}),
    "all at once": (eight(), SyncPS(Rule()), {}),
    "little memory": (eight(), AsyncPS(Rule()), {"memory": 1500.0}),
}


def test_weights_of_gradients_needed_at_once_are_not_stacked():
    """`gradients` takes the weights of a call as one tensor, `submit` each model's as it is."""
    task = Watched(threads=2)
    simulate(eight(), SyncPS(Rule()), task, stop=Stop(updates=3))
    assert task.calls == [8, 8, 8]
    assert task.waited == 0


def outcome_of(case, task, **more):
    cluster, algorithm, given = CASES[case]
    limits = {"stop": Stop(updates=60), "evaluate": Evaluate(every_updates=11)}
    return simulate(cluster, algorithm, task, **{**limits, **given, **more})


@pytest.mark.parametrize("case", CASES)
def test_run_is_the_same_bit_for_bit(case):
    """Threads change neither results nor calls; one thread computes nothing in the background."""
    alone, others = Watched(threads=1), [Watched(threads) for threads in (2, 4)]
    expected = outcome_of(case, alone)
    assert alone.waited == len(alone.calls)
    for task in others:
        assert differences(outcome_of(case, task), expected) == []
        assert task.calls == alone.calls
        assert task.waited < len(task.calls)


@pytest.mark.parametrize("raised", [KeyboardInterrupt, ValueError, None])
def test_no_background_gradient_starts_after_run(raised, monkeypatch):
    """Python waits at exit for background work, however the run ends."""
    done, right = [], BackgroundGradients.__init__

    def slow(self, executor, job, *rest):
        def wait(row):
            sleep(0.02)
            done.append(row)
            job(row)

        right(self, executor, wait, *rest)

    def watch(progress):
        if raised and progress.updates == 2:
            raise raised

    monkeypatch.setattr(BackgroundGradients, "__init__", slow)
    task = Watched(threads=2)
    with nullcontext() if raised is None else pytest.raises(raised):
        outcome_of("async", task, watch=watch, stop=Stop(updates=2 if raised is None else 60))
    before = len(done)
    assert before < 8
    task._backend._background.shutdown(wait=True)  # as Python does at its exit
    assert len(done) <= before + 1


def test_error_in_the_background_ends_the_run(monkeypatch):
    right = BackgroundGradients.__init__

    def wrong(self, executor, job, *rest):
        def fail(row):
            if row == 3:
                raise MemoryError("no memory")
            job(row)

        right(self, executor, fail, *rest)

    monkeypatch.setattr(BackgroundGradients, "__init__", wrong)
    with pytest.raises(MemoryError, match="no memory"):
        outcome_of("async", Watched(threads=2))


class Derived(Watched):
    """Computes gradients in a way of its own."""

    def gradients(self, weights, batches):
        gradients, losses = super().gradients(weights, batches)
        return 2 * gradients, losses


class Wrapper:
    """A task that passes on all but one function."""

    def __init__(self, task):
        self._task = task

    def __getattr__(self, name):
        return getattr(self._task, name)

    def gradients(self, weights, batches):
        return self._task.gradients(weights, batches)


def test_overridden_gradients_are_not_submitted():
    given, patched = Watched(threads=2), Watched(threads=2)
    patched.gradients = lambda weights, batches: Watched.gradients(patched, weights, batches)
    weights = given.start([0, 1])[:, None]
    batches = [torch.arange(8), torch.arange(8, 16)]
    assert submit(given, weights, batches) is not None
    for other in (Derived(threads=2), Wrapper(given), patched):
        assert submit(other, weights, batches) is None


def test_clock_only_run_starts_no_thread(monkeypatch):
    monkeypatch.setattr(threading.Thread, "start", lambda self: pytest.fail("a thread was started"))
    assert simulate(eight(), AsyncPS(Rule()), Timing(), stop=Stop(updates=50)).evaluated == 0
