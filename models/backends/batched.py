"""One batched call over all models, whatever the module: the backend that every other one of a GPU is held against."""

import copy

import torch
from torch import Tensor, nn

from models.backends.backend import Loss
from models.backends.exact import exact
from models.flat import shapes, unflatten

EVERYTHING = 1 << 20  # lanes of hardware that is never full


class Batched:
    """One call for all models: `vmap` over the gradient of a functional module.

    Meant for a GPU, where a convolution with weights of its own for every model becomes a grouped one. On a CPU,
    convolutions are up to three times slower than in a loop, and small full layers up to seven times faster. Kernels
    are deterministic and keep full float32 (no TF32), but grouping may change the last digits.
    """

    lanes = EVERYTHING
    name = "vmap"

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        self._module, self._loss = copy.deepcopy(module), loss  # torch leaves tensors of its own in shared layers
        self._names, self._shapes = [name for name, _ in module.named_parameters()], shapes(module)

    def gradients(self, weights: Tensor, x: Tensor, y: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        def loss(flat: Tensor, samples: Tensor) -> Tensor:
            return self._loss(self._forward(flat, x[samples]), y[samples])

        with exact():
            return torch.vmap(torch.func.grad_and_value(loss))(weights, index)

    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        with exact(), torch.no_grad():
            return torch.vmap(self._forward, in_dims=(0, None))(weights, x)

    def _forward(self, flat: Tensor, x: Tensor) -> Tensor:
        parameters = dict(zip(self._names, unflatten(flat, self._shapes), strict=True))
        return torch.func.functional_call(self._module, parameters, (x,))
