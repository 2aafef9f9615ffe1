"""Seconds per update: by closed forms, where they hold for a config, and as measured."""

import math
from collections.abc import Sequence

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
from laggard.simulator import Algorithm, Cluster, Network
from laggard.simulator.algorithms.base import count_awaited
from laggard.simulator.learning.task import bytes_of
from laggard.simulator.network.topology import SERVER, Auto, Ring
from laggard.simulator.timing.distributions import Constant, Exponential, Trace, TwoLevelGamma
from laggard.simulator.timing.distributions.distribution import is_law, mean_of

FREE_SECONDS: Forms[float] = Forms()
"""Seconds of an update on a network that takes no time, from an algorithm and a cluster of constant
slowdowns.
"""
CARD_SECONDS: Forms[float] = Forms()
"""Seconds of an update with equal cards and constant times, from an algorithm, a cluster, and a
model's N beta (s).
"""
SERVED_SECONDS: Forms[float] = Forms()
"""As `CARD_SECONDS`, where servers take time for messages and updates."""


def expected_seconds(results: Sequence[Result]) -> pd.DataFrame:
    """The seconds of an update by theory, and as measured in the second half of a run; a row per
    run.

    Theory is `seconds_theory`; measured is `seconds_per_update`, where an update is a server's, a
    round of a collective, or one step of every node of a gossip. Columns: what was swept (else
    `method`), `theory` and `measured` (s; NaN where theory has no closed form), `ratio` of measured
    to theory.
    """
    rows = []
    for result in results:
        theory = seconds_theory(result)
        if theory is None:
            theory = math.nan
        rows.append({**name_of(result), **compare(theory, seconds_per_update(result))})
    return pd.DataFrame(rows)


def seconds_per_update(result: Result) -> float:
    """Virtual seconds from one update of a model to its next, in the second half of a run.

    Of P models with s_i seconds an update each: P / sum_i (1 / s_i), the time in which they have
    one each on average. NaN where no model had two updates.
    """
    applied = result.updates[result.updates["status"] == "applied"]
    applied = applied.drop_duplicates(["target", "version"]).sort_values("version")
    gaps: list[float] = []
    for _, updates in applied.groupby("target"):
        start = len(updates) // 2
        if len(updates) < 4:  # a half of two or three updates has no gap
            start -= 1
        late = updates.iloc[start:]
        if len(late) > 1:
            first, last = late.iloc[0], late.iloc[-1]
            gaps.append((last["time"] - first["time"]) / (last["version"] - first["version"]))
    if not gaps:
        return math.nan
    if min(gaps) <= 0:
        return 0.0
    return len(gaps) / sum(1 / gap for gap in gaps)


def model_bytes(result: Result) -> float:
    """The bytes of one model's message."""
    size = result.config.cluster.network.message_bytes
    if size is None:
        size = bytes_of(result.config.task, result.weights.shape[1])
    return float(size)


