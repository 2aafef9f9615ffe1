"""Delayed gradients: the largest stable learning rate."""

import math
from itertools import product

import numpy as np
import pytest
import torch

from laggard.experiments.theory.stability import critical
from laggard.models import Quadratic
from laggard.simulator import Evaluate, Rule, Stop, simulate
from laggard.simulator.learning.rules import SGD, Nesterov
from tests.cases import quick
from tests.theory.statements import Statement, check, equal
from tests.theory.trials import ONE, method

ROOTS = "characteristic roots"
PERIODS = 5  # of the oscillation, in each of the two stretches whose sizes are compared
# relative: a line through two points of a curve, and oscillations that do not end with a stretch
TOLERANCE = 1e-3
OPTIMIZERS = {
    "SGD": SGD(),
    "momentum 0.9": SGD(momentum=0.9),
    "Nesterov 0.9": Nesterov(momentum=0.9),
}


def measured_limit(limit, angle, optimizer, delay):
    """The learning rate at which a run neither shrinks nor grows, between one below `limit` and one
    above.

    Each run's growth is that from one stretch of oscillations to the next; the limit is where a
    straight line through the two growths passes 0.
    """
    every = (2 * delay + 1) // 8 or 1
    samples = math.ceil(max(100, PERIODS * math.pi / angle) / every)
    # without a delay the roots are real, and with momentum complex soon below
    apart = 0.005 if delay else 1e-4
    curvature, factors = 2.5, torch.tensor([[1 - apart], [1 + apart]], dtype=torch.float64)
    run = simulate(
        ONE,
        method("delayed", Rule(optimizer, lr=factors * limit / curvature), delay=delay),
        Quadratic(curvature=curvature, dtype=torch.float64),
        stop=Stop(updates=3 * samples * every),
        evaluate=Evaluate(every_updates=every),
        ensemble=2,
    )
    distance = run.metrics["distance"].reshape(-1, 2)[-2 * samples :].reshape(2, samples, 2)
    sizes = np.hanning(samples) @ np.square(distance)  # wherever it cuts an oscillation
    shrinking, growing = np.diff(np.log(sizes), axis=0)[0]
    return limit * (1 - apart + 2 * apart * -shrinking / (growing - shrinking))


@pytest.mark.parametrize("D", [0, 1, 4, 16, 32, 256])
def test_oscillation_time_follows_delay(D):
    """With delay D half an oscillation takes 2 D + 1 updates."""
    text = f"D = {D}, SGD: lr h < 2 sin(pi / (2 (2D + 1))) is where a root leaves the circle"
    equal(text, 2 * math.sin(math.pi / (2 * (2 * D + 1))), critical(D, 0.0, False)[0], source=ROOTS)


@pytest.mark.parametrize(
    ("name", "D"),
    quick(
        [*product(OPTIMIZERS, (0, 1, 4, 16, 32)), ("SGD", 256), ("momentum 0.9", 256)],
        only=list(product(OPTIMIZERS, (0, 1, 4))),
    ),
)
def test_momentum_lowers_stability_limit(name, D):
    """Momentum lowers the limit under delay, Nesterov's less so at small delays. A delay longer by
    one has another limit.
    """
    optimizer = OPTIMIZERS[name]
    nesterov = isinstance(optimizer, Nesterov)
    limit, angle = critical(D, optimizer.momentum, nesterov)
    more, _ = critical(D + 1, optimizer.momentum, nesterov)
    text = f"D = {D}, {name}: lr h below that root's"
    check(
        Statement(
            text,
            ROOTS,
            limit,
            measured_limit(limit, angle, optimizer, D),
            TOLERANCE * limit,
            wrong=more,
        )
    )
