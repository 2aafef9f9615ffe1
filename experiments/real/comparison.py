"""Comparison of a real run with simulations.

One simulation is on a cluster calibrated on another real run, one has the real run's own order of
arrivals.
"""

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import pairwise
from operator import getitem
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from laggard.experiments.config.config import Config, parse
from laggard.experiments.config.document import put
from laggard.experiments.config.errors import ConfigError
from laggard.experiments.config.grid import RunSpec
from laggard.experiments.config.load import load
from laggard.experiments.real.calibration import BANDWIDTH, CLUSTER, ESTIMATES, document
from laggard.experiments.real.processes import WARM_UP_SHARE, RealRun
from laggard.simulator import Outcome, Stop, Timing, simulate

RATE_TOLERANCE = 0.03
"""Relative error of the updates per second."""
WAITING_TOLERANCE = 0.02
"""Error of the share of time spent waiting."""
STALENESS_TOLERANCE = 2.0
"""Distance of the histograms of staleness, in units of that between equal simulated runs."""
WEIGHTS_TOLERANCE = 1e-12
"""Error of weights in double precision."""
WEIGHTS_ROW = "weights in the order of arrival"
NO_TIME = {BANDWIDTH: math.inf}
"""The setting of a network's key that takes no time, where that is not 0."""
REPETITIONS = 8
"""Simulated runs, with other draws of the same times, that estimate the noise of a histogram."""


class Figures(NamedTuple):
    """The compared figures of a run, after its warm-up.

    Attributes:
        rate: updates per second.
        waiting: the share of the workers' time in which they do not compute.
        shares: each worker's share of the gradients.
        staleness: each staleness's share of the gradients.
    """

    rate: float
    waiting: float
    shares: NDArray[np.float64]
    staleness: NDArray[np.float64]


def figures(rows: pd.DataFrame, workers: int) -> Figures:
    """The figures of a run from its rows, in order of application."""
    warm_up = math.ceil(WARM_UP_SHARE * len(rows))
    rows = rows.iloc[warm_up:]
    first, last = rows.iloc[0], rows.iloc[-1]
    updates = last["version"] - first["version"]
    seconds = last["time"] - first["time"]
    busy = total = 0.0
    for _, worker_rows in rows.groupby("worker"):
        busy += float((worker_rows["computed"] - worker_rows["started"]).sum())
        total += worker_rows["computed"].max() - worker_rows["started"].min()
    gradients_of_workers = np.bincount(rows["worker"], minlength=workers)
    gradients_of_staleness = np.bincount(rows["staleness"], minlength=1)
    return Figures(
        rate=updates / seconds,
        waiting=1 - busy / total,
        shares=gradients_of_workers / len(rows),
        staleness=gradients_of_staleness / len(rows),
    )


