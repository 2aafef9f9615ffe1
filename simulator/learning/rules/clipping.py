"""Clipping: a bound on the gradient of an update."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from laggard.simulator.errors import Settings
from laggard.simulator.learning.rules.scalars import PositiveScalar, cast

if TYPE_CHECKING:
    from torch import Tensor

EPS = 1e-6  # as torch has it


class Clip(Protocol):
    """A bound on the gradient of an update: the mean of its gradients after compensation, before
    weight decay.

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
    """Gradients are what they are."""

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
        # a float over a tensor is that product too, and has to be: division by a tensor rounds
        # otherwise
        return gradient * ((length + EPS).reciprocal() * cast(self.norm, gradient)).clamp(max=1.0)


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
        most = cast(self.value, gradient)
        return gradient.clamp(-most, most)  # type: ignore[arg-type]  # both are numbers, or both tensors


CLIPS: dict[str, type] = {"none": Unclipped, "norm": ClipNorm, "value": ClipValue}
