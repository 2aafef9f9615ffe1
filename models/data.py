"""Datasets: whole sets as tensors, so that a mini-batch is a tensor of indices."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from laggard.models.language import ALPHABET, Language
from laggard.models.mnist import DataMissingError, read_images

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class Dataset:
    """A training and a test set: inputs `(samples, ...)` and labels `(samples,)`, or `(samples, positions)` of texts.

    Images have mean 0 and deviation 1, but for those of `femnist`.

    Attributes:
        writers: who wrote each training sample, `(samples,)` of 0, 1, ...; None where nobody knows.
    """

    name: str
    train_x: "Tensor"
    train_y: "Tensor"
    test_x: "Tensor"
    test_y: "Tensor"
    classes: int
    writers: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.train_x.shape[1:])

    @property
    def labels(self) -> tuple[int, ...]:
        """The shape of the labels of one input: `()`, or `(positions,)`."""
        return tuple(self.train_y.shape[1:])

    def to(self, device: "torch.device | str", dtype: "torch.dtype") -> "Dataset":
        """The same set with its inputs as `dtype`, on `device`."""
        return replace(
            self,
            train_x=self.train_x.to(device, dtype),
            train_y=self.train_y.to(device),
            test_x=self.test_x.to(device, dtype),
            test_y=self.test_y.to(device),
        )


def digits() -> Dataset:
    """Handwritten digits of 8 x 8 pixels, scaled up to 28 x 28: 1,500 to train, 297 to test; nothing to download.

    Scikit-learn's bundled set, by bilinear interpolation; a fixed permutation selects the test samples. Mean and
    deviation are constants, as MNIST's: sums of float32 would depend on the number of torch's threads.

    Source: Alpaydin, Kaynak (1998), UCI Machine Learning Repository.

    Raises:
        DataMissingError: scikit-learn is not installed.
    """
    import torch
    from torch.nn.functional import interpolate

    rows = np.loadtxt(_digits_file(), delimiter=",")
    small = torch.from_numpy(rows[:, :-1].reshape(-1, 1, 8, 8)).float() / 16
    x = interpolate(small, size=(28, 28), mode="bilinear", align_corners=False)
    y = torch.from_numpy(rows[:, -1]).long()
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(y)))
    train, test = order[:1500], order[1500:]
    x = _channels_last((x - 0.3057) / 0.3246)
    return Dataset("digits", x[train], y[train], x[test], y[test], classes=10)


def _digits_file() -> Path:
    """The file of digits in scikit-learn's package, which is not imported: that takes longer than a short run."""
    package = find_spec("sklearn")
    for folder in (package and package.submodule_search_locations) or ():
        file = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if file.is_file():
            return file
    raise DataMissingError("digits are a file of scikit-learn, which is not installed: pip install scikit-learn")


def mnist() -> Dataset:
    """Handwritten digits of 28 x 28 pixels: 60,000 to train, 10,000 to test.

    Source: LeCun, Bottou, Bengio, Haffner (1998).

    Raises:
        DataMissingError: the files are missing and cannot be downloaded.
    """
    return _mnist_like("mnist", "MNIST", mean=0.1307, deviation=0.3081)


def fashion_mnist() -> Dataset:
    """Articles of clothing of 28 x 28 pixels, in the format of MNIST and harder to classify.

    Source: Xiao, Rasul, Vollgraf (2017), arXiv:1708.07747.

    Raises:
        DataMissingError: the files are missing and cannot be downloaded.
    """
    return _mnist_like("fashion_mnist", "FashionMNIST", mean=0.2860, deviation=0.3530)


