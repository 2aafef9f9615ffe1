"""Seconds of an update: by closed forms, as far as they hold for a config, and as measured."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from laggard import simulator
from laggard.experiments.results.result import Result
from laggard.experiments.theory import Forms, build_algorithm, compare, name_of
from laggard.experiments.theory.communication import (
    OVERLAP_SECONDS,
    collective_seconds,
    trunk_seconds,
)
from laggard.experiments.theory.computation import (
    FLUSHED_SECONDS,
    factors_of,
    is_steady,
    law_of,
    order_statistic,
)
from laggard.simulator import Cluster
from laggard.simulator.algorithms.base import count_awaited
from laggard.simulator.learning.task import bytes_of
from laggard.simulator.network.topology import SERVER, Auto, Ring
from laggard.simulator.timing.distributions import Constant, Exponential, Trace, TwoLevelGamma
from laggard.simulator.timing.distributions.distribution import is_law, mean_of

FREE_SECONDS: Forms[float] = Forms()
"""Seconds of an update on a network that takes no time; of an algorithm and a cluster of constant
slowdowns.
"""
CARD_SECONDS: Forms[float] = Forms()
"""Seconds of an update with equal cards and constant times; of an algorithm, a cluster, and a
model's N beta (s).
"""
SERVED_SECONDS: Forms[float] = Forms()
"""The same where servers take time over messages and updates."""


def expected_seconds(results: Sequence[Result]) -> pd.DataFrame:
    """A row a run: the seconds of an update by theory, beside those that it took in the second half
    of the run.

    Theory is `seconds_theory`; measured is `seconds_per_update`, where an update is a server's, a
    round of a
    collective, or one step of every node of a gossip. Columns: what was swept (else `method`),
    `theory` and `measured` (s; NaN where theory has no closed form), `ratio` of measured to theory.
    """
    pairs = [(result, seconds_theory(result), seconds_per_update(result)) for result in results]
    rows = [
        {**name_of(of), **compare(math.nan if theory is None else theory, took)}
        for of, theory, took in pairs
    ]
    return pd.DataFrame(rows)


def seconds_per_update(result: Result) -> float:
    """Virtual seconds from one update of a model to its next, in the second half of a run.

    Of P models with s_i seconds an update each: P / sum_i (1 / s_i), the time in which they have
    one each on average. NaN where no model had two updates.
    """
    applied = result.updates[result.updates["status"] == "applied"]
    applied = applied.drop_duplicates(["target", "version"]).sort_values("version")
    gaps = []
    for _, of in applied.groupby("target"):
        late = of.iloc[len(of) // 2 - (len(of) < 4) :]
        if len(late) > 1:
            ends = late.iloc[[0, -1]]
            gaps.append(np.diff(ends["time"])[0] / np.diff(ends["version"])[0])
    return (
        len(gaps) / sum(1 / gap for gap in gaps)
        if gaps and min(gaps) > 0
        else 0.0
        if gaps
        else math.nan
    )


def model_bytes(result: Result) -> float:
    """The bytes of one model's message."""
    given = result.config.cluster.network.message_bytes
    return float(bytes_of(result.config.task, result.weights.shape[1]) if given is None else given)


