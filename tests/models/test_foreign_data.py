"""Data of other tools: IDX files of every type, files that contradict themselves, data in memory."""

import bz2
import gzip
import json
import lzma
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from ruamel.yaml import YAML

from laggard.models import DataMissingError, Dataset, Supervised, idx, mnist
from laggard.models.files import read_libsvm
from laggard.models.idx_files import ELEMENT_TYPES, SHA256, read_idx
from laggard.models.leaf import leaf as leaf_set
from laggard.models.leaf import read_femnist

BROKEN = YAML(typ="safe").load(Path(__file__).with_name("broken_files.yaml"))
COMPRESS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def idx_bytes(array, code):
    header = bytes([0, 0, code, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    return header + array.astype(ELEMENT_TYPES[code]).tobytes()


def random_array(rng):
    shape = tuple(rng.randrange(1, 6) for _ in range(rng.randrange(1, 5)))
    return np.array([rng.randrange(100) for _ in range(int(np.prod(shape)))]).reshape(shape)


def break_idx(rng, content, compress):
    """A cut, a byte more, an unknown type, or another first byte."""
    broken = [content[: rng.randrange(len(content))], content + b"x"]
    broken += [content[:2] + b"\x0a" + content[3:], b"\x01" + content[1:]]
    return compress(rng.choice(broken))


def check_random_idx(tmp_path, seeds):
    """Half of the files have a fault."""
    for seed in seeds:
        rng = random.Random(seed)
        array, code = random_array(rng), rng.choice(list(ELEMENT_TYPES))
        suffix = rng.choice(list(COMPRESS))
        content = idx_bytes(array, code)
        path = tmp_path / f"{seed}{suffix}"
        if seed % 2 == 0:
            path.write_bytes(COMPRESS[suffix](content))
            np.testing.assert_array_equal(read_idx(path), array)
            continue
        path.write_bytes(break_idx(rng, content, COMPRESS[suffix]))
        with pytest.raises(ValueError, match=str(path)) as caught:
            read_idx(path)
        assert "\n" not in str(caught.value)


def test_random_idx_files_are_read_or_refused(tmp_path):
    check_random_idx(tmp_path, range(200))


@pytest.mark.slow
def test_many_random_idx_files_are_read_or_refused(tmp_path):
    check_random_idx(tmp_path, range(1000, 3000))


def write_sets(tmp_path, suffix="", first_label=1, code=0x08):
    """A training and a test set of 2 x 3 images with three labels."""
    rng = np.random.default_rng(0)
    arrays = {
        "x": rng.integers(0, 100, (9, 2, 3)),
        "y": np.arange(9) % 3 + first_label,
        "test_x": rng.integers(0, 100, (4, 2, 3)),
        "test_y": np.arange(4) % 3 + first_label,
    }
    for name, array in arrays.items():
        kind = code if name.endswith("x") else 0x08
        (tmp_path / f"{name}{suffix}").write_bytes(COMPRESS[suffix](idx_bytes(array, kind)))
    paths = [str(tmp_path / f"{name}{suffix}") for name in arrays]
    return paths, arrays


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("code", [0x08, 0x0B, 0x0D])
def test_idx_has_scaled_images_and_classes_from_zero(tmp_path, suffix, code):
    paths, arrays = write_sets(tmp_path, suffix, code=code)
    data = idx(*paths, first_label=1, transposed=True)
    assert (data.shape, data.classes) == ((1, 3, 2), 3)
    assert data.test_y.tolist() == [0, 1, 2, 0]
    x = arrays["x"].swapaxes(1, 2)
    expected = (x - x.mean()) / x.std()
    np.testing.assert_allclose(data.train_x[:, 0].numpy(), expected, rtol=1e-5, atol=1e-6)


def test_idx_refuses_another_first_label_and_missing_labels(tmp_path):
    paths, _ = write_sets(tmp_path)
    with pytest.raises(ValueError, match=r"labels_file .*first_label = 0"):
        idx(*paths)
    with pytest.raises(ValueError, match=r"labels_file .*9 labels"):
        idx(paths[0], paths[3], paths[2], paths[1], 1)


@pytest.mark.parametrize("suffix", COMPRESS)
def test_distributed_form_of_mnist_is_read(tmp_path, monkeypatch, suffix):
    folder = tmp_path / "MNIST" / "raw"
    folder.mkdir(parents=True)
    monkeypatch.setenv("LAGGARD_DATA", str(tmp_path))
    for name in list(SHA256):
        monkeypatch.delitem(SHA256, name)
    for prefix in ("train", "t10k"):
        images = idx_bytes(np.ones((3, 28, 28)), 0x08)
        (folder / f"{prefix}-images-idx3-ubyte{suffix}").write_bytes(COMPRESS[suffix](images))
        labels = idx_bytes(np.arange(3), 0x08)
        (folder / f"{prefix}-labels-idx1-ubyte{suffix}").write_bytes(COMPRESS[suffix](labels))
    assert mnist().train_y.tolist() == [0, 1, 2]


def test_edited_file_of_mnist_is_refused(tmp_path, monkeypatch):
    folder = tmp_path / "MNIST" / "raw"
    folder.mkdir(parents=True)
    monkeypatch.setenv("LAGGARD_DATA", str(tmp_path))
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (folder / f"{name}-ubyte").write_bytes(idx_bytes(np.ones((3, 28, 28)), 0x08))
    with pytest.raises(DataMissingError, match="as it was published"):
        mnist()


ROWS = "+1 1:0.5 2:1\n-1 2:0.25  # a comment\n1 1:2\n-1 1:1 2:2\n"


@pytest.mark.parametrize("suffix", COMPRESS)
def test_libsvm_is_read_compressed(tmp_path, suffix):
    path = tmp_path / f"rows{suffix}"
    path.write_bytes(COMPRESS[suffix](ROWS.encode()))
    samples = read_libsvm(str(path), None, 0.25, 0)
    np.testing.assert_array_equal(samples.x.toarray(), [[0.5, 1], [0, 0.25], [2, 0], [1, 2]])
    assert samples.y.tolist() == [1, 0, 1, 0]


LABELS = {
    "classes": lambda rng: [rng.randrange(3)],
    "numbers": lambda rng: [rng.randrange(-4000, 4000) / 8],
    "sets": lambda rng: sorted(rng.sample(range(5), rng.randrange(4))),
}
LIBSVM_FAULTS = [
    "1 2:1 1:1",
    "1 1:",
    "1 1",
    "1;2 1:1",
    "x 1:1",
    "nan 1:1",
    "1 1:inf",
    "<html>",
    "1, 1:1",
]
"""Lines that no file of any kind of labels may have."""


def write_libsvm(rng, kind):
    """The lines of a file as programs write them, its labels, and its inputs of four features."""
    labels = [LABELS[kind](rng) for _ in range(rng.randrange(4, 9))]
    if kind != "numbers":
        labels += [[0], [1]]
    # the last feature occurs everywhere: a line without labels and features would be a blank one
    inputs = [[*(rng.choice([0, 0, rng.randrange(99) / 4]) for _ in range(3)), 1.0] for _ in labels]
    space, end = rng.choice([" ", "\t", "  "]), rng.choice(["", " ", "  # a comment", "\r"])
    lines = []
    for row, x in zip(labels, inputs, strict=True):
        pairs = [f"{index}:{value!r}" for index, value in enumerate(x, 1) if value]
        if kind == "classes" and rng.random() < 0.3:
            pairs.insert(0, "qid:7")
        lines.append(space.join([",".join(map(str, row)), *pairs]) + end)
    return lines, labels, inputs


def check_random_libsvm(tmp_path, seeds):
    """Files are read as they were made; one line with a fault is refused, as is a kind unsaid."""
    for seed in seeds:
        rng = random.Random(seed)
        kind, suffix = rng.choice(list(LABELS)), rng.choice(list(COMPRESS))
        lines, labels, inputs = write_libsvm(rng, kind)
        path = tmp_path / f"rows{suffix}"
        path.write_bytes(COMPRESS[suffix]("\n".join(lines).encode()))
        data = read_libsvm(str(path), str(path), 0.5, 0, kind)
        rows = len(labels)
        np.testing.assert_array_equal(
            data.x.toarray()[:rows], np.float32(inputs), err_msg=f"{seed}"
        )
        occurring = sorted({label for row in labels for label in row})
        if kind == "classes":
            expected = [occurring.index(label) for (label,) in labels]
        elif kind == "numbers":
            expected = [label for (label,) in labels]
        else:
            expected = [[label in row for label in occurring] for row in labels]
        np.testing.assert_array_equal(data.y[:rows], expected, err_msg=f"{seed}")
        broken = [*lines]
        broken.insert(rng.randrange(len(lines) + 1), rng.choice(LIBSVM_FAULTS))
        path.write_bytes(COMPRESS[suffix]("\n".join(broken).encode()))
        with pytest.raises(ValueError, match=r"^file = [^\n]*: expected [^\n]*$"):
            read_libsvm(str(path), None, 0.5, 0, kind)
        unsaid = any(len(row) != 1 or row[0] % 1 for row in labels)
        if unsaid:
            path.write_bytes(COMPRESS[suffix]("\n".join(lines).encode()))
            with pytest.raises(ValueError, match="unless labels = "):
                read_libsvm(str(path), None, 0.5, 0)


def test_random_libsvm_files_are_read_or_refused(tmp_path):
    check_random_libsvm(tmp_path, range(40))


@pytest.mark.slow
def test_many_random_libsvm_files_are_read_or_refused(tmp_path):
    check_random_libsvm(tmp_path, range(1000, 2000))


def leaf(users=("u0", "u1"), counts=(1, 2), data=None):
    images = {"u0": 1, "u1": 2}
    stored = data or {
        user: {"x": [[0.5] * 784] * number, "y": [1] * number} for user, number in images.items()
    }
    return {"users": list(users), "num_samples": list(counts), "user_data": stored}


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (leaf(users=["u0", "u1", "u1"], counts=[1, 2, 2]), "'u1' twice"),
        (leaf(counts=[1, 5]), "num_samples = 5 of 'u1'"),
        (leaf(counts=[1]), "2 num_samples"),
        (leaf(users=["u0"], counts=[1]), "data of 'u1'"),
        (leaf(users=["u0", "u2"]), "user_data of each"),
    ],
)
def test_leaf_that_contradicts_itself_is_refused(tmp_path, document, reason):
    path = tmp_path / "leaf.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ValueError, match=reason):
        read_femnist(str(path), str(path))


