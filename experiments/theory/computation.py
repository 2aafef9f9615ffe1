"""Seconds of computation on a free network: order statistics, and pipelines with a flush."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from laggard import simulator
from laggard.experiments.theory import Forms
from laggard.simulator import Cluster
from laggard.simulator.algorithms.staging import Pipeline, stage_layers
from laggard.simulator.learning.task import Layer
from laggard.simulator.timing.distributions import (
    Constant,
    Distribution,
    Exponential,
    Gamma,
    LogNormal,
    Pareto,
    Scaled,
    ShiftedExponential,
    TwoPoint,
    Uniform,
)
from laggard.simulator.timing.slowdowns import Factor

DISCRETE: dict[type, Callable[[Any], Sequence[tuple[float, float]]]] = {
    Constant: lambda law: [(law.mean, 1.0)],
    TwoPoint: lambda law: [
        (law.usual, 1 - law.probability),
        (law.usual * law.factor, law.probability),
    ],
}
"""Laws of few values, each with its probability."""
FLUSHED_SECONDS: Forms[float] = Forms()
"""Seconds of an update with constant times on a free network, from an algorithm, a cluster and the
model's layers.
"""


def order_statistic(
    law: Distribution, factors: Sequence[float] | np.ndarray, K: int
) -> float | None:
    """E[X_(K:P)], the mean of the K-th smallest of P independent durations X_i = factors[i] X.

        E[X_(K:P)] = integral over t > 0 of Pr(fewer than K of the X_i <= t)

    The relative error is about 1e-4. None for distributions that are not known here.

    Args:
        law: the distribution of X (s).
    """
    scales = np.asarray(factors, float)
    if isinstance(law, Scaled):
        scales = law.factor * scales
        law = law.law
    if type(law) in DISCRETE:
        return _discrete_order_statistic(DISCRETE[type(law)](law), scales, K)
    distribution = _continuous(law)
    if distribution is None:
        return None
    body = distribution.ppf(np.linspace(0, 0.99, 1000))
    # the last of many workers lies far out, where evenly spaced quantiles are too sparse
    tail = distribution.isf(np.geomspace(1e-16, 0.01, 1500))
    quantiles = np.concatenate([body, tail])
    distinct = np.unique(scales)
    # with 0, since the integral begins there also if no duration is that short
    t = np.unique(np.append(np.outer(distinct, quantiles), 0.0))
    shares = {scale: distribution.cdf(t / scale) for scale in distinct}
    fewer = _fewer([shares[scale] for scale in scales], K)
    return float(np.trapezoid(fewer, t))


def _discrete_order_statistic(
    points: Sequence[tuple[float, float]], scales: np.ndarray, K: int
) -> float:
    values, weights = np.transpose(points)
    t = np.unique(np.outer(scales, values))
    done = []
    for scale in scales:
        reached = scale * values <= t[:, None]
        done.append((reached * weights).sum(1))
    # a step function: the probability at one moment holds up to the next
    fewer = np.concatenate([[1.0], _fewer(done, K)])[:-1]
    return float(fewer @ np.diff(t, prepend=0.0))


def _continuous(law: Distribution) -> Any:
    """The scipy distribution of a law with a density; None for other laws."""
    from scipy import stats

    if type(law) is Uniform:
        return stats.uniform(law.low, law.high - law.low)
    if type(law) is Exponential:
        return stats.expon(scale=law.mean)
    if type(law) is ShiftedExponential:
        return stats.expon(law.shift, law.scale)
    if type(law) is Gamma:
        return stats.gamma(law.cv**-2, scale=law.mean * law.cv**2)
    if type(law) is LogNormal:
        sigma = np.sqrt(np.log1p(law.cv**2))
        return stats.lognorm(sigma, scale=law.mean / np.sqrt(1 + law.cv**2))
    if type(law) is Pareto:
        return stats.pareto(law.alpha, scale=law.scale)
    return None


def _fewer(done: Sequence[np.ndarray], K: int) -> np.ndarray:
    """Pr(fewer than K workers are done) `(moments,)`.

    Args:
        done: for each worker the probability that it is done `(moments,)`; workers are independent.
    """
    counts = np.zeros((K, len(done[0])))
    counts[0] = 1.0
    for p in done:
        counts[1:] = counts[1:] * (1 - p) + counts[:-1] * p
        counts[0] = counts[0] * (1 - p)
    return np.asarray(counts.sum(0))


def law_of(cluster: Cluster) -> Distribution:
    """The distribution of compute times; of a `Scaled` one, the distribution inside."""
    if isinstance(cluster.compute, Scaled):
        return cluster.compute.law
    return cluster.compute


def is_steady(cluster: Cluster) -> bool:
    """Whether the slowdowns of the workers never change, and no node is ever down."""
    if cluster.has_crashes:
        return False
    return all(isinstance(slowdown, Factor) for slowdown in cluster.slowdowns)


def factors_of(cluster: Cluster) -> np.ndarray:
    """The product of each worker's constant slowdown factors `(workers,)`."""
    factors = np.ones(cluster.workers)
    for slowdown in cluster.slowdowns:
        if isinstance(slowdown, Factor):
            for rank in range(cluster.workers):
                if slowdown.hits(rank):
                    factors[rank] *= slowdown.factor
    return factors


