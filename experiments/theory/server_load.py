"""Whether a server keeps up with workers that do not await its answers."""

import math
from typing import NamedTuple

from laggard.experiments.config.config import Config
from laggard.experiments.theory.computation import factors_of
from laggard.simulator.network.topology import SERVER
from laggard.simulator.timing.distributions.distribution import mean_of


class ServerLoad(NamedTuple):
    """The rates at which workers make gradients and a server can receive them.

    Attributes:
        workers: the number of workers.
        made: the number of gradients, sums of gradients or fragments that workers send per second.
        taken: the number of such messages that a server can receive per second.
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

    A server's card takes in 1 / (s N beta) messages of s N bytes a second, its thread 1 /
    `receive_seconds`.
    """
    if not hasattr(config.algorithm, "outstanding"):
        return None
    cluster, algorithm = config.build_cluster(), config.algorithm
    network = cluster.network
    params = sum(layer.params for layer in config.task.layers())
    size = network.message_bytes
    if size is None:
        size = 4.0 * params
    compress = getattr(algorithm, "compress", None)
    if compress is not None:
        size *= compress.build().size(params)
    shards = getattr(algorithm, "shards", 1)
    batches = getattr(algorithm, "n_push", 1)
    fragments = getattr(algorithm, "fragments", None)
    if fragments is not None:
        size /= fragments
        batches = algorithm.local_steps / fragments
    card = network.card_bandwidth(network.machine(SERVER, cluster.workers))
    seconds = max(size / shards / card, mean_of(cluster.receive_seconds) / shards)
    if not seconds:
        return None
    gradients = float((1 / factors_of(cluster)).sum()) / cluster.compute.mean
    return ServerLoad(cluster.workers, gradients / batches, 1 / seconds)
