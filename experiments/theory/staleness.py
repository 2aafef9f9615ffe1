"""Closed forms of the staleness of a config's gradients, where they exist."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from laggard import simulator
from laggard.experiments.results.result import Result
from laggard.experiments.theory import Forms, build_algorithm, compare, name_of
from laggard.experiments.theory.computation import factors_of, is_steady, law_of
from laggard.simulator import Cluster
from laggard.simulator.timing.distributions import Constant, Exponential

CONSTANT, LITTLE = "constant", "Little's law"
Probabilities = Callable[[np.ndarray], np.ndarray]


class Theory(NamedTuple):
    """The staleness of gradients in the steady state.

    Attributes:
        law: the name of the known distribution, or of the law of the mean.
        mean: the mean, in updates.
        probabilities: Pr(k) of whole numbers k, if the distribution is known.
    """

    law: str
    mean: float
    probabilities: Probabilities | None = None


STALENESS: Forms[Theory] = Forms()
"""The staleness of an algorithm on a cluster without crashes."""


def expected_staleness(results: Sequence[Result]) -> pd.DataFrame:
    """The mean staleness by theory, and as measured in the second half of a run; a row per run.

    Theory is `staleness_theory`, of the steady state; a run begins with fresh gradients, so that
    its first half is left out. Columns: what was swept (else `method`), `law` (what theory knows),
    `theory` and `measured` (updates), `ratio` of measured to theory (NaN of 0 and 0), `n`
    (gradients).
    """
    rows = []
    for result in results:
        theory = staleness_theory(result.config) or Theory("", math.nan)
        applied = result.updates[result.updates["status"] == "applied"]
        half = result.metrics["time"].max() / 2
        late = applied.loc[applied["time"] > half, "staleness"]
        row = {**name_of(result), "law": theory.law, **compare(theory.mean, late.mean())}
        rows.append({**row, "n": len(late)})
    return pd.DataFrame(rows)


def staleness_theory(config: Any) -> Theory | None:
    """The staleness under a config; None where theory does not know it, or where nodes crash.

    P workers, each of which always holds one gradient; an update of K gradients; staleness in
    updates.

    - No delay: synchronous methods, all-reduce, gossip and pipelines with a flush apply gradients
      of the current weights.
    - `delayed`: D for every gradient. A random delay has mean D: as many gradients leave the queue
      as enter.
    - `delayed_stages`: D_s on stage s; on average the mean of all D_s, since all stages have a row
      per step.
    - Pipelines without a flush: stage s of n has n - s, and a share 1/n of the pieces; 2BW has 1.
    - Asynchronous server, any distribution of times and any network: on average the P - 1 others'
      updates fall between a read and the push that follows (Little's law); (P - 1) / K where K
      pushes make an update (`soft_sync`, `accumulate`); P / K - 1 where contributors wait for it
      (`k_async`).
    - ..., equal constant times on a free network: each worker pushes once a round, so that it is
      always P - 1, unless ties are broken at random.
    - `async_pipelines`: likewise R - 1 on every stage, of R replicas.
    - ..., exponential times with rates mu_i on a free network: they are memoryless, so that the
      next push is worker i's with probability p_i = mu_i / sum_j mu_j. Between a read of i and its
      push there are N_i others, Pr(N_i = k) = p_i (1 - p_i)^k, and worker i makes a share p_i of
      all pushes:

          Pr(k) = sum_i p_i^2 (1 - p_i)^k;    equal workers: Pr(k) = (1/P) (1 - 1/P)^k, geometric

    - ..., exponential, equal, K pushes an update: after its push as the j-th of a group (j = K
      counts as 0 of the next) a worker's next push closes floor((j + N) / K) groups later; j is
      uniform on 0 ... K - 1 and independent:

          Pr(k) = 1/K sum_(j < K) Pr(floor((j + N) / K) = k),    N geometric as above

    - `k_async`, exponential, equal: an update takes each of the P gradients with probability K / P,
      independent of the past: Pr(k) = (K/P) (1 - K/P)^k, geometric.

    Source: Little's law; Dutta et al. (2018), arXiv 1803.01113; Narayanan et al. (2019), arXiv
    1806.03377 (stages).
    """
    built = build_algorithm(config)
    if built is None:
        return None
    algorithm, cluster = built
    if cluster.has_crashes:
        return None
    return STALENESS(algorithm, cluster)


def constant(delay: int) -> Theory:
    """Every gradient has the same staleness."""
    return Theory(CONSTANT, delay, lambda k: (k == delay).astype(float))


@STALENESS.of(
    simulator.SyncPS, simulator.P3, simulator.KSync, simulator.KBatchSync, simulator.AllReduce,
    simulator.DPSGD, simulator.SGP, simulator.OverlapSGP, simulator.ADPSGD, simulator.OverlapADPSGD,
    simulator.LocalSGD, simulator.DiLoCo, simulator.Naive, simulator.GPipe,
    simulator.OneForwardOneBackward, simulator.PriorityAllReduce, simulator.GradientTracking,
    simulator.D2, simulator.QGDSGDm, simulator.RelaySGD, simulator.MATCHA, simulator.CHOCO,
    simulator.PowerSGD, simulator.MindFlayer, simulator.MajorityVote,
)  # fmt: skip
def _fresh(algorithm: Any, cluster: Cluster) -> Theory:
    """The staleness of methods that apply only gradients of the current weights: 0."""
    return constant(0)


@STALENESS.of(simulator.Delayed)
def _delayed(algorithm: simulator.Delayed, cluster: Cluster) -> Theory | None:
    if algorithm.ramp_to is not None:
        return None
    if algorithm.law == "constant":
        return constant(algorithm.delay)
    return Theory("mean", algorithm.delay)


@STALENESS.of(simulator.DelayedStages)
def _delayed_stages(algorithm: simulator.DelayedStages, cluster: Cluster) -> Theory:
    delays = algorithm.delays
    return Theory("mean", sum(delays) / len(delays))


@STALENESS.of(simulator.PipeDream)
def _pipedream(algorithm: simulator.PipeDream, cluster: Cluster) -> Theory:
    n = cluster.workers
    return Theory("uniform over stages", (n - 1) / 2, lambda k: ((k >= 0) & (k < n)) / n)


@STALENESS.of(simulator.PipeDream2BW)
def _pipedream_2bw(algorithm: simulator.PipeDream2BW, cluster: Cluster) -> Theory:
    return constant(1)


@STALENESS.of(simulator.Downpour)
def _downpour(algorithm: simulator.Downpour, cluster: Cluster) -> Theory | None:
    push, fetch = algorithm.n_push, algorithm.n_fetch
    if algorithm.warm_start or algorithm.sync_every or fetch % push:
        return None
    if fetch > push:
        return Theory(LITTLE, cluster.workers * (fetch / push + 1) / 2 - 1)
    if fetch > 1:
        # a push carries several gradients: the sum of their computations is not memoryless
        return Theory(LITTLE, cluster.workers - 1)
    return _pushes(cluster, 1)


@STALENESS.of(simulator.AsyncPS)
def _async_ps(algorithm: simulator.AsyncPS, cluster: Cluster) -> Theory:
    return _pushes(cluster, algorithm.accumulate)


@STALENESS.of(simulator.DANA, simulator.DANASlim)
def _dana(algorithm: simulator.DANA, cluster: Cluster) -> Theory:
    return _pushes(cluster, 1)


@STALENESS.of(simulator.SoftSync)
def _soft_sync(algorithm: simulator.SoftSync, cluster: Cluster) -> Theory:
    return _pushes(cluster, algorithm.gradients)


@STALENESS.of(simulator.KAsync)
def _k_async(algorithm: simulator.KAsync, cluster: Cluster) -> Theory:
    P, K = cluster.workers, algorithm.wait_for
    if K == 1:
        return _pushes(cluster, 1)
    if K == P:
        return constant(0)
    if _has_equal_speeds(cluster) and isinstance(law_of(cluster), Exponential):
        return Theory("geometric", P / K - 1, partial(_geometric, K / P))
    return Theory(LITTLE, P / K - 1)


@STALENESS.of(simulator.AsyncPipelines)
def _async_pipelines(algorithm: simulator.AsyncPipelines, cluster: Cluster) -> Theory:
    R = algorithm.replicas
    if R == 1 or _takes_turns(cluster):
        return constant(R - 1)
    return Theory(LITTLE, R - 1)


def _pushes(cluster: Cluster, K: int) -> Theory:
    """The staleness of asynchronous pushes, where K pushes make an update."""
    P, rates = cluster.workers, _rates(cluster)
    if K == 1 and _takes_turns(cluster):
        return constant(P - 1)
    if rates is None or not isinstance(law_of(cluster), Exponential):
        return Theory(LITTLE, (P - 1) / K)
    equal = len(set(rates)) == 1
    if K == 1:
        p = rates / rates.sum()
        law = "geometric" if equal else "mixed geometric"
        return Theory(law, P - 1, lambda k: sum(q * _geometric(q, k) for q in p))
    if equal:
        return Theory("grouped geometric", (P - 1) / K, partial(_grouped, 1 / P, K))
    return Theory(LITTLE, (P - 1) / K)


def _geometric(p: float, k: np.ndarray) -> np.ndarray:
    """Pr(k) of the failures before a success of probability p: p (1 - p)^k."""
    return np.asarray(p * (1 - p) ** np.maximum(k, 0) * (k >= 0))


def _grouped(p: float, K: int, k: np.ndarray) -> np.ndarray:
    """Pr(floor((j + N) / K) = k) of geometric N, the mean over j = 0 ... K - 1."""
    first = k[:, None] * K - 1 - np.arange(K)
    shares = _at_most(p, first + K) - _at_most(p, first)
    return np.asarray(shares.mean(1))


def _at_most(p: float, k: np.ndarray) -> np.ndarray:
    """Pr(at most k) of a geometric number: 1 - (1 - p)^(k + 1)."""
    return np.asarray(1 - (1 - p) ** np.maximum(k + 1, 0))


def _rates(cluster: Cluster) -> np.ndarray | None:
    """The relative speeds of the workers `(workers,)`.

    None where the speeds change, or where the network or the server takes time.
    """
    is_free = cluster.network.unlimited and cluster.network.latency == 0
    if is_free and cluster.serves_at_once and is_steady(cluster):
        return 1 / factors_of(cluster)
    return None


def _has_equal_speeds(cluster: Cluster) -> bool:
    rates = _rates(cluster)
    return rates is not None and len(set(rates)) == 1


def _takes_turns(cluster: Cluster) -> bool:
    """Whether all workers push once in each round, in a fixed order."""
    is_constant = isinstance(law_of(cluster), Constant)
    return is_constant and cluster.ties == "rank" and _has_equal_speeds(cluster)
