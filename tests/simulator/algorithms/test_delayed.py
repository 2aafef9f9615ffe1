"""Delays: constant, drawn, growing; what is due when, and how stale it then is."""

import math

import numpy as np
import pytest
import torch

from laggard.simulator import Cluster, Delayed, Rule, Stop, simulate
from laggard.simulator.algorithms.delayed import LAWS
from laggard.simulator.learning.rules import SGD
from laggard.simulator.timing.streams import CHOICES, stream
from tests.theory.trials import batches_of, gradient_of

ONE = Cluster(workers=1)
LR = 0.03


def delayed_by_hand(task, delay_at, updates):
    """A list of (due, version read, gradient) gone through at every step; `delay_at(updates so
    far)` draws a delay.
    """
    batches, w = batches_of(task, 0), task.start([0])
    velocity, step, waiting, ages = torch.zeros_like(w), 0, [], []
    while len(ages) < updates:
        gradient = gradient_of(task, w, next(batches))
        waiting.append((step + delay_at(len(ages)), len(ages), gradient))
        for _, read, gradient in [entry for entry in waiting if entry[0] <= step]:
            if len(ages) < updates:
                velocity = 0.9 * velocity + gradient
                w = w - LR * velocity
                ages.append(len(ages) - read)
        waiting = [entry for entry in waiting if entry[0] > step]
        step += 1
    return w, ages


RAMPS = {
    "constant": (5, None, None, 0),
    "up": (0, 12, 40, 0),
    "down": (12, 0, 40, 0),
    "to where it was": (3, 3, 10, 0),
    "up later": (2, 12, 40, 30),
    "a jump": (0, 12, 1, 40),
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("start", "end", "over", "after"), RAMPS.values(), ids=RAMPS)
def test_gradients_are_applied_when_due(law, start, end, over, after, quadratic):
    rng = stream(0, CHOICES, 0)

    def delay(made):
        if end is None or made <= after:
            return LAWS[law](rng, start)
        return LAWS[law](rng, round(start + (end - start) * min(1.0, (made - after) / over)))

    weights, ages = delayed_by_hand(quadratic, delay, 90)
    ramp = {"ramp_to": end, "over": over, "after": after}
    algorithm = Delayed(Rule(SGD(momentum=0.9), lr=LR), delay=start, law=law, **ramp)
    outcome = simulate(ONE, algorithm, quadratic, stop=Stop(updates=90))
    torch.testing.assert_close(outcome.weights, weights, rtol=1e-12, atol=1e-14)
    assert outcome.updates["staleness"].tolist() == ages


@pytest.mark.parametrize("law", ["uniform", "geometric", "poisson"])
def test_drawn_delays_follow_their_distribution(law):
    D, n = 4, 40_000
    rng = np.random.default_rng(3)
    drawn = np.array([LAWS[law](rng, D) for _ in range(n)])
    probability = {
        "uniform": lambda d: 1 / (2 * D + 1) if d <= 2 * D else 0.0,
        "geometric": lambda d: (1 / (D + 1)) * (D / (D + 1)) ** d,
        "poisson": lambda d: math.exp(-D) * D**d / math.factorial(d),
    }[law]
    for d in range(13):
        p = probability(d)
        assert (drawn == d).mean() == pytest.approx(p, abs=4.5 * math.sqrt(p * (1 - p) / n) + 1e-12)
    assert all(LAWS[law](rng, 0) == 0 for _ in range(100))
