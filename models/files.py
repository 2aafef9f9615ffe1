"""Data sets in users' files: libsvm, plain text and IDX."""

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np

from laggard.files import BYTE_ORDER_MARKS, UnreadableFileError, decode, read_bytes
from laggard.models.data import Dataset, LabelKind
from laggard.models.generated import MAX_NUMBERS, RANGES, characters, synthetic
from laggard.models.idx_files import read_idx
from laggard.models.optional import import_optional

if TYPE_CHECKING:
    from torch import Tensor

MAX_DENSE = 10**9
"""The limit on the numbers of inputs from files: 4 GB in single precision."""
MAX_CLASSES = 10**5
LIBSVM_LINE = re.compile(r"\s*[-+0-9.,einfa]*(\s+(qid|[0-9]+):[^\s:]+)*\s*(#.*)?", re.IGNORECASE)
"""A line of labels and features in the format of libsvm."""


class Samples(NamedTuple):
    """The content of files: inputs and labels as arrays; inputs may be a sparse matrix.

    Attributes:
        train, test: the indices of the training samples, and of the test samples.
        writers: the writer of each training sample; None if unknown.
        label_kind: the kind of labels, as in `Dataset`.
    """

    x: Any
    y: np.ndarray
    train: np.ndarray | slice
    test: np.ndarray | slice
    classes: int
    writers: np.ndarray | None = None
    label_kind: LabelKind = "classes"

    def dataset(self, name: str) -> Dataset:
        """The samples as dense tensors."""
        import torch

        dtype = np.float64 if self.label_kind == "numbers" else np.int64

        def part(index: np.ndarray | slice) -> "tuple[Tensor, Tensor]":
            x = self.x[index]
            if hasattr(x, "toarray"):
                x = x.toarray()
            return torch.from_numpy(x), torch.from_numpy(self.y[index].astype(dtype))

        train, test = part(self.train), part(self.test)
        return Dataset(name, *train, *test, self.classes, self.writers, self.label_kind)


def libsvm(
    file: str,
    test_file: str | None = None,
    test_share: float = 0.2,
    seed: int = 0,
    labels: LabelKind | None = None,
) -> Dataset:
    """Rows of sparse features with labels, such as a9a and rcv1 of the libsvm collection.

    Inputs become dense, at most 10^9 numbers, and are not scaled. Classes are whole numbers, which
    in increasing order become 0, 1, ... The test set is `test_file`, or else
    `test_share` of the rows, chosen at random by `seed`; both sets keep the order of the file.
    Files may be compressed by gzip, bzip2 or xz.

    Args:
        file: lines `label index:value index:value ...`.
        test_file: the test set in the same format, such as a9a.t.
        test_share: the share of the rows, between 0 and 1, without a `test_file`.
        seed: the seed of the choice of rows.
        labels: `classes`, one a row; `numbers`, one a row, for regression, not scaled; or `sets` of
            classes, such as `1,3`, perhaps empty. Null: classes, and other labels are refused.

    Source: Chang, Lin (2011), LIBSVM: a library for support vector machines.

    Raises:
        ValueError: a file is not in this format, empty, or too large, labels are others than
            `labels` says, or there are fewer than two classes.
    """
    return read_libsvm(file, test_file, test_share, seed, labels).dataset("libsvm")


def text_file(file: str, positions: int = 32, test_share: float = 0.1) -> Dataset:
    """The characters of a text in UTF-8, in pieces of `positions`; labels are next characters.

    Classes are the characters that occur, in the order of their code points. The last pieces are
    the test set.

    Args:
        file: the text, of at most 10^8 characters.
        positions: characters in a piece.
        test_share: the share of the pieces, between 0 and 1.

    Raises:
        ValueError: the file is not UTF-8, too short or too long, or repeats one character.
    """
    return read_text(file, positions, test_share).dataset("text")


