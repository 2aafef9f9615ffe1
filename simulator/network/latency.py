"""Latencies that differ from message to message, without overtaking between two nodes."""

from typing import Any, cast

import numpy as np

from laggard.simulator.network.config import Network
from laggard.simulator.timing.clock import MOMENT_TOLERANCE, Clock
from laggard.simulator.timing.distributions import Distribution, Durations
from laggard.simulator.timing.distributions.distribution import is_law
from laggard.simulator.timing.steps import StepFunction
from laggard.simulator.timing.streams import LATENCY, StoredStream


class Latencies:
    """The latencies of messages, where they are drawn from a distribution or change over time.

    Messages from one node to another arrive in the order in which their last bytes leave: with t_k
    the moment at which the last byte of message k leaves and l_k its latency, it arrives at max(t_k
    + l_k, arrivals of those before it).
    """

    def __init__(self, env: Clock, network: Network, seed: int) -> None:
        self._env = env
        self._network = network
        self._seed = seed
        self._generator = np.random.default_rng(0)
        self._streams: dict[int, Durations] = {}
        # (left, latency, arrival)
        self._under_way: dict[tuple[int, int], list[tuple[float, float, float]]] = {}

    def draw(self, latency: Any, sender: int) -> float:
        """The latency (s) of the next message of node `sender`: present, constant or drawn."""
        law: float | Distribution = latency
        if isinstance(latency, StepFunction):
            law, _ = latency.at(self._env.now * (1 + MOMENT_TOLERANCE))
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
        under_way, later = [], []
        for message in self._under_way.get(pair, []):
            message_left, message_latency, message_arrives = message
            if message_arrives <= now:
                continue
            under_way.append(message)
            # One with a shorter latency that left before is later only by rounding.
            if message_left <= left and message_latency > latency and message_arrives > arrives:
                later.append(message_arrives)
        if later:
            arrives = max(later)
            self._env.at(arrives, arrival)  # to the bit, which `now + (arrives - now)` may miss
        else:
            self._env.after(delay + latency, arrival)
        self._under_way[pair] = [*under_way, (left, latency, arrives)]

    def cut(self, rank: int) -> None:
        """Remove the messages from and to node `rank`, which are lost."""
        for pair in list(self._under_way):
            if rank in pair:
                del self._under_way[pair]
