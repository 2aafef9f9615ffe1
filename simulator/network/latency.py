"""Latencies that differ from message to message: drawn, or of the moment; without overtaking
between two nodes.
"""

from typing import Any, cast

import numpy as np

from laggard.simulator.network.config import Network
from laggard.simulator.timing.clock import Clock
from laggard.simulator.timing.distributions import Distribution, Durations
from laggard.simulator.timing.distributions.distribution import is_law
from laggard.simulator.timing.steps import StepFunction
from laggard.simulator.timing.streams import LATENCY, StoredStream


class Latencies:
    """The latencies of messages, where a law says what they are, or where they change over time.

    Of two messages from one node to another, the one whose last byte leaves first arrives first:
    with t_k the moment at which that of message k leaves and l_k its latency, it arrives at max(t_k
    + l_k, arrivals of those before it).
    """

    def __init__(self, env: Clock, network: Network, seed: int) -> None:
        self._env, self._network, self._seed = env, network, seed
        self._generator = np.random.default_rng(0)
        self._streams: dict[int, Durations] = {}
        # (left, latency, arrival)
        self._under_way: dict[tuple[int, int], list[tuple[float, float, float]]] = {}

    def draw(self, latency: Any, sender: int) -> float:
        """The latency of the next message of node `sender` (s): a number, or drawn from a law, that
        of the moment.
        """
        law: float | Distribution = latency
        if isinstance(latency, StepFunction):
            law, _ = latency.at(self._env.now)
        if not is_law(law):
            return cast(float, law)
        if sender not in self._streams:
            stream = StoredStream(self._generator, self._seed, LATENCY, sender)
            self._streams[sender] = Durations(law, stream, sender)
        return self._streams[sender].next()

    def schedule(
        self, sender: int, receiver: int, delay: float, latency: float, arrival: Any
    ) -> None:
        """Schedule the `arrival` of a message whose last byte leaves in `delay` seconds."""
        now, pair = self._env.now, (sender, receiver)
        left, arrives = now + delay, now + (delay + latency)
        under_way = [one for one in self._under_way.get(pair, []) if one[2] > now]
        # those with a longer latency alone: others are no later but for rounding
        later = [
            other
            for since, longer, other in under_way
            if since <= left and longer > latency and other > arrives
        ]
        if later:
            arrives = max(later)
            self._env.at(arrives, arrival)
        else:
            self._env.after(delay + latency, arrival)
        self._under_way[pair] = [*under_way, (left, latency, arrives)]

    def cut(self, rank: int) -> None:
        """Forget the messages from and to node `rank`, which are lost."""
        self._under_way = {
            pair: under_way for pair, under_way in self._under_way.items() if rank not in pair
        }
