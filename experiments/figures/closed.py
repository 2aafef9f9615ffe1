"""Closed forms of theory for the seconds of an update, as far as they hold for a config."""

import math
from typing import Any

from experiments.config import Config
from experiments.figures.orders import Closed, free_form
from experiments.lines import Drawn
from experiments.verify.collectives import TIMES
from simulator.laws import Constant, Scaled
from simulator.topology import Auto, Ring


def closed_form(result: Drawn) -> Closed | None:
    """Seconds an update of P workers takes by theory, with t_c constant, N bytes, latency alpha, beta seconds a byte.

    all_reduce                   t_c + the collective's (`experiments.verify.collectives.TIMES`)
    sync_ps                      t_c + 2 alpha + 2 P N beta (fair), t_c + 2 alpha + (P + 1) N beta (fifo)
    async_ps, fifo               max((t_c + 2 alpha + 2 N beta) / P, N beta)
    sgp, one peer                t_c + alpha + N beta; max(t_c, alpha + N beta) with overlap 1
    dpsgd on a ring, P > 2       max(t_c, alpha + 2 N beta); t_c + alpha + 2 N beta where it adapts first

    On a network that takes no time: `free_form`, for other laws and uneven workers too.

    None where none of them holds: other laws or settings, unequal cards, private wires, a server whose work takes time.
    """
    config = result.config
    if not isinstance(config, Config):
        return None
    cluster, algorithm = (
        config.cluster.build(config.task.batch if hasattr(config.task, "batch") else 1),
        config.algorithm,
    )
    law, network = cluster.compute, cluster.network
    law = law.law if isinstance(law, Scaled) else law
    uneven = (
        network.cards or network.links or network.colocated or network.server_bandwidth or network.wiring != "cards"
    )
    if uneven or cluster.apply_seconds:
        return None
    if network.unlimited and not network.latency:
        return free_form(algorithm, cluster)
    if cluster.slowdowns or not isinstance(law, Constant):
        return None
    t_c, alpha, transfer = cluster.compute.mean, network.latency, model_bytes(result) / network.bandwidth
    forms = {
        "all_reduce": lambda: _all_reduce(algorithm, t_c, alpha, transfer),
        "sync_ps": lambda: _sync_ps(algorithm, t_c, alpha, transfer, network.sharing),
        "async_ps": lambda: _async_ps(algorithm, t_c, alpha, transfer, network.sharing),
        "sgp": lambda: _sgp(algorithm, t_c, alpha, transfer, isinstance(network.topology, Auto)),
        "dpsgd": lambda: _dpsgd(algorithm, t_c, alpha, transfer, isinstance(network.topology, Auto | Ring)),
    }
    return forms.get(algorithm.name, lambda: None)()


def model_bytes(result: Any) -> float:
    """The bytes of one model's message."""
    given = result.config.cluster.network.message_bytes
    return float(4 * result.weights.shape[1] if given is None else given)


def _all_reduce(algorithm: Any, t_c: float, alpha: float, transfer: float) -> Closed:
    _, _, seconds = TIMES[algorithm.collective]
    halves = "doubling" in algorithm.collective
    return lambda P: math.nan if halves and P & (P - 1) else t_c + seconds(P, alpha, transfer) * (P > 1)


def _sync_ps(algorithm: Any, t_c: float, alpha: float, transfer: float, sharing: str) -> Closed | None:
    if algorithm.wait_for is not None or algorithm.local_steps != 1 or algorithm.shards != 1:
        return None
    return lambda P: t_c + 2 * alpha + (2 * P if sharing == "fair" else P + 1) * transfer


def _async_ps(algorithm: Any, t_c: float, alpha: float, transfer: float, sharing: str) -> Closed | None:
    plain = algorithm.n_push == algorithm.n_fetch == algorithm.accumulate == algorithm.shards == 1
    if not plain or algorithm.sync_every or sharing != "fifo":
        return None
    return lambda P: max((t_c + 2 * alpha + 2 * transfer) / P, transfer)


def _sgp(algorithm: Any, t_c: float, alpha: float, transfer: float, one_peer: bool) -> Closed | None:
    if not one_peer or algorithm.overlap > 1:
        return None
    way = alpha + transfer
    return lambda P: t_c if P == 1 else max(t_c, way) if algorithm.overlap else t_c + way


def _dpsgd(algorithm: Any, t_c: float, alpha: float, transfer: float, ring: bool) -> Closed | None:
    if not ring:
        return None
    first = algorithm.order == "combine_then_adapt"

    def seconds(P: int) -> float:
        way = (alpha + min(P - 1, 2) * transfer) * (P > 1)
        return max(t_c, way) if first else t_c + way

    return seconds
