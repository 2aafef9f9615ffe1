"""Identities of ensembles for every optimiser, and of backends; `check_algorithm` and `tests/theory`
hold the others.
"""

import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import (
    AsyncPS,
    Cluster,
    Evaluate,
    Rule,
    Stop,
    simulate,
)
from laggard.simulator.learning.rules import (
    DCASGDa,
    DelayAdaptive,
    GapAware,
    WarmUp,
)
from laggard.simulator.timing.distributions import Gamma
from tests.theory.trials import TORCH

UPDATES = 10
OPTIMISERS = {name: optimizer for name, (optimizer, _) in TORCH.items()}
every_optimiser = pytest.mark.parametrize("name", OPTIMISERS)


def weights_of(cluster, algorithm, task, **more):
    more = {"stop": Stop(updates=UPDATES), "evaluate": Evaluate(every_updates=UPDATES), **more}
    return simulate(cluster, algorithm, task, **more).weights


@every_optimiser
@pytest.mark.parametrize("defer", [True, False])
def test_ensemble_is_its_members_run_alone(name, defer, quadratic, perceptron):
    """Members differ in learning rate, momentum, compensation strength, schedule or seed."""
    cluster = Cluster(workers=4, compute=Gamma(1.0, 0.5), seed=3)
    members = [(0.01, 0.5, 3.0, 5), (0.05, 2.0, 1.0, 5), (0.02, 0.0, 0.5, 6)]

    def rule(lr, strength, length):
        warm_up = WarmUp(length=length, unit="epochs")
        return Rule(
            OPTIMISERS[name], lr=lr, schedule=warm_up, compensation=DCASGDa(strength=strength)
        )

    def column(index):
        return torch.tensor([member[index] for member in members], dtype=torch.float64)[:, None]

    for task in (quadratic, perceptron):
        seeds = [member[3] for member in members]
        together = weights_of(
            cluster,
            AsyncPS(rule(column(0), column(1), column(2))),
            task,
            learning_seeds=seeds,
            defer=defer,
        )
        for member, (lr, strength, length, seed) in enumerate(members):
            alone = weights_of(
                cluster, AsyncPS(rule(lr, strength, length)), task, learning_seeds=[seed]
            )
            assert torch.equal(together[member : member + 1], alone)


@pytest.mark.parametrize("on", ["gradient", "step"])
@every_optimiser
def test_ceilings_and_decays_differ_between_members(name, on):
    """Values are in single precision, and each member has a learning rate and a schedule."""
    task = Quadratic(curvature=1.0, dim=7, condition=30.0, noise=0.3, epoch=50)
    cluster = Cluster(workers=4, compute=Gamma(1.0, 0.5))
    members = [(0.01, 0.02, 0.9), (0.03, 0.05, 0.99), (0.02, 9.0, 0.5)]
    columns = [
        torch.tensor([[value] for value in column], dtype=torch.float64)
        for column in zip(*members, strict=True)
    ]

    def rules(lr, ceiling, decay):
        for compensation in (DelayAdaptive(on=on, ceiling=ceiling), GapAware(decay=decay)):
            yield Rule(
                OPTIMISERS[name], lr=lr, schedule=WarmUp(length=0.7), compensation=compensation
            )

    together = [weights_of(cluster, AsyncPS(rule), task, ensemble=3) for rule in rules(*columns)]
    for index, member in enumerate(members):
        for all_members, alone in zip(together, rules(*member), strict=True):
            assert torch.equal(
                all_members[index : index + 1], weights_of(cluster, AsyncPS(alone), task)
            )
