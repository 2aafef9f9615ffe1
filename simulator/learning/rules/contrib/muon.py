"""Muon: momentum whose matrices are made orthogonal before each step."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from laggard.simulator.errors import InvalidSettingError, Settings
from laggard.simulator.learning.rules.optimizers import AdamW, Moments, Optimizer, running, zeros
from laggard.simulator.learning.rules.scalars import Decay, NonNegativeScalar, Scalar, cast

if TYPE_CHECKING:
    from torch import Tensor

STEPS = 5
FACTORS = (3.4445, -4.7750, 2.0315)
"""a, b, c of the odd polynomial a s + b s^3 + c s^5, which brings a singular value s towards 1."""
LEAST_NORM = 1e-7  # keeps the divisor from 0

ParameterShapes = Mapping[str, tuple[int, ...]]
"""The shape of each parameter by its name, in the order of the vector."""


@dataclass(frozen=True)
class Muon(Settings, Optimizer):
    """Steps along orthogonal matrices for the hidden weights, AdamW for all other parameters.

    Of the mean gradient G of a matrix with n rows and m columns:

        B <- momentum B + (1 - momentum) G;  U = momentum B + (1 - momentum) G;
        X = U / |U|, five times X <- a X + (b A + c A A) X with A = X X^T;
        w <- w - lr (s X + weight_decay w),    s = sqrt(max(1, n / m)).

    Without `nesterov` U = B. With `adjust: match_rms_adamw` s = 0.2 sqrt(max(n, m)), by which a
    step is about as long as one of AdamW, so that it takes the rates of AdamW.

    A convolution is a matrix with a row for each output. Vectors, embeddings (parameters with
    `embed` in their names) and the last matrix, which makes the outputs, take AdamW's steps. The
    iteration runs in the precision of the weights, where that of `torch.optim.Muon` is bfloat16,
    which moves a step by 1 to 3 %.

    It needs the shapes of a network's parameters, and each of them whole on one node, as stages of
    a pipeline have them; shards, which are cut evenly, may cut one in two.

    Source: Jordan et al. (2024), https://kellerjordan.github.io/posts/muon; `torch.optim.Muon`,
    also for `adjust` (there `adjust_lr_fn`).

    Attributes:
        momentum: decay of the running mean of gradients of matrices.
        weight_decay: the share, times the learning rate, by which a weight shrinks in each step.
        others_rate: the learning rate of AdamW over that of the matrices.
        beta1: AdamW's decay of the running mean of gradients.
        beta2: AdamW's decay of the running mean of their squares.
        eps: keeps AdamW's divisor from 0.
        nesterov: whether a step looks ahead by the gradient.
        adjust: the factor s of a matrix by its shape.
    """

    needs_shapes: ClassVar[bool] = True

    momentum: Decay = 0.95
    weight_decay: NonNegativeScalar = 0.0
    others_rate: NonNegativeScalar = 1.0
    beta1: Decay = 0.9
    beta2: Decay = 0.999
    eps: NonNegativeScalar = 1e-8
    nesterov: bool = True
    adjust: Literal["original", "match_rms_adamw"] = "original"

    def with_shapes(self, shapes: ParameterShapes) -> "ShapedMuon":
        """The optimiser of a model whose parameters have these shapes.

        Raises:
            InvalidSettingError: the task has no shapes, or no hidden matrix.
        """
        hidden = hidden_matrices(shapes)
        if not hidden:
            expected = "a network with hidden matrices"
            raise InvalidSettingError("Muon", "optimizer", expected, "a task without any")
        return ShapedMuon(**vars(self), shapes=dict(shapes), hidden=hidden)

    def init(self, weights: "Tensor") -> Any:
        raise InvalidSettingError("Muon", "optimizer", "with_shapes(...) before it is used", "none")


class MuonState(NamedTuple):
    """The running mean of gradients, and AdamW's state, both of all parameters."""

    velocity: "Tensor"
    moments: Moments


