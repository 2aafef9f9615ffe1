"""Data sets as whole tensors: digits, and those in the format of MNIST."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from laggard.models.idx_files import find_idx, read_idx

if TYPE_CHECKING:
    import torch
    from torch import Tensor

IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


LabelKind = Literal["classes", "numbers", "sets"]
"""The kinds of labels: one class per sample, one number per sample, or a set of classes, as a row
of 0 and 1.
"""
HOLD_OUT_SEED = 0
"""The seed that draws the held-out samples: the same ones in every run."""
LABEL_DIMENSIONS: dict[LabelKind, int] = {"classes": 1, "numbers": 1, "sets": 2}
"""The dimensions of an array of labels, the first of which is that of the samples."""


class DataMissingError(OSError):
    """A data set's files are missing and could not be downloaded."""


@dataclass(frozen=True)
class Dataset:
    """A training set and a test set: inputs `(samples, ...)` and labels `(samples,)`.

    A mini-batch is a tensor of indices. Labels of texts are `(samples, positions)`. Images have
    mean 0 and deviation 1, except those of `femnist`. Labels that are sets are `(samples, classes)`
    of 0 and 1.

    Attributes:
        classes: number of classes; 1 where labels are numbers.
        writers: the writer of each training sample, `(samples,)` of 0, 1, ...; None if unknown.
        label_kind: whether labels are `classes`, `numbers` or `sets`.
    """

    name: str
    train_x: "Tensor"
    train_y: "Tensor"
    test_x: "Tensor"
    test_y: "Tensor"
    classes: int
    writers: np.ndarray | None = None
    label_kind: LabelKind = "classes"

    @classmethod
    def from_arrays(
        cls,
        x: ArrayLike,
        y: ArrayLike,
        test_x: ArrayLike,
        test_y: ArrayLike,
        name: str = "arrays",
        labels: LabelKind = "classes",
    ) -> "Dataset":
        """A data set of arrays or tensors in memory.

        Args:
            x: training inputs `(samples, ...)`; they are taken as they are, in float32.
            y: their labels: classes 0, 1, ... `(samples,)`, numbers `(samples,)`, or sets of
                classes `(samples, classes)` of 0 and 1.
            test_x: test inputs, of the same shape.
            test_y: their labels.
            labels: the kind of labels; `numbers` train by `mean_squared`, `sets` by `binary`.

        Raises:
            ValueError: shapes or labels do not fit together; names the argument.

        Example:
            >>> data = Dataset.from_arrays([[0.0], [1.0]], [0, 1], [[0.5]], [1])
            >>> data.shape, data.classes
            ((1,), 2)
        """
        import torch

        pairs = (("x", x), ("test_x", test_x))
        inputs = [torch.tensor(_real_numbers(key, one), dtype=torch.float32) for key, one in pairs]
        targets = [np.asarray(_detached(one)) for one in (y, test_y)]
        _check_inputs(inputs)
        classes = _check_labels(inputs, targets, labels)
        dtype = np.float64 if labels == "numbers" else np.int64
        train_y, other_y = (torch.as_tensor(one.astype(dtype)) for one in targets)
        return cls(
            name, inputs[0], train_y, inputs[1], other_y, classes, writers=None, label_kind=labels
        )

    @classmethod
    def from_torch(
        cls, train: Any, test: Any, name: str = "torch", labels: LabelKind = "classes"
    ) -> "Dataset":
        """A data set of two map-style data sets of torch, whose items are an input and a label.

        Every item is read once, in order, so that random transforms are drawn once.

        Args:
            train: the items to train on.
            test: the items to test on.
            labels: the kind of labels, as for `from_arrays`.

        Raises:
            TypeError: one has no length, such as an iterable data set.
            ValueError: inputs or labels differ in shape, or labels are not what `labels` says.

        Example:
            >>> pairs = [([0.0], 0), ([1.0], 1)]
            >>> Dataset.from_torch(pairs, pairs).classes
            2
        """
        arrays = []
        for key, data in (("train", train), ("test", test)):
            if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
                raise TypeError(f"{key}: expected a data set with a length and items by index")
            if len(data) == 0:
                raise ValueError(f"{key}: expected at least one item, got none")
            items = [data[index] for index in range(len(data))]
            if any(not isinstance(item, tuple | list) or len(item) != 2 for item in items):
                raise ValueError(f"{key}: expected items of an input and a label")
            for place, what in enumerate(("inputs", "labels")):
                parts = [np.asarray(_detached(item[place])) for item in items]
                shapes = {part.shape for part in parts}
                if len(shapes) > 1:
                    got = sorted(shapes)[:2]
                    raise ValueError(f"{key}: expected {what} of one shape, got {got}")
                arrays.append(np.stack(parts))
        train_x, train_y, test_x, test_y = arrays
        return cls.from_arrays(train_x, train_y, test_x, test_y, name, labels)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.train_x.shape[1:])

    @property
    def labels(self) -> tuple[int, ...]:
        """The shape of the labels of one input: `()`, also of a set, or `(positions,)`."""
        if self.label_kind == "sets":
            return ()
        return tuple(self.train_y.shape[1:])

    def hold_out(self, share: float) -> "Dataset":
        """A data set whose test samples are a random part of the training samples, held out of
        them.

        The real test samples are left for the runs that report. The part is the same in every run.

        Args:
            share: the share of the training samples, from 0 to 1; `count_held_out` gives their
                number.

        Raises:
            ValueError: the part, or the rest, would be empty.
        """
        import torch

        held = count_held_out(len(self.train_x), share)
        order = np.random.default_rng(HOLD_OUT_SEED).permutation(len(self.train_x))
        part = torch.as_tensor(np.sort(order[:held]))
        rest = np.sort(order[held:])
        writers = None if self.writers is None else self.writers[rest]
        kept = torch.as_tensor(rest)
        return replace(
            self,
            train_x=self.train_x[kept],
            train_y=self.train_y[kept],
            test_x=self.train_x[part],
            test_y=self.train_y[part],
            writers=writers,
        )

    def to(self, device: "torch.device | str", dtype: "torch.dtype") -> "Dataset":
        """The same set with its inputs as `dtype`, on `device`."""
        return replace(
            self,
            train_x=self.train_x.to(device, dtype),
            train_y=self.train_y.to(device),
            test_x=self.test_x.to(device, dtype),
            test_y=self.test_y.to(device),
        )


