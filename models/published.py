"""The files of data sets that a config names without a file: MNIST's, CIFAR's and their relatives.

A data set's name says nothing about the content of its files, so results store its hash.
"""

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from laggard.files import UnreadableFileError, read_bytes
from laggard.models.cifar import CIFAR10, CIFAR100
from laggard.models.data import IDX_FILES, data_root
from laggard.models.idx_files import find_idx

PUBLISHED = {
    "mnist": ("MNIST/raw", IDX_FILES),
    "fashion_mnist": ("FashionMNIST/raw", IDX_FILES),
    "cifar10": (CIFAR10.folder, tuple(CIFAR10.files)),
    "cifar100": (CIFAR100.folder, tuple(CIFAR100.files)),
}
"""The name of a data set -> its folder below that of all data sets, and its files there."""
REMEDY = "the first run downloads them; else put them there, or set LAGGARD_DATA"


class PublishedFiles(NamedTuple):
    """The files of a data set: their folder, those present, and the names of those missing."""

    folder: Path
    present: Sequence[Path]
    missing: Sequence[str]


def find_files(name: str) -> PublishedFiles:
    """The files of a data set of `PUBLISHED`."""
    below, names = PUBLISHED[name]
    folder = data_root() / below
    present = []
    missing = []
    for file in names:
        path = find_idx(folder, file)
        if path is None:
            missing.append(file)
        else:
            present.append(path)
    return PublishedFiles(folder, present, missing)


def hash_of_files(name: str) -> str | None:
    """SHA-256 of the content of a data set's files, compressed or not.

    None where one is missing, and for a data set that is not in `PUBLISHED`; empty where one is
    damaged. A file is read again only after a change of its size or its time.
    """
    if name not in PUBLISHED:
        return None
    files = find_files(name)
    if files.missing:
        return None
    hashes = []
    for path in files.present:
        status = path.stat()
        try:
            hashes.append(_hash_of_content(path, status.st_size, status.st_mtime_ns))
        except UnreadableFileError:
            return ""
    return hashlib.sha256("\n".join(hashes).encode()).hexdigest()


@lru_cache(maxsize=64)
def _hash_of_content(path: Path, size: int, modified: int) -> str:
    return hashlib.sha256(read_bytes(path)).hexdigest()
