"""The base class of algorithms: generators, and the ranks on which they run."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import InvalidSettingError, Settings
from laggard.simulator.learning.rules import Rule
from laggard.simulator.learning.task import Layer
from laggard.simulator.network.topology import (
    MOST_LINKS,
    SERVER,
    Star,
    Topology,
    names_of_topologies,
    resolve_topology,
)
from laggard.simulator.timing.roles import Role as Role


class Algorithm(Settings):
    """A distributed algorithm: its methods are roles, each a generator over a `Node`.

    A subclass is a frozen dataclass whose fields are its config keys. It defines `worker(self,
    node)`, and `server(self, node)` where there is one; other roles need a `roles` of its own.

    Attributes:
        topology: the topology where the config names none.
        readmits: whether a worker that returns from a crash starts its roles again. Not so for
            lock-step methods without a server: the others depend on the state that it has lost, and
            wait forever.
        only_collectives: whether the workers send no messages but those of a collective, one round
            after another, in which all take part. Its times can then be computed in lock step.
        recovers: whether servers can crash and return from a checkpoint: a worker announces itself
            by None, a server answers each of a worker's messages, that one at once, and begins with
            `node.state` where that is not None.
    """

    topology: ClassVar[Topology] = Star()
    readmits: ClassVar[bool] = True
    only_collectives: ClassVar[bool] = False
    recovers: ClassVar[bool] = False

    def roles(self, workers: int) -> Mapping[int, Sequence[Callable[[Node], Role]]]:
        """The generators of each rank: `server` on the server, where there is one, and `worker` on
        every worker.
        """
        server: Callable[[Node], Role] | None = getattr(self, "server", None)
        worker: Callable[[Node], Role] = self.worker  # type: ignore[attr-defined]
        ranks: dict[int, list[Callable[[Node], Role]]] = {SERVER: [server]} if server else {}
        shared = [worker]  # one list for all: there may be a million
        return ranks | {rank: shared for rank in range(workers)}

    def models(self, workers: int) -> Sequence[int]:
        """The ranks whose mean model is evaluated: the server or, without one, every worker."""
        if SERVER in self.roles(workers):
            return [SERVER]
        return range(workers)

    def slices(
        self, workers: int, params: int, layers: Sequence[Layer] = ()
    ) -> Mapping[int, slice]:
        """The slice of the parameters that each node holds, where no node holds all: shards, stages
        of a pipeline.

        The slices side by side are then the model that is evaluated, of nodes with the same slice
        the mean. `layers` are the model's, where the task has some.
        """
        return {}

    def updates_in_parts(self, workers: int) -> bool:
        """Whether the rule updates a model part by part, so that it never has the whole gradient of
        an update.
        """
        return False

    def links(self, workers: int) -> Iterable[tuple[int, int]]:
        """The pairs (sender, receiver) that every topology must join for this method to run on it.

        By default those that its own topology joins: each server and all workers, both ways, and
        the peers. A gossip method sends to the peers that the topology gives it, so that it runs on
        any graph of workers: it returns `()`.
        """
        graph = self.topology
        for server in (rank for rank in self.roles(workers) if rank < 0):
            for worker in range(workers):
                yield from (
                    pair
                    for pair in ((server, worker), (worker, server))
                    if graph.joins(*pair, workers)
                )
        for step in range(graph.period(workers)):
            for rank in range(workers):
                yield from ((rank, peer) for peer in graph.out_peers(rank, step, workers))

    def check(self, cluster: Cluster) -> None:
        """Raise `InvalidSettingError` where the algorithm does not fit the cluster."""

    def check_cluster(self, cluster: Cluster) -> None:
        """Raise `InvalidSettingError` where the cluster does not join the algorithm's `links`, or
        as `check` does.

        Also where the rule clips the norm of a gradient that no update has as a whole.
        """
        workers, network = cluster.workers, cluster.network
        topology = resolve_topology(network.topology, self.topology)
        if next(islice(self.links(workers), MOST_LINKS, None), None):
            expected = (
                f"so few that {type(self).__name__} has at most {MOST_LINKS} pairs that send "
                "to each other"
            )
            raise InvalidSettingError("Cluster", "workers", expected, workers)
        if topology != self.topology:
            missing = (pair for pair in self.links(workers) if not topology.joins(*pair, workers))
            if pair := next(missing, None):
                fitting = names_of_topologies(self.topology, self.links, workers)
                expected = (
                    f"{fitting}, since {type(self).__name__} sends from {pair[0]} to {pair[1]}"
                )
                raise InvalidSettingError(
                    "Network", "topology", expected, type(topology).__name__.lower()
                )
        if network.colocated and all(rank >= 0 for rank in self.roles(workers)):
            expected = f"false, since {type(self).__name__} has no server"
            raise InvalidSettingError("Network", "colocated", expected, True)
        self._check_server_crashes(cluster)
        self._check_clip(workers)
        self.check(cluster)

    def _check_clip(self, workers: int) -> None:
        rule: Rule | None = getattr(self, "rule", None)
        if rule is not None and rule.clip.whole and self.updates_in_parts(workers):
            why = (
                f"{type(self).__name__} updates a model in parts, none of which has the norm "
                "of the whole gradient"
            )
            raise InvalidSettingError(
                "Rule", "clip", f"none or {{value: ...}}, since {why}", rule.clip
            )

    def _check_server_crashes(self, cluster: Cluster) -> None:
        name, servers = type(self).__name__, sum(rank < 0 for rank in self.roles(cluster.workers))
        if cluster.server_crashes and not self.recovers:
            what = "returns from a checkpoint, as those of async_ps, sync_ps and k_sync do" * bool(
                servers
            )
            if servers:
                expected = f"none, since no server of {name} {what}"
            else:
                expected = f"none, since {name} has no server"
            raise InvalidSettingError(
                "Cluster", "server_crashes", expected, len(cluster.server_crashes)
            )
        for index, crash in enumerate(cluster.server_crashes):
            if crash.shard >= servers:
                expected = f"a number below the {servers} of {name}'s servers, counted from 0"
                raise InvalidSettingError(
                    "Cluster", f"server_crashes.{index}.shard", expected, crash.shard
                )


@dataclass(frozen=True)
class ReadComputePush(Algorithm):
    """A method whose worker reads, computes, pushes, and reads again when the server answers."""

    rule: Rule

    def worker(self, node: Node) -> Role:
        return read_compute_push(node)


def read_compute_push(node: Node) -> Role:
    """The worker of one asynchronous server."""
    node.send(SERVER, None, size=0)  # announces the worker
    while True:
        _, weights = yield node.receive()
        gradient = yield node.compute(weights)
        node.send(SERVER, gradient)


def count_awaited(algorithm: Algorithm, wait_for: float | None, workers: int) -> int:
    """How many of so many workers are waited for: all by default, a share of them rounded up.

    Raises:
        InvalidSettingError: more than there are, or between two whole numbers.
    """
    count: float
    if wait_for is None:
        count = workers
    elif wait_for < 1:
        count = math.ceil(wait_for * workers - 1e-9)
    else:
        count = wait_for
    if count > workers:
        expected = f"at most workers = {workers}, or the server would wait for ever"
        raise InvalidSettingError(type(algorithm).__name__, "wait_for", expected, wait_for)
    if count != int(count):
        expected = "a whole number of workers, or a share of them below 1"
        raise InvalidSettingError(type(algorithm).__name__, "wait_for", expected, wait_for)
    return int(count)