def count_held_out(samples: int, share: float) -> int:
    """The number of training samples that `hold_out` takes: share x samples, rounded to an integer.

    Raises:
        ValueError: none, or all of them.
    """
    held = round(share * samples)
    if not 0 < held < samples:
        expected = f"expected a share that leaves samples on both sides of {samples}"
        raise ValueError(f"validation = {share:g}: {expected}")
    return held


def _detached(data: Any) -> Any:
    """`data` for numpy: a tensor is detached from its graph, and cast to a type that numpy has."""
    import torch

    if not isinstance(data, torch.Tensor):
        return data
    data = data.detach().cpu()
    return data.float() if data.is_floating_point() else data


def _real_numbers(key: str, data: Any) -> np.ndarray:
    """Inputs as an array of real numbers.

    Raises:
        ValueError: inputs are not real numbers, some are masked, or the matrix is sparse.
    """
    if hasattr(data, "toarray"):
        raise ValueError(f"{key}: expected a dense array, got a sparse matrix: use its toarray()")
    try:
        array = np.asanyarray(_detached(data))
    except ValueError:  # lists of different lengths
        raise ValueError(f"{key}: expected inputs of one shape") from None
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{key}: expected real numbers, got {array.dtype}")
    if np.ma.is_masked(array):
        raise ValueError(f"{key}: expected numbers, got masked ones: use filled()")
    return np.asarray(array)


