"""Numbers of a rule: one for all members, or one per member of the ensemble."""

import math

import torch
from torch import Tensor

Scalar = float | Tensor
"""A hyper-parameter: a float, or a float64 tensor `(ensemble, 1)` with a value per member.

Arithmetic between scalars is double precision either way and rounded once, where it meets the weights, so
that a member of an ensemble sees bit for bit the numbers of a run of its own.
"""


def cast(scalar: Scalar, like: Tensor) -> Scalar:
    """The scalar in the precision and on the device of `like`; a float is rounded by torch itself.

    Scalars stay in the host's memory; on its way to a GPU one is copied from where nobody has to wait for it.
    """
    if not isinstance(scalar, Tensor):
        return scalar
    if like.is_cuda and not scalar.is_cuda:
        scalar = scalar.to(like.dtype).pin_memory()
    return scalar.to(like, non_blocking=True)


def sqrt(scalar: Scalar) -> Scalar:
    """The square root of a scalar of either kind."""
    return scalar.sqrt() if isinstance(scalar, Tensor) else math.sqrt(scalar)


def at_least_one(scalar: Scalar) -> Scalar:
    """The scalar, or 1 where it is less."""
    return scalar.clamp(min=1.0) if isinstance(scalar, Tensor) else max(1.0, scalar)


def is_zero(scalar: Scalar) -> bool:
    """Whether the scalar is 0 for every member."""
    return not scalar.any() if isinstance(scalar, Tensor) else scalar == 0


def double(scalar: Scalar) -> Tensor:
    """The scalar as a float64 tensor."""
    return torch.as_tensor(scalar, dtype=torch.float64)
