"""Asynchronous federated learning: FedAsync, which mixes in each model, and FedBuff, a buffer."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal

from laggard.simulator.algorithms.base import Role
from laggard.simulator.algorithms.clients import (
    ClientAnswer,
    Clients,
    ModelClients,
    check_in_flight,
)
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import NonNegative, Positive, PositiveInt, Range
from laggard.simulator.learning.weights import total

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class InFlight(ModelClients):
    """A method whose server keeps C clients at work, and asks another whenever one has answered.

    Mean staleness, in updates of K answers each: (C - 1) / K.

    Attributes:
        in_flight: C, clients that work at a time; all by default.
    """

    in_flight: PositiveInt | None = field(default=None, kw_only=True)

    def check(self, cluster: Cluster) -> None:
        super().check(cluster)
        check_in_flight(self, "in_flight", cluster)

    def server(self, node: Node) -> Role:
        clients = Clients(node, self.timeout)
        gathered = list[ClientAnswer]()
        yield from clients.register()
        while True:
            free = (self.in_flight or node.workers) - clients.busy
            for client in clients.draw(free):
                clients.ask(client)
            answer = yield from clients.answer()
            if answer is None:
                continue
            gathered.append(answer)
            if len(gathered) == self.answers:
                yield node.work(node.apply_seconds)
                gradients = [gradient for each in gathered for gradient in each.gradients]
                node.apply(self.merge(node.weights, gathered), gradients)
                gathered = []

    @property
    def answers(self) -> int:
        """K, the number of answers that make an update."""
        return 1

    def merge(self, weights: "Tensor", answers: list[ClientAnswer]) -> "Tensor":
        """The server's next weights `(ensemble, params)`."""
        raise NotImplementedError


@dataclass(frozen=True)
class FedAsync(InFlight):
    """FedAsync: the server mixes each client's model into its own as it arrives.

        w <- (1 - a s(tau)) w + a s(tau) x_i

    after H local steps of client i, tau updates after it read, with s(tau) = 1 (constant), (1 +
    tau)^-power (polynomial), or 1 up to tau = hinge_from and 1 / (power (tau - hinge_from) + 1)
    above (hinge). With one client and a s = 1, w <- x_i. Mean staleness C - 1.

    Source: Xie et al. (2019), arXiv 1903.03934, algorithm 1 and section 5.

    Attributes:
        share: a, the weight of a fresh client's model.
        staleness_weight: s, the factor by which staleness lowers it.
        power: the exponent of `polynomial`, and the slope of `hinge`.
        hinge_from: the staleness up to which `hinge` is 1.
    """

    share: Annotated[float, Range(above=0, most=1)] = field(default=0.6, kw_only=True)
    staleness_weight: Literal["constant", "polynomial", "hinge"] = field(
        default="polynomial", kw_only=True
    )
    power: NonNegative = field(default=0.5, kw_only=True)
    hinge_from: NonNegative = field(default=4.0, kw_only=True)

    def weight_at(self, staleness: int) -> float:
        """s(tau), in (0, 1]."""
        if self.staleness_weight == "polynomial":
            return float((1 + staleness) ** -self.power)
        if self.staleness_weight == "hinge" and staleness > self.hinge_from:
            return 1 / (self.power * (staleness - self.hinge_from) + 1)
        return 1.0

    def merge(self, weights: "Tensor", answers: list[ClientAnswer]) -> "Tensor":
        (answer,) = answers
        share = self.share * self.weight_at(answer.staleness)
        model: Tensor = answer.result
        return (1 - share) * weights + share * model


@dataclass(frozen=True)
class FedBuff(InFlight):
    """FedBuff: the server applies the changes of every K answers, however old, in one update.

        w <- w + server_lr (1/K) sum_k s(tau_k) (x_k - w_k)

    where client k read w_k and made x_k of it by H local steps, with s(tau) = (1 + tau)^-power. The
    sum is divided by K, not by the sum of the weights s. Mean staleness (C - 1) / K, in updates.
    With H = 1, power 0, C = M and plain SGD it is `soft_sync`.

    Source: Nguyen et al. (2022), arXiv 2106.06639, algorithm 1.

    Attributes:
        buffer: K, answers that make an update.
        server_lr: the step along the mean change.
        power: the exponent of s; 0 counts all changes alike.
    """

    buffer: PositiveInt = field(default=10, kw_only=True)
    server_lr: Positive = field(default=1.0, kw_only=True)
    power: NonNegative = field(default=0.5, kw_only=True)

    @property
    def answers(self) -> int:
        return self.buffer

    def merge(self, weights: "Tensor", answers: list[ClientAnswer]) -> "Tensor":
        changes = []
        for answer in answers:
            weight = (1 + answer.staleness) ** -self.power
            changes.append(weight * (answer.result - answer.read))
        step = total(changes) / self.buffer
        return weights + self.server_lr * step
