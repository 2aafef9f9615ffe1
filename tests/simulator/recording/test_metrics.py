"""What lies between the models of several nodes, and runs that stop at an accuracy."""

from typing import ClassVar

import numpy as np
import pytest
import torch

from laggard.models import Logistic, Quadratic, Supervised, digits
from laggard.simulator import DPSGD, SGP, AsyncPS, Cluster, Evaluate, Network, Rule, Stop, simulate
from laggard.simulator.network.topology import Exponential
from laggard.simulator.timing.distributions import Gamma
from laggard.simulator.timing.slowdowns import Crash

UNEVEN = Cluster(workers=6, compute=Gamma(1.0, 0.5))
TASK = Quadratic(curvature=1.0, dim=3, noise=1.0, epoch=60, dtype=torch.float64)


class Kept(DPSGD):
    """Keeps every node, to look at the models that it holds at the end."""

    nodes: ClassVar = {}

    def worker(self, node):
        self.nodes[node.rank] = node
        return super().worker(node)


def test_consensus_is_distance_to_mean_model():
    outcome = simulate(UNEVEN, Kept(Rule(lr=0.1)), TASK, stop=Stop(updates=30), ensemble=2)
    # (nodes, ensemble, params)
    models = torch.stack([Kept.nodes[rank].weights for rank in range(6)])
    mean = models.mean(0)
    torch.testing.assert_close(outcome.weights, mean)
    distances = (models - mean).square().sum(-1)
    expected = distances.mean(0).sqrt().tolist()
    assert outcome.metrics["consensus"][-2:].tolist() == pytest.approx(expected)
    last = outcome.nodes["time"] == outcome.nodes["time"][-1]
    assert outcome.nodes["node"][last].tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert outcome.nodes["member"][last].tolist() == [0, 1] * 6
    np.testing.assert_allclose(outcome.nodes["distance"][last], distances.sqrt().flatten())
    assert outcome.metrics["consensus"][0] == 0  # all start alike
    assert (outcome.nodes["weight"] == 1).all()


def test_every_node_is_measured_if_asked():
    every = Evaluate(every_updates=10, nodes=True)
    outcome = simulate(UNEVEN, DPSGD(Rule(lr=0.1)), TASK, stop=Stop(updates=30), evaluate=every)
    assert len(outcome.nodes["test_loss"]) == 6 * len(outcome.metrics["time"])
    first, last = outcome.nodes["test_loss"][:6], outcome.nodes["test_loss"][-6:]
    assert (first == outcome.metrics["test_loss"][0]).all()
    assert len(set(last)) == 6
    plain = simulate(
        UNEVEN,
        DPSGD(Rule(lr=0.1)),
        TASK,
        stop=Stop(updates=30),
        evaluate=Evaluate(every_updates=10),
    )
    assert "test_loss" not in plain.nodes
    assert torch.equal(plain.weights, outcome.weights)


def test_push_sum_weights_are_recorded():
    cluster = Cluster(6, UNEVEN.compute, network=Network(topology=Exponential(peers=1)))
    outcome = simulate(cluster, SGP(Rule(lr=0.1)), TASK, stop=Stop(updates=9))
    weights = outcome.nodes["weight"]
    assert (weights[:6] == 1).all()
    assert (weights > 0).all()
    assert (weights < 6).all()


def test_one_model_has_no_consensus():
    outcome = simulate(UNEVEN, AsyncPS(Rule()), TASK, stop=Stop(updates=9))
    assert "consensus" not in outcome.metrics
    assert outcome.nodes == {}


def test_model_of_crashed_node_is_not_in_mean():
    cluster = Cluster(workers=3, slowdowns=[Crash(2, at=2.5)])
    outcome = simulate(cluster, Kept(Rule(lr=0.1)), TASK, stop=Stop(time=9.0))
    models = [Kept.nodes[rank].weights for rank in range(2)]
    torch.testing.assert_close(outcome.weights, torch.stack(models).mean(0))


def test_run_goes_on_until_each_member_has_the_accuracy():
    """The third diverges, and is not waited for."""
    task = Supervised(Logistic().build, digits(), 32)
    stop, evaluate = Stop(epochs=3, accuracy=0.8), Evaluate(every_epochs=0.1)

    def simulated(*rates):
        lr = torch.tensor(rates, dtype=torch.float64).unsqueeze(1)
        method, cluster = AsyncPS(Rule(lr=lr)), Cluster(workers=4)
        return simulate(cluster, method, task, ensemble=len(rates), stop=stop, evaluate=evaluate)

    rates = (0.05, 0.01, 1e38)
    outcome = simulated(*rates)
    accuracy = outcome.metrics["test_accuracy"].reshape(-1, 3)
    first = [int((accuracy[:, member] >= 0.8).argmax()) for member in (0, 1)]
    assert outcome.reached == "accuracy"
    assert min(first) < max(first) == len(accuracy) - 1
    for rate, moment in zip(rates, first, strict=False):
        alone = simulated(rate)
        assert len(alone.metrics["test_accuracy"]) == moment + 1
