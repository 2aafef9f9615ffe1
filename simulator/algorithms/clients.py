"""Federated methods: a server asks some clients, which make local steps and answer."""

import math
from bisect import bisect_right
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from laggard.simulator.algorithms.base import Algorithm, Role
from laggard.simulator.algorithms.compressing import Compressing
from laggard.simulator.algorithms.local_steps import (
    Correction,
    restart_optimizer,
    take_local_steps,
)
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import InvalidSettingError, Positive, PositiveInt
from laggard.simulator.learning.gradients import GradientPromise
from laggard.simulator.learning.rules import Rule
from laggard.simulator.network.topology import SERVER
from laggard.simulator.timing.distributions.distribution import is_same_for_all
from laggard.simulator.timing.events import Event
from laggard.simulator.timing.slowdowns import Crash, Factor, Markov, Recorded, Window

if TYPE_CHECKING:
    from torch import Tensor

    from laggard.simulator.engine.stopping import Stop

# draws that decide whether a client can answer within its time-out
ROUNDS_DRAWN = 1000
MINI_BATCHES_DRAWN = 1_000_000  # in all of these rounds together, at most
MAX_GIVEN_UP = 20_000
"""Requests in a row given up, plus ten per worker, after which a run is stalled."""


class ClientAnswer(NamedTuple):
    """The answer of a client.

    Attributes:
        client: the client's rank.
        read: the model that the server sent it.
        result: the client's model, with further tensors where a method needs them.
        gradients: the gradients of its local steps.
        samples: the number of samples that it learns from.
    """

    client: int
    read: "Tensor"
    result: Any
    gradients: Sequence[GradientPromise]
    samples: int

    @property
    def staleness(self) -> int:
        """The number of updates that the server has made since it sent the model."""
        return self.gradients[0].staleness


class Clients:
    """A server's clients: which are idle, and which were asked and have not answered.

    A client is idle once it has announced itself, or has answered. If it announces itself although
    it was asked, it has crashed since, and the request is lost. If it does not answer within the
    time-out, it is given up: it is not asked again until it sends a message, and its late answer is
    dropped.

    Args:
        node: the server.
        timeout: seconds after which a client is given up; None waits for ever.
    """

    def __init__(self, node: Node, timeout: float | None = None) -> None:
        self._node = node
        self._timeout = timeout
        self._asked: dict[int, tuple[Tensor, float]] = {}  # what was read, and the last moment (s)
        self._samples: dict[int, int] = {}  # samples of each client that has announced itself
        self.idle: list[int] = []
        self._resting: set[int] = set()  # the clients in `idle`, which may be a million
        self._given_up = 0  # requests in a row

    @property
    def busy(self) -> int:
        """The number of clients that were asked, have not answered and are not given up."""
        return len(self._asked)

    def register(self) -> Role:
        """Wait for the first announcement, and for all others of that instant."""
        yield from self.answer()
        # A timer comes after all messages of its instant.
        yield self._node.after(0.0)
        while self._node.arrived():
            yield from self.answer()

    def draw(self, count: int, by_samples: bool = False) -> list[int]:
        """Draw at most `count` of the idle clients, one after another.

        Args:
            by_samples: whether a client is drawn in proportion to its samples; else all are equally
                likely.
        """
        drawn = list[int]()
        while self.idle and len(drawn) < count:
            if by_samples:
                place = self._place_by_samples()
            else:
                place = int(self._node.rng.integers(len(self.idle)))
            drawn.append(self.idle.pop(place))
        self._resting.difference_update(drawn)
        return drawn

    def _place_by_samples(self) -> int:
        """Draw an idle client in proportion to its samples; return its place among them."""
        ends = list(accumulate(self._samples[client] for client in self.idle))
        return bisect_right(ends, int(self._node.rng.integers(ends[-1])))

    def ask(self, client: int, more: Any = None, size: float = 1.0) -> None:
        """Send the server's present model to `client`, and `more` with it: `size` models in all."""
        last_moment = math.inf
        if self._timeout is not None:
            last_moment = self._node.now + self._timeout
        read = self._node.weights
        self._asked[client] = read, last_moment
        self._node.send(client, (read, more), size=size)

    def answer(self) -> Generator[Event, Any, ClientAnswer | None]:
        """Wait for an answer; None if a client announced itself, was too late, or was given up."""
        message = self._node.receive()
        # All have the same time-out: the one asked first is the first to be given up.
        _, last_moment = next(iter(self._asked.values()), (None, math.inf))
        if last_moment == math.inf:
            yield message
        else:
            yield message | self._node.after(max(0.0, last_moment - self._node.now))
        if not message.fired:
            self._give_up(last_moment)
            return None
        client, content = message.value
        asked = self._asked.pop(client, None)
        if client not in self._resting:  # else the client has crashed while it was idle
            self._resting.add(client)
            self.idle.append(client)
        if not isinstance(content, tuple):  # an announcement: the number of samples
            self._samples[client] = content
            return None
        result, gradients, samples = content
        if asked is None:  # too late
            drop(gradients)
            return None
        self._given_up = 0
        return ClientAnswer(client, asked[0], result, gradients, samples)

    def give_up(self) -> None:
        """Give up all clients that have not answered."""
        self._asked = {}

    def _give_up(self, moment: float) -> None:
        """Give up the clients whose time-out is over at `moment` (s)."""
        left = {client: asked for client, asked in self._asked.items() if asked[1] > moment}
        self._given_up += len(self._asked) - len(left)
        self._asked = left
        if self._given_up > MAX_GIVEN_UP + 10 * self._node.workers:
            timeout = f"algorithm.timeout = {self._timeout:g} s"
            self._node.stall(f"{self._given_up:,} requests in a row had no answer within {timeout}")


