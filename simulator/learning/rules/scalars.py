"""Hyper-parameters, which may differ among the members of an ensemble."""

import math
from typing import TYPE_CHECKING, Annotated, Any, Union

from laggard.simulator.errors import Range

if TYPE_CHECKING:
    from torch import Tensor

Scalar = Union[float, "Tensor"]  # in quotes, since a config is read without torch
"""A hyper-parameter: a float, or a float64 tensor `(ensemble, 1)` with a value per member.

Arithmetic between scalars is double precision either way and rounded once, where it meets the
weights, so that a member of an ensemble sees bit for bit the numbers of a run of its own.
"""
PositiveScalar = Annotated[Scalar, Range(above=0)]
NonNegativeScalar = Annotated[Scalar, Range(least=0)]
Decay = Annotated[Scalar, Range(least=0, below=1)]
Momentum = Annotated[Scalar, Range(above=-1, below=1)]
"""A heavy-ball momentum; below 0 it opposes the last step, as asynchrony with many workers may
need.
"""

NUMBER = (float, int)


def cast(scalar: Scalar, like: "Tensor") -> Scalar:
    """The scalar in the precision and on the device of `like`; a float is rounded by torch itself.

    Scalars stay in the host's memory. A tensor stores its copies in its dictionary: a scalar that
    does not change is copied once, and not at every use.
    """
    if isinstance(scalar, NUMBER):
        return scalar
    if scalar.dtype == like.dtype and scalar.device == like.device:
        return scalar
    copies: dict[Any, Tensor] = scalar.__dict__.setdefault("copies", {})
    place = like.dtype, like.device
    if place not in copies:
        copies[place] = copy_like(scalar, like)
    return copies[place]


def copy_like(scalar: "Tensor", like: "Tensor") -> "Tensor":
    """A copy of `scalar` in the precision and on the device of `like`."""
    # from pinned memory a copy to a GPU does not wait
    if like.is_cuda and not scalar.is_cuda:
        scalar = scalar.to(like.dtype).pin_memory()
    return scalar.to(like, non_blocking=True)


def complement(scalar: Scalar) -> Scalar:
    """1 - scalar; for a tensor always the same object, so that `cast` copies it once."""
    if isinstance(scalar, NUMBER):
        return 1 - scalar
    if "complement" not in scalar.__dict__:
        scalar.__dict__["complement"] = 1 - scalar
    rest: Tensor = scalar.__dict__["complement"]
    return rest


def reciprocal(scalar: Scalar) -> Scalar:
    """1 / scalar, or 0 where it is 0."""
    if isinstance(scalar, NUMBER):
        return 1 / scalar if scalar else 0.0
    return (1 / scalar).where(scalar != 0, 0.0)


def sqrt(scalar: Scalar) -> Scalar:
    """The square root of a scalar of either kind."""
    if isinstance(scalar, NUMBER):
        return math.sqrt(scalar)
    return scalar.sqrt()


def at_least_one(scalar: Scalar) -> Scalar:
    """The scalar, or 1 where it is less."""
    if isinstance(scalar, NUMBER):
        return max(1.0, scalar)
    return scalar.clamp(min=1.0)


def is_zero(scalar: Scalar) -> bool:
    """Whether the scalar is 0 for every member."""
    if isinstance(scalar, NUMBER):
        return scalar == 0
    return not scalar.any()


def double(scalar: Scalar) -> "Tensor":
    """The scalar as a float64 tensor."""
    import torch

    return torch.as_tensor(scalar, dtype=torch.float64)
