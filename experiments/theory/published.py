"""What others measured on clusters, beside what the same cluster takes here."""

from collections.abc import Callable, Mapping
from importlib import resources
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
        source: who measured, and where that is published.
        unit: of the figures.
        figures: by the labels of a run of the config, as text in the order of its axes, without how
            it is sent.
        number: a figure, of a run and its seconds an update.
    """

    source: str
    unit: str
    figures: Mapping[Labels, float]
    number: Callable[[RunSpec, float], float]


def _by_labels(
    firsts: list[str], seconds: list[str], figures: list[list[float]]
) -> dict[Labels, float]:
    return {
        (a, b): figure
        for a, row in zip(firsts, figures, strict=True)
        for b, figure in zip(seconds, row, strict=True)
    }


def _nccl() -> dict[Labels, float]:
    networks = ["5 Gb/s, 1 ms", "2 Gb/s, 5 ms", "1 Gb/s, 10 ms"]
    large = _by_labels(
        ["4", "8", "16"], networks, [[655, 1650, 3298], [763, 1921, 3841], [817, 2057, 4114]]
    )
    small = _by_labels(
        ["4", "8", "16"], networks, [[329, 835, 1669], [383, 970, 1940], [410, 1038, 2076]]
    )
    return {("256 MiB", *at): ms for at, ms in large.items()} | {
        ("128 MiB", *at): ms for at, ms in small.items()
    }


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
"""By the config in `examples/published` that describes the cluster."""
P3_GAINS = Published(
    "Jayarajan et al. (2019), abstract",
    "greatest gain",
    {("VGG-19",): 1.66, ("ResNet-50",): 1.25},
    lambda run, seconds: seconds,
)
"""The throughput of P3 over that of whole layers in order, at the bandwidth at which it is
greatest.
"""


def compare_published(name: str) -> pd.DataFrame:
    """A row a figure: its labels, `reported`, and what the simulation has, as far as the config
    asks for it: gradients sent `whole`, `in buckets` while the backward pass goes on, and `in
    slices` by a ring whose nodes pass on a slice while the next one comes.

    Raises:
        KeyError: there are no such measurements.

    Example:
        >>> compare_published("ddp_v100").columns.tolist()
        ['network', 'reported', 'whole', 'in buckets']
    """
    published = PUBLISHED[name]
    rows: dict[Labels, dict[str, Any]] = {}
    for run in runs(_config(name)):
        labels = {key.rpartition(".")[2]: str(label) for key, label in run.labels.items()}
        sent = labels.pop("transfer", "whole")
        at = tuple(labels.values())
        row = rows.setdefault(at, {**labels, REPORTED: published.figures[at]})
        row[sent] = published.number(run, step_seconds(run))
    return pd.DataFrame(list(rows.values()))


def compare_gains() -> pd.DataFrame:
    """A row a network and a place of its servers: `reported`, the `greatest gain` of P3 over whole
    layers in order in the simulation, and the `bandwidth` (bytes/s) at which it has that, of those
    in the config.
    """
    rows = []
    for run in runs(_config("p3")):
        network, servers, sent, bandwidth = run.labels.values()
        rows.append(
            {
                "network": network,
                "servers": servers,
                "bandwidth": bandwidth,
                "sent": sent,
                "took": step_seconds(run),
            }
        )
    took = pd.DataFrame(rows).pivot(
        index=["network", "servers", "bandwidth"], columns="sent", values="took"
    )
    gains = (took["layers in order"] / took["P3"]).rename(P3_GAINS.unit).reset_index()
    greatest = gains.loc[gains.groupby(["network", "servers"])[P3_GAINS.unit].idxmax()].reset_index(
        drop=True
    )
    return greatest.assign(
        **{REPORTED: [P3_GAINS.figures[network,] for network in greatest["network"]]}
    )


def _config(name: str) -> Config:
    return load(str(resources.files("laggard") / "examples" / "published" / f"{name}.yaml"))


def step_seconds(run: RunSpec) -> float:
    """Virtual seconds from one start of all workers to the next, in a run whose updates are
    alike.
    """
    return float(np.diff(np.unique(simulate(**run.arguments()).updates["started"]))[-1])