def drop(gradients: Sequence[GradientPromise]) -> None:
    """Drop all `gradients`."""
    for gradient in gradients:
        gradient.drop()


@dataclass(frozen=True)
class Federated(Algorithm):
    """A server asks clients, each of which makes H local steps and answers.

    x_i <- w, H times x_i <- x_i - lr g(x_i). The cluster's workers are the clients. A client's
    optimiser restarts with every request; its schedule continues. A client that crashes loses the
    request, and announces itself when it is back.

    Attributes:
        local_steps: H, mini-batches of a client from the read to the answer.
        timeout: seconds after which the server gives a client up, and drops its answer; null waits
            for ever.
    """

    rule: Rule
    local_steps: PositiveInt = field(default=8, kw_only=True)
    timeout: Positive | None = field(default=None, kw_only=True)

    def updates_in_parts(self, workers: int) -> bool:
        return False  # the rule is the clients' own, who have whole models

    def check_end(self, cluster: Cluster, stop: "Stop") -> None:
        """Refuse a time-out within which no client answers, where only updates end the run.

        Raises:
            InvalidSettingError: the local steps of every round drawn take longer.
        """
        super().check_end(cluster, stop)
        ends = stop.time is not None or stop.gradients is not None
        if ends or self.timeout is None:
            return
        law = cluster.compute
        if not is_same_for_all(law):  # some workers may be faster
            return
        rounds = max(1, min(ROUNDS_DRAWN, MINI_BATCHES_DRAWN // self.local_steps))
        durations = law.draw(np.random.default_rng(0), rounds * self.local_steps)
        at_full_speed = durations.reshape(rounds, self.local_steps).sum(axis=1).min()
        fastest = least_factor(cluster) * at_full_speed
        if fastest > self.timeout:
            shortest = f"the shortest of {rounds} times drawn for {self.local_steps} local steps"
            expected = f"at least {fastest:.3g} s, {shortest}, or a stop.time"
            raise InvalidSettingError(type(self).__name__, "timeout", expected, self.timeout)

    def correction(self, read: "Tensor", more: Any) -> Correction:
        """The function that a client applies to each gradient before its step; here the identity.

        Args:
            read: the server's model `(ensemble, params)`, from which the client started.
            more: the rest of the server's message.
        """
        return lambda gradient, _: gradient


@dataclass(frozen=True)
class ModelClients(Compressing, Federated):
    """A method whose clients send their models back, with `compress` as changes from w.

    A client's memory of compression stays until the client is drawn again. An answer that is
    dropped as too late goes back into the memory.

    Source: Li & Li (2023), arXiv 2211.14292, Fed-EF (compress).
    """

    def worker(self, node: Node) -> Role:
        node.send(SERVER, node.samples, size=0)  # announces the client
        state = self.rule.init(node.weights, replicas=node.workers)
        encoder = self.encoder(node)
        while True:
            _, (read, more) = yield node.receive()
            state = restart_optimizer(node, self.rule, state)
            model, state, gradients = yield from take_local_steps(
                node, self.rule, read, state, self.local_steps, self.correction(read, more)
            )
            if self.compress is not None:
                yield node.work(encoder.seconds)
                model = read + encoder.encode_change(model - read, gradients[-1])
            node.send(SERVER, (model, gradients, node.samples), size=encoder.size)


def least_factor(cluster: Cluster) -> float:
    """The least factor on the compute times of a worker, at any time; 0 where it is not known."""
    least = dict.fromkeys(range(cluster.workers), 1.0)
    for slowdown in cluster.slowdowns:
        if isinstance(slowdown, Crash):
            continue
        if isinstance(slowdown, Recorded):
            for rank, factors in slowdown.by_worker.items():  # 1 before the first row
                least[rank] *= min(factors.values)
        elif isinstance(slowdown, Factor):
            for rank in slowdown.ranks:
                least[rank] *= slowdown.factor
        elif isinstance(slowdown, Window | Markov):
            for rank in slowdown.ranks:
                least[rank] *= min(slowdown.factor, 1.0)
        else:
            return 0.0  # a plugin
    return min(least.values())


def check_in_flight(algorithm: Algorithm, key: str, cluster: Cluster) -> None:
    """Refuse more clients at a time than the cluster has workers.

    Raises:
        InvalidSettingError: the setting `key` is above the number of workers.
    """
    asked = getattr(algorithm, key)
    if asked is not None and asked > cluster.workers:
        expected = f"at most workers = {cluster.workers}, the clients"
        raise InvalidSettingError(type(algorithm).__name__, key, expected, asked)
