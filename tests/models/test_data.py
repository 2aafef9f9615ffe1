"""Datasets are scaled, split once and for all, and missing in one line."""

import gzip
import os
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch

from laggard.models import (
    DATASETS,
    DataMissingError,
    Dataset,
    cifar,
    digits,
    fashion_mnist,
    mnist,
    synthetic,
    synthetic_images,
)
from laggard.models.data import IDX_FILES
from tests.models.releases import write_cifar, write_leaf

HERE = Path(os.environ.get("LAGGARD_DATA", "absent")) / "MNIST" / "raw"
needs_mnist = pytest.mark.skipif(
    not all((HERE / file).is_file() for file in IDX_FILES),
    reason="LAGGARD_DATA is unset, or has no MNIST",
)


def write_idx(path, array):
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">i4").tobytes()
    path.write_bytes(header + array.astype(np.uint8).tobytes())


@pytest.fixture
def edited_mnist(tmp_path, monkeypatch):
    """A folder in the layout of MNIST, with 5 images to train and 2 to test."""
    folder = tmp_path / "MNIST" / "raw"
    folder.mkdir(parents=True)
    monkeypatch.setenv("LAGGARD_DATA", str(tmp_path))
    for prefix, count in (("train", 5), ("t10k", 2)):
        images = np.arange(count)[:, None, None] * np.ones((28, 28))
        write_idx(folder / f"{prefix}-images-idx3-ubyte", images)
        write_idx(folder / f"{prefix}-labels-idx1-ubyte", np.arange(count))
    return folder


@pytest.fixture
def small_mnist(edited_mnist, monkeypatch):
    """The same, where no file need be as it was published."""
    monkeypatch.setattr("laggard.models.idx_files.SHA256", {})
    return edited_mnist


def test_held_out_samples_are_part_of_training_set():
    """Each training sample is on one side; the test set on none; the part is always the same."""
    marks = torch.arange(50.0)[:, None]
    data = Dataset.from_arrays(marks, np.arange(50) % 10, -marks - 1, np.zeros(50))
    data = replace(data, writers=np.arange(50))
    divided = data.hold_out(0.3)
    assert (len(divided.train_y), len(divided.test_y)) == (35, 15)
    both = torch.cat([divided.train_x, divided.test_x]).flatten()
    assert sorted(both.tolist()) == list(range(50))
    assert torch.equal(divided.train_y, divided.train_x.flatten().long() % 10)
    assert torch.equal(divided.test_y, divided.test_x.flatten().long() % 10)
    assert divided.writers.tolist() == divided.train_x.flatten().tolist()
    assert torch.equal(divided.test_x, data.hold_out(0.3).test_x)
    # a random part, not the end of what may be sorted
    assert divided.test_x.max() - divided.test_x.min() > 20


@pytest.mark.parametrize("share", [0.001, 0.999])
def test_both_sides_of_held_out_part_have_samples(share):
    with pytest.raises(ValueError, match="expected a share that leaves samples"):
        synthetic(samples=50).hold_out(share)


@pytest.fixture
def restored_threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def files(small_mnist, monkeypatch):
    """Small files of every data set that reads any; the arguments of those that a config names."""
    root = small_mnist.parents[1]
    (root / "FashionMNIST").symlink_to("MNIST")
    for name in ("CIFAR10", "CIFAR100"):
        monkeypatch.setattr(cifar, name, getattr(cifar, name)._replace(records=3, tests=3))
        write_cifar(root, getattr(cifar, name))
    (root / "rows").write_text("".join(f"{row % 2} {row % 7 + 1}:{row / 7}\n" for row in range(50)))
    train, test = write_leaf(root)
    rows, written = {"file": str(root / "rows")}, {"file": __file__}
    invented = Path(__file__).parents[2] / "configs" / "data"
    return {
        "idx": {
            "file": str(invented / "letters_train_images.idx.gz"),
            "labels_file": str(invented / "letters_train_labels.idx.gz"),
            "test_file": str(invented / "letters_test_images.idx.gz"),
            "test_labels_file": str(invented / "letters_test_labels.idx.gz"),
            "first_label": 1,
        },
        "libsvm": rows,
        "text": written,
        "femnist": {"file": str(train), "test_file": str(test)},
        "leaf": {"file": str(train), "test_file": str(test)},
    }


@pytest.mark.parametrize("name", DATASETS)
def test_dataset_does_not_depend_on_threads(name, restored_threads, files):
    digests = set()
    for threads in (1, 4):
        torch.set_num_threads(threads)
        data = DATASETS[name](**files.get(name, {}))
        assert data.name == name
        tensors = (data.train_x, data.train_y, data.test_x, data.test_y)
        digests.add(tuple(sha256(one.contiguous().numpy()).hexdigest() for one in tensors))
    assert len(digests) == 1


def test_synthetic_blobs_have_given_separation():
    data = synthetic(samples=4000, features=50, classes=3, separation=6.0, seed=1)
    centres = torch.stack([data.train_x[data.train_y == label].mean(dim=0) for label in range(3)])
    assert data.shape == (50,)
    assert len(data.test_y) == 1000
    assert centres.norm(dim=1).mean().item() == pytest.approx(6.0, rel=0.2)
    assert (data.train_x - centres[data.train_y]).std().item() == pytest.approx(1.0, rel=0.01)
    assert not torch.equal(
        data.train_x, synthetic(samples=4000, features=50, classes=3, seed=2).train_x
    )


