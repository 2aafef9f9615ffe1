"""The largest stable learning rate: exact on a quadratic, measured on a grid."""

from typing import Any

import numpy as np
import pandas as pd

from experiments.config import Config
from experiments.figures.theory import CONSTANT, staleness_theory
from experiments.tasks import sizes_of
from experiments.verify.delayed import critical

SERVERLESS = ("all_reduce", "delayed")
SERVED = ("async_ps", "sync_ps")


def exact_limit(config: Any) -> float | None:
    """The learning rate above which descent on a config's quadratic grows without bound; None where it is not known.

    With a constant delay of D updates, momentum m and the largest curvature h, lr h is where the largest root of

        z^(D+2) - (1 + m) z^(D+1) + m z^D + lr h z

    leaves the unit circle (without momentum 2 sin(pi / (2 (2 D + 1)))); see `experiments.verify.delayed.critical`.
    Known for SGD and Nesterov at a constant learning rate where every gradient has the same staleness: `delayed`,
    synchronous methods, and an asynchronous server with equal constant times on a free network.
    """
    if not isinstance(config, Config) or config.task.model != "quadratic":
        return None
    learning, theory = config.learning, staleness_theory(config)
    plain = learning.schedule.name == "constant" and learning.compensation.name == "none"
    steps = getattr(config.algorithm, "local_steps", 1)
    whole = config.algorithm.name in (*SERVERLESS, *SERVED) and steps == 1
    if not (plain and whole and theory and theory.law == CONSTANT and learning.optimizer in ("sgd", "nesterov")):
        return None
    curvature = config.task.curvature
    largest = max(curvature) if isinstance(curvature, list | tuple) else curvature
    return critical(int(theory.mean), learning.momentum, learning.optimizer == "nesterov")[0] / largest


def chance(config: Any) -> float | None:
    """The accuracy (0 to 1) of guessing on a config's data set, where its classes are known."""
    dataset = getattr(getattr(config, "task", None), "dataset", None)
    known = sizes_of(dataset) if dataset is not None else None
    return 1 / known.classes if known else None


def failed(ended: pd.DataFrame, started: float, chance: float | None) -> pd.Series:
    """Which final rows, as of `lines.ends`, learnt nothing: diverged, accuracy below twice `chance`, or loss not below
    the loss `started` with.
    """
    learnt = ended["learnt"]
    if "test_accuracy" in ended:
        return learnt.isna() | (learnt < 2 * chance if chance is not None else False)
    return learnt.isna() | (learnt >= started)


def measured_limit(lrs: np.ndarray, fails: np.ndarray, best: int) -> float | None:
    """Halfway, on a log axis, between the largest lr that learns and the next, which fails; None where none fails.

    Args:
        lrs: increasing.
        fails: whether each failed.
        best: the place of the best lr: what fails below it, too small to learn, is no limit.
    """
    above = [index for index in range(best + 1, len(lrs)) if fails[index]]
    if fails[best]:
        return 0.0
    return float(np.sqrt(lrs[above[0] - 1] * lrs[above[0]])) if above else None
