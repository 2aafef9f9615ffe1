"""Data sets in files of one's own, read without torch: libsvm, plain text, and FEMNIST as LEAF
prepares it.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from laggard.models.data import Dataset
from laggard.models.generated import MOST_NUMBERS, RANGES, characters, synthetic
from laggard.models.optional import import_optional

if TYPE_CHECKING:
    from torch import Tensor

MOST_DENSE = 10**9
"""The most numbers that the inputs of a libsvm file or of FEMNIST have: 4 GB in single
precision.
"""
SHAPE, CLASSES = (1, 28, 28), 62
"""Of an image, and of labels: ten digits, 26 capital and 26 small letters."""
EACH = math.prod(SHAPE)


class Samples(NamedTuple):
    """What files hold: inputs and labels as in `Dataset`, as arrays; inputs may be a sparse matrix.

    Attributes:
        train, test: the places of the training and of the test samples.
        writers: of the training samples, where they are known.
    """

    x: Any
    y: np.ndarray
    train: np.ndarray | slice
    test: np.ndarray | slice
    classes: int
    writers: np.ndarray | None = None

    def dataset(self, name: str) -> Dataset:
        """The same as tensors, dense."""
        import torch

        def part(places: np.ndarray | slice) -> "tuple[Tensor, Tensor]":
            x = self.x[places]
            dense = x.toarray() if hasattr(x, "toarray") else x
            return torch.from_numpy(dense), torch.from_numpy(self.y[places].astype(np.int64))

        return Dataset(name, *part(self.train), *part(self.test), self.classes, self.writers)


def libsvm(
    file: str, test_file: str | None = None, test_share: float = 0.2, seed: int = 0
) -> Dataset:
    """Rows of sparse features with a label each, as a9a, w8a and rcv1 of the libsvm collection have
    them.

    Inputs become dense: at most 10^9 numbers, 4 GB. Features are taken as they are. Labels are
    whole numbers, which in increasing order become the classes 0, 1, ... The test set is
    `test_file`, or else `test_share` of the rows, chosen at random by `seed`; both sets keep the
    order of the file. A file whose name ends in .gz or .bz2 is decompressed.

    Args:
        file: lines `label index:value index:value ...`.
        test_file: the test set in the same format, such as a9a.t.
        test_share: of the rows, between 0 and 1, where there is no `test_file`.
        seed: decides which rows.

    Source: Chang, Lin (2011), LIBSVM: a library for support vector machines.

    Raises:
        ValueError: a file is not in this format, empty, or too large, or there are fewer than two
            classes.
    """
    return read_libsvm(file, test_file, test_share, seed).dataset("libsvm")


def text_file(file: str, positions: int = 32, test_share: float = 0.1) -> Dataset:
    """The characters of a text in UTF-8, in pieces of `positions`; a label is the character that
    comes next.

    Classes are the characters that occur, in the order of their code points. The last pieces are
    the test set.

    Args:
        file: the text, of at most 10^8 characters.
        positions: characters in a piece.
        test_share: of the pieces, between 0 and 1.

    Raises:
        ValueError: the file is not UTF-8, too short or too long, or repeats one character.
    """
    return read_text(file, positions, test_share).dataset("text")


def femnist(file: str, test_file: str) -> Dataset:
    """Handwritten digits and letters of 28 x 28 pixels in 62 classes, with their writers, as LEAF
    prepares them.

    Pixels are LEAF's, from 0 for ink to 1 for paper. `partition: by_writer` gives each writer to
    one worker.

    Args:
        file: LEAF's JSON of training samples, or a folder of such files: `data/femnist/data/train`
            of LEAF.
        test_file: the same for test samples: `data/femnist/data/test`.

    Source: Caldas et al. (2018), arXiv:1812.01097; Cohen et al. (2017), arXiv:1702.05373.

    Raises:
        ValueError: a file is no JSON, or not as LEAF writes it, or there are more than 10^9 pixels.
    """
    return read_femnist(file, test_file).dataset("femnist")


def read_libsvm(file: str, test_file: str | None, test_share: float, seed: int) -> Samples:
    """The rows of `libsvm`; inputs are sparse, `(samples, features)`.

    Raises:
        ValueError: as in `libsvm`.
    """
    from scipy import sparse

    read = [_read_rows("file", file)]
    if test_file:
        read.append(_read_rows("test_file", test_file))
    width = max(x.shape[1] for x, _ in read)
    for x, _ in read:
        x.resize(x.shape[0], width)
    x = sparse.vstack([x for x, _ in read], format="csr")
    counts_from_zero = x[:, 0].nnz > 0
    if not counts_from_zero:
        x = x[:, 1:]
    if x.shape[0] * x.shape[1] > MOST_DENSE:
        expected = f"at most {MOST_DENSE} numbers when dense"
        raise wrong_file("file", file, expected, f"{x.shape[0]} rows of {x.shape[1]} features")
    classes, y = np.unique(np.concatenate([labels for _, labels in read]), return_inverse=True)
    least, most = RANGES[synthetic]["classes"]
    if not least <= len(classes) <= most:
        raise wrong_file("file", file, f"labels of {least} to {most} classes", f"{len(classes)}")
    rows = len(read[0][1])
    if not test_file:
        test, train = _draw_test(rows, test_share, np.random.default_rng(seed).permutation(rows))
        return Samples(x, y, train, test, len(classes))
    if strange := set(y[rows:]) - set(y[:rows]):
        raise wrong_file(
            "test_file", test_file, "the labels of the training set", f"{classes[min(strange)]:g}"
        )
    return Samples(x, y, slice(rows), slice(rows, None), len(classes))


def _read_rows(key: str, file: str) -> tuple[Any, np.ndarray]:
    """The sparse inputs and the labels of a libsvm file, with a column for a feature 0."""
    sklearn_datasets = import_optional("sklearn.datasets", "sklearn")
    try:
        x, labels = sklearn_datasets.load_svmlight_file(file, dtype=np.float32, zero_based=True)
    except (ValueError, OverflowError, EOFError, OSError) as error:
        raise wrong_file(
            key, file, "lines in the format of libsvm", " ".join(str(error).split())
        ) from None
    if not len(labels):
        raise wrong_file(key, file, "lines in the format of libsvm", "none")
    if not np.isfinite(x.data).all():
        raise wrong_file(key, file, "finite values", "others")
    if (wrong := ~(np.abs(labels) < 2**53) | (labels != np.round(labels))).any():
        raise wrong_file(key, file, "whole numbers as labels", f"{labels[wrong][0]}")
    return x, labels


def read_text(file: str, positions: int, test_share: float) -> Samples:
    """The pieces of `text_file`: inputs and labels `(samples, positions)`.

    Raises:
        ValueError: as in `text_file`.
    """
    least, most = RANGES[characters]["positions"]
    if not least <= positions <= most:
        raise ValueError(f"positions = {positions}: expected a number from {least} to {most}")
    try:
        written = Path(file).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise wrong_file("file", file, "a file that can be read", str(error.strerror)) from None
    except UnicodeDecodeError as error:
        got = f"the byte {error.object[error.start]:#04x} at {error.start}"
        raise wrong_file("file", file, "text in UTF-8", got) from None
    if not 2 * positions < len(written) <= MOST_NUMBERS:
        expected = f"{2 * positions + 1} to {MOST_NUMBERS} characters"
        raise wrong_file("file", file, expected, f"{len(written)}")
    points = np.frombuffer(written.encode("utf-32-le"), dtype="<u4")
    occurring, codes = np.unique(points, return_inverse=True)
    if len(occurring) < 2:
        raise wrong_file("file", file, "at least two different characters", f"{written[0]!r} alone")
    pieces = (len(codes) - 1) // positions
    x, y = (codes[start:][: pieces * positions].reshape(pieces, positions) for start in (0, 1))
    test, train = _draw_test(pieces, test_share, np.arange(pieces)[::-1])
    return Samples(x.astype(np.float32), y, train, test, len(occurring))


def read_femnist(file: str, test_file: str) -> Samples:
    """The samples of `femnist`: images `(samples, 1, 28, 28)`.

    Raises:
        ValueError: as in `femnist`.
    """
    train, test = list(_read_writers("file", file)), list(_read_writers("test_file", test_file))
    users, x, y = zip(*train, *test, strict=True)
    numbers = {user: number for number, user in enumerate(dict.fromkeys(users[: len(train)]))}
    writers = np.repeat(
        [numbers[user] for user, _, _ in train], [len(labels) for _, _, labels in train]
    )
    rows = len(writers)
    images = np.concatenate(x).reshape(-1, *SHAPE)
    return Samples(images, np.concatenate(y), slice(rows), slice(rows, None), CLASSES, writers)


def _read_writers(key: str, name: str) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Each writer of a file, or of a folder's `*.json` in order: name, images `(samples, 784)`,
    labels `(samples,)`.
    """
    path, images = Path(name), 0
    files = [path]
    if path.is_dir():
        files = sorted(path.glob("*.json"))
    for file in files:
        try:
            document = json.loads(file.read_bytes())
        except (ValueError, RecursionError) as error:  # what is no UTF-8 is a ValueError
            raise wrong_file(key, file, "JSON", str(error)) from None
        try:
            each = [(str(user), document["user_data"][user]) for user in document["users"]]
        except (KeyError, TypeError, IndexError):
            raise wrong_file(
                key, file, "a list users, and user_data of each of them", "others"
            ) from None
        for user, data in each:
            try:
                x, y = _read_images(data)
            except (KeyError, TypeError, ValueError, OverflowError):
                expected = (
                    f"x with {EACH} numbers from 0 to 1 an image, and y with its label from 0 "
                    f"to {CLASSES - 1}"
                )
                raise wrong_file(key, file, expected, f"others for {user!r}") from None
            images += len(y)
            if images * EACH > MOST_DENSE:
                raise wrong_file(
                    key, file, f"at most {MOST_DENSE // EACH} images", f"{images} so far"
                )
            yield user, x, y
    if not images:
        raise wrong_file(key, name, "images", "none")


def _read_images(data: Any) -> tuple[np.ndarray, np.ndarray]:
    """The images and labels of a writer.

    Raises:
        ValueError: they are not as they should be.
    """
    x, y = (
        np.array(data["x"], dtype=np.float32).reshape(-1, EACH),
        np.array(data["y"], dtype=object),
    )
    wrong = [label for label in y if type(label) is not int or not 0 <= label < CLASSES]
    if (
        wrong
        or x.shape != (len(data["x"]), EACH)
        or len(x) != len(y)
        or not ((x >= 0) & (x <= 1)).all()
    ):
        raise ValueError
    return x, y.astype(np.int64)


def _draw_test(samples: int, share: float, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The places of the test and of the training samples: a share of them, the first in an order,
    and the others.
    """
    if not 0 < share < 1:
        raise ValueError(f"test_share = {share}: expected a number > 0 and < 1")
    tests = min(max(round(share * samples), 1), samples - 1)
    return np.sort(order[:tests]), np.sort(order[tests:])


def wrong_file(key: str, file: str | Path, expected: str, got: str) -> ValueError:
    """The error of a file, which a config names by `key`, that holds something else than
    expected.
    """
    return ValueError(f"{key} = {file} with {got}: expected {expected}")
