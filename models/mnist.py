"""The files of MNIST and Fashion-MNIST: find, download and read them."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

IDX_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


class DataMissingError(OSError):
    """The files of a dataset are missing and could not be downloaded; the message names them and their folder."""


def read_images(name: str) -> "tuple[Tensor, ...]":
    """Training images `(60000, 28, 28)` and labels, then test images and labels, all uint8.

    Read from `<root>/<name>/raw`, torchvision's layout, and downloaded there once; the root is the environment
    variable LAGGARD_DATA, or else the user's cache directory. A root that has the files may be read-only.

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
            raise ValueError("as many labels as images are needed")
        return train_x, train_y, test_x, test_y
    except (OSError, RuntimeError, ValueError):  # no network, no permission, a broken archive or file
        raise DataMissingError(
            f"{name} is missing or incomplete in {folder}, and could not be downloaded: put {', '.join(IDX_FILES)} "
            f"(unpacked) there, or set LAGGARD_DATA to a folder that holds {name}/raw with them"
        ) from None


def data_root() -> Path:
    """The folder of datasets: LAGGARD_DATA, or else the user's cache directory."""
    if root := os.environ.get("LAGGARD_DATA"):
        return Path(root)
    import platformdirs

    return Path(platformdirs.user_cache_dir("laggard"))


def read_idx(path: Path) -> "Tensor":
    """An IDX file: two zero bytes, a type (8: uint8), the number of dimensions, each as a 32-bit integer, data.

    Raises:
        ValueError: it is no such file, or shorter or longer than its header says.
    """
    import torch

    content = np.fromfile(path, dtype=np.uint8)
    if content[:3].tolist() != [0, 0, 8] or len(content) < 4:
        raise ValueError(f"{path} is no IDX file of bytes")
    start = 4 + 4 * int(content[3])
    return torch.from_numpy(content[start:].reshape(content[4:start].view(">i4")))
