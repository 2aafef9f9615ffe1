"""What theory says about the staleness of a config's gradients, where it says something."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import geom

from experiments.config import Config
from simulator import Cluster
from simulator.laws import Constant, Exponential, Law, Scaled
from simulator.slowdowns import Factor

CONSTANT, LITTLE = "constant", "Little's law"
Probabilities = Callable[[np.ndarray], np.ndarray]


class Theory(NamedTuple):
    """The staleness of gradients in the steady state: its mean, and Pr(k) of whole numbers k where that is known."""

    law: str
    mean: float
    probabilities: Probabilities | None = None


def staleness_theory(config: Any) -> Theory | None:
    """The law of staleness under a config, if theory gives it; None where it does not, or where workers crash.

    P workers, each of which always holds one gradient; an update of K gradients; staleness in updates.

    - No delay: synchronous methods, all-reduce, gossip, pipelines with a flush apply gradients of present weights.
    - `delayed`: D for every gradient. A drawn delay has mean D: as many gradients leave the queue as enter.
    - Pipelines without a flush: of n stages the s-th sees n - s, each a share 1/n of the pieces; 2BW sees 1.
    - Asynchronous server, any law of times and any network: the P - 1 others' updates fall on average between a read
      and the push that follows (Little's law); (P - 1) / K where K pushes make an update (`soft_sync`, `accumulate`);
      P / K - 1 where contributors wait for it (`k_async`).
    - ..., equal constant times on a free network: everybody pushes once a round, so that it is P - 1, always.
    - ..., exponential times with rates mu_i on a free network: they forget, so that the next push is worker i's with
      probability p_i = mu_i / sum_j mu_j whatever has gone before. Between a read of i and its push there are N_i
      others, Pr(N_i = k) = p_i (1 - p_i)^k, and a share p_i of all pushes is i's:

          Pr(k) = sum_i p_i^2 (1 - p_i)^k;    equal workers: Pr(k) = (1/P) (1 - 1/P)^k, geometric

    - ..., exponential, equal, K pushes an update: after its push as the j-th of a group (j = K counts as 0 of the
      next) a worker's next push closes floor((j + N) / K) groups later; j is uniform on 0 ... K - 1 and independent:

          Pr(k) = 1/K sum_(j < K) Pr(floor((j + N) / K) = k),    N geometric as above

    - `k_async`, exponential, equal: at every update all P have as long to go as any other, so that it takes each of
      them with probability K / P, whatever has gone before: Pr(k) = (K/P) (1 - K/P)^k, geometric.

    Source: Little's law; Dutta et al. (2018), arXiv 1803.01113; Narayanan et al. (2019), arXiv 1806.03377 (stages).
    """
    if not isinstance(config, Config):
        return None
    cluster = config.cluster.build()
    return None if cluster.crashes else METHODS.get(config.algorithm.name, _unknown)(config.algorithm, cluster)


def at(delay: int) -> Theory:
    """Every gradient has the same staleness."""
    return Theory(CONSTANT, delay, lambda k: (k == delay).astype(float))


def _unknown(algorithm: Any, cluster: Cluster) -> Theory | None:
    return None


def _fresh(algorithm: Any, cluster: Cluster) -> Theory:
    return at(0)


def _delayed(algorithm: Any, cluster: Cluster) -> Theory | None:
    if algorithm.ramp_to is not None:
        return None
    if algorithm.law != "constant":
        return Theory("mean", algorithm.delay)
    return at(algorithm.delay)


def _pipedream(algorithm: Any, cluster: Cluster) -> Theory:
    n = cluster.workers
    return Theory("uniform over stages", (n - 1) / 2, lambda k: ((k >= 0) & (k < n)) / n)


def _async_ps(algorithm: Any, cluster: Cluster) -> Theory | None:
    push, fetch, G = algorithm.n_push, algorithm.n_fetch, algorithm.accumulate
    if algorithm.warm_start or algorithm.sync_every or fetch % push or (G > 1 and fetch > 1):
        return None
    if fetch > push:
        return Theory(LITTLE, cluster.workers * (fetch / push + 1) / 2 - 1)
    if fetch > 1:  # a push carries several gradients: it waits for several computations, whose sum is not memoryless
        return Theory(LITTLE, cluster.workers - 1)
    return _pushes(cluster, G)


def _soft_sync(algorithm: Any, cluster: Cluster) -> Theory:
    return _pushes(cluster, algorithm.gradients)


def _k_async(algorithm: Any, cluster: Cluster) -> Theory | None:
    P, K, rates = cluster.workers, algorithm.wait_for, _rates(cluster)
    if K == 1 or K == P:
        return _pushes(cluster, 1) if K == 1 else at(0)
    if rates is not None and isinstance(_law(cluster), Exponential) and len(set(rates)) == 1:
        return Theory("geometric", P / K - 1, geom(K / P, loc=-1).pmf)
    return Theory(LITTLE, P / K - 1)


def _law(cluster: Cluster) -> Law:
    """The law of compute times, of which `Scaled` is a multiple."""
    return cluster.compute.law if isinstance(cluster.compute, Scaled) else cluster.compute


def _pushes(cluster: Cluster, group: int) -> Theory:
    """Pushes that nobody waits for, `group` of them an update."""
    P, K, law, rates = cluster.workers, group, _law(cluster), _rates(cluster)
    if rates is not None and isinstance(law, Constant) and len(set(rates)) == 1 and K == 1:
        return at(P - 1)
    if rates is not None and isinstance(law, Exponential) and K == 1:
        p = rates / rates.sum()
        name = "geometric" if len(set(rates)) == 1 else "mixed geometric"
        return Theory(name, P - 1, lambda k: (p**2 * (1 - p) ** np.maximum(k, 0)[:, None]).sum(1) * (k >= 0))
    if rates is not None and isinstance(law, Exponential) and len(set(rates)) == 1:
        others, ahead = geom(1 / P, loc=-1), np.arange(K)
        between = lambda k: others.cdf((k[:, None] + 1) * K - 1 - ahead) - others.cdf(k[:, None] * K - 1 - ahead)  # noqa: E731
        return Theory("grouped geometric", (P - 1) / K, lambda k: between(k).mean(1))
    return Theory(LITTLE, (P - 1) / K)


def _rates(cluster: Cluster) -> np.ndarray | None:
    """The workers' speeds, relative, where they are constant and network and server take no time; else None."""
    free = cluster.network.unlimited and cluster.network.latency == 0 and cluster.apply_seconds == 0
    if not free or not all(isinstance(one, Factor) for one in cluster.slowdowns):
        return None
    return np.array([
        1 / np.prod([one.factor for one in cluster.slowdowns_of(rank)]) for rank in range(cluster.workers)
    ])  # fmt: skip


FRESH = (
    "sync_ps",
    "k_batch_sync",
    "all_reduce",
    "dpsgd",
    "sgp",
    "adpsgd",
    "local_sgd",
    "diloco",
    "naive",
    "gpipe",
    "1f1b",
)
METHODS: dict[str, Callable[[Any, Cluster], Theory | None]] = {
    **dict.fromkeys(FRESH, _fresh),
    "delayed": _delayed,
    "async_ps": _async_ps,
    "soft_sync": _soft_sync,
    "k_async": _k_async,
    "pipedream": _pipedream,
    "pipedream_2bw": lambda algorithm, cluster: at(1),
}
"""What theory says about each method, of its settings and its cluster."""
