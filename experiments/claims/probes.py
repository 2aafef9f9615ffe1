"""Probes: simulations that compute numbers which runs do not record, such as additional gradients."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from laggard.experiments.claims.statistics import array
from laggard.experiments.config.config import Config
from laggard.experiments.config.grid import RunSpec, runs
from laggard.experiments.results.atomic import whole_file
from laggard.experiments.running.run import circumstances
from laggard.simulator import Task, simulate
from laggard.simulator.learning.gradients import GradientPromise
from laggard.simulator.learning.rules.damping import Compensation, Uncompensated
from laggard.simulator.learning.rules.scalars import Scalar

QUARTERS = 4


@dataclass(frozen=True)
class DistanceProbe:
    """A compensation that also takes the gradient of the same mini-batch at the weights now, and notes the distances.

    Attributes:
        inner: the compensation whose gradient is compared.
        task: takes the fresh gradient, at the price of another evaluation.
        distances: per update, |g_compensated - g_fresh| and |g_stale - g_fresh|, each `(ensemble,)`.
    """

    shared: ClassVar[bool] = False

    inner: Compensation
    task: Task
    distances: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def init(self, weights: Tensor) -> Any:
        return self.inner.init(weights)

    def correct(
        self, value: Tensor, gradient: GradientPromise, weights: Tensor, state: Any, lr: Scalar
    ) -> tuple[Tensor, Any]:
        fresh = self.task.gradients(weights.unsqueeze(0), [gradient.whole.batch])[0][0]
        corrected, state = self.inner.correct(value, gradient, weights, state, lr)
        self.distances.append(((corrected - fresh).norm(dim=1), (value - fresh).norm(dim=1)))
        return corrected, state

    def scale(self, gradient: GradientPromise, lr: Scalar) -> Scalar:
        return self.inner.scale(gradient, lr)


def closeness(config: Config, given: Mapping[str, Any]) -> list[dict[str, float]]:
    """How close a compensated gradient is to the fresh one, as a share of how close the stale one is, in each quarter.

    E |g_compensated - g_fresh| / E |g_stale - g_fresh|, the fresh gradient being that of the same mini-batch at the
    weights that are updated; a row a member and quarter of the run's updates.

    Source: Zheng et al. (2017), arXiv 1609.08326: the compensation is a Taylor expansion of the fresh gradient.
    """
    rule = given["algorithm"].rule
    beside = DistanceProbe(rule.compensation, given["task"])
    simulate(**{**given, "algorithm": replace(given["algorithm"], rule=replace(rule, compensation=beside))})
    compensated, stale = (torch.stack(each) for each in zip(*beside.distances, strict=True))
    rows: list[dict[str, float]] = []
    quarters = zip(compensated.tensor_split(QUARTERS), stale.tensor_split(QUARTERS), strict=True)
    for quarter, (ours, theirs) in enumerate(quarters, start=1):
        for member, share in enumerate(ours.mean(0) / theirs.mean(0)):
            rows.append({"member": member, "quarter": quarter, "number": float(share)})
    return rows


@dataclass(frozen=True)
class TrajectoryProbe(Uncompensated):
    """No compensation, but the models at which gradients are applied are noted.

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


def momentum(config: Config, given: Mapping[str, Any]) -> list[dict[str, float]]:
    """The implicit momentum of asynchronous SGD around the optimum 0 of a quadratic; a row a member.

        R(j+1) - R(j) = mu (R(j) - R(j-1)) - a R(j),    R(j) = mean of w(t) w(t+j) over updates t and parameters

    which is fitted by least squares over the lags j = 1 ... 2 P. Lag 0 is left out: w(t) and the step after it have
    the choice of the last worker in common.

    Source: Mitliagkas et al. (2016), arXiv 1605.09774: staleness that is geometric gives mu = 1 - 1 / P.
    """
    along = TrajectoryProbe()
    rule = replace(given["algorithm"].rule, compensation=along)
    simulate(**{**given, "algorithm": replace(given["algorithm"], rule=rule)})
    models = torch.stack(along.models).double()
    lags = 2 * config.cluster.workers
    return [
        {"member": member, "number": fit_momentum(models[:, member].numpy(), lags)} for member in range(models.shape[1])
    ]


def fit_momentum(models: NDArray[np.float64], lags: int) -> float:
    """The momentum mu of a stationary trajectory `(updates, params)`, as in `momentum`."""
    n = len(models)
    covariance = np.array([(models[: n - lag] * models[lag:]).sum() / n for lag in range(lags + 2)])
    steps = np.diff(covariance)
    terms = np.stack([steps[:-1], -covariance[1:-1]], axis=1)
    return float(np.linalg.lstsq(terms, steps[1:], rcond=None)[0][0])


Probe = Callable[[Config, Mapping[str, Any]], list[dict[str, float]]]
PROBES: Mapping[str, Probe] = {"closeness": closeness, "momentum": momentum}
"""What a study may ask for instead of runs: from a config, and what it gives `simulate`, to a row a number."""


def run_probe(probe: str, config: Config, out: Path) -> xr.DataArray:
    """A probe of every run of a config, over its swept keys and whatever the probe adds; kept under `out`.

    A member that diverged has no number, which counts as an infinite one: nothing is to be chosen for it.
    The array's attribute `made` says how each was made, by the id of what was kept, as a run's manifest does.
    """
    every = runs(config)
    kept = [_load_or_run(probe, run, out) for run in every]
    rows = pd.concat([found for found, _ in kept], ignore_index=True)
    made = {_probe_key(probe, run): how for run, (_, how) in zip(every, kept, strict=True)}
    return array(rows.drop(columns=["member"]), rows["number"].fillna(np.inf)).assign_attrs(made=made)


def _probe_key(probe: str, run: RunSpec) -> str:
    return hashlib.sha256(f"{probe} {run.id}".encode()).hexdigest()[:12]


def _load_or_run(probe: str, run: RunSpec, out: Path) -> tuple[Any, dict[str, Any]]:
    """The rows of one run, with its labels and its members' settings, and how they were made; read where they are."""
    path = out / run.config.name / f"{probe}-{_probe_key(probe, run)}.csv"
    how = path.with_suffix(".json")
    if not path.is_file() or not how.is_file():
        given, began = run.arguments(), perf_counter()
        with whole_file(path) as part:
            pd.DataFrame(PROBES[probe](run.config, given)).to_csv(part, index=False)
            made = circumstances(run, given["task"], perf_counter() - began)
            how.write_text(json.dumps(made), encoding="utf-8")
    found = pd.read_csv(path)
    settings = pd.DataFrame(run.members).reindex(found["member"]).reset_index(drop=True)
    return pd.concat([found.assign(**run.labels), settings], axis=1), json.loads(how.read_text(encoding="utf-8"))
