"""Whether a server keeps up with workers that do not await its answers."""

import math
from typing import NamedTuple

from laggard.experiments.config.config import Config
from laggard.experiments.theory.computation import factors_of
from laggard.simulator.network.topology import SERVER
from laggard.simulator.timing.distributions.distribution import mean_of


class ServerLoad(NamedTuple):
    """The gradients that workers make and a server takes in.

    Attributes:
        workers: the number of workers.
        made: gradients, or sums of gradients, that they send a second.
        taken: gradients that a server can take in a second.
    """

    workers: int
    made: float
    taken: float

    @property
    def served(self) -> int:
        """The number of workers that the server keeps up with."""
        return math.floor(self.workers * self.taken / self.made)


def server_load(config: Config) -> ServerLoad | None:
    """The load of the servers of a config; None where workers await answers.

    A server's card takes in 1 / (N beta) gradients of N bytes a second, its thread 1 /
    `receive_seconds`.
    """
    if not hasattr(config.algorithm, "outstanding"):
        return None
    cluster = config.build_cluster()
    network = cluster.network
    size = network.message_bytes
    if size is None:
        size = 4.0 * sum(layer.params for layer in config.task.layers())
    shards = getattr(config.algorithm, "shards", 1)
    card = network.card_bandwidth(network.machine(SERVER, cluster.workers))
    seconds = max(size / shards / card, mean_of(cluster.receive_seconds) / shards)
    if not seconds:
        return None
    gradients = float((1 / factors_of(cluster)).sum()) / cluster.compute.mean
    made = gradients / getattr(config.algorithm, "n_push", 1)
    return ServerLoad(cluster.workers, made, 1 / seconds)
