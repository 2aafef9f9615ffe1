"""How long an update takes when only workers take time: order statistics and rates on a free network."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import stats

from simulator import Cluster
from simulator.laws import (
    Constant,
    Exponential,
    Gamma,
    Law,
    LogNormal,
    Pareto,
    Scaled,
    ShiftedExponential,
    Trace,
    TwoLevelGamma,
    TwoPoint,
    Uniform,
)
from simulator.slowdowns import Factor

Closed = Callable[[int], float]
CONTINUOUS: dict[type, Callable[[Any], Any]] = {
    Uniform: lambda law: stats.uniform(law.low, law.high - law.low),
    Exponential: lambda law: stats.expon(scale=law.mean),
    ShiftedExponential: lambda law: stats.expon(law.shift, law.tail),
    Gamma: lambda law: stats.gamma(law.cv**-2, scale=law.mean * law.cv**2),
    LogNormal: lambda law: stats.lognorm(
        np.sqrt(np.log1p(law.cv**2)), scale=law.mean / np.sqrt(1 + law.cv**2)
    ),
    Pareto: lambda law: stats.pareto(law.tail, scale=law.least),
}  # fmt: skip
"""Laws with a density, as scipy's."""
DISCRETE: dict[type, Callable[[Any], Sequence[tuple[float, float]]]] = {
    Constant: lambda law: [(law.mean, 1.0)],
    TwoPoint: lambda law: [(law.usual, 1 - law.probability), (law.usual * law.factor, law.probability)],
}
"""Laws of few values, each with its probability."""


def free_form(algorithm: Any, cluster: Cluster) -> Closed | None:
    """Seconds an update of P workers takes on a free network, X_i the seconds of worker i, mu_i = 1 / E[X_i].

    sync_ps, K of P              E[X_(K:P)], the K-th to finish: all of them, or `cancel`
    all_reduce                   E[X_(P:P)]
    async_ps, soft_sync          K / sum_i mu_i; gradients come at their workers' rates, K of them an update
    adpsgd                       P / sum_i mu_i, for a step of every node
    k_async, k_batch_sync        E[X_(K:P)] and K / sum_i mu_i, if times are exponential: they forget
    dpsgd, sgp                   max_i X_i, if times are constant: whoever waits for a neighbour waits for everybody
    local_sgd, diloco            H max_i X_i, if times are constant

    None where none of them holds, and where slowdowns come and go.

    Source: Dutta et al. (2018), arXiv 1803.01113 (K-sync, K-async); Chen et al. (2016), arXiv 1604.00981 (backups).
    """
    if not all(isinstance(one, Factor) for one in cluster.slowdowns):
        return None
    return FORMS.get(algorithm.name, _unknown)(algorithm, cluster)


def order_statistic(law: Law, factors: Sequence[float], K: int) -> float | None:
    """E[X_(K:P)], the mean of the K-th smallest of P independent durations (s), X_i = factors[i] X with X of the law.

        E[X_(K:P)] = integral over t > 0 of Pr(fewer than K of the X_i <= t)

    None for laws whose distribution is not known here. Correct to about 1e-4 of itself.
    """
    scale = law.factor if isinstance(law, Scaled) else 1.0
    law, factors = law.law if isinstance(law, Scaled) else law, scale * np.asarray(factors, float)
    if type(law) in DISCRETE:
        values, weights = np.transpose(DISCRETE[type(law)](law))
        t = np.unique(np.outer(factors, values))
        done = [((factor * values <= t[:, None]) * weights).sum(1) for factor in factors]
        fewer = np.concatenate([[1.0], _fewer(done, K)])[:-1]  # steps: what holds at one moment holds up to the next
        return float(fewer @ np.diff(t, prepend=0.0))
    if type(law) not in CONTINUOUS:
        return None
    of = CONTINUOUS[type(law)](law)
    quantiles = np.concatenate([of.ppf(np.linspace(0, 0.99, 1000)), of.isf(np.geomspace(1e-16, 0.01, 1500))])
    t = np.unique(np.append(np.outer(np.unique(factors), quantiles), 0.0))
    done = {factor: of.cdf(t / factor) for factor in np.unique(factors)}
    return float(np.trapezoid(_fewer([done[factor] for factor in factors], K), t))


