"""Ringleader: its rounds, messages and crashes, and its weights as a loop."""

import numpy as np
import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import Cluster, Network, Record, Ringleader, Rule, Stop, simulate
from laggard.simulator.timing.distributions import Gamma
from laggard.simulator.timing.slowdowns import Crash, Factor
from tests.theory.trials import gradient_of

SPEEDS = [(1, 2), (1, 5), (1, 2, 3), (1, 1, 1, 1, 20)]


def uneven(speeds):
    """A cluster, and quadratics h_i (w - a_i)^2 / 2."""
    workers = len(speeds)
    optima, curvatures = np.linspace(-1, 2, workers), np.linspace(1, 3, workers)
    options = {"shift": optima.tolist(), "scale": curvatures.tolist(), "dtype": torch.float64}
    slowdowns = [Factor(rank, factor=float(factor)) for rank, factor in enumerate(speeds)]
    return Cluster(workers, slowdowns=slowdowns), Quadratic(noise=0.0, **options)


@pytest.mark.parametrize("speeds", SPEEDS)
def test_round_takes_at_most_two_slowest_mini_batches(speeds):
    cluster, task = uneven(speeds)
    outcome = simulate(cluster, Ringleader(Rule(lr=0.05)), task, stop=Stop(updates=300))
    workers = len(speeds)
    assert outcome.progress.time <= 2 * max(speeds) * (300 / workers + 1)
    assert outcome.updates["staleness"].max() <= 2 * workers - 2
    assert outcome.gradients["dropped"] == 0


def learn_by_loop(task, order, lr):
    """The weights of the method, written as a loop over workers in their order of arrival."""
    workers = max(order) + 1
    model = task.start([0])
    held = dict.fromkeys(range(workers), model)
    table, following, updated = {}, {}, set()
    batches = [task.batches(rank, [np.random.default_rng(0)]) for rank in range(workers)]
    for rank in order:
        gradient = gradient_of(task, held[rank], next(batches[rank]))
        if rank in updated:
            following.setdefault(rank, []).append(gradient)
            continue
        table.setdefault(rank, []).append(gradient)
        if len(table) < workers:
            continue
        model = model - lr * sum(sum(row) / len(row) for row in table.values()) / workers
        held[rank] = model
        updated.add(rank)
        if len(updated) == workers:
            table, following, updated = following, {}, set()
    return model


def test_weights_equal_loop_over_arrivals():
    _, task = uneven((1, 1, 1, 1))
    cluster = Cluster(4, Gamma(1.0, 0.8), network=Network(latency=0.3))
    outcome = simulate(cluster, Ringleader(Rule(lr=0.1)), task, stop=Stop(updates=200))
    rows = outcome.updates
    # They arrive in the order in which they are computed. Those without a row are not used yet.
    order = rows["worker"][np.argsort(rows["computed"], kind="stable")].tolist()
    expected = learn_by_loop(task, order, 0.1)
    torch.testing.assert_close(outcome.weights, expected, rtol=1e-12, atol=1e-13)


def test_model_goes_down_once_a_round_and_worker():
    """Other gradients are answered by tokens of no bytes; the first models are read at the start."""
    cluster, task = uneven((1, 1, 1, 1, 20))
    stop, record = Stop(updates=100), Record(messages=True)
    outcome = simulate(cluster, Ringleader(Rule(lr=0.05)), task, stop=stop, record=record)
    log = outcome.message_log
    models = (log["sender"] == -1) & (log["bytes"] > 0)
    assert models.sum() == 5 + 100
    assert ((log["sender"] == -1) & (log["bytes"] == 0)).sum() > 1000


def test_crash_holds_up_the_others_until_return():
    cluster = Cluster(3, slowdowns=[Crash(1, at=2.5, back=10.0)])
    outcome = simulate(cluster, Ringleader(Rule()), stop=Stop(updates=12))
    times = np.unique(outcome.updates["time"])
    assert ((times <= 3) | (times >= 11)).all()
