"""Weights are values `(ensemble, params)` stamped with their owner and version."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from laggard.memory import add

if TYPE_CHECKING:
    from torch import Tensor


class Model(Protocol):
    """The owner of a model.

    Attributes:
        rank: the node's.
        version: the number of updates that the model has seen.
        mixings: averaging steps of the model.
    """

    rank: int
    version: int
    mixings: int


Stamp = tuple[Model, int, int]
"""The owner of a model, and the updates and averaging steps that it had seen."""
Piece = tuple[slice, Stamp]
"""A slice of the parameters, and the stamp of its own owner."""


def stamp(weights: "Tensor", owner: Model) -> "Tensor":
    """An alias of `weights`, stamped with `owner` and its present version.

    The caller's tensor gets no stamp; the alias shares its memory and its count of changes in
    place. Arithmetic on it gives tensors without a stamp.
    """
    alias: Any = weights.detach()
    alias.stamp = owner, owner.version, owner.mixings
    return alias  # type: ignore[no-any-return]


def has_form_of(value: Any, model: "Tensor") -> bool:
    """Whether `value` has the shape and the precision of `model`.

    Another one would fail far from its origin or not at all, since arithmetic broadcasts shapes
    and widens precisions.
    """
    shape = getattr(value, "shape", None)
    precision = getattr(value, "dtype", None)
    return bool(shape == model.shape and precision == model.dtype)


def form_of(value: Any) -> str:
    """The type of `value` in words, and the shape and precision of a tensor or an array."""
    shape = getattr(value, "shape", None)
    precision = getattr(value, "dtype", None)
    if shape is None or precision is None:
        return type(value).__name__
    return f"{type(value).__name__} {tuple(shape)} of {precision}"


def form_error(place: str, value: Any, model: "Tensor") -> TypeError:
    """The error that `value` at `place` has not the form of `model`."""
    expected = f"a tensor {tuple(model.shape)} of {model.dtype}"
    return TypeError(f"{place}: expected {expected}, got {form_of(value)}")


def join_slices(pieces: "Sequence[Tensor]") -> "Tensor":
    """A model `(ensemble, params)` from slices of its parameters, with the stamp of each slice."""
    import torch

    if len(pieces) == 1:
        return pieces[0]
    whole: Any = torch.cat(list(pieces), dim=1)
    stops = torch.tensor([piece.shape[1] for piece in pieces]).cumsum(0).tolist()
    stamps: list[Any] = [getattr(piece, "stamp", None) for piece in pieces]
    if all(stamps):
        bounds = zip([0, *stops], stops, stamps, strict=False)
        whole.pieces = tuple((slice(start, stop), stamp) for start, stop, stamp in bounds)
        whole.stamp = stamps[0]
    return whole  # type: ignore[no-any-return]


def with_columns(model: "Tensor", columns: slice, part: "Tensor") -> "Tensor":
    """`model` `(ensemble, params)` with `part` in place of some of its columns."""
    import torch

    return torch.cat([model[:, : columns.start], part, model[:, columns.stop :]], dim=1)


def total(values: "Sequence[Tensor]") -> "Tensor":
    """The sum of gradients or models `(ensemble, params)`, added in their order.

    Not over a stack of them: the last bits of such a sum depend on its width, so that a member of
    an ensemble would differ from a single run.
    """
    first, *others = values
    if not others:
        return first
    # in place from the second sum on: the first has its own memory
    result = add(first, others[0])
    for value in others[1:]:
        result.add_(value)
    return result


def mean(values: "Sequence[Tensor]") -> "Tensor":
    """The mean of gradients or models `(ensemble, params)`; one is its own mean, bit for bit."""
    if len(values) == 1:
        return values[0]
    return total(values).div_(len(values))


def mean_by_samples(values: "Sequence[Tensor]", samples: Sequence[int]) -> "Tensor":
    """The mean of models `(ensemble, params)` of workers by the samples n_k that each learns from.

    sum_k (n_k / n) x_k with n = sum_k n_k; `mean`, bit for bit, where all n_k are equal.
    """
    if min(samples) == max(samples):
        return mean(values)
    whole = sum(samples)
    parts = []
    for value, count in zip(values, samples, strict=True):
        parts.append((count / whole) * value)
    return total(parts)


def mean_of_slices(parts: "Sequence[tuple[slice, Tensor]]") -> "Tensor":
    """A model `(ensemble, params)` from its slices; several values of one are averaged."""
    import torch

    values: dict[tuple[int, int], list[Tensor]] = {}
    for part, value in parts:
        values.setdefault((part.start, part.stop), []).append(value)
    return torch.cat([mean(of_slice) for of_slice in values.values()], dim=1)
