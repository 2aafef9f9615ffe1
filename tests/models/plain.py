"""What torch itself says of a network, without laggard's backends."""

import copy

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from laggard.models.flat import flatten


def gradient_by_torch(module, weights, x, y, loss=cross_entropy):
    """The gradient `(params,)` and the loss of a module at these weights, by autograd."""
    nn.utils.vector_to_parameters(weights, module.parameters())
    value = loss(module(x), y)
    found = torch.autograd.grad(value, tuple(module.parameters()), materialize_grads=True)
    return flatten(found), value.detach()


def gradients_by_torch(module, weights, x, y, index, loss=cross_entropy):
    """Those of each row of weights `(models, params)`, for a mini-batch of indices each."""
    module = copy.deepcopy(module)
    found = [
        gradient_by_torch(module, row, x[batch], y[batch], loss)
        for row, batch in zip(weights, index.long(), strict=True)
    ]
    return [torch.stack(column) for column in zip(*found, strict=True)]
