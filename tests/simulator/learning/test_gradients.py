"""The pool: what is evaluated, when, and with what beside it."""

from types import SimpleNamespace

import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import (
    ALGORITHMS,
    Cluster,
    Delayed,
    KSync,
    Rule,
    Stop,
    SyncPS,
    Timing,
    simulate,
)
from laggard.simulator.learning.pool import GradientPool
from laggard.simulator.learning.promises import evaluate
from laggard.simulator.learning.weights import join_slices, stamp
from laggard.simulator.recording.metrics import Learning
from laggard.simulator.timing.distributions import Exponential


class Counted(Quadratic):
    """A quadratic that notes how many gradients each call was for."""

    def __init__(self, lanes, **settings):
        super().__init__(**settings)
        self.lanes, self.calls = lanes, []

    def gradients(self, weights, batches):
        self.calls.append(len(batches))
        return super().gradients(weights, batches)


def pool_of(task, ensemble=1, **more):
    settled = []
    pool = GradientPool(
        task, task.start([0] * ensemble), lambda gradient, *_: settled.append(gradient), **more
    )
    model = SimpleNamespace(rank=0, version=0, mixings=0)

    def promise(due=0.0):
        gradient = pool.promise(0, model, task.start([0] * ensemble), torch.zeros(1))
        gradient.due = due
        return gradient

    return pool, promise, settled


@pytest.mark.parametrize(
    ("lanes", "ensemble", "asked", "evaluated"),
    [
        (1, 1, 1, 1),
        (2, 1, 1, 8),
        (4, 1, 3, 16),
        (4, 1, 4, 4),
        (4, 1, 5, 5),
        (4, 2, 1, 8),
        (4, 3, 1, 5),
        (4, 9, 1, 1),
        (1000, 1, 1, 20),
    ],
)
def test_calls_fill_empty_lanes_four_times(lanes, ensemble, asked, evaluated):
    task = Counted(lanes)
    _, promise, _ = pool_of(task, ensemble)
    gradients = [promise() for _ in range(20)]
    evaluate(gradients[:asked])
    assert task.calls == [evaluated]


def test_calls_are_smaller_after_unused_work():
    task = Counted(4)
    pool, promise, _ = pool_of(task)
    used, *unused = [promise() for _ in range(16)]
    assert used.value is not None
    for gradient in unused[:2]:
        gradient.cancel()
    assert pool.unused == 2  # of 16
    more = [promise() for _ in range(10)]
    assert more[0].value is not None
    assert task.calls == [16, 4]
    while pool.evaluated < 40:  # of which 2 are 5 %
        assert promise().value is not None
    more = [promise() for _ in range(40)]
    assert more[0].value is not None
    assert task.calls[-1] == 16


def test_lanes_are_filled_with_gradients_due_first():
    task = Counted(2)
    pool, promise, _ = pool_of(task)
    gradients = [promise(due) for due in (9.0, 1.0, 11.0, 2.0, 3.0, 12.0, 4.0, 5.0, 13.0, 6.0, 7.0)]
    assert gradients[0].value is not None
    late = {gradient.due for gradient in gradients if gradient._value is None}
    assert late == {11.0, 12.0, 13.0}
    assert pool.evaluated == 8


def test_values_are_evaluated_once():
    task = Counted(1)
    _, promise, _ = pool_of(task)
    gradient = promise()
    evaluate([gradient, gradient])
    assert gradient.value is gradient.value
    assert float(gradient.losses) == 0.5
    assert task.calls == [1]


def test_memory_bound_evaluates_early():
    task = Counted(1)
    # weights and gradient of one parameter take 8 bytes
    pool, promise, _ = pool_of(task, memory=4 * 2 * 5)
    gradients = [promise(due=float(k)) for k in range(6)]
    assert task.calls == [1]
    assert [gradient.due for gradient in gradients if gradient._value is not None] == [0.0]
    assert len(pool._pending) == 5


def test_dropped_gradient_is_never_evaluated():
    task = Counted(1000)
    pool, promise, settled = pool_of(task)
    kept, dropped = promise(), promise()
    dropped.drop()
    assert settled == [dropped]
    assert kept.value is not None
    assert pool.evaluated == 1


