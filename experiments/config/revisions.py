"""Rules of the simulation that have changed since an earlier version, and the runs that they
affect.

A run that a changed rule can affect gets a new id, so that its old result does not pass for a new
one. All other runs keep their ids.
"""

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from laggard.experiments.config.config import Config

CONTINUOUS_LAWS = ("exponential", "shifted_exponential", "gamma", "lognormal", "pareto", "uniform")
"""Laws under which an event never falls on a moment that a user writes."""


def revisions_of(config: "Config") -> dict[str, int]:
    """The names and revision numbers of the changed rules that can affect the run."""
    return {name: number for name, (number, touches) in REVISIONS.items() if touches(config)}


def _has_decimal_moments(config: "Config") -> bool:
    """Whether sums of seconds may fall on a moment that the config names."""
    if getattr(config.cluster.compute, "law", None) in CONTINUOUS_LAWS:
        return False
    moments: list[Any] = [config.stop.time, config.evaluate.every_seconds]
    moments += config.cluster.server_crashes
    for slowdown in config.cluster.slowdowns:
        moments += [getattr(slowdown, "at", None), getattr(slowdown, "file", None)]
    moments.append(getattr(config.cluster.network, "changes", None))
    return any(moment is not None for moment in moments)


def _averages_uneven_shards(config: "Config") -> bool:
    """Whether averages of models are weighted by numbers of samples that differ among workers."""
    if getattr(config.algorithm, "weighting", "equal") == "equal":
        return False
    return bool(config.task.shards_differ(config.cluster.workers))


def _sends_in_collectives(config: "Config") -> bool:
    """Whether nodes go on before what they send inside a collective has arrived."""
    algorithm, network = config.algorithm, config.cluster.network
    if getattr(algorithm, "collective", None) is None or network.rendezvous:
        return False
    if getattr(algorithm, "replicas", config.cluster.workers) == 1:
        return False
    return network.changes is not None or _has_latency(network.model_dump())


def _sends_without_waiting(config: "Config") -> bool:
    """Whether a worker that awaits no answer may have to wait until its bytes have left."""
    algorithm, network = config.algorithm, config.cluster.network
    if hasattr(algorithm, "n_push"):
        waits = algorithm.n_push % algorithm.n_fetch == 0  # each push is answered
    elif hasattr(algorithm, "outstanding"):
        waits = False
    else:
        waits = not getattr(algorithm, "cancel", False)
    if waits:
        return False
    return network.changes is not None or _limits_bandwidth(network.model_dump())


def _takes_signs_back(config: "Config") -> bool:
    """Whether dropped messages of signs may go back into their sender's memory."""
    algorithm = config.algorithm
    compress = getattr(algorithm, "compress", None)
    if compress is None or (compress.name, compress.feedback) != ("sign", "ef"):
        return False
    drops_late_messages = hasattr(algorithm, "cancel") or hasattr(algorithm, "local_steps")
    return drops_late_messages and getattr(algorithm, "wait_for", None) is not None


def _orders_changes(config: "Config") -> bool:
    """Whether a server's change may wait for the bytes of the model before it to leave."""
    if getattr(config.algorithm, "compress_down", None) is None:
        return False
    return _sends_without_waiting(config)


def _reads_a_file(config: "Config") -> bool:
    """Whether a table or a graph in a file describes a part of the cluster."""
    cluster = config.as_dict()["cluster"]
    return any(values.get("file") is not None for values in _mappings(cluster))


def _answers_returning_workers(config: "Config") -> bool:
    """Whether a worker may return from an outage before the server's pending answers are sent."""
    algorithm, cluster = config.algorithm, config.cluster
    returns = cluster.members.downtime is not None
    for slowdown in cluster.slowdowns:
        in_file = getattr(slowdown, "file", None) is not None
        returns = returns or in_file or getattr(slowdown, "back", None) is not None
    if not returns:
        return False
    if algorithm.name == "async_diloco":
        return bool(algorithm.grace)
    return algorithm.name in ("sync_ps", "k_sync") and not getattr(algorithm, "cancel", False)