def synthetic(
    samples: int = 1000, features: int = 20, classes: int = 4, separation: float = 2.0, seed: int = 0
) -> Dataset:
    """Gaussian blobs: a unit cloud around each of `classes` random centres; a quarter as many samples to test.

    The centres lie, in root mean square, `separation` from the origin, whatever the number of features.

    Raises:
        ValueError: a size outside its range in `RANGES`.
    """
    check_sizes(synthetic, samples=samples, features=features, classes=classes)
    import torch

    rng = np.random.default_rng(seed)
    centres = separation / np.sqrt(features) * rng.standard_normal((classes, features))
    labels = rng.integers(classes, size=samples + samples // 4)
    inputs = centres[labels] + rng.standard_normal((len(labels), features))
    x, y = torch.from_numpy(inputs).float(), torch.from_numpy(labels)
    return Dataset("synthetic", x[:samples], y[:samples], x[samples:], y[samples:], classes)


def synthetic_images(
    samples: int = 1000,
    classes: int = 10,
    channels: int = 3,
    size: int = 32,
    writers: int = 1,
    contrast: float = 0.1,
    seed: int = 0,
) -> Dataset:
    """Noisy images of coarse squares, a pattern a class: `(channels, size, size)`; a quarter as many samples to test.

    By default they have the shape of CIFAR-10; `classes: 100` has that of CIFAR-100, `channels: 1, size: 28, classes:
    62, writers: 100` that of FEMNIST. Patterns of 4 x 4 normal numbers, a number a square, for each class and each
    writer, moved together by up to two pixels, and a normal number a pixel as noise; writers take turns:

        x = (contrast class + contrast / 2 writer + noise) / sqrt(1 + 5 / 4 contrast^2)

    Raises:
        ValueError: a size, or the contrast, outside its range in `RANGES`.
    """
    sizes = {"samples": samples, "classes": classes, "channels": channels, "size": size, "writers": writers}
    check_sizes(synthetic_images, **sizes, contrast=contrast)
    import torch

    rng = np.random.default_rng(seed)
    total, shape = samples + samples // 4, (channels, size, size)
    of_class, of_writer = (contrast * rng.standard_normal((count, channels, 4, 4)) for count in (classes, writers))
    labels, hands = rng.integers(classes, size=total), np.arange(total) % writers
    x, square = np.empty((total, *shape), dtype=np.float32), np.arange(size) * 4 // size
    for image, label, hand, moved in zip(x, labels, hands, rng.integers(-2, 3, size=(total, 2)), strict=True):
        pattern = (of_class[label] + of_writer[hand] / 2)[:, square[:, None], square]
        image[:] = np.roll(pattern, moved, axis=(1, 2)) + rng.standard_normal(shape)
    images, y = torch.from_numpy(x / np.float32(np.sqrt(1 + 1.25 * contrast**2))), torch.from_numpy(labels)
    images = _channels_last(images) if channels == 1 else images
    train, test = (images[:samples], y[:samples]), (images[samples:], y[samples:])
    return Dataset("synthetic_images", *train, *test, classes, hands[:samples])


def characters(samples: int = 20_000, positions: int = 32, words: int = 200, seed: int = 0) -> Dataset:
    """Text of an invented language in pieces of `positions` characters; a label is the character that comes next.

    A tenth as many pieces to test; nothing to download. `language.Language(words, seed).entropy` is the least mean loss
    that any model can reach; the first characters of a piece, with little context, have a higher loss.

    Source: Shannon (1948), A mathematical theory of communication.

    Raises:
        ValueError: a size outside its range in `RANGES`.
    """
    check_sizes(characters, samples=samples, positions=positions, words=words)
    import torch

    pieces = samples + samples // 10
    text = Language(words, seed).text(pieces * positions + 1, np.random.default_rng((seed, 2)))
    codes = torch.tensor([ALPHABET.index(character) for character in text])
    x, y = codes[:-1].view(pieces, positions).float(), codes[1:].view(pieces, positions)
    return Dataset("characters", x[:samples], y[:samples], x[samples:], y[samples:], classes=len(ALPHABET))


RANGES: dict[Callable[..., Dataset], dict[str, tuple[float, float]]] = {
    synthetic: {"samples": (4, 10**6), "features": (1, 10**5), "classes": (2, 10**4)},
    synthetic_images: {
        "samples": (4, 10**6),
        "classes": (2, 10**4),
        "channels": (1, 100),
        "size": (4, 1000),
        "writers": (1, 10**4),
        "contrast": (1e-6, 100),
    },
    characters: {"samples": (10, 10**6), "positions": (2, 10**4), "words": (2, 2000)},
}
"""The least and the greatest of each size of the data sets that are made, and of numbers that could be none."""
MOST_NUMBERS = 10**8


def check_sizes(make: Callable[..., Dataset], **given: float) -> None:
    """Check the sizes of a data set that is made, without making it.

    Raises:
        ValueError: one is out of its range, or there are too many numbers in all.
    """
    ranges = RANGES.get(make, {})
    for name, (least, most) in ranges.items():
        if not least <= given[name] <= most:
            raise ValueError(f"{name} = {given[name]}: expected a number from {least} to {most}")
    shape = (given.get(name, 1) for name in ("features", "positions", "channels", "size", "size"))
    numbers = math.prod((given.get("samples", 1), *shape))
    if ranges and numbers > MOST_NUMBERS:
        raise ValueError(f"samples = {given['samples']}: expected at most {MOST_NUMBERS} numbers in all, got {numbers}")


def _mnist_like(name: str, files: str, mean: float, deviation: float) -> Dataset:
    train_x, train_y, test_x, test_y = read_images(files)

    def scale(pixels: "Tensor") -> "Tensor":
        # In place, in a tensor of its own: three temporaries of 188 MB take longer than the arithmetic.
        return _channels_last(pixels.unsqueeze(1).float().sub_(255 * mean).div_(255 * deviation))

    return Dataset(name, scale(train_x), train_y.long(), scale(test_x), test_y.long(), classes=10)


def _channels_last(images: "Tensor") -> "Tensor":
    """The same images `(samples, 1, height, width)` with the strides that make convolutions a sixth faster.

    With one channel the memory is the same in either order, and torch would leave the strides as they are.
    """
    return images.squeeze(1).unsqueeze(-1).movedim(-1, 1)