@pytest.mark.parametrize("lanes", [1, 2, 4, 5])
@pytest.mark.parametrize("cancel", [True, False])
def test_unused_gradients_cost_no_arithmetic(lanes, cancel):
    task = Counted(lanes)
    cluster = Cluster(workers=8, compute=Exponential(1.0))
    outcome = simulate(
        cluster, KSync(Rule(), wait_for=5, cancel=cancel), task, stop=Stop(updates=40)
    )
    counts = outcome.gradients
    assert counts["cancelled"] + counts["dropped"] > 40
    assert outcome.evaluated == counts["applied"] == 200
    assert set(task.calls) == {5}


def test_delayed_gradients_are_evaluated_together():
    task = Counted(1000)
    simulate(Cluster(workers=1), Delayed(Rule(lr=0.01), delay=32), task, stop=Stop(updates=330))
    assert set(task.calls[:-1]) == {33}


def test_run_of_clock_alone_evaluates_nothing():
    outcome = simulate(Cluster(workers=4), SyncPS(Rule()), Timing(), stop=Stop(updates=5))
    assert outcome.evaluated == 0
    assert outcome.weights.shape == (1, 0)
    assert float(Timing().gradients(torch.zeros(2, 1, 0), [None, None])[1].sum()) == 0


def test_memory_of_clock_alone_does_not_grow():
    """A memory that is made of the last one is a chain, of which a run of the clock asks no value."""
    _, promise, _ = pool_of(Timing())
    memory = promise()
    for _ in range(3):
        memory = promise().map(torch.add, memory)
    assert not memory.sources
    _, learning, _ = pool_of(Quadratic())
    assert learning().map(torch.neg).sources


def test_staleness_runs_until_gradient_has_status():
    _, promise, _ = pool_of(Quadratic())
    gradient = promise()
    gradient._owner.version = 4
    assert (gradient.staleness, gradient.version) == (4, 4)
    gradient.drop()
    gradient._owner.version = 9
    assert (gradient.staleness, gradient.version) == (4, 4)


def test_gradient_after_local_steps_counts_from_read():
    """This also holds for timing runs, where every value is known."""
    for task in (Quadratic(dim=2), Timing()):
        start = task.start([0])
        pool = GradientPool(task, start, lambda *_: None)
        owner, reader = (SimpleNamespace(rank=rank, version=7 - rank, mixings=0) for rank in (2, 3))
        read = stamp(start, owner)
        owner.version += 3
        gradient = pool.promise(3, reader, start + 0.0, None, read)
        assert (gradient.target, gradient.version_read, gradient.staleness, gradient.status) == (
            2,
            5,
            3,
            "in flight",
        )
        assert pool.promise(3, reader, start + 0.0, None).target == 3


def test_gradient_is_dropped_with_last_piece():
    task = Quadratic(dim=4)
    pool = GradientPool(task, task.start([0]), lambda *_: None)
    owners = [SimpleNamespace(rank=rank, version=0, mixings=0) for rank in (-1, -2)]
    read = join_slices([stamp(torch.ones(1, 2), owner) for owner in owners])
    gradient = pool.promise(0, owners[0], read, torch.zeros(1))
    gradient.piece(-1).drop()
    assert (gradient.status, gradient.piece(-1).status, gradient.piece(-2).status) == (
        "in flight",
        "dropped",
        "in flight",
    )
    gradient.piece(-2).drop()
    assert gradient.status == "dropped"


def test_released_gradient_keeps_loss_but_no_value():
    task = Counted(1, dim=3)
    _, promise, _ = pool_of(task, ensemble=2)
    early, gradient = promise(), promise()
    early.release()
    assert early.value.shape == (2, 3), "it had no value yet"
    losses = gradient.losses
    gradient.release()
    assert gradient.losses is losses
    assert gradient.weights.shape == (2, 0)
    with pytest.raises(RuntimeError, match="worker 0"):
        gradient.value  # noqa: B018


LOCAL = [
    name for name, method in ALGORITHMS.items() if "local_steps" in method.__dataclass_fields__
]


@pytest.mark.parametrize("name", LOCAL)
def test_round_of_local_steps_holds_no_old_models(name, monkeypatch):
    """2,048 steps in a round of 18 LeNet-5 were 22 GB."""
    held = []

    def note(record, gradients, updates, time):
        held.append(sum(gradient.weights.untyped_storage().nbytes() for gradient in gradients))
        applied(record, gradients, updates, time)

    applied = Learning.applied
    monkeypatch.setattr(Learning, "applied", note)
    method = ALGORITHMS[name](Rule(lr=0.01), local_steps=8)
    task = Quadratic(dim=500)
    simulate(Cluster(workers=4), method, task, stop=Stop(updates=8))
    (model,) = task.start([0])
    assert max(held) <= model.nbytes
