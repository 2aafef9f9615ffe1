"""Effects of delay on descent: the largest stable learning rate, and the strength of compensated
gradients.
"""

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
"""Methods that are descent on one model by gradients of the staleness that theory says."""
SETTLED, MEASURED = 200, 100  # updates
FLAT = 1e-9
DEFAULTS: dict[str, dict[str, Any]] = {"gap_aware": {"decay": 0.9}}


def exact_limit(config: Any) -> float | None:
    """The learning rate above which descent on a config's quadratic grows without bound; None where
    it is not known.

    With a constant delay of D updates, momentum m and the smoothness h, lr h is where the largest
    root of

        z^(D+2) - (1 + m) z^(D+1) + m z^D + lr h z

    leaves the unit circle (without momentum 2 sin(pi / (2 (2 D + 1)))).
    Known for SGD and Nesterov at a constant learning rate where every gradient has the same
    staleness: `delayed`, synchronous methods, and an asynchronous server with equal constant times
    on a free network; not where workers differ in `scale`.
    """
    found = build_algorithm(config)
    if found is None or type(found[0]) not in DESCENT or not isinstance(config.task, QuadraticPart):
        return None
    learning, theory = config.learning, staleness_theory(config)
    plain = learning.schedule.name == "constant" and learning.compensation.name == "none"
    if not (
        plain and theory and theory.law == CONSTANT and learning.optimizer in ("sgd", "nesterov")
    ):
        return None
    limit, _ = critical(int(theory.mean), learning.momentum, learning.optimizer == "nesterov")
    form: QuadraticForm = config.task.build()
    if form.scale:
        return None
    return limit / form.smoothness


def critical(delay: int, momentum: float, nesterov: bool) -> tuple[float, float]:
    """The learning rate at which delayed descent on curvature 1 oscillates for ever, and by what
    angle an update.

    Its factors an update are the roots of z^(D+2) - (1 + m) z^(D+1) + m z^D + lr z, the last term
    lr ((1 + m) z - m) under Nesterov. On the unit circle that says which lr z has; the first z
    whose lr is a positive number, by bisection on its angle, is where the largest root leaves the
    circle.
    """

    def lr(angle: float) -> tuple[float, float]:
        z = cmath.exp(1j * angle)
        last = ((1 + momentum) - momentum / z) if nesterov else 1.0
        argument = (
            (delay - 0.5) * angle + cmath.phase(z - momentum) - cmath.phase(last) - math.pi / 2
        )
        # that of lr, continued from -pi / 2 at z = 1
        return abs((z - 1) * (z - momentum) / last), argument

    low, high = 0.0, math.pi
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if lr(middle)[1] < 0 else (low, middle)
    return lr(high)[0], high


def chance(config: Any) -> float | None:
    """The accuracy (0 to 1) of guessing on a config's data set, where its classes are known."""
    dataset = getattr(getattr(config, "task", None), "dataset", None)
    try:
        known = sizes_of(dataset) if dataset is not None else None
    except ValueError:  # a file of a stored run that is there no more, or another by now
        return None
    if known:
        return 1 / known.classes
    return None


def find_failed(ended: pd.DataFrame, started: float, chance: float | None) -> pd.Series:
    """Which final rows, as of `lines.ends`, learnt nothing: diverged, accuracy below twice
    `chance`, or loss not below the loss `started` with.
    """
    learnt = ended["learnt"]
    if "test_accuracy" in ended:
        return learnt.isna() | (learnt < 2 * chance if chance is not None else False)
    return learnt.isna() | (learnt >= started)


def measured_limit(lrs: np.ndarray, fails: np.ndarray, best: int) -> float | None:
    """Halfway, on a log axis, between the largest lr that learns and the next, which fails; None
    where none fails.

    Args:
        lrs: increasing.
        fails: whether each failed.
        best: the place of the best lr: what fails below it, too small to learn, is no limit.
    """
    above = [index for index in range(best + 1, len(lrs)) if fails[index]]
    if fails[best]:
        return 0.0
    if above:
        return float(np.sqrt(lrs[above[0] - 1] * lrs[above[0]]))
    return None


def compensation_table(
    staleness: Sequence[int] = (0, 1, 4, 16),
    lr: float = 0.1,
    slope: float = 1.0,
    workers: int = 16,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> pd.DataFrame:
    """The remaining share of a gradient on a slope: a row per compensation, a column per staleness,
    1 for all of it.

    On a slope, f(w) = s w, the gradient is s wherever it was taken, so that a late one is as good
    as a fresh one and the right answer is 1. Plain SGD then makes steps of lr s; what is left is
    the step made in the long run over that. With w - w_read = tau steps of lr s k, where k is what
    is left:

        staleness 1 / max(1, tau),  1/N 1 / N,  delay-adaptive min(1, c / (lr tau)),  gap-aware 1 /
        (1 + tau), DC-ASGD-c 1 / (1 + strength s^2 lr tau),  DC-ASGD-a 1 / (1 + strength s lr tau)

    Args:
        staleness: tau, in updates, the same for every gradient.
        lr: the learning rate of plain SGD.
        slope: s.
        workers: N of the 1/N rule.
        settings: fields of compensations by name, where they differ from the defaults. Gap-aware's
            running mean forgets faster than by default (`decay` 0.9), so that the long run comes
            soon.

    Example:
        >>> float(compensation_table(staleness=[4]).loc["gap_aware", 4].round(3))
        0.2
    """
    chosen = {**DEFAULTS, "one_over_n": {"workers": workers}, **(settings or {})}
    rows = {name: COMPENSATIONS[name](**chosen.get(name, {})) for name in COMPENSATIONS}
    left = [[_remaining_share(kind, tau, lr, slope) for tau in staleness] for kind in rows.values()]
    index, columns = (
        pd.Index(list(rows), name="compensation"),
        pd.Index(staleness, name="staleness"),
    )
    return pd.DataFrame(left, index=index, columns=columns)


def _remaining_share(compensation: Any, staleness: int, lr: float, slope: float) -> float:
    """The mean of the last steps, over the step of plain SGD."""
    import torch

    task = Quadratic(curvature=FLAT, optimum=-slope / FLAT, initial=0.0, dtype=torch.float64)
    algorithm = simulator.Delayed(simulator.Rule(lr=lr, compensation=compensation), delay=staleness)
    stop, evaluate = (
        simulator.Stop(updates=SETTLED + MEASURED),
        simulator.Evaluate(every_updates=MEASURED),
    )
    outcome = simulator.simulate(Cluster(workers=1), algorithm, task, stop=stop, evaluate=evaluate)
    *_, before, after = outcome.metrics["distance"]
    return float(before - after) / (MEASURED * lr * slope)
