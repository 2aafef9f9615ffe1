"""A training set whose samples have variants, as crops and reflections, made when a mini-batch asks
for them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

DRAWS_OF_A_SAMPLE = 1 << 32  # from which the masks of dropout are made
# values (..., *shape), variants (...) -> what a module takes
Transform = Callable[["Tensor", "Tensor"], Any]


@dataclass(frozen=True)
class Augmentation:
    """Every training image is moved by up to `crop` pixels each way, and reflected with probability
    1/2.

    An image is padded with `crop` zeros on each side and cut to its own size at a random place, so
    that there are (2 crop + 1)^2 variants of it, twice as many with `flip`. Each time that a
    mini-batch has the image, one of them is drawn uniformly. Zero is the mean of normalised pixels.
    Evaluations have the images as they are. With crop 0 and without `flip` nothing is drawn.
    CIFAR's usual recipe is `crop: 4, flip: true`.

    Attributes:
        crop: zeros on each side, in pixels.
        flip: whether every other image, at random, is reflected left to right.

    Source: He, Zhang, Ren, Sun (2016), arXiv:1512.03385, section 4.2.

    Raises:
        ValueError: `crop` is negative.
    """

    crop: int = 0
    flip: bool = False

    def __post_init__(self) -> None:
        if self.crop < 0:
            raise ValueError(f"crop = {self.crop}: expected at least 0 pixels")

    @property
    def variants(self) -> int:
        """How many variants an image has."""
        return (2 * self.crop + 1) ** 2 * (1 + self.flip)

    def check(self, shape: tuple[int, ...]) -> None:
        """Check that an input of `shape` can be augmented.

        Raises:
            ValueError: it is no image, or a crop could miss it altogether.
        """
        if self.variants == 1:
            return
        if len(shape) != 3:
            raise ValueError(
                "augment: expected images (channels, height, width), got inputs of shape "
                f"{tuple(shape)}"
            )
        if self.crop >= min(shape[1:]):
            size = " x ".join(map(str, shape[1:]))
            raise ValueError(
                f"augment.crop = {self.crop}: expected less than the size of the images, "
                f"{size} pixels"
            )

    def apply(self, images: "Tensor", variant: "Tensor") -> "Tensor":
        """The variants `variant` `(...)`, from 0 to `variants` - 1, of `images` `(..., channels,
        height, width)`.

        Variant (f (2 crop + 1) + y) (2 crop + 1) + x is cut from row y and column x of the padded
        image on, and reflected where f is 1.
        """
        import torch
        from torch.nn.functional import pad

        height, width = images.shape[-2:]
        side, wide = 2 * self.crop + 1, width + 2 * self.crop
        rows, columns = (torch.arange(size, device=images.device) for size in (height, width))
        flip, y, x = (
            each[..., None] for each in (variant // side**2, variant // side % side, variant % side)
        )
        columns = x + torch.where(flip > 0, width - 1 - columns, columns)
        places = ((y + rows)[..., :, None] * wide + columns[..., None, :]).flatten(-2)
        padded = pad(images, [self.crop] * 4).flatten(-2)
        return padded.gather(-1, places[..., None, :].expand(*images.shape[:-2], -1)).view(
            images.shape
        )


class Indexable(Protocol):
    """What a mini-batch is taken from: a tensor `(samples, ...)`, or `Variants` of one."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: Any, /) -> Any: ...
    def index_select(self, dim: int, index: "Tensor") -> Any: ...


class Variants:
    """`values` `(samples, ...)` in so many variants each, as if they were one tensor `(samples *
    variants, ...)`.

    Entry v samples + i is variant v of sample i. Backends read it as they read a tensor.

    Args:
        transform: makes the variants; without one, they are all alike.
    """

    def __init__(self, values: "Tensor", variants: int, transform: Transform | None = None) -> None:
        self.values = values
        self._length, self._transform = len(values) * variants, transform

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, number: "Tensor") -> Any:
        samples = len(self.values)
        values = self.values[number % samples]
        if self._transform is None:
            return values
        return self._transform(values, number // samples)

    def index_select(self, dim: int, index: "Tensor") -> Any:
        """As of a tensor; `dim` is 0."""
        return self[index]


def tensor_of(values: Indexable) -> "Tensor":
    """The tensor that has the variants, or that `values` are."""
    if isinstance(values, Variants):
        return values.values
    return cast("Tensor", values)


def make_variants(
    x: "Tensor", y: "Tensor", augment: Augmentation, drops: bool
) -> tuple[Indexable, Indexable, int]:
    """Inputs `x` `(samples, ...)` and labels `y` `(samples, ...)` in all variants that there are,
    and their number.

    Where a network `drops`, each variant that `augment` makes of a sample comes with 2^32 draws, or
    as many as 64 bits have for all samples, and inputs are pairs of both.

    Raises:
        ValueError: the inputs cannot be augmented.
    """
    augment.check(tuple(x.shape[1:]))
    pictures = augment.variants
    if drops:
        variants = pictures * min(DRAWS_OF_A_SAMPLE, ((1 << 63) - 1) // (len(x) * pictures))
    else:
        variants = pictures

    def transform(values: "Tensor", variant: "Tensor") -> Any:
        if pictures > 1:
            values = augment.apply(values, variant % pictures)
        if drops:
            return (values, variant // pictures)
        return values

    if variants == 1:
        return (x, y, 1)
    return (Variants(x, variants, transform), Variants(y, variants), variants)


def draw_variants(
    batches: "Iterator[Tensor]", samples: int, variants: int, rng: np.random.Generator
) -> "Iterator[Tensor]":
    """Mini-batches of one of so many `variants` of each of their samples, uniformly: their numbers
    in `Variants`.
    """
    import torch

    for batch in batches:
        yield batch + samples * torch.from_numpy(rng.integers(variants, size=len(batch)))
