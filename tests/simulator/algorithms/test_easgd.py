"""Elastic averaging: what an exchange conserves, and the trajectories that it gives."""

import numpy as np
import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import (
    SERVER,
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
from laggard.simulator.timing.slowdowns import Crash, Factor
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


def by_hand(task, order, elastic, H, together=False):
    """The centre and the workers after exchanges of the workers in `order`, each a list of those
    who meet at once.
    """
    start, P = task.start([start_seed(0)]), UNEVEN.workers
    centre, mine = start, [start] * P
    batches = [task.batches(rank, [stream(0, BATCHES, rank)]) for rank in range(P)]

    def round_of(rank, before):
        """H steps, the first of which takes its gradient where the worker was before the
        exchange.
        """
        for _ in range(H):
            gradient = task.gradients(before[None], [next(batches[rank])])[0][0]
            before = mine[rank] = mine[rank] - LR * gradient

    for rank in range(P):
        round_of(rank, start)
    for workers in order:
        before = {rank: mine[rank] for rank in workers}
        moves = {rank: elastic * (mine[rank] - centre) for rank in workers}
        for rank in workers:
            mine[rank] = mine[rank] - moves[rank]
        centre = centre + sum(moves.values())
        for rank in workers:
            round_of(rank, before[rank])
    return centre


@pytest.mark.parametrize("H", [1, 3])
@pytest.mark.parametrize("together", [False, True])
def test_algorithm_1_by_hand(H, together, quadratic, perceptron):
    """In the order in which the workers came: a gradient at where they were before, a step from
    where they are then.
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


class Kept(Quadratic):
    """A quadratic that adds up the gradients it gives, and gives those alone that a worker's step
    asks for.
    """

    lanes = 1

    def gradients(self, weights, batches):
        values, losses = super().gradients(weights, batches)
        self.given = getattr(self, "given", 0) + values.sum(0)
        return values, losses


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("updates", [1, 30, 31])
def test_exchanges_conserve_the_sum_of_all_models(together, updates):
    """Only steps change it, by -lr times their gradients; the last exchange ends the run with its
    answers under way.
    """
    P, a = 4, 0.2
    task = Kept(curvature=1.0, dim=5, condition=10.0, noise=0.3, dtype=torch.float64)
    nodes = nodes_after(EASGD(Rule(lr=LR), a, 3, together), task, updates)
    centre, workers = nodes[SERVER].weights, [nodes[rank].weights for rank in range(P)]
    conserved = (P + 1) * task.start([0]) - LR * task.given
    under_way = centre + sum(workers) - conserved
    if together:  # sum a (x - c), where c' = c + sum a (x - c)
        before = (centre - a * sum(workers)) / (1 - a * P)
        possible = [a * sum(worker - before for worker in workers)]
    else:  # a (x - c) of one of them, where c' = c + a (x - c)
        possible = [a * (worker - centre) / (1 - a) for worker in workers]
    assert any(torch.allclose(under_way, move, rtol=1e-9, atol=1e-12) for move in possible)
    assert under_way.abs().max() > 1e-6


@pytest.mark.parametrize(("P", "elastic", "H"), [(4, 0.1, 1), (4, 0.1, 5), (9, None, 2)])
def test_together_and_without_noise_worker_and_centre_move_by_a_matrix(P, elastic, H):
    """One step of an exchange and of H - 1 others on curvature h, for P workers that are all
    alike.
    """
    h, updates, a = 0.8, 23, elastic or 0.9 / P
    exchange = np.array([[1 - a - LR * h, a], [P * a, 1 - P * a]])
    steps = np.diag([(1 - LR * h) ** (H - 1), 1.0])
    first = np.diag([(1 - LR * h) ** H, 1.0])  # the exchange of the start moves nothing
    last = np.array([[1.0, 0.0], [P * a, 1 - P * a]])
    state = last @ np.linalg.matrix_power(steps @ exchange, updates - 1) @ first @ [1.0, 1.0]
    task = Quadratic(curvature=h, dtype=torch.float64)
    algorithm = EASGD(Rule(lr=LR), elastic, H, together=True)
    outcome = simulate(Cluster(P, Exponential(1.0)), algorithm, task, stop=Stop(updates=updates))
    assert float(outcome.weights) == pytest.approx(state[1], rel=1e-11)
    assert (outcome.updates["staleness"] == 0).all()


@pytest.mark.parametrize("law", [Constant(1.0), Exponential(1.0), Gamma(1.0, 0.3)])
def test_mean_staleness_is_the_exchanges_of_the_others(law):
    """P - 1, whatever the law: all of a worker's gradients since its last exchange have the
    same.
    """
    P, H, updates = 6, 4, 3000
    outcome = simulate(Cluster(P, law), EASGD(Rule(), local_steps=H), stop=Stop(updates=updates))
    staleness = outcome.updates["staleness"].reshape(updates, H)
    assert (staleness == staleness[:, :1]).all()
    assert staleness[P * (P - 1) :].mean() == pytest.approx(P - 1, rel=0.01)


def test_a_slow_worker_holds_nobody_up_unless_all_come_together():
    cluster = Cluster(4, slowdowns=[Factor(worker=0, factor=20.0)])
    alone, together = (
        simulate(cluster, EASGD(Rule(), local_steps=5, together=t), stop=Stop(time=1000.0)).progress
        for t in (False, True)
    )
    assert alone.gradients == 3 * 1000 + 50
    assert together.gradients == 4 * 50


def test_an_exchange_costs_a_model_each_way():
    """A worker alone on the wires: H t_c + 2 alpha + 2 N beta + c from one exchange to the next."""
    network = Network(bandwidth=12.0, latency=0.125, message_bytes=3.0)
    cluster = Cluster(1, Constant(1.0), network=network, apply_seconds=0.5)
    times = simulate(cluster, EASGD(Rule(), local_steps=4), stop=Stop(updates=10)).updates["time"]
    np.testing.assert_allclose(np.diff(np.unique(times)), 4 + 2 * 0.125 + 2 * 0.25 + 0.5)


def test_a_schedule_in_epochs_is_the_clusters(quadratic):
    """Together, P equal workers without noise are at the learning rate of one worker whose epoch is
    P times shorter.
    """
    P, H = 5, 2
    task = {n: Quadratic(curvature=0.8, dtype=torch.float64, epoch=n) for n in (20, 100)}
    rule = Rule(Nesterov(), LR, WarmUp(length=3.0))
    many = nodes_after(EASGD(rule, 1e-9, H, together=True), task[100], 30, Cluster(P))
    one = nodes_after(EASGD(rule, 1e-9, H, together=True), task[20], 30, Cluster(1))
    torch.testing.assert_close(many[0].weights, one[0].weights, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("together", [False, True])
def test_a_worker_comes_back_with_the_model_that_it_had(together, quadratic):
    """It asks first, without gradients; those since its last exchange are lost, and nobody takes an
    older answer.
    """
    crashes = [
        Crash(worker=0, at=2.5, back=3.25),
        Crash(worker=2, at=6.1, back=6.2),
        Crash(worker=0, at=9.9, back=12.0),
    ]
    network = Network(latency=0.05)
    cluster = Cluster(3, Exponential(0.5), slowdowns=crashes, network=network, apply_seconds=0.3)
    outcome = simulate(
        cluster, EASGD(Rule(lr=LR), 0.2, 2, together), quadratic, stop=Stop(updates=40)
    )
    assert outcome.reached == "updates"
    started, *fates = outcome.gradients.values()
    assert started == sum(fates)
    assert (outcome.updates["staleness"][outcome.updates["status"] == "applied"] >= 0).all()
    assert torch.isfinite(outcome.weights).all()


@pytest.mark.parametrize("wrong", [{"elastic": 0.0}, {"elastic": 1.5}, {"local_steps": 0}])
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(InvalidSettingError, match=next(iter(wrong))):
        EASGD(Rule(), **wrong)
