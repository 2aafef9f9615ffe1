"""The implicit momentum of asynchronous SGD on a quadratic."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from laggard.experiments.config.config import Config
from laggard.simulator import simulate
from laggard.simulator.learning.gradients import GradientPromise
from laggard.simulator.learning.rules.damping import Uncompensated
from laggard.simulator.learning.rules.scalars import Scalar


@dataclass(frozen=True)
class TrajectoryProbe(Uncompensated):
    """No compensation; it records the weights to which gradients are applied.

    Attributes:
        models: the weights before each update, `(ensemble, params)`.
    """

    shared: ClassVar[bool] = True

    models: list[Tensor] = field(default_factory=list)

    def correct(
        self, value: Tensor, gradient: GradientPromise, weights: Tensor, state: Any, lr: Scalar
    ) -> tuple[Tensor, Any]:
        self.models.append(weights)
        return value, state


def momentum(config: Config, arguments: Mapping[str, Any]) -> list[dict[str, float]]:
    """The implicit momentum mu of asynchronous SGD around the optimum 0 of a quadratic.

        R(j+1) - R(j) = mu (R(j) - R(j-1)) - a R(j)

    R(j) is the autocovariance at lag j, the mean of w(t) w(t+j) over updates t and parameters. mu
    and a are fitted by least squares over the lags j = 1 ... 2 P. Lag 0 is left out, since w(t) and
    the step after it depend on the same choice of a worker. Returns a row per member.

    Source: Mitliagkas et al. (2016), arXiv 1605.09774: geometric staleness gives mu = 1 - 1 / P.
    """
    along = TrajectoryProbe()
    rule = replace(arguments["algorithm"].rule, compensation=along)
    simulate(**{**arguments, "algorithm": replace(arguments["algorithm"], rule=rule)})
    models = torch.stack(along.models).double()
    lags = 2 * config.cluster.workers
    return [
        {"member": member, "number": fit_momentum(models[:, member].numpy(), lags)}
        for member in range(models.shape[1])
    ]


def fit_momentum(models: NDArray[np.float64], lags: int) -> float:
    """The momentum mu of a stationary trajectory `(updates, params)`, as in `momentum`."""
    n = len(models)
    covariance = np.array([(models[: n - lag] * models[lag:]).sum() / n for lag in range(lags + 2)])
    steps = np.diff(covariance)
    terms = np.stack([steps[:-1], -covariance[1:-1]], axis=1)
    return float(np.linalg.lstsq(terms, steps[1:], rcond=None)[0][0])
