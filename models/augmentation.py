"""Random crops and reflections of training images, each a function of the image and of a whole number."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Augmentation:
    """Every training image is moved by up to `crop` pixels each way, and reflected with probability 1/2.

    An image is padded with `crop` zeros on each side and cut to its own size at a random place, so that there are
    (2 crop + 1)^2 variants of it, twice as many with `flip`. Each time that a mini-batch has the image, one of them is
    drawn uniformly. Zero is the mean of normalised pixels. Evaluations have the images as they are. With crop 0 and
    without `flip` nothing is drawn. CIFAR's usual recipe is `crop: 4, flip: true`.

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
            raise ValueError(f"augment: expected images (channels, height, width), got inputs of shape {tuple(shape)}")
        if self.crop >= min(shape[1:]):
            size = " x ".join(map(str, shape[1:]))
            raise ValueError(f"augment.crop = {self.crop}: expected less than the size of the images, {size} pixels")

    def apply(self, images: "Tensor", variant: "Tensor") -> "Tensor":
        """The variants `variant` `(...)`, from 0 to `variants` - 1, of `images` `(..., channels, height, width)`.

        Variant (f (2 crop + 1) + y) (2 crop + 1) + x is cut from row y and column x of the padded image on, and
        reflected where f is 1.
        """
        import torch
        from torch.nn.functional import pad

        height, width = images.shape[-2:]
        side, wide = 2 * self.crop + 1, width + 2 * self.crop
        rows, columns = (torch.arange(size, device=images.device) for size in (height, width))
        flip, y, x = (each[..., None] for each in (variant // side**2, variant // side % side, variant % side))
        columns = x + torch.where(flip > 0, width - 1 - columns, columns)
        places = ((y + rows)[..., :, None] * wide + columns[..., None, :]).flatten(-2)
        padded = pad(images, [self.crop] * 4).flatten(-2)
        return padded.gather(-1, places[..., None, :].expand(*images.shape[:-2], -1)).view(images.shape)