def _schedules_few_members(config: "Config") -> bool:
    """Whether nodes with their own optimisers may shrink to fewer, under a schedule of the rate."""
    algorithm, cluster = config.algorithm, config.cluster
    if getattr(algorithm, "on_crash", None) != "shrink":
        return False
    if algorithm.name in ("all_reduce", "priority_all_reduce", "power_sgd"):
        return False
    if cluster.members.start == 0 and cluster.members.uptime is None and not cluster.slowdowns:
        return False
    return bool(config.as_dict()["learning"]["schedule"] != {"name": "constant"})


def _draws_for_fragments(config: "Config") -> bool:
    """Whether nodes compress fragments of a model by random draws."""
    compress = getattr(config.algorithm, "compress", None)
    if compress is None or compress.name not in ("random_k", "qsgd"):
        return False
    return getattr(config.algorithm, "fragments", 1) > 1


def _restarts_pipelines(config: "Config") -> bool:
    """Whether a pipeline that lost a stage may begin again."""
    if config.algorithm.name != "async_pipelines":
        return False
    return any(
        getattr(slowdown, "file", None) is not None or getattr(slowdown, "back", None) is not None
        for slowdown in config.cluster.slowdowns
    )


def _stops_members_at_accuracy(config: "Config") -> bool:
    """Whether an ensemble ends at an accuracy."""
    return config.stop.accuracy is not None and bool(config.sweep)


def _has_latency(settings: Any) -> bool:
    """Whether any setting of a network gives messages a latency."""
    return any(values.get("latency") for values in _mappings(settings))


def _limits_bandwidth(settings: Any) -> bool:
    """Whether any setting of a network limits a bandwidth, so that bytes take time."""
    for values in _mappings(settings):
        for key in ("bandwidth", "server_bandwidth"):
            if values.get(key) is not None and values[key] < math.inf:
                return True
    return False


def _mappings(settings: Any) -> Iterator[dict[str, Any]]:
    """All mappings in nested settings."""
    if isinstance(settings, dict):
        yield settings
        settings = list(settings.values())
    if isinstance(settings, list):
        for item in settings:
            yield from _mappings(item)


REVISIONS: dict[str, tuple[int, Callable[["Config"], bool]]] = {
    # limits, periods and crashes count what falls on them (`laggard.simulator.timing.clock`)
    "decimal moments": (1, _has_decimal_moments),
    # local_sgd and diloco weight a model by its worker's samples
    "weighting by samples": (1, _averages_uneven_shards),
    # a send in a collective is complete when its bytes have left (`Network.rendezvous`)
    "sends of collectives": (1, _sends_in_collectives),
    # a worker that awaits no answer waits for its bytes to leave (`outstanding`)
    "sends to servers": (1, _sends_without_waiting),
    # e + C(p) for p, which differs in the last bits (`Encoder._take_back`)
    "dropped signs": (1, _takes_signs_back),
    # a change does not overtake the model that it changes (`CompressedAnswers`)
    "order of changes": (1, _orders_changes),
    # a worker that is back from a crash gets one answer (`Synchronous.first`, `AsyncDiLoCo.server`)
    "answers after returns": (1, _answers_returning_workers),
    # a schedule in epochs counts the mini-batches of the nodes that are up (`state_among_members`)
    "epochs of members": (1, _schedules_few_members),
    # each message of a node has its own draws, also of another fragment (`Compressing.encoders`)
    "draws of fragments": (1, _draws_for_fragments),
    # a pipeline begins again once all its stages are up (`AsyncPipelines.restart_group`)
    "returns of stages": (1, _restarts_pipelines),
    # an ensemble ended once its first member had the accuracy, which cut off the others
    "accuracy of members": (1, _stops_members_at_accuracy),
    # units within names of columns, and forms of graphs, were taken for others (`laggard.units`)
    "files of other tools": (1, _reads_a_file),
}
