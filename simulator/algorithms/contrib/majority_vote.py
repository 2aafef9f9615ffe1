"""SignSGD with majority vote: a bit for each parameter, to the server and back."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar

from laggard.simulator.algorithms.base import Algorithm, Role
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import Range
from laggard.simulator.learning.compression import BITS_PER_NUMBER
from laggard.simulator.learning.gradients import GradientPromise
from laggard.simulator.learning.promises import Derived, Promise, known
from laggard.simulator.learning.rules import Rule
from laggard.simulator.learning.rules.optimizers import running
from laggard.simulator.learning.weights import total
from laggard.simulator.network.topology import SERVER

if TYPE_CHECKING:
    from torch import Tensor

SIZE_OF_SIGNS = 1 / BITS_PER_NUMBER
"""The size in models of a bit for each parameter."""


def signs_of(values: "Tensor") -> "Tensor":
    """1 or -1 for each of `values` `(ensemble, params)`; 1 for 0, since a bit has two values.

    NaN stays NaN, so that a diverged run is recognised.
    """
    signs = values.new_ones(values.shape).where(values >= 0, -1.0)
    return values.where(values.isnan(), signs)


def vote(signs: "Sequence[Tensor]") -> "Tensor":
    """The sign of the majority of workers, for each parameter."""
    return signs_of(total(signs))


@dataclass(frozen=True)
class MajorityVote(Algorithm):
    """SignSGD with majority vote: workers send signs, and the model moves by the sign of the
    majority.

        m_i <- beta m_i + (1 - beta) g_i(w);    w <- w - lr sign(sum_i sign(m_i))

    With beta above 0 it is Signum. The sign of 0, also that of a tie, is 1. The rule's optimiser
    has the vote for its gradient: the papers' is plain `sgd`, whose step is lr in each parameter,
    so that rates are far lower than those of SGD. Each worker has its own momentum, which restarts
    at 0 after a crash. Staleness 0.

    A worker sends a bit for each parameter, and so does the server: workers apply the vote to the
    models that they hold. Only a worker that announces itself is sent a model. With equal workers
    and one server's card, latency alpha and b seconds a byte, a step takes t_c + 2 alpha +
    2 P N b / 32.

    Source: Bernstein et al. (2018), arXiv 1802.04434, algorithm 3; Bernstein et al. (2019), arXiv
    1810.05291, algorithm 1 (Signum).

    Attributes:
        momentum: beta, of a worker's running mean of its gradients.
    """

    SPACE: ClassVar = {"learning.lr": {"log_uniform": [1e-4, 1e-1]}}

    rule: Rule
    momentum: Annotated[float, Range(least=0, below=1)] = 0.0

    def worker(self, node: Node) -> Role:
        next_mean = partial(running, self.momentum)
        mean: Promise = known(0 * node.weights)
        node.send(SERVER, None, size=0)  # announces the worker
        while True:
            _, weights = yield node.receive()
            gradient = yield node.compute(weights)
            if node.weights.shape[1]:  # else no value is asked for, and means would pile up
                mean = Derived((mean, gradient), next_mean)
            ballot = gradient.map(lambda _, mean: signs_of(mean), mean)
            node.send(SERVER, ballot, size=SIZE_OF_SIGNS)

    def server(self, node: Node) -> Role:
        state = self.rule.init(node.weights)
        ballots = dict[int, GradientPromise]()
        returned = set[int]()  # workers that have crashed since they sent their signs
        while True:
            worker, ballot = yield node.receive()
            if ballot is not None:
                ballots[worker] = ballot
            elif worker in ballots:
                returned.add(worker)
            else:
                node.send(worker, node.weights)
            if len(ballots) < node.workers:
                continue
            yield node.work(node.apply_seconds)
            taken = [ballots[rank] for rank in sorted(ballots)]
            weights, state = self.rule.update(node.weights, taken, state, combine=vote)
            node.apply(weights, taken)
            for reader in ballots:
                size = 1.0 if reader in returned else SIZE_OF_SIGNS
                node.send(reader, node.weights, size=size)
            ballots, returned = {}, set()
