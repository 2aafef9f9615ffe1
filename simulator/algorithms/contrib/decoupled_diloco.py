"""Decoupled DiLoCo: a server merges fragments from a quorum of learners, which never wait."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from laggard.simulator.algorithms.base import Role, count_awaited
from laggard.simulator.algorithms.compressing import Compressing
from laggard.simulator.algorithms.local_steps import OuterOptimizer
from laggard.simulator.algorithms.outgoing import Outgoing
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import (
    InvalidSettingError,
    NonNegative,
    NumberOrShare,
    PositiveInt,
    Range,
)
from laggard.simulator.learning.gradients import GradientPromise
from laggard.simulator.learning.rules import Rule, RuleState
from laggard.simulator.learning.weights import total, with_columns
from laggard.simulator.network.topology import SERVER

if TYPE_CHECKING:
    from torch import Tensor

FRAGMENT = "fragment"
"""The tag of a merged fragment on its way to a learner."""


class Push(NamedTuple):
    """A learner's message about a fragment.

    Attributes:
        fragment, merges: its number, and how often it had been merged when the learner read it.
        change: its change by the learner's steps since then, `(ensemble, n)`.
        steps: the number of these steps.
        gradients: the gradients of these steps that no other push holds.
    """

    fragment: int
    merges: int
    change: "Tensor"
    steps: int
    gradients: Sequence[GradientPromise]


@dataclass
class Fragment:
    """A fragment at the server, and the learners' pushes of it since its last merge.

    Attributes:
        columns: its parameters in a model.
        state: the state of its outer step.
        merges: how often it has been merged.
        pushes: the last push of each learner.
        due: the time of its next merge (s); infinite before the quorum.
    """

    columns: slice
    state: RuleState
    merges: int = 0
    pushes: dict[int, Push] = field(default_factory=dict)
    due: float = math.inf

    def take(self, learner: int, push: Push) -> None:
        """Store a push in place of an earlier one of that learner; drop a push that is too late."""
        if push.merges < self.merges:
            for gradient in push.gradients:
                gradient.drop()
            return
        before: Sequence[GradientPromise] = ()
        if learner in self.pushes:
            before = self.pushes[learner].gradients
        # A later change contains the earlier one, but only the earlier push has its gradients.
        self.pushes[learner] = push._replace(gradients=[*before, *push.gradients])

    def set_due(self, now: float, quorum: int, workers: int, grace: float) -> None:
        """Set the time of the merge, if the pushes at `now` (s) decide it."""
        if len(self.pushes) == workers:
            self.due = now
        elif len(self.pushes) >= quorum:
            self.due = min(self.due, now + grace)


@dataclass(frozen=True)
class DecoupledDiLoCo(OuterOptimizer, Compressing):
    """Decoupled DiLoCo: the server merges a fragment once K learners have sent it, and none waits.

    The server makes DiLoCo's outer step along the mean d of the learners' changes of a fragment:

        d = sum w v / sum w    by mean
        d = (sum w |v| / sum w) u / |u|,    u = sum w (v / |v|) / sum w    by radial

    v is the change that a learner has made since it read the fragment, by w local steps. The radial
    mean keeps the length of changes that point in different directions.

    Every H / F steps a learner sends its change of the next of the F fragments, and computes on.
    Once K learners have sent a fragment, the server waits `grace` seconds for more, makes the step,
    and sends the merged fragment X to all learners. Each takes it before its next step,
    x <- keep x + (1 - keep) X. If the server has merged a fragment since a learner read it, the
    learner's change of it is dropped, with its gradients.

    With K = P equal learners, one fragment, keep 0, `merge: mean` and a free network it is
    `diloco`. A learner never waits for the others: its share of waiting is 0. On a slow card it
    stops before a push until the bytes of earlier pushes have left (`outstanding`).

    For a model of N bytes a learner sends N / F bytes every H / F steps, and receives N / F bytes
    at each merge. With `compress` it sends C(v) of a fragment. The fragments are equal parts of the
    parameters, side by side, and a fragment is one vector. The paper merges tensor by tensor, and
    sets the grace by its estimates of the learners' speed.

    Source: Douillard et al. (2026), arXiv 2604.21428.

    Attributes:
        local_steps: H, mini-batches of a learner from one change of a fragment to the next; a
            multiple of F.
        fragments: F, parts into which the model is cut.
        quorum: K, learners, or below 1 their share, rounded up; all by default.
        grace: seconds from the quorum to the merge, unless all learners have sent before.
        merge: the kind of mean.
        keep: the share of its own fragment that a learner keeps.
        outer_lr, outer_momentum: the learning rate and the momentum of the outer optimiser.
        outer_optimizer: Nesterov, or SGD with heavy-ball momentum.
        outstanding: pushes of a learner whose bytes may still have to leave it; before the next
            push it waits.
    """

    rule: Rule
    local_steps: PositiveInt = field(default=32, kw_only=True)
    fragments: PositiveInt = field(default=4, kw_only=True)
    quorum: NumberOrShare | None = field(default=None, kw_only=True)
    grace: NonNegative = field(default=0.0, kw_only=True)
    merge: Literal["radial", "mean"] = field(default="radial", kw_only=True)
    keep: Annotated[float, Range(least=0, below=1)] = field(default=0.0, kw_only=True)
    outstanding: PositiveInt = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.local_steps % self.fragments:
            expected = f"a multiple of fragments = {self.fragments}"
            raise InvalidSettingError("DecoupledDiLoCo", "local_steps", expected, self.local_steps)

    def check(self, cluster: Cluster) -> None:
        super().check(cluster)
        count_awaited(self, self.quorum, cluster.workers, key="quorum")
        if self.compress is not None and self.compress.feedback != "none":
            expected = "none: a later change of a fragment replaces an earlier one, and contains it"
            got = self.compress.feedback
            raise InvalidSettingError("Compress", "feedback", expected, got)

    def updates_in_parts(self, workers: int) -> bool:
        return False  # the rule is the learners' own, who have whole models

    def columns(self, model: "Tensor", fragment: int) -> slice:
        """The parameters of a fragment."""
        params = model.shape[1]
        first = params * fragment // self.fragments
        return slice(first, params * (fragment + 1) // self.fragments)

    def needed(self, workers: int) -> int:
        return count_awaited(self, self.quorum, workers)

    def worker(self, node: Node) -> Role:
        """A learner: make local steps, push after every H / F, and take merged fragments."""
        node.send(SERVER, None, size=0)  # announces the learner
        state = self.rule.init(node.weights, replicas=node.workers)
        _, (model, merges) = yield node.receive()
        read = model
        merges = list(merges)
        anchors = [model[:, self.columns(model, number)] for number in range(self.fragments)]
        begun = [0] * self.fragments  # the step after which each fragment was read
        gradients = list[GradientPromise]()
        sent = Outgoing(self.outstanding)
        encoders = self.encoders(node, [anchor.shape[1] for anchor in anchors])
        for step in count(1):
            gradient = yield node.compute(model, read)
            model, state = self.rule.update(model, [gradient], state)
            gradient.release()
            gradients.append(gradient)
            turn, since = divmod(step, self.local_steps // self.fragments)
            if since == 0:
                fragment = (turn - 1) % self.fragments
                encoder = encoders[fragment]
                yield node.work(encoder.seconds)
                change = anchors[fragment] - model[:, self.columns(model, fragment)]
                change = encoder.encode_change(change, gradients[-1])
                steps = step - begun[fragment]
                push = Push(fragment, merges[fragment], change, steps, gradients)
                yield from sent.wait()
                sent.add([node.send(SERVER, push, size=encoder.size / self.fragments)])
                gradients = []
                yield node.after(0.0)  # what is merged in this instant counts for the next step
            while node.arrived(FRAGMENT):
                _, (fragment, merges[fragment], merged, read) = yield node.receive(FRAGMENT)
                columns = self.columns(model, fragment)
                begun[fragment] = step
                anchors[fragment] = merged
                own = self.keep * model[:, columns] + (1 - self.keep) * merged
                model = with_columns(model, columns, own)

    def server(self, node: Node) -> Role:
        """Gather changes of all fragments, and merge each when its quorum and grace are over."""
        quorum = count_awaited(self, self.quorum, node.workers)
        learners = dict[int, None]()
        fragments = []
        for number in range(self.fragments):
            columns = self.columns(node.weights, number)
            fragments.append(Fragment(columns, self.outer().init(node.weights[:, columns])))
        while True:
            message = node.receive()
            moment = min(fragment.due for fragment in fragments)
            if moment == math.inf:
                yield message
            else:
                # A timer fires after all messages of its instant: a push that arrives at the moment
                # of a merge still belongs to it.
                yield message | node.after(max(0.0, moment - node.now))
            if message.fired:
                moment = node.now
                learner, push = message.value
                if push is None:
                    learners[learner] = None
                    merges = tuple(fragment.merges for fragment in fragments)
                    node.send(learner, (node.weights, merges))
                else:
                    fragments[push.fragment].take(learner, push)
                    fragments[push.fragment].set_due(moment, quorum, node.workers, self.grace)
            for number, fragment in enumerate(fragments):
                if fragment.due <= moment:
                    yield node.work(node.apply_seconds)
                    new = self.merge_fragment(node, fragment)
                    content = number, fragment.merges, new, node.weights
                    for learner in learners:
                        node.send(learner, content, tag=FRAGMENT, size=1 / self.fragments)

    def merge_fragment(self, node: Node, fragment: "Fragment") -> "Tensor":
        """Make the outer step of a fragment; return its new values `(ensemble, n)`."""
        pushes = [fragment.pushes[learner] for learner in sorted(fragment.pushes)]
        anchor = node.weights[:, fragment.columns]
        average = anchor - self.mean_of(pushes)
        new, fragment.state = self.next_weights(anchor, average, fragment.state)
        gradients = [gradient for push in pushes for gradient in push.gradients]
        node.apply(with_columns(node.weights, fragment.columns, new), gradients)
        fragment.merges += 1
        fragment.pushes = {}
        fragment.due = math.inf
        return new

    def mean_of(self, pushes: Sequence[Push]) -> "Tensor":
        """The mean change `(ensemble, n)`, weighted by steps."""
        whole = sum(push.steps for push in pushes)
        weights = [push.steps / whole for push in pushes]
        changes = [push.change for push in pushes]
        if self.merge == "mean" or len(changes) == 1:
            return weighted(weights, changes)
        norms = [change.norm(dim=1, keepdim=True) for change in changes]
        directions = [
            change / norm.clamp(min=TINY) for change, norm in zip(changes, norms, strict=True)
        ]
        direction = weighted(weights, directions)
        length = weighted(weights, norms)
        radial: Tensor = length * direction / direction.norm(dim=1, keepdim=True).clamp(min=TINY)
        return radial


TINY = 1e-30
"""The least length by which a change is divided; one of 0 has no direction."""


def weighted(weights: Sequence[float], values: "Sequence[Tensor]") -> "Tensor":
    """The sum of `values` by their `weights`."""
    return total([weight * value for weight, value in zip(weights, values, strict=True)])