def test_user_in_two_leaf_files_is_one_writer(tmp_path):
    for name in ("a1.json", "a2.json"):
        (tmp_path / name).write_text(json.dumps(leaf()))
    samples = read_femnist(str(tmp_path), str(tmp_path))
    assert samples.writers.tolist() == [0, 1, 1, 0, 1, 1]


def break_leaf(fault, users, counts, data):
    """Plant one of seven faults."""
    if fault == 0:
        counts[0] += 1
    elif fault == 1:
        users.append(users[0])
        counts.append(counts[0])
    elif fault == 2:
        data["other"] = data["u0"]
    elif fault == 3:
        data["u0"]["y"].append(3)
    elif fault == 4:
        data["u0"]["x"][0] = [0.5] * 783
    elif fault == 5:
        data["u0"]["y"][0] = 62
    else:
        del data["u0"]


def check_random_leaf(tmp_path, seeds):
    for seed in seeds:
        rng = random.Random(seed)
        counts = [rng.randrange(1, 4) for _ in range(rng.randrange(1, 5))]
        users = [f"u{number}" for number in range(len(counts))]
        data = {
            user: {"x": [[0.5] * 784] * count, "y": [rng.randrange(62) for _ in range(count)]}
            for user, count in zip(users, counts, strict=True)
        }
        path = tmp_path / f"{seed}.json"
        if seed % 2 == 0:
            path.write_text(json.dumps(leaf(users, counts, data)))
            samples = read_femnist(str(path), str(path))
            assert np.bincount(samples.writers).tolist() == counts
            continue
        break_leaf(rng.randrange(7), users, counts, data)
        path.write_text(json.dumps(leaf(users, counts, data)))
        with pytest.raises(ValueError, match=str(path)):
            read_femnist(str(path), str(path))


