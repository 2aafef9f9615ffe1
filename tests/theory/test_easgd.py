"""Elastic averaging: what an exchange conserves, costs and makes stale, and its trajectories.

The behaviour of EASGD and the faults that its statements find are here too: no other test names it.
"""

from itertools import islice

import numpy as np
import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import Cluster, Network, Rule, Stop, simulate
from laggard.simulator.algorithms.easgd import EASGD
from laggard.simulator.learning.rules import Nesterov, WarmUp
from laggard.simulator.timing.distributions import Constant
from laggard.simulator.timing.slowdowns import Crash
from tests.faults import Replaced, on_spoilt
from tests.theory.statements import batch_means, close, equal, mean_is
from tests.theory.trials import (
    LAWS,
    LR,
    UNEVEN,
    UPDATES,
    batches_of,
    first_weights,
    gradient_of,
    perceptron,
    quadratic,
    remains_of,
    slope,
    timed,
)

ZHANG = "Zhang et al. (2015)"
in_turn_or_together = pytest.mark.parametrize("together", [False, True], ids=["alone", "together"])


@in_turn_or_together
def test_elastic_exchange_conserves_sum(together):
    """An exchange moves worker and centre by equal amounts, so that only gradients change their
    sum.
    """
    P, H, seconds, task = 4, 3, 31, slope()
    algorithm = EASGD(Rule(lr=LR), elastic=0.2, local_steps=H, together=together)
    cluster = Cluster(workers=P, compute=Constant(1.0))
    nodes = remains_of(cluster, algorithm, task, Stop(time=seconds + 0.5)).nodes
    total = torch.stack([node.weights for node in nodes.values()]).sum(0)
    batches = [batch for rank in range(P) for batch in islice(batches_of(task, rank), seconds)]
    gradients = sum(batches, torch.zeros(5, dtype=torch.float64))
    text = f"easgd, P = {P}, together {together}: centre + workers = starts - lr sum of gradients"
    close(text, total, (P + 1) * first_weights(task) - LR * gradients, source=ZHANG)


def centre_by_hand(task, order, elastic, H):
    """The centre after exchanges of the workers in `order`, each a list of those who meet at once.

    The first of H local steps takes its gradient where the worker was before the exchange.
    """
    start, ranks = first_weights(task), range(UNEVEN.workers)
    centre, models = start, [start for _ in ranks]
    batches = [batches_of(task, rank) for rank in ranks]

    def local_steps(rank, before):
        for _ in range(H):
            gradient = gradient_of(task, before, next(batches[rank]))
            before = models[rank] = models[rank] - LR * gradient

    for rank in ranks:
        local_steps(rank, start)
    for workers in order:
        before = {rank: models[rank] for rank in workers}
        moves = {rank: elastic * (models[rank] - centre) for rank in workers}
        for rank in workers:
            models[rank] = models[rank] - moves[rank]
            centre = centre + moves[rank]
        for rank in workers:
            local_steps(rank, before[rank])
    return centre


@pytest.mark.parametrize("H", [1, 3])
@in_turn_or_together
def test_centre_follows_algorithm_1(together, H):
    """In order of arrival, a worker takes its gradient at its former weights and then steps from
    its new ones.
    """
    algorithm = EASGD(Rule(lr=LR), 0.2, H, together)
    for task in (quadratic(), perceptron()):
        outcome = simulate(UNEVEN, algorithm, task, stop=Stop(updates=UPDATES))
        came = np.asarray(outcome.updates["worker"]).reshape(UPDATES, -1)
        order = [list(dict.fromkeys(workers)) for workers in came.tolist()]
        partners = UNEVEN.workers if together else 1
        assert all(len(workers) == partners for workers in order)
        text = f"easgd, P = 4, together {together}, H = {H}: the centre of algorithm 1"
        close(text, outcome.weights, centre_by_hand(task, order, 0.2, H), source=ZHANG)


@pytest.mark.parametrize("law", LAWS)
def test_mean_staleness_is_number_of_other_workers(law):
    """P - 1 for every law: all of a worker's gradients since its last exchange have the same."""
    P, H, updates = 6, 4, 3000
    rows = timed(Cluster(P, LAWS[law]), EASGD(Rule(), local_steps=H), updates).updates
    staleness = rows["staleness"].reshape(updates, H)
    assert (staleness == staleness[:, :1]).all()
    text = f"easgd, P = {P}, {law}: mean staleness P - 1"
    series = batch_means(staleness[P * (P - 1) :, 0])
    mean_is(text, P - 1, series, source="Little's law", wrong=P)


def test_exchange_costs_model_each_way():
    """One worker: H t_c + 2 alpha + 2 N beta + c from one exchange to the next."""
    network = Network(bandwidth=12.0, latency=0.125, message_bytes=3.0)
    cluster = Cluster(1, Constant(1.0), network=network, apply_seconds=0.5)
    times = np.unique(timed(cluster, EASGD(Rule(), local_steps=4), 10).updates["time"])
    seconds = 4 + 2 * 0.125 + 2 * 0.25 + 0.5
    equal("easgd, H = 4: H t_c + 2 alpha + 2 N beta + c", seconds, np.diff(times), source="derived")


def test_schedule_counts_epochs_of_cluster():
    """Together, P equal workers without noise have the learning rate of one worker whose epoch is P
    times shorter.
    """
    rule = Rule(Nesterov(), LR, WarmUp(length=3.0))

    def model(P):
        task = Quadratic(curvature=0.8, dtype=torch.float64, epoch=20 * P)
        algorithm = EASGD(rule, 1e-9, 2, together=True)
        return remains_of(Cluster(P), algorithm, task, Stop(updates=30)).nodes[0].weights

    torch.testing.assert_close(model(5), model(1), rtol=1e-6, atol=0.0)


def test_worker_that_returns_early_is_answered_once():
    """The server applies what the worker sent before its crash; its answer is for that incarnation.

    A second answer would stay in the mailbox for ever, and every later gradient would be of the
    previous weights.
    """
    crash = Crash(0, at=2.5, back=2.6)
    cluster = Cluster(1, Constant(1.0), slowdowns=[crash], apply_seconds=1.0)
    outcome = timed(cluster, EASGD(Rule(), local_steps=1), 6)
    assert set(outcome.updates["staleness"][outcome.updates["status"] == "applied"]) == {0}
    assert outcome.messages["lost"] == 1


def unmoved_centre(own):
    return {"apply": lambda _, taken: own.apply(own.weights, taken)}


def doubled_moves(own):
    return {"send": lambda receiver, content: own.send(receiver, (2 * content[0], content[1]))}


FAULTS = {
    "the centre does not move": (
        Replaced(EASGD, "server", on_spoilt(unmoved_centre)),
        lambda: test_elastic_exchange_conserves_sum(False),
    ),
    "a worker moves twice": (
        Replaced(EASGD, "server", on_spoilt(doubled_moves)),
        lambda: test_elastic_exchange_conserves_sum(False),
    ),
}
"""What is planted, and the statement that must find it."""