def read_libsvm(
    file: str,
    test_file: str | None,
    test_share: float,
    seed: int,
    labels: LabelKind | None = None,
) -> Samples:
    """The rows of `libsvm`; inputs are sparse, `(samples, features)`.

    Raises:
        ValueError: as in `libsvm`.
    """
    from scipy import sparse

    if labels is not None and labels not in get_args(LabelKind):
        raise ValueError(f"labels = {labels!r}: expected classes, numbers or sets")
    x, label_rows = _read_rows("file", file, labels)
    inputs, rows = [x], len(label_rows)
    if test_file:
        test_x, test_labels = _read_rows("test_file", test_file, labels)
        inputs.append(test_x)
        label_rows = label_rows + test_labels
    width = max(part.shape[1] for part in inputs)  # a file may lack the last features
    for part in inputs:
        part.resize(part.shape[0], width)
    x = sparse.vstack(inputs, format="csr")
    counts_from_zero = x[:, 0].nnz > 0
    if not counts_from_zero:
        x = x[:, 1:]
    if x.shape[0] * x.shape[1] > MAX_DENSE:
        expected = f"at most {MAX_DENSE} numbers when dense"
        raise wrong_file("file", file, expected, f"{x.shape[0]} rows of {x.shape[1]} features")
    label_kind = labels or "classes"
    y, classes = _encode_labels(label_rows, label_kind, file)
    train: np.ndarray | slice = slice(rows)
    test: np.ndarray | slice = slice(rows, None)
    if not test_file:
        order = np.random.default_rng(seed).permutation(rows)
        test, train = _draw_test(rows, test_share, order)
    elif label_kind == "classes":
        untrained = set(y[rows:]) - set(y[:rows])
        if untrained:
            got = f"{classes[min(untrained)]:g}"
            raise wrong_file("test_file", test_file, "the labels of the training set", got)
    return Samples(x, y, train, test, len(classes), None, label_kind)


def _encode_labels(
    rows: list[tuple[float, ...]], label_kind: LabelKind, file: str
) -> tuple[np.ndarray, Sequence[float]]:
    """Labels as in `Dataset`, and the classes in increasing order; of numbers a single one."""
    if label_kind == "numbers":
        return np.array(rows)[:, 0], [0.0]
    classes = sorted({label for row in rows for label in row})
    smallest, largest = RANGES[synthetic]["classes"]
    if not smallest <= len(classes) <= largest:
        expected = f"labels of {smallest} to {largest} classes"
        raise wrong_file("file", file, expected, f"{len(classes)}")
    if label_kind == "classes":
        return np.searchsorted(classes, [label for (label,) in rows]), classes
    if len(rows) * len(classes) > MAX_DENSE:
        expected = f"at most {MAX_DENSE} numbers when dense"
        raise wrong_file("file", file, expected, f"{len(rows)} sets of {len(classes)} classes")
    y = np.zeros((len(rows), len(classes)), np.uint8)
    for row, labels in enumerate(rows):
        y[row, np.searchsorted(classes, labels)] = 1
    return y, classes


def _read_rows(
    key: str, file: str, labels: LabelKind | None
) -> tuple[Any, list[tuple[float, ...]]]:
    """The sparse inputs of a libsvm file, with a column for a feature 0, and each row's labels."""
    sklearn_datasets = import_optional("sklearn.datasets", "sklearn")
    expected = "lines in the format of libsvm"
    try:
        content = _without_byte_order_mark(file, read_bytes(file))
        stream = io.BytesIO(content)
        x, rows = sklearn_datasets.load_svmlight_file(
            stream, dtype=np.float32, multilabel=True, zero_based=True
        )
    except UnreadableFileError as error:
        raise wrong_file(key, file, expected, error.reason) from None
    except (ValueError, OverflowError, EOFError, OSError) as error:
        got = _first_other_line(content) or " ".join(str(error).split())
        raise wrong_file(key, file, expected, got) from None
    if not rows:
        raise wrong_file(key, file, expected, "none")
    if not x.nnz:
        got = "no index:value in any line"
        if b"," in content:
            got += ", but commas, as in CSV"
        raise wrong_file(key, file, expected, got)
    wrong = ~np.isfinite(x.data)
    if wrong.any():
        raise wrong_file(key, file, "finite values", f"{x.data[wrong][0]}")
    _check_label_rows(key, file, rows, labels)
    return x, rows


