"""Members of an ensemble that differ in numbers of a compensation, under every optimiser.

`tests/experiments/test_sweep.py` has every other number that an ensemble may span, and
`check_algorithm` every method.
"""

import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import AsyncPS, Cluster, Evaluate, Rule, Stop, simulate
from laggard.simulator.learning.rules import DelayAdaptive, GapAware, WarmUp
from laggard.simulator.timing.distributions import Gamma
from tests.theory.trials import TORCH

UPDATES = 10
OPTIMISERS = {name: optimizer for name, (optimizer, _) in TORCH.items()}


def weights_of(cluster, algorithm, task, **more):
    more = {"stop": Stop(updates=UPDATES), "evaluate": Evaluate(every_updates=UPDATES), **more}
    return simulate(cluster, algorithm, task, **more).weights


@pytest.mark.parametrize("on", ["gradient", "step"])
@pytest.mark.parametrize("name", OPTIMISERS)
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
