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
    """The staleness of gradients in the steady state: its mean, and Pr(k) of whole numbers k where
    that is known.
    """

    law: str
    mean: float
    probabilities: Probabilities | None = None


STALENESS: Forms[Theory] = Forms()
"""What theory says of the staleness under an algorithm on a cluster without crashes."""


def expected_staleness(results: Sequence[Result]) -> pd.DataFrame:
    """A row a run: theory's mean staleness beside that of the gradients applied in the second half
    of its time.

    Theory is of the steady state, `staleness_theory`; a run begins with fresh gradients, which is
    why its first half is
    left out. Columns: what was swept (else `method`), `law` (what theory knows: a whole law, or by
    Little's law the mean), `theory` and `measured` (updates), `ratio` of measured to theory (NaN of
    0 and 0), `n` (gradients).
    """
    rows = []
    for result in results:
        theory, applied = (
            staleness_theory(result.config),
            result.updates[result.updates["status"] == "applied"],
        )
        late = applied.loc[applied["time"] > result.metrics["time"].max() / 2, "staleness"]
        law, mean = (theory.law, theory.mean) if theory else ("", math.nan)
        rows.append({**name_of(result), "law": law, **compare(mean, late.mean()), "n": len(late)})
    return pd.DataFrame(rows)


def staleness_theory(config: Any) -> Theory | None:
    """The law of staleness under a config, if theory gives it; None where it does not, or where
    nodes crash.

    P workers, each of which always holds one gradient; an update of K gradients; staleness in
    updates.

    - No delay: synchronous methods, all-reduce, gossip, pipelines with a flush apply gradients of
    present weights.
    - `delayed`: D for every gradient. A drawn delay has mean D: as many gradients leave the queue
    as enter.
    - Pipelines without a flush: of n stages the s-th sees n - s, each a share 1/n of the pieces;
    2BW sees 1.
    - Asynchronous server, any law of times and any network: the P - 1 others' updates fall on
    average between a read
      and the push that follows (Little's law); (P - 1) / K where K pushes make an update
      (`soft_sync`, `accumulate`); P / K - 1 where contributors wait for it (`k_async`).
    - ..., equal constant times on a free network: everybody pushes once a round, so that it is P -
    1, always, unless
      ties are broken at random.
    - `async_pipelines`: likewise R - 1 on every stage, of R replicas.
    - ..., exponential times with rates mu_i on a free network: they forget, so that the next push
    is worker i's with
      probability p_i = mu_i / sum_j mu_j whatever has gone before. Between a read of i and its push
      there are N_i others, Pr(N_i = k) = p_i (1 - p_i)^k, and a share p_i of all pushes is i's:

          Pr(k) = sum_i p_i^2 (1 - p_i)^k;    equal workers: Pr(k) = (1/P) (1 - 1/P)^k, geometric

    - ..., exponential, equal, K pushes an update: after its push as the j-th of a group (j = K
    counts as 0 of the
      next) a worker's next push closes floor((j + N) / K) groups later; j is uniform on 0 ... K - 1
      and independent:

          Pr(k) = 1/K sum_(j < K) Pr(floor((j + N) / K) = k),    N geometric as above

    - `k_async`, exponential, equal: at every update all P have as long to go as any other, so that
    it takes each of
      them with probability K / P, whatever has gone before: Pr(k) = (K/P) (1 - K/P)^k, geometric.

    Source: Little's law; Dutta et al. (2018), arXiv 1803.01113; Narayanan et al. (2019), arXiv
    1806.03377 (stages).
    """
    found = build_algorithm(config)
    if found is None or found[1].has_crashes:
        return None
    return STALENESS(*found)


def constant(delay: int) -> Theory:
    """Every gradient has the same staleness."""
    return Theory(CONSTANT, delay, lambda k: (k == delay).astype(float))


@STALENESS.of(
    simulator.SyncPS, simulator.P3, simulator.KSync, simulator.KBatchSync, simulator.AllReduce, simulator.DPSGD,
    simulator.SGP, simulator.OverlapSGP, simulator.ADPSGD, simulator.OverlapADPSGD, simulator.LocalSGD,
    simulator.DiLoCo, simulator.Naive, simulator.GPipe, simulator.OneForwardOneBackward, simulator.PriorityAllReduce,
)  # fmt: skip
def _fresh(algorithm: Any, cluster: Cluster) -> Theory:
    """They apply gradients of present weights."""
    return constant(0)


