"""Seconds of computation: the K-th smallest of independent durations, and pipelines with a flush,
on a free network.
"""

import math
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
"""With constant times, on a free network; of an algorithm, a cluster and the model's layers."""


def order_statistic(
    law: Distribution, factors: Sequence[float] | np.ndarray, K: int
) -> float | None:
    """E[X_(K:P)], the mean of the K-th smallest of P independent durations (s), X_i = factors[i] X
    with X of the law.

        E[X_(K:P)] = integral over t > 0 of Pr(fewer than K of the X_i <= t)

    None for laws whose distribution is not known here. Correct to about 1e-4 of itself.
    """
    scale = law.factor if isinstance(law, Scaled) else 1.0
    law, times = law.law if isinstance(law, Scaled) else law, scale * np.asarray(factors, float)
    if type(law) in DISCRETE:
        values, weights = np.transpose(DISCRETE[type(law)](law))
        t = np.unique(np.outer(times, values))
        done = [((factor * values <= t[:, None]) * weights).sum(1) for factor in times]
        # steps: what holds at one moment holds up to the next
        fewer = np.concatenate([[1.0], _fewer(done, K)])[:-1]
        return float(fewer @ np.diff(t, prepend=0.0))
    if (of := _continuous(law)) is None:
        return None
    quantiles = np.concatenate(
        [of.ppf(np.linspace(0, 0.99, 1000)), of.isf(np.geomspace(1e-16, 0.01, 1500))]
    )
    t = np.unique(np.append(np.outer(np.unique(times), quantiles), 0.0))
    shares = {factor: of.cdf(t / factor) for factor in np.unique(times)}
    return float(np.trapezoid(_fewer([shares[factor] for factor in times], K), t))


def _continuous(law: Distribution) -> Any:
    """A law with a density, as scipy's; None for others."""
    from scipy import stats

    made: dict[type, Callable[[Any], Any]] = {
        Uniform: lambda law: stats.uniform(law.low, law.high - law.low),
        Exponential: lambda law: stats.expon(scale=law.mean),
        ShiftedExponential: lambda law: stats.expon(law.shift, law.scale),
        Gamma: lambda law: stats.gamma(law.cv**-2, scale=law.mean * law.cv**2),
        LogNormal: lambda law: stats.lognorm(
            np.sqrt(np.log1p(law.cv**2)), scale=law.mean / np.sqrt(1 + law.cv**2)
        ),
        Pareto: lambda law: stats.pareto(law.alpha, scale=law.scale),
    }  # fmt: skip
    return made[type(law)](law) if type(law) in made else None


def _fewer(done: Sequence[np.ndarray], K: int) -> np.ndarray:
    """Pr(fewer than K are done), of independent probabilities to be done `(moments,)`, one a
    worker.
    """
    counts = np.zeros((K, len(done[0])))
    counts[0] = 1.0
    for p in done:
        counts[1:] = counts[1:] * (1 - p) + counts[:-1] * p
        counts[0] = counts[0] * (1 - p)
    return np.asarray(counts.sum(0))


def law_of(cluster: Cluster) -> Distribution:
    """The law of compute times, of which `Scaled` is a multiple."""
    return cluster.compute.law if isinstance(cluster.compute, Scaled) else cluster.compute


def is_steady(cluster: Cluster) -> bool:
    """Whether the slowdowns of the workers never change, and no node crashes."""
    return not cluster.server_crashes and all(
        isinstance(slowdown, Factor) for slowdown in cluster.slowdowns
    )


def factors_of(cluster: Cluster) -> np.ndarray:
    """How many times as long each worker takes by slowdowns that never change `(workers,)`."""
    always = [slowdown for slowdown in cluster.slowdowns if isinstance(slowdown, Factor)]
    return np.array(
        [
            math.prod(one.factor for one in always if one.hits(rank))
            for rank in range(cluster.workers)
        ]
    )


def mini_batch_seconds(
    algorithm: Pipeline,
    cluster: Cluster,
    layers: Sequence[Layer],
    micro_batches: int,
    schedule: str,
) -> np.ndarray | None:
    """The seconds `(replicas,)` of a mini-batch of M micro-batches, from its first forward pass to
    its last backward.

        T = sum_s t_s + (M - 1) max_s t_s,    t_s = f_s + b_s of stage s, for one micro-batch

    as in a flow shop of equal jobs, once for the forward and once for the backward passes. With the
    schedule of 1F1B it holds where M = 1 or all stages are equal. None where it does not, where
    times vary, or where nothing can be cut.
    """
    if not layers or not isinstance(law_of(cluster), Constant):
        return None
    stages = stage_layers(layers, algorithm.depth(cluster.workers), algorithm.cut)
    works = (
        cluster.compute.mean
        * factors_of(cluster).reshape(-1, len(stages))
        * [stage.work for stage in stages]
    )
    slowest = works.max(1)
    if (
        schedule == "1f1b"
        and micro_batches > 1
        and not np.allclose(works.min(1), slowest, rtol=1e-12)
    ):
        return None
    seconds: np.ndarray = works.sum(1) + (micro_batches - 1) * slowest
    return seconds


@FLUSHED_SECONDS.of(simulator.Naive, simulator.GPipe, simulator.OneForwardOneBackward)
def _slowest_replica(
    algorithm: Pipeline, cluster: Cluster, layers: Sequence[Layer]
) -> float | None:
    """max_r T_r: on every stage, replicas wait for the slowest."""
    schedule = "1f1b" if isinstance(algorithm, simulator.OneForwardOneBackward) else "gpipe"
    seconds = mini_batch_seconds(
        algorithm, cluster, layers, getattr(algorithm, "micro_batches", 1), schedule
    )
    return None if seconds is None else float(seconds.max())


@FLUSHED_SECONDS.of(simulator.AsyncPipelines)
def _rates_of_replicas(
    algorithm: simulator.AsyncPipelines, cluster: Cluster, layers: Sequence[Layer]
) -> float | None:
    """1 / sum_r (1 / T_r): each replica has a rate of its own."""
    seconds = mini_batch_seconds(
        algorithm, cluster, layers, algorithm.micro_batches, algorithm.schedule
    )
    return None if seconds is None else float(1 / (1 / seconds).sum())
