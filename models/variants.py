"""A training set whose samples have variants, which are made when a mini-batch asks for them."""

from collections.abc import Callable, Iterator
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from laggard.models.augmentation import Augmentation

DRAWS_OF_A_SAMPLE = 1 << 32  # from which the masks of dropout are made
Transform = Callable[[Tensor, Tensor], Any]  # values (..., *shape), variants (...) -> what a module takes


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

    def __getitem__(self, number: Tensor) -> Any:
        samples = len(self.values)
        values = self.values[number % samples]
        return values if self._transform is None else self._transform(values, number // samples)

    def index_select(self, dim: int, index: Tensor) -> Any:
        """As of a tensor; `dim` is 0."""
        return self[index]


def tensor_of(values: Indexable) -> Tensor:
    """The tensor that has the variants, or that `values` are."""
    return values.values if isinstance(values, Variants) else cast(Tensor, values)


def make_variants(x: Tensor, y: Tensor, augment: Augmentation, drops: bool) -> tuple[Indexable, Indexable, int]:
    """Inputs `x` `(samples, ...)` and labels `y` `(samples, ...)` in all variants that there are, and their number.

    Where a network `drops`, each variant that `augment` makes of a sample comes with 2^32 draws, or as many as 64 bits
    have for all samples, and inputs are pairs of both.

    Raises:
        ValueError: the inputs cannot be augmented.
    """
    augment.check(tuple(x.shape[1:]))
    pictures = augment.variants
    variants = pictures * min(DRAWS_OF_A_SAMPLE, ((1 << 63) - 1) // (len(x) * pictures)) if drops else pictures

    def transform(values: Tensor, variant: Tensor) -> Any:
        if pictures > 1:
            values = augment.apply(values, variant % pictures)
        return (values, variant // pictures) if drops else values

    return (x, y, 1) if variants == 1 else (Variants(x, variants, transform), Variants(y, variants), variants)


def draw_variants(batches: Iterator[Tensor], samples: int, variants: int, rng: np.random.Generator) -> Iterator[Tensor]:
    """Mini-batches of one of so many `variants` of each of their samples, uniformly: their numbers in `Variants`."""
    for batch in batches:
        yield batch + samples * torch.from_numpy(rng.integers(variants, size=len(batch)))
