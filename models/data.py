"""Data sets as whole tensors: digits, and those in the format of MNIST."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch
    from torch import Tensor

IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


class DataMissingError(OSError):
    """A data set's files are missing and could not be downloaded."""


@dataclass(frozen=True)
class Dataset:
    """A training set and a test set: inputs `(samples, ...)` and labels `(samples,)`.

    A mini-batch is a tensor of indices. Labels of texts are `(samples, positions)`. Images have
    mean 0 and deviation 1, except those of `femnist`.

    Attributes:
        writers: the writer of each training sample, `(samples,)` of 0, 1, ...; None if unknown.
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
    """Handwritten digits of 8 x 8 pixels, scaled up to 28 x 28: 1,500 to train, 297 to test.

    They ship with laggard (`digits.npz`) and are those of scikit-learn's `load_digits`. They are
    scaled by bilinear interpolation; a fixed permutation selects the test samples. Mean and
    deviation are constants, as MNIST's: sums of float32 would depend on the number of torch's
    threads.

    Source: Alpaydin, Kaynak (1998), UCI Machine Learning Repository.
    """
    import torch
    from torch.nn.functional import interpolate

    with np.load(Path(__file__).with_name("digits.npz")) as stored:
        images, labels = stored["images"], stored["labels"]
    small = torch.from_numpy(images).reshape(-1, 1, 8, 8).float() / 16
    x = interpolate(small, size=(28, 28), mode="bilinear", align_corners=False)
    y = torch.from_numpy(labels).long()
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(y)))
    train, test = order[:1500], order[1500:]
    x = channels_last((x - 0.3057) / 0.3246)
    return Dataset("digits", x[train], y[train], x[test], y[test], classes=10)


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


def _mnist_like(name: str, files: str, mean: float, deviation: float) -> Dataset:
    train_x, train_y, test_x, test_y = read_images(files)

    def scale(pixels: "Tensor") -> "Tensor":
        # In place, in a new tensor: three temporaries of 188 MB take longer than the arithmetic.
        images = pixels.unsqueeze(1).float()
        return channels_last(images.sub_(255 * mean).div_(255 * deviation))

    return Dataset(name, scale(train_x), train_y.long(), scale(test_x), test_y.long(), classes=10)


def channels_last(images: "Tensor") -> "Tensor":
    """Images `(samples, 1, height, width)` with strides that make convolutions a sixth faster.

    With one channel the memory is the same in either order, and torch would not change strides.
    """
    return images.squeeze(1).unsqueeze(-1).movedim(-1, 1)


def read_images(name: str) -> "tuple[Tensor, ...]":
    """Training images `(60000, 28, 28)` and labels, then test images and labels, all uint8.

    Read from `<root>/<name>/raw`, torchvision's layout, and downloaded there once; the root is the
    environment variable LAGGARD_DATA, or else the user's cache directory. A root that has the files
    may be read-only.

    Args:
        name: "MNIST" or "FashionMNIST".

    Raises:
        DataMissingError: the files are incomplete and cannot be downloaded.
    """
    folder = data_root() / name / "raw"
    try:
        if not all((folder / file).is_file() for file in IDX_FILES):
            from laggard.models.vision import import_torchvision

            getattr(import_torchvision().datasets, name)(data_root(), download=True)
        train_x, train_y, test_x, test_y = (read_idx(folder / file) for file in IDX_FILES)
        if (len(train_x), len(test_x)) != (len(train_y), len(test_y)):
            raise ValueError("a label is missing")
        return train_x, train_y, test_x, test_y
    # no network, no permission, a broken archive or file
    except (OSError, RuntimeError, ValueError):
        problem = f"{name} is missing or incomplete in {folder}, and could not be downloaded"
        remedy = f"put {', '.join(IDX_FILES)} (unpacked) there"
        other = f"set LAGGARD_DATA to a folder that holds {name}/raw with them"
        raise DataMissingError(f"{problem}: {remedy}, or {other}") from None


def data_root() -> Path:
    """The folder of datasets: LAGGARD_DATA, or else the user's cache directory."""
    root = os.environ.get("LAGGARD_DATA")
    if root:
        return Path(root)
    import platformdirs

    return Path(platformdirs.user_cache_dir("laggard"))


def read_idx(path: Path) -> "Tensor":
    """The content of an IDX file of bytes.

    The header has two zero bytes, a type (8: uint8), the number of dimensions, and each dimension
    as a 32-bit integer.

    Raises:
        ValueError: it is not such a file, or its length differs from the header.
    """
    import torch

    content = np.fromfile(path, dtype=np.uint8)
    if content[:3].tolist() != [0, 0, 8] or len(content) < 4:
        raise ValueError(f"{path} is no IDX file of bytes")
    start = 4 + 4 * int(content[3])
    return torch.from_numpy(content[start:].reshape(content[4:start].view(">i4")))