@STALENESS.of(simulator.Delayed)
def _delayed(algorithm: simulator.Delayed, cluster: Cluster) -> Theory | None:
    if algorithm.ramp_to is not None:
        return None
    if algorithm.law == "constant":
        return constant(algorithm.delay)
    return Theory("mean", algorithm.delay)


@STALENESS.of(simulator.PipeDream)
def _pipedream(algorithm: simulator.PipeDream, cluster: Cluster) -> Theory:
    n = cluster.workers
    return Theory("uniform over stages", (n - 1) / 2, lambda k: ((k >= 0) & (k < n)) / n)


@STALENESS.of(simulator.Downpour)
def _downpour(algorithm: simulator.Downpour, cluster: Cluster) -> Theory | None:
    push, fetch = algorithm.n_push, algorithm.n_fetch
    if algorithm.warm_start or algorithm.sync_every or fetch % push:
        return None
    if fetch > push:
        return Theory(LITTLE, cluster.workers * (fetch / push + 1) / 2 - 1)
    # a push carries several gradients: it waits for several computations, whose sum is not
    # memoryless
    if fetch > 1:
        return Theory(LITTLE, cluster.workers - 1)
    return _pushes(cluster, 1)


@STALENESS.of(simulator.KAsync)
def _k_async(algorithm: simulator.KAsync, cluster: Cluster) -> Theory:
    P, K, rates = cluster.workers, algorithm.wait_for, _rates(cluster)
    if K == 1 or K == P:
        if K == 1:
            return _pushes(cluster, 1)
        return constant(0)
    if rates is not None and isinstance(law_of(cluster), Exponential) and len(set(rates)) == 1:
        return Theory("geometric", P / K - 1, partial(_geometric, K / P))
    return Theory(LITTLE, P / K - 1)


@STALENESS.of(simulator.AsyncPipelines)
def _async_pipelines(algorithm: simulator.AsyncPipelines, cluster: Cluster) -> Theory:
    R, rates = algorithm.replicas, _rates(cluster)
    in_turn = rates is not None and len(set(rates)) == 1 and cluster.ties == "rank"
    if R == 1 or (in_turn and isinstance(law_of(cluster), Constant)):
        return constant(R - 1)
    return Theory(LITTLE, R - 1)


STALENESS.of(simulator.AsyncPS)(lambda algorithm, cluster: _pushes(cluster, algorithm.accumulate))
STALENESS.of(simulator.SoftSync)(lambda algorithm, cluster: _pushes(cluster, algorithm.gradients))
STALENESS.of(simulator.PipeDream2BW)(lambda algorithm, cluster: constant(1))


def _pushes(cluster: Cluster, K: int) -> Theory:
    """Asynchronous pushes, K of them an update."""
    P, law, rates = cluster.workers, law_of(cluster), _rates(cluster)
    if rates is None:
        return Theory(LITTLE, (P - 1) / K)
    equal = len(set(rates)) == 1
    if isinstance(law, Constant) and equal and K == 1 and cluster.ties == "rank":
        return constant(P - 1)
    if isinstance(law, Exponential) and K == 1:
        p = rates / rates.sum()
        name = "geometric" if equal else "mixed geometric"
        return Theory(
            name, P - 1, lambda k: (p**2 * (1 - p) ** np.maximum(k, 0)[:, None]).sum(1) * (k >= 0)
        )
    if isinstance(law, Exponential) and equal:
        ahead = np.arange(K)

        def probabilities(k: np.ndarray) -> np.ndarray:
            first = k[:, None] * K - 1 - ahead
            return np.asarray((_up_to(1 / P, first + K) - _up_to(1 / P, first)).mean(1))

        return Theory("grouped geometric", (P - 1) / K, probabilities)
    return Theory(LITTLE, (P - 1) / K)


def _geometric(p: float, k: np.ndarray) -> np.ndarray:
    """Pr(k) of the failures before a success of probability p: p (1 - p)^k."""
    return np.asarray(p * (1 - p) ** np.maximum(k, 0) * (k >= 0))


def _up_to(p: float, k: np.ndarray) -> np.ndarray:
    """Pr(at most k) of the same: 1 - (1 - p)^(k + 1)."""
    return np.asarray(1 - (1 - p) ** np.maximum(k + 1, 0))


def _rates(cluster: Cluster) -> np.ndarray | None:
    """The workers' speeds, relative, where they are constant and network and server take no time;
    else None.
    """
    free = cluster.network.unlimited and cluster.network.latency == 0 and cluster.serves_at_once
    if free and is_steady(cluster):
        return 1 / factors_of(cluster)
    return None
