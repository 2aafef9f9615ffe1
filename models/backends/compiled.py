"""Gradients through `torch.compile`, where it works."""

import torch
from torch import Tensor

from models.backends.backend import Backend


class Compiled:
    """Another backend's gradients, fused by `torch.compile` for each size of call anew, which takes tens of seconds.

    Args:
        compiler: of `torch.compile`; on a GPU its usual one needs Triton, on a CPU a C++ compiler.
    """

    def __init__(self, backend: Backend, compiler: str = "inductor") -> None:
        self.lanes, self.name = backend.lanes, f"{backend.name}-compile"
        self._backend = backend
        self._gradients = torch.compile(backend.gradients, backend=compiler, dynamic=False)

    def gradients(self, weights: Tensor, x: Tensor, y: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        gradients, losses = self._gradients(weights, x, y, index)
        return gradients, losses

    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        return self._backend.outputs(weights, x)