def seconds_theory(result: Result) -> float | None:
    """The seconds of one update by theory, for P workers; None where no closed form holds.

    On a network that takes time, with t_c constant seconds for a mini-batch, equal cards, N bytes a
    model, latency alpha and beta seconds a byte:

    all_reduce                   t_c + the collective's (`COLLECTIVE_SECONDS`)
    sync_ps, fair                t_c + 2 alpha + 2 P N beta
    sync_ps, fifo                t_c + 2 alpha + (P + 1) N beta
    async_ps, fifo               max((t_c + 2 alpha + 2 N beta + r + u) / P, N beta, r + u + q)
    sgp, one peer                t_c + alpha + N beta; max(t_c, alpha + N beta) with overlap 1
    osgp, one peer, tau, H = 1   max(t_c, (alpha + N beta) / tau, N beta); any H: see `OverlapSGP`;
                                 fifo, or fair where no two messages share a card
    dpsgd on a ring, P > 2       max(t_c, alpha + 2 N beta)
    the same, adapting first     t_c + alpha + 2 N beta; d2 and qg_dsgdm likewise
    gradient_tracking on a ring  t_c + alpha + 4 N beta, P > 2
    p3, fair                     its recursion over the layers (`communication`)
    priority_all_reduce          likewise, where the first node ends a collective with the last
    all_reduce, groups           t_c + its ring's or hierarchical sum's (`trunk_seconds`)

    Where no sharing is named, both have the same seconds. 2 alpha is the latency to the server and
    back. The server takes r seconds to receive a message, u to update and q to reply; only
    async_ps has a form in which they are not 0.

    On a free network workers may be uneven, and their times may have other distributions. With X_i
    the seconds of a mini-batch of worker i and mu_i = 1 / E[X_i]:

    k_sync                       E[X_(K:P)], the K-th to finish; with K < P only if `cancel`
    sync_ps, all_reduce          E[X_(P:P)]; p3, priority_all_reduce, power_sgd and majority_vote
                                 likewise
    async_ps, soft_sync          K / sum_i mu_i: workers' rates add up, K gradients an update; dana
                                 and dana_slim likewise, K = 1
    adpsgd, adpsgd_overlap       P / sum_i mu_i, for a step of every node
    k_async                      E[X_(K:P)], if times are exponential; as async_ps for K = 1
    k_batch_sync                 K / sum_i mu_i, if times are exponential
    dpsgd, sgp, osgp             max_i X_i, if times are constant: all wait for the slowest;
                                 gradient_tracking, d2, qg_dsgdm, relay_sgd and choco likewise
    local_sgd, diloco            H max_i X_i, if times are constant and all workers are awaited
    naive, gpipe, 1f1b           max_r T_r (`computation`), if times are constant
    async_pipelines              1 / sum_r (1 / T_r), if times are constant

    Rates add up only if all machines have the same mean and times are drawn independently: not for
    `two_level_gamma`, nor for a trace.

    None in all other cases: slowdowns that change, unequal cards, private wires, a network that
    changes, a server whose work takes time, gradients in buckets on a network that takes time,
    compressed messages, and other distributions or settings.

    Source: Dutta et al. (2018), arXiv 1803.01113 (K-sync, K-async); Chen et al. (2016), arXiv
    1604.00981 (backups).
    """
    built = build_algorithm(result.config)
    if built is None:
        return None
    algorithm, cluster = built
    network = cluster.network
    for key in ("compress", "compress_down"):
        if getattr(algorithm, key, None) is not None:
            return None
    if not is_steady(cluster) or not _has_equal_cards(network):
        return None
    if network.unlimited and not network.latency and cluster.serves_at_once:
        seconds = FREE_SECONDS(algorithm, cluster)
        if seconds:
            return seconds
        return FLUSHED_SECONDS(algorithm, cluster, result.config.task.layers())
    if cluster.slowdowns or not isinstance(law_of(cluster), Constant):
        return None
    size = model_bytes(result)
    if network.groups is not None:
        if not isinstance(algorithm, simulator.AllReduce):
            return None
        summed = trunk_seconds(algorithm, cluster, size)
        if summed is None:
            return None
        return cluster.compute.mean + summed
    transfer = size / network.bandwidth
    if not cluster.serves_at_once:
        return SERVED_SECONDS(algorithm, cluster, transfer)
    overlapping = OVERLAP_SECONDS(algorithm, cluster, result.config.task.layers(), size)
    if overlapping:
        return overlapping
    return CARD_SECONDS(algorithm, cluster, transfer)


def _has_equal_cards(network: Network) -> bool:
    """Whether all nodes have the same card, at all times, and nothing else carries messages."""
    if network.cards or network.links or network.colocated or network.hosts:
        return False
    if network.server_bandwidth or network.changes or network.draws_latency:
        return False
    return network.wiring == "cards"


def _order(cluster: Cluster, K: int) -> float | None:
    """The mean of the K-th smallest of the P workers' durations."""
    return order_statistic(cluster.compute, factors_of(cluster), K)


def _last(cluster: Cluster) -> float | None:
    """The mean of the largest of P durations."""
    return _order(cluster, cluster.workers)


def _rate(cluster: Cluster, gradients: int) -> float | None:
    """Seconds of an update of `gradients` gradients, which workers compute without waiting."""
    # the mean of a machine is drawn, and a trace is a fixed sequence: neither has the rates above
    if isinstance(law_of(cluster), TwoLevelGamma | Trace):
        return None
    return float(gradients * cluster.compute.mean / (1 / factors_of(cluster)).sum())


def _slowest(cluster: Cluster, steps: int = 1) -> float | None:
    """The constant seconds of a number of steps of the slowest worker."""
    if not isinstance(law_of(cluster), Constant):
        return None
    return float(steps * cluster.compute.mean * factors_of(cluster).max())


@FREE_SECONDS.of(
    simulator.AllReduce, simulator.PriorityAllReduce, simulator.P3, simulator.PowerSGD,
    simulator.MajorityVote,
)  # fmt: skip
def _synchronous(algorithm: Algorithm, cluster: Cluster) -> float | None:
    return _last(cluster)


@FREE_SECONDS.of(simulator.SyncPS)
def _sync_ps(algorithm: simulator.SyncPS, cluster: Cluster) -> float | None:
    if algorithm.accumulate > 1:
        return None
    return _last(cluster)


@FREE_SECONDS.of(simulator.AsyncPS)
def _async_ps_seconds(algorithm: simulator.AsyncPS, cluster: Cluster) -> float | None:
    return _rate(cluster, algorithm.accumulate)


@FREE_SECONDS.of(simulator.DANA, simulator.DANASlim)
def _dana_seconds(algorithm: simulator.DANA, cluster: Cluster) -> float | None:
    return _rate(cluster, 1)