@pytest.mark.parametrize(
    ("shape", "settings"),
    [
        ((3, 32, 32), {"classes": 10}),
        ((1, 28, 28), {"classes": 62, "channels": 1, "size": 28, "writers": 100}),
        ((2, 9, 9), {"classes": 2, "channels": 2, "size": 9, "contrast": 1.0}),
    ],
)
def test_synthetic_images_are_scaled_and_shaped(shape, settings):
    data = synthetic_images(samples=400, **settings)
    assert (data.shape, data.classes) == (shape, settings["classes"])
    assert (len(data.train_y), len(data.test_y), len(data.writers)) == (400, 100, 400)
    assert set(data.writers.tolist()) == set(range(settings.get("writers", 1)))
    # of the patterns' numbers, which are few
    assert data.train_x.mean().item() == pytest.approx(0, abs=0.2)
    assert data.train_x.std().item() == pytest.approx(1, abs=0.2)
    other = synthetic_images(samples=400, seed=1, **settings)
    assert not torch.equal(data.train_x, other.train_x)


def test_synthetic_images_have_given_contrast():
    """The mean images of two classes differ by contrast times the patterns; the rest is noise of
    pixels.
    """
    contrast = 0.5
    data = synthetic_images(samples=4000, classes=2, channels=4, contrast=contrast)
    scale = (1 + 1.25 * contrast**2) ** 0.5
    one, other = (data.train_x[data.train_y == label] for label in (0, 1))
    within = torch.cat([one - one.mean(dim=0), other - other.mean(dim=0)]).var().item() * scale**2
    assert 1 < within < 1.2  # of the noise, and of moved edges of squares
    # in the middle of squares
    squares = (one.mean(dim=0) - other.mean(dim=0))[:, 3::8, 3::8] * scale / contrast
    patterns = np.random.default_rng(0).standard_normal((2, 4, 4, 4))
    np.testing.assert_allclose(squares, patterns[0] - patterns[1], atol=0.3)


def test_dataset_keeps_strides_in_other_precision():
    """Channels come last, which convolutions are faster on."""
    single = digits()
    data = single.to("cpu", torch.float64)
    assert data.train_x.dtype == data.test_x.dtype == torch.float64
    assert single.train_x.stride() == data.train_x.stride() == (784, 1, 28, 1)
    assert data.train_y.dtype == torch.int64


def test_existing_files_are_read_and_scaled(small_mnist):
    small_mnist.chmod(0o500)
    data = mnist()
    assert data.train_x.shape == (5, 1, 28, 28)
    assert data.test_y.tolist() == [0, 1]
    assert data.train_x[4, 0, 9, 9].item() == pytest.approx((4 / 255 - 0.1307) / 0.3081, abs=1e-6)
    small_mnist.chmod(0o700)


def test_edited_file_of_mnist_is_refused(edited_mnist):
    with pytest.raises(DataMissingError, match="as it was published"):
        mnist()


def test_distributed_form_of_mnist_is_read(small_mnist):
    for path in list(small_mnist.iterdir()):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert mnist().train_y.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("load", "name"), [(mnist, "MNIST"), (fashion_mnist, "FashionMNIST")])
def test_missing_files_are_named(tmp_path, monkeypatch, load, name):
    def offline(self):
        raise RuntimeError("Error downloading\nTried a mirror, got:\n<urlopen error>")

    from laggard.models.vision import import_torchvision

    monkeypatch.setattr(import_torchvision().datasets.MNIST, "download", offline)
    monkeypatch.setenv("LAGGARD_DATA", str(tmp_path))
    with pytest.raises(DataMissingError) as caught:
        load()
    message = str(caught.value)
    assert "\n" not in message
    assert all(file in message for file in IDX_FILES)
    assert str(tmp_path / name / "raw") in message
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    "content", [b"", b"<html>", bytes([0, 0, 8, 1, 0, 0, 0, 9, 1])], ids=["empty", "page", "cut"]
)
def test_broken_files_are_missing_files(small_mnist, content):
    (small_mnist / IDX_FILES[1]).write_bytes(content)
    with pytest.raises(DataMissingError):
        mnist()


@needs_mnist
def test_mnist_is_real():
    data = mnist()
    assert (len(data.train_y), len(data.test_y)) == (60_000, 10_000)
    assert data.train_x.mean().item() == pytest.approx(0, abs=1e-3)
    assert data.train_x.std().item() == pytest.approx(1, abs=1e-3)
    assert data.train_y[:5].tolist() == [5, 0, 4, 1, 9]


def test_digits_match_scikit_learn():
    from sklearn.datasets import load_digits

    bundle, data = load_digits(), digits()
    order = np.random.default_rng(0).permutation(len(bundle.target))
    small = torch.from_numpy(bundle.images).float().unsqueeze(1) / 16
    x = torch.nn.functional.interpolate(small, size=(28, 28), mode="bilinear", align_corners=False)
    assert torch.equal(torch.cat([data.train_x, data.test_x]), (x[order] - 0.3057) / 0.3246)
    assert torch.cat([data.train_y, data.test_y]).tolist() == bundle.target[order].tolist()
    assert (data.shape, data.classes, len(data.test_y)) == ((1, 28, 28), 10, 297)
