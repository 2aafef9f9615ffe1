"""The clock without learning: cycles per second, messages per second, and what a record of them
takes.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import cycle
from math import isqrt, log
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import numpy as np
import torch
from simpy.events import Event
from torch import Tensor

from laggard.simulator import ALGORITHMS, Cluster, Evaluate, Network, Rule, Stop, Timing, simulate
from laggard.simulator.network.groups import Groups, Trunk
from laggard.simulator.network.topology import SERVER, Complete, Star, Topology
from laggard.simulator.network.transport import Transport
from laggard.simulator.timing.clock import Clock
from laggard.simulator.timing.distributions import Exponential
from tests.benchmarks.alternation import (
    BareSimPy,
    Row,
    in_a_process,
    peak_memory,
    rounded,
    speed_of,
)

SIZES = {
    **dict.fromkeys(("async_ps", "sync_ps", "sgp"), (16, 256, 4096, 65_536)),
    "all_reduce": (16, 256, 4096),
}
"""Numbers of workers of each method; a round of all-reduce would be 2 P (P - 1) messages, and is in
lock step.
"""
FLOWS = (16, 256, 1024)
ALLOWED = 2**30 / 10**7
"""Bytes an update, where ten million fill 1 GiB."""


class Turns(Timing):
    """No learning; at each evaluation bare SimPy, with as many processes, takes its turn.

    Attributes:
        seconds, bare: process time of each of the engine's turns, and timeouts a second of SimPy's
            after it.
        memory: bytes of the process after its first turn.
    """

    def __init__(self, processes: int, turn: float) -> None:
        super().__init__()
        self._rival, self._turn = BareSimPy(processes), turn
        self.seconds, self.bare, self.memory, self._since = (
            list[float](),
            list[float](),
            0,
            process_time(),
        )

    def evaluate(self, weights: Tensor) -> Mapping[str, Tensor]:
        """End the engine's turn, measure the rival, and begin the next turn."""
        self.seconds.append(process_time() - self._since)
        self.memory = self.memory or (peak_memory() if self.seconds[1:] else 0)
        self.bare.append(self._rival.speed(self._turn))
        self._since = process_time()
        return super().evaluate(weights)


def cycles(
    method: str, workers: int, turn: float, rounds: int
) -> tuple[list[float], list[float], float]:
    """Cycles and bare SimPy's timeouts per second of process time, a turn each, and bytes of memory
    a worker.

    Compute times are exponential, the network is free. A cycle is a worker's: it computes, sends,
    receives. Turns have at least two cycles of every worker, and two rounds of a method in
    lock-step.
    """
    before = peak_memory()
    seconds = max(2 if method == "async_ps" else 2 * log(workers) + 2, turn * 1e5 / workers)
    task, stop = Turns(workers, turn), Stop(time=(rounds + 1.5) * seconds)
    evaluate, cluster = Evaluate(every_seconds=seconds), Cluster(workers, Exponential(mean=1.0))
    applied = simulate(
        cluster, ALGORITHMS[method](Rule()), task, stop=stop, evaluate=evaluate
    ).metrics["samples"]
    counts = np.diff(applied)[1 : rounds + 1]  # the first turn has the start in it
    speeds = [
        float(count) / task.batch / spent
        for count, spent in zip(counts, task.seconds[2:], strict=False)
    ]
    return speeds, task.bare[2 : len(speeds) + 2], (task.memory - before) / workers


def clock(quick: bool, device: torch.device) -> Iterator[Row]:
    """A row a method and number of workers; a quick bench leaves out the largest."""
    turn, rounds = (0.1, 3) if quick else (0.6, 5)
    for method, sizes in SIZES.items():
        for workers in sizes[:3] if quick else sizes:
            speeds, bare, memory = in_a_process(cycles, method, workers, turn, rounds)
            unit = f"cycles/s, {rounded(memory / 1024)} KiB/worker"
            yield Row.between(
                "cycles / SimPy's timeouts", f"{method}, P = {workers:,}", speeds, bare, unit
            )


class Arrival(Event):
    """A message's arrival, at which the next of its flow leaves."""

    def __init__(self, env: Clock, then: Callable[[], None]) -> None:
        self.env, self.callbacks = env, [lambda _: then()]
        self._ok, self._value = True, None


