"""What a run's ties in time decide, told before it is run."""

from dataclasses import replace

from laggard.experiments.config.grid import RunSpec
from laggard.simulator import Stop, simulate

TIED = 1024
"""The largest cluster whose ties are looked at before a run, in some tenths of a second."""


def starved_ranks(spec: RunSpec) -> list[int]:
    """The workers whose shards are never learnt because others win every tie in time, and would be if ties were random.

    None where compute times are random, workers are more than `TIED`, or all learn the same: all permute the whole
    training set (`partition: iid`), or have the same quadratic. The clock of the run's own cluster and method tells it,
    over 50 updates and without learning.
    """
    config = spec.config
    cluster = config.cluster
    tied = cluster.ties == "rank" and cluster.compute.law == "constant" and cluster.workers <= TIED
    if not tied or not config.task.workers_differ:
        return []
    params = sum(layer.params for layer in config.task.layers())
    found = []
    for ties in ("rank", "random"):
        built = replace(config.build_cluster(), ties=ties)
        if built.network.message_bytes is None:
            built = replace(built, network=replace(built.network, message_bytes=4.0 * params))
        stop = Stop(updates=50, gradients=100 * cluster.workers)
        updates = simulate(built, config.algorithm.build(cluster.workers), stop=stop, seed=config.seed).updates
        applied = updates["worker"][updates["status"] == "applied"]
        found.append(set(range(cluster.workers)).difference(applied.tolist()))
    by_rank, at_random = found
    return sorted(by_rank - at_random)
