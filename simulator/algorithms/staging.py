"""A model cut into stages: their layers, their shares of the work, and their messages."""

from collections import deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from laggard.simulator.algorithms.base import Algorithm
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import InvalidSettingError, Positive, PositiveInt
from laggard.simulator.learning.gradients import Gradient, GradientPromise
from laggard.simulator.learning.rules import Rule
from laggard.simulator.learning.task import Layer
from laggard.simulator.learning.weights import join_slices
from laggard.simulator.network.topology import Complete, Topology
from laggard.simulator.timing.events import Event

if TYPE_CHECKING:
    from torch import Tensor

MAX_DIVISIONS = 2_000_000
FORWARD, BACKWARD = "forward", "backward"


@dataclass(frozen=True)
class Stage:
    """A run of consecutive layers on one node.

    Attributes:
        params: their slice of the parameter vector.
        size: the size of their parameters, in models; without parameters, all layers have the same
            size.
        work: their share of the work of the whole model.
        activations: the size of a mini-batch's message to the next stage, in models; that of the
            gradient is the same.
    """

    params: slice
    size: float
    work: float
    activations: float


def stage_layers(layers: Sequence[Layer], stages: int, cut: Sequence[str] = ()) -> list[Stage]:
    """Divide `layers` into stages; each but the first begins at a layer named in `cut`.

    By default the cut, before layers with parameters, that minimises the work of the largest stage.

    Raises:
        InvalidSettingError: too few layers, or a cut that does not name layers in their order.
    """
    names = [layer.name for layer in layers]
    choices = f"{stages - 1} of the layers {', '.join(names[1:])}, in this order"
    expected = f"{choices}: the first of each further stage"
    if cut and (len(cut) != stages - 1 or not set(cut) <= set(names[1:])):
        raise InvalidSettingError("Pipeline", "cut", expected, list(cut))
    if cut:
        starts = [names.index(name) for name in cut]
    else:
        starts = balance(layers, stages)
    if sorted(set(starts)) != starts:
        raise InvalidSettingError("Pipeline", "cut", expected, list(cut))
    offsets = [0, *accumulate(layer.params for layer in layers)]
    total_work = sum(layer.work for layer in layers)
    params = max(offsets[-1], 1)
    result = []
    for first, end in pairwise([0, *starts, len(layers)]):
        columns = slice(offsets[first], offsets[end])
        size = (columns.stop - columns.start) / params
        if not offsets[-1]:
            size = (end - first) / len(layers)
        work = sum(layer.work for layer in layers[first:end]) / total_work
        result.append(Stage(columns, size, work, layers[end - 1].activations / params))
    return result


def stage_ends(layers: Sequence[Layer]) -> list[int]:
    """The numbers of layers after which a stage may end: one for each layer with parameters."""
    learning = [number for number, layer in enumerate(layers) if layer.params] or range(len(layers))
    return [*learning[1:], len(layers)]  # a layer without parameters stays with the one before


def balance(layers: Sequence[Layer], stages: int) -> list[int]:
    """The first layers of all stages but the first, so that the largest stage has the least work.

    Raises:
        InvalidSettingError: too few layers.
    """
    ends = stage_ends(layers)
    if stages * len(ends) ** 2 > MAX_DIVISIONS:
        problem = f"{len(ends)} are too many to divide evenly among {stages} stages"
        raise InvalidSettingError("Pipeline", "cut", f"the layers to cut at: {problem}", [])
    if len(ends) < stages:
        expected = f"at most {len(ends)} stages of a pipeline, one for each layer of the model"
        raise InvalidSettingError("Cluster", "workers", expected, stages)
    total = [0.0, *accumulate(layer.work for layer in layers)]
    # Dynamic programming: for each end, the work of the largest stage and the starts, of the best
    # division of the layers before it into as many stages as the loop has passed.
    best: dict[int, tuple[float, list[int]]] = {end: (total[end], []) for end in ends}
    for _ in range(1, stages):
        extended = {}
        for end in ends:
            divisions = []
            for start, (largest, starts) in best.items():
                if start < end:
                    work = total[end] - total[start]
                    divisions.append((max(largest, work), [*starts, start]))
            if divisions:
                extended[end] = min(divisions)
        best = extended
    _, starts = best[len(layers)]
    return starts


class Pass(NamedTuple):
    """A mini-batch in its forward pass.

    Attributes:
        batch: the mini-batch.
        started: the moment at which its forward pass began on the first stage (s).
        reads: the weights that each stage so far has used, from the first stage on.
    """

    batch: Any
    started: float
    reads: "tuple[Tensor, ...]"