@dataclass(frozen=True)
class ShapedMuon(Muon):
    """Muon for a model, or a part of one, whose parameters have known shapes.

    Attributes:
        shapes: the shapes of the parameters by name, in their order.
        hidden: the names of the model's hidden matrices.
    """

    # `with_shapes` gives both
    shapes: ParameterShapes = None  # type: ignore[assignment]
    hidden: Sequence[str] = ()

    def of_part(self, place: slice) -> "ShapedMuon":
        """The optimiser of the parameters in a part of the model.

        Raises:
            InvalidSettingError: the part contains only a piece of some parameter.
        """
        shapes = {}
        for name, own in places_of(self.shapes):
            if own.stop <= place.start or place.stop <= own.start:
                continue
            if own.start < place.start or place.stop < own.stop:
                expected = "an optimiser of single numbers, or each parameter whole on one node"
                raise InvalidSettingError("Muon", "optimizer", expected, f"{name} cut in two")
            shapes[name] = self.shapes[name]
        return replace(self, shapes=shapes)

    def init(self, weights: "Tensor") -> MuonState:
        params = sum(map(math.prod, self.shapes.values()))
        if weights.shape[1] != params:
            expected = f"all {params} parameters on one node"
            raise InvalidSettingError("Muon", "optimizer", expected, f"{weights.shape[1]} of them")
        return MuonState(zeros(weights), self._adamw().init(weights))

    def step(
        self, gradient: "Tensor", state: MuonState, weights: "Tensor", lr: Scalar
    ) -> "tuple[Tensor, MuonState]":
        import torch

        velocity = running(self.momentum, state.velocity, gradient)
        direction = velocity
        if self.nesterov:
            direction = running(self.momentum, velocity, gradient)
        rate = lr * self.others_rate
        others, moments = self._adamw().step(gradient, state.moments, weights, rate)
        changes = []
        for name, place in places_of(self.shapes):
            if name not in self.hidden:
                changes.append(others[:, place])
                continue
            rows, *others_of_row = self.shapes[name]
            columns = math.prod(others_of_row)
            matrices = direction[:, place].reshape(-1, rows, columns)
            step = self.factor(rows, columns) * orthogonal(matrices).flatten(1)
            step = step + cast(self.weight_decay, weights) * weights[:, place]
            changes.append(step * -cast(lr, weights))
        return torch.cat(changes, dim=1), MuonState(velocity, moments)

    def factor(self, rows: int, columns: int) -> float:
        """The factor s of the step of a matrix."""
        if self.adjust == "match_rms_adamw":
            return 0.2 * math.sqrt(max(rows, columns))
        return math.sqrt(max(1, rows / columns))

    def _adamw(self) -> AdamW:
        return AdamW(self.beta1, self.beta2, self.eps, self.weight_decay)


def places_of(shapes: ParameterShapes) -> Iterator[tuple[str, slice]]:
    """The names of parameters, and where each is in the vector."""
    start = 0
    for name, shape in shapes.items():
        place = slice(start, start + math.prod(shape))
        yield name, place
        start = place.stop


def hidden_matrices(shapes: ParameterShapes) -> Sequence[str]:
    """The names of a model's matrices except embeddings and the last one, for the outputs."""
    matrices = [name for name, shape in shapes.items() if len(shape) > 1 and "embed" not in name]
    return matrices[:-1]


def orthogonal(matrices: "Tensor") -> "Tensor":
    """Matrices with singular values near 1 and the singular vectors of `matrices` `(ensemble, n,
    m)`.
    """
    size = matrices.norm(dim=(1, 2), keepdim=True)
    x: Tensor = matrices / size.clamp(min=LEAST_NORM)
    is_tall = x.shape[1] > x.shape[2]
    # So X X^T has the shorter side, which is less work.
    if is_tall:
        x = x.transpose(1, 2)
    first, third, fifth = FACTORS
    for _ in range(STEPS):
        square = x @ x.transpose(1, 2)
        x = first * x + (third * square + fifth * square @ square) @ x
    return x.transpose(1, 2) if is_tall else x
