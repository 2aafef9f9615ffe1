"""Published measurements of clusters, beside the simulation of the same clusters."""

from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from itertools import chain, product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from laggard.experiments.config.config import Config
from laggard.experiments.config.grid import RunSpec, runs
from laggard.experiments.config.load import load
from laggard.simulator import simulate

Labels = tuple[str, ...]
REPORTED = "reported"


class Published(NamedTuple):
    """Measurements of a cluster.

    Attributes:
        source: of the measurements.
        unit: of the figures.
        figures: by the labels of a run of the config as text, in the order of its axes, without the
            axis `transfer`.
        number: computes the figure of a run from its seconds an update.
    """

    source: str
    unit: str
    figures: Mapping[Labels, float]
    number: Callable[[RunSpec, float], float]


def _by_labels(
    firsts: list[str], seconds: list[str], figures: Sequence[Sequence[float]]
) -> dict[Labels, float]:
    labels = product(firsts, seconds)
    return dict(zip(labels, chain(*figures), strict=True))


def _nccl() -> dict[Labels, float]:
    machines = ["4", "8", "16"]
    networks = ["5 Gb/s, 1 ms", "2 Gb/s, 5 ms", "1 Gb/s, 10 ms"]
    large = [[655, 1650, 3298], [763, 1921, 3841], [817, 2057, 4114]]
    small = [[329, 835, 1669], [383, 970, 1940], [410, 1038, 2076]]
    figures = {}
    for size, table in (("256 MiB", large), ("128 MiB", small)):
        for labels, figure in _by_labels(machines, networks, table).items():
            figures[size, *labels] = figure
    return figures


PUBLISHED: Mapping[str, Published] = {
    "nccl_all_reduce": Published(
        "NCCL all-reduce under tc, AWS: tc_cluster_setting, results/allreduce.md",
        "ms",
        _nccl(),
        lambda run, seconds: 1e3 * seconds,
    ),
    "tensorflow_p2": Published(
        "TensorFlow benchmarks (2017), p2.8xlarge",
        "images/s",
        _by_labels(
            ["ResNet-50", "Inception-v3", "ResNet-152"],
            ["2 machines", "4 machines", "8 machines"],
            [[751, 1388, 2744], [459, 902, 1783], [291, 565, 981]],
        ),
        lambda run, seconds: run.config.cluster.workers * run.config.task.batch / seconds,
    ),
    "ddp_v100": Published(
        "PyTorch, benchmarks/distributed/ddp, 2 machines of 8 V100",
        "s a step",
        {
            ("ResNet-50",): 0.104,
            ("ResNet-101",): 0.179,
            ("ResNeXt-50",): 0.157,
            ("ResNeXt-101",): 0.450,
        },
        lambda run, seconds: seconds,
    ),
    "horovod_p100": Published(
        "Horovod, docs/benchmarks, 128 machines of 4 P100",
        "efficiency",
        {("Inception-v3",): 0.90, ("VGG-16",): 0.68},
        lambda run, seconds: run.config.cluster.compute.mean / seconds,
    ),
}
"""By the name of the config in `examples/published` that describes the cluster."""
P3_GAINS = Published(
    "Jayarajan et al. (2019), abstract",
    "greatest gain",
    {("VGG-19",): 1.66, ("ResNet-50",): 1.25},
    lambda run, seconds: seconds,
)
"""The largest ratio of the throughputs of P3 and of whole layers in order, over bandwidths."""


def compare_published(name: str) -> pd.DataFrame:
    """The reported figures beside the simulated ones; a row a figure.

    Columns: the labels, `reported`, and the ways to send that the config asks for: gradients
    `whole`, `in buckets` during the backward pass, and `in slices` by a ring whose nodes pass on a
    slice while the next one arrives.

    Raises:
        KeyError: unknown name of measurements.

    Example:
        >>> compare_published("ddp_v100").columns.tolist()
        ['network', 'reported', 'whole', 'in buckets']
    """
    published = PUBLISHED[name]
    rows: dict[Labels, dict[str, Any]] = {}
    for run in runs(_config(name)):
        labels = {key.rpartition(".")[2]: str(label) for key, label in run.labels.items()}
        transfer = labels.pop("transfer", "whole")
        values = tuple(labels.values())
        row = rows.setdefault(values, {**labels, REPORTED: published.figures[values]})
        row[transfer] = published.number(run, step_seconds(run))
    return pd.DataFrame(list(rows.values()))


def compare_gains() -> pd.DataFrame:
    """The reported and the simulated gain of P3; a row a network and a place of its servers.

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
    gain = P3_GAINS.unit
    gains = (seconds["layers in order"] / seconds["P3"]).rename(gain).reset_index()
    best = gains.groupby(keys)[gain].idxmax()
    greatest = gains.loc[best].reset_index(drop=True)
    greatest[REPORTED] = [P3_GAINS.figures[network,] for network in greatest["network"]]
    return greatest


def _config(name: str) -> Config:
    return load(str(resources.files("laggard") / "examples" / "published" / f"{name}.yaml"))


def step_seconds(run: RunSpec) -> float:
    """Virtual seconds from one start of all workers to the next, in a run of equal updates."""
    updates = simulate(**run.arguments()).updates
    starts = np.unique(updates["started"])
    return float(starts[-1] - starts[-2])