def seconds_theory(result: Result) -> float | None:
    """Seconds an update of P workers takes by theory, with t_c constant, N bytes, latency alpha,
    beta seconds a byte.

    all_reduce                   t_c + the collective's (`COLLECTIVE_SECONDS`)
    sync_ps                      t_c + 2 alpha + 2 P N beta (fair), t_c + 2 alpha + (P + 1) N beta (fifo)
    async_ps, fifo               max((t_c + 2 alpha + 2 N beta + r + u) / P, N beta, r + u + q)
    sgp, one peer                t_c + alpha + N beta; max(t_c, alpha + N beta) with overlap 1
    osgp, one peer, tau, H = 1   max(t_c, (alpha + N beta) / tau, N beta); `OverlapSGP` has it for every H
    dpsgd on a ring, P > 2       max(t_c, alpha + 2 N beta); t_c + alpha + 2 N beta where it adapts first
    p3, fair                     its recursion over the layers (`communication`)
    priority_all_reduce          the same, where a collective ends everywhere at once
    all_reduce, groups           t_c + its ring's or hierarchical sum's (`trunk_seconds`)

    2 alpha is the latency to the server and back; r, u and q its seconds to take in a message, to
    update and to reply, 0 for all other methods.

    On a free network, for other laws and uneven workers too, with X_i the seconds of worker i and
    mu_i = 1 / E[X_i]:

    k_sync                       E[X_(K:P)], the K-th to finish: all of them, or `cancel`
    sync_ps, all_reduce          E[X_(P:P)]; so do p3 and priority_all_reduce
    async_ps, soft_sync          K / sum_i mu_i; gradients come at their workers' rates, K of them an update
    adpsgd, adpsgd_overlap       P / sum_i mu_i, for a step of every node
    k_async, k_batch_sync        E[X_(K:P)] and K / sum_i mu_i, if times are exponential: they forget
    dpsgd, sgp, osgp             max_i X_i, if times are constant: waiting for neighbours amounts to waiting for all
    local_sgd, diloco            H max_i X_i, if times are constant
    naive, gpipe, 1f1b           max_r T_r (`computation`), async_pipelines 1 / sum_r (1 / T_r), if times are constant

    None where none of them holds: other laws or settings, slowdowns that come and go, unequal
    cards, private wires, a network that changes, a server whose work takes time, gradients in
    buckets on a network that takes time.

    Source: Dutta et al. (2018), arXiv 1803.01113 (K-sync, K-async); Chen et al. (2016), arXiv
    1604.00981 (backups).
    """
    built = build_algorithm(result.config)
    if built is None:
        return None
    algorithm, cluster = built
    network = cluster.network
    uneven = (
        network.cards
        or network.links
        or network.colocated
        or network.server_bandwidth
        or network.hosts
    )
    if (
        uneven
        or network.changes
        or network.wiring != "cards"
        or network.draws_latency
        or not is_steady(cluster)
    ):
        return None
    if network.unlimited and not network.latency and cluster.serves_at_once:
        return FREE_SECONDS(algorithm, cluster) or FLUSHED_SECONDS(
            algorithm, cluster, result.config.task.layers()
        )
    if cluster.slowdowns or not isinstance(law_of(cluster), Constant):
        return None
    size = model_bytes(result)
    if network.groups is not None:
        summed = (
            trunk_seconds(algorithm, cluster, size)
            if isinstance(algorithm, simulator.AllReduce)
            else None
        )
        return None if summed is None else cluster.compute.mean + summed
    if cluster.serves_at_once and (
        found := OVERLAP_SECONDS(algorithm, cluster, result.config.task.layers(), size)
    ):
        return found
    forms = CARD_SECONDS if cluster.serves_at_once else SERVED_SECONDS
    return forms(algorithm, cluster, size / network.bandwidth)


def _order(cluster: Cluster, K: int | None = None) -> float | None:
    """The K-th of P durations, or the last."""
    return order_statistic(cluster.compute, factors_of(cluster), K or cluster.workers)


def _rate(cluster: Cluster, gradients: int) -> float | None:
    """Updates of so many gradients that come as their workers make them."""
    # a machine's mean is drawn; a trace has an order of its own
    if isinstance(law_of(cluster), TwoLevelGamma | Trace):
        return None
    return float(gradients * cluster.compute.mean / (1 / factors_of(cluster)).sum())


def _slowest(cluster: Cluster, steps: int = 1) -> float | None:
    constant = isinstance(law_of(cluster), Constant)
    return float(steps * cluster.compute.mean * factors_of(cluster).max()) if constant else None


@FREE_SECONDS.of(simulator.SyncPS)
def _sync_ps(algorithm: simulator.SyncPS, cluster: Cluster) -> float | None:
    return _order(cluster) if algorithm.accumulate == 1 else None


@FREE_SECONDS.of(simulator.KSync)
def _k_sync(algorithm: simulator.KSync, cluster: Cluster) -> float | None:
    K = count_awaited(algorithm, algorithm.wait_for, cluster.workers)
    return _order(cluster, K) if algorithm.cancel or cluster.workers == K else None


@FREE_SECONDS.of(simulator.KAsync)
def _k_async_seconds(algorithm: simulator.KAsync, cluster: Cluster) -> float | None:
    if algorithm.wait_for == 1:
        return _rate(cluster, 1)
    return _order(cluster, algorithm.wait_for) if isinstance(law_of(cluster), Exponential) else None


@FREE_SECONDS.of(simulator.KBatchSync)
def _k_batch_sync(algorithm: simulator.KBatchSync, cluster: Cluster) -> float | None:
    return _rate(cluster, algorithm.gradients) if isinstance(law_of(cluster), Exponential) else None


