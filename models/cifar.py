"""CIFAR-10 and CIFAR-100 from their binary release: find, download and read them."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from laggard.models.data import DataMissingError, Dataset, data_root

if TYPE_CHECKING:
    from torch import Tensor

PIXELS = 3 * 32 * 32
URL = "https://www.cs.toronto.edu/~kriz"


class Release(NamedTuple):
    """A binary release: records of one byte per label and 3,072 bytes an image, of red, green and
    blue, row by row.

    Attributes:
        folder: the folder in the archive, and below the folder of data sets.
        archive, md5: the archive's name, and its MD5 as published with the data sets.
        train: the training files.
        records: the number of records in each training file.
        test: the file of test images.
        tests: the number of records in that file.
        labels: bytes before an image; the last one is its class.
        mean, deviation: mean and deviation of the training images' red, green and blue, from 0 to
            1.
    """

    folder: str
    archive: str
    md5: str
    train: tuple[str, ...]
    records: int
    test: str
    labels: int
    classes: int
    mean: tuple[float, float, float]
    deviation: tuple[float, float, float]
    tests: int = 10_000

    @property
    def record(self) -> int:
        """The number of bytes in a record."""
        return self.labels + PIXELS

    @property
    def files(self) -> dict[str, int]:
        """The number of records in each file."""
        return {**dict.fromkeys(self.train, self.records), self.test: self.tests}


CIFAR10 = Release(
    folder="cifar-10-batches-bin",
    archive="cifar-10-binary.tar.gz",
    md5="c32a1d4ab5d03f1284b67883e8d87530",
    train=tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    records=10_000,
    test="test_batch.bin",
    labels=1,
    classes=10,
    mean=(0.4914, 0.4822, 0.4465),
    deviation=(0.2470, 0.2435, 0.2616),
)
CIFAR100 = Release(
    folder="cifar-100-binary",
    archive="cifar-100-binary.tar.gz",
    md5="03b5dce01913d631647c71ecec9e9cb8",
    train=("train.bin",),
    records=50_000,
    test="test.bin",
    labels=2,
    classes=100,
    mean=(0.5071, 0.4865, 0.4409),
    deviation=(0.2673, 0.2564, 0.2762),
)


def cifar10() -> Dataset:
    """Colour photographs of 32 x 32 pixels in 10 classes: 50,000 to train, 10,000 to test.

    Source: Krizhevsky (2009), Learning multiple layers of features from tiny images.

    Raises:
        DataMissingError: the files are missing and cannot be downloaded, or broken.
    """
    return _images("cifar10", CIFAR10)


def cifar100() -> Dataset:
    """Colour photographs of 32 x 32 pixels in 100 fine classes: 50,000 to train, 10,000 to test.

    Source: Krizhevsky (2009), Learning multiple layers of features from tiny images.

    Raises:
        DataMissingError: the files are missing and cannot be downloaded, or broken.
    """
    return _images("cifar100", CIFAR100)


def _images(name: str, release: Release) -> Dataset:
    import torch

    folder = find_release(name, release)
    # Constants, as for MNIST: sums of float32 would depend on the number of torch's threads.
    mean = 255 * torch.tensor(release.mean).view(3, 1, 1)
    deviation = 255 * torch.tensor(release.deviation).view(3, 1, 1)

    def read_part(files: tuple[str, ...]) -> "tuple[Tensor, Tensor]":
        parts = [read_records(folder / file, release, release.files[file]) for file in files]
        pixels = np.concatenate([images for images, _ in parts])
        classes = np.concatenate([classes for _, classes in parts])
        x = torch.from_numpy(pixels).view(-1, 3, 32, 32).float()
        return x.sub_(mean).div_(deviation), torch.from_numpy(classes).long()

    x, y = read_part(release.train)
    test_x, test_y = read_part((release.test,))
    return Dataset(name, x, y, test_x, test_y, release.classes)


def find_release(name: str, release: Release) -> Path:
    """The folder of a release, `<root>/<folder>` below the root of data sets, and downloaded there
    once.

    Raises:
        DataMissingError: files are missing and cannot be downloaded.
    """
    folder = data_root() / release.folder
    try:
        if not all((folder / file).is_file() for file in release.files):
            from laggard.models.vision import import_torchvision

            fetch = import_torchvision().datasets.utils.download_and_extract_archive
            fetch(f"{URL}/{release.archive}", data_root(), md5=release.md5, remove_finished=True)
    except (OSError, RuntimeError, EOFError):  # no network, no permission, a broken archive
        raise DataMissingError(
            f"{name} is missing or incomplete in {folder}, and could not be downloaded: "
            f"put {', '.join(release.files)} "
            f"of {release.archive} ({URL}/cifar.html) there, or set LAGGARD_DATA to a "
            "folder that holds "
            f"{release.folder} with them"
        ) from None
    return folder


def read_records(path: Path, release: Release, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The images `(count, 3072)` and the classes `(count,)` of a file, as uint8.

    Raises:
        DataMissingError: its length or a label is wrong.
    """
    try:
        content = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise DataMissingError(f"{path}: cannot be read: {error.strerror}") from None
    remedy = f"remove it, and the next run downloads {release.archive} again"
    if len(content) != count * release.record:
        expected = f"expected {count} records of {release.record} bytes, got {len(content)} bytes"
        raise DataMissingError(f"{path}: {expected}: {remedy}")
    records = content.reshape(count, release.record)
    labels = records[:, release.labels - 1]
    if labels.max() >= release.classes:
        wrong = int((labels >= release.classes).argmax())
        expected = (
            f"expected labels from 0 to {release.classes - 1}, got {labels[wrong]} in record "
            f"{wrong}"
        )
        raise DataMissingError(f"{path}: {expected}: {remedy}")
    return records[:, release.labels :], labels
