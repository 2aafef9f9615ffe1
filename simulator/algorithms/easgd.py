"""Elastic averaging between workers and a centre."""

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Annotated, ClassVar

from laggard.simulator.algorithms.base import Algorithm, Role
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import InvalidSettingError, PositiveInt, Range
from laggard.simulator.learning.gradients import Gradient
from laggard.simulator.learning.rules import Rule
from laggard.simulator.learning.weights import total
from laggard.simulator.network.topology import SERVER

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class EASGD(Algorithm):
    """Elastic averaging SGD: after every H local steps a worker and the centre move towards each
    other.

        d = a (x_i - c);    x_i <- x_i - d;    c <- c + d

    An exchange conserves x_i + c. Then, as at every step, x_i <- x_i - lr g(x), where x is x_i
    before the exchange. All workers count equally, whatever their numbers of samples. With momentum
    in the worker's rule it is EAMSGD.

    The model is the centre's, c, which changes through exchanges only. An exchange is an update; it
    applies the worker's gradients since its last one, and their staleness is the number of
    exchanges that others made since then: P - 1 on average, 0 with `together`. A crash loses the
    gradients since the last exchange, and may lose x_i's half of one.

    Attributes:
        elastic: a, the moving rate; 0.9 / P by default, the paper's beta = 0.9.
        local_steps: H, the paper's communication period tau.
        together: False, each worker exchanges when it is ready; True, all exchange with the same
            centre, which moves by the sum of their d.

    Source: Zhang, Choromanska, LeCun (2015), arXiv 1412.6651, algorithm 1; section 3 (together).
    """

    SPACE: ClassVar = {"algorithm.local_steps": {"choice": [1, 4, 16]}}

    rule: Rule
    elastic: Annotated[float, Range(above=0, most=1)] | None = None
    local_steps: PositiveInt = 10
    together: bool = False

    def check(self, cluster: Cluster) -> None:
        if cluster.members.change:
            expected = "none, since a worker that comes back has no model to exchange"
            raise InvalidSettingError("Cluster", "members", expected, cluster.members)

    def worker(self, node: Node) -> Role:
        state = self.rule.init(node.weights, replicas=node.workers)
        gradients = list[Gradient]()
        for step in count():
            before = node.weights
            if step % self.local_steps == 0:
                node.send(SERVER, (before, gradients))
                _, (move, centre) = yield node.receive()
                node.weights, gradients = before - move, []
            gradient = yield node.compute(before, centre)
            node.weights, state = self.rule.update(node.weights, [gradient], state)
            gradient.release()
            gradients.append(gradient)

    def server(self, node: Node) -> Role:
        elastic = self.elastic or 0.9 / node.workers
        partners = node.workers if self.together else 1
        asked: dict[int, tuple[Tensor, list[Gradient]]] = {}
        while True:
            worker, (theirs, gradients) = yield node.receive()
            # the worker has crashed since, and asks again
            earlier = asked[worker][1] if worker in asked else []
            asked[worker] = theirs, earlier + gradients
            if len(asked) == partners:
                yield node.work(node.apply_seconds)
                moves = {rank: elastic * (asked[rank][0] - node.weights) for rank in sorted(asked)}
                centre = total([node.weights, *moves.values()])
                gradients = [gradient for rank in moves for gradient in asked[rank][1]]
                if gradients:
                    node.apply(centre, gradients)
                else:
                    node.weights = centre  # the first exchange: all models are equal
                for reader in asked:
                    node.send(reader, (moves[reader], node.weights))
                asked = {}
