"""The base class of algorithms: generators, and the ranks on which they run."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

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
from laggard.simulator.timing.failures import CrashRule
from laggard.simulator.timing.roles import Role as Role
from laggard.simulator.timing.slowdowns import Recorded

if TYPE_CHECKING:
    from laggard.simulator.engine.stopping import Stop


class Algorithm(Settings):
    """A distributed algorithm: its methods are roles, each a generator over a `Node`.

    A subclass is a frozen dataclass whose fields are its config keys. It defines `worker(self,
    node)`, and `server(self, node)` where there is one; other roles need a `roles` of its own.

    Attributes:
        topology: the topology where the config names none.
        readmits: whether a worker that returns from a crash starts its roles again. Not so for
            lock-step methods without a server: the others depend on the state that it has lost, and
            wait forever.
        only_collectives: whether the workers send messages only in a collective, one round after
            another, in which all take part. Its times can then be computed in lock step.
        one_schedule: whether the schedule of the learning rate sets times, so that all members of
            an ensemble have the same one.
        recovers: whether servers can crash and return from a checkpoint: a worker announces itself
            by None; a server answers each message of a worker, an announcement at once; it begins
            with `node.state` where that is not None.
        SPACE: the settings that `laggard league` tries besides the rates: dotted keys of a config
            and their ranges, as in {"algorithm.local_steps": {"choice": [2, 8]}}.
    """

    topology: ClassVar[Topology] = Star()
    readmits: ClassVar[bool] = True
    only_collectives: ClassVar[bool] = False
    one_schedule: ClassVar[bool] = False
    recovers: ClassVar[bool] = False
    SPACE: ClassVar[Mapping[str, Any]] = {}

    def roles(self, workers: int) -> Mapping[int, Sequence[Callable[[Node], Role]]]:
        """The generators of each rank: `server` on the server, if any, and `worker` on workers."""
        server: Callable[[Node], Role] | None = getattr(self, "server", None)
        worker: Callable[[Node], Role] | None = getattr(self, "worker", None)
        if worker is None:
            expected = "a generator worker(self, node), or roles(self, workers)"
            raise InvalidSettingError(type(self).__name__, "worker", expected, None)
        roles: dict[int, list[Callable[[Node], Role]]] = {}
        if server is not None:
            roles[SERVER] = [server]
        # Roles start in this order: the server waits before a worker announces itself.
        shared = [worker]  # one list for all workers, since there may be a million
        return roles | {rank: shared for rank in range(workers)}

    def models(self, workers: int) -> Sequence[int]:
        """The ranks whose mean model is evaluated: the server or, without one, every worker."""
        if SERVER in self.roles(workers):
            return [SERVER]
        return range(workers)

    def slices(
        self, workers: int, params: int, layers: Sequence[Layer] = ()
    ) -> Mapping[int, slice]:
        """The slice of the parameters on each node, where none has all: shards, pipeline stages.

        The evaluated model is then all slices side by side; nodes with the same slice are averaged.
        `layers` are the model's, if the task has any.
        """
        return {}

    def updates_in_parts(self, workers: int) -> bool:
        """Whether the rule updates a model in parts, without the whole gradient of an update."""
        return False

    def restart_group(self, rank: int, workers: int) -> Sequence[int]:
        """The workers that start their roles again once `rank` is back from a crash, and all are
        up.

        By default `rank` alone, or nobody where the method does not readmit it. The other workers
        of the group lose their work, as in a crash.
        """
        if self.readmits or workers == 1:
            return [rank]
        return []

    @property
    def crash_rule(self) -> CrashRule | None:
        """How a method without a server goes on after a crash; None if the other nodes wait for
        ever.
        """
        return None

    def links(self, workers: int) -> Iterable[tuple[int, int]]:
        """The pairs (sender, receiver) that every topology must join for this method to run on it.

        By default the pairs that its own topology joins: each server and all workers, both ways,
        and the peers. A gossip method sends to the peers of any topology, so that it runs on any
        graph of workers: it returns `()`.
        """
        graph = self.topology
        for server in (rank for rank in self.roles(workers) if rank < 0):
            for worker in range(workers):
                for pair in ((server, worker), (worker, server)):
                    if graph.joins(*pair, workers):
                        yield pair
        for step in range(graph.period(workers)):
            for rank in range(workers):
                yield from ((rank, peer) for peer in graph.out_peers(rank, step, workers))

    def check(self, cluster: Cluster) -> None:
        """Raise `InvalidSettingError` where the algorithm does not fit the cluster."""

    def check_cluster(self, cluster: Cluster) -> None:
        """Raise `InvalidSettingError` where the algorithm does not fit the cluster.

        The reasons are: the topology does not join the algorithm's `links`, the rule clips the norm
        of a gradient that no update has as a whole, or `check` raises, or the rule's compensation
        does by its `check_workers(workers)`, if it has one.
        """
        workers = cluster.workers
        network = cluster.network
        name = type(self).__name__
        topology = resolve_topology(network.topology, self.topology)
        # Whether there is one pair more, without a list: a mesh of 65,536 nodes has 4 billion.
        if next(islice(self.links(workers), MOST_LINKS, None), None):
            expected = f"so few that {name} has at most {MOST_LINKS} pairs that send to each other"
            raise InvalidSettingError("Cluster", "workers", expected, workers)
        if topology != self.topology:
            for sender, receiver in self.links(workers):
                if topology.joins(sender, receiver, workers):
                    continue
                fitting = names_of_topologies(self.topology, self.links, workers)
                expected = f"{fitting}, since {name} sends from {sender} to {receiver}"
                got = type(topology).__name__.lower()
                raise InvalidSettingError("Network", "topology", expected, got)
        if network.colocated and all(rank >= 0 for rank in self.roles(workers)):
            expected = f"false, since {name} has no server"
            raise InvalidSettingError("Network", "colocated", expected, True)
        self._check_server_crashes(cluster)
        self._check_members(cluster)
        self._check_rule(workers)
        self.check(cluster)

    def needed(self, workers: int) -> int:
        """The number of live workers below which the others compute for ever without an update.

        0 where the others would wait, so that the run ends as stalled.
        """
        return 0

    def check_end(self, cluster: Cluster, stop: "Stop") -> None:
        """Raise `InvalidSettingError` where workers would compute for ever without an update."""
        if stop.time is not None or stop.gradients is not None:
            return
        lost = {crash.worker for crash in cluster.crashes if crash.back is None}
        left = cluster.workers - len(lost)
        if 0 < left < self.needed(cluster.workers):  # a run without any worker ends as stalled
            name = type(self).__name__
            why = f"{name} makes no update without a lost worker, and the others compute for ever"
            expected = f"a time, or stop.gradients, since {why}"
            raise InvalidSettingError("Stop", "time", expected, None)

    def _check_rule(self, workers: int) -> None:
        rule: Rule | None = getattr(self, "rule", None)
        if rule is None:
            return
        compensation_check = getattr(rule.compensation, "check_workers", None)
        if compensation_check is not None:
            compensation_check(workers)
        if rule.clip.whole and self.updates_in_parts(workers):
            parts = f"since {type(self).__name__} updates a model in parts"
            why = f"{parts}, none of which has the norm of the whole gradient"
            raise InvalidSettingError("Rule", "clip", f"none or {{value: ...}}, {why}", rule.clip)

    def _check_members(self, cluster: Cluster) -> None:
        """Refuse workers that come and go where the others would wait for one forever."""
        if not cluster.members.change or self.readmits or self.crash_rule is not None:
            return
        where = ""
        if hasattr(self, "on_crash"):
            where = " where algorithm.on_crash is stall"
        why = f"{type(self).__name__} waits forever for a worker that leaves"
        expected = f"none{where}, since {why}"
        raise InvalidSettingError("Cluster", "members", expected, cluster.members)

    def refuse_returns(self, cluster: Cluster, why: str) -> None:
        """Refuse workers that return from a crash, for the reason `why`."""
        for index, slowdown in enumerate(cluster.slowdowns):
            key = f"slowdowns.{index}.back"
            expected = f"null, since {why}"
            back = getattr(slowdown, "back", None)
            if isinstance(slowdown, Recorded):
                key = f"slowdowns.{index}.file"
                expected = f"no returns from a crash, since {why}"
                backs = [crash.back for crash in slowdown.crashes if crash.back is not None]
                back = min(backs, default=None)
            if back is not None:
                raise InvalidSettingError("Cluster", key, expected, back)

    def _check_server_crashes(self, cluster: Cluster) -> None:
        name = type(self).__name__
        servers = sum(rank < 0 for rank in self.roles(cluster.workers))
        if cluster.server_crashes and not self.recovers:
            expected = f"none, since {name} has no server"
            if servers:
                others = "as those of async_ps, sync_ps and k_sync do"
                expected = f"none, since no server of {name} returns from a checkpoint, {others}"
            got = len(cluster.server_crashes)
            raise InvalidSettingError("Cluster", "server_crashes", expected, got)
        for index, crash in enumerate(cluster.server_crashes):
            if crash.shard >= servers:
                expected = f"a number below the {servers} of {name}'s servers, counted from 0"
                key = f"server_crashes.{index}.shard"
                raise InvalidSettingError("Cluster", key, expected, crash.shard)


def count_awaited(
    algorithm: Algorithm, wait_for: float | None, workers: int, key: str = "wait_for"
) -> int:
    """The number of workers to wait for: all by default; a share of them is rounded up.

    Args:
        key: the name of the setting, for errors.

    Raises:
        InvalidSettingError: more than `workers`, or not a whole number.
    """
    count: float
    if wait_for is None:
        count = workers
    elif wait_for < 1:
        count = math.ceil(wait_for * workers - 1e-9)  # 0.1 * 30 is above 3 by rounding
    else:
        count = wait_for
    if count > workers:
        expected = f"at most workers = {workers}, or the server would wait for ever"
        raise InvalidSettingError(type(algorithm).__name__, key, expected, wait_for)
    if count != int(count):
        expected = "a whole number of workers, or a share of them below 1"
        raise InvalidSettingError(type(algorithm).__name__, key, expected, wait_for)
    return int(count)