def check_samples(data: Dataset) -> None:
    """Check that the inputs and labels of a data set are tensors that fit together.

    Raises:
        ValueError: one is no tensor, complex or not finite, or shapes, labels or writers do not
            fit; names it.
    """
    import torch

    if not isinstance(data, Dataset):
        raise ValueError(f"expected a Dataset, got {type(data).__name__}: return one")
    for key in ("train_x", "train_y", "test_x", "test_y"):
        value = getattr(data, key)
        if not isinstance(value, torch.Tensor):
            got = f"{type(value).__module__}.{type(value).__name__}"
            raise ValueError(f"{key}: expected a tensor, got {got}: use Dataset.from_arrays")
    _check_inputs([data.train_x, data.test_x], ("train_x", "test_x"))
    if data.label_kind not in get_args(LabelKind):
        known = ", ".join(get_args(LabelKind))
        raise ValueError(f"label_kind: expected one of {known}, got {data.label_kind!r}")
    for key, x, y in (
        ("train_y", data.train_x, data.train_y),
        ("test_y", data.test_x, data.test_y),
    ):
        _check_label_shape(key, x, y, data)
        if data.label_kind == "classes":
            _check_classes(key, y, data.classes)
            continue
        _check_finite(key, y)
        if data.label_kind == "sets" and not bool(((y == 0) | (y == 1)).all()):
            raise ValueError(f"{key}: expected 0 and 1, got {y.min().item()} to {y.max().item()}")
    if data.writers is not None and len(data.writers) != len(data.train_x):
        expected = f"{len(data.train_x)}, one for each training sample"
        raise ValueError(f"writers: expected {expected}, got {len(data.writers)}")


def _check_label_shape(key: str, x: "Tensor", y: "Tensor", data: Dataset) -> None:
    """Refuse labels of another shape than the kind of labels of `data` has."""
    shape = tuple(y.shape)
    if data.label_kind == "sets":
        expected_shape = (len(x), data.classes)
        if shape != expected_shape:
            raise ValueError(f"{key}: expected the shape {expected_shape}, got {shape}")
        return
    fits = y.ndim >= 1 and len(y) == len(x)
    if data.label_kind == "numbers":
        fits = fits and y.ndim == 1
    expected = f"{len(x)} labels, one for each input"
    # Labels of texts are `(samples, positions)`, and so are their inputs.
    is_column = shape == (len(x), 1)
    if is_column and (x.shape[1] != 1 or not fits):
        raise ValueError(f"{key}: expected {expected}, got the shape {shape}: use its squeeze(1)")
    if not fits:
        raise ValueError(f"{key}: expected {expected}, got the shape {shape}")


def _check_finite(key: str, values: "Tensor") -> None:
    """Refuse real values that are not finite; the error names the first sample with one."""
    finite = values.isfinite()
    if bool(finite.all()):
        return
    place = (~finite).nonzero()[0]
    got = values[tuple(place)].item()
    raise ValueError(f"{key}: expected finite numbers, got {got} in sample {int(place[0])}")


def _check_classes(key: str, labels: "Tensor", classes: int) -> None:
    """Refuse labels other than classes below `classes`, in a type that torch's losses take."""
    import torch

    if labels.dtype not in (torch.int64, torch.uint8):
        raise ValueError(f"{key}: expected torch.int64, got {labels.dtype}: use its long()")
    low, high = int(labels.min()), int(labels.max())
    if classes < 1:
        raise ValueError(f"classes: expected at least 1, got {classes}")
    if low < 0 or high >= classes:
        expected = f"classes from 0 to {classes - 1}, as `classes` says"
        raise ValueError(f"{key}: expected {expected}, got {low} to {high}")


