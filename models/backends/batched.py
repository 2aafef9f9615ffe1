"""One batched call over all models: the backend of a GPU."""

from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

from models.backends.backend import EVALUATED, Loss
from models.flat import shapes, unflatten

EVERYTHING = 1 << 20  # lanes of hardware that is never full


class Batched:
    """One call for all models: `vmap` over the gradient of a functional module, in chunks that bound its memory.

    Meant for a GPU. On a CPU, convolutions are up to three times slower than in a loop, and small full layers up
    to seven times faster. Kernels are deterministic and keep full float32 (no TF32), but grouping may change the
    last digits.
    """

    lanes = EVERYTHING

    def __init__(self, module: nn.Module, loss: Loss, chunk: int | None = 256) -> None:
        self._module, self._loss, self._chunk = module, loss, chunk
        self._names, self._shapes = [name for name, _ in module.named_parameters()], shapes(module)

    def gradients(self, weights: Tensor, x: Tensor, y: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        def loss(flat: Tensor, samples: Tensor) -> Tensor:
            return self._loss(self._forward(flat, x[samples]), y[samples])

        with _exact():
            return torch.vmap(torch.func.grad_and_value(loss), chunk_size=self._chunk)(weights, index)

    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        forward = torch.vmap(self._forward, in_dims=(0, None), chunk_size=self._chunk)
        with _exact(), torch.no_grad():
            return torch.cat([forward(weights, chunk) for chunk in x.split(EVALUATED)], dim=1)

    def _forward(self, flat: Tensor, x: Tensor) -> Tensor:
        parameters = dict(zip(self._names, unflatten(flat, self._shapes), strict=True))
        return torch.func.functional_call(self._module, parameters, (x,))


def _exact() -> AbstractContextManager[None]:
    """Full float32 and the same kernels every time, on a GPU; nothing on a CPU."""
    return torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
