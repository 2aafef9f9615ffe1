"""A constant delay: for which learning rates descent on a quadratic is stable."""

import cmath
import math
from collections.abc import Iterator

import numpy as np
import torch

from experiments.verify.finding import Family, Finding, equals
from experiments.verify.trials import ONE, method
from models import Quadratic
from simulator import Evaluate, Rule, Stop, simulate
from simulator.rules import SGD, Nesterov

delayed = Family("delayed", "Delayed gradients: the largest stable learning rate")
ROOTS = "characteristic roots"
PERIODS = 5  # of the oscillation, in each of the two stretches whose sizes are compared
TOLERANCE = 1e-3  # relative: a line through two points of a curve, and oscillations that do not end with a stretch


def critical(delay: int, momentum: float, nesterov: bool) -> tuple[float, float]:
    """The learning rate at which delayed descent on curvature 1 oscillates for ever, and by what angle an update.

    Its factors an update are the roots of z^(D+2) - (1 + m) z^(D+1) + m z^D + lr z, the last term
    lr ((1 + m) z - m) under Nesterov. On the unit circle that says which lr z has; the first z whose lr is a
    positive number, by bisection on its angle, is where the largest root leaves the circle.
    """

    def lr(angle: float) -> tuple[float, float]:
        z = cmath.exp(1j * angle)
        last = ((1 + momentum) - momentum / z) if nesterov else 1.0
        argument = (delay - 0.5) * angle + cmath.phase(z - momentum) - cmath.phase(last) - math.pi / 2
        return abs((z - 1) * (z - momentum) / last), argument  # that of lr, continued from -pi / 2 at z = 1

    low, high = 0.0, math.pi
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if lr(middle)[1] < 0 else (low, middle)
    return lr(high)[0], high


def measured_limit(limit: float, angle: float, optimizer: SGD | Nesterov, delay: int) -> float:
    """The learning rate at which a run neither shrinks nor grows, between one below `limit` and one above.

    Each run's growth is that from one stretch of oscillations to the next; the limit is where a straight line
    through the two growths passes 0.
    """
    every = (2 * delay + 1) // 8 or 1
    samples = math.ceil(max(100, PERIODS * math.pi / angle) / every)
    apart = 0.005 if delay else 1e-4  # without a delay the roots are real, and with momentum complex soon below
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


def limit_of(delay: int, optimizer: SGD | Nesterov, statement: str, source: str) -> Finding:
    """The measured limit beside that of theory; the limit of one update of delay more is told from it."""
    nesterov = isinstance(optimizer, Nesterov)
    limit, angle = critical(delay, optimizer.momentum, nesterov)
    more, _ = critical(delay + 1, optimizer.momentum, nesterov)
    measured = measured_limit(limit, angle, optimizer, delay)
    return Finding(f"D = {delay}, {statement}", source, limit, measured, TOLERANCE * limit, excludes=more)


@delayed.check
def plain() -> Iterator[Finding]:
    """Half an oscillation takes 2 D + 1 updates."""
    for D in (0, 1, 4, 16, 32, 256):
        closed, form = 2 * math.sin(math.pi / (2 * (2 * D + 1))), "lr h < 2 sin(pi / (2 (2D + 1)))"
        yield equals(
            f"D = {D}, SGD: {form} is where a root leaves the circle", ROOTS, closed, critical(D, 0.0, False)[0]
        )
        yield limit_of(D, SGD(), f"SGD: {form}", ROOTS)


@delayed.check
def with_momentum() -> Iterator[Finding]:
    """Momentum takes most of the room that a delay leaves, Nesterov's less of it at small delays."""
    for D in (0, 1, 4, 16, 32, 256):
        yield limit_of(D, SGD(momentum=0.9), "momentum 0.9: lr h below that root's", ROOTS)
    for D in (0, 1, 4, 16, 32):
        yield limit_of(D, Nesterov(momentum=0.9), "Nesterov 0.9: lr h below that root's", ROOTS)
