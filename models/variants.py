"""A training set whose samples have variants, which are made when a mini-batch asks for them."""

from collections.abc import Callable, Iterator
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from laggard.models.augmentation import Augmentation

Transform = Callable[[Tensor, Tensor], Tensor]  # values (..., *shape), variants (...) -> values (..., *shape)


class Indexable(Protocol):
    """What a mini-batch is taken from: a tensor `(samples, ...)`, or `Variants` of one."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: Any, /) -> Any: ...
    def index_select(self, dim: int, index: Tensor) -> Any: ...


class Variants:
    """`values` `(samples, ...)` in so many variants each, as if they were one tensor `(samples * variants, ...)`.

    Entry v samples + i is variant v of sample i. Backends read it as they read a tensor.

    Args:
        transform: makes the variants; without one, they are all alike.
    """

    def __init__(self, values: Tensor, variants: int, transform: Transform | None = None) -> None:
        self.values = values
        self._length, self._transform = len(values) * variants, transform

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, number: Tensor) -> Tensor:
        samples = len(self.values)
        values = self.values[number % samples]
        return values if self._transform is None else self._transform(values, number // samples)

    def index_select(self, dim: int, index: Tensor) -> Tensor:
        """As of a tensor; `dim` is 0."""
        return self[index]


def tensor_of(values: Indexable) -> Tensor:
    """The tensor that has the variants, or that `values` are."""
    return values.values if isinstance(values, Variants) else cast(Tensor, values)


def make_variants(x: Tensor, y: Tensor, augment: Augmentation) -> tuple[Indexable, Indexable]:
    """Inputs `x` `(samples, ...)` and labels `y` `(samples, ...)`, in all variants that there are.

    Raises:
        ValueError: the inputs cannot be augmented.
    """
    augment.check(tuple(x.shape[1:]))
    if augment.variants == 1:
        return x, y
    return Variants(x, augment.variants, augment.apply), Variants(y, augment.variants)


def draw_variants(batches: Iterator[Tensor], samples: int, variants: int, rng: np.random.Generator) -> Iterator[Tensor]:
    """Mini-batches of one of so many `variants` of each of their samples, uniformly: their numbers in `Variants`."""
    for batch in batches:
        yield batch + samples * torch.from_numpy(rng.integers(variants, size=len(batch)))
