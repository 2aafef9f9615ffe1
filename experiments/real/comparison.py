"""A real run beside its simulations: by a cluster calibrated on another run, and by its own order
of arrivals.
"""

import math
from collections.abc import Sequence
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

RATE, WAITING, NOISE, WEIGHTS = 0.03, 0.02, 2.0, 1e-12
"""How far a simulation may be off: updates per second relatively, waiting as a share of time, the
staleness histogram in noises of a run as long, and weights in double precision.
"""
NO_TIME = {BANDWIDTH: math.inf}
"""The setting of a network's key that takes no time, where that is not 0."""
REPETITIONS = 8
"""Simulated runs with other draws of the same times, from which the noise of a histogram is
known.
"""


class Figures(NamedTuple):
    """What is compared of a run, after its warm-up.

    Attributes:
        rate: updates per second.
        waiting: the share of the workers' time in which they compute nothing.
        shares: of the gradients, by worker.
        staleness: the share of the gradients of each staleness.
    """

    rate: float
    waiting: float
    shares: NDArray[np.float64]
    staleness: NDArray[np.float64]


def figures(rows: pd.DataFrame, workers: int) -> Figures:
    """The figures of a run from its rows, in order of application."""
    rows = rows.iloc[math.ceil(WARM_UP_SHARE * len(rows)) :]
    span = rows["time"].iloc[-1] - rows["time"].iloc[0]
    busy = total = 0.0
    for _, own in rows.groupby("worker"):
        busy += float((own["computed"] - own["started"]).sum())
        total += own["computed"].max() - own["started"].min()
    return Figures(
        (rows["version"].iloc[-1] - rows["version"].iloc[0]) / span,
        1 - busy / total,
        np.bincount(rows["worker"], minlength=workers) / len(rows),
        np.bincount(rows["staleness"], minlength=1) / len(rows),
    )


