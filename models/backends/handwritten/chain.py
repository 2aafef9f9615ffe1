"""The gradient of one model: handwritten for a chain of known layers, by autograd for every other module."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Size, Tensor, nn
from torch.nn.functional import cross_entropy

from laggard.models.backends.handwritten.plan import LayerPlan, ShapeMismatchError, build_plan, chain_of
from laggard.models.backends.handwritten.stages import GradientViews
from laggard.models.flat import Bound, flatten, shapes, unflatten

Loss = Callable[[Tensor, Tensor], Tensor]  # outputs (batch, classes), targets (batch,) -> their mean loss, a scalar
Differentiated = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # the same -> the loss, and its gradient


class Backpropagation(Protocol):
    """One model at a time, whose weights `(params,)` come with every call."""

    def gradient(self, weights: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Gradient `(params,)` and loss, a scalar, of inputs `(batch, ...)` and targets `(batch,)`.

        The next call may overwrite the gradient.
        """
        ...

    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        """Outputs `(samples, classes)` on inputs `(samples, ...)`."""
        ...


class Autograd:
    """The gradient of any module."""

    def __init__(self, bound: Bound, loss: Loss) -> None:
        self._bound, self._loss = bound, loss

    @torch.enable_grad()
    def gradient(self, weights: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        loss = self._loss(self._bound.load(weights)(x), y)
        return flatten(torch.autograd.grad(loss, self._bound.parameters, materialize_grads=True)), loss.detach()

    @torch.no_grad()
    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        outputs: Tensor = self._bound.load(weights)(x)
        return outputs


MEAN, IGNORED = 1, -100  # torch's code of the mean, and the label that its cross entropy ignores

_aten = torch.ops.aten


def loss_gradient(loss: Loss) -> Differentiated:
    """`loss` with its gradient at the outputs: by torch's kernels for its cross entropy, else by autograd."""

    @torch.enable_grad()
    def by_autograd(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        outputs = outputs.detach().requires_grad_()
        value = loss(outputs, targets)
        return value.detach(), torch.autograd.grad(value, outputs, materialize_grads=True)[0]

    def by_hand(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        if targets.dtype != torch.int64 or targets.dim() != 1:  # probabilities of the classes
            return by_autograd(outputs, targets)
        return _cross_entropy(outputs, targets)

    return by_hand if loss is cross_entropy else by_autograd


def _cross_entropy(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The kernels that autograd would call, without its overhead: a tenth of a small network's gradient."""
    log = torch.log_softmax(outputs, 1)
    loss, weight = _aten.nll_loss_forward.default(log, targets, None, MEAN, IGNORED)
    back = _aten.nll_loss_backward.default(torch.ones_like(loss), log, targets, None, MEAN, IGNORED, weight)
    return loss, _aten._log_softmax_backward_data.default(back, log, 1, outputs.dtype)


SHAPES = 4  # input shapes with a cached plan: mini-batches, pieces of a test set, and its remainder


def backpropagation(module: nn.Module, loss: Loss) -> Backpropagation:
    """The fastest known gradient of `module`, which takes over the module."""
    layers, bound = chain_of(module), Bound(module)
    return Autograd(bound, loss) if layers is None else Chain(bound, loss, layers)


class Chain:
    """The gradient of a chain of known layers, without autograd.

    Autograd allocates and frees every intermediate, and its convolutions and poolings are slow for few channels: the
    gradient of LeNet-5 takes a quarter to a half longer. Where the matrix products are those of autograd, so is the
    gradient, bit for bit; elsewhere up to rounding. Autograd takes inputs that the stages do not fit.
    """

    def __init__(self, bound: Bound, loss: Loss, layers: list[nn.Module]) -> None:
        self._bound, self._layers, self._loss = bound, layers, loss_gradient(loss)
        self._autograd = Autograd(bound, loss)
        self._gradient = torch.zeros_like(flatten(bound.parameters).detach())
        pieces = unflatten(self._gradient, shapes(bound.module))
        self._place: GradientViews = dict[Tensor, Tensor](zip(bound.parameters, pieces, strict=True))
        self._plans: dict[Size, LayerPlan | None] = {}

    def gradient(self, weights: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        plan = self._plan_for(x)
        if plan is None:
            return self._autograd.gradient(weights, x, y)
        loss, gradient = self._loss(self._forward(plan, weights, x), y)
        for stage in plan.backward:
            gradient = stage.backward(gradient)
        return self._gradient, loss

    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        plan = self._plan_for(x)
        return self._autograd.outputs(weights, x) if plan is None else self._forward(plan, weights, x).clone()

    def _forward(self, plan: LayerPlan, weights: Tensor, x: Tensor) -> Tensor:
        self._bound.load(weights)
        for stage in plan.forward:
            x = stage.forward(x)
        return x

    def _plan_for(self, x: Tensor) -> LayerPlan | None:
        """The plan for inputs of the shape of `x`, if there is one."""
        if x.shape not in self._plans:
            if len(self._plans) == SHAPES:
                self._plans.clear()
            try:
                self._plans[x.shape] = build_plan(self._layers, self._place, x)
            except ShapeMismatchError:
                self._plans[x.shape] = None
        return self._plans[x.shape]
