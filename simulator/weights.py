"""Weights are values: a tensor `(ensemble, params)` that knows whose model it was, and after how many updates."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor


class Model(Protocol):
    """Whoever owns a model.

    Attributes:
        rank: the node's.
        version: the number of updates that the model has seen.
        mixings: how often it was averaged with others'.
    """

    rank: int
    version: int
    mixings: int


Stamp = tuple[Model, int, int]
"""Whose model a tensor is, and how many updates and mixings it had seen; made with every update."""


class Piece(NamedTuple):
    """A slice of the parameters, from `start` to `stop`, that has an owner of its own."""

    start: int
    stop: int
    stamp: Stamp


def stamped(weights: Tensor, owner: Model) -> Tensor:
    """The same values under a name of their own, stamped with `owner` and its present version.

    The alias keeps the caller's tensor free of the stamp and shares its memory and its count of changes in
    place; arithmetic on it gives tensors without a stamp.
    """
    alias: Any = weights.detach()
    alias.stamp = owner, owner.version, owner.mixings
    return alias  # type: ignore[no-any-return]


def joined(pieces: Sequence[Tensor]) -> Tensor:
    """A model `(ensemble, params)` from slices of its parameters, each of which keeps its own stamp."""
    if len(pieces) == 1:
        return pieces[0]
    whole: Any = torch.cat(list(pieces), dim=1)
    stops = torch.tensor([piece.shape[1] for piece in pieces]).cumsum(0).tolist()
    stamps: list[Any] = [getattr(piece, "stamp", None) for piece in pieces]
    if all(stamps):
        bounds = zip([0, *stops], stops, stamps, strict=False)
        whole.pieces = tuple(Piece(start, stop, stamp) for start, stop, stamp in bounds)
        whole.stamp = stamps[0]
    return whole  # type: ignore[no-any-return]


def stamp_of(weights: Tensor, reader: Model) -> Stamp:
    """The stamp of `weights`; weights without one are `reader`'s own, as they are now."""
    stamp: Stamp | None = getattr(weights, "stamp", None)
    return stamp or (reader, reader.version, reader.mixings)


def mean(models: list[Tensor]) -> Tensor:
    """The mean of models `(ensemble, params)`; one model is its own mean, bit for bit."""
    return models[0] if len(models) == 1 else torch.stack(models).mean(0)
