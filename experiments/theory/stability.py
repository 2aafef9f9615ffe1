"""Effects of delay on descent: the stability limit, and the strength of compensated gradients."""

import cmath
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from laggard import simulator
from laggard.experiments.config.task import QuadraticPart, sizes_of
from laggard.experiments.theory import build_algorithm
from laggard.experiments.theory.staleness import CONSTANT, staleness_theory
from laggard.models import Quadratic
from laggard.models.quadratic_form import QuadraticForm
from laggard.simulator import Cluster
from laggard.simulator.learning.rules import COMPENSATIONS

DESCENT = {
    simulator.AllReduce,
    simulator.AsyncPS,
    simulator.Delayed,
    simulator.KSync,
    simulator.SyncPS,
}
"""Methods that are descent on one model by gradients of the staleness in `STALENESS`."""
SETTLED, MEASURED = 200, 100  # updates
FLAT = 1e-9
"""The curvature of a quadratic that is a slope as far as `_remaining_share` descends."""
DEFAULTS: dict[str, dict[str, Any]] = {"gap_aware": {"decay": 0.9}}


def exact_limit(config: Any) -> float | None:
    """The learning rate above which descent on a config's quadratic grows without bound.

    With a constant delay of D updates, momentum m and the smoothness h, lr h is where the largest
    root of

        z^(D+2) - (1 + m) z^(D+1) + m z^D + lr h z

    leaves the unit circle (without momentum 2 sin(pi / (2 (2 D + 1)))).

    Returns:
        None where the limit is not known. It is known for SGD and Nesterov at a constant learning
        rate where every gradient has the same staleness: `delayed`, synchronous methods, and an
        asynchronous server with equal constant times on a free network; not where workers differ in
        `scale`.
    """
    built = build_algorithm(config)
    if built is None or not isinstance(config.task, QuadraticPart):
        return None
    algorithm, _ = built
    learning = config.learning
    if type(algorithm) not in DESCENT or learning.optimizer not in ("sgd", "nesterov"):
        return None
    if learning.schedule.name != "constant" or learning.compensation.name != "none":
        return None
    theory = staleness_theory(config)
    if theory is None or theory.law != CONSTANT:
        return None
    form: QuadraticForm = config.task.build()
    if form.scale:
        return None
    limit, _ = critical(int(theory.mean), learning.momentum, learning.optimizer == "nesterov")
    return limit / form.smoothness


def critical(delay: int, momentum: float, nesterov: bool) -> tuple[float, float]:
    """The learning rate at which delayed descent on curvature 1 oscillates for ever.

    Its factors an update are the roots of z^(D+2) - (1 + m) z^(D+1) + m z^D + lr z, the last term
    lr ((1 + m) z - m) under Nesterov. On the unit circle the equation gives the lr of each z; the
    first z whose lr is a positive number, by bisection on its angle, is where the largest root
    leaves the circle.

    Returns:
        The learning rate, and the angle of the oscillation an update.
    """

    def rate(angle: float) -> tuple[float, float]:
        """The modulus and the argument of lr, continued from -pi / 2 at z = 1."""
        z = cmath.exp(1j * angle)
        last: complex = 1.0
        if nesterov:
            last = (1 + momentum) - momentum / z
        modulus = abs((z - 1) * (z - momentum) / last)
        turns = (delay - 0.5) * angle
        return modulus, turns + cmath.phase(z - momentum) - cmath.phase(last) - math.pi / 2

    low, high = 0.0, math.pi
    for _ in range(60):
        middle = (low + high) / 2
        if rate(middle)[1] < 0:
            low = middle
        else:
            high = middle
    return rate(high)[0], high


def chance(config: Any) -> float | None:
    """The accuracy (0 to 1) of guessing on a config's data set, where its classes are known.

    None where labels are numbers or sets.
    """
    dataset = getattr(getattr(config, "task", None), "dataset", None)
    if dataset is None:
        return None
    try:
        sizes = sizes_of(dataset)
    except ValueError:  # a file of a stored run has been removed or changed
        return None
    if sizes is None or sizes.label_kind != "classes":
        return None
    return 1 / sizes.classes


