"""A model cut into stages: which layers each holds, what share of the work that is, and what crosses the cuts."""

from collections import deque
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, ClassVar, NamedTuple

from simpy.events import Event
from torch import Tensor

from simulator.algorithm import Algorithm
from simulator.bounds import Invalid, bounded
from simulator.gradients import Gradient, Settled
from simulator.node import Node
from simulator.rules import Rule
from simulator.task import Layer
from simulator.topology import Complete, Topology
from simulator.weights import joined

FORWARD, BACKWARD = "forward", "backward"


@dataclass(frozen=True)
class Stage:
    """A run of consecutive layers on one node.

    Attributes:
        params: the slice of the parameter vector that they hold.
        work: their share of the work of the whole model.
        activations: what one mini-batch sends on to the next stage, in models; as much comes back as gradient.
    """

    params: slice
    work: float
    activations: float


def staged(layers: Sequence[Layer], stages: int, cut: Sequence[str] = ()) -> list[Stage]:
    """`layers` as so many stages, each further one beginning at a layer named in `cut`.

    Without a cut, that one of those before layers with parameters whose largest stage has the least work.

    Raises:
        Invalid: too few layers for so many stages, or a cut that names no layers in their order.
    """
    names = [layer.name for layer in layers]
    known = f"{stages - 1} of the layers {', '.join(names[1:])}, in this order: the first of each further stage"
    if cut and (len(cut) != stages - 1 or not set(cut) <= set(names[1:])):
        raise Invalid("Pipeline", "cut", known, list(cut))
    starts = [names.index(name) for name in cut] if cut else balanced(layers, stages)
    if sorted(set(starts)) != starts:
        raise Invalid("Pipeline", "cut", known, list(cut))
    offsets = [0, *accumulate(layer.params for layer in layers)]
    work, params = sum(layer.work for layer in layers), max(offsets[-1], 1)
    return [
        Stage(
            slice(offsets[first], offsets[end]),
            sum(layer.work for layer in layers[first:end]) / work,
            layers[end - 1].activations / params,
        )
        for first, end in pairwise([0, *starts, len(layers)])
    ]


def balanced(layers: Sequence[Layer], stages: int) -> list[int]:
    """Where the further stages begin, so that the largest has as little work as can be.

    Raises:
        Invalid: too few layers for so many stages.
    """
    learning = [number for number, layer in enumerate(layers) if layer.params] or range(len(layers))
    ends = [*learning[1:], len(layers)]  # a layer without parameters stays with the one before
    if len(ends) < stages:
        raise Invalid("Cluster", "workers", f"at most {len(ends)}, a stage for each layer of the model", stages)
    total = [0.0, *accumulate(layer.work for layer in layers)]
    best: dict[int, tuple[float, list[int]]] = {end: (total[end], []) for end in ends}
    for _ in range(1, stages):
        best = {
            end: min((max(most, total[end] - total[start]), [*starts, start]) for start, (most, starts) in before)
            for end in ends
            if (before := [(start, found) for start, found in best.items() if start < end])
        }
    return best[len(layers)][1]


class Pass(NamedTuple):
    """A mini-batch on its way forward: where it has come from, and the weights that each stage used."""

    batch: Any
    started: float
    reads: tuple[Tensor, ...]


class Carriage:
    """The two moves of a stage: a mini-batch forward to the next one, and its gradient back to the one before.

    Args:
        backward: the work of a backward pass in forward passes.
    """

    def __init__(self, node: Node, stage: Stage, before: Stage | None, backward: float) -> None:
        self._node, self._stage, self._before = node, stage, before
        self._last = node.rank == node.workers - 1
        self._shares = stage.work / (1 + backward), stage.work * backward / (1 + backward)
        self._turning: deque[Pass] = deque()  # mini-batches that have come to the last stage

    def forward(self, weights: Tensor) -> Generator[Event, Any, None]:
        """Take over the next mini-batch, do the forward pass at `weights`, and hand it on."""
        node = self._node
        if node.rank == 0:
            come = Pass(node.batch(), node.now, ())
        else:
            _, come = yield node.receive(FORWARD)
        yield node.work(share=self._shares[0])
        come = come._replace(reads=(*come.reads, weights))
        if self._last:
            self._turning.append(come)
        else:
            node.send(node.rank + 1, come, tag=FORWARD, size=self._stage.activations)

    def backward(self) -> Generator[Event, Any, Settled]:
        """Take over the oldest gradient, do the backward pass, and hand it on; the stage's own piece of it."""
        node = self._node
        if self._last:
            batch, started, reads = self._turning.popleft()
            gradient: Gradient = node.promise(joined(reads), batch, started)
        else:
            _, gradient = yield node.receive(BACKWARD)
        yield node.work(share=self._shares[1])
        if self._before is not None:
            node.send(node.rank - 1, gradient, tag=BACKWARD, size=self._before.activations)
        return gradient.piece(node.rank)


@dataclass(frozen=True)
class Pipeline(Algorithm):
    """What the methods that cut a model into stages have in common: as many stages as there are workers.

    Attributes:
        cut: the first layer of each further stage; by default the work is spread as evenly as layers allow.
        backward: the work of a backward pass in forward passes; compute times are those of both together.
    """

    topology: ClassVar[Topology] = Complete()
    readmits: ClassVar[bool] = False
    rule: Rule
    cut: Sequence[str] = ()
    backward: float = 2.0

    def __post_init__(self) -> None:
        bounded(self, "backward", above=0)

    def slices(self, workers: int, params: int, layers: Sequence[Layer] = ()) -> Mapping[int, slice]:
        return {rank: stage.params for rank, stage in enumerate(staged(layers, workers, self.cut))}

    def stage(self, node: Node) -> Carriage:
        """The moves of the stage that stands on `node`."""
        stages = staged(node.layers, node.workers, self.cut)
        before = stages[node.rank - 1] if node.rank else None
        return Carriage(node, stages[node.rank], before, self.backward)