def test_random_leaf_files_are_read_or_refused(tmp_path):
    check_random_leaf(tmp_path, range(60))


@pytest.mark.slow
def test_many_random_leaf_files_are_read_or_refused(tmp_path):
    check_random_leaf(tmp_path, range(1000, 3000))


def test_arrays_and_data_sets_of_torch_are_taken():
    x, y = np.arange(12.0).reshape(4, 3), [0, 1, 2, 1]
    arrays = Dataset.from_arrays(x, y, x[:2], y[:2])
    tensors = torch.utils.data.TensorDataset(torch.tensor(x), torch.tensor(y))
    pairs = Dataset.from_torch(tensors, torch.utils.data.Subset(tensors, [0, 1]))
    for field in ("train_x", "train_y", "test_x", "test_y"):
        assert torch.equal(getattr(arrays, field), getattr(pairs, field))
    assert (arrays.shape, arrays.classes) == ((3,), 3)


@pytest.mark.parametrize(("x", "y", "test_x", "test_y", "kind", "reason"), BROKEN["arrays"])
def test_arrays_that_do_not_fit_are_refused(x, y, test_x, test_y, kind, reason):
    with pytest.raises(ValueError, match=reason):
        Dataset.from_arrays(x, y, test_x, test_y, labels=kind)


