"""The gradient of a loss at the outputs."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

Loss = Callable[[Tensor, Tensor], Tensor]  # outputs (batch, classes), targets (batch,) -> their mean loss, a scalar
Differentiated = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # the same -> the loss, and its gradient

MEAN, IGNORED = 1, -100  # torch's number for a mean, and the label that its cross entropy leaves out

_aten = torch.ops.aten


def differentiated(loss: Loss) -> Differentiated:
    """`loss` with its gradient at the outputs: for torch's cross entropy by its own kernels, or else by autograd."""

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
    """The kernels that autograd would call, without its records: a tenth of a small network's gradient."""
    log = torch.log_softmax(outputs, 1)
    loss, weight = _aten.nll_loss_forward.default(log, targets, None, MEAN, IGNORED)
    back = _aten.nll_loss_backward.default(torch.ones_like(loss), log, targets, None, MEAN, IGNORED, weight)
    return loss, _aten._log_softmax_backward_data.default(back, log, 1, outputs.dtype)
