"""Local SGD and DiLoCo: rounds of local steps, and what the server makes of their average."""

import numpy as np
import pytest
import torch

from laggard.models import Dataset, Logistic, Quadratic, Supervised
from laggard.simulator import (
    Cluster,
    DiLoCo,
    LocalSGD,
    Network,
    Rule,
    Stop,
    SyncPS,
    simulate,
)
from laggard.simulator.learning.rules import (
    SGD,
    Nesterov,
    WarmUp,
    schedules,
)
from laggard.simulator.timing.distributions import Gamma
from laggard.simulator.timing.slowdowns import Crash, Factor, Window
from tests.cases import quick
from tests.theory.trials import UNEVEN, batches_of, first_weights, gradient_of

LR, ROUNDS = 0.03, 30


def weights_of(algorithm, task, cluster=UNEVEN, rounds=ROUNDS):
    return simulate(cluster, algorithm, task, stop=Stop(updates=rounds)).weights


def assert_close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)


SCHEDULES = [schedules.Constant(), WarmUp(length=1.0), WarmUp(length=20.0, unit="updates")]


@pytest.mark.parametrize("average", ["weights", "updates"])
@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_schedule_of_worker_counts_epochs_of_cluster(schedule, average, quadratic):
    rule = Rule(Nesterov(momentum=0.8), LR, schedule)
    expected = weights_of(SyncPS(rule), quadratic)
    assert_close(weights_of(LocalSGD(rule, 1, average), quadratic), expected)


class Shards:
    """A partition into shards of the given sizes."""

    def __init__(self, *sizes):
        self.sizes = sizes

    def shards(self, labels, workers, rng):
        return np.split(np.arange(len(labels)), np.cumsum(self.sizes)[:-1])


def task_with_shards(sizes):
    rng = np.random.default_rng(7)
    inputs, labels = rng.standard_normal((sum(sizes), 3)), rng.integers(0, 3, sum(sizes))
    data = Dataset.from_arrays(inputs, labels, inputs[:5], labels[:5])
    options = {"partition": Shards(*sizes), "workers": len(sizes), "dtype": torch.float64}
    return Supervised(Logistic().build, data, 4, device="cpu", threads=1, **options)


def learn_by_loop(task, counts, lr, outer_lr=1.0, outer_momentum=0.0, rounds=3, local_steps=3):
    """The model after some rounds of the workers in `counts`, each weighted by its count."""
    model = first_weights(task)
    buffer = torch.zeros_like(model)
    streams = {rank: batches_of(task, rank) for rank in counts}
    for _ in range(rounds):
        change = torch.zeros_like(model)
        for rank, count in counts.items():
            local = model
            for _ in range(local_steps):
                local = local - lr * gradient_of(task, local, next(streams[rank]))
            change += count * (model - local)
        change /= sum(counts.values())
        buffer = outer_momentum * buffer + change
        model = model - outer_lr * (change + outer_momentum * buffer)
    return model


@pytest.mark.parametrize("weighting", ["samples", "equal"])
@pytest.mark.parametrize("average", ["weights", "updates"])
@pytest.mark.parametrize("options", [{}, {"shards": 2}, {"wait_for": 2}], ids=repr)
@pytest.mark.parametrize(
    "sizes", quick([[9, 1], [5, 8, 2], [20, 1, 4, 7, 3]], only=[[5, 8, 2]]), ids=len
)
def test_worker_counts_by_its_samples(sizes, options, average, weighting):
    task = task_with_shards(sizes)
    slowdowns = [Factor(rank, factor=100.0) for rank in range(2, len(sizes))]
    cluster = Cluster(len(sizes), slowdowns=slowdowns)
    counts = {rank: 1 for rank in range(options.get("wait_for", len(sizes)))}
    if weighting == "samples":
        counts = {rank: sizes[rank] for rank in counts}
    options = {"average": average, "weighting": weighting, **options}
    local_sgd = LocalSGD(Rule(lr=0.5), 3, **options)
    assert_close(weights_of(local_sgd, task, cluster, 3), learn_by_loop(task, counts, 0.5))
    outer = {"outer_lr": 0.7, "outer_momentum": 0.9}
    diloco = DiLoCo(Rule(lr=0.5), 3, **options, **outer)
    assert_close(weights_of(diloco, task, cluster, 3), learn_by_loop(task, counts, 0.5, **outer))