def test_regression_on_arrays_ends_at_least_squares():
    """Full batches on three samples of y = 2 x + 1; a step on the labels' integers would differ."""
    x, y = np.array([[0.0], [1.0], [2.0]]), [0.75, 3.0, 5.25]
    pairs = list(zip(x, y, strict=True))
    data = Dataset.from_torch(pairs, pairs, labels="numbers")
    task = Supervised(linear, data, batch=3, dtype=torch.float64, device="cpu", threads=1)
    weights = task.start([0])
    batches = task.batches(0, [np.random.default_rng(0)])
    for _ in range(500):
        weights = weights - 0.2 * task.gradients(weights[None], [next(batches)])[0][0]
    slope, offset = np.polyfit(x[:, 0], y, 1)
    assert weights.flatten().tolist() == pytest.approx([slope, offset], abs=1e-9)


def test_arrays_of_sets_are_trained_by_binary_loss():
    y = [[1, 1], [0, 0], [1, 0]]
    data = Dataset.from_arrays(np.eye(3), y, np.eye(3), y, labels="sets")
    assert (data.classes, data.labels, data.label_kind) == (2, (), "sets")
    task = Supervised(linear, data, batch=3, device="cpu", threads=1)
    weights = torch.tensor([[1.0, -2.0, 3.0, -4.0, 5.0, -6.0, 0.5, 0.25]])
    outputs = weights[0, :6].reshape(2, 3).T + weights[0, 6:]
    expected = torch.nn.functional.binary_cross_entropy_with_logits(outputs, torch.tensor(y) * 1.0)
    evaluation = task.evaluate(weights)
    assert float(evaluation["test_loss"]) == pytest.approx(float(expected))
    # right are (1, 0) of the third sample alone: the first row of outputs is (1.5, -3.75)
    assert float(evaluation["test_accuracy"]) == pytest.approx(1 / 3)


def linear(shape, outputs):
    return torch.nn.Linear(shape[0], outputs)


class Endless(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield 0.0, 0


def test_data_set_without_length_is_refused():
    with pytest.raises(TypeError, match=r"^train: expected a data set with a length"):
        Dataset.from_torch(Endless(), [([0.0], 0)])


def write_users(path, **samples):
    """LEAF's document of users, each with inputs and labels."""
    data = {user: {"x": x, "y": y} for user, (x, y) in samples.items()}
    counts = [len(user["y"]) for user in data.values()]
    document = {"users": list(data), "num_samples": counts, "user_data": data}
    path.write_text(json.dumps(document))
    return str(path)


def test_leaf_reads_numbers_of_any_shape(tmp_path):
    """As LEAF's synthetic set has them, and images that are nested or flat."""
    train = write_users(tmp_path / "a.json", u1=([[0.5, -2], [3, 4]], [0, 2]), u0=([], []))
    test = write_users(tmp_path / "b.json", u0=([[7, 8]], [1]))
    data = leaf_set(train, test)
    assert (data.shape, data.classes, data.labels) == ((2,), 3, ())
    assert data.train_x.tolist() == [[0.5, -2], [3, 4]]
    assert (data.test_x.tolist(), data.test_y.tolist()) == ([[7, 8]], [1])
    assert leaf_set(train, test, shape="1x1x2").shape == (1, 1, 2)
    nested = write_users(tmp_path / "c.json", u=([[[1, 2, 3], [4, 5, 6]]] * 2, [0, 1]))
    assert leaf_set(nested, nested).shape == (2, 3)


def test_leaf_labels_each_character_by_the_next(tmp_path):
    """As in LEAF's Shakespeare: a piece of text, and the character after it."""
    train = write_users(tmp_path / "a.json", ROMEO=(["abca", "bcab"], ["b", "c"]))
    test = write_users(tmp_path / "b.json", JULIET=(["dabc"], ["a"]), NURSE=([], []))
    data = leaf_set(train, test)
    assert (data.shape, data.classes, data.labels) == ((4,), 4, (4,))
    assert data.train_x.tolist() == [[0, 1, 2, 0], [1, 2, 0, 1]]
    assert data.train_y.tolist() == [[1, 2, 0, 1], [2, 0, 1, 2]]
    assert data.test_y.tolist() == [[0, 1, 2, 0]]


@pytest.mark.parametrize(("x", "y", "reason"), BROKEN["samples"])
def test_leaf_refuses_other_samples_with_user(tmp_path, x, y, reason):
    train = write_users(tmp_path / "a.json", u=([[1, 2], [3, 4]], [0, 1]))
    test = write_users(tmp_path / "b.json", v=(x, y))
    with pytest.raises(ValueError, match=reason) as refused:
        leaf_set(train, test)
    assert str(refused.value).startswith(f"test_file = {test} with ")
    assert "'v'" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_leaf_refuses_shape_of_another_size(tmp_path):
    path = write_users(tmp_path / "a.json", u=([[1, 2]], [0]))
    with pytest.raises(ValueError, match=r"shape = 3: expected a shape of 2 numbers"):
        leaf_set(path, path, shape="3")
