"""A constant delay: for which learning rates descent on a quadratic is stable."""

import math
from collections.abc import Iterator

import numpy as np
import torch

from experiments.verify.finding import Family, Finding
from experiments.verify.trials import ONE, method
from models import Quadratic
from simulator import Evaluate, Rule, Stop, simulate
from simulator.rules import SGD, Nesterov

delayed = Family("delayed", "Delayed gradients: the largest stable learning rate")
PERIODS = 8  # of the oscillation, in each of the two stretches whose sizes are compared
TOLERANCE = 1e-3  # relative: a line through two points of a curve, and oscillations that do not end with a stretch


def roots(lr: float, delay: int, momentum: float = 0.0, nesterov: bool = False) -> np.ndarray:
    """The factors per update of delayed descent on curvature 1: roots of its characteristic polynomial.

    z^(D+2) - (1 + m) z^(D+1) + m z^D + lr z, the last term lr ((1 + m) z - m) under Nesterov.
    """
    polynomial = np.zeros(delay + 3)
    polynomial[:3] = 1, -(1 + momentum), momentum
    polynomial[-2:] += (lr * (1 + momentum), -lr * momentum) if nesterov else (lr, 0.0)
    return np.roots(polynomial)


def root_limit(*oscillator: float) -> float:
    """Where the largest root leaves the unit circle, by bisection."""
    low, high = 0.0, 8.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if np.abs(roots(middle, *oscillator)).max() < 1 else (low, middle)
    return low


def measured_limit(limit: float, optimizer: SGD | Nesterov, delay: int) -> float:
    """The learning rate at which a run neither shrinks nor grows, between one below `limit` and one above.

    Each run's growth per update is that from one stretch of oscillations to the next; the limit is where a
    straight line through the two growths passes 0.
    """
    root = max(roots(limit, delay, optimizer.momentum, isinstance(optimizer, Nesterov)), key=abs)
    stretch = round(max(100, PERIODS * math.pi / abs(np.angle(root))))
    apart = 0.005 if delay else 1e-4  # without a delay the roots are real, and with momentum complex soon below
    curvature, factors = 2.5, torch.tensor([[1 - apart], [1 + apart]], dtype=torch.float64)
    run = simulate(
        ONE,
        method("delayed", Rule(optimizer, lr=factors * limit / curvature), delay=delay),
        Quadratic(curvature=curvature, dtype=torch.float64),
        stop=Stop(updates=3 * stretch),
        evaluate=Evaluate(every_updates=1),
        ensemble=2,
    )
    distance = run.metrics["distance"].reshape(-1, 2)[-2 * stretch :].reshape(2, stretch, 2)
    sizes = np.hanning(stretch) @ np.square(distance)  # wherever it cuts an oscillation
    shrinking, growing = np.diff(np.log(sizes), axis=0)[0]
    return limit * (1 - apart + 2 * apart * -shrinking / (growing - shrinking))


def limit_of(delay: int, optimizer: SGD | Nesterov, statement: str, source: str, limit: float) -> Finding:
    """The measured limit beside the `limit` of theory; that of one update of delay more is told from it."""
    more = root_limit(delay + 1, optimizer.momentum, isinstance(optimizer, Nesterov))
    measured = measured_limit(limit, optimizer, delay)
    return Finding(f"D = {delay}, {statement}", source, limit, measured, TOLERANCE * limit, excludes=more)


@delayed.check
def plain() -> Iterator[Finding]:
    """lr h < 2 sin(pi / (2 (2 D + 1)))."""
    for D in (0, 1, 4, 16, 32, 256):
        closed = 2 * math.sin(math.pi / (2 * (2 * D + 1)))
        yield limit_of(D, SGD(), "SGD: lr h < 2 sin(pi / (2 (2D + 1)))", "characteristic roots", closed)


@delayed.check
def with_momentum() -> Iterator[Finding]:
    """Momentum takes most of the room that a delay leaves, Nesterov's less of it at small delays."""
    for name, optimizer, delays in [
        ("momentum", SGD(0.9), (0, 1, 4, 16, 32)),
        ("Nesterov", Nesterov(0.9), (0, 1, 4, 16, 32)),
    ]:
        for D in delays:
            limit = root_limit(D, 0.9, name == "Nesterov")
            yield limit_of(D, optimizer, f"{name} 0.9: lr h <", "roots of z^(D+2) ...", limit)
