"""FEMNIST as LEAF prepares it: characters, each with its writer; read without torch."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from laggard.models.data import Dataset
from laggard.models.files import MOST_DENSE, Samples, wrong_file

SHAPE, CLASSES = (1, 28, 28), 62
"""Of an image, and of labels: ten digits, 26 capital and 26 small letters."""
EACH = math.prod(SHAPE)


def femnist(file: str, test_file: str) -> Dataset:
    """Handwritten digits and letters of 28 x 28 pixels in 62 classes, with their writers, as LEAF prepares them.

    Pixels are LEAF's, from 0 for ink to 1 for paper. `partition: by_writer` gives each writer to one worker.

    Args:
        file: LEAF's JSON of training samples, or a folder of such files: `data/femnist/data/train` of LEAF.
        test_file: the same for test samples: `data/femnist/data/test`.

    Source: Caldas et al. (2018), arXiv:1812.01097; Cohen et al. (2017), arXiv:1702.05373.

    Raises:
        ValueError: a file is no JSON, or not as LEAF writes it, or there are more than 10^9 pixels.
    """
    return read_femnist(file, test_file).dataset("femnist")


def read_femnist(file: str, test_file: str) -> Samples:
    """The samples of `femnist`: images `(samples, 1, 28, 28)`.

    Raises:
        ValueError: as in `femnist`.
    """
    train, test = list(_read_writers("file", file)), list(_read_writers("test_file", test_file))
    x, y = (np.concatenate([getattr(written, part) for written in train + test]) for part in ("x", "y"))
    numbers = {user: number for number, user in enumerate(dict.fromkeys(written.user for written in train))}
    writers = np.repeat([numbers[written.user] for written in train], [len(written.y) for written in train])
    rows = len(writers)
    return Samples(x.reshape(-1, *SHAPE), y, slice(rows), slice(rows, None), CLASSES, writers)


class Written(NamedTuple):
    """The images `(samples, 784)` and labels `(samples,)` of a writer, of whom a file may have none."""

    user: str
    x: np.ndarray
    y: np.ndarray


def _read_writers(key: str, name: str) -> Iterator[Written]:
    """The writers of a file of LEAF, or of the files `*.json` of a folder in the order of their names."""
    path, images = Path(name), 0
    for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
        try:
            document = json.loads(file.read_bytes())
        except (ValueError, RecursionError) as error:  # what is no UTF-8 is a ValueError
            raise wrong_file(key, file, "JSON", str(error)) from None
        try:
            each = [(str(user), document["user_data"][user]) for user in document["users"]]
        except (KeyError, TypeError, IndexError):
            raise wrong_file(key, file, "a list users, and user_data of each of them", "others") from None
        for user, data in each:
            try:
                x, y = _read_images(data)
            except (KeyError, TypeError, ValueError, OverflowError):
                expected = f"x with {EACH} numbers from 0 to 1 an image, and y with its label from 0 to {CLASSES - 1}"
                raise wrong_file(key, file, expected, f"others for {user!r}") from None
            images += len(y)
            if images * EACH > MOST_DENSE:
                raise wrong_file(key, file, f"at most {MOST_DENSE // EACH} images", f"{images} so far")
            yield Written(user, x, y)
    if not images:
        raise wrong_file(key, name, "images", "none")


def _read_images(data: Any) -> tuple[np.ndarray, np.ndarray]:
    """The images and labels of a writer.

    Raises:
        ValueError: they are not as they should be.
    """
    x, y = np.array(data["x"], dtype=np.float32).reshape(-1, EACH), np.array(data["y"], dtype=object)
    wrong = [label for label in y if type(label) is not int or not 0 <= label < CLASSES]
    if wrong or x.shape != (len(data["x"]), EACH) or len(x) != len(y) or not ((x >= 0) & (x <= 1)).all():
        raise ValueError
    return x, y.astype(np.int64)