@FREE_SECONDS.of(simulator.LocalSGD, simulator.DiLoCo)
def _local_sgd(algorithm: simulator.LocalSGD, cluster: Cluster) -> float | None:
    every = count_awaited(algorithm, algorithm.wait_for, cluster.workers) == cluster.workers
    return _slowest(cluster, algorithm.local_steps) if every else None


def _both_ways(cluster: Cluster) -> float:
    """The latency to a server and back."""
    return mean_of(cluster.network.latency) + mean_of(cluster.network.latency_from(SERVER))


FREE_SECONDS.of(simulator.AllReduce, simulator.PriorityAllReduce, simulator.P3)(
    lambda algorithm, cluster: _order(cluster)
)
FREE_SECONDS.of(simulator.AsyncPS)(lambda algorithm, cluster: _rate(cluster, algorithm.accumulate))
FREE_SECONDS.of(simulator.SoftSync)(lambda algorithm, cluster: _rate(cluster, algorithm.gradients))
FREE_SECONDS.of(simulator.ADPSGD, simulator.OverlapADPSGD)(
    lambda algorithm, cluster: _rate(cluster, cluster.workers)
)
FREE_SECONDS.of(simulator.DPSGD, simulator.SGP, simulator.OverlapSGP)(
    lambda algorithm, cluster: _slowest(cluster)
)


@CARD_SECONDS.of(simulator.AllReduce)
def _all_reduce_cards(
    algorithm: simulator.AllReduce, cluster: Cluster, transfer: float
) -> float | None:
    summed = collective_seconds(algorithm, cluster, transfer)
    if summed is None or (algorithm.bucket_bytes is not None and cluster.workers > 1):
        return None
    return cluster.compute.mean + summed


@CARD_SECONDS.of(simulator.SyncPS)
def _sync_ps_cards(algorithm: simulator.SyncPS, cluster: Cluster, transfer: float) -> float | None:
    if algorithm.accumulate != 1 or algorithm.shards != 1 or algorithm.bucket_bytes is not None:
        return None
    models = 2 * cluster.workers if cluster.network.sharing == "fair" else cluster.workers + 1
    return cluster.compute.mean + _both_ways(cluster) + models * transfer


@SERVED_SECONDS.of(simulator.AsyncPS)
@CARD_SECONDS.of(simulator.AsyncPS)
def _async_ps_cards(
    algorithm: simulator.AsyncPS, cluster: Cluster, transfer: float
) -> float | None:
    costs = cluster.receive_seconds, cluster.apply_seconds, cluster.reply_seconds
    if algorithm.accumulate != 1 or algorithm.shards != 1 or any(map(is_law, costs)):
        return None
    if transfer and cluster.network.sharing != "fifo":
        return None
    receive, update, reply = map(mean_of, costs)
    round_trip = cluster.compute.mean + _both_ways(cluster) + 2 * transfer + receive + update
    return max(round_trip / cluster.workers, transfer, receive + update + reply)


@CARD_SECONDS.of(simulator.SGP)
def _sgp_cards(algorithm: simulator.SGP, cluster: Cluster, transfer: float) -> float | None:
    if not isinstance(cluster.network.topology, Auto) or algorithm.overlap > 1:
        return None
    t_c, way = (
        cluster.compute.mean,
        (mean_of(cluster.network.latency) + transfer) * (cluster.workers > 1),
    )
    return max(t_c, way) if algorithm.overlap else t_c + way


@CARD_SECONDS.of(simulator.OverlapSGP)
def _osgp_cards(algorithm: simulator.OverlapSGP, cluster: Cluster, transfer: float) -> float | None:
    tau, H, t_c = algorithm.overlap, algorithm.local_steps, cluster.compute.mean
    # no two messages share a card
    alone = cluster.network.sharing == "fifo" or tau <= H or H * t_c >= transfer
    if not isinstance(cluster.network.topology, Auto) or not alone:
        return None
    if cluster.workers == 1:
        return t_c
    way = mean_of(cluster.network.latency) + transfer
    between = H * t_c + max(0.0, way - tau * t_c) / max(1, math.ceil(tau / H))  # two pushes
    return max(between, transfer) / H


@CARD_SECONDS.of(simulator.DPSGD)
def _dpsgd_cards(algorithm: simulator.DPSGD, cluster: Cluster, transfer: float) -> float | None:
    if not isinstance(cluster.network.topology, Auto | Ring):
        return None
    P, t_c = cluster.workers, cluster.compute.mean
    way = (mean_of(cluster.network.latency) + min(P - 1, 2) * transfer) * (P > 1)
    return max(t_c, way) if algorithm.order == "combine_then_adapt" else t_c + way
