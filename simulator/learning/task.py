"""The protocol of a task: four functions over whole ensembles; a task without learning."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from laggard.errors import check_members
from laggard.simulator.errors import Counted, NonNegative, PositiveInt, Settings

if TYPE_CHECKING:
    from torch import Tensor

ACCURACY_ROUNDING = 1e-7
"""How far rounding to single precision may lower an accuracy: 195 of 250 is below 0.78."""


class Layer(Protocol):
    """A part of a model that a pipeline does not cut.

    Attributes:
        name: what a cut calls it.
        params: entries of the parameter vector; the layers' follow each other.
        activations: numbers that one mini-batch sends on to the next layer.
        work: the amount of its computation, in any unit; only ratios between layers count.
    """

    @property
    def name(self) -> str: ...
    @property
    def params(self) -> int: ...
    @property
    def activations(self) -> float: ...
    @property
    def work(self) -> float: ...


def shapes_of(task: "Task") -> Mapping[str, tuple[int, ...]]:
    """The shapes of the parameters by name, where the task has `shapes()`; none otherwise."""
    shapes: Callable[[], Mapping[str, tuple[int, ...]]] | None = getattr(task, "shapes", None)
    return shapes() if shapes else {}


def layers_of(task: "Task") -> Sequence[Layer]:
    """The layers of what is learnt, where the task has `layers()`; none otherwise."""
    layers: Callable[[], Sequence[Layer]] | None = getattr(task, "layers", None)
    if not layers:
        return ()
    result = layers()
    for index, layer in enumerate(result):
        check_members("Task", f"layers.{index}", layer, Layer)
    return result


def samples_of(task: "Task", rank: int) -> int:
    """The number of samples that worker `rank` learns from; 1 where the task has no `samples`."""
    samples: Callable[[int], int] | None = getattr(task, "samples", None)
    if samples:
        return samples(rank)
    return 1


def bytes_of(task: "Task", params: int) -> float:
    """The bytes of a model of `params` entries; without learning, the bytes of its layers."""
    return 4.0 * (params or sum(layer.params for layer in layers_of(task)))


class BackgroundCall(Protocol):
    """A call of `Task.gradients` that is computed in the background."""

    def result(self, number: int) -> "tuple[Tensor, Tensor]":
        """Wait for gradient `number`, `(ensemble, params)`, and its losses `(ensemble,)`."""
        ...

    def cancel(self) -> None:
        """Stop background evaluation; requested results are still computed."""
        ...


def submit(
    task: "Task", weights: "Sequence[Tensor]", batches: Sequence[Any]
) -> BackgroundCall | None:
    """Begin `task.gradients` in the background, where the task can, at each of the `weights`
    `(ensemble, params)`, which are not copied.

    It can where `submit` is defined in the same class as its `gradients`. A subclass or a wrapper
    that replaces only `gradients` computes in another way, for which an inherited `submit` would be
    wrong.
    """
    for namespace in (getattr(task, "__dict__", {}), *map(vars, type(task).__mro__)):
        if "gradients" in namespace:
            if "submit" not in namespace:
                return None
            return task.submit(weights, batches)  # type: ignore[attr-defined, no-any-return]
    return None


@runtime_checkable
class Task(Protocol):
    """A learning problem: tensors `(ensemble, params)` and mini-batches of any type.

    Tasks implement this protocol without importing it, so that `simulator` and `models` stay
    independent. The same arguments must give the same values at any time, because the engine
    evaluates gradients when their values are first needed, not when the simulated worker computes
    them. Where workers hold different numbers of samples, a task has `samples(rank)`, the number of
    worker `rank`, by which models are averaged.

    Attributes:
        batch: samples in one mini-batch.
        epoch: samples in one epoch, the size of the training set.
        lanes: the number of model gradients that keep the hardware busy; the pool fills a call to
            `gradients` with promises in flight up to a multiple of it (on a GPU it is so large that
            all gradients in flight are evaluated).
    """

    batch: int
    epoch: int
    lanes: int

    def start(self, seeds: Sequence[int]) -> "Tensor":
        """Initial weights `(ensemble, params)`, a seed per member; equal seeds give equal rows."""
        ...

    def batches(self, rank: int, rngs: Sequence[np.random.Generator]) -> Iterator[Any]:
        """The endless mini-batches of worker `rank`, as arguments of `gradients`.

        `rngs` holds one generator that all members share, or one per member where members have
        their own data seed; then a batch has a leading ensemble axis. A batch is always full.
        """
        ...

    def gradients(self, weights: "Tensor", batches: Sequence[Any]) -> "tuple[Tensor, Tensor]":
        """Gradients `(k, ensemble, params)` and losses `(k, ensemble)` at `weights` `(k, ensemble,
        params)`.
        """
        ...

    def evaluate(self, weights: "Tensor") -> "Mapping[str, Tensor]":
        """Named measures `(ensemble,)` of models `(ensemble, params)`."""
        ...


class EqualLayer(NamedTuple):
    """One of the layers of a `Timing` task, all of which have the same size and work."""

    name: str
    params: int
    activations: float
    work: float


@dataclass(eq=False)
class Timing(Settings):
    """A task with nothing to learn: the clock runs, the weights are `(ensemble, 0)`, epochs are as
    on MNIST.

    A pipeline cuts its `depth` equal layers `layer1`, `layer2`, ...; a cut is crossed by
    `activations` models. With the layers of a `network` instead, such as
    `vision_layers("resnet50")`, a message has 4 bytes a parameter of them.

    Attributes:
        batch: samples in a mini-batch.
        epoch: samples in an epoch.
        depth: how many equal layers there are.
        activations: the size of what crosses a cut, over that of the model.
        network: layers instead of equal ones.

    Example:
        >>> Timing().start([0, 1]).shape
        torch.Size([2, 0])
    """

    batch: Counted = 32
    epoch: Counted = 60_000
    depth: PositiveInt = 12
    activations: NonNegative = 0.0
    network: Sequence[Layer] = ()
    lanes: int = field(default=1, init=False)

    def layers(self) -> Sequence[Layer]:
        return self.network or [
            EqualLayer(f"layer{number}", 0, self.activations, 1.0)
            for number in range(1, self.depth + 1)
        ]

    def start(self, seeds: Sequence[int]) -> "Tensor":
        import torch

        return torch.empty(len(seeds), 0)

    def batches(self, rank: int, rngs: Sequence[np.random.Generator]) -> Iterator[None]:
        return repeat(None)

    def gradients(self, weights: "Tensor", batches: Sequence[None]) -> "tuple[Tensor, Tensor]":
        import torch

        return torch.empty_like(weights), torch.zeros(weights.shape[:2])

    def evaluate(self, weights: "Tensor") -> "Mapping[str, Tensor]":
        return {}
