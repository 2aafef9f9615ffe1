"""Variants of training samples, such as crops and reflections, made for each mini-batch."""

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
    """Random crops by up to `crop` pixels each way, and reflections with probability 1/2.

    An image is padded with `crop` zeros on each side and cut to its size at a random place: it has
    (2 crop + 1)^2 variants, twice as many with `flip`. Each mini-batch draws one of them uniformly.
    Zero is the mean of normalised pixels. Evaluations use the original images. With crop 0 and
    without `flip` nothing is drawn. CIFAR's usual recipe is `crop: 4, flip: true`.

    Attributes:
        crop: zeros on each side, in pixels.
        flip: whether an image is reflected left to right with probability 1/2.

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
        """The number of variants of an image."""
        return (2 * self.crop + 1) ** 2 * (1 + self.flip)

    def check(self, shape: tuple[int, ...]) -> None:
        """Check that an input of `shape` can be augmented.

        Raises:
            ValueError: it is not an image, or a crop could miss it altogether.
        """
        if self.variants == 1:
            return
        if len(shape) != 3:
            expected = "expected images (channels, height, width)"
            raise ValueError(f"augment: {expected}, got inputs of shape {tuple(shape)}")
        if self.crop >= min(shape[1:]):
            size = " x ".join(map(str, shape[1:]))
            expected = f"expected less than the size of the images, {size} pixels"
            raise ValueError(f"augment.crop = {self.crop}: {expected}")

    def apply(self, images: "Tensor", variant: "Tensor") -> "Tensor":
        """The variants `variant` `(...)`, from 0, of `images` `(..., channels, height, width)`.

        Variant (f (2 crop + 1) + y) (2 crop + 1) + x is cut from row y and column x of the padded
        image on, and reflected where f is 1.
        """
        import torch
        from torch.nn.functional import pad

        height, width = images.shape[-2:]
        side, wide = 2 * self.crop + 1, width + 2 * self.crop
        variant = variant[..., None]
        flip = variant // side**2
        y = variant // side % side
        x = variant % side
        rows = y + torch.arange(height, device=images.device)
        columns = torch.arange(width, device=images.device)
        columns = x + torch.where(flip > 0, width - 1 - columns, columns)
        places = (rows[..., :, None] * wide + columns[..., None, :]).flatten(-2)
        index = places[..., None, :].expand(*images.shape[:-2], -1)  # the same for all channels
        padded = pad(images, [self.crop] * 4).flatten(-2)
        return padded.gather(-1, index).view(images.shape)


class Indexable(Protocol):
    """The source of mini-batches: a tensor `(samples, ...)`, or `Variants` of one."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: Any, /) -> Any: ...
    def index_select(self, dim: int, index: "Tensor") -> Any: ...


class Variants:
    """The variants of `values` `(samples, ...)`, as one tensor `(samples * variants, ...)`.

    Entry v samples + i is variant v of sample i. Backends read it as they read a tensor.

    Args:
        transform: makes the variants; without one, they are all alike.
    """

    def __init__(self, values: "Tensor", variants: int, transform: Transform | None = None) -> None:
        self.values = values
        self._length = len(values) * variants
        self._transform = transform

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, number: "Tensor") -> Any:
        samples = len(self.values)
        values = self.values[number % samples]
        if self._transform is None:
            return values
        return self._transform(values, number // samples)

    def index_select(self, dim: int, index: "Tensor") -> Any:
        """The entries `index`, as of a tensor; `dim` is 0."""
        return self[index]


def tensor_of(values: Indexable) -> "Tensor":
    """`values`, or the tensor of which they are the variants."""
    if isinstance(values, Variants):
        return values.values
    return cast("Tensor", values)


def make_variants(
    x: "Tensor", y: "Tensor", augment: Augmentation, drops: bool
) -> tuple[Indexable, Indexable, int]:
    """All variants of inputs `x` and labels `y`, and the number of variants of a sample.

    Where a network `drops`, each augmented variant has 2^32 dropout draws, or as many as 64 bits
    allow, and an input is a pair of values and draw.

    Raises:
        ValueError: the inputs cannot be augmented.
    """
    augment.check(tuple(x.shape[1:]))
    pictures = augment.variants
    variants = pictures
    if drops:
        draws_that_fit = ((1 << 63) - 1) // (len(x) * pictures)
        variants *= min(DRAWS_OF_A_SAMPLE, draws_that_fit)

    def transform(values: "Tensor", variant: "Tensor") -> Any:
        if pictures > 1:
            values = augment.apply(values, variant % pictures)
        if drops:
            return values, variant // pictures
        return values

    if variants == 1:
        return x, y, 1
    return Variants(x, variants, transform), Variants(y, variants), variants


def draw_variants(
    batches: "Iterator[Tensor]", samples: int, variants: int, rng: np.random.Generator
) -> "Iterator[Tensor]":
    """Mini-batches with a random variant of each sample, as numbers in `Variants`."""
    import torch

    for batch in batches:
        drawn = rng.integers(variants, size=len(batch))
        yield batch + samples * torch.from_numpy(drawn)
