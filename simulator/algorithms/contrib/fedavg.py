"""Federated averaging in rounds of clients drawn at random: FedAvg, FedProx and SCAFFOLD."""

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from laggard.simulator.algorithms.base import Role
from laggard.simulator.algorithms.clients import (
    ClientAnswer,
    Clients,
    Federated,
    ModelClients,
    check_in_flight,
)
from laggard.simulator.algorithms.local_steps import (
    Correction,
    restart_optimizer,
    take_local_steps,
)
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import InvalidSettingError, NonNegative, Positive, PositiveInt, Range
from laggard.simulator.learning.gradients import GradientPromise
from laggard.simulator.learning.rules import SGD
from laggard.simulator.learning.rules.optimizers import zeros
from laggard.simulator.learning.rules.scalars import is_zero
from laggard.simulator.learning.weights import mean, mean_by_samples, total
from laggard.simulator.network.topology import SERVER
from laggard.simulator.timing.events import Event

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class InRounds(Federated):
    """A method whose server asks clients in rounds, and updates its model by their answers.

    An update is a round; staleness 0. With `select` the server asks more than C clients and takes
    the first C answers. At the time-out it goes on with the answers that came, and a round without
    any changes nothing. If all clients are equally fast, each of M takes part in C / M of the
    rounds.

    Attributes:
        clients: C, clients whose answers make an update; all by default.
        select: clients that are asked, over C; their number is rounded up.
    """

    clients: PositiveInt | None = field(default=None, kw_only=True)
    select: Annotated[float, Range(least=1, most=1e6)] = field(default=1.0, kw_only=True)

    def check(self, cluster: Cluster) -> None:
        super().check(cluster)
        check_in_flight(self, "clients", cluster)
        workers = cluster.workers
        if self.asked(workers) > workers:
            expected = f"so few that at most workers = {workers} are asked"
            raise InvalidSettingError(type(self).__name__, "select", expected, self.select)

    def awaited(self, workers: int) -> int:
        """C, the number of answers that make an update."""
        return self.clients or workers

    def asked(self, workers: int) -> int:
        """The number of clients that are asked in a round."""
        return math.ceil(self.select * self.awaited(workers) - 1e-9)  # 1.1 * 30 is rounded up

    def round(
        self,
        node: Node,
        clients: Clients,
        more: Any = None,
        size: float = 1.0,
        by_samples: bool = False,
    ) -> Generator[Event, Any, list[ClientAnswer]]:
        """Ask clients, and wait for the first C answers or the time-out.

        Args:
            more: the rest of the message besides the model; `size` models in all.
            by_samples: whether clients are drawn by their numbers of samples.

        Returns:
            The answers in order of rank.
        """
        asked = self.asked(node.workers)
        awaited = self.awaited(node.workers)
        while len(clients.idle) < asked:
            yield from clients.answer()
        for client in clients.draw(asked, by_samples):
            clients.ask(client, more, size)
        answers = list[ClientAnswer]()
        while clients.busy and len(answers) < awaited:
            answer = yield from clients.answer()
            if answer is not None:
                answers.append(answer)
        clients.give_up()
        yield node.work(node.apply_seconds)
        return sorted(answers, key=lambda answer: answer.client)


def gradients_of(answers: Sequence[ClientAnswer]) -> list[GradientPromise]:
    """The gradients of all local steps in `answers`."""
    return [gradient for answer in answers for gradient in answer.gradients]


