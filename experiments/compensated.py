"""What each compensation makes of a late gradient, where it is known what the gradient should be."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from experiments.verify.trials import ONE, method
from models import Quadratic
from simulator import Evaluate, Rule, Stop, simulate
from simulator.rules import COMPENSATIONS

if TYPE_CHECKING:
    import pandas as pd

SETTLED, MEASURED = 200, 100  # updates
FLAT = 1e-9
DEFAULTS: dict[str, dict[str, Any]] = {"gap_aware": {"decay": 0.9}}


def compensated(
    staleness: Sequence[int] = (0, 1, 4, 16),
    lr: float = 0.1,
    slope: float = 1.0,
    workers: int = 16,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> "pd.DataFrame":
    """What is left of a gradient on a slope: a row per compensation, a column per staleness, 1 for all of it.

    On a slope, f(w) = s w, the gradient is s wherever it was taken, so that a late one is as good as a fresh one and
    the right answer is 1. Plain SGD then makes steps of lr s; what is left is the step made in the long run over
    that. With w - w_read = tau steps of lr s k, where k is what is left:

        staleness 1 / max(1, tau),  1/N 1 / N,  delay-adaptive min(1, c / (lr tau)),  gap-aware 1 / (1 + tau),
        DC-ASGD-c 1 / (1 + strength s^2 lr tau),  DC-ASGD-a 1 / (1 + strength s lr tau)

    Args:
        staleness: tau, in updates, the same for every gradient.
        lr: the learning rate of plain SGD.
        slope: s.
        workers: N of the 1/N rule.
        settings: fields of compensations by name, where they differ from the defaults. Gap-aware's running mean
            forgets faster than by default (`decay` 0.9), so that the long run comes soon.

    Example:
        >>> float(compensated(staleness=[4]).loc["gap_aware", 4].round(3))
        0.2
    """
    import pandas as pd

    chosen = {**DEFAULTS, "one_over_n": {"workers": workers}, **(settings or {})}
    rows = {name: COMPENSATIONS[name](**chosen.get(name, {})) for name in COMPENSATIONS}
    left = [[_left(kind, tau, lr, slope) for tau in staleness] for kind in rows.values()]
    index, columns = pd.Index(list(rows), name="compensation"), pd.Index(staleness, name="staleness")
    return pd.DataFrame(left, index=index, columns=columns)


def _left(compensation: Any, staleness: int, lr: float, slope: float) -> float:
    """The mean of the last steps, over the step of plain SGD."""
    task = Quadratic(curvature=FLAT, optimum=-slope / FLAT, initial=0.0, dtype=torch.float64)
    algorithm = method("delayed", Rule(lr=lr, compensation=compensation), delay=staleness)
    stop, evaluate = Stop(updates=SETTLED + MEASURED), Evaluate(every_updates=MEASURED)
    *_, before, after = simulate(ONE, algorithm, task, stop=stop, evaluate=evaluate).metrics["distance"]
    return float(before - after) / (MEASURED * lr * slope)