def _without_byte_order_mark(file: str, content: bytes) -> bytes:
    """The content in UTF-8, also of a file that editors of Windows saved."""
    if any(content.startswith(mark) for mark, _ in BYTE_ORDER_MARKS):
        return decode(file, content).encode()
    return content


def _first_other_line(content: bytes) -> str | None:
    """The first line that is not in the format of libsvm, and its number; None if there is none."""
    for number, line in enumerate(content.split(b"\n"), 1):
        text = line.decode("latin-1")
        if LIBSVM_LINE.fullmatch(text) is None:
            return f"{text.strip():.60} in line {number}"
    return None


def _check_label_rows(
    key: str, file: str, rows: list[tuple[float, ...]], labels: LabelKind | None
) -> None:
    """Refuse labels other than `labels` says; without it, name the key that reads them."""
    several = [row for row in rows if len(row) != 1]
    if several and labels != "sets":
        got = ",".join(f"{label:g}" for label in several[0])
        expected = "one label a row, unless labels = sets"
        raise wrong_file(key, file, expected, f"{got or 'no label'} in a row")
    values = np.array([label for row in rows for label in row])
    if labels == "numbers":
        if not np.isfinite(values).all():
            raise wrong_file(key, file, "finite numbers as labels", "others")
        return
    whole = (np.abs(values) < 2**53) & (values == np.round(values))
    if not whole.all():
        expected = "whole numbers as labels"
        if labels is None:
            expected += ", unless labels = numbers"
        raise wrong_file(key, file, expected, f"{values[~whole][0]}")


def read_text(file: str, positions: int, test_share: float) -> Samples:
    """The pieces of `text_file`: inputs and labels `(samples, positions)`.

    Raises:
        ValueError: as in `text_file`.
    """
    smallest, largest = RANGES[characters]["positions"]
    if not smallest <= positions <= largest:
        expected = f"a number from {smallest} to {largest}"
        raise ValueError(f"positions = {positions}: expected {expected}")
    try:
        text = Path(file).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise wrong_file("file", file, "a file that can be read", str(error.strerror)) from None
    except UnicodeDecodeError as error:
        got = f"the byte {error.object[error.start]:#04x} at {error.start}"
        raise wrong_file("file", file, "text in UTF-8", got) from None
    if not 2 * positions < len(text) <= MAX_NUMBERS:
        expected = f"{2 * positions + 1} to {MAX_NUMBERS} characters"
        raise wrong_file("file", file, expected, f"{len(text)}")
    points = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
    alphabet, codes = np.unique(points, return_inverse=True)
    if len(alphabet) < 2:
        raise wrong_file("file", file, "at least two different characters", f"{text[0]!r} alone")
    pieces = (len(codes) - 1) // positions
    length = pieces * positions
    x = codes[:length].reshape(pieces, positions).astype(np.float32)
    y = codes[1 : length + 1].reshape(pieces, positions)
    test, train = _draw_test(pieces, test_share, np.arange(pieces)[::-1])
    return Samples(x, y, train, test, len(alphabet))


def idx(
    file: str,
    labels_file: str,
    test_file: str,
    test_labels_file: str,
    first_label: int = 0,
    transposed: bool = False,
) -> Dataset:
    """Images or vectors in IDX files, such as EMNIST, KMNIST and QMNIST.

    Inputs have mean 0 and deviation 1 over the training set. Images of one channel are `(samples,
    height, width)`, of several `(samples, channels, height, width)`.

    Args:
        file: the training inputs; it may be compressed by gzip, bzip2 or xz.
        labels_file: their labels, whole numbers.
        test_file: the test inputs.
        test_labels_file: their labels.
        first_label: the smallest label, which becomes class 0: 1 in `letters` of EMNIST.
        transposed: whether rows and columns of the images are exchanged, as in EMNIST.

    Source: LeCun, Bottou, Bengio, Haffner (1998); Cohen et al. (2017), arXiv:1702.05373 (EMNIST).

    Raises:
        ValueError: a file is not in this format, or files contradict each other.
    """
    return read_idx_files(
        file, labels_file, test_file, test_labels_file, first_label, transposed
    ).dataset("idx")


