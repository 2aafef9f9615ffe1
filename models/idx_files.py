"""IDX files, the format of MNIST and its relatives, of any element type, compressed or not."""

import hashlib
from pathlib import Path

import numpy as np

from laggard.files import read_bytes

ELEMENT_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
"""The third byte of a file -> numpy's name of the type, most significant byte first."""
COMPRESSED = ("", ".gz", ".bz2", ".xz")
SHA256 = {
    "MNIST/train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "MNIST/train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "MNIST/t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "MNIST/t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    "FashionMNIST/train-images-idx3-ubyte": (
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"
    ),
    "FashionMNIST/train-labels-idx1-ubyte": (
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"
    ),
    "FashionMNIST/t10k-images-idx3-ubyte": (
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"
    ),
    "FashionMNIST/t10k-labels-idx1-ubyte": (
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"
    ),
}
"""The hashes of the unpacked files of well-known data sets."""


def find_idx(folder: Path, name: str) -> Path | None:
    """The file `name` in a folder, unpacked or compressed; None where there is none."""
    for suffix in COMPRESSED:
        path = folder / f"{name}{suffix}"
        if path.is_file():
            return path
    return None


def read_idx(path: Path, known_as: str = "") -> np.ndarray:
    """The content of an IDX file, in the byte order of this machine.

    The header has two zero bytes, the type of the elements, the number of dimensions, and each
    dimension as a 32-bit integer.

    Args:
        known_as: the file's name in `SHA256`, with which its content must agree.

    Raises:
        ValueError: it cannot be read, is not such a file, its length differs from the header, or it
            is not the known file.
    """
    content = read_bytes(path)
    if known_as in SHA256 and hashlib.sha256(content).hexdigest() != SHA256[known_as]:
        raise ValueError(f"{path} is not {known_as} as it was published: remove it, or use idx")
    if len(content) < 4 or content[:2] != b"\x00\x00" or content[2] not in ELEMENT_TYPES:
        raise ValueError(f"{path} is not an IDX file")
    element = np.dtype(ELEMENT_TYPES[content[2]])
    dimensions = content[3]
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise ValueError(f"{path} ends within its header")
    shape = np.frombuffer(content[4:start], ">u4").astype(np.int64)
    expected = int(np.prod(shape, dtype=object)) * element.itemsize
    if len(content) - start != expected:
        got = len(content) - start
        raise ValueError(f"{path}: its header says {expected} bytes of elements, it has {got}")
    array = np.frombuffer(content, element, offset=start).reshape(shape)
    return array.astype(element.newbyteorder("="))
