"""Published measurements of clusters, beside the simulation of the same clusters."""

import math
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from laggard.experiments.config.config import Config
from laggard.experiments.config.document import parse_yaml
from laggard.experiments.config.grid import RunSpec, runs
from laggard.experiments.config.load import load
from laggard.simulator import Cluster, simulate

Labels = tuple[str, ...]
REPORTED, COMPUTING = "reported", "share of time computing"


class MeasuredCluster(NamedTuple):
    """A cluster on which a simulation predicts what was measured.

    Attributes:
        workers: the numbers of workers that were measured.
        bandwidths: the bandwidths of a card (bytes/s).
        error: the largest error of a simulated figure, as a share of the reported one.
    """

    workers: list[int]
    bandwidths: list[float]
    error: float


class Published(NamedTuple):
    """Measurements of a cluster.

    Attributes:
        source: the source of the measurements.
        unit: the unit of the figures.
        figures: the figures by the labels of a run of the config as text, in the order of its axes,
            without the axis `transfer`.
        cluster: the cluster, if the figures are predictions and not bounds.
    """

    source: str
    unit: str
    figures: Mapping[Labels, float]
    cluster: MeasuredCluster | None = None


@cache
def published() -> Mapping[str, Published]:
    """All measurements, by the name of the config in `examples/published` of their cluster."""
    path = Path(__file__).with_suffix(".yaml")
    tables = {}
    for name, entry in parse_yaml(path.read_text(encoding="utf-8"), path.name).items():
        figures = {}
        for *labels, figure in entry["figures"]:
            figures[tuple(labels)] = figure
        cluster = None
        if "cluster" in entry:
            cluster = MeasuredCluster(**entry["cluster"])
        tables[name] = Published(entry["source"], entry["unit"], figures, cluster)
    return tables


def nearest_measured(cluster: Cluster) -> str:
    """The measured cluster nearest to `cluster`, as text, and how well laggard predicts its times.

    The distance is |log(P / P')| + |log(B / B')|, for P workers with cards of B bytes/s.
    """
    distances = {}
    for table in published().values():
        if table.cluster is None:
            continue
        for workers in table.cluster.workers:
            for bandwidth in table.cluster.bandwidths:
                ratios = cluster.workers / workers, cluster.network.bandwidth / bandwidth
                distance = sum(abs(math.log(ratio)) for ratio in ratios)
                distances[distance, workers, bandwidth] = table
    (_, workers, bandwidth), table = min(distances.items(), key=lambda item: item[0])
    assert table.cluster is not None
    where = f"{workers} workers, cards of {8 * bandwidth / 1e9:g} Gb/s"
    return f"{table.source} ({where}), predicted within {table.cluster.error:.0%}"


def simulated_figure(run: RunSpec, unit: str) -> float:
    """The figure of a run, in the unit of the measurement."""
    if unit == COMPUTING:
        return share_computing(run)
    seconds = step_seconds(run)
    if unit == "ms":
        return 1e3 * seconds
    if unit == "images/s":
        samples: int = run.config.cluster.workers * run.config.task.batch
        return samples / seconds
    if unit == "efficiency":
        computing: float = run.config.cluster.compute.mean
        return computing / seconds
    return seconds


def compare_published(name: str) -> pd.DataFrame:
    """The reported figures beside the simulated ones; a row per figure.

    Columns: the labels, `reported`, and the ways to send that the config asks for: gradients
    `whole`, `in buckets` during the backward pass, and `in slices` by a ring whose nodes pass on a
    slice while the next one arrives.

    Raises:
        KeyError: unknown name of measurements.

    Example:
        >>> compare_published("ddp_v100").columns.tolist()
        ['network', 'reported', 'whole', 'in buckets']
    """
    source = published()[name]
    rows: dict[Labels, dict[str, Any]] = {}
    for run in runs(_config(name)):
        labels = {key.rpartition(".")[2]: str(label) for key, label in run.labels.items()}
        transfer = labels.pop("transfer", "whole")
        values = tuple(labels.values())
        row = rows.setdefault(values, {**labels, REPORTED: source.figures[values]})
        row[transfer] = simulated_figure(run, source.unit)
    return pd.DataFrame(list(rows.values()))


def compare_gains() -> pd.DataFrame:
    """The reported and the simulated gain of P3; a row per network and a place of its servers.

    Columns: `reported`, the `greatest gain` of P3 over whole layers in order, and the `bandwidth`
    (bytes/s) of the config at which it is reached.
    """
    keys = ["network", "servers"]
    rows = []
    for run in runs(_config("p3")):
        network, servers, transfer, bandwidth = run.labels.values()
        rows.append((network, servers, bandwidth, transfer, step_seconds(run)))
    table = pd.DataFrame(rows, columns=[*keys, "bandwidth", "transfer", "seconds"])
    seconds = table.pivot(index=[*keys, "bandwidth"], columns="transfer", values="seconds")
    _, gain, reported, _ = published()["p3"]
    gains = (seconds["layers in order"] / seconds["P3"]).rename(gain).reset_index()
    best = gains.groupby(keys)[gain].idxmax()
    greatest = gains.loc[best].reset_index(drop=True)
    # the keys of figures are tuples, also of a single label
    greatest[REPORTED] = [reported[network,] for network in greatest["network"]]
    return greatest


def _config(name: str) -> Config:
    return load(str(resources.files("laggard") / "examples" / "published" / f"{name}.yaml"))


def step_seconds(run: RunSpec) -> float:
    """Virtual seconds from one start of all workers to the next, in a run of equal updates."""
    updates = simulate(**run.arguments()).updates
    starts = np.unique(updates["started"])
    return float(starts[-1] - starts[-2])


def share_computing(run: RunSpec) -> float:
    """The share of a round of local steps in which worker 0 computes, in a run of equal rounds."""
    updates = simulate(**run.arguments()).updates
    steps: int = run.config.algorithm.build(run.config.cluster.workers).local_steps
    starts = np.sort(updates["started"][updates["worker"] == 0])
    computing: float = steps * run.config.cluster.compute.mean
    return computing / float(starts[-1] - starts[-1 - steps])
