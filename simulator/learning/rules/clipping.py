"""Clipping: a bound on the gradient of an update."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from laggard.simulator.errors import Settings
from laggard.simulator.learning.rules.scalars import NUMBER, PositiveScalar, cast

if TYPE_CHECKING:
    from torch import Tensor

EPS = 1e-6  # as torch has it


class Clip(Protocol):
    """A bound on an update's mean gradient, after compensation and before weight decay.

    Attributes:
        whole: whether it needs the whole gradient, which a server that updates a model in parts
            does not have.
    """

    whole: ClassVar[bool]

    def __call__(self, gradient: "Tensor") -> "Tensor":
        """The clipped gradient `(ensemble, params)`, each member's on its own."""
        ...


@dataclass(frozen=True)
class Unclipped:
    """No clipping."""

    whole: ClassVar[bool] = False

    def __call__(self, gradient: "Tensor") -> "Tensor":
        return gradient


@dataclass(frozen=True)
class ClipNorm(Settings):
    """A gradient whose Euclidean norm is above `norm` is scaled down to it.

    g <- g min(1, norm / (||g|| + 1e-6)).

    Attributes:
        norm: the largest norm of an update's gradient.

    Source: Pascanu, Mikolov, Bengio (2013), arXiv 1211.5063, algorithm 1;
    `torch.nn.utils.clip_grad_norm_`.
    """

    whole: ClassVar[bool] = True

    norm: PositiveScalar

    def __call__(self, gradient: "Tensor") -> "Tensor":
        length: Tensor = gradient.norm(dim=1, keepdim=True)
        # A product, since torch computes a float over a tensor so: a division of tensors rounds
        # otherwise, and a member would differ from a run of its own.
        factor = (length + EPS).reciprocal() * cast(self.norm, gradient)
        return gradient * factor.clamp(max=1.0)


@dataclass(frozen=True)
class ClipValue(Settings):
    """Each entry of a gradient is brought into the range from -`value` to `value`.

    Attributes:
        value: the largest size of an entry.

    Source: `torch.nn.utils.clip_grad_value_`.
    """

    whole: ClassVar[bool] = False

    value: PositiveScalar

    def __call__(self, gradient: "Tensor") -> "Tensor":
        import torch

        limit = cast(self.value, gradient)
        # Rounded to the gradient's precision it is infinite, as for members; torch refuses that.
        if isinstance(limit, NUMBER) and limit > torch.finfo(gradient.dtype).max:
            limit = math.inf
        return gradient.clamp(-limit, limit)  # type: ignore[arg-type]  # both are numbers, or both tensors


CLIPS: dict[str, type] = {"none": Unclipped, "norm": ClipNorm, "value": ClipValue}