def total_variation(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Half the sum of the differences of two histograms, from 0 to 1."""
    size = max(len(one), len(other))
    padded = [np.pad(each, (0, size - len(each))) for each in (one, other)]
    return float(np.abs(padded[0] - padded[1]).sum() / 2)


def compare_real(run: RealRun, spec: RunSpec, calibration: Path) -> pd.DataFrame:
    """A row per quantity: real, simulated, what they differ by, how much they may, and whether they
    agree.

    `agrees` is empty where the load of the machine exceeded its cores, and where there is no bar.

    Args:
        calibration: the folder of the calibration by another real run of this config.

    Raises:
        ConfigError: it is one of another method, or of other workers or messages.
    """
    config, updates = calibrated(spec, calibration), int(run.rows["version"].max()) + 1
    workers = spec.config.cluster.workers
    real, simulated = figures(run.rows, workers), simulate_times(RunSpec(config), updates)
    shared = float(np.abs(real.shares - simulated.shares).max())
    differences: list[tuple[Any, ...]] = [
        ("updates/s", real.rate, simulated.rate, simulated.rate / real.rate - 1, RATE),
        ("waiting", real.waiting, simulated.waiting, simulated.waiting - real.waiting, WAITING),
        ("largest share of a worker", max(real.shares), max(simulated.shares), shared, math.nan),
    ]
    if len(real.staleness) > 1:
        noise = np.mean(
            [total_variation(simulated.staleness, one) for one in _repeated(config, updates)]
        )
        apart = total_variation(real.staleness, simulated.staleness)
        means = [
            float(each @ np.arange(len(each))) for each in (real.staleness, simulated.staleness)
        ]
        differences.append(("staleness, total variation", *means, apart, NOISE * float(noise)))
    if run.weights.size:
        imposed = imposed_order(run, spec)
        apart = float(np.abs(imposed - run.weights).max())
        norms = [float(np.linalg.norm(weights)) for weights in (run.weights, imposed)]
        bar = WEIGHTS if run.weights.dtype == np.float64 else math.nan
        differences.append(("weights in the order of arrival", *norms, apart, bar))
    table = pd.DataFrame(
        differences, columns=["quantity", "real", "simulated", "difference", "at most"]
    )
    judged = table["at most"].notna() & (
        run.quiet | (table["quantity"] == "weights in the order of arrival")
    )
    agrees = np.where(table["difference"].abs() <= table["at most"], "yes", "no")
    table["agrees"] = np.where(judged, agrees, "")
    return table.assign(load=round(run.load, 2), cores=run.cores)


def calibrated(spec: RunSpec, calibration: Path) -> Config:
    """The config of a run on the cluster of a calibration.

    Raises:
        ConfigError: the calibration is one of another method, or of other workers or messages.
    """
    given, measured = spec.config.as_dict(), load(calibration / CLUSTER).as_dict()
    for path in (
        ("algorithm", "name"),
        ("cluster", "workers"),
        ("cluster", "network", "message_bytes"),
    ):
        got, expected = (reduce(getitem, path, config) for config in (given, measured))
        if got != expected:
            raise ConfigError(
                ".".join(path), f"expected {expected}, as calibrated in {calibration}, got {got}"
            )
    return parse({**given, "cluster": measured["cluster"]})


def what_is_missing(run: RealRun, spec: RunSpec, calibration: Path) -> pd.DataFrame:
    """What each time of the calibrated cluster is worth: a row with all of them, one without each,
    one without any.

    Columns: `missing`, and `error`, by which the simulated rate exceeds that of the real `run`
    (relative).
    """
    config, updates = calibrated(spec, calibration), int(run.rows["version"].max()) + 1
    measured, given = figures(run.rows, spec.config.cluster.workers).rate, config.as_dict()
    times = pd.read_csv(calibration / ESTIMATES)["key"].tolist()
    without = {"nothing": [], **{key: [key] for key in times}, "all of them": times}
    variants = {
        name: parse(
            reduce(
                lambda left, key: put(left, f"cluster.{key}", NO_TIME.get(key, 0.0)), keys, given
            )
        )
        for name, keys in without.items()
    }
    law = parse({**spec.config.as_dict(), "stop": {"updates": updates}})
    rates = {
        name: simulate_times(RunSpec(variant), updates).rate for name, variant in variants.items()
    }
    rates["all but the law"] = simulate_times(RunSpec(law), updates).rate
    return pd.DataFrame(
        {"missing": list(rates), "error": [rate / measured - 1 for rate in rates.values()]}
    )


def imposed_order(run: RealRun, spec: RunSpec) -> NDArray[np.float64]:
    """The weights `(1, params)` that the simulator learns where gradients arrive in the order of a
    real run.

    The n-th gradient that the server applied is computed at n seconds: a worker's next one takes as
    many seconds as gradients were applied from its last one to it.
    """
    rows = run.rows.reset_index(drop=True)
    steps = []
    for worker, own in rows.groupby("worker"):
        moments = [0, *(own.index + 1), 2 * len(rows) + 1]  # one more, which comes when all is over
        steps += [(worker, later - earlier) for earlier, later in pairwise(moments)]
    with TemporaryDirectory() as folder:
        order = Path(folder) / "order.csv"
        pd.DataFrame(steps, columns=["worker", "seconds"]).to_csv(order, index=False)
        planned = RunSpec(parse({**document(spec, [], str(order)), "device": "cpu"}))
        given = planned.arguments() | {"stop": Stop(updates=int(rows["version"].max()) + 1)}
        weights: NDArray[np.float64] = simulate(**given).weights.numpy()
    return weights


def simulate_times(spec: RunSpec, updates: int) -> Figures:
    """The figures of a simulated run that learns nothing."""
    task, config = spec.config.task, spec.config
    outcome: Outcome = simulate(
        config.build_cluster(),
        config.algorithm.build(config.cluster.workers),
        Timing(getattr(task, "batch", 1)),
        stop=Stop(updates=updates),
        seed=config.seed,
    )
    applied = pd.DataFrame({name: np.array(outcome.updates[name]) for name in outcome.updates})
    return figures(applied[applied["status"] == "applied"], config.cluster.workers)


def _repeated(config: Config, updates: int) -> Sequence[NDArray[np.float64]]:
    """Staleness histograms of runs whose compute times are drawn from the measured ones."""
    document = config.as_dict()
    document["cluster"]["compute"]["order"] = "bootstrap"
    specs = [RunSpec(parse({**document, "seed": seed})) for seed in range(REPETITIONS)]
    return [simulate_times(spec, updates).staleness for spec in specs]