def _check_inputs(inputs: "Sequence[Tensor]", keys: Sequence[str] = ("x", "test_x")) -> None:
    """Refuse training and test inputs that differ in shape or are not finite."""
    for key, x in zip(keys, inputs, strict=True):
        if x.ndim < 2 or not len(x):
            raise ValueError(f"{key}: expected (samples, ...), got the shape {tuple(x.shape)}")
        if x.is_complex():
            raise ValueError(f"{key}: expected real numbers, got {x.dtype}")
        _check_finite(key, x)
    if inputs[0].shape[1:] != inputs[1].shape[1:]:
        train, test = (tuple(x.shape[1:]) for x in inputs)
        expected = f"inputs of shape {train} as in {keys[0]}"
        raise ValueError(f"{keys[1]}: expected {expected}, got {test}")


def _check_labels(inputs: "Sequence[Tensor]", labels: Sequence[np.ndarray], kind: LabelKind) -> int:
    """The number of classes, 1 for numbers; refuses labels that do not fit the inputs or `kind`."""
    if kind not in get_args(LabelKind):
        raise ValueError(f"labels: expected one of {', '.join(get_args(LabelKind))}, got {kind!r}")
    train, test = labels
    for key, x, y in zip(("y", "test_y"), inputs, labels, strict=True):
        if len(y.shape) != LABEL_DIMENSIONS[kind] or len(y) != len(x):
            expected = f"{len(x)} labels, one for each input"
            if kind == "sets":
                expected = f"the shape ({len(x)}, classes)"
            raise ValueError(f"{key}: expected {expected}, got the shape {y.shape}")
        if y.dtype.kind not in "biuf" or not np.isfinite(y).all():
            raise ValueError(f"{key}: expected finite numbers, got {y.dtype} with {y.flat[0]!r}")
        if kind == "classes" and ((y != np.round(y)).any() or y.min() < 0):
            expected = "classes 0, 1, ..., or labels='numbers'"
            raise ValueError(f"{key}: expected {expected}, got {y.min()} to {y.max()}")
        if kind == "sets" and not np.isin(y, (0, 1)).all():
            raise ValueError(f"{key}: expected 0 and 1, got {y.min()} to {y.max()}")
    if kind == "numbers":
        return 1
    if kind == "sets":
        if test.shape[1] != train.shape[1]:
            expected = f"{train.shape[1]} classes as in y"
            raise ValueError(f"test_y: expected {expected}, got {test.shape[1]}")
        return int(train.shape[1])
    if train.min() > 0:
        got = f"from {train.min()} on"
        raise ValueError(f"y: expected classes from 0 on, got labels {got}: subtract {train.min()}")
    if test.max() > train.max():
        raise ValueError(f"test_y: expected classes up to {train.max()} as in y, got {test.max()}")
    return int(train.max()) + 1


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
    import torch

    folder = data_root() / name / "raw"
    try:
        if not all(find_idx(folder, file) for file in IDX_FILES):
            from laggard.models.vision import import_torchvision

            getattr(import_torchvision().datasets, name)(data_root(), download=True)
        arrays = []
        for file in IDX_FILES:
            path = find_idx(folder, file) or folder / file
            arrays.append(torch.from_numpy(read_idx(path, f"{name}/{file}")))
        train_x, train_y, test_x, test_y = arrays
        if (len(train_x), len(test_x)) != (len(train_y), len(test_y)):
            raise ValueError("a label is missing")
        return train_x, train_y, test_x, test_y
    # no network, no permission, a broken archive or file
    except (OSError, RuntimeError, ValueError) as error:
        problem = f"{name} is missing or incomplete in {folder}, and could not be downloaded"
        if "as it was published" in str(error):
            problem = str(error)
        remedy = f"put {', '.join(IDX_FILES)} there, as they are or compressed"
        other = f"set LAGGARD_DATA to a folder that holds {name}/raw with them"
        raise DataMissingError(f"{problem}: {remedy}, or {other}") from None


def data_root() -> Path:
    """The folder of datasets: LAGGARD_DATA, or else the user's cache directory."""
    root = os.environ.get("LAGGARD_DATA")
    if root:
        return Path(root)
    import platformdirs

    return Path(platformdirs.user_cache_dir("laggard"))
