"""Messages that share a network fairly, always as many at once, in turn with bare SimPy in the same process."""

from collections.abc import Callable
from itertools import cycle

import numpy as np
from simpy.events import Event

from experiments.bench.alternation import BareSimPy, speed_of, within
from simulator import Network
from simulator.clock import Clock
from simulator.topology import SERVER, Complete, Star, Topology
from simulator.wires import Wires

Route = Callable[[int], tuple[int, int]]
"""From the number of a flow to the sender and the receiver of its next message."""


class Arrival(Event):
    """A message's arrival, at which the next of its flow leaves."""

    def __init__(self, clock: Clock, then: Callable[[], None]) -> None:
        self.env, self.callbacks = clock, [lambda _: then()]
        self._ok, self._value = True, None


class Traffic:
    """So many flows, each of which sends its next message when the one before has arrived.

    Sizes are exponential with a mean of 1 MB, cards have 1 GB/s each way, and there is no latency.
    """

    def __init__(self, flows: int, route: Route, topology: Topology) -> None:
        self.clock, self._flows, self._route = Clock(), flows, route
        network = Network(topology=topology, bandwidth=1e9, sharing="fair")
        self._wires = Wires(self.clock, network, topology, max(flows, 2))
        self._sizes = cycle(np.random.default_rng(0).exponential(1e6, size=1009).tolist())
        self.arrived = 0

    def begin(self) -> None:
        """Have every flow send its first message."""
        for flow in range(self._flows):
            self._send(flow)

    def next_arrival(self) -> None:
        """Let time pass until one more message has arrived."""
        before, step = self.arrived, self.clock.step
        while self.arrived == before:
            step()

    def _send(self, flow: int) -> None:
        sender, receiver = self._route(flow)
        self._wires.carry(sender, receiver, next(self._sizes), Arrival(self.clock, lambda: self._on(flow)))

    def _on(self, flow: int) -> None:
        self.arrived += 1
        self._send(flow)


def to_the_server(flows: int) -> Traffic:
    """Every flow is a worker's, into the one card of the server."""
    return Traffic(flows, lambda flow: (flow, SERVER), Star())


def at_random(flows: int) -> Traffic:
    """Every message goes between two of as many workers as there are flows, drawn anew for each."""
    rng = np.random.default_rng(1)
    pairs = rng.integers(flows, size=(4099, 2))
    pairs[:, 1] = (pairs[:, 0] + 1 + rng.integers(flows - 1, size=4099)) % flows
    drawn = cycle([(int(sender), int(receiver)) for sender, receiver in pairs])
    return Traffic(flows, lambda _: next(drawn), Complete())


TRAFFIC: dict[str, Callable[[int], Traffic]] = {"star": to_the_server, "random pairs": at_random}


def carried(kind: str, flows: int, turn: float, turns: int, patience: float) -> tuple[list[float], list[float]]:
    """Messages per second of process time, and bare SimPy's timeouts, a turn each.

    Raises:
        Late: the first messages had not left, or a turn not ended, after `patience` seconds of process time.
    """
    traffic, rival = TRAFFIC[kind](flows), BareSimPy(flows)
    messages, timeouts = [], []
    with within(patience):
        traffic.begin()
        speed_of(traffic.next_arrival, turn / 4)
    for _ in range(turns):
        with within(patience):
            messages.append(speed_of(traffic.next_arrival, turn))
        timeouts.append(rival.speed(turn))
    return messages, timeouts
