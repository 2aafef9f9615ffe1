"""Workers that take many steps of their own between two averages of their models."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from simulator.algorithm import Algorithm, Role
from simulator.bounds import Invalid, bounded
from simulator.gradients import Gradient
from simulator.node import Node
from simulator.rules import SGD, Nesterov, Rule, RuleState, mean
from simulator.topology import SERVER


@dataclass(frozen=True)
class LocalSGD(Algorithm):
    """Local SGD: every worker takes H steps of its own from the same weights, then their models are averaged.

    x_i <- w, H times x_i <- x_i - lr g(x_i), w <- (1/P) sum_i x_i. Workers keep the state of their optimiser from one
    round to the next; a worker that crashes loses it, and its round. With H = 1 it is `sync_ps` for SGD, momentum and
    Nesterov, with any H `sync_ps` that averages weights. An update is a round; staleness 0.

    Attributes:
        local_steps: H, mini-batches of each worker from one average to the next.

    Source: McMahan et al. (2017), arXiv 1602.05629 (FedAvg); Stich (2019), arXiv 1805.09767, algorithm 1.
    """

    rule: Rule
    local_steps: int = 8

    def __post_init__(self) -> None:
        bounded(self, "local_steps", least=1, whole=True)

    def worker(self, node: Node) -> Role:
        state = self.rule.init(node.weights, replicas=node.workers)
        node.send(SERVER, None, size=0)  # here I am
        while True:
            _, read = yield node.receive()
            model, gradients = read, []
            for _ in range(self.local_steps):
                gradient = yield node.compute(model, read)
                model, state = self.rule.update(model, [gradient], state)
                gradients.append(gradient)
            node.send(SERVER, (model, gradients))

    def server(self, node: Node) -> Role:
        state = self.outer().init(node.weights)
        models: dict[int, Tensor] = {}
        gathered: list[Gradient] = []
        while True:
            worker, pushed = yield node.receive()
            if pushed is not None:
                models[worker] = pushed[0]
                gathered += pushed[1]
            elif worker not in models:  # else it was down, and waits on
                node.send(worker, node.weights)
            if len(models) == node.workers:
                yield node.work(node.apply_seconds)
                average = mean([models[rank] for rank in sorted(models)])
                weights, state = self.merge(node.weights, average, state)
                node.apply(weights, gathered)
                for reader in models:
                    node.send(reader, node.weights)
                models, gathered = {}, []

    def outer(self) -> Rule:
        """The server's own rule."""
        return Rule(lr=1.0)

    def merge(self, weights: Tensor, average: Tensor, state: RuleState) -> tuple[Tensor, RuleState]:
        """The server's next weights `(ensemble, params)`, and its rule's state."""
        return average, state


@dataclass(frozen=True)
class DiLoCo(LocalSGD):
    """DiLoCo: local SGD whose average is a gradient to an outer optimiser at the server.

    d = (1/P) sum_i (w - x_i) after H steps of each worker, then w <- outer step along -d: with Nesterov,
    b <- momentum b + d, w <- w - outer_lr (d + momentum b). With SGD, outer_lr 1 and no momentum it is `local_sgd`.

    Attributes:
        outer_lr, outer_momentum: of the outer optimiser.
        outer_optimizer: Nesterov, or SGD with heavy-ball momentum.

    Source: Douillard et al. (2023), arXiv 2311.08105, algorithm 1; FedOpt of Reddi et al. (2021), arXiv 2003.00295.
    """

    outer_lr: float = 0.7
    outer_momentum: float = 0.9
    outer_optimizer: Literal["nesterov", "sgd"] = "nesterov"

    def __post_init__(self) -> None:
        super().__post_init__()
        bounded(self, "outer_lr", above=0)
        bounded(self, "outer_momentum", least=0, below=1)
        if self.outer_optimizer not in ("nesterov", "sgd"):
            raise Invalid(type(self).__name__, "outer_optimizer", "nesterov or sgd", self.outer_optimizer)

    def outer(self) -> Rule:
        optimizer = Nesterov if self.outer_optimizer == "nesterov" else SGD
        return Rule(optimizer(momentum=self.outer_momentum), lr=self.outer_lr)

    def merge(self, weights: Tensor, average: Tensor, state: RuleState) -> tuple[Tensor, RuleState]:
        return self.outer().step(weights, weights - average, state, epochs=0.0)