def find_failed(ended: pd.DataFrame, started: float, chance: float | None) -> pd.Series:
    """Which of the final rows, as `lines.ends` gives them, belong to runs that learnt nothing.

    Such runs diverged, or have an accuracy below twice `chance`, or, where no accuracy was
    measured, a loss not below `started`, the loss at the start.
    """
    learnt = ended["learnt"]
    if "test_accuracy" not in ended:
        return learnt.isna() | (learnt >= started)
    if chance is None:
        return learnt.isna()
    return learnt.isna() | (learnt < 2 * chance)


def measured_limit(lrs: np.ndarray, fails: np.ndarray, best: int) -> float | None:
    """Halfway, on a log axis, between the largest lr that learns and the next, which fails.

    Args:
        lrs: increasing.
        fails: whether each failed.
        best: the index of the best lr. A smaller lr that fails is too small to learn, and is no
            limit.

    Returns:
        None where no larger lr than the best fails; 0 where the best fails.
    """
    if fails[best]:
        return 0.0
    for index in range(best + 1, len(lrs)):
        if fails[index]:
            return float(np.sqrt(lrs[index - 1] * lrs[index]))
    return None


def compensation_table(
    staleness: Sequence[int] = (0, 1, 4, 16),
    lr: float = 0.1,
    slope: float = 1.0,
    workers: int = 16,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> pd.DataFrame:
    """The share of a gradient's step that each compensation leaves on a slope.

    On a slope, f(w) = s w, the gradient is s everywhere, so that a stale gradient is as good as a
    fresh one and the right share is 1. Plain SGD makes steps of lr s; the share is the step in the
    long run over that. With w - w_read = tau steps of lr s k, where k is the share:

        staleness        1 / max(1, tau)
        1/N              1 / N
        delay-adaptive   min(1, c / (lr tau))
        gap-aware        1 / (1 + tau)
        DC-ASGD-c        1 / (1 + strength s^2 lr tau)
        DC-ASGD-a        1 / (1 + strength s lr tau)

    Args:
        staleness: tau, in updates, the same for every gradient.
        lr: the learning rate of plain SGD.
        slope: s.
        workers: N of the 1/N rule.
        settings: fields of compensations by name, where they differ from the defaults. Gap-aware's
            running mean forgets faster than by default (`decay` 0.9), so that it settles soon.

    Returns:
        A row per compensation, a column per staleness.

    Example:
        >>> float(compensation_table(staleness=[4]).loc["gap_aware", 4].round(3))
        0.2
    """
    chosen = {**DEFAULTS, "one_over_n": {"workers": workers}, **(settings or {})}
    rows = []
    for name, kind in COMPENSATIONS.items():
        compensation = kind(**chosen.get(name, {}))
        rows.append([_remaining_share(compensation, tau, lr, slope) for tau in staleness])
    index = pd.Index(list(COMPENSATIONS), name="compensation")
    columns = pd.Index(staleness, name="staleness")
    return pd.DataFrame(rows, index=index, columns=columns)


def _remaining_share(compensation: Any, staleness: int, lr: float, slope: float) -> float:
    """The mean of the last steps, over the step of plain SGD."""
    import torch

    task = Quadratic(curvature=FLAT, optimum=-slope / FLAT, initial=0.0, dtype=torch.float64)
    algorithm = simulator.Delayed(simulator.Rule(lr=lr, compensation=compensation), delay=staleness)
    stop = simulator.Stop(updates=SETTLED + MEASURED)
    evaluate = simulator.Evaluate(every_updates=MEASURED)
    outcome = simulator.simulate(Cluster(workers=1), algorithm, task, stop=stop, evaluate=evaluate)
    *_, before, after = outcome.metrics["distance"]
    return float(before - after) / (MEASURED * lr * slope)
