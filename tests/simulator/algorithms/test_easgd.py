"""Elastic averaging: what an exchange conserves, and the trajectories that it gives."""

import numpy as np
import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import (
    Cluster,
    Evaluate,
    InvalidSettingError,
    Network,
    Rule,
    Stop,
    simulate,
)
from laggard.simulator.algorithms.easgd import EASGD
from laggard.simulator.engine.simulation import Simulation
from laggard.simulator.learning.rules import Nesterov, WarmUp
from laggard.simulator.timing.distributions import Constant, Exponential, Gamma
from laggard.simulator.timing.slowdowns import Crash
from laggard.simulator.timing.streams import BATCHES, Seeds, start_seed, stream

UNEVEN = Cluster(workers=4, compute=Gamma(1.0, 0.5))
LR = 0.05


def nodes_after(algorithm, task, updates, cluster=UNEVEN):
    """The nodes of a simulation, worker or centre, as they are at its end."""
    simulation = Simulation(
        cluster, algorithm, task, Stop(updates=updates), Evaluate(), Seeds(0, [0])
    )
    simulation.run()
    return simulation.nodes


def by_hand(task, order, elastic, H):
    """The centre after exchanges of the workers in `order`, each a list of those who meet at once.

    The first of H local steps takes its gradient where the worker was before the exchange.
    """
    start, P = task.start([start_seed(0)]), UNEVEN.workers
    centre, models = start, [start] * P
    batches = [task.batches(rank, [stream(0, BATCHES, rank)]) for rank in range(P)]

    def local_steps(rank, before):
        for _ in range(H):
            gradient = task.gradients(before[None], [next(batches[rank])])[0][0]
            before = models[rank] = models[rank] - LR * gradient

    for rank in range(P):
        local_steps(rank, start)
    for workers in order:
        before = {rank: models[rank] for rank in workers}
        moves = {rank: elastic * (models[rank] - centre) for rank in workers}
        for rank in workers:
            models[rank] = models[rank] - moves[rank]
        centre = centre + sum(moves.values())
        for rank in workers:
            local_steps(rank, before[rank])
    return centre


@pytest.mark.parametrize("H", [1, 3])
@pytest.mark.parametrize("together", [False, True])
def test_algorithm_1_by_hand(H, together, quadratic, perceptron):
    """In order of arrival, a worker takes its gradient at its former weights and then steps from
    its new ones.
    """
    P, updates = UNEVEN.workers, 40
    for task in (quadratic, perceptron):
        algorithm = EASGD(Rule(lr=LR), 0.2, H, together)
        outcome = simulate(UNEVEN, algorithm, task, stop=Stop(updates=updates))
        came = np.asarray(outcome.updates["worker"]).reshape(updates, -1)
        order = [list(dict.fromkeys(workers)) for workers in came.tolist()]
        assert all(len(workers) == (P if together else 1) for workers in order)
        expected = by_hand(task, order, 0.2, H)
        torch.testing.assert_close(outcome.weights, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("law", [Constant(1.0), Exponential(1.0), Gamma(1.0, 0.3)])
def test_mean_staleness_is_number_of_other_workers(law):
    """P - 1, whatever the law: all of a worker's gradients since its last exchange have the
    same.
    """
    P, H, updates = 6, 4, 3000
    outcome = simulate(Cluster(P, law), EASGD(Rule(), local_steps=H), stop=Stop(updates=updates))
    staleness = outcome.updates["staleness"].reshape(updates, H)
    assert (staleness == staleness[:, :1]).all()
    assert staleness[P * (P - 1) :].mean() == pytest.approx(P - 1, rel=0.01)


def test_exchange_costs_model_each_way():
    """A worker alone on the wires: H t_c + 2 alpha + 2 N beta + c from one exchange to the next."""
    network = Network(bandwidth=12.0, latency=0.125, message_bytes=3.0)
    cluster = Cluster(1, Constant(1.0), network=network, apply_seconds=0.5)
    times = simulate(cluster, EASGD(Rule(), local_steps=4), stop=Stop(updates=10)).updates["time"]
    np.testing.assert_allclose(np.diff(np.unique(times)), 4 + 2 * 0.125 + 2 * 0.25 + 0.5)


def test_schedule_counts_epochs_of_cluster():
    """Together, P equal workers without noise have the learning rate of one worker whose epoch is P
    times shorter.
    """
    rule = Rule(Nesterov(), LR, WarmUp(length=3.0))
    many, one = (
        nodes_after(
            EASGD(rule, 1e-9, 2, together=True),
            Quadratic(curvature=0.8, dtype=torch.float64, epoch=20 * P),
            30,
            Cluster(P),
        )
        for P in (5, 1)
    )
    torch.testing.assert_close(many[0].weights, one[0].weights, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("together", [False, True])
def test_crashed_worker_takes_no_older_answer(together, quadratic):
    """It asks first, without gradients; those since its last exchange are lost."""
    crashes = [Crash(0, at=2.5, back=3.25), Crash(2, at=6.1, back=6.2), Crash(0, at=9.9, back=12.0)]
    network = Network(latency=0.05)
    cluster = Cluster(3, Exponential(0.5), slowdowns=crashes, network=network, apply_seconds=0.3)
    algorithm = EASGD(Rule(lr=LR), 0.2, 2, together)
    outcome = simulate(cluster, algorithm, quadratic, stop=Stop(updates=40))
    assert outcome.reached == "updates"
    started, *counts = outcome.gradients.values()
    assert started == sum(counts)
    assert (outcome.updates["staleness"][outcome.updates["status"] == "applied"] >= 0).all()
    assert torch.isfinite(outcome.weights).all()


@pytest.mark.parametrize("wrong", [{"elastic": 0.0}, {"elastic": 1.5}, {"local_steps": 0}])
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(InvalidSettingError, match=next(iter(wrong))):
        EASGD(Rule(), **wrong)
