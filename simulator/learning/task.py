"""What the engine needs of a task: four functions over whole ensembles."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from laggard.simulator.errors import Counted, NonNegative, PositiveInt, Settings

if TYPE_CHECKING:
    from torch import Tensor

ACCURACY_ROUNDING = 1e-7
"""An accuracy in single precision may lie so far below the one that it stands for: 195 of 250 below
0.78.
"""


class Layer(Protocol):
    """A part of a model that a pipeline does not cut.

    Attributes:
        name: what a cut calls it.
        params: entries of the parameter vector; the layers' follow each other.
        activations: numbers that one mini-batch sends on to the next layer.
        work: how much computing it is, in any unit.
    """

    @property
    def name(self) -> str: ...
    @property
    def params(self) -> int: ...
    @property
    def activations(self) -> float: ...
    @property
    def work(self) -> float: ...


def layers_of(task: "Task") -> Sequence[Layer]:
    """The layers of what is learnt, where the task has `layers()`; none otherwise."""
    layers: Callable[[], Sequence[Layer]] | None = getattr(task, "layers", None)
    if layers:
        return layers()
    return ()


def bytes_of(task: "Task", params: int) -> float:
    """The bytes of a model of `params` entries; of its layers' parameters where nothing is
    learnt.
    """
    return 4.0 * (params or sum(layer.params for layer in layers_of(task)))


class BackgroundCall(Protocol):
    """A call of `Task.gradients` that is computed in the background."""

    def result(self, number: int) -> "tuple[Tensor, Tensor]":
        """Gradient `number` of the call, `(ensemble, params)`, and its losses `(ensemble,)`, once
        they are computed.
        """
        ...

    def cancel(self) -> None:
        """Begin nothing more in the background; a `result` that is asked for is still computed."""
        ...


def submit(task: "Task", weights: "Tensor", batches: Sequence[Any]) -> BackgroundCall | None:
    """Begin `task.gradients(weights, batches)` in the background, where the task can.

    It can where `submit` is defined beside its `gradients`. A class that has only the latter, as
    one that derives from a task or passes all else on to one, computes in another way, and may
    answer None.
    """
    spaces = (getattr(task, "__dict__", {}), *map(vars, type(task).__mro__))
    found = next((space for space in spaces if "gradients" in space), {})

    if "submit" in found:
        return task.submit(weights, batches)  # type: ignore[attr-defined, no-any-return]
    return None


@runtime_checkable
class Task(Protocol):
    """What is learnt, as the engine sees it: tensors `(ensemble, params)` and opaque mini-batches.

    Tasks implement this protocol without importing it, so that `simulator` and `models` stay
    independent. The same arguments must give the same values at any time, because the engine
    evaluates gradients when their values are first needed, not when the simulated worker computes
    them.

    Attributes:
        batch: samples in one mini-batch.
        epoch: samples in one epoch, the size of the training set.
        lanes: how many model gradients keep the hardware busy at once; the pool fills a call to
            `gradients` up to a multiple of it with promises in flight (on a GPU it is so large that
            all gradients in flight are evaluated).
    """

    batch: int
    epoch: int
    lanes: int

    def start(self, seeds: Sequence[int]) -> "Tensor":
        """Initial weights `(ensemble, params)`, a seed per member; equal seeds give equal rows."""
        ...

    def batches(self, rank: int, rngs: Sequence[np.random.Generator]) -> Iterator[Any]:
        """The endless mini-batches of worker `rank`: whatever `gradients` takes.

        `rngs` holds one generator that all members share, or one per member where members have
        their own data seed; then a batch carries a leading ensemble axis. A batch is always full.
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
    """A layer of `Timing`."""

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
