"""Weights are values: a tensor `(ensemble, params)` that knows whose model it was, and after how many updates."""

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor


class Model(Protocol):
    """Whoever owns a model: its version is the number of updates that it has seen."""

    version: int


class Stamp(NamedTuple):
    """Whose model a tensor is, and its version when it was."""

    owner: Model
    version: int


def stamped(weights: Tensor, owner: Model) -> Tensor:
    """The same values under a name of their own, stamped with `owner` and its present version.

    The alias keeps the caller's tensor free of the stamp and shares its memory and its count of changes in
    place; arithmetic on it gives tensors without a stamp.
    """
    alias: Any = weights.detach()
    alias.stamp = Stamp(owner, owner.version)
    return alias  # type: ignore[no-any-return]


def stamp_of(weights: Tensor, reader: Model) -> Stamp:
    """The stamp of `weights`; weights without one are `reader`'s own, as they are now."""
    stamp: Stamp | None = getattr(weights, "stamp", None)
    return stamp or Stamp(reader, reader.version)


def mean(models: list[Tensor]) -> Tensor:
    """The mean of models `(ensemble, params)`; one model is its own mean, bit for bit."""
    return models[0] if len(models) == 1 else torch.stack(models).mean(0)