@dataclass(frozen=True)
class FedAvg(ModelClients, InRounds):
    """FedAvg: in each round the server averages the models of C clients that it draws at random.

        x_i <- w;    H times x_i <- x_i - lr g(x_i);    w <- sum_i (n_i / n) x_i

    over the C clients of a round, where client i learns from n_i samples and n = sum_i n_i. With
    `sample: by_samples` clients are drawn one after another, each of those left with a probability
    in proportion to n_i, and all C count equally. With C = M of M clients it is `local_sgd` with
    `reset`. One model to each client that is asked, and one back. With exponential mini-batches of
    mean 1 / mu, H = 1 and a free network a round takes (1 / mu) (1 + 1/2 + .. + 1/C) seconds.

    On quadratics h_i (x - a_i)^2 / 2 with all clients and full gradients it tends to
    sum_i q_i a_i / sum_i q_i, q_i = 1 - (1 - lr h_i)^H, which is not the minimum of the mean.

    Source: McMahan et al. (2017), arXiv 1602.05629, algorithm 1; more clients than needed and
    time-outs: Bonawitz et al. (2019), arXiv 1902.01046; `by_samples`: Li et al. (2020), arXiv
    1812.06127, algorithm 1.

    Attributes:
        sample: how clients are drawn and weighed: equally likely and by their samples, or by their
            samples and equally.
    """

    sample: Literal["uniform", "by_samples"] = field(default="uniform", kw_only=True)

    def server(self, node: Node) -> Role:
        clients = Clients(node, self.timeout)
        yield from clients.register()
        by_samples = self.sample == "by_samples"
        while True:
            answers = yield from self.round(node, clients, by_samples=by_samples)
            weights = node.weights
            if answers:
                weights = self.average(answers)
            node.apply(weights, gradients_of(answers))

    def average(self, answers: Sequence[ClientAnswer]) -> "Tensor":
        """The model `(ensemble, params)` of a round's answers."""
        models = [answer.result for answer in answers]
        if self.sample == "by_samples":
            return mean(models)
        return mean_by_samples(models, [answer.samples for answer in answers])


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedProx: FedAvg whose clients are drawn back to the server's model.

        H times x_i <- x_i - lr (g(x_i) + proximal (x_i - w))

    with the gradient of client i's loss plus proximal |x - w|^2 / 2; all else is as in `fedavg`,
    which it equals with proximal 0.

    On quadratics as there, q_i = (1 - (1 - lr (h_i + proximal))^H) h_i / (h_i + proximal).

    Source: Li et al. (2020), arXiv 1812.06127, algorithm 2, with H steps as the inexact solver.

    Attributes:
        proximal: the weight of the squared distance from the server's model.
    """

    proximal: NonNegative = field(default=0.01, kw_only=True)

    def correction(self, read: "Tensor", more: Any) -> Correction:
        def drawn_back(gradient: GradientPromise, model: "Tensor") -> GradientPromise:
            return gradient.map(lambda value: value + self.proximal * (model - read))

        return drawn_back


class CorrectedSteps:
    """A client's local steps in one round of SCAFFOLD.

    Args:
        correction: c - c_i `(ensemble, params)`.
    """

    def __init__(self, correction: "Tensor") -> None:
        self._correction = correction
        self.gradient_sum = zeros(correction)

    def correct(self, gradient: GradientPromise, _: "Tensor") -> GradientPromise:
        """The gradient of a step, corrected; `gradient_sum` adds it up as it was."""
        self.gradient_sum = self.gradient_sum + gradient.value
        return gradient.map(lambda value: value + self._correction)


@dataclass(frozen=True)
class Scaffold(InRounds):
    """SCAFFOLD: clients correct their steps by the difference of the mean gradient and their own.

        x_i <- w;    H times x_i <- x_i - lr (g_i(x_i) - c_i + c);    c_i <- mean of these g_i;
        w <- w + server_lr mean_i (x_i - w);    c <- c + (1/M) sum_i (change of c_i)

    The first line is at each of the C clients of a round, the second at the server. At a constant
    rate the new c_i is c_i - c + (w - x_i) / (H lr). So sum_i c_i = M c after every round. Where
    clients differ it tends to the minimum of the mean loss, which `fedavg` does not. Two models to
    each client that is asked, and two back. A client that crashes begins again with c_i = 0, and
    where an answer is too late, c_i has changed but c has not: in both cases sum_i c_i is no longer
    M c.

    With H = 1, full gradients and all clients it is gradient descent.

    Source: Karimireddy et al. (2020), arXiv 1910.06378, algorithm 1, option II.

    Attributes:
        server_lr: the step along the mean change.
    """

    SPACE: ClassVar = {"learning.momentum": {"choice": [0.0]}}

    server_lr: Positive = field(default=1.0, kw_only=True)

    def check(self, cluster: Cluster) -> None:
        super().check(cluster)
        optimizer = self.rule.optimizer
        if not isinstance(optimizer, SGD) or not is_zero(optimizer.momentum):
            expected = "sgd without momentum, since SCAFFOLD corrects plain steps"
            raise InvalidSettingError("Rule", "optimizer", expected, optimizer)

    def worker(self, node: Node) -> Role:
        node.send(SERVER, node.samples, size=0)  # announces the client
        state = self.rule.init(node.weights, replicas=node.workers)
        control = zeros(node.weights)
        while True:
            _, (read, shared) = yield node.receive()
            state = restart_optimizer(node, self.rule, state)
            steps = CorrectedSteps(shared - control)
            model, state, gradients = yield from take_local_steps(
                node, self.rule, read, state, self.local_steps, steps.correct
            )
            mean_gradient = steps.gradient_sum / self.local_steps
            result = model, mean_gradient - control
            control = mean_gradient
            node.send(SERVER, (result, gradients, node.samples), size=2)

    def server(self, node: Node) -> Role:
        clients = Clients(node, self.timeout)
        shared = zeros(node.weights)
        yield from clients.register()
        while True:
            answers = yield from self.round(node, clients, shared, size=2)
            weights = node.weights
            if answers:
                step = mean([answer.result[0] - answer.read for answer in answers])
                weights = weights + self.server_lr * step
                shared = shared + total([answer.result[1] for answer in answers]) / node.workers
            node.apply(weights, gradients_of(answers))
