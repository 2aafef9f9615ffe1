"""Seconds of an update of pipelines with a flush, on a network that takes no time."""

from collections.abc import Sequence

import numpy as np

from laggard import simulator
from laggard.experiments.theory import Forms
from laggard.experiments.theory.order_statistics import factors_of, law_of
from laggard.simulator import Cluster
from laggard.simulator.algorithms.staging import Pipeline, stage_layers
from laggard.simulator.learning.task import Layer
from laggard.simulator.timing.distributions import Constant

FLUSHED_SECONDS: Forms[float] = Forms()
"""With constant times, on a free network; of an algorithm, a cluster and the model's layers."""


def mini_batch_seconds(
    algorithm: Pipeline, cluster: Cluster, layers: Sequence[Layer], micro_batches: int, schedule: str
) -> np.ndarray | None:
    """The seconds `(replicas,)` of a mini-batch of M micro-batches, from its first forward pass to its last backward.

        T = sum_s t_s + (M - 1) max_s t_s,    t_s = f_s + b_s of stage s, for one micro-batch

    as in a flow shop of equal jobs, once for the forward and once for the backward passes. With the schedule of 1F1B it
    holds where M = 1 or all stages are equal. None where it does not, where times vary, or where nothing can be cut.
    """
    if not layers or not isinstance(law_of(cluster), Constant):
        return None
    stages = stage_layers(layers, algorithm.depth(cluster.workers), algorithm.cut)
    works = cluster.compute.mean * factors_of(cluster).reshape(-1, len(stages)) * [stage.work for stage in stages]
    slowest = works.max(1)
    if schedule == "1f1b" and micro_batches > 1 and not np.allclose(works.min(1), slowest, rtol=1e-12):
        return None
    seconds: np.ndarray = works.sum(1) + (micro_batches - 1) * slowest
    return seconds


@FLUSHED_SECONDS.of(simulator.Naive, simulator.GPipe, simulator.OneForwardOneBackward)
def _slowest_replica(algorithm: Pipeline, cluster: Cluster, layers: Sequence[Layer]) -> float | None:
    """max_r T_r: on every stage, replicas wait for the slowest."""
    schedule = "1f1b" if isinstance(algorithm, simulator.OneForwardOneBackward) else "gpipe"
    seconds = mini_batch_seconds(algorithm, cluster, layers, getattr(algorithm, "micro_batches", 1), schedule)
    return None if seconds is None else float(seconds.max())


@FLUSHED_SECONDS.of(simulator.AsyncPipelines)
def _rates_of_replicas(algorithm: simulator.AsyncPipelines, cluster: Cluster, layers: Sequence[Layer]) -> float | None:
    """1 / sum_r (1 / T_r): each replica has a rate of its own."""
    seconds = mini_batch_seconds(algorithm, cluster, layers, algorithm.micro_batches, algorithm.schedule)
    return None if seconds is None else float(1 / (1 / seconds).sum())