def mini_batch_seconds(
    algorithm: Pipeline,
    cluster: Cluster,
    layers: Sequence[Layer],
    micro_batches: int,
    schedule: str,
) -> np.ndarray | None:
    """Seconds of a mini-batch of M micro-batches, from its first forward to its last backward pass.

        T = sum_s t_s + (M - 1) max_s t_s,    t_s = f_s + b_s of stage s, for one micro-batch

    as in a flow shop of equal jobs, once for the forward and once for the backward passes. With the
    schedule of 1F1B it holds where M = 1 or all stages are equal.

    Returns:
        Seconds `(replicas,)`; None where the equation does not hold, where times vary, or for a
        model without layers.
    """
    if not layers or not isinstance(law_of(cluster), Constant):
        return None
    stages = stage_layers(layers, algorithm.depth(cluster.workers), algorithm.cut)
    shares = [stage.work for stage in stages]
    factors = factors_of(cluster).reshape(-1, len(stages))
    works = cluster.compute.mean * factors * shares
    slowest = works.max(1)
    if schedule == "1f1b" and micro_batches > 1:
        equal = np.allclose(works.min(1), slowest, rtol=1e-12)
        if not equal:
            return None
    seconds: np.ndarray = works.sum(1) + (micro_batches - 1) * slowest
    return seconds


@FLUSHED_SECONDS.of(simulator.Naive, simulator.GPipe, simulator.OneForwardOneBackward)
def _slowest_replica(
    algorithm: Pipeline, cluster: Cluster, layers: Sequence[Layer]
) -> float | None:
    """max_r T_r: on every stage, replicas wait for the slowest."""
    schedule = "gpipe"
    if isinstance(algorithm, simulator.OneForwardOneBackward):
        schedule = "1f1b"
    micro_batches = getattr(algorithm, "micro_batches", 1)
    seconds = mini_batch_seconds(algorithm, cluster, layers, micro_batches, schedule)
    if seconds is None:
        return None
    return float(seconds.max())


@FLUSHED_SECONDS.of(simulator.AsyncPipelines)
def _rates_of_replicas(
    algorithm: simulator.AsyncPipelines, cluster: Cluster, layers: Sequence[Layer]
) -> float | None:
    """1 / sum_r (1 / T_r): the replicas' rates add up."""
    seconds = mini_batch_seconds(
        algorithm, cluster, layers, algorithm.micro_batches, algorithm.schedule
    )
    if seconds is None:
        return None
    return float(1 / (1 / seconds).sum())