def total_variation(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Half the sum of the absolute differences of two histograms, from 0 to 1."""
    size = max(len(one), len(other))
    difference = np.zeros(size)
    difference[: len(one)] += one
    difference[: len(other)] -= other
    return float(np.abs(difference).sum() / 2)


class Comparison(NamedTuple):
    """A quantity of a real run and of its simulation. With a bar of NaN it is not judged."""

    quantity: str
    real: float
    simulated: float
    difference: float
    bar: float


def compare_real(run: RealRun, spec: RunSpec, calibration: Path) -> pd.DataFrame:
    """A row per quantity: real, simulated, their difference, its bar, and whether they agree.

    `agrees` is empty if there is no bar, or if the load of the machine exceeded its cores.

    Args:
        calibration: the folder of the calibration by another real run of this config.

    Raises:
        ConfigError: the calibration is of another method, number of workers or message size.
    """
    config = calibrated(spec, calibration)
    updates = int(run.rows["version"].max()) + 1
    real = figures(run.rows, spec.config.cluster.workers)
    simulated = simulate_times(RunSpec(config), updates)
    rate_error = simulated.rate / real.rate - 1
    waiting_error = simulated.waiting - real.waiting
    share_error = float(np.abs(real.shares - simulated.shares).max())
    largest_real = max(real.shares)
    largest_simulated = max(simulated.shares)
    comparisons = [
        Comparison("updates/s", real.rate, simulated.rate, rate_error, RATE_TOLERANCE),
        Comparison("waiting", real.waiting, simulated.waiting, waiting_error, WAITING_TOLERANCE),
        Comparison(
            "largest share of a worker", largest_real, largest_simulated, share_error, math.nan
        ),
    ]
    if len(real.staleness) > 1:
        comparisons.append(_compare_staleness(real, simulated, config, updates))
    if run.weights.size:
        comparisons.append(_compare_weights(run, spec))
    table = pd.DataFrame(comparisons).rename(columns={"bar": "at most"})
    judged = table["at most"].notna()
    if not run.quiet:  # the load of a machine changes times, but not the weights
        judged &= table["quantity"] == WEIGHTS_ROW
    agrees = np.where(table["difference"].abs() <= table["at most"], "yes", "no")
    table["agrees"] = np.where(judged, agrees, "")
    return table.assign(load=round(run.load, 2), cores=run.cores)


def _compare_staleness(
    real: Figures, simulated: Figures, config: Config, updates: int
) -> Comparison:
    """Compare mean staleness, and the distance of the histograms with its noise."""
    distances = [
        total_variation(simulated.staleness, histogram) for histogram in _repeated(config, updates)
    ]
    noise = float(np.mean(distances))
    return Comparison(
        "staleness, total variation",
        _mean_staleness(real),
        _mean_staleness(simulated),
        total_variation(real.staleness, simulated.staleness),
        STALENESS_TOLERANCE * noise,
    )


def _mean_staleness(run: Figures) -> float:
    return float(run.staleness @ np.arange(len(run.staleness)))


def _compare_weights(run: RealRun, spec: RunSpec) -> Comparison:
    """Compare the norms of the weights, and their largest difference."""
    imposed = imposed_order(run, spec)
    real_norm = np.linalg.norm(run.weights)
    imposed_norm = np.linalg.norm(imposed)
    difference = float(np.abs(imposed - run.weights).max())
    bar = math.nan
    if run.weights.dtype == np.float64:
        bar = WEIGHTS_TOLERANCE
    return Comparison(WEIGHTS_ROW, float(real_norm), float(imposed_norm), difference, bar)


def calibrated(spec: RunSpec, calibration: Path) -> Config:
    """The config of a run on the cluster of a calibration.

    Raises:
        ConfigError: the calibration is of another method, number of workers or message size.
    """
    values = spec.config.as_dict()
    measured = load(calibration / CLUSTER).as_dict()
    for key in ("algorithm.name", "cluster.workers", "cluster.network.message_bytes"):
        path = key.split(".")
        got = reduce(getitem, path, values)
        expected = reduce(getitem, path, measured)
        if got != expected:
            raise ConfigError(
                key, f"expected {expected}, as calibrated in {calibration}, got {got}"
            )
    return parse({**values, "cluster": measured["cluster"]})


def what_is_missing(run: RealRun, spec: RunSpec, calibration: Path) -> pd.DataFrame:
    """The relative error of the updates per second if the simulation leaves out measured times.

    Each time is left out alone, then all of them. The last row simulates the config's own cluster.
    """
    values = calibrated(spec, calibration).as_dict()
    keys = list(pd.read_csv(calibration / ESTIMATES)["key"])
    left_out = {"nothing": [], **{key: [key] for key in keys}, "all of them": keys}
    configs = {name: parse(_leave_out_times(values, keys)) for name, keys in left_out.items()}
    updates = int(run.rows["version"].max()) + 1
    configs["all but the law"] = parse({**spec.config.as_dict(), "stop": {"updates": updates}})

    measured = figures(run.rows, spec.config.cluster.workers).rate
    errors = []
    for config in configs.values():
        simulated = simulate_times(RunSpec(config), updates).rate
        errors.append(simulated / measured - 1)
    return pd.DataFrame({"missing": list(configs), "error": errors})


def _leave_out_times(values: Mapping[str, Any], keys: Sequence[str]) -> Mapping[str, Any]:
    """The values of a config without the times of these keys below `cluster`."""
    for key in keys:
        values = put(values, f"cluster.{key}", NO_TIME.get(key, 0.0))
    return values


def imposed_order(run: RealRun, spec: RunSpec) -> NDArray[np.float64]:
    """The final weights `(1, params)` of a simulation with a real run's order of arrivals.

    The n-th gradient that the server applied is computed at n seconds. So a worker's gradient takes
    as many seconds as gradients were applied since the worker's last one.
    """
    rows = run.rows.reset_index(drop=True)
    steps = []
    for worker, worker_rows in rows.groupby("worker"):
        # each worker computes one more gradient, which ends after the run
        moments = [0, *(worker_rows.index + 1), 2 * len(rows) + 1]
        steps += [(worker, later - earlier) for earlier, later in pairwise(moments)]
    with TemporaryDirectory() as folder:
        order = Path(folder) / "order.csv"
        pd.DataFrame(steps, columns=["worker", "seconds"]).to_csv(order, index=False)
        planned = RunSpec(parse({**document(spec, [], str(order)), "device": "cpu"}))
        stop = Stop(updates=int(rows["version"].max()) + 1)
        outcome: Outcome = simulate(**(planned.arguments() | {"stop": stop}))
    weights: NDArray[np.float64] = outcome.weights.numpy()
    return weights


def simulate_times(spec: RunSpec, updates: int) -> Figures:
    """The figures of a simulated run that learns nothing."""
    config = spec.config
    workers = config.cluster.workers
    outcome: Outcome = simulate(
        config.build_cluster(),
        config.algorithm.build(workers),
        Timing(getattr(config.task, "batch", 1)),
        stop=Stop(updates=updates),
        seed=config.seed,
    )
    rows = pd.DataFrame({name: np.array(outcome.updates[name]) for name in outcome.updates})
    return figures(rows[rows["status"] == "applied"], workers)


def _repeated(config: Config, updates: int) -> Sequence[NDArray[np.float64]]:
    """Staleness histograms of runs whose compute times are drawn from the measured ones."""
    document = config.as_dict()
    document["cluster"]["compute"]["order"] = "bootstrap"
    specs = [RunSpec(parse({**document, "seed": seed})) for seed in range(REPETITIONS)]
    return [simulate_times(spec, updates).staleness for spec in specs]
