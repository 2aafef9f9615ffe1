"""A `(params,)` vector and an `nn.Module` as two views of one model."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn


def flatten(tensors: Iterable[Tensor]) -> Tensor:
    """One vector `(params,)` of all the entries of `tensors`, in their order.

    Example:
        >>> flatten([torch.zeros(2, 2), torch.ones(1)])
        tensor([0., 0., 0., 0., 1.])
    """
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def unflatten(flat: Tensor, shapes: Iterable[torch.Size]) -> tuple[Tensor, ...]:
    """Views of `flat` `(..., params)` with these shapes, without a copy: the inverse of `flatten`.

    Raises:
        RuntimeError: the shapes do not add up to `params`.
    """
    shapes = tuple(shapes)
    pieces = flat.split([shape.numel() for shape in shapes], dim=-1)
    views = []
    for piece, shape in zip(pieces, shapes, strict=True):
        views.append(piece.view(*piece.shape[:-1], *shape))
    return tuple(views)


class Bound:
    """A module whose parameters are views of one vector that belongs to it.

    Loading a model copies one row, which is cheap compared with a gradient. The result then does
    not depend on the row's place in a stack of models: matrix products round differently on memory
    with another alignment.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.parameters = tuple(module.parameters())
        self._vector = flatten(self.parameters).detach()
        views = unflatten(self._vector, shapes(module))
        for parameter, view in zip(self.parameters, views, strict=True):
            parameter.data = view

    def load(self, flat: Tensor) -> nn.Module:
        """The module with the weights `flat` `(params,)`, until the next load."""
        self._vector.copy_(flat)
        return self.module


def shapes(module: nn.Module) -> tuple[torch.Size, ...]:
    """The shapes of a module's parameters, in the order of `flatten`."""
    return tuple(parameter.shape for parameter in module.parameters())
