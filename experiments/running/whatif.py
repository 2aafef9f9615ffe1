"""What a finished run would have been without what slowed it: a straggler, slowdowns, or the
network.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from laggard.experiments.config.errors import ConfigError, format_value
from laggard.experiments.config.grid import runs
from laggard.experiments.config.load import load
from laggard.experiments.results.measures import STATES
from laggard.experiments.results.result import Result
from laggard.simulator import Cluster, Network, simulate
from laggard.simulator.network.groups import Trunk
from laggard.simulator.timing.distributions import (
    Distribution,
    Gamma,
    Scaled,
    Seconds,
    Trace,
    TwoLevelGamma,
)
from laggard.simulator.timing.distributions.distribution import check_workers, of_worker
from laggard.simulator.timing.distributions.per_machine import Measured
from laggard.simulator.timing.recorded import Recorded
from laggard.simulator.timing.slowdowns import Crash, Factor, Group, Slowdown

GroupT = TypeVar("GroupT", bound=Group)


def whatif(result: Result, removals: Sequence[str]) -> pd.DataFrame:
    """A finished run, and for each removal a simulation of its config without that: rates, times
    and the gain.

    All else stays, also every random draw: those of a worker, a slowdown or a message come from a
    stream of its own.

    Args:
        removals: each one of `straggler=RANK[,RANK...]`, as in `without_stragglers`; `slowdowns`,
            all of them with the crashes; `network`, so that messages take no time.

    Returns:
        A row for the run and one for each removal: `without`, `seconds`, `updates`,
        `updates_per_second`, `gain` (that rate over the run's), `waiting` (share of the workers'
        time), `end` (what ended it).

    Raises:
        ConfigError: its config cannot be run any more, or a removal would change nothing.
    """
    (spec,) = runs(load(result.file("config.yaml")))
    cluster = spec.config.build_cluster()
    clusters = {removal: cluster_without(cluster, removal) for removal in removals}
    mileage, reached = result.manifest["mileage"], result.manifest["reached"]
    rows = [_rate_row("", mileage, result.workers, reached)]
    arguments = spec.arguments()
    for removal, changed in clusters.items():
        outcome = simulate(**{**arguments, "cluster": changed})
        rows.append(
            _rate_row(removal, outcome.progress._asdict(), outcome.workers, outcome.reached)
        )
    table = pd.DataFrame(rows)
    table.insert(4, "gain", table["updates_per_second"] / table["updates_per_second"].iloc[0])
    return table


def _rate_row(
    removal: str, progress: Mapping[str, float], workers: Mapping[str, Any], reached: str
) -> dict[str, Any]:
    seconds, updates = progress["time"], progress["updates"]
    spent = sum(float(np.sum(workers[state])) for state in STATES)
    return {
        "without": removal or "-",
        "seconds": seconds,
        "updates": updates,
        "updates_per_second": updates / seconds if seconds else math.nan,
        "waiting": float(np.sum(workers["waiting"])) / spent if spent else math.nan,
        "end": reached,
    }


def cluster_without(cluster: Cluster, removal: str) -> Cluster:
    """The cluster without what `removal` names.

    Raises:
        ConfigError: it names nothing that can be removed, or nothing that the cluster has.
    """
    kind, equals, said = removal.partition("=")
    if kind == "straggler" and equals:
        ranks = [int(rank) if rank.isascii() and rank.isdigit() else -1 for rank in said.split(",")]
        if not all(0 <= rank < cluster.workers for rank in ranks):
            raise _nothing(removal, f"ranks below workers = {cluster.workers}", said)
        return without_stragglers(cluster, ranks, removal)
    if removal not in REMOVALS:
        raise _nothing(removal, f"straggler=RANK, {' or '.join(REMOVALS)}", removal)
    changed = REMOVALS[removal](cluster)
    if changed is cluster:
        raise _nothing(removal, f"a run with {removal} to remove", "one without")
    return changed


def _nothing(removal: str, expected: str, got: str) -> ConfigError:
    return ConfigError("", f"expected {expected}, got {format_value(got)}", f"--without {removal}")


def _without_network(cluster: Cluster) -> Cluster:
    """Messages between the same nodes that take no time; the cluster itself where that holds
    already.
    """
    network = cluster.network
    if network.unlimited and network.latency == 0:
        return cluster
    hosts = network.hosts and replace(network.hosts, bandwidth=math.inf, latency=0.0)
    groups = network.groups and replace(
        network.groups, trunks=[Trunk(trunk.switches, trunk.to) for trunk in network.groups.trunks]
    )
    free = Network(
        network.topology,
        message_bytes=network.message_bytes,
        colocated=network.colocated,
        hosts=hosts,
        groups=groups,
    )
    return replace(cluster, network=free)


REMOVALS: Mapping[str, Callable[[Cluster], Cluster]] = {
    "slowdowns": lambda cluster: replace(cluster, slowdowns=()) if cluster.slowdowns else cluster,
    "network": _without_network,
}


def without_stragglers(cluster: Cluster, ranks: Collection[int], removal: str) -> Cluster:
    """The cluster on which the workers `ranks` are like the others.

    They have no slowdowns and no crashes. Where a trace has rows for each worker, their k-th is the
    median of the other workers' k-th rows, which begin again at their end. Where machines differ by
    a law, their mean is the law's. Other laws are the same for all workers.

    Raises:
        ConfigError: they have nothing of their own, or something whose removal is not defined.
    """
    law, factor = cluster.compute, 1.0
    if isinstance(cluster.compute, Scaled):
        law, factor = cluster.compute.law, cluster.compute.factor
    others = [rank for rank in range(cluster.workers) if rank not in ranks]
    compute: Distribution = law
    if isinstance(law, TwoLevelGamma):
        compute = Replaced(law, dict.fromkeys(ranks, Gamma(law.mean, law.batch_cv)))
    elif isinstance(law, Trace) and law.worker is not None:
        if not others:
            raise _nothing(removal, "another worker, whose times it could have", "none")
        compute = Replaced(
            law, dict.fromkeys(ranks, Measured(median_rows(law, others), law.order, repr(law)))
        )
    elif not isinstance(law, Trace) and (hasattr(law, "of_worker") or hasattr(law, "machine")):
        raise _nothing(removal, "a law of laggard's own", type(law).__name__)
    slowdowns = [_spare(one, ranks, removal) for one in cluster.slowdowns]
    if compute is law and slowdowns == list(cluster.slowdowns):
        raise _nothing(
            removal, "a worker with slowdowns or compute times of its own", "one like all others"
        )
    return replace(
        cluster, compute=Scaled(compute, factor) if factor != 1.0 else compute, slowdowns=slowdowns
    )


def median_rows(trace: Trace, ranks: Sequence[int]) -> Seconds:
    """The median of the k-th rows of the workers `ranks`, for each k of the longest: `(rows,)`, in
    seconds.
    """
    each = [trace.by_rank[rank] for rank in ranks]
    return np.asarray(np.median([np.resize(own, max(map(len, each))) for own in each], axis=0))


def _spare(slowdown: Slowdown | Crash | Recorded, ranks: Collection[int], removal: str) -> Any:
    """A slowdown without the workers `ranks`; where nobody is left, one that slows nobody, so that
    others keep their place in the list and with it their random moments.
    """
    if isinstance(slowdown, Recorded):
        rows = [_without_ranks(row, ranks) for row in slowdown.rows]
        return (
            slowdown
            if rows == list(slowdown.rows)
            else Recorded([row for row in rows if row is not None])
        )
    hit = [rank for rank in ranks if slowdown.hits(rank)]
    if not hit:
        return slowdown
    if not isinstance(slowdown, Group):
        raise _nothing(removal, "a slowdown of laggard's own", type(slowdown).__name__)
    return _without_ranks(slowdown, ranks) or Factor(hit[0], factor=1.0)


def _without_ranks(slowdown: GroupT, ranks: Collection[int]) -> GroupT | None:
    """The slowdown of the others of its group, if there are any."""
    rest = [rank for rank in slowdown.ranks if rank not in ranks]
    if rest == list(slowdown.ranks):
        return slowdown
    return replace(slowdown, worker=None, workers=rest) if rest else None


@dataclass(frozen=True)
class Replaced:
    """A law under which some workers have another law.

    Attributes:
        law: of all others.
        own: rank -> its law.
    """

    law: Distribution
    own: Mapping[int, Distribution]

    @property
    def mean(self) -> float:
        return self.law.mean

    @property
    def std(self) -> float:
        return self.law.std

    def draw(self, rng: np.random.Generator, n: int) -> Seconds:
        return self.law.draw(rng, n)

    def of_worker(self, rank: int) -> Distribution:
        """The law of worker `rank`."""
        return self.own[rank] if rank in self.own else of_worker(self.law, rank)

    def check_workers(self, workers: int) -> None:
        """As `law` does."""
        check_workers(self.law, workers)