class Traffic:
    """So many flows, each of which sends its next message when the one before has arrived.

    Sizes are exponential with a mean of 1 MB, cards have 1 GB/s each way, and there is no latency.
    """

    def __init__(
        self,
        flows: int,
        route: Callable[[int], tuple[int, int]],
        topology: Topology,
        groups: Groups | None = None,
    ) -> None:
        self.clock, self._route, self.arrived = Clock(), route, 0
        network = Network(topology=topology, bandwidth=1e9, sharing="fair", groups=groups)
        self._transport = Transport(self.clock, network, topology, max(flows, 2))
        self._sizes = cycle(np.random.default_rng(0).exponential(1e6, size=1009).tolist())
        for flow in range(flows):
            self._send(flow)

    def next_arrival(self) -> None:
        """Let time pass until one more message has arrived."""
        self.clock.stopped = False
        self.clock.run_to_end()

    def _send(self, flow: int) -> None:
        sender, receiver = self._route(flow)
        self._transport.carry(
            sender, receiver, next(self._sizes), Arrival(self.clock, lambda: self._on(flow))
        )

    def _on(self, flow: int) -> None:
        self.arrived += 1
        self.clock.stopped = True
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


def racks(flows: int) -> Groups:
    """As many racks as workers in each, 4 to 1 at a core, so that a message between two crosses
    four links.
    """
    count = isqrt(flows)
    return Groups(count, trunks=[Trunk(range(count), "core", oversubscription=4.0)], servers="core")


def to_the_next_rack(flows: int) -> Traffic:
    """Every flow goes from a worker to the one at its place in the next rack."""
    return Traffic(
        flows, lambda flow: (flow, (flow + isqrt(flows)) % flows), Complete(), racks(flows)
    )


def to_the_core(flows: int) -> Traffic:
    """Every flow is a worker's, over its rack's trunk into the one card of the server."""
    return Traffic(flows, lambda flow: (flow, SERVER), Star(), racks(flows))


def across_racks(flows: int) -> Traffic:
    """Every message goes between two workers of different racks, drawn anew for each."""
    rng, size = np.random.default_rng(1), isqrt(flows)
    senders = rng.integers(flows, size=4099)
    receivers = (
        senders // size + 1 + rng.integers(size - 1, size=4099)
    ) % size * size + rng.integers(size, size=4099)
    drawn = cycle(zip(senders.tolist(), receivers.tolist(), strict=True))
    return Traffic(flows, lambda _: next(drawn), Complete(), racks(flows))


TRAFFIC: dict[str, Callable[[int], Traffic]] = {
    "star": to_the_server,
    "random pairs": at_random,
    "to the next rack": to_the_next_rack,
    "racks to a server": to_the_core,
    "across racks at random": across_racks,
}


def messages(kind: str, flows: int, turn: float, rounds: int) -> tuple[list[float], list[float]]:
    """Messages per second of process time, and bare SimPy's timeouts with as many processes, a turn
    each.
    """
    traffic, rival = TRAFFIC[kind](flows), BareSimPy(flows)
    speed_of(traffic.next_arrival, turn / 4)
    pairs = [(speed_of(traffic.next_arrival, turn), rival.speed(turn)) for _ in range(rounds)]
    return [mine for mine, _ in pairs], [bare for _, bare in pairs]


def network(quick: bool, device: torch.device) -> Iterator[Row]:
    """A row a kind of traffic and number of messages that are always under way."""
    for kind in TRAFFIC:
        for flows in FLOWS:
            speeds, bare = in_a_process(messages, kind, flows, *((0.15, 3) if quick else (1.0, 5)))
            yield Row.between(
                "messages / SimPy's timeouts", f"{kind}, {flows} flows", speeds, bare, "messages/s"
            )


def record(updates: int) -> tuple[int, int, float]:
    """Bytes in memory at the peak, bytes on disk, and updates a second of a run from its config to
    its files.
    """
    from laggard.experiments.config.grid import fill_swept_keys
    from laggard.experiments.running.run import run

    document = {
        "name": "recorded",
        "cluster": {"workers": 1},
        "algorithm": {"name": "delayed", "delay": 15},
        "task": {"model": "timing"},
        "evaluate": {"every_updates": 10 * updates},
    }
    with TemporaryDirectory() as out:
        # the imports that a first run makes
        run(fill_swept_keys({**document, "stop": {"updates": 100}}), out)
        before, start = peak_memory(), process_time()
        result = run(fill_swept_keys({**document, "stop": {"updates": updates}}), out)
        disk = sum(file.stat().st_size for file in Path(result.path).iterdir())
        return peak_memory() - before, disk, updates / (process_time() - start)


def recording(quick: bool, device: torch.device) -> Iterator[Row]:
    """One row: memory of recorded updates, over what ten million in 1 GiB may take."""
    updates = 10**6 if quick else 10**7
    memory, disk, speed = in_a_process(record, updates)
    ratio, behind = (
        memory / updates / ALLOWED,
        f"{disk / updates:.3g} bytes/update on disk, {rounded(speed)} updates/s",
    )
    yield Row("memory / (1 GiB / 10^7)", f"{updates:,} updates recorded", [ratio], behind)