class Carriage:
    """The two passes of a stage: forward to the next stage, and backward to the previous stage.

    Attributes:
        size: the size of the stage's parameters, in models.
        later: the number of stages after it.

    Args:
        stages: the stages of the pipeline, on consecutive ranks.
        number: the number of the node's stage, from 0.
        backward: the work of a backward pass in forward passes.
        owner: the rank of the node that holds the stage's parameters.
    """

    def __init__(
        self, node: Node, stages: Sequence[Stage], number: int, backward: float, owner: int
    ) -> None:
        stage = stages[number]
        self._node = node
        self._stage = stage
        self._owner = owner
        self.size = stage.size
        self._before = stages[number - 1] if number else None
        self.later = len(stages) - 1 - number
        self._forward_share = stage.work / (1 + backward)
        self._backward_share = stage.work * backward / (1 + backward)
        self._at_last_stage: deque[Pass] = deque()  # mini-batches at the last stage

    def forward(self, weights: "Tensor") -> Generator[Event, Any, None]:
        """Receive the next mini-batch, make the forward pass at `weights`, and send it on."""
        node = self._node
        if self._before is None:
            passed = Pass(node.batch(), node.now, ())
        else:
            _, passed = yield node.receive(FORWARD)
        yield node.work(share=self._forward_share)
        passed = passed._replace(reads=(*passed.reads, weights))
        if not self.later:
            self._at_last_stage.append(passed)
        else:
            node.send(node.rank + 1, passed, tag=FORWARD, size=self._stage.activations)

    def backward(self) -> Generator[Event, Any, GradientPromise]:
        """Receive the oldest gradient, make the backward pass, and send it on; return its piece."""
        node = self._node
        if not self.later:
            # The whole gradient is promised here, where the weights of all stages meet.
            batch, started, reads = self._at_last_stage.popleft()
            gradient: Gradient = node.promise(join_slices(reads), batch, started)
        else:
            _, gradient = yield node.receive(BACKWARD)
        yield node.work(share=self._backward_share)
        if self._before is not None:
            node.send(node.rank - 1, gradient, tag=BACKWARD, size=self._before.activations)
        return gradient.piece(self._owner)

    def make_passes(
        self, weights: "Tensor", micro_batches: int, warm_up: int
    ) -> Generator[Event, Any, list[GradientPromise]]:
        """Make the passes of M `micro_batches` at `weights`; return the gradients' pieces.

        `warm_up` forward passes come first, then forward and backward passes in turn.
        """
        ahead = min(warm_up, micro_batches)
        pieces: list[GradientPromise] = []
        for _ in range(ahead):
            yield from self.forward(weights)
        for _ in range(micro_batches - ahead):
            yield from self.forward(weights)
            pieces.append((yield from self.backward()))
        for _ in range(ahead):
            pieces.append((yield from self.backward()))
        return pieces


@dataclass(frozen=True)
class Pipeline(Algorithm):
    """The base class of pipelines: a model cut into as many stages as there are workers.

    Attributes:
        cut: the first layer of each further stage; by default the work is divided as evenly as
            layers allow.
        backward: the work of a backward pass in forward passes; a compute time covers both passes.
    """

    topology: ClassVar[Topology] = Complete()
    readmits: ClassVar[bool] = False
    rule: Rule
    cut: Sequence[str] = ()
    backward: Positive = 2.0

    def depth(self, workers: int) -> int:
        """The number of stages: as many as workers."""
        return workers

    def links(self, workers: int) -> Iterable[tuple[int, int]]:
        """The pairs of neighbouring stages, both ways."""
        depth = self.depth(workers)
        later = (rank for rank in range(1, workers) if rank % depth)
        return (pair for rank in later for pair in ((rank - 1, rank), (rank, rank - 1)))

    def slices(
        self, workers: int, params: int, layers: Sequence[Layer] = ()
    ) -> Mapping[int, slice]:
        stages = stage_layers(layers, self.depth(workers), self.cut)
        return {rank: stages[rank % len(stages)].params for rank in range(workers)}

    def owner(self, rank: int, workers: int) -> int:
        """The node that holds the parameters of the stage on node `rank`: itself."""
        return rank

    def stages(self, node: Node) -> list[Stage]:
        """The stages of a pipeline, in their order."""
        return stage_layers(node.layers, self.depth(node.workers), self.cut)

    def updates_in_parts(self, workers: int) -> bool:
        return self.depth(workers) > 1

    def stage(self, node: Node) -> Carriage:
        """The passes of the stage on `node`."""
        stages = self.stages(node)
        owner = self.owner(node.rank, node.workers)
        return Carriage(node, stages, node.rank % len(stages), self.backward, owner)


@dataclass(frozen=True)
class Replicated(Pipeline):
    """The base class of pipelines of M micro-batches an update, of which there may be R replicas.

    Attributes:
        micro_batches: M; a micro-batch is a mini-batch of the task.
        replicas: R; worker r S + s has stage s of replica r.
    """

    micro_batches: PositiveInt = 4
    replicas: PositiveInt = 1

    def check(self, cluster: Cluster) -> None:
        if cluster.workers % self.replicas:
            divisor = f"a divisor of workers = {cluster.workers}"
            expected = f"{divisor}, so that all replicas have as many stages"
            raise InvalidSettingError(type(self).__name__, "replicas", expected, self.replicas)

    def depth(self, workers: int) -> int:
        """The number of stages of a replica."""
        return max(1, workers // self.replicas)