def test_equal_shards_are_averaged_bit_for_bit():
    task, cluster = task_with_shards((6, 6, 6)), Cluster(3, compute=Gamma(1.0, 0.5))
    results = []
    for weighting in ("samples", "equal"):
        results.append(weights_of(LocalSGD(Rule(), 3, weighting=weighting), task, cluster))
    assert torch.equal(*results)


def test_reset_forgets_buffers_and_not_schedule(quadratic):
    """For one step momentum's fresh buffer is the gradient: plain SGD, under a schedule too."""
    forgetful, plain = (
        Rule(optimizer, LR, WarmUp(length=1.0)) for optimizer in (SGD(momentum=0.9), SGD())
    )
    assert_close(
        weights_of(LocalSGD(forgetful, 1, reset=True), quadratic),
        weights_of(LocalSGD(plain, 1), quadratic),
    )


@pytest.mark.parametrize(("outer", "same"), [("nesterov", Nesterov(0.9)), ("sgd", SGD(0.9))])
def test_outer_optimiser_takes_round_as_gradient(outer, same):
    """On h w^2 / 2 a round moves w by -k w with k = 1 - (1 - lr h)^H: a gradient of curvature k."""
    h, lr, H = 2.0, 0.1, 6
    options = {"outer_optimizer": outer, "outer_lr": 0.7, "outer_momentum": 0.9}
    task = Quadratic(curvature=h, dtype=torch.float64)
    found = weights_of(DiLoCo(Rule(lr=lr), H, **options), task)
    rounds = Quadratic(curvature=1 - (1 - lr * h) ** H, dtype=torch.float64)
    assert_close(found, weights_of(SyncPS(Rule(same, 0.7)), rounds))


def test_round_costs_two_messages_a_worker():
    P, H, rounds = 4, 5, 20
    task = Quadratic(batch=2, epoch=100, noise=0.1)
    outcome = simulate(UNEVEN, LocalSGD(Rule(lr=0.02), H), task, stop=Stop(updates=rounds))
    assert outcome.gradients["applied"] == outcome.gradients["started"] == rounds * P * H
    assert outcome.progress.samples == 2 * rounds * P * H
    assert outcome.messages["sent"] == P + P + 2 * P * rounds
    assert (outcome.updates["staleness"] == 0).all()


def test_worker_that_was_down_counts_once_a_round():
    """Down after its push, worker 0 waits for the round's end; down before, all wait for it."""
    slowdowns = [
        Factor(worker=2, factor=10.0),
        Crash(0, at=2.5, back=3.0),
        Crash(1, at=21.5, back=30.0),
    ]
    outcome = simulate(Cluster(3, slowdowns=slowdowns), LocalSGD(Rule(), 2), stop=Stop(updates=3))
    assert outcome.progress.time == 60.0
    rows = outcome.updates
    applied = rows["status"] == "applied"
    for version in range(3):
        workers = rows["worker"][applied & (rows["version_read"] == version)]
        assert np.bincount(workers).tolist() == [2, 2, 2]
    assert (outcome.gradients["cancelled"], outcome.gradients["dropped"]) == (1, 0)


@pytest.mark.parametrize("end", [7.0, 30.0])
def test_worker_that_crashes_after_push_is_answered_once(end):
    """Back at 7.5 s it is not meant by the update of 8 s; its announcement of 8.5 s gets the
    weights.
    """
    slow, down = Window(worker=1, factor=5.0, start=0.0, end=end), Crash(worker=0, at=5.0, back=7.5)
    cluster = Cluster(workers=2, slowdowns=[slow, down], network=Network(latency=1.0))
    outcome = simulate(cluster, LocalSGD(Rule(), 1), stop=Stop(updates=5))
    status, staleness = outcome.updates["status"], outcome.updates["staleness"]
    assert (
        np.sort(outcome.updates["worker"][status == "applied"].reshape(5, 2)).tolist()
        == [[0, 1]] * 5
    )
    assert (staleness[status == "applied"] == 0).all()
    assert "dropped" not in status
    assert outcome.messages["lost"] == 1
