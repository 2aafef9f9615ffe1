"""Warnings about implausible networks in a config, before anything is simulated."""

import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from laggard.experiments.config.config import Config
    from laggard.experiments.config.grid import RunSpec
    from laggard.simulator import Network

SLOW_BANDWIDTH = 1e4
"""Bytes a second: a lower bandwidth was probably meant in Gb/s, unless messages are small too."""
LONG_MESSAGE = 1000.0
"""Seconds of a message, below which a low bandwidth is probably intended."""
LONG_LATENCY = 10.0
"""Seconds: a longer latency was probably meant in ms or us."""


def warn_of_networks(path: str, planned: "Sequence[RunSpec]") -> None:
    """Print each warning once, with the first run that it is about."""
    told = set()
    for run in planned:
        for key, problem in network_problems(run.config):
            if key in told:
                continue
            told.add(key)
            print(f"{path}: warning: {key}: {run.title}: {problem}", file=sys.stderr)


def network_problems(config: "Config") -> list[tuple[str, str]]:
    """The implausible keys of a network, each with the reason and a remedy."""
    network = config.build_cluster().network
    problems = []
    slowest = min(_bandwidths(network))
    if math.isfinite(slowest) and network.message_bytes is None and _is_empty(config):
        key = "cluster.network.message_bytes"
        problem = "messages have 0 bytes, so that the bandwidth changes nothing"
        problems.append((key, f"{problem}; set it to the size of your model"))
    is_long = network.message_bytes is None or network.message_bytes > LONG_MESSAGE * slowest
    if slowest < SLOW_BANDWIDTH and is_long:
        problem = f"{slowest:g} bytes/s; a number without a unit is bytes/s: write 10 Gb/s"
        problems.append(("cluster.network.bandwidth", problem))
    latency = network.latency
    if isinstance(latency, float | int) and latency > LONG_LATENCY:
        problem = f"{latency:g} s; a number without a unit is seconds: write 100 us"
        problems.append(("cluster.network.latency", problem))
    return problems


def _bandwidths(network: "Network") -> list[float]:
    """All bandwidths that a network's keys and tables name (bytes/s); an outage, 0, is none."""
    found = [network.bandwidth, network.server_bandwidth]
    found += [card.bandwidth for card in network.cards]
    found += [link.bandwidth for link in network.links]
    if network.changes is not None:
        found += [change.bandwidth for change in network.changes.rows]
    return [bandwidth for bandwidth in found if bandwidth]


def _is_empty(config: "Config") -> bool:
    """Whether the task has no parameters, as `timing` has none without a network's layers."""
    return config.task.model == "timing" and not any(layer.params for layer in config.task.layers())