@FREE_SECONDS.of(simulator.SoftSync)
def _soft_sync_seconds(algorithm: simulator.SoftSync, cluster: Cluster) -> float | None:
    return _rate(cluster, algorithm.gradients)


@FREE_SECONDS.of(simulator.ADPSGD, simulator.OverlapADPSGD)
def _adpsgd(algorithm: Algorithm, cluster: Cluster) -> float | None:
    return _rate(cluster, cluster.workers)


@FREE_SECONDS.of(
    simulator.DPSGD, simulator.SGP, simulator.OverlapSGP, simulator.GradientTracking, simulator.D2,
    simulator.QGDSGDm, simulator.RelaySGD, simulator.CHOCO,
)  # fmt: skip
def _gossip(algorithm: Algorithm, cluster: Cluster) -> float | None:
    return _slowest(cluster)


@FREE_SECONDS.of(simulator.KSync)
def _k_sync(algorithm: simulator.KSync, cluster: Cluster) -> float | None:
    K = count_awaited(algorithm, algorithm.wait_for, cluster.workers)
    if algorithm.cancel or cluster.workers == K:
        return _order(cluster, K)
    return None


@FREE_SECONDS.of(simulator.KAsync)
def _k_async_seconds(algorithm: simulator.KAsync, cluster: Cluster) -> float | None:
    if algorithm.wait_for == 1:
        return _rate(cluster, 1)
    if isinstance(law_of(cluster), Exponential):
        return _order(cluster, algorithm.wait_for)
    return None


@FREE_SECONDS.of(simulator.KBatchSync)
def _k_batch_sync(algorithm: simulator.KBatchSync, cluster: Cluster) -> float | None:
    if isinstance(law_of(cluster), Exponential):
        return _rate(cluster, algorithm.gradients)
    return None


@FREE_SECONDS.of(simulator.LocalSGD, simulator.DiLoCo)
def _local_sgd(algorithm: simulator.LocalSGD, cluster: Cluster) -> float | None:
    if count_awaited(algorithm, algorithm.wait_for, cluster.workers) < cluster.workers:
        return None
    return _slowest(cluster, algorithm.local_steps)


def _both_ways(cluster: Cluster) -> float:
    """The latency to a server and back."""
    network = cluster.network
    return mean_of(network.latency) + mean_of(network.latency_from(SERVER))


def _message(cluster: Cluster, transfer: float) -> float:
    """Seconds of a message to a peer; 0 for a single worker, which has none."""
    if cluster.workers == 1:
        return 0.0
    return mean_of(cluster.network.latency) + transfer


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
    models = cluster.workers + 1
    if cluster.network.sharing == "fair":
        models = 2 * cluster.workers
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
    t_c = cluster.compute.mean
    message = _message(cluster, transfer)
    if algorithm.overlap:
        return max(t_c, message)
    return t_c + message


@CARD_SECONDS.of(simulator.OverlapSGP)
def _osgp_cards(algorithm: simulator.OverlapSGP, cluster: Cluster, transfer: float) -> float | None:
    tau = algorithm.overlap
    H = algorithm.local_steps
    t_c = cluster.compute.mean
    if not isinstance(cluster.network.topology, Auto):
        return None
    if cluster.network.sharing == "fair" and tau > H and H * t_c < transfer:
        return None  # two messages would share a card
    if cluster.workers == 1:
        return t_c
    wait = max(0.0, _message(cluster, transfer) - tau * t_c)
    between_pushes = H * t_c + wait / max(1, math.ceil(tau / H))
    return max(between_pushes, transfer) / H


@CARD_SECONDS.of(simulator.DPSGD)
def _dpsgd_cards(algorithm: simulator.DPSGD, cluster: Cluster, transfer: float) -> float | None:
    messages = _exchange_on_ring(cluster, transfer)
    if messages is None:
        return None
    if algorithm.order == "combine_then_adapt":
        return max(cluster.compute.mean, messages)
    return cluster.compute.mean + messages


@CARD_SECONDS.of(simulator.D2, simulator.QGDSGDm)
def _adapting_cards(algorithm: Algorithm, cluster: Cluster, transfer: float) -> float | None:
    messages = _exchange_on_ring(cluster, transfer)
    if messages is None:
        return None
    return cluster.compute.mean + messages


@CARD_SECONDS.of(simulator.GradientTracking)
def _tracking_cards(
    algorithm: simulator.GradientTracking, cluster: Cluster, transfer: float
) -> float | None:
    return _adapting_cards(algorithm, cluster, 2 * transfer)


def _exchange_on_ring(cluster: Cluster, transfer: float) -> float | None:
    """Seconds in which each node of a ring sends a message to its neighbours; None elsewhere."""
    if not isinstance(cluster.network.topology, Auto | Ring):
        return None
    peers = min(cluster.workers - 1, 2)
    return _message(cluster, peers * transfer)