def _fewer(done: Sequence[np.ndarray], K: int) -> np.ndarray:
    """Pr(fewer than K are done), of independent probabilities to be done `(moments,)`, one a worker."""
    counts = np.zeros((K, len(done[0])))
    counts[0] = 1.0
    for p in done:
        counts[1:] = counts[1:] * (1 - p) + counts[:-1] * p
        counts[0] = counts[0] * (1 - p)
    return np.asarray(counts.sum(0))


def _unknown(algorithm: Any, cluster: Cluster) -> Closed | None:
    return None


def _law(cluster: Cluster) -> Law:
    return cluster.compute.law if isinstance(cluster.compute, Scaled) else cluster.compute


def _factors(cluster: Cluster, P: int) -> np.ndarray:
    """How many times as long each of P workers takes."""
    return np.array([np.prod([one.factor for one in cluster.slowdowns_of(rank)]) for rank in range(P)])


def _order(cluster: Cluster, K: int | None) -> Closed | None:
    known = order_statistic(cluster.compute, [1.0], 1) is not None
    return (lambda P: order_statistic(cluster.compute, _factors(cluster, P), K or P) or np.nan) if known else None


def _rate(cluster: Cluster, gradients: int | None) -> Closed | None:
    """Updates of so many gradients, or of P, that come as their workers make them."""
    if isinstance(_law(cluster), TwoLevelGamma | Trace):  # a machine's mean is drawn; a trace has an order of its own
        return None
    return lambda P: float((gradients or P) * cluster.compute.mean / (1 / _factors(cluster, P)).sum())


def _slowest(cluster: Cluster, steps: int = 1) -> Closed | None:
    mean = steps * cluster.compute.mean
    return (lambda P: float(mean * _factors(cluster, P).max())) if isinstance(_law(cluster), Constant) else None


def _memoryless(cluster: Cluster, form: Closed | None) -> Closed | None:
    return form if isinstance(_law(cluster), Exponential) else None


def _sync_ps(algorithm: Any, cluster: Cluster) -> Closed | None:
    K = algorithm.wait_for
    whole = K is None or algorithm.cancel or cluster.workers == K
    return _order(cluster, K) if whole and algorithm.local_steps == 1 else None


def _async_ps(algorithm: Any, cluster: Cluster) -> Closed | None:
    plain = algorithm.n_push == algorithm.n_fetch == 1 and not algorithm.sync_every and not algorithm.warm_start
    return _rate(cluster, algorithm.accumulate) if plain else None


def _k_async(algorithm: Any, cluster: Cluster) -> Closed | None:
    K = algorithm.wait_for
    return _rate(cluster, 1) if K == 1 else _memoryless(cluster, _order(cluster, K))


FORMS: dict[str, Callable[[Any, Cluster], Closed | None]] = {
    "sync_ps": _sync_ps,
    "all_reduce": lambda algorithm, cluster: _order(cluster, None),
    "async_ps": _async_ps,
    "soft_sync": lambda algorithm, cluster: _rate(cluster, algorithm.gradients),
    "k_async": _k_async,
    "k_batch_sync": lambda algorithm, cluster: _memoryless(cluster, _rate(cluster, algorithm.gradients)),
    "adpsgd": lambda algorithm, cluster: _rate(cluster, None),
    "dpsgd": lambda algorithm, cluster: _slowest(cluster),
    "sgp": lambda algorithm, cluster: _slowest(cluster),
    "local_sgd": lambda algorithm, cluster: _slowest(cluster, algorithm.local_steps),
    "diloco": lambda algorithm, cluster: _slowest(cluster, algorithm.local_steps),
}
"""What theory says about each method on a free network, of its settings and its cluster."""