def read_idx_files(
    file: str,
    labels_file: str,
    test_file: str,
    test_labels_file: str,
    first_label: int = 0,
    transposed: bool = False,
) -> Samples:
    """The samples of `idx`.

    Raises:
        ValueError: as in `idx`.
    """
    train_x = _read_idx("file", file)
    train_y = _read_labels("labels_file", labels_file, len(train_x), first_label)
    test_x = _read_idx("test_file", test_file)
    test_y = _read_labels("test_labels_file", test_labels_file, len(test_x), first_label)
    if train_x.shape[1:] != test_x.shape[1:]:
        got = f"inputs of shape {test_x.shape[1:]}"
        raise wrong_file("test_file", test_file, f"{train_x.shape[1:]} as in file", got)
    classes = int(train_y.max()) + 1
    if classes > MAX_CLASSES:
        got = f"the label {train_y.max() + first_label}"
        raise wrong_file("labels_file", labels_file, f"at most {MAX_CLASSES} classes", got)
    if train_y.min() != 0:
        got = f"labels from {train_y.min() + first_label}"
        raise wrong_file("labels_file", labels_file, f"first_label = {first_label}", got)
    if test_y.max() >= classes or test_y.min() < 0:
        expected = f"labels from {first_label} to {classes - 1 + first_label}"
        wrong = test_y[(test_y >= classes) | (test_y < 0)][0] + first_label
        raise wrong_file("test_labels_file", test_labels_file, expected, f"{wrong}")
    x = np.concatenate([train_x, test_x]).astype(np.float64)
    if transposed:
        x = x.swapaxes(-1, -2)
    if x.ndim == 3:
        x = x[:, None]
    rows = len(train_x)
    deviation = x[:rows].std()
    if not 0 < deviation < np.inf:
        raise wrong_file("file", file, "inputs that differ, of finite numbers", "others")
    if not np.isfinite(x[rows:]).all():
        raise wrong_file("test_file", test_file, "finite numbers", "others")
    scaled = ((x - x[:rows].mean()) / deviation).astype(np.float32)
    y = np.concatenate([train_y, test_y])
    return Samples(np.ascontiguousarray(scaled), y, slice(rows), slice(rows, None), classes)


def _read_idx(key: str, file: str) -> np.ndarray:
    try:
        array = read_idx(Path(file))
    except UnreadableFileError as error:
        raise wrong_file(key, file, "an IDX file", error.reason) from None
    except ValueError as error:
        raise wrong_file(key, file, "an IDX file", str(error)) from None
    if array.ndim < 1 or not array.size:
        raise wrong_file(key, file, "samples", f"an array of shape {array.shape}")
    return array


def _read_labels(key: str, file: str, samples: int, first_label: int) -> np.ndarray:
    labels = _read_idx(key, file)
    if labels.shape != (samples,):
        expected = f"{samples} labels, one for each input"
        raise wrong_file(key, file, expected, f"an array of shape {labels.shape}")
    if labels.dtype.kind == "f" and (labels != np.round(labels)).any():
        raise wrong_file(key, file, "whole numbers as labels", f"{labels[labels % 1 != 0][0]}")
    return labels.astype(np.int64) - first_label


def _draw_test(samples: int, share: float, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sorted indices of test and training samples: the first ones in `order`, and the rest."""
    if not 0 < share < 1:
        raise ValueError(f"test_share = {share}: expected a number > 0 and < 1")
    tests = min(max(round(share * samples), 1), samples - 1)
    return np.sort(order[:tests]), np.sort(order[tests:])


def wrong_file(key: str, file: str | Path, expected: str, got: str) -> ValueError:
    """The error of a file, named by the config key `key`, whose content is not as expected."""
    return ValueError(f"{key} = {file} with {got}: expected {expected}")
