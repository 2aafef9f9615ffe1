"""Delays: constant, drawn, growing; what is due when, and how stale it then is."""

import math

import numpy as np
import pytest
import torch

from laggard.simulator import Cluster, Delayed, InvalidSettingError, Rule, Stop, simulate
from laggard.simulator.algorithms.delayed import LAWS
from laggard.simulator.learning.rules import SGD, Adam
from laggard.simulator.timing.streams import BATCHES, CHOICES, stream

ONE = Cluster(workers=1)
LR = 0.03


def delayed_by_hand(task, delay_at, updates):
    """A list of (due, gradient) gone through at every step; `delay_at(updates so far)` draws a
    delay.
    """
    batches, w = task.batches(0, [stream(0, BATCHES, 0)]), task.start([0])
    velocity, made, step, waiting, ages = torch.zeros_like(w), 0, 0, [], []
    while True:
        waiting.append(
            (step + delay_at(made), made, task.gradients(w[None], [next(batches)])[0][0])
        )
        for _, read, gradient in [entry for entry in waiting if entry[0] <= step]:
            velocity = 0.9 * velocity + gradient
            w = w - LR * velocity
            ages.append(made - read)
            made += 1
            if made == updates:
                return w, ages
        waiting = [entry for entry in waiting if entry[0] > step]
        step += 1


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
def test_every_gradient_is_applied_when_it_is_due(law, start, end, over, after, quadratic):
    rng = stream(0, CHOICES, 0)

    def delay(made):
        mean = (
            start
            if end is None or made <= after
            else round(start + (end - start) * min(1.0, (made - after) / over))
        )
        return LAWS[law](rng, mean)

    weights, ages = delayed_by_hand(quadratic, delay, 90)
    algorithm = Delayed(
        Rule(SGD(momentum=0.9), lr=LR), delay=start, law=law, ramp_to=end, over=over, after=after
    )
    outcome = simulate(ONE, algorithm, quadratic, stop=Stop(updates=90))
    torch.testing.assert_close(outcome.weights, weights, rtol=1e-12, atol=1e-14)
    assert outcome.updates["staleness"].tolist() == ages


@pytest.mark.parametrize("optimizer", [SGD(momentum=0.9), Adam()], ids=repr)
@pytest.mark.parametrize("law", LAWS)
def test_a_mean_of_nothing_and_a_ramp_that_goes_nowhere_are_no_delay_and_a_constant_one(
    law, optimizer, quadratic
):
    rule = Rule(optimizer, lr=LR)

    def end(**options):
        return simulate(ONE, Delayed(rule, **options), quadratic, stop=Stop(updates=50)).weights

    assert torch.equal(end(), end(law=law))
    assert torch.equal(end(delay=4), end(delay=4, ramp_to=4, over=7))


@pytest.mark.parametrize("delay", [0, 1, 7])
def test_a_constant_delay_fills_its_queue_and_then_is_the_staleness(delay):
    outcome = simulate(ONE, Delayed(Rule(), delay=delay), stop=Stop(updates=100))
    assert outcome.updates["staleness"].tolist() == [min(k, delay) for k in range(100)]
    assert outcome.progress.gradients == 100 + delay


@pytest.mark.parametrize(("law", "mean"), [("uniform", 1), ("geometric", 6), ("poisson", 6)])
def test_the_mean_staleness_is_the_mean_delay_whatever_the_law(law, mean):
    """While a gradient waits d steps, d others are applied on average: younger ones that overtake
    it among them.
    """
    updates, blocks = 40_000, 50
    staleness = simulate(
        ONE, Delayed(Rule(), delay=mean, law=law), stop=Stop(updates=updates)
    ).updates["staleness"]
    means = staleness[1000:].reshape(blocks, -1).mean(1)
    assert means.mean() == pytest.approx(mean, abs=4 * means.std(ddof=1) / math.sqrt(blocks))


@pytest.mark.parametrize("law", ["uniform", "geometric", "poisson"])
def test_drawn_delays_follow_their_law(law):
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


def test_a_ramp_ends_at_its_end():
    ramp = Delayed(Rule(), delay=2, ramp_to=10, over=100)
    assert [ramp.mean(updates) for updates in (0, 50, 100, 5000)] == [2, 6, 10, 10]
    assert [
        Delayed(Rule(), delay=10, ramp_to=2, over=100).mean(updates) for updates in (0, 25, 100)
    ] == [10, 8, 2]
    staleness = simulate(ONE, ramp, stop=Stop(updates=300)).updates["staleness"]
    assert (staleness[-100:] == 10).all()
    jump = Delayed(Rule(), delay=0, ramp_to=8, over=1, after=50)
    assert [jump.mean(updates) for updates in (0, 50, 51, 500)] == [0, 0, 8, 8]
    staleness = simulate(ONE, jump, stop=Stop(updates=200)).updates["staleness"]
    assert (staleness[:51] == 0).all()
    assert (staleness[-100:] == 8).all()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"law": "normal"}, "law: expected constant, uniform, geometric, poisson, got 'normal'"),
        ({"ramp_to": 5}, "over: expected updates beside ramp_to, or neither"),
        ({"over": 5}, "over: expected updates beside ramp_to, or neither"),
        ({"after": 5}, "after: expected 0 without ramp_to"),
        ({"ramp_to": -1, "over": 5}, "ramp_to"),
        ({"ramp_to": 5, "over": 0}, "over: expected a number >= 1, got 0"),
    ],
)
def test_settings_out_of_range_are_refused(wrong, message):
    with pytest.raises(InvalidSettingError, match=message):
        Delayed(Rule(), **wrong)
